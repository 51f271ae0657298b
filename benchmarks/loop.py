"""Share of a training step that is neither model, sampling nor optimizer (the demo's PODS arm).

    python -m benchmarks loop            30 steps, under a minute
    python -m benchmarks loop --quick    5 steps

Model work is what the engine (forward, sampling) and the updater (forward, backward, optimizer) do. Overhead is the
rest of a step's wall-clock time: tokenising, decoding, rewards, selection, advantages, the batch, sync, metrics, logs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks import command
from benchmarks.timing import spread


def main(arguments: Sequence[str]) -> None:
    """Run the command."""
    parser = command.new_parser("loop", __doc__)
    parser.add_argument("--quick", action="store_true", help="5 steps")
    command.measure(parser, arguments, lambda options, say: run(options.quick), table)


def run(quick: bool = False) -> dict[str, Any]:
    """Measure steps after two of warm-up, with the logs of a real run being written."""
    from podsrl.config.load import dump, load_config
    from podsrl.run.clock import STAGES
    from podsrl.run.folder import RunFolder
    from podsrl.run.loop import training_step
    from podsrl.run.trainer import Trainer

    steps = 5 if quick else 30
    trainer = Trainer(load_config("pods", ["record.groups_every_steps=1"]))
    model_seconds = _count_model_seconds(trainer)
    lines, walls, overheads = [], [], []
    with tempfile.TemporaryDirectory() as path:
        folder = RunFolder(Path(path))
        folder.create(dump(trainer.config))
        for _ in range(steps + 2):
            start, before = time.perf_counter(), model_seconds()
            lines.append(training_step(trainer, folder))
            walls.append(time.perf_counter() - start)
            overheads.append(1 - (model_seconds() - before) / walls[-1])
    lines, walls, overheads = lines[2:], walls[2:], overheads[2:]  # after a warm-up
    return {
        "steps": steps,
        "seconds_by_stage": {s: statistics.median(line[f"seconds/{s}"] for line in lines) for s in STAGES},
        "seconds_step": statistics.median(walls),
        "overhead": spread(overheads),
    }


def _count_model_seconds(trainer: Any) -> Callable[[], float]:
    """Time the generator's and the updater's own calls; all other seconds of a step are overhead."""
    spent = [0.0]

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            result = function(*arguments, **options)
            spent[0] += time.perf_counter() - start
            return result

        return call

    generate = trainer.engine.generate
    trainer.engine.generate = timed(lambda requests: list(generate(requests)))
    trainer.updater.forward_backward = timed(trainer.updater.forward_backward)
    trainer.updater.optim_step = timed(trainer.updater.optim_step)
    return lambda: spent[0]


def table(result: dict[str, Any]) -> Table:
    """Stages and the share of overhead."""
    overhead = result["overhead"]
    shown = Table(
        title=f"overhead {overhead['median']:.1%} of a step ({overhead['min']:.1%}–{overhead['max']:.1%})",
        caption=f"median of {result['steps']} steps; {result['hardware']}",
    )
    shown.add_column("stage")
    shown.add_column("milliseconds", justify="right")
    for stage, seconds in result["seconds_by_stage"].items():
        shown.add_row(stage, f"{1000 * seconds:.2f}")
    shown.add_row("whole step", f"{1000 * result['seconds_step']:.2f}")
    return shown
