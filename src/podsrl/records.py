"""Groups, open or done, and completions as bytes: numbers as columns, texts as blobs, in safetensors' layout.

Nothing is pickled. The same form serves other processes, files and replay. A table says of each record which field is
which column. Tasks are left out: the reader has the task set, and a group has its task's place there as `index`. A
checksum goes with the columns, so bytes that were altered are never read as other values.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any, TypeVar, get_args

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from podsrl.errors import PodsError
from podsrl.types import Completion, FinishReason, Group, Open, Rollout, Task, Way

Array = np.ndarray[Any, Any]
Columns = dict[str, Array]
Number = type[np.generic]
Item = TypeVar("Item")
_REASONS: tuple[FinishReason, ...] = get_args(FinishReason)
_CHECKSUM, _BEGUN = "checksum", "begun."


# --- what is a column ---


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class _Numbers:
    """One number for each record."""

    name: str
    dtype: Number = np.int64
    stored: Callable[[Any], Any] = _same
    """What stands for a value of the field, and `read` the other way round."""
    read: Callable[[Any], Any] = _same

    def write(self, values: Iterable[Any]) -> Columns:
        return {self.name: np.array([self.stored(value) for value in values], dtype=self.dtype)}

    def values(self, columns: Columns) -> list[Any]:
        return [self.read(value) for value in columns[self.name].tolist()]


@dataclass(frozen=True, slots=True)
class _Rows:
    """A row of numbers for each record: their lengths, and all numbers one behind the other."""

    name: str
    dtype: Number = np.int32
    stored: Callable[[Any], Sequence[Any]] = _same
    read: Callable[[tuple[Any, ...]], Any] = _same

    def write(self, values: Iterable[Any]) -> Columns:
        rows = [self.stored(value) for value in values]
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        numbers = np.fromiter(chain.from_iterable(rows), dtype=self.dtype, count=int(lengths.sum()))
        return {f"{self.name}.lengths": lengths, f"{self.name}.values": numbers}

    def values(self, columns: Columns) -> list[Any]:
        numbers = columns[f"{self.name}.values"].tolist()  # one conversion for all rows
        return [self.read(tuple(numbers[start:end])) for start, end in _spans(columns, self.name)]


@dataclass(frozen=True, slots=True)
class _Texts:
    """Texts as one blob with the length in bytes of each; -1 for none."""

    name: str

    def write(self, values: Iterable[str | None]) -> Columns:
        parts = [None if text is None else text.encode("utf-8", "surrogatepass") for text in values]
        lengths = np.array([-1 if part is None else len(part) for part in parts], dtype=np.int64)
        blob = b"".join(part for part in parts if part is not None)
        return {f"{self.name}.lengths": lengths, f"{self.name}.values": np.frombuffer(blob, dtype=np.uint8)}

    def values(self, columns: Columns) -> list[str | None]:
        blob, lengths = columns[f"{self.name}.values"].tobytes(), columns[f"{self.name}.lengths"].tolist()
        return [
            None if length < 0 else blob[start:end].decode("utf-8", "surrogatepass")
            for length, (start, end) in zip(lengths, _spans(columns, self.name), strict=True)
        ]


def _or_none(name: str) -> _Numbers:
    """A count or place that may be None, for which -1 stands."""
    return _Numbers(
        name, np.int64, lambda value: -1 if value is None else value, lambda value: None if value == -1 else value
    )


def _prompt_or_none(name: str) -> _Rows:
    return _Rows(name, np.int32, lambda ids: ids or (), lambda ids: ids or None)


# --- field of a record -> its column ---


Table = Mapping[str, _Numbers | _Rows | _Texts]
_COMPLETION: Table = {
    "request_id": _Texts("request_id"),
    "index": _Numbers("index"),
    "version": _Numbers("version"),
    "versions": _Rows("versions", np.int64),
    "given": _Rows(
        "given",
        np.int64,
        lambda pairs: tuple(chain.from_iterable(pairs)),
        lambda bounds: tuple(zip(bounds[::2], bounds[1::2], strict=True)),
    ),
    "fault": _Texts("fault"),
    "calls": _Rows("calls", np.int64, read=lambda calls: tuple(map(bool, calls))),
    "earned": _Rows("earned", np.float64),
    "finish_reason": _Numbers("finish", np.uint8, _REASONS.index, _REASONS.__getitem__),
    "token_ids": _Rows("token"),
    "logprobs": _Rows("logprob", np.float32),
    "num_shared": _Numbers("num_shared"),
    "forked_from": _or_none("forked_from"),
    "noted": _Rows("noted", np.float32),
}
_EXACT: Table = {**_COMPLETION, "logprobs": _Rows("logprob", np.float64)}
_ROLLOUT: Table = {
    "text": _Texts("text"),
    "reward": _Numbers("reward", np.float64),
    "is_correct": _Numbers("is_correct", np.bool_),
    "is_formatted": _Numbers("is_formatted", np.bool_),
    "answer": _Texts("answer"),
    "invalid_reason": _Texts("invalid"),
    "prompt_ids": _prompt_or_none("own_prompt"),
    "origin": _Texts("origin"),
}
_GROUP: Table = {
    "id": _Texts("group_id"),
    "prompt_ids": _Rows("prompt"),
    "index": _or_none("group_index"),
    "step": _Numbers("group_step"),
    "is_trained": _Numbers("group_is_trained", np.bool_),
    "num_first": _or_none("group_first"),
}
_WAY: Table = {
    "count": _Numbers("way_count"),
    "prompt_ids": _prompt_or_none("way_prompt"),
    "start_ids": _Rows("way_start"),
    "origin": _Texts("way_origin"),
}
_PRUNED = _Rows("pruned", np.int64)
_PART_NAMES = _Texts("part_name")


def _write(table: Table, records: Sequence[Any]) -> Columns:
    return {
        name: array
        for field, column in table.items()
        for name, array in column.write(getattr(record, field) for record in records).items()
    }


def _read(table: Table, columns: Columns) -> Iterator[dict[str, Any]]:
    """The fields of each record."""
    for values in zip(*(column.values(columns) for column in table.values()), strict=True):
        yield dict(zip(table, values, strict=True))


# --- the bytes ---


def encode(groups: Sequence[Group]) -> bytes:
    """Groups of any sizes as bytes. Log-probs become float32, as in a batch.

    Example:
        >>> group = Group(id="g", task=Task(id="7+5", prompt="?", answer="12"), prompt_ids=(1,), rollouts=(), index=4)
        >>> decode(encode([group]), lambda name, index: {4: group.task}[index]) == [group]
        True
    """
    return _save(_group_columns(groups))


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


def decode_open(data: bytes, task_of: Callable[[str, int | None], Task]) -> list[Open]:
    """What `encode_open` was given; arguments and errors as of `decode`."""
    with _refusing_damage():
        columns = _load(data, _open_columns([]))
        of_begun = {name.removeprefix(_BEGUN): each for name, each in columns.items() if name.startswith(_BEGUN)}
        ways = _split([Way(**fields) for fields in _read(_WAY, columns)], columns["num_ways"])
        begun = _split([Completion(**fields) for fields in _read(_COMPLETION, of_begun)], columns["num_begun"])
        rows = zip(_groups(columns, task_of), ways, begun, _PRUNED.values(columns), strict=True)
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
    return _save(_write(_EXACT, completions))


def decode_completions(data: bytes) -> list[Completion]:
    """What `encode_completions` was given. PodsError: the bytes are not what it wrote."""
    with _refusing_damage():
        return [Completion(**fields) for fields in _read(_EXACT, _load(data, _write(_EXACT, [])))]


def _group_columns(groups: Sequence[Group]) -> Columns:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    names = list(dict.fromkeys(name for rollout in rollouts for name in rollout.parts))
    return {
        **_write(_GROUP, groups),
        "group_size": np.array([len(group.rollouts) for group in groups], dtype=np.int64),
        **_write(_COMPLETION, [rollout.completion for rollout in rollouts]),
        **_write(_ROLLOUT, rollouts),
        **_PART_NAMES.write(names),
        "parts": np.array([[rollout.parts.get(name, 0.0) for name in names] for rollout in rollouts], dtype=np.float64),
        "has_part": np.array([[name in rollout.parts for name in names] for rollout in rollouts], dtype=bool),
    }


def _open_columns(opens: Sequence[Open]) -> Columns:
    begun = _write(_COMPLETION, [done for each in opens for done in each.begun])
    return {
        **_group_columns([each.group for each in opens]),
        "num_ways": np.array([len(each.ways) for each in opens], dtype=np.int64),
        "num_begun": np.array([len(each.begun) for each in opens], dtype=np.int64),
        **_PRUNED.write(each.pruned for each in opens),
        **_write(_WAY, [way for each in opens for way in each.ways]),
        **{f"{_BEGUN}{name}": column for name, column in begun.items()},
    }


def _groups(columns: Columns, task_of: Callable[[str, int | None], Task]) -> Iterator[Group]:
    of_groups = _split(list(_rollouts(columns)), columns["group_size"])
    for fields, rollouts in zip(_read(_GROUP, columns), of_groups, strict=True):
        yield Group(**fields, rollouts=rollouts, task=task_of(fields["id"], fields["index"]))


def _rollouts(columns: Columns) -> Iterator[Rollout]:
    names = _PART_NAMES.values(columns)
    completions = (Completion(**fields) for fields in _read(_COMPLETION, columns))
    parts = zip(columns["parts"].tolist(), columns["has_part"].tolist(), strict=True)
    for completion, fields, (values, has) in zip(completions, _read(_ROLLOUT, columns), parts, strict=True):
        own = {str(name): value for name, value, is_there in zip(names, values, has, strict=True) if is_there}
        yield Rollout(**fields, completion=completion, parts=own)


def _split(items: list[Item], sizes: Array) -> Iterable[tuple[Item, ...]]:
    """Items one behind the other, so many of each group. ValueError: they are not so many in all."""
    ends = [0, *accumulate(sizes.tolist())]
    if ends[-1] != len(items):
        raise ValueError(f"groups of {ends[-1]} together, and there are {len(items)}")
    return (tuple(items[start:end]) for start, end in pairwise(ends))


def _spans(columns: Columns, name: str) -> Iterable[tuple[int, int]]:
    """Where each row or text of a column begins and ends. ValueError: they are not all that the column holds."""
    ends = [0, *accumulate(np.maximum(columns[f"{name}.lengths"], 0).tolist())]
    if ends[-1] != (size := len(columns[f"{name}.values"])):
        raise ValueError(f"{name}: lengths of {ends[-1]} together, and there are {size}")
    return pairwise(ends)


def _save(columns: Columns) -> bytes:
    return save({**columns, _CHECKSUM: _checksum(columns)})


def _load(data: bytes, like: Columns) -> Columns:
    """The columns, with the names and kinds of `like`. ValueError: they are not what was written."""
    columns = load(data)
    if not np.array_equal(columns.pop(_CHECKSUM), _checksum(columns)):
        raise ValueError("their checksum is another")
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
