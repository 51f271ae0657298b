"""`python -m benchmarks trl`: its arithmetic by hand, and small runs of it."""

from __future__ import annotations

from argparse import Namespace

import pytest

from benchmarks.timing import Taken
from benchmarks.trl import pods as trl_pods
from benchmarks.trl import step as trl


def test_the_ratio_is_taken_within_a_round() -> None:
    from benchmarks.trl.seconds import compared

    taken = {
        "podsrl": [Taken(1.0, 1.0), Taken(2.0, 1.0), Taken(3.0, 1.0)],
        "TRL": [Taken(4.0, 2.0), Taken(4.0, 4.0), Taken(4.0, 5.0)],
    }
    result = compared(taken, "podsrl")
    assert result["peer"] == "TRL"
    assert result["median_seconds"] == {"podsrl": 2.0, "TRL": 4.0}
    assert result["ratio"] == {"median": 0.5, "min": 0.25, "max": 0.75}
    assert result["cpu_ratio"] == {"median": 0.25, "min": 0.2, "max": 0.5}


def test_the_size_with_the_least_processor_time_is_chosen() -> None:
    from benchmarks.trl.seconds import best_setting

    arms = {8: lambda: Taken(1.0, 3.0), 16: lambda: Taken(9.0, 2.0), 32: lambda: Taken(0.1, 4.0)}
    best = best_setting(arms, lambda text: None, "x")
    assert (best.setting, best.arm, best.tried) == (16, arms[16], {8: 3.0, 16: 2.0, 32: 4.0})


def test_a_small_run_measures_every_arm() -> None:
    pytest.importorskip("trl")
    result = trl.run(Namespace(quick=True))
    for part in ("update", "step"):
        for found in result[part].values():
            assert all(len(values) == trl.QUICK.rounds for values in found["seconds"].values())
            assert min(found["cpu_ratio"].values()) > 0
    assert all(loss["difference"] < 1e-5 for loss in result["losses"].values())


def test_a_small_run_of_pods_in_trl_measures_both_trainers(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trl")
    monkeypatch.setattr(trl_pods, "BETAS", (0.04,))  # with a reference model
    result = trl_pods.run(Namespace(quick=True))
    [found] = result["betas"].values()
    assert {*found["seconds"]} == {trl_pods.GRPO, trl_pods.PODS}
    assert min(found["cpu_ratio"].values()) > 0
