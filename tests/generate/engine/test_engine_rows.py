"""Rows split, close ranks and keep every rollout's keys and values, against a twin that keeps a list a rollout."""

from __future__ import annotations

import random

import numpy as np
import torch

from loops import each
from podsrl.generate import Request, Sampling
from podsrl.generate.engine.kv_pool import KVPool, Layout
from podsrl.generate.engine.rows import Rows
from podsrl.generate.engine.sequence import Sequence
from podsrl.generate.schedule.job import Job

LAYOUT = Layout(keys=((1, 1), (1, 1)), values=((1, 1), (1, 1)), dtype=torch.float32, device=torch.device("cpu"))


def new_run(name: str, prompt: tuple[int, ...]) -> Sequence:
    request = Request(name, prompt, 1, Sampling(max_new_tokens=50))
    return Sequence(request, 0, Job(name, 0, len(prompt), 50, order=0), np.uint64(0))


def read(batch: Rows, row: int, position: int, token: int) -> None:
    """What a forward does: the token's keys and values in every layer."""
    for layer in range(2):
        batch.pool.keys[layer][row, 0, position, 0] = token + layer
        batch.pool.values[layer][row, 0, position, 0] = -token - layer


def content(batch: Rows, row: int) -> list[int]:
    length = int(batch.lengths[row])
    keys = [batch.pool.keys[layer][row, 0, :length, 0] - layer for layer in range(2)]
    assert torch.equal(keys[0], keys[1])
    assert torch.equal(-batch.pool.values[1][row, 0, :length, 0] - 1, keys[0])
    return [int(x) for x in keys[0]]


@each("seed", range(40), few=5)
def test_every_rollout_s_row_holds_exactly_its_tokens_and_no_two_rows_are_equal(seed: int) -> None:
    draw = random.Random(seed)
    batch, twin = Rows(KVPool(LAYOUT)), dict[str, list[int]]()
    for step in range(25):
        if draw.random() < 0.4 or len(batch) == 0:
            prompt = tuple(draw.choices(range(1, 6), k=draw.randint(1, 4)))
            runs = [new_run(f"{step}-{i}", prompt) for i in range(draw.randint(1, 5))]
            (row,) = batch.add_rows([len(prompt)], [0])
            batch.add(runs, [row] * len(runs))
            for position, token in enumerate(prompt):
                read(batch, row, position, token)
            twin |= {run.request.id: list(prompt) for run in runs}
        tokens = np.array([draw.randint(1, draw.choice([1, 2, 5])) for _ in batch.sequences])
        batch.record(tokens, np.zeros(len(tokens), np.float32))
        for run, token in zip(batch.sequences, tokens.tolist(), strict=True):
            twin[run.request.id].append(token)
        leaving = np.array([draw.random() < 0.15 for _ in batch.sequences])
        for run in batch.take(leaving):
            assert list(run.request.prompt_ids) + run.history.tokens.tolist() == twin.pop(run.request.id)
        if len(batch) == 0:
            batch.clear_rows()
            continue
        batch.regroup(tokens[~leaving])
        held = [(content(batch, row), int(batch.newest[row])) for row in range(batch.num_rows)]
        for run, row in zip(batch.sequences, batch.row_of.tolist(), strict=True):
            assert [*held[row][0], held[row][1]] == twin[run.request.id] == list(batch.prefix_of_row(row))
        assert set(batch.row_of.tolist()) == set(range(batch.num_rows))
        parents = {(i, *h[0], h[1]) for i, h in zip(first_prompt(batch), held, strict=True)}
        assert len(parents) == batch.num_rows
        batch.pool.reserve(batch.num_rows, int(batch.lengths.max()) + 1)
        for row in range(batch.num_rows):
            read(batch, row, int(batch.lengths[row]), int(batch.newest[row]))
        batch.lengths += 1


def first_prompt(batch: Rows) -> list[str]:
    """Which arrival a row belongs to: rows are shared by the rollouts of one arrival."""
    return [
        batch.sequences[int(np.flatnonzero(batch.row_of == row)[0])].request.id.split("-")[0]
        for row in range(batch.num_rows)
    ]


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
