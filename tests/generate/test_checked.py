"""What a generator gives is checked against what it was asked: whatever is wrong is one line that names the rollout."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from loops import each
from podsrl.errors import PodsError, UsageError
from podsrl.generate import Checked, Generator, Kind, Request, Sampling
from podsrl.types import Parent, Rollout

REQUESTS = [Request("a", (1,), 2, Sampling(max_new_tokens=3)), Request("b", (1,), 1, first_index=4)]
Alter = Callable[[list[Rollout]], Any]


class Altered(Generator):
    """Gives what `alter` makes of right completions; it has `generate` alone."""

    version = 0
    abilities = frozenset({"join"})

    def __init__(self, alter: Alter) -> None:
        self.alter = alter

    def generate(self, requests: Iterable[Request], *, watch: Any = None) -> Iterator[Rollout]:
        right = [
            Rollout(
                group_id=request.id,
                index=index,
                token_ids=(5, 9),
                logprobs=(-0.5, 0.0),
                finish_reason="stop",
                version=0,
            )
            for request in requests
            for index in request.indices
        ]
        return self.alter(right)  # type: ignore[no-any-return]

    def abort(self, ids: Any) -> None: ...

    def load_weights(self, named_tensors: Any, version: int) -> None: ...


class Polled(Altered):
    """The same by `submit` and `poll`."""

    num_left = 0

    @property
    def num_unfinished(self) -> int:  # type: ignore[override]
        return self.num_left

    def submit(self, requests: Iterable[Request], *, watch: Any = None) -> None:
        self.found = iter(self.generate(requests))
        self.num_left = 1

    def poll(self, seconds: float | None = None) -> list[Rollout]:
        found = list(itertools.islice(self.found, 2))
        self.num_left = len(found)
        return found


FORMS = (Altered, Polled)


def kind_of(name: str) -> Kind:
    return Kind(option=f"rollouts.generator = '{name}'", options_name=name, factory=Altered)


def all_of(generator: Altered, requests: list[Request], name: str = "m:f", watch: Any = None) -> list[Rollout]:
    checked = Checked(generator, kind=kind_of(name), num_words=10)
    checked.submit(requests, watch)
    found = list[Rollout]()
    while checked.num_unfinished:
        found += checked.poll()
    return found


def answers(alter: Alter, name: str = "m:f", form: type[Altered] = Altered) -> list[Rollout]:
    return all_of(form(alter), REQUESTS, name)


def second(**changes: Any) -> Alter:
    return lambda found: [found[0], replace(found[1], **changes), found[2]]


@pytest.mark.parametrize("form", FORMS)
def test_right_completions_pass_in_the_order_in_which_they_come(form: type[Altered]) -> None:
    assert [(each.group_id, each.index) for each in answers(reversed, form=form)] == [("b", 4), ("a", 1), ("a", 0)]
    unfinished = {"token_ids": (), "logprobs": (), "status": "open", "finish_reason": None}
    assert len(answers(second(**unfinished), form=form)) == 3
    assert len(answers(second(logprobs=(-1.0, math.nan), status="failed", finish_reason=None), form=form)) == 3


@each(
    ("alter", "named"),
    [
        (lambda found: [*found, found[0]], ["0", "'a'"]),
        (second(group_id="c"), ["1", "'c'"]),
        (second(index=7), ["7", "'a'"]),
        (second(token_ids=(5,)), ["1 tokens", "2 log-probs"]),
        (second(token_ids=(5,) * 4, logprobs=(-1.0,) * 4), ["4 tokens", "at most 3"]),
        (second(versions=(0,)), ["1 versions"]),
        (second(token_ids=(), logprobs=()), ["1", "'a'"]),
        (second(token_ids=(5, 10)), ["0 .. 9", "10"]),
        (second(token_ids=(5, -1)), ["0 .. 9", "-1"]),
        (second(token_ids=(5.0, 1.0)), ["0 .. 9", "5.0"]),
        (second(token_ids=[5, 9]), ["token_ids", "tuples"]),
        (second(logprobs=(-1.0, math.nan)), ["nan"]),
        (second(logprobs=(-1.0, -math.inf)), ["-inf"]),
        (second(logprobs=(-1.0, 0.5)), ["0.5"]),
        (second(given=((0, 3),)), ["given as ascending stretches of 0 .. 2"]),
        (second(given=((0, 1),)), ["the log-prob 0 of given tokens"]),
        (second(given=[(1, 2)]), ["given", "tuples"]),
        (second(finish_reason="eos"), ["'eos'", "stop, length"]),
        (second(finish_reason=None), ["done with finish_reason = None", "stop, length"]),
        (second(status="aborted"), ["'aborted'", "open, done, pruned, failed"]),
        (second(status="open"), ["open with finish_reason = 'stop'", "None"]),
        (lambda found: [{"a": 1}], ["{'a': 1}", "Rollout"]),
    ],
)
def test_wrong_completions_of_any_generator_are_one_line(alter: Alter, named: list[str]) -> None:
    for name, form in itertools.product(("m:f", "engine"), FORMS):
        with pytest.raises(PodsError) as raised:
            answers(alter, name, form)
        for text in (f"rollouts.generator = '{name}'", *named):
            assert text in str(raised.value)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("form", "name"), [(Altered, "Altered"), (Polled, "rollouts.generator = 'm:f'")])
def test_rollouts_that_do_not_come_are_named(form: type[Altered], name: str) -> None:
    with pytest.raises(PodsError, match=rf"^{name} ended without 1 (of 3 )?rollouts, such as 4 of group 'b'$"):
        answers(lambda found: found[:2], form=form)


@pytest.mark.parametrize(
    ("forks", "named"),
    [
        ([("a", 2), ("b", 5), ("a", 3), ("b", 6)], None),
        ([("a", 3), ("a", 2)], None),
        ([("a", 3)], r"forks of group 'a' and none with the index 2 before them"),
        ([("a", 2), ("a", 2)], r"rollout 2 of group 'a', which is not asked for, or given before"),
        ([("b", 2)], r"rollout 2 of group 'b', which is not asked for"),
        ([("c", 2)], r"rollout 2 of group 'c', which is not asked for"),
    ],
)
def test_forks_of_a_watch_are_the_next_of_their_group_once_each(
    forks: list[tuple[str, int]], named: str | None
) -> None:
    def alter(found: list[Rollout]) -> Iterator[Rollout]:
        return iter([*(replace(found[0], group_id=name, index=i, parent=Parent(0, 1)) for name, i in forks), *found])

    for form in FORMS:
        if named is None:
            found = all_of(form(alter), REQUESTS, watch="seen")
            assert [(each.group_id, each.index) for each in found][: len(forks)] == forks
            with pytest.raises(PodsError, match="not asked for"):
                answers(alter, form=form)
            continue
        with pytest.raises(PodsError, match=named) as raised:
            all_of(form(alter), REQUESTS, watch="seen")
        assert "\n" not in str(raised.value)


def test_a_generator_that_does_not_go_on_from_a_start_or_lacks_an_ability_is_named() -> None:
    start = Rollout(group_id="g", status="open", index=4, token_ids=(5, 8), logprobs=(-0.5, 0.0), version=0)
    request = Request("b", (1,), 1, Sampling(max_new_tokens=3), first_index=4, starts={4: start})
    generator = Altered(list)
    for abilities, kind, named in (
        ((), UsageError, r"rollout 4 .*group 'b'.*Altered lacks the ability 'start'"),
        (("start",), UsageError, r"group 'b'.*Altered lacks the ability 'join'"),
        (("join", "start"), PodsError, r"rollout 4 of group 'b', which is not what goes on from its start"),
    ):
        generator.abilities = frozenset(abilities)
        with pytest.raises(kind, match=named):
            all_of(generator, [request])


def test_what_a_users_generator_raises_is_one_line_and_what_another_raises_stays() -> None:
    def raising(found: list[Rollout]) -> Iterator[Rollout]:
        yield found[0]
        raise KeyError("half")

    with pytest.raises(UsageError, match=r"'m:f' raised KeyError: 'half' \(test_checked\.py, line \d+\)"):
        answers(raising)
    with pytest.raises(UsageError, match="'m:f' raised TypeError"):
        answers(lambda found: None)
    with pytest.raises(KeyError):
        answers(raising, "engine")


def test_a_generator_that_has_generate_alone_begins_when_it_is_asked_and_what_comes_then_waits() -> None:
    begun: list[int] = []
    generator = Altered(lambda found: begun.append(len(found)) or iter(found))
    checked = Checked(generator, kind=kind_of("m:f"), num_words=10)
    checked.submit(REQUESTS[:1])
    checked.submit(REQUESTS[1:])
    assert begun == [2] and checked.num_unfinished == 3
    found = [checked.poll() for _ in range(5)]
    assert begun == [2, 1] and [len(each) for each in found] == [1, 1, 1, 0, 0]
