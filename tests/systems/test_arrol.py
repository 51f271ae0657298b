"""ARRoL: posterior, chances, balance and head against independent twins, and training steps that it prunes."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from loops import each
from podsrl.run.metrics import step_metrics
from podsrl.run.step.trainer import Trainer
from podsrl.systems.arrol import Head, Quality, balanced, chances, posterior
from runs import assert_same_weights, config_of
from tests.systems.whole_steps import WAYS_TO_STEP, check_refused, check_resumed, lines, steps

SIZES = ("rollouts.num_rollouts=6", "rollouts.max_new_tokens=12", "select.num_kept=3", "task.digits=1")
BY_GROUP = ("systems=arrol", "options.arrol.at=2", "options.arrol.warm_steps=1")
BY_ROLLOUT = (*BY_GROUP, "options.arrol.by=rollout")


@each("seed", range(50))
def test_the_posterior_is_bayes_rule_of_the_bins_and_without_a_prior_their_share(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hits, misses = rng.integers(0, 9, 6), rng.integers(0, 9, 6)
    bare = posterior(hits * 1.0, misses * 1.0, 0.0)
    found = posterior(hits * 1.0, misses * 1.0, 0.5)
    right, wrong = Fraction(int(hits.sum())), Fraction(int(misses.sum()))
    for i, (hit, miss) in enumerate(zip(hits.tolist(), misses.tolist(), strict=True)):
        if hit + miss:
            assert bare[i] == pytest.approx(hit / (hit + miss))
        likely = right / (right + wrong) * (hit + Fraction(1, 2)) / (right + 3)
        unlikely = wrong / (right + wrong) * (miss + Fraction(1, 2)) / (wrong + 3)
        assert found[i] == pytest.approx(float(likely / (likely + unlikely)))


def test_without_any_judged_rollout_everything_is_even() -> None:
    none = np.zeros(4)
    assert posterior(none, none, 1.0).tolist() == [0.5] * 4
    assert chances(none, none, 0.3, 0.1).tolist() == [0.3] * 4
    assert posterior(none + 2, none, 1.0).tolist() == [1.0] * 4


@each("seed", range(50))
def test_the_mean_chance_is_what_is_to_be_kept(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts, keep = rng.integers(0, 9, 8) * 1.0, rng.uniform(0.1, 0.9)
    counts[0] += 1
    wanted = rng.choice([0.0, 0.5, 5.0]) * rng.uniform(-1, 1, 8)
    found = chances(wanted, counts, keep, 0.1)
    assert found @ counts == pytest.approx(keep * counts.sum(), abs=1e-9)
    shift = found - keep - wanted  # δ, where no bound was met
    inside = (found > 0.1) & (found < 0.9)
    assert np.ptp(shift[inside]) < 1e-9 if inside.any() else True
    assert np.all(np.diff(found[np.argsort(wanted)]) >= 0)


def removed(likely: list[Fraction], size: int, target: Fraction) -> list[int]:
    """The lemma, word by word."""
    left = list(range(len(likely)))
    while len(left) > size:
        gaps = [abs(sum(likely[i] for i in left if i != j) / (len(left) - 1) - target) for j in left]
        left.remove(max(j for j, gap in zip(left, gaps, strict=True) if gap == min(gaps)))
    return left


@each("seed", range(60))
def test_balance_removes_one_after_the_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = int(rng.choice([10, 60, 64]))
    likely = [Fraction(int(k), parts) for k in rng.integers(0, parts + 1, rng.integers(2, 12))]
    size, target = int(rng.integers(1, len(likely) + 1)), Fraction(int(rng.integers(3, 8)), 10)
    found = balanced(np.array([float(q) for q in likely]), size, float(target))
    assert found == removed(likely, size, target) and len(found) == size


def test_groups_that_are_balanced_teach_more_than_all_and_than_random_ones() -> None:
    """With known q, 1,200 groups of 16 of which half go on: mean p(1 - p) of what lives."""
    rng = np.random.default_rng(0)
    spread = np.zeros(3)
    for mean in (0.25, 0.5, 0.75):
        for _ in range(400):
            level = math.log(mean / (1 - mean)) + 2 * rng.normal()
            likely = 1 / (1 + np.exp(-level - rng.normal(size=16)))
            right = rng.random(16) < likely
            shares = [right[list(places)].mean() for places in (range(16), range(8), balanced(likely, 8, 0.5))]
            spread += [share * (1 - share) for share in shares]
    assert spread[2] > 1.1 * spread[0] and spread[2] > 1.15 * spread[1]


def test_the_heads_gradient_is_that_of_the_cross_entropy() -> None:
    rng = np.random.default_rng(0)
    features, right = rng.normal(size=(7, 5)), rng.integers(0, 2, 7) * 1.0
    head = Head()
    assert head(features).tolist() == [0.5] * 7
    head.fit(features, right)
    weights = torch.tensor(head.weights[0], requires_grad=True)
    first, shift, second, bias = weights.split([5 * 32, 32, 32, 1])
    logits = (torch.tensor(features) @ first.view(5, 32) + shift).tanh() @ second + bias
    torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.tensor(right)).backward()
    assert weights.grad is not None
    assert np.allclose(head.gradient(features, right), weights.grad.numpy(), atol=1e-12)
    assert np.allclose(head(features), logits.sigmoid().detach().numpy())


def test_the_head_learns_what_a_line_tells_apart() -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(400, 6))
    right = (features[:, 0] > features[:, 1]) * 1.0
    head = Head()
    for _ in range(5):
        head.fit(features[:300], right[:300])
    assert np.mean((head(features[300:]) > 0.5) == right[300:]) > 0.93


def trainer_of(*overrides: str) -> Trainer:
    return Trainer(config_of(*SIZES, *overrides))


def part_of(trainer: Trainer) -> Quality:
    [look] = trainer.parts.systems["look"]
    assert isinstance(look.part, Quality)
    return look.part


@pytest.mark.parametrize("parts", [("options.arrol.keep=1",), ("options.arrol.warm_steps=9",)])
def test_a_run_in_which_all_live_is_the_plain_one(parts: tuple[str, ...]) -> None:
    plain, watched = trainer_of(), trainer_of(*BY_ROLLOUT, *parts)
    assert lines(steps(watched, 2)) == lines(steps(plain, 2))
    assert_same_weights(watched, plain)


@pytest.mark.parametrize("parts", [BY_GROUP, BY_ROLLOUT])
def test_who_lives_is_the_same_in_any_slots_and_has_the_tokens_of_a_plain_run(parts: tuple[str, ...]) -> None:
    rng, found = np.random.default_rng(0), []
    learned = {"num_steps": 1, "head": np.abs(rng.normal(size=(3, 66 * 32 + 1))) / 9}
    learned |= {"scores": rng.uniform(size=200), "right": rng.integers(0, 2, 200) * 1.0}
    [plain] = steps(trainer_of(), 1)
    for slots in ("rollouts.num_slots=0", "rollouts.num_slots=4"):
        trainer = trainer_of(*parts, slots, "rollouts.scheduler=continuous+breadth")
        part_of(trainer).restore(learned)
        [result] = steps(trainer, 1)
        assert step_metrics(result)["rollouts/pruned"] > 0
        found.append([[rollout.is_pruned for rollout in group.rollouts] for group in result.groups])
        for group, whole in zip(result.groups, plain.groups, strict=True):
            came = [one for one in whole.rollouts if len(one.token_ids) > 2]
            for one, other in zip(group.rollouts, whole.rollouts, strict=True):
                ids = other.token_ids
                assert one.token_ids == (ids[:2] if one.is_pruned else ids)
                assert bool(one.notes) == (other in came)
            if parts is BY_GROUP:
                assert sum(one.is_pruned for one in group.rollouts) == len(came) - max(2, math.ceil(len(came) / 2))
    assert found[0] == found[1]


@pytest.mark.parametrize("parts", [(*BY_GROUP, *WAYS_TO_STEP[0]), (*BY_ROLLOUT, *WAYS_TO_STEP[1])])
def test_a_run_that_is_resumed_goes_on_as_if_it_had_not_stopped(tmp_path: Path, parts: tuple[str, ...]) -> None:
    wanted = check_resumed(lambda: trainer_of(*parts), tmp_path)
    assert sum(line["rollouts/pruned"] for line in wanted) > 0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("options.arrol.at=12",), r"look of systems = 'arrol' is shown .* 12 tokens, .*max_new_tokens = 12"),
        (
            ("options.arrol.by=rollout", "options.arrol.keep=0.95"),
            r"options\.arrol\.keep = 0\.95 .*0\.1 \.\. 0\.9",
        ),
        (("rollouts.generator=vllm",), r"systems = 'arrol' .*'watch'"),
    ],
)
def test_what_cannot_be_is_one_line(overrides: tuple[str, ...], message: str) -> None:
    check_refused(message, *SIZES, *BY_GROUP, *overrides)
