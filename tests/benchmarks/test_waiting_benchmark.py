"""The benchmark of steps that end early, at a small size; its table."""

import json
from typing import Any

import pytest

from benchmarks import waiting
from benchmarks.figures.tables import waiting as waiting_table
from podsrl.config.schema import ReplayConfig
from podsrl.run.step.closing import Whole
from podsrl.run.step.waiting import FirstGroups


def test_lengths_that_are_all_equal_have_nothing_to_gain() -> None:
    lengths = waiting.Lengths(lambda: 7)
    found = waiting.of_steps(waiting.Steps(closing=Whole(), length_of=lengths), 3)
    assert found == {"per_group": 7 / 8, "resumed": 0.0, "oldest": 0}


def test_a_long_rollout_per_step_is_waited_for_or_not() -> None:
    """The first rollout of a step's first group has 12 tokens, all others 4: without waiting three steps go by."""

    class OneLong(dict[tuple[str, int], int]):
        def __missing__(self, key: tuple[str, int]) -> int:
            return 12 if key[0].endswith("/0") and key[1] == 0 else 4

    whole = waiting.of_steps(waiting.Steps(closing=Whole(), length_of=OneLong(), num_prompts=2), 5)
    assert whole["per_group"] == 12 / 2
    early = FirstGroups(ReplayConfig(unfinished="keep", surplus=2.0), 2)
    found = waiting.of_steps(waiting.Steps(closing=early, length_of=OneLong(), num_prompts=2), 40)
    assert 4 / 2 <= found["per_group"] < 12 / 2 and found["oldest"] <= 3 and found["resumed"] > 0.25


def test_both_kinds_of_lengths_and_runs_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SURPLUSES", (2.0,))
    monkeypatch.setattr(waiting, "WARM_UP", 1)
    monkeypatch.setattr(waiting, "NUM_PROMPTS", 2)
    result: dict[str, Any] = json.loads(json.dumps(waiting.run(3, 1, 1, 1, lambda text: None)))
    rows = result["rows"]
    assert [(row["lengths"], row["surplus"]) for row in rows] == [
        (kind, 2.0) for kind in ("gsm8k", "geometric", "steps")
    ]
    assert all(row["fewer"]["median"] > 0.7 and 0 <= row["resumed"]["median"] <= 1 for row in rows)


def test_the_table_by_hand() -> None:
    spread = {"min": 1.25, "median": 1.3, "max": 1.35}
    row = {"lengths": "steps", "surplus": 1.25, "per_group": spread, "fewer": spread, "as_many_slots": spread}
    sizes = {"groups": 8, "rollouts": 8, "steps": 200, "seeds": 5, "run_steps": 24, "run_seeds": 3}
    stamp = {"hardware": "a processor", "processor": "AMD", "commit": "abc", "date": "2026-11-26T05:00+00:00"}
    rows = [{**row, "resumed": {"median": 0.248}, "oldest": 2}]
    text = waiting_table(lambda name: {"AMD": {**stamp, **sizes, "rows": rows}} if name == "waiting" else {})
    assert "| runs of `builtin:steps` | 1.25 | 1.30 (1.25 … 1.35)× | 1.30 (1.25 … 1.35)× | 25 % | 2 |" in text
