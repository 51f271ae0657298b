"""A line of `groups.jsonl`: every rollout of one task, with its reward and advantage, and why it was dropped.

`group_line` makes the line of a step's group, `parse_group` the record that readers use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Annotated, Any

from pydantic import AliasPath, BeforeValidator, Field, InstanceOf, StrictBool, StrictInt, TypeAdapter, ValidationError

from podsrl.errors import short
from podsrl.lib.rounding import has_signal
from podsrl.lib.text import html_table, prompt_text
from podsrl.tasks.rows import json_columns, json_prompt
from podsrl.types import Group, Rollout, Sample, Selection

Json = dict[str, Any]
LARGEST = 1e100
"""Largest absolute value of a number that a reader of logs believes."""
Text = InstanceOf[str]
"""Any, also one that UTF-8 cannot hold: a model can write half of a surrogate pair."""


def _known(value: Any) -> Any:
    """NaN is how Python's json writes a missing float; it means the same as null here."""
    return None if value != value else value


def _as_text(value: Any) -> Any:
    """Chat messages are one text for readers; what is none is refused as such."""
    try:
        return prompt_text(value) if isinstance(value, list) else value
    except (KeyError, TypeError):
        raise ValueError("wanted text or chat messages") from None


Number = Annotated[float, Field(strict=True, ge=-LARGEST, le=LARGEST)]
Value = Annotated[Number | None, BeforeValidator(_known)]
OfToken = Annotated[Number, BeforeValidator(lambda value: 0.0 if _known(value) is None else value)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRollout:
    """One rollout of a line."""

    index: StrictInt
    text: Text
    reward: Value
    """None where invalid or pruned."""
    parts: Mapping[Text, Value]
    """Each reward function's value; None where it gave none."""
    is_correct: StrictBool
    invalid_reason: Text | None
    num_tokens: StrictInt
    finish_reason: Text | None
    is_kept: Annotated[StrictBool, Field(alias="kept")]
    drop_reason: Text | None
    advantage: Value | tuple[OfToken, ...]
    """One value for the rollout, or one per token; None where dropped."""
    version: StrictInt | tuple[StrictInt, ...] | None = None
    """Optimizer steps before the weights that made it, or one number per token where they changed meanwhile; None in a
    log that does not say."""
    status: Text = "done"
    """As `Rollout.status`; so in a log that does not say."""
    origin: Text = ""
    """In which other way than the group's it was asked, as `Rollout.origin`."""
    given: tuple[tuple[StrictInt, StrictInt], ...] = ()
    """Characters (start, end) of the text that no policy drew, such as what an environment said."""

    @property
    def is_judged(self) -> bool:
        """Whether it has a reward, so that `is_correct` says something."""
        return self.reward is not None and self.invalid_reason is None

    @property
    def pieces(self) -> list[tuple[str, bool]]:
        """The text in pieces that are not empty, each with whether it was given.

        Example: of the text "5?no" with given = ((2, 4),): [("5?", False), ("no", True)].
        """
        bounds = [0, *chain.from_iterable(self.given), len(self.text)]
        cut = [(self.text[start:end], i % 2 == 1) for i, (start, end) in enumerate(pairwise(bounds))]
        return [piece for piece in cut if piece[0]]

    @property
    def mean_advantage(self) -> float | None:
        """Over its tokens, where each has its own."""
        if not isinstance(self.advantage, tuple):
            return self.advantage
        return sum(self.advantage) / len(self.advantage) if self.advantage else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGroup:
    """One line: all rollouts of one task in one step."""

    step: StrictInt
    group: Text
    task_id: Annotated[Text, Field(validation_alias=AliasPath("task", "id"))]
    prompt: Annotated[Text, BeforeValidator(_as_text), Field(validation_alias=AliasPath("task", "prompt"))]
    """Chat messages as "role: content", one after another."""
    answer: Annotated[Text, Field(validation_alias=AliasPath("task", "answer"))]
    rollouts: tuple[RecordedRollout, ...]

    def __repr__(self) -> str:
        kept = f"{sum(rollout.is_kept for rollout in self.rollouts)} of {len(self.rollouts)} kept"
        return f"RecordedGroup(step {self.step}, {short(self.question, 60)}, {kept})"

    def _repr_html_(self) -> str:
        """A table for a notebook, the highest reward first."""
        return html_table(
            f"step {self.step}: {self.prompt} → {self.answer}",
            ("kept", "reward", "advantage", "text"),
            [
                ("✓" if one.is_kept else "", _cell(one.reward), _cell(one.mean_advantage), one.text)
                for one in self.by_reward()
            ],
        )

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
        return not has_signal([rollout.reward for rollout in kept if rollout.reward is not None]) or not has_advantage


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


_GROUP = TypeAdapter(RecordedGroup)


def group_line(step: int, group: Group, selection: Selection, samples: Sequence[Sample], tokenizer: Any = None) -> Json:
    """The line of a step's group, as JSON; `samples` are its m, in the order of `selection.kept`.

    Without a tokenizer it does not say which part of a text was given.
    """
    sample_of = dict(zip(selection.kept, samples, strict=True))
    return {
        "step": step,
        "group": group.id,
        "task": {
            "id": group.task.id,
            "prompt": json_prompt(group.task),
            "answer": group.task.answer,
            "columns": json_columns(group.task),
        },
        "rollouts": [
            _rollout_json(index, rollout, selection.dropped.get(index), sample_of.get(index), tokenizer)
            for index, rollout in enumerate(group.rollouts)
        ],
    }


def _rollout_json(index: int, rollout: Rollout, drop_reason: str | None, sample: Sample | None, tokenizer: Any) -> Json:
    given = [] if tokenizer is None else _given_text(rollout, tokenizer)
    return {
        "index": index,
        "text": rollout.text,
        "reward": _finite(rollout.reward) if rollout.is_valid else None,
        "parts": {name: _finite(value) for name, value in rollout.parts.items()},
        "is_correct": rollout.is_correct,
        "invalid_reason": rollout.invalid_reason,
        "num_tokens": len(rollout.token_ids),
        "status": rollout.status,
        "finish_reason": rollout.finish_reason,
        "kept": sample is not None,
        "drop_reason": drop_reason,
        "advantage": None if sample is None else sample.advantage,
        "version": rollout.versions or rollout.version,
        **({"origin": rollout.origin} if rollout.origin else {}),
        **({"given": given} if given else {}),
    }


def _given_text(rollout: Rollout, tokenizer: Any) -> list[tuple[int, int]]:
    """Where the given tokens stand in the text: a decoded prefix is as long as what comes before its end."""
    ends = [rollout.token_ids[:end] for end in chain.from_iterable(rollout.given)]
    lengths = map(len, tokenizer.batch_decode(ends, skip_special_tokens=True)) if ends else iter(())
    return list(zip(lengths, lengths, strict=True))


def parse_group(line: Mapping[str, Any]) -> RecordedGroup:
    """Make the record of a parsed line. ValueError: the line is no recorded group; its first wrong entry is named."""
    try:
        return _GROUP.validate_python(line)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(map(str, problem["loc"][:3]))
        got = "is missing" if problem["type"] == "missing" else f"= {short(problem['input'])}: {problem['msg']}"
        raise ValueError(f"{key} {got}") from None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
