"""Groups, open or done, and rollouts as bytes: numbers as columns, texts as blobs, in safetensors' layout.

Nothing is pickled. The same form serves other processes, files and replay. A field's type says what its column is, so a
new field of a known type needs nothing here.
Tasks are left out: the reader has the task set, and a group has its task's place there as `index`. A checksum goes with
the columns, so bytes that were altered are never read as other values.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from itertools import accumulate, chain, islice, pairwise
from typing import Any, TypeVar, get_args, get_type_hints

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from podsrl.errors import PodsError
from podsrl.types import NO_NOTES, FinishReason, Group, Heard, Notes, Open, Parent, Rollout, Status, Task, Way

Array = np.ndarray[Any, Any]
Columns = dict[str, Array]
Number = type[np.generic]
Item = TypeVar("Item")
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


@dataclass(frozen=True, slots=True)
class _Named:
    """Numbers or arrays with names for each record: names and shapes as text, and all numbers one behind the other."""

    name: str
    dtype: Number
    read: Callable[[dict[str, Array]], Any]

    def write(self, values: Iterable[Mapping[str, Any]]) -> Columns:
        every = [{name: np.asarray(value, self.dtype) for name, value in each.items()} for each in values]
        heads = [json.dumps({name: array.shape for name, array in each.items()}) if each else "" for each in every]
        rows = [np.concatenate([array.ravel() for array in each.values()]) if each else () for each in every]
        return {**_Texts(f"{self.name}.shape").write(heads), **_Rows(self.name, self.dtype).write(rows)}

    def values(self, columns: Columns) -> list[Any]:
        heads, numbers = _Texts(f"{self.name}.shape").values(columns), columns[f"{self.name}.values"]
        rows = zip(heads, _spans(columns, self.name), strict=True)
        return [self.read(_named(head or "{}", numbers[start:end])) for head, (start, end) in rows]


def _named(head: str, numbers: Array) -> dict[str, Array]:
    """ValueError: the shapes are not those of the numbers."""
    shapes = {name: tuple(shape) for name, shape in dict(json.loads(head)).items()}
    ends = [*accumulate(map(math.prod, shapes.values()), initial=0)]
    if ends[-1] != len(numbers):
        raise ValueError(f"names of {ends[-1]} numbers, and there are {len(numbers)}")
    spans = zip(shapes.items(), pairwise(ends), strict=True)
    return {name: numbers[start:end].reshape(shape) for (name, shape), (start, end) in spans}


Column = _Numbers | _Rows | _Texts | _Named
Table = Mapping[str, Column]


def _pairs(name: str) -> _Rows:
    return _Rows(
        name,
        np.int32,
        lambda pairs: tuple(chain.from_iterable(pairs)),
        lambda ends: tuple(zip(ends[::2], ends[1::2], strict=True)),
    )


def _heard(name: str) -> _Rows:
    """Of each turn its reward, the number of its calls, and these."""

    def read(numbers: Sequence[float]) -> tuple[Heard, ...]:
        found, rest = list[Heard](), iter(numbers)
        for reward in rest:
            count = int(next(rest, -1))
            found.append((tuple(bool(call) for call in islice(rest, count)), reward))  # ValueError: below 0
            if len(found[-1][0]) != count:
                raise ValueError(f"{count} calls, and there are {len(found[-1][0])}")
        return tuple(found)

    return _Rows(
        name, np.float64, lambda heard: [n for calls, reward in heard for n in (reward, len(calls), *calls)], read
    )


def _word(name: str, words: Sequence[Any]) -> _Numbers:
    return _Numbers(name, np.uint8, words.index, words.__getitem__)


_KINDS: Mapping[Any, Callable[[str], Column]] = {
    bool: lambda name: _Numbers(name, np.bool_),
    int: _Numbers,
    int | None: lambda name: _Numbers(
        name, np.int64, lambda n: -1 if n is None else n, lambda n: None if n == -1 else n
    ),
    float: lambda name: _Numbers(name, np.float64, read=lambda n: n if n == n else math.nan),  # which equals itself
    str: _Texts,
    str | None: _Texts,
    tuple[int, ...]: lambda name: _Rows(name, np.int64),
    tuple[int, ...] | None: lambda name: _Rows(name, np.int32, lambda row: row or (), lambda row: row or None),
    tuple[float, ...]: lambda name: _Rows(name, np.float64),
    tuple[tuple[int, int], ...]: _pairs,
    tuple[Heard, ...]: _heard,
    Mapping[str, float]: lambda name: _Named(
        name, np.float64, lambda found: {key: float(number) for key, number in found.items()}
    ),
    Notes: lambda name: _Named(name, np.float32, lambda found: Notes(found) if found else NO_NOTES),
    Parent | None: lambda name: _Rows(
        name, np.int32, lambda one: () if one is None else astuple(one), lambda row: Parent(*row) if row else None
    ),
    Status: lambda name: _word(name, get_args(Status)),
    FinishReason | None: lambda name: _word(name, (None, *get_args(FinishReason))),
}
"""Type of a field -> its column."""


def _table(record: type, prefix: str, without: Sequence[str] = (), **own: Column) -> Table:
    """The column of each field of a record, by the field's type."""
    kinds = get_type_hints(record)
    named = {each.name: f"{prefix}.{each.name}" for each in fields(record) if each.name not in without}
    return {name: own.get(name) or _KINDS[kinds[name]](column) for name, column in named.items()}


_EXACT = _table(Rollout, "rollout", token_ids=_Rows("rollout.token_ids"))
_ROLLOUT: Table = {**_EXACT, "logprobs": _Rows("rollout.logprobs", np.float32)}
_GROUP = _table(Group, "group", without=("task", "rollouts"))
_WAY = _table(Way, "way")
_PRUNED = _Rows("pruned", np.int64)


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
        ways = _split([Way(**own) for own in _read(_WAY, columns)], columns["num_ways"])
        begun = _split(_rollouts(_ROLLOUT, of_begun), columns["num_begun"])
        rows = zip(_groups(columns, task_of), ways, begun, _PRUNED.values(columns), strict=True)
        return [Open(group=group, ways=of, begun=goes_on, pruned=pruned) for group, of, goes_on, pruned in rows]


def encode_rollouts(rollouts: Sequence[Rollout]) -> bytes:
    """Rollouts as bytes; log-probs keep every bit.

    Example:
        >>> one = Rollout(group_id="g", index=0, token_ids=(5,), logprobs=(-0.1,), version=3, finish_reason="stop")
        >>> decode_rollouts(encode_rollouts([one]))[0].logprobs
        (-0.1,)
    """
    return _save(_write(_EXACT, rollouts))


def decode_rollouts(data: bytes) -> list[Rollout]:
    """What `encode_rollouts` was given. PodsError: the bytes are not what it wrote."""
    with _refusing_damage():
        return _rollouts(_EXACT, _load(data, _write(_EXACT, [])))


def _group_columns(groups: Sequence[Group]) -> Columns:
    return {
        **_write(_GROUP, groups),
        "group_size": np.array([len(group.rollouts) for group in groups], dtype=np.int64),
        **_write(_ROLLOUT, [rollout for group in groups for rollout in group.rollouts]),
    }


def _open_columns(opens: Sequence[Open]) -> Columns:
    begun = _write(_ROLLOUT, [done for each in opens for done in each.begun])
    return {
        **_group_columns([each.group for each in opens]),
        "num_ways": np.array([len(each.ways) for each in opens], dtype=np.int64),
        "num_begun": np.array([len(each.begun) for each in opens], dtype=np.int64),
        **_PRUNED.write(each.pruned for each in opens),
        **_write(_WAY, [way for each in opens for way in each.ways]),
        **{f"{_BEGUN}{name}": column for name, column in begun.items()},
    }


def _groups(columns: Columns, task_of: Callable[[str, int | None], Task]) -> Iterator[Group]:
    of_groups = _split(_rollouts(_ROLLOUT, columns), columns["group_size"])
    for own, rollouts in zip(_read(_GROUP, columns), of_groups, strict=True):
        yield Group(**own, rollouts=rollouts, task=task_of(own["id"], own["index"]))


def _rollouts(table: Table, columns: Columns) -> list[Rollout]:
    return [Rollout(**own) for own in _read(table, columns)]


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
