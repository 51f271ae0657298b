"""What a generator gives is checked against what it was asked: whatever is wrong is one line that names the rollout."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from loops import each
from podsrl.errors import PodsError, UsageError
from podsrl.generate import Generator, Kind, Request, Sampling, Setting, answers_of, resolve_generator
from podsrl.types import Begun, Completion

REQUESTS = [Request("a", (1,), 2, Sampling(max_new_tokens=3)), Request("b", (1,), 1, first_index=4)]
Alter = Callable[[list[Completion]], Any]


class Altered(Generator):
    """Gives what `alter` makes of right completions."""

    version = 0
    abilities = frozenset({"join"})

    def __init__(self, alter: Alter) -> None:
        self.alter = alter

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        right = [
            Completion(
                request_id=request.id,
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


def kind_of(name: str) -> Kind:
    return Kind(option=f"rollouts.generator = '{name}'", options_name=name, factory=Altered)


def answers(alter: Alter, name: str = "m:f") -> list[Completion]:
    return list(answers_of(Altered(alter), REQUESTS, kind=kind_of(name), num_words=10))


def second(**changes: Any) -> Alter:
    return lambda found: [found[0], replace(found[1], **changes), found[2]]


def test_right_completions_pass_in_the_order_in_which_they_come() -> None:
    assert [(each.request_id, each.index) for each in answers(reversed)] == [("b", 4), ("a", 1), ("a", 0)]
    unfinished = {"token_ids": (), "logprobs": (), "finish_reason": "aborted"}
    assert len(answers(second(**unfinished))) == 3
    assert len(answers(second(logprobs=(-1.0, math.nan), finish_reason="invalid"))) == 3


@each(
    ("alter", "named"),
    [
        (lambda found: found[:2], ["1 of 3", "4", "'b'"]),
        (lambda found: [*found, found[0]], ["0", "'a'"]),
        (second(request_id="c"), ["1", "'c'"]),
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
        (second(finish_reason="done"), ["'done'", "stop, length"]),
        (lambda found: [{"a": 1}], ["{'a': 1}", "Completion"]),
    ],
)
def test_wrong_completions_of_any_generator_are_one_line(alter: Alter, named: list[str]) -> None:
    for name in ("m:f", "engine"):
        with pytest.raises(PodsError) as raised:
            answers(alter, name)
        for text in (f"rollouts.generator = '{name}'", *named):
            assert text in str(raised.value)
        assert "\n" not in str(raised.value)


class Watched(Altered):
    abilities = frozenset({"join", "watch"})

    def generate(self, requests: Iterable[Request], *, watch: Any = None) -> Iterator[Completion]:
        assert watch == "seen"
        return super().generate(requests)


@pytest.mark.parametrize(
    ("forks", "named"),
    [
        ([("a", 2), ("b", 5), ("a", 3), ("b", 6)], None),
        ([("a", 3), ("a", 2)], None),
        ([("a", 3)], r"forks of group 'a' and none with the index 2 before them"),
        ([("a", 2), ("a", 2)], r"rollout 2 of request 'a', which is not asked for, or given before"),
        ([("b", 2)], r"rollout 2 of request 'b', which is not asked for"),
        ([("c", 2)], r"rollout 2 of request 'c', which is not asked for"),
    ],
)
def test_forks_of_a_watch_are_the_next_of_their_group_once_each(
    forks: list[tuple[str, int]], named: str | None
) -> None:
    def alter(found: list[Completion]) -> list[Completion]:
        return [*(replace(found[0], request_id=name, index=index) for name, index in forks), *found]

    def found() -> list[Completion]:
        watch: Any = "seen"
        return list(answers_of(Watched(alter), REQUESTS, kind=kind_of("m:f"), num_words=10, watch=watch))

    if named is None:
        assert [(each.request_id, each.index) for each in found()][: len(forks)] == forks
        with pytest.raises(PodsError, match="not asked for"):
            answers(alter)
        return
    with pytest.raises(PodsError, match=named) as raised:
        found()
    assert "\n" not in str(raised.value)


def test_a_generator_that_does_not_go_on_from_a_start_or_lacks_an_ability_is_named() -> None:
    start = Begun(index=4, token_ids=(5, 8), logprobs=(-0.5, 0.0), version=0)
    request = Request("b+4", (1,), 1, Sampling(max_new_tokens=3), first_index=4, stream="b", starts={4: start})
    generator = Altered(list)
    for abilities, kind, named in (
        ((), UsageError, r"group 'b'.*Altered lacks the ability 'join'"),
        (("join",), UsageError, r"rollout 4 .*group 'b'.*Altered lacks the ability 'start'"),
        (("join", "start"), PodsError, r"rollout 4 of request 'b\+4', which is not what goes on from its start"),
    ):
        generator.abilities = frozenset(abilities)
        with pytest.raises(kind, match=named):
            list(answers_of(generator, [request], kind=kind_of("m:f"), num_words=10))


def test_what_a_users_generator_raises_is_one_line_and_what_another_raises_stays() -> None:
    def raising(found: list[Completion]) -> Iterator[Completion]:
        yield found[0]
        raise KeyError("half")

    with pytest.raises(UsageError, match=r"'m:f' raised KeyError: 'half' \(test_answers\.py, line \d+\)"):
        answers(raising)
    with pytest.raises(UsageError, match="'m:f' raised TypeError"):
        answers(lambda found: None)
    with pytest.raises(KeyError):
        answers(raising, "engine")


def test_a_generator_beside_begins_when_it_is_asked() -> None:
    begun: list[int] = []
    answers_of(
        Altered(lambda found: begun.append(len(found)) or iter(found)), REQUESTS, kind=kind_of("m:f"), num_words=10
    )
    assert begun == [3]


class Bare:
    version = 0


def nothing(setting: Setting) -> None: ...


def bare(setting: Setting) -> Bare:
    return Bare()


@pytest.mark.parametrize(("name", "lacks"), [("nothing", "version, generate"), ("bare", "generate, abort")])
def test_what_is_no_generator_is_an_error(name: str, lacks: str) -> None:
    kind = resolve_generator(f"{__name__}:{name}", {})
    with pytest.raises(UsageError, match=f"{name}' returned .* has no {lacks}"):
        kind.make(Setting(load_model=lambda: None, folder=""))
