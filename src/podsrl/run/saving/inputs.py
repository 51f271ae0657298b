"""What a run reads besides its config: counts and digests in a checkpoint, so that a resume notices a change."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from podsrl.config.schema import RunConfig
from podsrl.lib.user_function import HERE, import_function
from podsrl.policy import WEIGHTS, model_identity, tokenizer_identity
from podsrl.run.before.prompt_lengths import looked_at
from podsrl.tasks import TaskSet
from podsrl.types import Task

Side = dict[str, int | str]
_PARTS = ("ids", "prompts", "answers", "columns")
_SIDES = {"train": "training", "eval": "held-out"}
_SOURCES = "sources"
"""Beside the two sides of the data: what is read that is no question."""
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_<][\w.<>]*(?: \(here\))?")
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
"""Part of the `repr` of an object whose class defines none."""
_BATCH = 2048
"""Questions at once: a set made on demand is never in memory as a whole."""


def describe_inputs(config: RunConfig, tasks: TaskSet, tokenizer: Any, weights: str | None = None) -> dict[str, Side]:
    """Digests of all that decides a run's numbers and stands outside of its config.

    "train" and "eval" are the questions (`describe_data`); "sources" are the chat template, the tokenizer, config and
    weights of the model at the start, and the files of the user's own functions. `weights` is
    a digest of a loaded model that the run was given in place of `config.model`.
    """
    of_model = model_identity(config.model) if weights is None else {WEIGHTS: weights}
    return {
        **describe_data(tasks),
        _SOURCES: {**tokenizer_identity(tokenizer), **of_model, **_functions(config, tasks)},
    }


def describe_data(tasks: TaskSet) -> dict[str, Side]:
    """Count the questions of both sides, and digest their ids, prompts, answers and other columns in their order.

    Of a large set that is made on demand an even sample is digested (`looked_at`).

    Example:
        >>> seven, three = Task(id="a", prompt="3+4=", answer="7"), Task(id="b", prompt="1+2=", answer="3")
        >>> list(describe_data(TaskSet(name="sums", train=[seven], eval=(three,)))["train"])
        ['questions', 'ids', 'prompts', 'answers', 'columns']
    """
    return {"train": _describe(tasks.train), "eval": _describe(tasks.eval)}


def input_change(old: Mapping[str, Side], new: Mapping[str, Side]) -> str | None:
    """What differs between two results of `describe_inputs`, in a sentence; None where all is the same.

    Weights that are not on this machine yet are not compared.

    Example:
        >>> held_out = {"questions": 1, "ids": "aa", "prompts": "bb", "answers": "cc", "columns": "dd"}
        >>> before = {"train": held_out, "eval": held_out, "sources": {"tokenizer": "ee"}}
        >>> input_change(before, {**before, "eval": {**held_out, "ids": "dd"}})
        'training 1 questions as before, held-out 1 -> 1 questions (digests of ids aa -> dd)'
        >>> input_change(before, {**before, "sources": {"tokenizer": "ff"}})
        'tokenizer ee -> ff'
    """
    changes = []
    if any(old[side] != new[side] for side in _SIDES):
        changes = [f"{name} {_difference(old[side], new[side])}" for side, name in _SIDES.items()]
    return ", ".join([*changes, *_source_changes(old, new)]) or None


def held_out_change(old: Mapping[str, Side], held_out: Sequence[Task]) -> str | None:
    """What differs between the held-out questions of `describe_data` and these, in words; None where nothing does."""
    new = _describe(held_out)
    return None if old["eval"] == new else f"held-out {_difference(old['eval'], new)}"


def has_other_groups(old: Mapping[str, Side], new: Mapping[str, Side]) -> bool:
    """Whether groups that were begun before a change are of other questions, prompts or rewards than the run's now."""
    return old["train"] != new["train"] or bool(_source_changes(old, new))


def _source_changes(old: Mapping[str, Side], new: Mapping[str, Side]) -> list[str]:
    before, after = old[_SOURCES], new[_SOURCES]
    are_known = "" not in (before.get(WEIGHTS), after.get(WEIGHTS))
    names = [name for name in dict.fromkeys([*before, *after]) if are_known or "model.path" not in name]
    return _changed(names, before, after)


def _changed(names: Iterable[str], old: Side, new: Side) -> list[str]:
    was, now = ({name: str(side.get(name, "none"))[:8] for name in names} for side in (old, new))
    return [f"{name} {was[name]} -> {now[name]}" for name in was if old.get(name) != new.get(name)]


def _difference(old: Side, new: Side) -> str:
    digests = _changed(_PARTS, old, new)
    if not digests:
        return f"{new['questions']:,} questions as before"
    return f"{old['questions']:,} -> {new['questions']:,} questions (digests of {', '.join(digests)})"


def _describe(tasks: Sequence[Task]) -> Side:
    """Lists of JSON texts keep apart what a plain join would run together."""
    seen = looked_at(tasks)
    digests = [hashlib.blake2b(digest_size=16) for _ in _PARTS]
    for start in range(0, len(seen), _BATCH):
        rows = list(seen[start : start + _BATCH])
        parts = zip(*((task.id, task.prompt, task.answer, task.columns) for task in rows), strict=True)
        for digest, part in zip(digests, parts, strict=True):
            digest.update(_json(part))
    named = zip(_PARTS, (digest.hexdigest() for digest in digests), strict=True)
    return {"questions": len(tasks), **dict(named)}


def _functions(config: RunConfig, tasks: TaskSet) -> Side:
    """Digests of the files of all functions that the config or the task set names as "module:function"."""
    of_tasks = [*tasks.rewards, tasks.correct, tasks.format or "", tasks.environment or ""]
    named = sorted({name for name in _texts([config.model_dump(mode="json"), of_tasks]) if _FUNCTION.fullmatch(name)})
    return {
        f"text of {name}": hashlib.blake2b(text, digest_size=16).hexdigest() for name in named if (text := _text(name))
    }


def _texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, Mapping):
        yield from _texts([*tree, *tree.values()])
    elif isinstance(tree, Sequence):
        for each in tree:
            yield from _texts(each)


def _text(name: str) -> bytes:
    """The file of a function's module; of a script or notebook, the function; empty where Python knows neither."""
    module = name.partition(":")[0]
    with suppress(ImportError, AttributeError, ValueError, OSError, TypeError):
        if module == "__main__" or name.endswith(HERE):
            return inspect.getsource(import_function(name, where=name)).encode()
        spec = find_spec(module)
        return Path(spec.origin).read_bytes() if spec is not None and spec.origin else b""
    return b""


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, default=_plain).encode()
    except TypeError:  # keys that are no texts, in a column of a user's own
        return json.dumps(_with_texts(value), default=_plain).encode()


def _with_texts(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key if isinstance(key, str) else json.dumps(key, default=_plain): _with_texts(each)
            for key, each in value.items()
        }
    return list(map(_with_texts, value)) if isinstance(value, (list, tuple)) else value


def _plain(value: Any) -> Any:
    """What JSON has no form for: a chat message of another mapping type, or what a user's own loader put there.

    The same in every process: no address in memory, and no order of a set.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Set):
        return sorted(json.dumps(item, default=_plain) for item in value)
    return _ADDRESS.sub("", repr(value))
