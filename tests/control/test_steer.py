"""`steer.prune` and `steer.branch` as one watch: what parts are shown, what they may answer, and how they are sent."""

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

NEVER = "never"


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
        noted=[()] * len(num_tokens),
        tokens=lambda key: np.zeros(0, np.int32),
        stop_ids=frozenset(),
    )


def steering(prune: str = NEVER, branch: str = NEVER, **options: Any) -> Steering:
    return Steering({"steer.prune": prune, "steer.branch": branch}, options)


def own(name: str) -> str:
    return f"small_steering:{name}"


@each("seed", range(40))
def test_random_ends_those_whose_coin_is_below_the_share(seed: int) -> None:
    """The coin by hand: 53 bits of a hash of the rollout's key."""
    share, shown = seed / 40, live([8] * 30, seed=seed)
    digests = [hashlib.blake2b(f"{1000 * seed + i}/prune/random".encode(), digest_size=8).digest() for i in range(30)]
    coins = [(int.from_bytes(digest, "little") // 2**11) / 2**53 for digest in digests]
    expected = [End(("a", i)) for i, coin in enumerate(coins) if coin < share]
    assert Random(at=8, share=share).prune(shown) == expected
    again = shown.only(range(29, -1, -1))
    assert set(Random(at=8, share=share).prune(again)) == set(expected)


def test_a_part_is_shown_its_counts_alone_and_branch_what_prune_leaves() -> None:
    found = steering(own("Learned"), own("Forked"))
    assert found.at == frozenset({1, 2})
    found._slots["steer.prune"][0].part.shares = np.array([0.0, 1.0])  # all with an odd index
    assert found.look(live([2, 2, 1, 2])) == [End(("a", 1)), End(("a", 3)), Fork(("a", 2), token=5)]
    assert found.look(live([1, 1, 1])) == [Fork(("a", 0), 2), Fork(("a", 2), token=5)]
    assert found.look(live([3])) == []
    both = steering(own("Unmoved"), own("Forked"))
    assert both.at is None and both.look(live([2, 1, 1])) == [Fork(("a", 2), token=5)]
    random = steering("random", own("Forked"), random={"at": 1, "share": 0.9})
    acts = random.look(live([1] * 9))
    ended = {act.key for act in acts if isinstance(act, End)}
    assert len(ended) > 2 and not ended & {act.key for act in acts if isinstance(act, Fork)}


def test_a_part_that_never_acts_is_never_shown_anything() -> None:
    assert steering().at == frozenset() and steering().look(live([1, 2])) == []


def test_parts_arrive_in_another_process_with_options_and_state() -> None:
    part = "small_steering:Learned"
    found = steering(part, own("Forked"), **{part: {"at": 3}, own("Forked"): {"token": 6}})
    found._slots["steer.prune"][0].part.shares = np.array([0.5, 1 / 3])
    found._slots["steer.prune"][0].part.seen = 4
    made = Steering.unpack(found.pack())
    [prune], [branch] = made._slots["steer.prune"], made._slots["steer.branch"]
    assert prune.part.shares.tolist() == [0.5, 1 / 3] and (prune.part.seen, branch.part.token) == (4, 6)
    shown = live([3, 1, 1, 3] * 5)
    assert made.at == found.at and made.look(shown) == found.look(shown) != []


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        ("none", "returned None"),
        ("number", "returned 7"),
        ("pair", r"returned \('a', 0\)"),
        ("fork", r"returned Fork\(.*End records"),
        ("unknown", r"returned End\(key=\('gone', 3\).*that it was shown"),
        ("postponed", r"returned End\(.*postponed"),
        ("raising", "raised ZeroDivisionError"),
    ],
)
def test_what_prune_may_not_answer_is_one_line(answer: str, got: str) -> None:
    with pytest.raises(UsageError, match=rf"^steer\.prune = 'small_steering:wrong' {got}") as error:
        steering(own("wrong"), **{own("wrong"): {"answer": answer}}).look(live([1]))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("answer", ["none", "end", "unknown_fork"])
def test_what_branch_may_not_answer_is_one_line(answer: str) -> None:
    with pytest.raises(UsageError, match=r"^steer\.branch = 'small_steering:wrong' returned .*wanted Fork records"):
        steering(NEVER, own("wrong"), **{own("wrong"): {"answer": answer}}).look(live([1]))


@pytest.mark.parametrize("at", [7, "8", [1.5], [True], [-1]])
def test_an_at_that_is_no_token_counts_is_one_line(at: Any) -> None:
    with pytest.raises(UsageError, match=r"steer\.prune = 'small_steering:At' has at = .*wanted token counts"):
        steering(own("At"), **{own("At"): {"at": at}})


@pytest.mark.parametrize(
    ("prune", "branch", "options", "named"),
    [
        (
            "small_steering:nothing",
            NEVER,
            {},
            r"steer\.prune = 'small_steering:nothing' cannot be imported: no 'nothing'",
        ),
        ("no_such_module:it", NEVER, {}, r"steer\.prune = 'no_such_module:it' cannot be imported"),
        ("randon", NEVER, {}, r"steer\.prune = 'randon' is no part.*random"),
        (NEVER, "random", {}, r"steer\.branch = 'random': 'random' fills steer\.prune only"),
        ("random", NEVER, {}, r"options\.random.*at"),
        ("random", NEVER, {"random": {"at": 3, "share": 1.0}}, r"options\.random\.share"),
        (
            own("Forked"),
            NEVER,
            {},
            r"steer\.prune = 'small_steering:Forked' makes a Forked, which cannot fill the slot",
        ),
    ],
)
def test_a_part_that_is_none_is_one_line(prune: str, branch: str, options: Any, named: str) -> None:
    with pytest.raises(UsageError, match=named) as error:
        steering(prune, branch, **options)
    assert "\n" not in str(error.value)
