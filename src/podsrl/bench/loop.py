"""How much of a step is not the model: the demo's PODS arm, stage by stage.

Model work is generation (forward and sampling) and update (forward, backward, optimizer). Overhead is everything else:
decoding and rewards, selection, advantages and the batch, sync, metrics, and what lies between the stages.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from rich.table import Table

HELP = "share of a training step that is neither model, sampling nor optimizer (the demo's PODS arm)"
MODEL_STAGES = ("generate", "update")


def run(quick: bool = False) -> dict[str, Any]:
    """Measure `steps` steps after a warm-up, with the logs of a real run being written."""
    from podsrl.bench.hardware import hardware_line
    from podsrl.config.load import load_config
    from podsrl.run.clock import STAGES
    from podsrl.run.folder import RunFolder
    from podsrl.run.loop import training_step
    from podsrl.run.trainer import Trainer

    steps = 5 if quick else 30
    trainer = Trainer(load_config("pods", ["record.groups_every_steps=1"]))
    with tempfile.TemporaryDirectory() as path:
        lines = [training_step(trainer, RunFolder(Path(path))) for _ in range(steps + 2)][2:]
    stages = {stage: statistics.median(line[f"seconds/{stage}"] for line in lines) for stage in STAGES}
    overheads = [1 - sum(line[f"seconds/{stage}"] for stage in MODEL_STAGES) / line["seconds/total"] for line in lines]
    return {
        "name": "loop",
        "hardware": hardware_line(),
        "steps": steps,
        "seconds_by_stage": stages,
        "seconds_step": statistics.median(line["seconds/total"] for line in lines),
        "overhead": {"median": statistics.median(overheads), "min": min(overheads), "max": max(overheads)},
    }


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
