"""Measurements from the logs of a run, without running anything: the seconds of its steps and its rewards.

A run has one n, one m and one micro-batch size, so it cannot identify some quantities: they are listed in `unknown`.
The rest comes from differences between steps (lengths, groups with a signal).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.plan.cost import PREDICTED_STAGES
from podsrl.plan.measured import GenerationProbe, Measurements, UpdateProbe, check_budget, own_kept
from podsrl.plan.rewards import Seen
from podsrl.report.read import Line, Run, read_run
from podsrl.run.group_log import RecordedGroup, RecordedRollout

RECENT = 0.25
"""Share of the steps that is read, from the end: earlier steps are of an older policy. At least `LEAST_STEPS`."""
LEAST_STEPS = 20

UNKNOWN = (
    "other micro-batches than the run's own: one was used",
    "how generation grows with n: all steps had one n; fewer or more rollouts are taken to share rows as these did",
    "the noise of a rollout's gradient: gradients at one m do not tell it",
    "memory: the logs do not say how much there was",
)


def read_measurements(folder: Path, overrides: Sequence[str] = ()) -> Measurements:
    """Read the last quarter of a run, finished or not; `overrides` are an error, since a run has its own config.

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
        groups=tuple(
            Seen.of([(r.reward, r.num_tokens, r.is_correct) for r in rollouts if r.reward is not None])
            for rollouts in _by_question(groups)
        ),
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
    stages = sum(line[f"seconds/{stage}"] for stage in PREDICTED_STAGES)
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
        num_kept=own_kept(config),
        micro_batch_tokens=config.optim.micro_batch_tokens,
        trained_rows=line["tokens/trained"] / length if length > 0 else 0.0,
        trained_tokens=int(line["tokens/trained"]),
        update_seconds=line["seconds/update"],
        select_seconds=line["seconds/select"],
        peak_bytes=None,
    )


def _by_question(groups: Sequence[RecordedGroup]) -> list[list[RecordedRollout]]:
    """The rollouts of each question of each step; an older log has a line for each chunk of them."""
    found: dict[tuple[int, str], list[RecordedRollout]] = {}
    for group in groups:
        found.setdefault((group.step, re.sub(r"#\d+$", "", group.group)), []).extend(group.rollouts)
    return list(found.values())
