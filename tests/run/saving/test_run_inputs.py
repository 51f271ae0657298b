"""A checkpoint knows its data: every change of a question, an answer, an id or their order shows."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from loops import each
from podsrl.run.saving.inputs import describe_data, input_change
from podsrl.tasks import TaskSet
from podsrl.types import Task


def task(name: str, prompt: Any = "1+2=", answer: str = "3") -> Task:
    return Task(id=name, prompt=prompt, answer=answer)


def data_of(train: Sequence[Task], held_out: Sequence[Task] = (task("held out"),)) -> Any:
    return {**describe_data(TaskSet(name="own", train=train, eval=tuple(held_out))), "sources": {}}


def test_a_side_is_its_count_and_a_digest_of_each_column() -> None:
    side = data_of([task("a", "1+2=", "3"), task("b", "4+4=", "8")])["train"]
    texts = {"ids": '["a", "b"]', "prompts": '["1+2=", "4+4="]', "answers": '["3", "8"]', "columns": "[{}, {}]"}
    expected = {name: hashlib.blake2b(text.encode(), digest_size=16).hexdigest() for name, text in texts.items()}
    assert side == {"questions": 2, **expected}


A, B = task("a", "1+2=", "3"), task("b", "4+4=", "8")
CHANGES = {
    "a question more": (
        [A, B, task("c")],
        "training 2 -> 3 questions (digests of ids 1, prompts 1, answers 1, columns 1)",
    ),
    "another id": ([A, replace(B, id="c")], "training 2 -> 2 questions (digests of ids 1)"),
    "another prompt": ([A, replace(B, prompt="4+4 =")], "training 2 -> 2 questions (digests of prompts 1)"),
    "another answer": ([A, replace(B, answer="9")], "training 2 -> 2 questions (digests of answers 1)"),
    "another column": ([A, replace(B, columns={"level": 2})], "training 2 -> 2 questions (digests of columns 1)"),
    "another order": ([B, A], "training 2 -> 2 questions (digests of ids 1, prompts 1, answers 1)"),
    "text that moved to the next": ([replace(A, prompt="1+2=4"), replace(B, prompt="+4=")], "prompts 1"),
}


@each("change", CHANGES)
@pytest.mark.parametrize("side", ["train", "eval"])
def test_every_change_shows_and_is_named(side: str, change: str) -> None:
    tasks, sentence = CHANGES[change]
    before, after = (data_of(rows) if side == "train" else data_of([A], rows) for rows in ([A, B], tasks))
    found = input_change(before, after)
    assert found is not None
    for part in ("ids", "prompts", "answers", "columns"):
        old, new = (str(data[side][part])[:8] for data in (before, after))
        assert (f"{part} {old} -> {new}" in found) == (f"{part} 1" in sentence)
        found = found.replace(f"{old} -> {new}", "1")
    assert (sentence if side == "train" else sentence.replace("training", "held-out")) in found
    assert f"{'held-out' if side == 'train' else 'training'} 1 questions as before" in found
    assert input_change(before, before) is input_change(after, after) is None


def test_chat_messages_are_digested_whatever_mapping_holds_them() -> None:
    message = {"role": "user", "content": "1+2?"}
    chats = [(message,), (MappingProxyType(message),), ({**message, "content": "1+3?"},)]
    first, same, other = (data_of([task("a", chat)]) for chat in chats)
    assert first == same != other


class OnDemand(Sequence[Task]):
    """Makes its tasks when they are asked for, and counts them."""

    def __init__(self, numbers: range, asked: list[int], changed: int = -1) -> None:
        self._numbers, self._asked, self._changed = numbers, asked, changed

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return OnDemand(self._numbers[index], self._asked, self._changed)
        number = self._numbers[index]
        self._asked.append(number)
        return task(str(number), f"{number}?", "no" if number == self._changed else "yes")


def test_a_set_made_on_demand_counts_as_the_list_of_its_tasks() -> None:
    """More than one batch of 2,048."""
    tasks = OnDemand(range(5000), [])
    assert data_of(tasks) == data_of(list(tasks)) != data_of(OnDemand(range(5000), [], changed=4321))


def test_of_a_large_set_made_on_demand_an_even_sample_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podsrl.run.before.prompt_lengths.MAX_CHECKED_PROMPTS", 100)
    asked: list[int] = []
    data = data_of(OnDemand(range(1000), asked))
    assert asked == list(range(0, 1000, 10)) and data["train"]["questions"] == 1000
    assert data != data_of(OnDemand(range(1000), [], changed=500))
    assert data != data_of(OnDemand(range(1001), []))
    assert data_of(list(OnDemand(range(1000), []))) != data_of(list(OnDemand(range(1000), [], changed=501)))


def test_columns_with_keys_of_any_type_are_digested() -> None:
    held = [data_of([replace(A, columns={"cells": {(0, 1): value, 2: None}})]) for value in (5, 5, 6)]
    assert held[0] == held[1] != held[2]


def test_a_users_own_objects_have_the_same_digest_in_every_process() -> None:
    program = """
from podsrl.run.saving.inputs import describe_data, input_change
from podsrl.tasks import TaskSet
from podsrl.types import Task
class Own: pass
odd = Task(id=Own(), prompt=[{"role": "user", "content": Own()}], answer=set("abcdefgh"))
print(describe_data(TaskSet(name="odd", train=[odd], eval=(odd,))))
"""
    shown = set()
    for seed in "12":
        kept = f"kept = [object() for _ in range({seed}000)]"  # so that addresses differ
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", f"{kept}{program}"], env=environment, capture_output=True, text=True, check=True
        )
        shown.add(done.stdout)
    assert len(shown) == 1
