"""Parts that look at running rollouts as one watch: what they are shown, what they may answer, how they are sent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from loops import each
from podsrl.control import Steering
from podsrl.control.steer import Random
from podsrl.errors import UsageError
from podsrl.generate import End, Fork, Live
from podsrl.types import Notes


def live(num_tokens: Sequence[int], groups: str = "", seed: int = 0) -> Live:
    """A rollout for each count, all on one row."""
    names = list(groups or "a" * len(num_tokens))
    return Live(
        keys=[(name, names[:i].count(name)) for i, name in enumerate(names)],
        num_tokens=list(num_tokens),
        random_keys=np.arange(len(num_tokens), dtype=np.uint64) + np.uint64(1000 * seed),
        row_of=torch.zeros(len(num_tokens), dtype=torch.int64),
        logits=torch.zeros(1, 4),
        hidden=torch.zeros(1, 2),
        notes=[Notes()] * len(num_tokens),
        tokens=lambda key: np.zeros(0, np.int32),
        stop_ids=frozenset(),
    )


LEARNED, FORKED = "small_steering:Learned", "small_steering:Forked"


def part_of(found: Steering, place: int) -> Any:
    return found._parts["look"][place].part


@each("seed", range(40))
def test_random_ends_those_whose_coin_is_below_the_share(seed: int) -> None:
    """The coin by hand: 53 bits of a hash of the rollout's key."""
    share, shown = seed / 40, live([8] * 30, seed=seed)
    digests = [hashlib.blake2b(f"{1000 * seed + i}/prune/random".encode(), digest_size=8).digest() for i in range(30)]
    coins = [(int.from_bytes(digest, "little") // 2**11) / 2**53 for digest in digests]
    expected = [End(("a", i)) for i, coin in enumerate(coins) if coin < share]
    assert Random(at=8, share=share).look(shown) == expected
    again = shown.only(range(29, -1, -1))
    assert set(Random(at=8, share=share).look(again)) == set(expected)


def test_a_part_is_shown_its_counts_alone_and_a_later_one_what_an_earlier_one_leaves() -> None:
    found = Steering([LEARNED, FORKED], {})
    assert found.at == frozenset({1, 2})
    part_of(found, 0).shares = np.array([0.0, 1.0])  # all with an odd index
    assert found.look(live([2, 2, 1, 2])) == [End(("a", 1)), End(("a", 3)), Fork(("a", 2), token=5)]
    assert found.look(live([1, 1, 1])) == [Fork(("a", 0), 2), Fork(("a", 2), token=5)]
    assert found.look(live([3])) == []
    both = Steering(["small_steering:Unmoved", FORKED], {})
    assert both.at is None and both.look(live([2, 1, 1])) == [Fork(("a", 2), token=5)]


@each("seed", range(5))
def test_the_order_of_the_systems_decides_who_sees_first(seed: int) -> None:
    options, shown = {"random": {"at": 1, "share": 0.6}}, live([1] * 9, seed=seed)
    ended = {act.key for act in Random(at=1, share=0.6).look(shown)}
    forked = [Fork(("a", 2), token=5), Fork(("a", 0), 2)]  # as the part gives them
    forked.sort(key=lambda act: -1 if act.key in ended else act.key[1])
    for systems, forks in (
        (["random", FORKED], [act for act in forked if act.key not in ended]),
        ([FORKED, "random"], forked),  # before their sources end
    ):
        acts = Steering(systems, options).look(shown)
        assert {act.key for act in acts if isinstance(act, End)} == ended
        assert [act for act in acts if isinstance(act, Fork)] == forks
    assert 0 < len(ended) < 9


def test_what_looks_at_nothing_is_never_shown_anything() -> None:
    for systems in ([], ["dars"]):
        found = Steering(systems, {})
        assert found.at == frozenset() and found.look(live([1, 2])) == []


def test_parts_arrive_in_another_process_with_options_and_state() -> None:
    found = Steering([LEARNED, "dars", FORKED], {LEARNED: {"at": 3}, FORKED: {"token": 6}})
    part_of(found, 0).shares, part_of(found, 0).seen = np.array([0.5, 1 / 3]), 4
    made = Steering.unpack(found.pack())
    learned, forked = (call.part for call in made._parts["look"])
    assert learned.shares.tolist() == [0.5, 1 / 3] and (learned.seen, forked.token) == (4, 6)
    shown = live([3, 1, 1, 3] * 5)
    assert made.at == found.at and made.look(shown) == found.look(shown) != []


def test_of_a_system_of_several_parts_what_looks_arrives_in_another_process() -> None:
    """The options of its other parts go with it, and are read again there."""
    options: dict[str, dict[str, Any]] = {"xrpo": {"count": 1}, "poise": {"at": [3], "ridge": 2.0}}
    made = Steering.unpack(Steering(["xrpo", "poise"], options).pack())
    assert made.at == frozenset({0, 3}) and [call.option for call in made._parts["look"]] == [
        "look of systems = 'poise'"
    ]


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        ("none", "returned None"),
        ("number", "returned 7"),
        ("pair", r"returned \('a', 0\)"),
        ("fork_of_ended", r"returned Fork\(key=\('a', 0\).*no fork of one that ends"),
        ("unknown", r"returned End\(key=\('gone', 3\).*that it was shown"),
        ("unknown_fork", r"returned Fork\(key=\('gone', 3\).*that it was shown"),
        ("hold", r"returned Hold\(key=\('a', 0\)"),
        ("raising", "raised ZeroDivisionError"),
    ],
)
def test_what_may_not_be_answered_is_one_line(answer: str, got: str) -> None:
    with pytest.raises(UsageError, match=rf"^look of systems = 'small_steering:Wrong' {got}") as error:
        Steering(["small_steering:Wrong"], {"small_steering:Wrong": {"answer": answer}}).look(live([1]))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("at", [7, "8", [1.5], [True], [-1]])
def test_an_at_that_is_no_token_counts_is_one_line(at: Any) -> None:
    with pytest.raises(UsageError, match=r"look of systems = 'small_steering:At' has at = .*wanted token counts"):
        Steering(["small_steering:At"], {"small_steering:At": {"at": at}})
