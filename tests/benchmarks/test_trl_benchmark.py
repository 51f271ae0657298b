"""`python -m benchmarks trl`: its arithmetic by hand, its clear refusal, and a small run of it."""

from __future__ import annotations

import importlib.util
import statistics
from argparse import Namespace

import pytest

from benchmarks.timing import Taken
from benchmarks.trl import pods as trl_pods
from benchmarks.trl import step as trl
from podsrl.errors import UsageError


def test_without_trl_the_benchmark_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.trl.setup import check_trl

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install -e '\.\[trl\]'"):
        trl.run(Namespace(quick=True))
    with pytest.raises(UsageError):
        check_trl()


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


@pytest.mark.parametrize("mean_tokens", [20.0, None])
def test_completions_are_as_long_as_the_scene_says(mean_tokens: float | None) -> None:
    from benchmarks.trl.losses import generate
    from benchmarks.trl.setup import make_scene

    scene = make_scene(
        "s128", num_prompts=4, num_rollouts=64, prompt_tokens=(5, 9), mean_tokens=mean_tokens, max_new_tokens=80
    )
    lengths = [len(done.token_ids) for done in generate(scene)]
    if mean_tokens is None:
        assert set(lengths) == {80}
    else:  # geometric, cut at 80: 20 · (1 - 0.95^80) = 19.7, give or take four standard errors of 1.2
        assert 15 < statistics.mean(lengths) < 24.5


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
