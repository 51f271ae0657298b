"""Measurements from the logs of a run, without running anything: what its steps took and which rewards it saw.

A run has one n, one m and one micro-batch, so much stays unknown and is said; what can be told comes from the steps'
own differences (lengths, and how many groups had a signal) and is carried over to other n and m by the cost model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.report.groups import RecordedGroup
from podsrl.report.read import Line, Run, read_run
from podsrl.run.plan.measured import PREDICTED, GenerationProbe, Measurements, UpdateProbe, check_budget
from podsrl.run.plan.rewards import Seen

RECENT = 0.25
"""Share of the steps, at the end, that is read: earlier ones were another policy's. Never under `LEAST_STEPS`."""
LEAST_STEPS = 20

UNKNOWN = (
    "other micro-batches than the run's own: one was used",
    "how generation grows with n: all steps had one n; fewer or more rollouts are taken to share rows as these did",
    "the noise of a rollout's gradient: gradients at one m do not tell it",
    "memory: the logs do not say how much there was",
)


def read_measurements(folder: Path, overrides: Sequence[str] = ()) -> Measurements:
    """Read the last quarter of a run.

    Args:
        folder: of a run, finished or not.
        overrides: not wanted here; a run's folder has its own config.

    Raises:
        UsageError: no run, no steps, no recorded groups, or overrides.
    """
    if overrides:
        raise UsageError(
            f"{overrides[0]}: {folder} is a run's folder, planned from its own logs; give a CONFIG to change values"
        )
    run, config = read_run(folder), load_config(folder / "config.toml")
    check_budget(config)
    steps = _recent(run)
    first = steps[0]["step"]
    groups = [group for group in run.groups if group.step >= first] or list(run.groups[-8:])
    if not groups:
        raise UsageError(
            f"{folder}: groups.jsonl holds no groups, so nothing is known of rewards; plan its config instead, or "
            "train with record.groups_every_steps above 0"
        )
    return Measurements(
        config=config,
        generation=tuple(_generation(config, line) for line in steps),
        updates=tuple(_update(config, line) for line in steps),
        groups=tuple(_seen(group) for group in groups),
        noise_ratio=None,
        memory_bytes=None,
        unknown=UNKNOWN,
    )


def _recent(run: Run) -> list[Line]:
    steps = [line for line in run.steps[1:] if line.get("tokens/generated", 0) > 0 and line["seconds/total"] > 0]
    if not steps:
        raise UsageError(f"{run.path}: metrics.jsonl has under two steps; let it train first, or plan its config")
    return list(steps[-max(LEAST_STEPS, int(RECENT * len(steps))) :])


def _generation(config: RunConfig, line: Line) -> GenerationProbe:
    stages = sum(line[f"seconds/{stage}"] for stage in PREDICTED)
    return GenerationProbe(
        num_rollouts=config.rollouts.num_rollouts,
        decode_steps=1,
        forwarded=int(line["tokens/forwarded"]),
        generated=int(line["tokens/generated"]),
        generate_seconds=line["seconds/generate"],
        score_seconds=line["seconds/score"],
        rest_seconds=max(0.0, line["seconds/total"] - stages),
        kv_bytes=int(line["memory/peak_generate_bytes"]),
    )


def _update(config: RunConfig, line: Line) -> UpdateProbe:
    length = line["length/kept"]
    return UpdateProbe(
        num_rollouts=config.rollouts.num_rollouts,
        num_kept=config.select.num_kept,
        micro_batch_tokens=config.optim.micro_batch_tokens,
        trained_rows=line["tokens/trained"] / length if length > 0 else 0.0,
        trained_tokens=int(line["tokens/trained"]),
        update_seconds=line["seconds/update"],
        select_seconds=line["seconds/select"],
        peak_bytes=None,
    )


def _seen(group: RecordedGroup) -> Seen:
    valid = [(r.reward, r.num_tokens, r.is_correct) for r in group.rollouts if r.reward is not None]
    return Seen(
        rewards=np.array([reward for reward, _, _ in valid], dtype=np.float64),
        lengths=np.array([tokens for _, tokens, _ in valid], dtype=np.float64),
        is_correct=np.array([right for _, _, right in valid], dtype=np.bool_),
    )
