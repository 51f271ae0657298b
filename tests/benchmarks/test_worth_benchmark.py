"""`python -m benchmarks worth`: its arms, and ratios by hand-written runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from benchmarks import files
from benchmarks.runs import MARKS, Log, first_at
from benchmarks.when_pods_helps.cells import AUTO, MIXED, Cell
from benchmarks.when_pods_helps.grid import tuning_runs
from benchmarks.worth import (
    ARMS,
    LADDER,
    MAIN,
    MAIN_SEEDS,
    OTHER_SEEDS,
    REGIMES,
    cells,
    page,
    summarize,
    tables,
)


def cell(name: str, seed: int = 20, **changes: Any) -> Cell:
    n, m, more = ARMS[name]
    values = {"start": "4%", "num_rollouts": n, "num_kept": m, "more": more, "rate": 3e-4, "seed": seed}
    return Cell(**{**values, **changes})


def arm_of(found: Cell) -> tuple[int, int, tuple[str, ...]]:
    return found.num_rollouts, found.num_kept, found.more


def record(cpu_seconds: float, tokens: int, trained: int, *, is_reached: bool = True) -> dict[str, Any]:
    """A run of one step, after which nine of ten are right, or eight."""
    points: dict[str, list[Any]] = {
        "step": [0, 1],
        "rollouts": [0, 128],
        "cpu_seconds": [0, cpu_seconds],
        "tokens": [0, tokens],
        "trained": [0, trained],
        "decode_steps": [0, 48],
        "accuracy": [0.04, 0.9 if is_reached else 0.8],
    }
    reached = {f"{target:g}": first_at(points, target) for target in MARKS.targets}
    return {"points": points, "reached": reached, "rate": 3e-4, "commit": "abc", "load": 0.5}


def test_every_arm_is_in_every_regime_and_the_main_ones_with_five_seeds() -> None:
    found = cells()
    others = len(ARMS) - len(MAIN)
    assert len(found) == len(set(found)) == len(REGIMES) * (5 * len(MAIN) + 3 * others)
    assert {each.seed for each in found} == {*MAIN_SEEDS}
    first = {each.seed for each in found[: len(REGIMES) * 6 * len(OTHER_SEEDS)]}
    assert first == {*OTHER_SEEDS} and {ARMS[name] for name in LADDER} < {arm_of(each) for each in found[:6]}
    assert found[0] == replace(cell("PODS 64 → 16"), start="0.9%", kl=0.04)  # its seconds end the others


def test_arms_have_the_options_of_their_names() -> None:
    auto, mixed = (cell(name).config() for name in ("auto", "GRPO 16, mixed groups"))
    assert (auto.select.rule, auto.systems, auto.select.num_kept) == ("max_signal", ("worth",), 16)
    assert auto.costs is None and auto.model.device == "cpu"
    assert (mixed.select.rule, mixed.systems, mixed.rollouts.num_rollouts) == ("keep_all", ("mixed",), 16)


def test_runs_of_the_map_have_the_keys_that_they_had() -> None:
    for stored in files.RESULTS.glob("*/when_pods_helps/tuning.jsonl"):
        for old in Log(stored).records.values():
            names = ("start", "num_rollouts", "num_kept", "rate", "seed", "digits", "kl")
            assert json.loads(Cell(**{name: old[name] for name in names}).key) == json.loads(old["key"])


def test_auto_is_tuned_by_itself_and_mixed_groups_as_grpo() -> None:
    log = Log(None)
    _, first = tuning_runs(cell("auto"), log)
    _, as_grpo = tuning_runs(cell("GRPO 16, mixed groups"), log)
    assert first is not None and as_grpo is not None
    assert first[0].more == AUTO and as_grpo[0].more == () != MIXED
    known = cell("PODS 64 → 16", start="0.9%", kl=0.04)
    assert tuning_runs(known, log) == (3e-4, None) and tuning_runs(replace(known, more=AUTO), log)[1] is not None


def test_ratios_and_costs_by_hand() -> None:
    """auto: 2 and 4 s, 100 tokens generated and 50 trained; GRPO 16: 4 and 8 s, 200 and 200; GRPO 8 never."""
    found = {
        cell("auto", 20): record(2.0, 100, 50),
        cell("auto", 21): record(4.0, 100, 50),
        cell("GRPO 16", 20): record(4.0, 200, 200),
        cell("GRPO 16", 21): record(8.0, 200, 200),
        cell("GRPO 8", 20): record(6.0, 1, 1, is_reached=False),
    }
    result = json.loads(json.dumps(summarize(found)))
    [regime] = result["regimes"]
    grpo, auto, small = (regime["arms"][name] for name in ("GRPO 16", "auto", "GRPO 8"))
    assert grpo["auto_over"]["cpu_seconds"]["ratio"] == pytest.approx(2.0)
    assert grpo["auto_over"]["cost at 1"]["ratio"] == pytest.approx(400 / 150)
    assert grpo["auto_over"]["cost at 0.1"]["ratio"] == pytest.approx(220 / 60)
    assert auto["auto_over"]["cpu_seconds"] is None and grpo["auto_over"]["step"]["num_seeds"] == 2
    assert auto["to"]["cpu_seconds"] == [2.0, 4.0] and small["to"]["tokens"] == [None]
    assert small["auto_over"]["cpu_seconds"]["bound"] == "≥"
    shown = tables(result)
    assert "2.00×" in shown and "≥ 3.00×" in shown and "2.67×" in shown


def ladder(start: str, seed: int, *cpu_seconds: float, **changes: Any) -> dict[Cell, dict[str, Any]]:
    """Runs of the arms from GRPO 16 to `auto`; 100 tokens are generated per CPU second, and as many trained."""
    amounts = [(seconds, int(100 * seconds)) for seconds in cpu_seconds]
    return {
        cell(name, seed, start=start): record(seconds, tokens, tokens, **changes)
        for name, (seconds, tokens) in zip(LADDER, amounts, strict=True)
    }


def test_what_each_change_gains_by_hand_and_over_all_starts_together() -> None:
    """8, 4, 2 and 1 s: each change is twice as fast; together with 8, 8, 8 and 1 s: √(2 · 1) twice, and √(2 · 8)."""
    found = summarize(
        {
            **ladder("4%", 20, 8.0, 4.0, 2.0, 1.0),
            **ladder("18%", 20, 8.0, 8.0, 8.0, 1.0),
            **ladder("18%", 21, 8.0, 8.0, 8.0, 8.0, is_reached=False),
            cell("GRPO 16", 22, start="18%"): record(1.0, 1, 1),  # the others have no such seed
        }
    )
    easy = next(regime for regime in found["regimes"] if regime["start"] == "4%")
    assert [each["ratio"] for each in easy["gains"]["cpu_seconds"]] == pytest.approx([2, 2, 2, 8])
    assert [each["ratio"] for each in easy["gains"]["cost at 1"]] == pytest.approx([2, 2, 2, 8])
    together = found["gains"]["all"]["cpu_seconds"]
    assert [each["ratio"] for each in together] == pytest.approx([2**0.5, 2**0.5, 4, 8])
    assert found["gains"]["num_left_out"] == 1 and together[0]["num_seeds"] == 2
    assert easy["arms"]["auto"]["num_rollouts"] == 16.0  # 128 rollouts of eight questions


def test_the_page_says_which_command_makes_the_rest() -> None:
    made = {cell(name, 20): record(1.0, 100, 50) for name in MAIN}
    result = json.loads(json.dumps({**summarize(made), "processor": "AMD Zen 4"}))
    shown = page(result)
    assert "4 of 420 runs are made" in shown
    assert "`python -m benchmarks worth --out benchmarks/results/amd-zen-4/worth` makes the other 416" in shown
    assert "makes the other" not in page({**result, "num_wanted": 4})
