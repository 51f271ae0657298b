"""Share of a training step that is neither model, sampling nor optimizer (the demo's PODS arm).

    python -m benchmarks loop            30 steps, under a minute
    python -m benchmarks loop --quick    5 steps

Model work is what the engine (forward, sampling) and the updater (forward, backward, optimizer) do. Overhead is the
rest of a step's wall-clock time: tokenising, decoding, rewards, selection, advantages, the batch, sync, metrics, logs.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks import command
from benchmarks.generators import WatchedGenerator
from benchmarks.timing import Clock, Say, spread, spread_text

WARM_UP = 2


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("loop", __doc__)
    parser.add_argument("--quick", action="store_true", help="5 steps")
    command.measure(parser, arguments, lambda options, say: run(5 if options.quick else 30, say), table)


def run(num_steps: int, say: Say) -> dict[str, Any]:
    """Measure steps after two of warm-up, with the logs of a real run being written."""
    from podsrl.config.load import dump, load_config
    from podsrl.lib.stages import STAGES
    from podsrl.run.folder import RunFolder
    from podsrl.run.loop import record
    from podsrl.run.steps import training_step
    from podsrl.run.trainer import Trainer

    trainer = Trainer(load_config("pods"))
    engine = trainer.engine = WatchedGenerator(trainer.engine)
    lines, walls, overheads = [], [], []
    with tempfile.TemporaryDirectory() as path:
        folder = RunFolder(Path(path))
        folder.create(dump(trainer.config))
        for step in range(WARM_UP + num_steps):
            say(f"step {step + 1} of {WARM_UP + num_steps}")
            clock, before = Clock(), engine.seconds
            result = training_step(trainer)
            lines.append(record(folder, result, trainer.config.record.num_groups))
            walls.append(clock.read().seconds)
            model_seconds = engine.seconds - before + result.seconds["update"]
            overheads.append(1 - model_seconds / walls[-1])
    lines, walls, overheads = lines[WARM_UP:], walls[WARM_UP:], overheads[WARM_UP:]
    return {
        "steps": num_steps,
        "seconds_by_stage": {s: statistics.median(line[f"seconds/{s}"] for line in lines) for s in STAGES},
        "seconds_step": statistics.median(walls),
        "overhead": spread(overheads),
    }


def table(result: dict[str, Any]) -> Table:
    """Stages and the share of overhead."""
    shown = Table(
        title=f"overhead {spread_text(result['overhead'], '.1%')} of a step",
        caption=f"median of {result['steps']} steps; {result['hardware']}",
    )
    shown.add_column("stage")
    shown.add_column("milliseconds", justify="right")
    for stage, seconds in result["seconds_by_stage"].items():
        shown.add_row(stage, f"{1000 * seconds:.2f}")
    shown.add_row("whole step", f"{1000 * result['seconds_step']:.2f}")
    return shown
