"""How unsure a plan's seconds are: by made-up timings whose scatter is known, and beside a hog of the processor."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from plan_records import from_pass_rate, generation, measurements, updates

import children
from podsrl.config.load import load_config
from podsrl.plan import machine_use
from podsrl.plan.cost import CostModel
from podsrl.plan.machine_use import MachineUse, MachineWatch
from podsrl.plan.measured import Measurements
from podsrl.plan.probe import Verification
from podsrl.plan.resample import Residuals, resampled_costs, residuals
from podsrl.plan.result import to_json
from podsrl.plan.rewards import Seen
from podsrl.plan.search import NO_REPEATS, make_plan
from podsrl.plan.trust import Trust

QUIET = MachineUse(waited_share=0.01, load=9.0, num_cores=2)
BUSY = MachineUse(waited_share=0.41, load=3.6, num_cores=2)


def scattered(scatter: float, seed: int = 0, rounds: int = 6) -> Measurements:
    """Six rounds of the made-up machine, each second off by a factor that is uniform in 1 ± scatter."""
    random = np.random.default_rng(seed)

    def factor() -> float:
        return float(random.uniform(1 - scatter, 1 + scatter))

    drawn = from_pass_rate(0.2, 5.0, length=50.0).draw(64, 40)
    rows = zip(drawn.rewards, drawn.lengths, drawn.is_correct, strict=True)
    steps = [generation(n, shared=4 / n**0.5, disturbed=factor()) for _ in range(rounds) for n in (16, 64, 128)]
    again = [p for _ in range(rounds) for p in updates()]
    return replace(
        measurements(*steps),
        config=load_config("pods", ["optim.micro_batch_tokens=4096"]),
        updates=tuple(replace(p, update_seconds=p.update_seconds * factor()) for p in again),
        groups=tuple(Seen(rewards=r, lengths=length, is_correct=c) for r, length, c in rows),
        noise_ratio=1.0,
    )


def residuals_of(measured: Measurements) -> Residuals:
    found = residuals(measured, CostModel(measured))
    assert found is not None
    return found


@pytest.mark.parametrize("scatter", [0.02, 0.1, 0.4])
def test_the_spread_is_the_scatter_that_was_put_in(scatter: float) -> None:
    """Half the middle 90 % of 1 ± s is 0.9 s, and the fit's own terms widen it a little."""
    assert residuals_of(scattered(scatter)).spread == pytest.approx(0.9 * scatter, rel=0.25)


def test_measurements_that_a_fit_runs_through_tell_nothing_of_their_error() -> None:
    one_round = measurements(generation(16, shared=0.5), generation(64), generation(128))
    lone = replace(one_round, updates=one_round.updates[:1])  # of one micro-batch
    assert residuals(lone, CostModel(lone)) is None
    assert resampled_costs(lone, CostModel(lone), None) == ()


def test_resampled_models_scatter_around_the_fit_as_fits_to_new_measurements_do() -> None:
    """The deviation of a generation's seconds over the resamples of one set, beside that over 60 sets made anew."""
    probe = generation(64, shared=0.5)
    first = scattered(0.3)
    costs = CostModel(first)
    by_resampling = [c.fitted_generation(probe) for c in resampled_costs(first, costs, residuals_of(first))]
    made_anew = [CostModel(scattered(0.3, seed)).fitted_generation(probe) for seed in range(60)]
    assert 0.5 < np.std(by_resampling) / np.std(made_anew) < 2
    assert np.mean(by_resampling) == pytest.approx(costs.fitted_generation(probe), rel=0.1)


def test_a_suggestion_s_range_grows_with_the_scatter_and_holds_the_gain_that_is_known() -> None:
    exact, rough = (make_plan(scattered(scatter)) for scatter in (0.001, 0.4))
    ends = {}
    for name, plan in (("exact", exact), ("rough", rough)):
        low, high = plan.relative_range(plan.best)
        assert low <= plan.relative(plan.best) <= high and plan.best != plan.own
        ends[name] = low, high
    assert ends["rough"][1] / ends["rough"][0] > 1.2 * ends["exact"][1] / ends["exact"][0]
    known = exact.relative(next(c for c in exact.candidates if c.key == rough.best.key))
    assert ends["rough"][0] <= known <= ends["rough"][1]
    assert rough.relative_range(rough.own) == pytest.approx((1.0, 1.0))


def test_the_range_and_the_reasons_are_in_the_json() -> None:
    plan = make_plan(scattered(0.5))
    checks = [check_of(1.0, 1.0), check_of(1.0, 2.0)]
    result = json.loads(json.dumps(to_json(plan, checks, "a machine", BUSY)))
    low, high = result["best"]["seconds_range"]
    assert low < result["best"]["seconds"]["total"] < high
    assert result["trust"]["is_trusted"] is False and len(result["trust"]["reasons"]) == 3
    assert (result["trust"]["waited_share"], result["trust"]["load"], result["trust"]["num_cores"]) == (0.41, 3.6, 2)
    assert result["trust"]["spread"] > 0.3
    gain = (plan.best.share / plan.own.share) ** 1.5
    assert result["measured_relative_progress"] == pytest.approx(2 * gain)  # the own choice took twice as long


def test_a_plan_without_repeats_says_that_its_error_is_not_known() -> None:
    few = replace(scattered(0.1), generation=(generation(64),), updates=updates()[-1:])
    plan = make_plan(few)
    result = to_json(plan, (), "a machine", QUIET)
    assert NO_REPEATS in result["unknown"] and result["trust"]["spread"] is None
    assert result["best"]["seconds_range"] is None


def check_of(predicted: float, measured: float) -> Verification:
    return Verification(predicted=predicted, measured=measured, low=measured, high=measured, num_steps=5, stages={})


@pytest.mark.parametrize(
    ("use", "spread", "ratio", "wanted"),
    [
        (QUIET, 0.05, 1.0, []),
        (None, None, None, []),
        (QUIET, 0.05, 1.24, []),
        (BUSY, 0.05, 1.0, ["waited 41% of the time"]),
        (QUIET, 0.6, 1.0, ["±60%"]),
        (QUIET, 0.05, 0.31, ["0.31 times"]),
        (QUIET, 0.05, 1.7, ["1.70 times"]),
        (BUSY, 0.6, 1.7, ["busy", "repeats", "predicted"]),
    ],
)
def test_each_reason_is_named_with_its_number(
    use: MachineUse | None, spread: float | None, ratio: float | None, wanted: list[str]
) -> None:
    checks = [] if ratio is None else [check_of(ratio, 1.0)]
    reasons = Trust(use=use, spread=spread, checks=checks).reasons
    assert len(reasons) == len(wanted) and all(text in reason for text, reason in zip(wanted, reasons, strict=True))


def test_where_waiting_is_not_counted_the_load_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine_use, "_TASKS", tmp_path / "none")
    monkeypatch.setattr(os, "getloadavg", lambda: (2.4, 0.0, 0.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    use = MachineWatch().use()
    assert (use.waited_share, use.load, use.num_cores, use.is_busy) == (None, 2.4, 2, False)
    assert replace(use, load=2.6).is_busy and use.text == "2.4 processes wanted 2 cores"


BESIDE_A_HOG = """
import json, os, subprocess, sys, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from podsrl.plan.machine_use import MachineWatch
hog = subprocess.Popen([sys.executable, "-c", "while True: pass"])
time.sleep(0.5)
watch, start = MachineWatch(), time.process_time()
while time.process_time() - start < 0.5:
    pass
hog.kill()
print(json.dumps([watch.use().waited_share, watch.use().is_busy]))
"""


def test_two_that_share_one_core_wait_half_of_the_time() -> None:
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("this kernel does not count how long a thread waits for a core")
    done = children.run([sys.executable, "-c", BESIDE_A_HOG], capture_output=True, text=True, check=True)
    share, is_busy = json.loads(done.stdout)
    assert share > 0.2 and is_busy
