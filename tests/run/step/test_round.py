"""Steps that were asked, as a checkpoint holds them."""

from __future__ import annotations

from typing import Any

import numpy as np

import made
from made import completion
from podsrl.config.load import load_config
from podsrl.control import View
from podsrl.generate import EngineStats
from podsrl.run.step.round import Round, Tally, from_arrays, take_arrays, to_arrays
from podsrl.run.step.wiring import opening_view
from podsrl.scale.processes import Processes
from podsrl.types import Group, Open, Task, Way

TASKS = [Task(id=str(i), prompt="?", answer="!") for i in range(4)]
STATS = EngineStats(steps=3, tokens=5, slots_used=2)


def task_of(name: str, index: int | None) -> Task:
    return TASKS[index or 0]


def view_at(step: int, position: int) -> View:
    costs: Any = None
    return opening_view(load_config("pods"), costs, TASKS, step, position)


def group(step: int, index: int) -> Group:
    return Group(id=f"s{step}/{index}", task=TASKS[index], prompt_ids=(), rollouts=(), index=index, step=step)


def test_rounds_come_back_with_their_open_groups_and_counts() -> None:
    begun = (completion((7, 8), index=0), completion((9,), index=1, **made.ended("open")))
    ways = (Way(count=1), Way(count=2, prompt_ids=(3,), origin="hint"))
    opens = {
        9: [Open(group=group(9, 0), ways=ways, begun=begun), Open(group=group(9, 2), ways=(Way(count=2),))],
        10: [Open(group=group(10, 1), ways=(Way(count=2),))],
    }
    rounds = [Round(view=view_at(step, 3), opens=of_step) for step, of_step in opens.items()]
    arrays = {"mine/rate": np.ones(2)} | to_arrays(rounds, 14, Tally(STATS, 44), Processes())
    own = take_arrays(arrays)
    assert list(arrays) == ["mine/rate"]
    found, position, tally = from_arrays(own, Processes(), task_of, view_at)
    assert {each.view.step: each.opens for each in found} == opens and [each.view.step for each in found] == [9, 10]
    assert position == 14 and tally == Tally(STATS, 44) and all(each.view.stream.position == 14 for each in found)


def test_without_rounds_there_is_nothing_to_keep() -> None:
    assert to_arrays([], 14, Tally(), Processes()) == {}
