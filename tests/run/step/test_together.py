"""Rollouts that a part holds until it has seen their whole group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from made import completion, end_of, ended
from podsrl.errors import UsageError
from podsrl.lib.parts import Call
from podsrl.run.step.together import TogetherTalk, TogetherTalks
from podsrl.types import Rollout


def done(name: str, index: int, word: str = "open") -> Rollout:
    return completion((5,), group_id=name, index=index, **ended(word))


class Odd:
    """Rollouts with an odd index go on."""

    def __init__(self, answer: Any = None) -> None:
        self.answer, self.seen = answer, list[list[tuple[str, int, str]]]()

    def together(self, rollouts: Sequence[Rollout]) -> Any:
        self.seen.append([(one.group_id, one.index, end_of(one)) for one in rollouts])
        return [one.index for one in rollouts if one.is_open and one.index % 2] if not self.answer else self.answer


def talk_of(part: Odd) -> TogetherTalk:
    talks = TogetherTalks(Call("together of systems = 'mine:Odd'", part.together, part))
    return talks(None)  # type: ignore[arg-type]  # not read


def test_a_group_is_shown_once_in_the_order_of_its_indices_and_what_does_not_go_on_is_pruned() -> None:
    part = Odd()
    talk = talk_of(part)
    came = [
        done("a", 3),
        done("b", 0, "stop"),
        done("a", 0, "stop"),
        done("a", 2),
        done("b", 1, "length"),
        done("a", 1),
    ]
    assert [talk.takes(one) for one in came] == [one.is_open for one in came]
    assert list(talk.answers(is_idle=False)) == [] and talk.num_waiting == 3
    assert {(one.index, end_of(one)) for one in talk.answers(is_idle=True)} == {(1, "open"), (2, "pruned"), (3, "open")}
    assert part.seen == [[("a", 0, "stop"), ("a", 1, "open"), ("a", 2, "open"), ("a", 3, "open")]]
    assert not talk.takes(done("a", 3, "stop")) and talk.takes(done("a", 1))  # it may stop again
    assert [(one.index, end_of(one)) for one in talk.answers(is_idle=True)] == [(1, "open")]
    assert part.seen[1] == [("a", 0, "stop"), ("a", 1, "open"), ("a", 2, "pruned"), ("a", 3, "stop")]
    assert not talk.takes(done("a", 1, "stop")) and list(talk.answers(is_idle=True)) == []


@pytest.mark.parametrize(("answer", "named"), [([0], r"\{0\}"), ([9, 1], r"\{9\}"), (7, "TypeError")])
def test_an_answer_that_names_others_is_one_line(answer: Any, named: str) -> None:
    talk = talk_of(Odd(answer))
    for one in (done("a", 0, "stop"), done("a", 1)):
        talk.takes(one)
    with pytest.raises(UsageError, match=rf"^together of systems = 'mine:Odd'.*{named}") as error:
        list(talk.answers(is_idle=True))
    assert "\n" not in str(error.value)
