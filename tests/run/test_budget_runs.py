"""Runs that ask in their own way: probes of a system of one's own, and dynamic sampling."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from podsrl.config.load import load_config, with_values
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.generate import Engine
from podsrl.lib.seeds import derive
from podsrl.run.before.prepare import prepare
from podsrl.run.metrics import step_metrics
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from podsrl.types import Group
from runs import config_of as small_run


def config_of(system: str, *overrides: str) -> RunConfig:
    return small_run("rollouts.num_prompts=3", f"systems=small_budgets:{system}", *overrides)


def test_probes_are_generated_and_scored_and_never_trained_on() -> None:
    trainer = Trainer(config_of("AfterAProbe", 'options={"small_budgets:AfterAProbe" = {size = 6}}'))
    results = [training_step(trainer) for _ in range(3)]
    assert all([len(group.rollouts) for group in result.probes] == [6, 6, 6] for result in results)
    for result in results:
        mixed = [probe.index for probe in result.probes if len({r.reward for r in probe.rollouts}) > 1]
        assert [group.index for group in result.groups] == mixed
        assert len({group.id for group in (*result.groups, *result.probes)}) == 3 + len(mixed)
        line = step_metrics(result)
        assert line["tokens/generated"] == line["tokens/trained"] + line["tokens/skipped"] + line["tokens/discarded"]
    assert any(result.groups for result in results)
    assert trainer.progress.data_position == 9


def test_systems_are_found_before_the_model_loads() -> None:
    with pytest.raises(UsageError, match=r"small_budgets:Forgetful' learns, but has no state"):
        Trainer(config_of("Forgetful", "model.path=/nowhere"))
    with pytest.raises(UsageError, match=r"systems = 'small_budgets:nothing' cannot be imported"):
        Trainer(config_of("nothing", "model.path=/nowhere"))


def test_the_time_limits_of_rewards_are_those_of_a_step_not_of_a_round() -> None:
    trainer = Trainer(config_of("AfterAProbe"))
    new_step, calls = trainer.scorer.new_step, []
    trainer.scorer.new_step = lambda: (calls.append(1), new_step())[1]  # type: ignore[func-returns-value, method-assign]
    collected = trainer.sample()
    assert len(collected.probes) == 3 and len(calls) == 1


# --- dynamic sampling ---

SMALL = ("rollouts.num_prompts=4", "task.num_eval=8")


def exact(trainer: Trainer) -> Trainer:
    """Generates in float64, where no token hangs on which rows are computed together."""
    seed = derive(trainer.config.seed, "sampling")
    trainer.engine = Engine(copy.deepcopy(trainer.model).double(), seed=seed, tokenizer=trainer.tokenizer)
    return trainer


def found(groups: Sequence[Group]) -> list[tuple[str, list[tuple[int, ...]]]]:
    """Ids and tokens of groups."""
    return [(group.id, [rollout.token_ids for rollout in group.rollouts]) for group in groups]


def test_a_step_trains_on_the_first_mixed_groups_that_one_long_round_would_have_given() -> None:
    collected = exact(Trainer(load_config("systems/dapo", SMALL))).sample()
    assert len(collected.seen) > 4
    whole = exact(Trainer(load_config("mixed", [f"rollouts.num_prompts={len(collected.seen)}", *SMALL[1:]]))).sample()
    assert found(whole.groups) == found(collected.seen)
    assert found(collected.groups) == found([group for group in whole.groups if group.is_mixed][:4])
    assert len(collected.groups) == 4 and len(collected.left_out) == len(collected.seen) - 4
    assert collected.data_position == len(collected.seen)


def test_dynamic_sampling_and_pods_train_on_16_of_64_rollouts_of_mixed_groups_alone() -> None:
    pods = ("rollouts.num_rollouts=64", "select.rule=max_variance", "select.num_kept=16")
    trainer = Trainer(load_config("systems/dapo", [*SMALL, *pods]))
    for _ in range(2):
        result = training_step(trainer)
        assert len(result.groups) == 4 and all(group.is_mixed for group in result.groups)
        assert [len(selection.kept) for selection in result.selections] == [16] * 4
        line = step_metrics(result)
        assert line["groups/zero_signal"] == line["tokens/skipped"] == 0
        assert line["groups/left_out"] == len(result.left_out)
        assert line["rollouts/all"] + line["rollouts/left_out"] == 64 * (4 + len(result.left_out))


def test_filtering_by_shaped_rewards_is_warned_of() -> None:
    def warnings(*options: str) -> list[str]:
        parts = prepare(load_config("systems/dapo", [*SMALL, *options]))
        parts.close()
        return [line for line in parts.warnings if "options.dapo.metric" in line]

    [line] = warnings("options.dapo.metric=reward")
    assert "'reward'" in line and "format" in line and "'correct'" in line
    assert warnings() == warnings("task.rewards.correct=1", "options.dapo.metric=reward") == []


# --- as many as are worth their cost ---


def test_auto_chooses_the_same_sizes_and_rollouts_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config("auto", ["rollouts.num_prompts=3", "options.worth.sizes=[4, 12]", "rollouts.num_rollouts=8"])
    config = with_values(config, select={"num_kept": 6})

    def steps() -> list[tuple[list[int], list[tuple[int, ...]]]]:
        trainer = Trainer(config)
        results = [training_step(trainer) for _ in range(3)]
        return [([len(g.rollouts) for g in r.groups], [s.kept for s in r.selections]) for r in results]

    first = steps()
    ticks = itertools.count(0, 1000.0)
    monkeypatch.setattr("podsrl.run.step.clock.time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    assert steps() == first
    assert first[0][0] == [8] * 3 and all(set(sizes) in ({4}, {12}) for sizes, _ in first[1:])
    assert all(2 <= len(kept) <= 6 for _, of_step in first for kept in of_step)
