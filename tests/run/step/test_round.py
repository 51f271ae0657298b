"""A round that has begun, as a checkpoint holds it."""

from __future__ import annotations

from typing import Any

import numpy as np

from made import completion
from podsrl.config.load import load_config
from podsrl.control import View
from podsrl.generate import EngineStats
from podsrl.run.step.round import Round, from_arrays, take_arrays, to_arrays
from podsrl.run.step.wiring import opening_view
from podsrl.scale.processes import Processes
from podsrl.types import Group, Open, Task, Way

TASKS = [Task(id=str(i), prompt="?", answer="!") for i in range(4)]
STATS = EngineStats(steps=3, tokens=5, slots_used=2)


def task_of(name: str, index: int | None) -> Task:
    return TASKS[index or 0]


def view_at(position: int) -> View:
    costs: Any = None
    return opening_view(load_config("pods"), costs, TASKS, 7, position)


def group(index: int, *rollouts: Any) -> Group:
    return Group(id=f"s7/{index}", task=TASKS[index], prompt_ids=(), rollouts=rollouts, index=index, step=7)


def facts(found: Round) -> Any:
    return found.opens, found.stats, found.peak_kv_bytes, found.view.stream.position


def test_a_round_comes_back_with_its_open_groups_and_counts() -> None:
    begun = (completion((7, 8), index=0), completion((9,), index=1, finish_reason="postponed"))
    opens = [
        Open(group=group(0), ways=(Way(count=1), Way(count=2, prompt_ids=(3,), origin="hint")), begun=begun),
        Open(group=group(2), ways=(Way(count=2),)),
    ]
    step = Round(view=view_at(9), opens=opens, stats=STATS, peak_kv_bytes=44)
    arrays = {"mine/rate": np.ones(2)} | to_arrays(step, Processes())
    own = take_arrays(arrays)
    assert list(arrays) == ["mine/rate"]
    assert facts(from_arrays(own, Processes(), task_of, view_at)) == facts(step)
