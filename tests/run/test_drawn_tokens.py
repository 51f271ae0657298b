"""Every token that the generator drew counts once, whatever rollouts share it."""

from __future__ import annotations

from typing import Any

import pytest

from podsrl.generate import EngineStats, Generator
from podsrl.lib.stages import FATES
from podsrl.run.metrics import step_metrics
from podsrl.run.step import round as rounds
from podsrl.run.step.round import take_stats
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from runs import config_of

SIZES = ("rollouts.num_rollouts=6", "select.num_kept=3", "rollouts.max_new_tokens=16", "task.digits=1", "optim.lr=1e-3")
FORKED = ("systems=small_steering:Forked",)
LATR = (
    *("systems=latr", "options.latr.until=14", "options.latr.least=0.01", "options.latr.gap=0.9"),
    *("options.latr.look=[3,4]", "options.latr.rouge=0"),
)
ECHO = (
    *("systems=echo", "options.echo.top=1"),
    *(f"options.echo.{name}={value}" for name, value in {"unsure": 0.99, "spike": 0, "floor": 0.5}.items()),
)
SCOPE = (
    *("systems=scope", "options.scope.repair=podsrl.tasks.arithmetic:repair", "select.rule=keep_all"),
    *("rollouts.num_rollouts=8", "select.num_kept=8", "rollouts.max_new_tokens=40", "rollouts.num_prompts=6"),
    "task.digits=3",
)
TRACE = ("systems=trace", "options.trace.at=[2,4]", "select.rule=keep_all", "select.num_kept=6")
CASES = {
    "forks": FORKED,
    "forks, all kept": (*FORKED, "select.rule=keep_all", "select.num_kept=6"),
    "forks, recalled": ("systems=small_steering:Forked,dots_rr", "options.dots_rr.num=1", "options.dots_rr.size=4"),
    "forks, a KL penalty": (*FORKED, "loss.kl_beta=0.1"),
    "latr": LATR,
    "latr, five slots": (*LATR, "rollouts.num_slots=5"),
    "echo": ECHO,
    "scope": SCOPE,
    "trace": TRACE,
    "closed": ("systems=certain", "rollouts.num_rollouts=24", "rollouts.num_slots=8", "task.rewards={correct=1.0}"),
    "waiting": ("systems=pilot_commit", "options.pilot_commit.pilots=3", "select.num_kept=6"),
    "unfinished": ("order.ahead=1", "order.take=first", "order.rest=put_off"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_the_engine_drew_is_generated_and_the_fates_tell_where_it_is(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []

    def counted(generator: Generator) -> tuple[EngineStats, int]:
        found = take_stats(generator)
        drawn.append(found[0].tokens)
        return found

    monkeypatch.setattr(rounds, "take_stats", counted)
    trainer, shared = Trainer(config_of(*SIZES, *CASES[name], recipe="mixed" if name == "scope" else "pods")), 0
    try:
        for _ in range(2):
            drawn.clear()
            result = training_step(trainer)
            line: dict[str, Any] = step_metrics(result)
            assert line["tokens/generated"] == sum(drawn) > 0
            others = sum(line.get(f"tokens/{kind}", 0) for kind in ("shared", "recalled", "resumed"))
            assert sum(line[f"tokens/{fate}"] for fate in FATES) == sum(drawn) + others
            shared += sum(r.num_shared for group in result.groups for r in group.rollouts)
            assert min(line[f"tokens/{fate}"] for fate in FATES) >= 0
            has_others = any(r.parent is not None for g in result.groups for r in g.rollouts)
            assert has_others or not shared
    finally:
        trainer.engine.close()
    assert (shared > 0) == name.startswith(("forks", "latr", "echo", "scope"))
