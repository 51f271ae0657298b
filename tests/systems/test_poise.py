"""POISE: the ridge against least squares, baselines that do not know what they judge, and a gradient without bias."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from loops import each
from made import selection
from podsrl.errors import UsageError
from podsrl.lib.ridge import fitted
from podsrl.lib.watch import Live
from podsrl.systems.poise import NOTE, Probe, States
from podsrl.types import Group, Notes, Rollout
from tests.systems.made_up_groups import group, rollout


def noted(index: int, reward: float, *features: float, **changes: Any) -> Rollout:
    one = rollout(index, is_correct=reward > 0.5, reward=reward, **changes)
    return replace(one, notes=Notes({NOTE: features}))


def of_probe(probe: Probe, found: Group) -> list[float]:
    """The advantages of all rollouts; those before are 9 each."""
    size = len(found.rollouts)
    [own] = probe.shape([found], [selection(found, range(size))], [torch.full((size,), 9.0)])
    return own.tolist()


def learned(seed: int, num_groups: int = 30, **options: Any) -> Probe:
    """A probe on rollouts whose reward is likelier the larger their first feature, which a group shares."""
    rng = np.random.default_rng(seed)
    probe = Probe(**options)
    groups = []
    for number in range(num_groups):
        level = rng.uniform()
        rows = [(level, float(rng.normal()), float(rng.normal())) for _ in range(2)]
        rewards = (rng.uniform(size=2) < level).astype(float).tolist()
        own = [noted(i, rewards[i], *np.float32(rows[i]).tolist()) for i in range(2)]
        groups.append(group(f"g{number}", own, index=number))
    probe.learn(groups)
    return probe


def test_it_learns_pairs_of_a_rollout_and_the_mean_reward_of_the_others() -> None:
    rows = [(0.0, 1.0), (1.0, 0.0), (2.0, 1.0), (3.0, 5.0)]
    rewards = [1.0, 0.0, 0.5, 0.0]
    broken = replace(noted(4, 0.0, 8.0, 8.0), invalid_reason="the reward raised")
    probe = Probe(ridge=2.0)
    probe.learn([group("g", [*(noted(i, rewards[i], *rows[i]) for i in range(4)), broken])])
    state = probe.state()
    others = [0.5 / 3, 1.5 / 3, 1.0 / 3, 1.5 / 3]
    np.testing.assert_allclose(state["targets"], others)
    np.testing.assert_allclose(state["fit"], fitted(np.array(rows), np.array(others), 2.0))
    means, spreads, weights = state["fit"]
    g = [np.mean(others) + (np.array(row) - means) / spreads @ weights for row in rows]
    g = [float(np.clip(value, min(others), max(others))) for value in g]
    wanted = [rewards[i] - (sum(g) - g[i]) / 3 for i in range(4)]
    found = of_probe(probe, group("h", [noted(i, rewards[i], *rows[i]) for i in range(4)]))
    assert found == pytest.approx(wanted, abs=1e-6)


@each("seed", range(10))
def test_what_a_rollout_did_is_not_in_its_own_baseline(seed: int) -> None:
    probe, rng = learned(seed), np.random.default_rng(100 + seed)
    rows = rng.uniform(0, 1, (3, 3)).astype(np.float32).tolist()
    before = of_probe(probe, group("q", [noted(i, i / 2, *rows[i]) for i in range(3)]))
    changed = [noted(0, 0.25, *(0.1, -3.0, 2.0)), *(noted(i, i / 2, *rows[i]) for i in (1, 2))]
    after = of_probe(probe, group("q", changed))
    assert after[0] == pytest.approx(before[0] + 0.25, abs=1e-6)  # its reward, not what its features say
    assert after[1] != before[1] and after[2] != before[2]
    other_reward = of_probe(probe, group("q", [replace(changed[0], reward=-4.0), *changed[1:]]))
    assert other_reward[1:] == after[1:]


def test_the_mean_gradient_is_that_of_the_mean_reward_over_all_pairs_of_actions() -> None:
    """Three actions with softmax probabilities; the features tell the action, so a baseline of one's own is biased."""
    probe, rewards = learned(1), np.array([0.0, 1.0, 0.5])
    features = [(0.1, 2.0, 0.0), (0.9, -1.0, 1.0), (0.5, 0.0, -2.0)]
    chances = np.exp([0.3, -0.2, 0.9]) / np.exp([0.3, -0.2, 0.9]).sum()
    scores = np.eye(3) - chances  # of each action, by the logits
    wanted = chances * (rewards - chances @ rewards)
    found, biased = np.zeros(3), np.zeros(3)
    for first, second in product(range(3), repeat=2):
        pair = [noted(i, float(rewards[a]), *features[a]) for i, a in enumerate((first, second))]
        own, other = of_probe(probe, group("q", pair))
        chance = chances[first] * chances[second]
        found += chance * (own * scores[first] + other * scores[second]) / 2
        of_itself = rewards[second] - other  # what the features of the first rollout predict
        biased += chance * (rewards[first] - of_itself) * scores[first]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-7)
    assert np.abs(biased - wanted).max() > 1e-2


def test_until_it_is_fitted_and_in_groups_of_one_valid_rollout_advantages_stay() -> None:
    pair = group("q", [noted(0, 1.0, 0.5, 0.0, 0.0), noted(1, 0.0, 0.5, 1.0, 1.0)])
    assert of_probe(Probe(), pair) == [9.0, 9.0] == of_probe(learned(0, warm_steps=2), pair)
    alone = group("q", [pair.rollouts[0], replace(pair.rollouts[1], invalid_reason="the reward raised")])
    assert of_probe(learned(0), alone) == [9.0, 9.0]
    bare = group("q", [pair.rollouts[0], rollout(1, is_correct=False)])
    probe = learned(0)
    mean = float(np.mean(probe.state()["targets"]))
    assert of_probe(probe, bare)[0] == pytest.approx(1 - mean)


def test_only_the_window_is_remembered_and_a_restored_probe_says_the_same_bit_for_bit() -> None:
    probe, pair = learned(3, num_groups=40, window=50), group("q", [noted(i, i, 0.3, i, 1.0) for i in range(2)])
    state = probe.state()
    assert state["features"].shape == (50, 3) and len(state["targets"]) == 50
    again = Probe(window=50)
    again.restore({name: each.copy() if isinstance(each, np.ndarray) else each for name, each in state.items()})
    assert of_probe(again, pair) == of_probe(probe, pair)
    for each_probe in (probe, again):
        each_probe.learn([pair])
    assert of_probe(again, pair) == of_probe(probe, pair)


def test_a_step_without_features_names_the_part_that_keeps_them() -> None:
    with pytest.raises(UsageError, match=r"poise:Probe reads features, .*: set systems = 'poise'"):
        Probe().learn([group("q", [rollout(i, is_correct=i == 0) for i in range(2)])])


def shown(count: int, hidden: list[list[float]], logits: list[list[float]], before: list[Any]) -> Live:
    """Two rollouts of a group; both are on one row where there is only one."""
    rows = torch.tensor([0, len(hidden) - 1])
    return Live(
        keys=[("q", 0), ("q", 1)],
        num_tokens=[count, count],
        random_keys=np.zeros(2, np.uint64),
        row_of=rows,
        logits=torch.tensor(logits),
        hidden=torch.tensor(hidden),
        notes=[Notes({NOTE: each} if len(each) else {}) for each in before],
        tokens=lambda key: np.zeros(count, np.int32),
        stop_ids=frozenset(),
    )


def test_features_by_hand() -> None:
    """The entropy of two equal logits is ln 2; of one alone it is 0."""
    part = States(at=(6, 2))
    assert part.at == [0, 2, 6] and States().at == [0]
    even, sure = [0.0, 0.0, -1e9], [0.0, -1e9, -1e9]
    first = part.look(shown(0, [[1.0, 2.0]], [sure], [(), ()]))
    assert [note.key for note in first] == [("q", 0), ("q", 1)]
    for note in first:
        assert note.values == pytest.approx((1, 2, 1, 2, 0, 0, 0))
    second = part.look(shown(2, [[3.0, 4.0], [5.0, 6.0]], [even, sure], [note.values for note in first]))
    ln2 = float(np.log(2))
    assert second[0].values == pytest.approx((1, 2, 3, 4, ln2, ln2 / 2, ln2))
    assert second[1].values == pytest.approx((1, 2, 5, 6, 0, 0, 0))
    third = part.look(shown(6, [[7.0, 8.0], [5.0, 6.0]], [sure, even], [note.values for note in second]))
    assert third[0].values == pytest.approx((1, 2, 7, 8, 0, ln2 / 3, ln2))
    assert third[1].values == pytest.approx((1, 2, 5, 6, ln2, ln2 / 3, ln2))
    assert all(value == np.float32(value) for note in third for value in note.values)
