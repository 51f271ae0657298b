"""`python -m benchmarks turns`: which runs are made, and what is summed up of them, by hand-written numbers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from benchmarks.turns import ARMS, LIMITS, SEEDS, TurnsRun, next_run, summarize, table
from benchmarks.when_pods_helps.cells import Log


def record(steps: int | None) -> dict[str, Any]:
    """A run with 10 tokens and half a CPU second per step that is at 90 % after so many steps; None: never."""
    end = steps or 400
    spent = {"step": end, "tokens": 10 * end, "cpu_seconds": end / 2}
    points = {name: [0, value] for name, value in spent.items()} | {"accuracy": [0.2, 0.9 if steps else 0.6]}
    reached = {"0.9": {**spent, "accuracy": 0.9} if steps else None}
    return {
        "points": points,
        "reached": reached,
        "limits": asdict(LIMITS),
        "end": "reached",
        "commit": "c",
        "load": 1.0,
    }


def test_the_arms_differ_in_the_shape_alone() -> None:
    one, other = (TurnsRun(arm=arm, seed=3).config().model_dump(exclude={"about", "options"}) for arm in ARMS)
    assert (one["loss"].pop("shape"), other["loss"].pop("shape")) == ((), ("anchors",))
    assert one == other and one["seed"] == 3 and one["task"]["name"] == "columns"


def test_missing_runs_are_made_in_turn() -> None:
    log, wanted = Log(None), [TurnsRun(arm=arm, seed=seed) for seed in (0, 1) for arm in ARMS]
    log.add(wanted[0], record(100))
    found = next_run(wanted, log)
    assert found is not None and found[0] == wanted[1] and found[3] == 3
    for each in wanted:
        log.add(each, record(100))
    assert next_run(wanted, log) is None


def test_ratios_are_paired_and_a_sentence_says_what_they_say() -> None:
    log = Log(None)
    for seed in SEEDS:
        log.add(TurnsRun(arm="GRPO", seed=seed), record(100 + seed))
        log.add(TurnsRun(arm="GiGPO", seed=seed), record(50 + seed if seed else None))
    result = summarize(log)
    assert result["arms"]["GiGPO"]["to"]["step"] == [None, 51, 52, 53, 54] and result["num_runs"] == 10
    over = result["arms"]["GiGPO"]["over"]["step"]
    assert over["bound"] == "≤" and over["ratios"][:2] == [0.25, pytest.approx(101 / 51, abs=1e-4)]
    text = table(result)
    assert "from 20% until 90%" in text and "10 of 10 runs" in text
    assert "GiGPO against GRPO: not told apart by steps, not told apart by generated tokens" in text


def test_an_arm_that_is_sooner_on_every_seed_is_ahead() -> None:
    log = Log(None)
    for seed in SEEDS:
        log.add(TurnsRun(arm="GRPO", seed=seed), record(200 + seed))
        log.add(TurnsRun(arm="GiGPO", seed=seed), record(50 + seed))
    assert "GiGPO against GRPO: ahead by steps, ahead by generated tokens, ahead by CPU seconds." in table(
        summarize(log)
    )
