"""Predicted against measured seconds of a step at choices that the planner's fit has not seen, on the demo's model.

The config's own choice, which the fit has seen, is run in turns with them: where the machine is slower than it was
during the probes, its ratio says by how much, and `ratio_to_control` is the others' without it.

    python benchmarks/planner.py              wall-clock seconds, for a quiet machine
    python benchmarks/planner.py --cpu-time   the process's own processor seconds, for a shared one

Writes benchmarks/results/planner.json.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path

from podsrl.lib.machine import set_waiting_policy

BUDGET_SECONDS = 40.0
NUM_STEPS = 9
SIZES = (8, 32, 256)
"""The fit sees 16, 64 and 128."""


def main() -> None:
    """Measure, predict, check."""
    set_waiting_policy()
    if "--cpu-time" in sys.argv:
        time.perf_counter = time.process_time  # before anything takes the clock by its name
    from podsrl.bench.hardware import hardware_line
    from podsrl.config.load import load_config
    from podsrl.lib.progress import no_progress
    from podsrl.plan.probe import probe_sizes, run_probes, still_trainer
    from podsrl.plan.search import make_plan
    from podsrl.plan.verify import verify

    config = load_config("pods")
    assert not set(SIZES) & set(probe_sizes(config))
    with still_trainer(config) as trainer:
        measured = run_probes(trainer, config, budget_seconds=BUDGET_SECONDS, progress=no_progress)
        plan = make_plan(measured)
        unseen = [c for c in plan.candidates if c.num_rollouts in SIZES and c.num_kept in (4, 8, 32, 64)]
        control, *checks = verify(trainer, [plan.own, *unseen], num_steps=NUM_STEPS, progress=no_progress)
    rows = [
        {"choice": candidate.key, **asdict(done), "ratio": done.ratio, "ratio_to_control": done.ratio / control.ratio}
        for candidate, done in zip([plan.own, *unseen], [control, *checks], strict=True)
    ]
    for row in rows:
        print(
            row["choice"],
            *(f"{name} {row[name]:.3f}" for name in ("predicted", "measured", "ratio", "ratio_to_control")),
        )
    ratios = [row["ratio_to_control"] for row in rows[1:]]
    print(f"beside the control: median {statistics.median(ratios):.2f}, {min(ratios):.2f} … {max(ratios):.2f}")
    result = {
        "hardware": hardware_line(),
        "clock": "process" if "--cpu-time" in sys.argv else "wall",
        "load": os.getloadavg()[0],
        "noise_ratio": plan.noise_ratio,
        "pass_rate": plan.pass_rate,
        "best": plan.best.key,
        "rows": rows,
    }
    Path(__file__).parent.joinpath("results", "planner.json").write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
