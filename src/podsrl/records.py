"""Groups, open or done, and completions as bytes: numbers as columns, texts as blobs, in safetensors' layout.

Nothing is pickled. The same form serves other processes, files and replay. Tasks are left out: the reader has the task
set, and a group has its task's place there as `index`. A checksum goes with the columns, so bytes that were altered are
never read as other values.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain, pairwise, product
from typing import Any, TypeVar, get_args

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from podsrl.errors import PodsError
from podsrl.types import Completion, FinishReason, Group, Open, Rollout, Task, Way

Array = np.ndarray[Any, Any]
Columns = dict[str, Array]
Number = TypeVar("Number", int, float)
Item = TypeVar("Item")
_REASONS: tuple[FinishReason, ...] = get_args(FinishReason)
_NO_INDEX = -1
"""Stands for `Group.index` = None, and for `Group.num_first` = None."""
_CHECKSUM, _BEGUN = "checksum", "begun."
_YOUNGER = {
    "given": "index",
    "fault": "index",
    "noted": "index",
    "calls": "index",
    "earned": "index",
    "pruned": "num_ways",
    "way_start": "way_count",
}
"""Columns of unequal rows that older bytes have not, all rows being empty -> one with as many rows that they have."""
_YOUNGER_NUMBERS = {
    "group_first": ("group_size", _NO_INDEX),
    "num_shared": ("index", 0),
    f"{_BEGUN}num_shared": (f"{_BEGUN}index", 0),
}
"""Columns of numbers that older bytes have not -> one with as many that they have, and the number that they mean."""


def encode(groups: Sequence[Group]) -> bytes:
    """Groups of any sizes as bytes. Log-probs become float32, as in a batch.

    Example:
        >>> group = Group(id="g", task=Task(id="7+5", prompt="?", answer="12"), prompt_ids=(1,), rollouts=(), index=4)
        >>> decode(encode([group]), lambda name, index: {4: group.task}[index]) == [group]
        True
    """
    return _save(_group_columns(groups))


def _group_columns(groups: Sequence[Group]) -> Columns:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    completions = [rollout.completion for rollout in rollouts]
    names = list(dict.fromkeys(name for rollout in rollouts for name in rollout.parts))
    return {
        **_texts("group_id", [group.id for group in groups]),
        "group_index": _ints([_NO_INDEX if group.index is None else group.index for group in groups]),
        "group_step": _ints([group.step for group in groups]),
        "group_is_trained": np.array([group.is_trained for group in groups], dtype=bool),
        "group_size": _ints([len(group.rollouts) for group in groups]),
        "group_first": _ints([_NO_INDEX if group.num_first is None else group.num_first for group in groups]),
        **_ragged("prompt", [group.prompt_ids for group in groups], np.int32),
        **_completion_columns(completions, np.float32),
        "reward": np.array([rollout.reward for rollout in rollouts], dtype=np.float64),
        **_texts("part_name", names),
        "parts": np.array([[rollout.parts.get(name, 0.0) for name in names] for rollout in rollouts], dtype=np.float64),
        "has_part": np.array([[name in rollout.parts for name in names] for rollout in rollouts], dtype=bool),
        "is_correct": np.array([rollout.is_correct for rollout in rollouts], dtype=bool),
        "is_formatted": np.array([rollout.is_formatted for rollout in rollouts], dtype=bool),
        **_texts("text", [rollout.text for rollout in rollouts]),
        **_texts("answer", [rollout.answer for rollout in rollouts]),
        **_texts("invalid", [rollout.invalid_reason for rollout in rollouts]),
        **_texts("origin", [rollout.origin for rollout in rollouts]),
        **_ragged("own_prompt", [rollout.prompt_ids or () for rollout in rollouts], np.int32),
    }


def decode(data: bytes, task_of: Callable[[str, int | None], Task]) -> list[Group]:
    """What `encode` was given.

    Args:
        data: from `encode`.
        task_of: the task of a group, from its id and its `index`.

    Raises:
        PodsError: the bytes are not what `encode` wrote, or `task_of` raised.
    """
    with _refusing_damage():
        return list(_groups(_load(data, _group_columns([])), task_of))


def encode_open(opens: Sequence[Open]) -> bytes:
    """Open groups as bytes, as `encode`."""
    return _save(_open_columns(opens))


def _open_columns(opens: Sequence[Open]) -> Columns:
    ways = [way for each in opens for way in each.ways]
    begun = _completion_columns([done for each in opens for done in each.begun], np.float32)
    return {
        **_group_columns([each.group for each in opens]),
        "num_ways": _ints([len(each.ways) for each in opens]),
        "num_begun": _ints([len(each.begun) for each in opens]),
        **_ragged("pruned", [each.pruned for each in opens], np.int64),
        "way_count": _ints([way.count for way in ways]),
        **_ragged("way_prompt", [way.prompt_ids or () for way in ways], np.int32),
        **_ragged("way_start", [way.start_ids for way in ways], np.int32),
        **_texts("way_origin", [way.origin for way in ways]),
        **{f"{_BEGUN}{name}": column for name, column in begun.items()},
    }


def decode_open(data: bytes, task_of: Callable[[str, int | None], Task]) -> list[Open]:
    """What `encode_open` was given; arguments and errors as of `decode`."""
    with _refusing_damage():
        columns = _load(data, _open_columns([]))
        of_begun = {name.removeprefix(_BEGUN): each for name, each in columns.items() if name.startswith(_BEGUN)}
        ways = _split(list(_ways(columns)), columns["num_ways"])
        begun = _split(list(_completions(of_begun)), columns["num_begun"])
        rows = zip(_groups(columns, task_of), ways, begun, _rows(columns, "pruned", int), strict=True)
        return [Open(group=group, ways=of, begun=goes_on, pruned=pruned) for group, of, goes_on, pruned in rows]


def encode_completions(completions: Sequence[Completion]) -> bytes:
    """Completions as bytes; log-probs keep every bit.

    Example:
        >>> found = Completion(
        ...     request_id="g", index=0, token_ids=(5,), logprobs=(-0.1,), finish_reason="stop", version=3
        ... )
        >>> decode_completions(encode_completions([found])) == [found]
        True
    """
    return _save(_completion_columns(completions, np.float64))


def decode_completions(data: bytes) -> list[Completion]:
    """What `encode_completions` was given. PodsError: the bytes are not what it wrote."""
    with _refusing_damage():
        return list(_completions(_load(data, _completion_columns([], np.float64))))


def _save(columns: Columns) -> bytes:
    return save({**columns, _CHECKSUM: _checksum(columns)})


def _load(data: bytes, like: Columns) -> Columns:
    """The columns, with the names and kinds of `like`. ValueError: they are not what was written."""
    columns = load(data)
    if not np.array_equal(columns.pop(_CHECKSUM), _checksum(columns)):
        raise ValueError("their checksum is another")
    for name, (beside, value) in _YOUNGER_NUMBERS.items():
        if name in like and name not in columns:
            columns[name] = np.full(len(columns[beside]), value)
    for prefix, (name, beside) in product(("", _BEGUN), _YOUNGER.items()):
        lengths, values = f"{prefix}{name}.lengths", f"{prefix}{name}.values"
        if lengths in like and lengths not in columns:
            columns |= {lengths: np.zeros(len(columns[f"{prefix}{beside}"]), np.int64), values: like[values]}
    if {name: column.dtype for name, column in columns.items()} != {name: like[name].dtype for name in like}:
        raise ValueError("their columns are others")
    return columns


def _checksum(columns: Columns) -> Array:
    value = 0
    for name in sorted(columns):
        column = columns[name]
        value = zlib.crc32(column.tobytes(), zlib.crc32(repr((name, column.dtype.str, column.shape)).encode(), value))
    return np.array([value], dtype=np.uint32)


@contextmanager
def _refusing_damage() -> Iterator[None]:
    try:
        yield
    except PodsError:
        raise
    except (SafetensorError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise PodsError(f"these bytes are no records, or damaged ones: {error}") from None


def _completion_columns(completions: Sequence[Completion], logprobs: type[np.floating[Any]]) -> Columns:
    return {
        **_texts("request_id", [completion.request_id for completion in completions]),
        "index": _ints([completion.index for completion in completions]),
        "version": _ints([completion.version for completion in completions]),
        **_ragged("versions", [completion.versions for completion in completions], np.int64),
        **_ragged("given", [tuple(chain.from_iterable(completion.given)) for completion in completions], np.int64),
        **_texts("fault", [completion.fault for completion in completions]),
        **_ragged("calls", [completion.calls for completion in completions], np.int64),
        **_ragged("earned", [completion.earned for completion in completions], np.float64),
        "finish": np.array([_REASONS.index(completion.finish_reason) for completion in completions], dtype=np.uint8),
        **_ragged("token", [completion.token_ids for completion in completions], np.int32),
        **_ragged("logprob", [completion.logprobs for completion in completions], logprobs),
        "num_shared": _ints([completion.num_shared for completion in completions]),
        **_ragged("noted", [completion.noted for completion in completions], np.float32),
    }


def _groups(columns: Columns, task_of: Callable[[str, int | None], Task]) -> Iterator[Group]:
    heads = zip(
        _texts_of(columns, "group_id"),
        columns["group_index"].tolist(),
        columns["group_step"].tolist(),
        columns["group_is_trained"].tolist(),
        columns["group_first"].tolist(),
        _split(list(_rollouts(columns)), columns["group_size"]),
        _rows(columns, "prompt", int),
        strict=True,
    )
    for name, place, step, is_trained, num_first, rollouts, prompt_ids in heads:
        index = None if place == _NO_INDEX else place
        yield Group(
            id=str(name),
            task=task_of(str(name), index),
            prompt_ids=prompt_ids,
            rollouts=rollouts,
            index=index,
            step=step,
            is_trained=is_trained,
            num_first=None if num_first == _NO_INDEX else num_first,
        )


def _ways(columns: Columns) -> Iterator[Way]:
    prompts, starts = _rows(columns, "way_prompt", int), _rows(columns, "way_start", int)
    rows = zip(columns["way_count"].tolist(), prompts, starts, _texts_of(columns, "way_origin"), strict=True)
    for count, ids, start_ids, origin in rows:
        yield Way(count=count, prompt_ids=ids or None, start_ids=start_ids, origin=str(origin))


def _split(items: list[Item], sizes: Array) -> Iterable[tuple[Item, ...]]:
    """Items one behind the other, so many of each group. ValueError: they are not so many in all."""
    ends = [0, *accumulate(sizes.tolist())]
    if ends[-1] != len(items):
        raise ValueError(f"groups of {ends[-1]} together, and there are {len(items)}")
    return (tuple(items[start:end]) for start, end in pairwise(ends))


def _rollouts(columns: Columns) -> Iterator[Rollout]:
    names = [str(name) for name in _texts_of(columns, "part_name")]
    rows = zip(
        _completions(columns),
        _texts_of(columns, "text"),
        columns["reward"].tolist(),
        columns["parts"].tolist(),
        columns["has_part"].tolist(),
        columns["is_correct"].tolist(),
        columns["is_formatted"].tolist(),
        _texts_of(columns, "answer"),
        _texts_of(columns, "invalid"),
        _texts_of(columns, "origin"),
        _rows(columns, "own_prompt", int),
        strict=True,
    )
    for completion, text, reward, parts, has_part, is_correct, is_formatted, answer, invalid, origin, asked in rows:
        yield Rollout(
            completion=completion,
            text=str(text),
            reward=reward,
            parts={name: value for name, value, has in zip(names, parts, has_part, strict=True) if has},
            is_correct=is_correct,
            is_formatted=is_formatted,
            answer=answer,
            invalid_reason=invalid,
            prompt_ids=asked or None,
            origin=str(origin),
        )


def _completions(columns: Columns) -> Iterator[Completion]:
    rows = zip(
        _texts_of(columns, "request_id"),
        columns["index"].tolist(),
        columns["version"].tolist(),
        _rows(columns, "versions", int),
        _rows(columns, "given", int),
        columns["finish"].tolist(),
        _texts_of(columns, "fault"),
        _rows(columns, "calls", bool),
        _rows(columns, "earned", float),
        _rows(columns, "token", int),
        _rows(columns, "logprob", float),
        _rows(columns, "noted", float),
        columns["num_shared"].tolist(),
        strict=True,
    )
    for name, index, version, versions, given, finish, fault, calls, earned, token_ids, logprobs, noted, shared in rows:
        yield Completion(
            request_id=str(name),
            index=index,
            token_ids=token_ids,
            logprobs=logprobs,
            finish_reason=_REASONS[finish],
            fault=str(fault),
            calls=tuple(map(bool, calls)),
            earned=earned,
            version=version,
            versions=versions,
            given=tuple(zip(given[::2], given[1::2], strict=True)),
            noted=noted,
            num_shared=shared,
        )


def _ints(values: Sequence[int]) -> Array:
    return np.array(values, dtype=np.int64)


def _ragged(name: str, rows: Sequence[Sequence[float]], dtype: type[np.generic]) -> dict[str, Array]:
    """Rows of unequal length: their lengths, and all their numbers one behind the other."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    values = np.fromiter(chain.from_iterable(rows), dtype=dtype, count=int(lengths.sum()))
    return {f"{name}.lengths": lengths, f"{name}.values": values}


def _rows(columns: Columns, name: str, kind: Callable[[Any], Number]) -> Iterable[tuple[Number, ...]]:
    """The rows of `_ragged`, as tuples of Python numbers: one conversion for all of them."""
    values: list[Number] = columns[f"{name}.values"].tolist()
    return (tuple(values[start:end]) for start, end in _spans(columns, name))


def _texts(name: str, texts: Sequence[str | None]) -> dict[str, Array]:
    """Texts as one blob with the length in bytes of each; -1 for none."""
    parts = [None if text is None else text.encode("utf-8", "surrogatepass") for text in texts]
    lengths = np.array([-1 if part is None else len(part) for part in parts], dtype=np.int64)
    blob = b"".join(part for part in parts if part is not None)
    return {f"{name}.lengths": lengths, f"{name}.values": np.frombuffer(blob, dtype=np.uint8)}


def _texts_of(columns: Columns, name: str) -> list[str | None]:
    blob, lengths = columns[f"{name}.values"].tobytes(), columns[f"{name}.lengths"]
    return [
        None if length < 0 else blob[start:end].decode("utf-8", "surrogatepass")
        for length, (start, end) in zip(lengths.tolist(), _spans(columns, name), strict=True)
    ]


def _spans(columns: Columns, name: str) -> Iterable[tuple[int, int]]:
    """Where each row or text of a column begins and ends. ValueError: they are not all that the column holds."""
    ends = [0, *accumulate(np.maximum(columns[f"{name}.lengths"], 0).tolist())]
    if ends[-1] != (size := len(columns[f"{name}.values"])):
        raise ValueError(f"{name}: lengths of {ends[-1]} together, and there are {size}")
    return pairwise(ends)
