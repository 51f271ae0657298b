"""A few of the kills of `kill_anything.py`, which makes as many as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest
from kill_anything import CASES, measure, try_one


@pytest.mark.parametrize("name", ["ahead, R=2"])
def test_whatever_is_killed_the_numbers_stay_and_nothing_is_left(tmp_path: Path, name: str) -> None:
    pace, numbers = measure(CASES[name], tmp_path / "reference")
    for seed in range(1, 6):  # a run that is quicker than the one that was measured ends before its kill
        trial = try_one(name, seed, 2, pace, numbers, tmp_path)
        assert not trial.problems, trial
        if trial.kills:
            return
    pytest.fail(f"no run was killed at a pace of {pace}")
