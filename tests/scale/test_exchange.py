"""Groups between processes: all hold all of them, in one order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from podsrl.scale.exchange import exchange_groups
from podsrl.scale.processes import join_processes
from podsrl.types import Completion, Group, Rollout, Task


def swap(num_groups: int) -> list[Group]:
    """Every process brings the groups of its rank; the second one's answers are longer."""
    processes = join_processes("cpu")
    tasks = {f"g{i}": Task(id=f"t{i}", prompt="?", answer="!") for i in range(num_groups)}
    own = []
    for name in processes.share(list(tasks)):
        place, length = int(name[1:]), 1 + processes.rank
        done = Completion(
            request_id=name, index=0, token_ids=(place,) * length, logprobs=(-1.0,) * length,
            finish_reason="stop", version=3,
        )  # fmt: skip
        rollout = Rollout(completion=done, text="x" * place, reward=float(place), parts={}, is_correct=True)
        own.append(Group(id=name, task=tasks[name], prompt_ids=(place,), rollouts=(rollout,), index=place, step=7))
    columns = {"a": 1}  # results travel by pickle, which knows no read-only mapping
    return [
        replace(group, task=replace(group.task, columns=columns)) for group in exchange_groups(tasks, own, processes)
    ]


def test_all_processes_hold_all_groups_in_their_order(three: Any) -> None:
    for num_groups in (7, 2):  # with two, the third process brings none
        answers = three.run(swap, num_groups)
        assert answers[0] == answers[1] == answers[2]
        heads = [(group.id, group.index, group.step) for group in answers[0]]
        assert heads == [(f"g{i}", i, 7) for i in range(num_groups)]
        lengths = [len(group.rollouts[0].completion.token_ids) for group in answers[0]]
        assert lengths == [1, 2, 3, 1, 2, 3, 1][:num_groups]
        assert all(group.task.id == f"t{i}" for i, group in enumerate(answers[0]))
