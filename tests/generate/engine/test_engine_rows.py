"""What a split of rows copies, and how long a rollout's history may get."""

from __future__ import annotations

import numpy as np
import torch

from podsrl.generate import Request, Sampling
from podsrl.generate.engine.kv_pool import KVPool, Layout
from podsrl.generate.engine.rows import Rows
from podsrl.generate.engine.sequence import Sequence
from podsrl.generate.schedule.job import Job

LAYOUT = Layout(keys=((1, 1), (1, 1)), values=((1, 1), (1, 1)), dtype=torch.float32, device=torch.device("cpu"))


def new_run(name: str, prompt: tuple[int, ...]) -> Sequence:
    request = Request(name, prompt, 1, Sampling(max_new_tokens=50))
    return Sequence(request, 0, Job(name, 0, len(prompt), 50, order=0), np.uint64(0))


def test_a_split_copies_one_row_less_than_its_parts() -> None:
    batch = Rows(KVPool(LAYOUT))
    runs = [new_run(str(i), (7, 8)) for i in range(6)]
    (row,) = batch.add_rows([2], [0])
    batch.add(runs, [row] * 6)
    copied: list[int] = []
    original = batch.pool.copy_rows

    def count(sources: torch.Tensor, targets: torch.Tensor, length: int) -> None:
        copied.append(len(sources))
        original(sources, targets, length)

    batch.pool.copy_rows = count  # type: ignore[method-assign]
    batch.regroup(np.array([3, 3, 1, 2, 1, 3]))
    assert copied == [2] and batch.num_rows == 3
    assert batch.newest.tolist() == [1, 2, 3] and batch.row_of.tolist() == [2, 2, 0, 1, 0, 2]
    batch.take(np.array([False, False, True, True, True, False]))
    batch.regroup(np.array([4, 4, 4]))
    assert batch.num_rows == 1 and copied == [2, 1]


def test_histories_longer_than_the_first_store_are_kept_whole() -> None:
    batch = Rows(KVPool(LAYOUT))
    (row,) = batch.add_rows([1], [0])
    batch.add([new_run("a", (1,)), new_run("b", (1,))], [row, row])
    for step in range(200):
        batch.record(np.array([step, -step]), np.array([step, -step], np.float32))
    assert [tokens.tolist() for tokens in batch.tokens_of(np.array([1]))] == [[-step for step in range(200)]]
    runs = batch.take(np.array([True, True]))
    assert runs[0].history.tokens.tolist() == list(range(200))
    assert runs[1].history.logprobs.tolist() == [-float(step) for step in range(200)]
    assert runs[1].job.num_tokens == 200
