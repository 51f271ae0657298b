"""GiGPO's advantages of turns against numbers by hand, and against a twin that compares every pair of turns."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

import made
from podsrl.config.load import load_config
from podsrl.systems.gigpo import Anchors
from podsrl.types import Group, Rollout, Selection


def rollout(reward: float, index: int, *pieces: tuple[int, ...]) -> Rollout:
    """Turns and what is read between them, in turn."""
    tokens, given = tuple[int, ...](), list[tuple[int, int]]()
    for place, piece in enumerate(pieces):
        if place % 2:
            given.append((len(tokens), len(tokens) + len(piece)))
        tokens += piece
    done = made.completion(tokens, index=index, logprobs=(0.0,) * len(tokens), given=tuple(given))
    return replace(done, reward=reward, is_correct=reward == 1)


def kept(group: Group, *places: int) -> Selection:
    return made.selection(group, places or tuple(range(len(group.rollouts))))


# Two begin with (7,) and read (1, 2); one begins with (8, 8) and reads the same; one has a single turn.
FOUR = made.group(
    "q",
    rollout(1.0, 0, (7,), (1, 2), (5,)),
    rollout(0.0, 1, (7,), (1, 2), (6, 6)),
    rollout(1.0, 2, (8, 8), (1, 2), (5,)),
    rollout(0.0, 3, (9,)),
)
ADVANTAGES = torch.tensor([0.5, -0.5, 0.5, -0.5])


def test_turns_by_hand() -> None:
    """Returns with γ = 1/2: first turns 1/2, 0, 1/2, 0 (mean 1/4); second turns 1, 0, 1 (mean 2/3)."""
    [found] = Anchors(discount=0.5).shape([FOUR], [kept(FOUR)], [ADVANTAGES])
    first, second = torch.tensor([0.25, -0.25, 0.25, -0.25]), torch.tensor([1 / 3, -2 / 3, 1 / 3])
    assert found.shape == (4, 5) and ADVANTAGES.tolist() == [0.5, -0.5, 0.5, -0.5]
    for row, (own, turn) in enumerate(zip(first, ((0, 1), (0, 1), (0, 2), (0, 1)), strict=True)):
        torch.testing.assert_close(found[row, slice(*turn)], (ADVANTAGES[row] + own).expand(turn[1]))
    for row, turn in ((0, (3, 4)), (1, (3, 5)), (2, (4, 5))):
        torch.testing.assert_close(found[row, slice(*turn)], (ADVANTAGES[row] + second[row]).expand(turn[1] - turn[0]))


def test_all_tokens_as_a_state_part_what_was_said_differently() -> None:
    """The second turn of rollout 2 is alone; the other two are 1 and 0 around 1/2, times the weight."""
    [found] = Anchors(discount=1.0, weight=2.0, state="tokens").shape([FOUR], [kept(FOUR)], [ADVANTAGES])
    assert (found[0, 3], found[1, 3], found[2, 4]) == (0.5 + 1, -0.5 - 1, 0.5)


def test_the_standard_deviation_of_a_state() -> None:
    [found] = Anchors(discount=1.0, std=True).shape([FOUR], [kept(FOUR, 0, 1)], [torch.zeros(2)])
    assert found[:, 0].tolist() == pytest.approx([0.5 / (0.5**0.5 + 1e-6), -0.5 / (0.5**0.5 + 1e-6)])


def test_what_is_not_kept_is_compared_with_nothing_and_nothing_stays_empty() -> None:
    [alone] = Anchors().shape([FOUR], [kept(FOUR, 2)], [torch.tensor([0.25])])
    assert torch.equal(alone, torch.full((1, 5), 0.25))
    [none] = Anchors().shape([FOUR], [Selection(group_id="q", kept=(), dropped={})], [torch.zeros(0)])
    assert none.shape == (0,)


def test_rewards_of_turns_stand_where_they_were_given() -> None:
    """γ = 1/2. Row 0 earns 2 and 0 of its 3: returns 2 + 1/2, 1. Row 1 earns 0 and 4 of its 4: 2, 4. Means 9/4, 5/2."""
    one, other, *_ = FOUR.rollouts
    group = made.group("q", earning(one, (2.0, 0.0)), earning(other, (0.0, 4.0)))
    [found] = Anchors(discount=0.5).shape([group], [kept(group)], [torch.zeros(2)])
    assert [found[0, 0], found[1, 0], found[0, 3], found[1, 3]] == [0.25, -0.25, -1.5, 1.5]
    unpaid = made.group("q", *(replace(each, parts={}) for each in group.rollouts))
    [found] = Anchors(discount=0.5).shape([unpaid], [kept(unpaid)], [torch.zeros(2)])
    assert [found[0, 0], found[1, 0], found[0, 3], found[1, 3]] == [-0.25, 0.25, -0.5, 0.5]


def earning(one: Rollout, earned: tuple[float, ...]) -> Rollout:
    """A rollout with rewards of its turns, and that of an answer that is right beside."""
    parts = {"environment": sum(earned), "correct": one.reward}
    heard = tuple(((), reward) for reward in earned)
    return replace(one, heard=heard, parts=parts, reward=sum(parts.values()))


@pytest.mark.parametrize("state", ["reply", "tokens"])
def test_random_conversations_as_a_twin_that_compares_every_pair_of_turns(state: str) -> None:
    rng = random.Random(1)
    for _ in range(40):
        pieces = [[tuple(rng.choices((1, 2), k=1)) for _ in range(rng.choice((1, 3, 5)))] for _ in range(6)]
        group = made.group("q", *(rollout(rng.random(), i, *each) for i, each in enumerate(pieces)))
        [found] = Anchors(discount=0.9, state=state).shape([group], [kept(group)], [torch.zeros(6, 5)])  # type: ignore[arg-type]
        turns = [
            (
                row,
                place,
                each.reward * 0.9 ** ((len(own) - 1 - place) // 2),
                own[:place] if state == "tokens" else own[max(0, place - 1) : place],
            )
            for row, (each, own) in enumerate(zip(group.rollouts, pieces, strict=True))
            for place in range(0, len(own), 2)
        ]
        for row, place, gain, seen in turns:
            same = [other[2] for other in turns if other[3] == seen]
            wanted = gain - sum(same) / len(same)
            assert float(found[row, place]) == pytest.approx(wanted, abs=1e-6)
        assert all(
            found[row, place] == 0 for row, own in enumerate(pieces) for place in range(1, 5, 2) if place < len(own)
        )


def test_the_recipe_names_the_system() -> None:
    config = load_config("systems/gigpo", [])
    assert config.systems == ("gigpo",) and config.task.name == "columns"
