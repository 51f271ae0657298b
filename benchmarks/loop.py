"""How much of a step is not the model: the demo's PODS arm, stage by stage.

Model work is what the engine (forward, sampling) and the updater (forward, backward, optimizer) do. Overhead is all
other wall-clock of a step: tokenising, decoding, rewards, selection, advantages, the batch, sync, metrics, logs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.table import Table

HELP = "share of a training step that is neither model, sampling nor optimizer (the demo's PODS arm)"


def run(quick: bool = False) -> dict[str, Any]:
    """Measure `steps` steps after a warm-up, with the logs of a real run being written."""
    from podsrl.config.load import dump, load_config
    from podsrl.lib.machine import hardware_line
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
        "name": "loop",
        "hardware": hardware_line(),
        "steps": steps,
        "seconds_by_stage": {s: statistics.median(line[f"seconds/{s}"] for line in lines) for s in STAGES},
        "seconds_step": statistics.median(walls),
        "overhead": {"median": statistics.median(overheads), "min": min(overheads), "max": max(overheads)},
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
