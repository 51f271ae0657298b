"""docs/budgets.md: its examples run, and do what the page says; so do probes, `keep` and `wait`, without one there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from made import group_of
from podsrl.config.load import load_config
from podsrl.control import Ask, Budget, View
from podsrl.lib.moments import MOMENTS
from podsrl.lib.parts import Parts, make_parts
from podsrl.run.metrics import step_metrics
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from podsrl.tasks.stream import Stream
from podsrl.types import Group
from runs import config_of, options

PAGE = (Path(__file__).parents[2] / "docs" / "budgets.md").read_text()
BLOCKS = {
    block.split(".py")[0].removeprefix("# "): block
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
}
TOMLS = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
SMALL = ("rollouts.num_prompts=3",)
BLOCKS["my_probe"] = """
from podsrl.control import Ask


class MixedAlone:
    def __init__(self, *, size: int = 4):
        self.size = size

    def rollouts(self, view, asks):
        if view.round == 0:
            return [Ask(index=ask.index, num_rollouts=self.size, is_trained=False) for ask in asks]
        mixed = [g for g in view.groups if len({r.reward for r in g.rollouts}) > 1] if view.round == 1 else []
        return [Ask.of(g, view.num_rollouts, joins=False) for g in mixed]
"""
BLOCKS["my_keep"] = """
class MixedHalf:
    def keep(self, view):
        mixed = [g for g in view.groups if len({r.reward for r in g.rollouts}) > 1]
        return [group.id for group in mixed[: view.num_prompts // 2]]
"""
BLOCKS["my_wait"] = """
from podsrl.control import Ask


class InTwo:
    "Half of a question's rollouts now, and the other half a step later."

    def rollouts(self, view, asks):
        half = view.num_rollouts // 2
        more = [Ask(index=group.index, num_rollouts=half, joins=group.id) for group in view.waiting]
        return [Ask(index=ask.index, num_rollouts=half) for ask in asks] + (more if view.round == 0 else [])

    def wait(self, view):
        return [group.id for group in view.groups if len(group.rollouts) < view.num_rollouts]
"""


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples as files, as a user has them."""
    for name, block in BLOCKS.items():
        (tmp_path / f"{name}.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)


def view(position: int = 0, groups: tuple[Group, ...] = (), place: int = 0) -> View:
    stream = Stream(100, seed=0, position=position)
    return View(step=6, round=place, num_prompts=3, num_rollouts=8, num_train=100, seed=0, stream=stream, groups=groups)


def made(system: str, **options: Any) -> tuple[Parts, Budget]:
    parts = make_parts([system], {system: options})
    return parts, Budget(parts)


def group(index: int, *rewards: float, **changes: Any) -> Group:
    return group_of(f"s6/0/{index}", *rewards, index=index, step=6, **changes)


def test_the_config_of_the_page_grows_hard_groups_and_all_of_them_train(tmp_path: Path) -> None:
    [text] = [each for each in TOMLS if "extends" in each]
    (tmp_path / "hard.toml").write_text(text)
    trainer = Trainer(load_config(tmp_path / "hard.toml", options(*SMALL)))
    plain = Trainer(config_of(*SMALL))
    result, one_round = training_step(trainer), training_step(plain)
    hard = [not any(r.is_correct for r in group.rollouts[:8]) for group in result.groups]
    assert any(hard)
    assert [len(group.rollouts) for group in result.groups] == [16 if is_hard else 8 for is_hard in hard]
    for group, first in zip(result.groups, one_round.groups, strict=True):
        assert group.id == first.id
        assert [r.token_ids for r in group.rollouts[:8]] == [r.token_ids for r in first.rollouts]
        assert [r.index for r in group.rollouts] == list(range(len(group.rollouts)))
        assert {r.group_id for r in group.rollouts} == {group.id}
    assert [len(selection.kept) for selection in result.selections] == [4, 4, 4]
    line = step_metrics(result)
    assert line["tokens/generated"] == sum(len(r.token_ids) for g in result.groups for r in g.rollouts)
    assert line["tokens/generated"] == line["tokens/trained"] + line["tokens/skipped"] + line["tokens/discarded"]


def test_a_system_that_probes_trains_on_mixed_questions_alone() -> None:
    _, budget = made("my_probe:MixedAlone", size=2)
    first = view()
    asks = budget.ask(first)
    assert [(ask.num_rollouts, ask.is_trained) for ask in asks] == [(2, False)] * 3
    rewards = ((0.0, 1.0), (1.0, 1.0), (0.0, 0.0))
    probes = tuple(group(ask.index, *of_group, is_trained=False) for ask, of_group in zip(asks, rewards, strict=True))
    assert budget.ask(view(3, probes, place=1)) == [Ask(index=asks[0].index, num_rollouts=8)]
    assert budget.ask(view(3, probes, place=2)) == []


def test_the_part_of_the_page_that_remembers_puts_solved_questions_last_also_after_a_resume() -> None:
    drawn = Stream(100, seed=0).draw(6)
    parts, budget = made("my_questions:Unsolved")
    assert [ask.index for ask in budget.ask(view())] == drawn[:3]
    parts.learn([group(drawn[0], 1.0, 1.0), group(drawn[1], 1.0, 0.0)])
    resumed, later = made("my_questions:Unsolved")
    resumed.restore(parts.state())
    assert [ask.index for ask in budget.ask(view())] == [ask.index for ask in later.ask(view())] == drawn[1:4]


def test_a_part_that_keeps_trains_on_the_first_mixed_groups() -> None:
    _, budget = made("my_keep:MixedHalf")
    groups = (group(1, 0, 0), group(2, 0, 1), group(3, 1, 1), group(4, 1, 0))
    assert budget.trained(view(groups=groups)) == {"s6/0/2"}

    trainer = Trainer(config_of(*SMALL, "systems=my_keep:MixedHalf"))
    result = training_step(trainer)
    everything = (*result.groups, *result.left_out)
    assert len(everything) == 3 and len(result.groups) <= 1
    line = step_metrics(result)
    assert line["groups/all"] + line["groups/left_out"] == 3
    assert line["rollouts/all"] + line["rollouts/left_out"] == 24


def test_the_table_of_the_page_has_every_moment() -> None:
    rows = re.findall(r"^\| `(\w+\(.*?\))` \|", PAGE.partition("\n## ")[0], flags=re.MULTILINE)
    assert sorted(rows) == sorted(moment.shape for moment in MOMENTS.values())


def test_a_group_that_waits_is_finished_and_trained_on_a_step_later() -> None:
    trainer = Trainer(config_of(*SMALL, "systems=my_wait:InTwo"))
    first, second, third = (training_step(trainer) for _ in range(3))
    assert first.groups == () and [len(group.rollouts) for group in second.groups] == [8] * 3
    assert [group.step for group in second.groups] == [0] * 3 and [group.step for group in third.groups] == [1] * 3
    assert step_metrics(second)["groups/resumed"] == step_metrics(second)["groups/waiting"] == 3
