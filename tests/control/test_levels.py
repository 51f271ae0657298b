"""Levels: which questions are asked, and when a kind of question goes up or down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from podsrl.control import Budget, View
from podsrl.control.levels import Levels
from podsrl.errors import UsageError
from podsrl.lib.parts import Parts, make_parts
from podsrl.tasks.steps import load_steps
from podsrl.types import Group, Task
from tests.systems.groups_of import group, view_of

SIZES = {("a", 0): 5, ("a", 1): 4, ("a", 3): 3, ("b", 0): 6, ("b", 2): 2}
"""Kind and level -> questions."""
TASKS = [
    Task(id=f"{kind}@{level}/{place}", prompt="?", answer="", columns={"dataset": kind, "level": level})
    for (kind, level), size in SIZES.items()
    for place in range(size)
]


def parts_of(**options: Any) -> Parts:
    return make_parts(["levels"], {"levels": options})


def view(step: int = 0, **changes: Any) -> View:
    return replace(view_of(len(TASKS), step=step), tasks=TASKS, **changes)


def asked(parts: Parts, of: View) -> list[Task]:
    asks = Budget(parts).ask(of)
    assert {ask.num_rollouts for ask in asks} == {8}
    return [TASKS[ask.index] for ask in asks]


def answered(tasks: Sequence[Task], right: int, size: int = 8) -> list[Group]:
    return [replace(group(TASKS.index(task), right, size - right), task=task) for task in tasks]


def levels_of(parts: Parts) -> dict[str, float | None]:
    return parts.metrics()


def test_a_step_asks_each_kinds_level_as_often_as_the_stream_draws_the_kind() -> None:
    parts = parts_of()
    for step in range(4):
        drawn = [TASKS[index].columns["dataset"] for index in view(step).stream.draw(4)]
        tasks = asked(parts, view(step))
        assert sorted(task.columns["dataset"] for task in tasks) == sorted(drawn)
        assert {task.columns["level"] for task in tasks} == {0} and len({task.id for task in tasks}) == 4
    assert [task.id for task in asked(parts, view(1))] == [task.id for task in asked(parts, view(1))]
    assert len({tuple(task.id for task in asked(parts, view(step))) for step in range(9)}) > 1


def test_questions_without_a_data_set_are_of_one_kind_as_the_stories_are() -> None:
    stories = load_steps(levels=None, num_eval=None).train
    parts = parts_of(start=2)
    asks = Budget(parts).ask(replace(view_of(len(stories), step=0), tasks=stories))
    assert {stories[ask.index].columns["level"] for ask in asks} == {3} and levels_of(parts) == {"level/all": 3}


def test_a_further_round_prefers_questions_that_the_step_has_not_asked() -> None:
    part, of = Levels(), view()
    first = part.questions(of, 4)
    later = of.after([replace(group(index, 1, 7), task=TASKS[index]) for index in first])
    for _ in range(2):  # 11 questions stand at the kinds' first levels
        assert not {*first} & {*part.questions(later, 2)}


def test_groups_of_another_level_without_outcomes_or_of_an_unknown_kind_do_not_count() -> None:
    parts = parts_of(window=1)
    parts.learn(answered(TASKS[:1], 8))  # nothing was asked yet
    asked(parts, view())
    one = TASKS[5]  # level 1 of a
    other = Task(id="c", prompt="?", answer="", columns={"dataset": "c"})
    parts.learn([*answered([one], 8), replace(group(0, 0, 0), task=TASKS[0]), replace(group(0, 8, 0), task=other)])
    assert levels_of(parts)["level/a"] == 0


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_rule_by_brute_force(seed: int) -> None:
    """Against a plain list per kind of all groups in order, with random outcomes; saved and restored halfway."""
    random = Random(seed)
    up, down, window, start = random.choice([0.5, 0.8]), random.choice([0.0, 0.3]), random.choice([1, 3, 4]), seed % 3
    options = {"up": up, "down": down, "window": window, "start": start}
    parts, scales = parts_of(**options), {"a": [0, 1, 3], "b": [0, 2]}
    level = {kind: scale[min(start, len(scale) - 1)] for kind, scale in scales.items()}
    history: dict[str, list[float]] = {"a": [], "b": []}
    for step in range(60):
        tasks = asked(parts, view(step))
        assert all(task.columns["level"] == level[task.columns["dataset"]] for task in tasks)
        if step == 30:
            saved, parts = parts.state(), parts_of(**options)
            parts.check("check_tasks", TASKS)  # as every start of a run does
            parts.restore(saved)
        groups = [one for task in tasks for one in answered([task], random.choice([0, 2, 5, 8]))]
        parts.learn(groups)
        for each in groups:
            kind = each.task.columns["dataset"]
            if each.task.columns["level"] != level[kind]:
                continue
            history[kind].append(sum(r.is_correct for r in each.rollouts) / len(each.rollouts))
            last = history[kind][-window:]
            scale = scales[kind]
            place = scale.index(level[kind])
            if len(last) == window and sum(last) / window >= up and place + 1 < len(scale):
                level[kind], history[kind] = scale[place + 1], []
            elif len(last) == window and sum(last) / window <= down and place > 0:
                level[kind], history[kind] = scale[place - 1], []
        assert levels_of(parts) == {f"level/{kind}": own for kind, own in level.items()}


def test_of_other_questions_each_kind_has_the_highest_level_up_to_its_place() -> None:
    parts, other = parts_of(window=1), parts_of()
    asked(parts, view())
    for place in (0, 5, 12):
        parts.learn(answered([TASKS[place]], 8))
    assert levels_of(parts) == {"level/a": 3, "level/b": 2}
    other.check("check_tasks", TASKS[:9])
    other.restore(parts.state())
    assert levels_of(other) == {"level/a": 1} and other.state() == parts.state()


def test_sets_without_levels_and_shares_that_cross_are_refused() -> None:
    with pytest.raises(UsageError, match=r"no column 'level' with several values; wanted, .*difficulty = \[0, 1, 2\]"):
        parts_of().check("check_tasks", TASKS[:5])
    parts_of().check("check_tasks", TASKS)
    with pytest.raises(UsageError, match="has the level 'hard'; wanted a whole number"):
        parts_of().check("check_tasks", [replace(TASKS[0], columns={"level": "hard"})])
    with pytest.raises(UsageError, match=r"options.levels.down = 0.5; wanted less than options.levels.up = 0.5"):
        parts_of(up=0.5, down=0.5)
