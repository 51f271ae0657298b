"""Which data a run has: counts and digests that a checkpoint holds, so that a resume notices a change."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

from podsrl.run.before.prompt_lengths import looked_at
from podsrl.tasks import TaskSet
from podsrl.types import Task

Side = dict[str, int | str]
_PARTS = ("ids", "prompts", "answers")
_SIDES = {"train": "training", "eval": "held-out"}
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
"""Part of the `repr` of an object whose class defines none."""
_BATCH = 2048
"""Questions at once: a set made on demand is never in memory as a whole."""


def describe_data(tasks: TaskSet) -> dict[str, Side]:
    """Count the questions of both sides, and digest their ids, prompts and answers in their order.

    Of a large set that is made on demand an even sample is digested (`looked_at`).

    Example:
        >>> seven, three = Task(id="a", prompt="3+4=", answer="7"), Task(id="b", prompt="1+2=", answer="3")
        >>> list(describe_data(TaskSet(name="sums", train=[seven], eval=(three,)))["train"])
        ['questions', 'ids', 'prompts', 'answers']
    """
    return {"train": _describe(tasks.train), "eval": _describe(tasks.eval)}


def data_change(old: Mapping[str, Side], new: Mapping[str, Side]) -> str | None:
    """What differs between two results of `describe_data`, in a sentence; None where the data is the same.

    Example:
        >>> held_out = {"questions": 1, "ids": "aa", "prompts": "bb", "answers": "cc"}
        >>> data_change({"train": held_out, "eval": held_out}, {"train": held_out, "eval": {**held_out, "ids": "dd"}})
        'training 1 questions as before, held-out 1 -> 1 questions (digests of ids aa -> dd)'
    """
    if old == new:
        return None
    return ", ".join(f"{name} {_difference(old[side], new[side])}" for side, name in _SIDES.items())


def _difference(old: Side, new: Side) -> str:
    digests = [f"{part} {str(old[part])[:8]} -> {str(new[part])[:8]}" for part in _PARTS if old[part] != new[part]]
    if not digests:
        return f"{new['questions']:,} questions as before"
    return f"{old['questions']:,} -> {new['questions']:,} questions (digests of {', '.join(digests)})"


def _describe(tasks: Sequence[Task]) -> Side:
    """Lists of JSON texts keep apart what a plain join would run together."""
    seen = looked_at(tasks)
    digests = [hashlib.blake2b(digest_size=16) for _ in _PARTS]
    for start in range(0, len(seen), _BATCH):
        rows = list(seen[start : start + _BATCH])
        columns = ([task.id for task in rows], [task.prompt for task in rows], [task.answer for task in rows])
        for digest, column in zip(digests, columns, strict=True):
            digest.update(json.dumps(column, default=_plain).encode())
    named = zip(_PARTS, (digest.hexdigest() for digest in digests), strict=True)
    return {"questions": len(tasks), **dict(named)}


def _plain(value: Any) -> Any:
    """What JSON has no form for: a chat message of another mapping type, or what a user's own loader put there.

    The same in every process: no address in memory, and no order of a set.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Set):
        return sorted(json.dumps(item, default=_plain) for item in value)
    return _ADDRESS.sub("", repr(value))
