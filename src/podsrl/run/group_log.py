"""A line of `groups.jsonl`: every rollout of one task, with its reward and advantage, and why it was dropped.

`group_line` makes the line of a step's group, `parse_group` the record that readers use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podsrl.errors import short
from podsrl.lib.text import prompt_text
from podsrl.types import Group, Rollout, Sample, Selection

Json = dict[str, Any]
LARGEST = 1e100
"""Largest absolute value of a number that a reader of logs believes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRollout:
    """One rollout of a line."""

    index: int
    text: str
    reward: float | None
    """None where invalid or pruned."""
    parts: Mapping[str, float | None]
    """Each reward function's value; None where it gave none."""
    is_correct: bool
    invalid_reason: str | None
    num_tokens: int
    finish_reason: str
    is_kept: bool
    drop_reason: str | None
    advantage: float | tuple[float, ...] | None
    """One value for the rollout, or one per token; None where dropped."""
    version: int | tuple[int, ...] | None = None
    """Optimizer steps before the weights that made it, or one number per token where they changed meanwhile; None in a
    log that does not say."""
    origin: str = ""
    """In which other way than the group's it was asked, as `Rollout.origin`."""

    @property
    def is_pruned(self) -> bool:
        """Whether it was ended, or stopped for a later step, before it could be judged: no failure."""
        return self.finish_reason in ("pruned", "postponed")

    @property
    def mean_advantage(self) -> float | None:
        """Over its tokens, where each has its own."""
        if not isinstance(self.advantage, tuple):
            return self.advantage
        return sum(self.advantage) / len(self.advantage) if self.advantage else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGroup:
    """One line: all rollouts of one task in one step.

    In a log from before groups were whole, `select.num_chunks` made a line of each chunk; their ids end in "#0", "#1" …
    """

    step: int
    group: str
    task_id: str
    prompt: str
    """Chat messages are written as "role: content", one after another."""
    answer: str
    rollouts: tuple[RecordedRollout, ...]

    def by_reward(self) -> tuple[RecordedRollout, ...]:
        """The rollouts with the highest reward first; those without a reward come last."""
        return tuple(sorted(self.rollouts, key=lambda r: (r.reward is None, -(r.reward or 0.0), r.index)))

    @property
    def question(self) -> str:
        """What was asked, in one line: of a chat what the user said last."""
        _, mark, last = f"\n{self.prompt}".rpartition("\nuser: ")
        return " ".join((last if mark else self.prompt).split())

    @property
    def is_zero_signal(self) -> bool:
        """Whether nothing is learned from the group: its kept rewards are all equal, or its advantages all zero."""
        kept = [rollout for rollout in self.rollouts if rollout.is_kept]
        has_advantage = any(rollout.advantage not in (None, 0.0) for rollout in kept)
        return len({rollout.reward for rollout in kept}) <= 1 or not has_advantage


def group_line(step: int, group: Group, selection: Selection, samples: Sequence[Sample]) -> Json:
    """The line of a step's group, as JSON; `samples` are its m, in the order of `selection.kept`."""
    sample_of = dict(zip(selection.kept, samples, strict=True))
    return {
        "step": step,
        "group": group.id,
        "task": {"id": group.task.id, "prompt": prompt_text(group.task.prompt), "answer": group.task.answer},
        "rollouts": [
            _rollout_json(index, rollout, selection.dropped.get(index), sample_of.get(index))
            for index, rollout in enumerate(group.rollouts)
        ],
    }


def _rollout_json(index: int, rollout: Rollout, drop_reason: str | None, sample: Sample | None) -> Json:
    completion = rollout.completion
    return {
        "index": index,
        "text": rollout.text,
        "reward": _finite(rollout.reward) if rollout.is_valid else None,
        "parts": {name: _finite(value) for name, value in rollout.parts.items()},
        "is_correct": rollout.is_correct,
        "invalid_reason": rollout.invalid_reason,
        "num_tokens": len(completion.token_ids),
        "finish_reason": completion.finish_reason,
        "kept": sample is not None,
        "drop_reason": drop_reason,
        "advantage": None if sample is None else sample.advantage,
        "version": completion.versions or completion.version,
        **({"origin": rollout.origin} if rollout.origin else {}),
    }


def parse_group(line: Mapping[str, Any]) -> RecordedGroup:
    """Make the record of a parsed line.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the line is no recorded group.
    """
    task = line["task"]
    return RecordedGroup(
        step=_read(line, "step", int),
        group=_read(line, "group", str),
        task_id=str(task["id"]),
        prompt=prompt_text(task["prompt"]),
        answer=str(task["answer"]),
        rollouts=tuple(_parse_rollout(rollout) for rollout in line["rollouts"]),
    )


def _parse_rollout(entry: Mapping[str, Any]) -> RecordedRollout:
    advantage = entry["advantage"]
    version = _read({"version": None} | dict(entry), "version", int, list, type(None))
    return RecordedRollout(
        index=_read(entry, "index", int),
        text=_read(entry, "text", str),
        reward=_number("reward", entry["reward"]),
        parts={str(name): _number(name, value) for name, value in entry["parts"].items()},
        is_correct=_read(entry, "is_correct", bool),
        invalid_reason=_read(entry, "invalid_reason", str, type(None)),
        num_tokens=_read(entry, "num_tokens", int),
        finish_reason=_read(entry, "finish_reason", str),
        is_kept=_read(entry, "kept", bool),
        drop_reason=_read(entry, "drop_reason", str, type(None)),
        advantage=(
            tuple(_number("advantage", value) or 0.0 for value in advantage)
            if isinstance(advantage, list)
            else _number("advantage", advantage)
        ),
        version=(
            tuple(_read({"version": one}, "version", int) for one in version) if isinstance(version, list) else version
        ),
        origin=_read({"origin": ""} | dict(entry), "origin", str),
    )


def _read(entry: Mapping[str, Any], name: str, *kinds: type) -> Any:
    value = entry[name]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ValueError(f"{name} = {short(value)}, wanted {' or '.join(kind.__name__ for kind in kinds)}")
    return value


def _number(name: str, value: Any) -> float | None:
    # NaN is how Python's json writes a missing float; it means the same as null here.
    if value is None or value != value:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > LARGEST:
        raise ValueError(f"{name} = {short(value)}, wanted a number of at most {LARGEST:g}")
    return float(value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
