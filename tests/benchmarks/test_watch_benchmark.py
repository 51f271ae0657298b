"""The benchmark of a watch's cost: the watches that it compares see what they should, and its text."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.engine import watched
from podsrl.generate import Live


def test_one_watch_sees_every_rollout_in_every_step_and_the_other_none(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []

    def look(self: watched.Idle, live: Live) -> tuple[()]:
        assert self.at is None
        seen.append((len(live.keys), live.num_tokens[0]))
        return ()

    monkeypatch.setattr(watched.Idle, "look", look)
    for name, count in (("NUM_PROMPTS", 2), ("NUM_ROLLOUTS", 3), ("NUM_TOKENS", 3)):
        monkeypatch.setattr(watched, name, count)
    result = watched.run(["s128"], 1, lambda text: None)
    assert seen == [(6, tokens) for tokens in range(3)]
    assert result["rollouts"] == 6 and result["models"]["s128"][watched.NEVER]["min"] > 0


def test_the_text_has_the_ratios() -> None:
    spread: dict[str, Any] = {"min": 1.0, "median": 1.25, "max": 1.5}
    found = {"step_ms": spread, watched.NEVER: spread, watched.EACH: {**spread, "median": 1.125}}
    text = watched.table({"rollouts": 512, "models": {"s128": found}})
    assert text.startswith("s128: 1.25 ") and "1.250 (1.000 … 1.500) with a watch never due, 1.125" in text
