"""Groups to all processes: numbers as columns, texts as one blob, in safetensors' own layout (nothing is pickled).

Tasks do not travel: every process knows the step's tasks, so a group goes by its place among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, TypeVar, get_args

import numpy as np
from safetensors.numpy import load, save

from podsrl.scale.processes import Processes
from podsrl.types import Completion, FinishReason, Group, Rollout, Task

Array = np.ndarray[Any, Any]
Columns = Mapping[str, Array]
Number = TypeVar("Number", int, float)
_REASONS: tuple[FinishReason, ...] = get_args(FinishReason)


def exchange_groups(tasks: Sequence[Task], own: Mapping[int, Group], processes: Processes) -> list[Group]:
    """All groups on every process.

    Args:
        tasks: of the step; the same on every process.
        own: this process's groups by their place in `tasks`; over all processes every place once.
        processes: of the run.

    Returns:
        One group a task, in their order. Log-probs are float32, as a batch holds them.
    """
    places = dict(own)
    if not processes.is_alone:
        for rank, data in enumerate(processes.gather_bytes(encode(own))):
            if rank != processes.rank:
                places |= decode(data, tasks)
    return [places[i] for i in range(len(tasks))]


def encode(groups: Mapping[int, Group]) -> bytes:
    """Groups by their place, as bytes."""
    rollouts = [rollout for group in groups.values() for rollout in group.rollouts]
    completions = [rollout.completion for rollout in rollouts]
    names = list(rollouts[0].parts) if rollouts else []
    columns = {
        "place": np.array(list(groups), dtype=np.int64),
        "group_size": np.array([len(group.rollouts) for group in groups.values()], dtype=np.int64),
        **_ragged("prompt", [group.prompt_ids for group in groups.values()], np.int32),
        **_texts("group_id", [group.id for group in groups.values()]),
        "index": np.array([completion.index for completion in completions], dtype=np.int64),
        "version": np.array([completion.version for completion in completions], dtype=np.int64),
        "finish": np.array([_REASONS.index(completion.finish_reason) for completion in completions], dtype=np.uint8),
        **_ragged("token", [completion.token_ids for completion in completions], np.int32),
        **_ragged("logprob", [completion.logprobs for completion in completions], np.float32),
        "reward": np.array([rollout.reward for rollout in rollouts], dtype=np.float64),
        **_texts("part_name", names),
        "parts": np.array([[rollout.parts[name] for name in names] for rollout in rollouts], dtype=np.float64),
        "is_correct": np.array([rollout.is_correct for rollout in rollouts], dtype=bool),
        "is_formatted": np.array([rollout.is_formatted for rollout in rollouts], dtype=bool),
        **_texts("text", [rollout.text for rollout in rollouts]),
        **_texts("answer", [rollout.answer for rollout in rollouts]),
        **_texts("invalid", [rollout.invalid_reason for rollout in rollouts]),
    }
    return save(columns)


def decode(data: bytes, tasks: Sequence[Task]) -> dict[int, Group]:
    """What `encode` was given."""
    columns = load(data)
    rollouts = iter(_rollouts(columns))
    heads = zip(
        columns["place"].tolist(),
        columns["group_size"].tolist(),
        _rows(columns, "prompt", int),
        _texts_of(columns, "group_id"),
        strict=True,
    )
    return {
        place: Group(
            id=str(group_id),
            task=tasks[place],
            prompt_ids=prompt_ids,
            rollouts=tuple(next(rollouts) for _ in range(size)),
        )
        for place, size, prompt_ids, group_id in heads
    }


def _rollouts(columns: Columns) -> Iterable[Rollout]:
    names = [str(name) for name in _texts_of(columns, "part_name")]
    rows = zip(
        _completions(columns),
        _texts_of(columns, "text"),
        columns["reward"].tolist(),
        columns["parts"].tolist(),
        columns["is_correct"].tolist(),
        columns["is_formatted"].tolist(),
        _texts_of(columns, "answer"),
        _texts_of(columns, "invalid"),
        strict=True,
    )
    for completion, text, reward, parts, is_correct, is_formatted, answer, invalid_reason in rows:
        yield Rollout(
            completion=completion,
            text=str(text),
            reward=reward,
            parts=dict(zip(names, parts, strict=True)),
            is_correct=is_correct,
            is_formatted=is_formatted,
            answer=answer,
            invalid_reason=invalid_reason,
        )


def _completions(columns: Columns) -> Iterable[Completion]:
    sizes = columns["group_size"]
    request_ids = np.repeat(np.array(_texts_of(columns, "group_id"), dtype=object), sizes)
    rows = zip(
        request_ids.tolist(),
        columns["index"].tolist(),
        columns["version"].tolist(),
        columns["finish"].tolist(),
        _rows(columns, "token", int),
        _rows(columns, "logprob", float),
        strict=True,
    )
    for request_id, index, version, finish, token_ids, logprobs in rows:
        yield Completion(
            request_id=request_id,
            index=index,
            token_ids=token_ids,
            logprobs=logprobs,
            finish_reason=_REASONS[finish],
            version=version,
        )


def _ragged(name: str, rows: Sequence[Sequence[float]], dtype: type[np.generic]) -> dict[str, Array]:
    """Rows of unequal length: their lengths, and all their numbers one behind the other."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    values = np.fromiter(chain.from_iterable(rows), dtype=dtype, count=int(lengths.sum()))
    return {f"{name}.lengths": lengths, f"{name}.values": values}


def _rows(columns: Columns, name: str, kind: Callable[[Any], Number]) -> Iterable[tuple[Number, ...]]:
    """The rows of `_ragged`, as tuples of Python numbers: one conversion for all of them."""
    values: list[Number] = columns[f"{name}.values"].tolist()
    ends = accumulate(columns[f"{name}.lengths"].tolist(), initial=0)
    return (tuple(values[start:end]) for start, end in pairwise(ends))


def _texts(name: str, texts: Sequence[str | None]) -> dict[str, Array]:
    """Texts as one blob with the length in bytes of each; -1 for none."""
    parts = [None if text is None else text.encode("utf-8", "surrogatepass") for text in texts]
    lengths = np.array([-1 if part is None else len(part) for part in parts], dtype=np.int64)
    blob = b"".join(part for part in parts if part is not None)
    return {f"{name}.lengths": lengths, f"{name}.values": np.frombuffer(blob, dtype=np.uint8)}


def _texts_of(columns: Columns, name: str) -> list[str | None]:
    blob, lengths = columns[f"{name}.values"].tobytes(), columns[f"{name}.lengths"]
    ends = accumulate(np.maximum(lengths, 0).tolist(), initial=0)
    return [
        None if length < 0 else blob[start:end].decode("utf-8", "surrogatepass")
        for length, (start, end) in zip(lengths.tolist(), pairwise(ends), strict=True)
    ]
