"""Shapes: parts that rewrite a step's advantages, one after another."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from made import group_of
from podsrl.errors import UsageError
from podsrl.lib.parts import Parts, make_parts
from podsrl.types import Group, Selection
from podsrl.update import resolve_advantage, shape_advantages, step_advantages, to_samples

GROUPS = (group_of("a", 0, 1, 1, lengths=(1, 2, 3)), group_of("b", 0, 1, lengths=(2, 2)), group_of("c", 1))
SELECTIONS = (
    Selection(group_id="a", kept=(0, 2), dropped={1: "not_selected"}),
    Selection(group_id="b", kept=(0, 1), dropped={}),
    Selection(group_id="c", kept=(), dropped={0: "group_too_small"}),
)


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Parts]:
    """Classes -> their parts; each is the system "own_shapes:NAME"."""

    def build(*factories: type, **options: Mapping[str, Any]) -> Parts:
        module = ModuleType("own_shapes")
        for factory in factories:
            setattr(module, factory.__name__, factory)
        monkeypatch.setitem(sys.modules, "own_shapes", module)
        names = [f"own_shapes:{factory.__name__}" for factory in factories]
        tables = {f"own_shapes:{name}": table for name, table in options.items()}
        return make_parts(names, tables)

    return build


def shaped(parts: Parts) -> list[Tensor]:
    advantages = step_advantages(GROUPS, SELECTIONS, resolve_advantage("none"))
    assert [each.tolist() for each in advantages] == [[-0.5, 0.5], [-0.5, 0.5], []]
    return shape_advantages(GROUPS, SELECTIONS, advantages, parts["shape"])


class Plus:
    def __init__(self, *, number: float = 1.0) -> None:
        self.number = number

    def shape(self, groups: Any, selections: Any, advantages: Sequence[Tensor]) -> list[Tensor]:
        return [each + self.number for each in advantages]


class Doubled:
    def shape(self, groups: Any, selections: Any, advantages: Sequence[Tensor]) -> list[Tensor]:
        return [2 * each for each in advantages]


class LaterTokens:
    """[m] -> [m, T]: token t of a row gets its advantage times t, with a number behind the row's end too."""

    def shape(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> list[Tensor]:
        assert all(isinstance(each, tuple) for each in (groups, selections, advantages))  # which it cannot change
        return [each[:, None] * torch.arange(4) for each in advantages]


def test_without_shapes_the_advantages_are_as_they_were(shapes: Any) -> None:
    assert [each.tolist() for each in shaped(shapes())] == [[-0.5, 0.5], [-0.5, 0.5], []]


def test_shapes_are_applied_from_left_to_right(shapes: Any) -> None:
    assert shaped(shapes(Plus, Doubled))[0].tolist() == [1.0, 3.0]
    assert shaped(shapes(Doubled, Plus))[0].tolist() == [0.0, 2.0]
    assert shaped(shapes(Doubled, Plus, Plus={"number": 3}))[0].tolist() == [2.0, 4.0]


def test_one_number_per_row_becomes_one_per_token_and_ends_with_its_row(shapes: Any) -> None:
    found = shaped(shapes(LaterTokens))
    assert [list(each.shape) for each in found] == [[2, 4], [2, 4], [0, 4]]
    assert found[0].tolist() == [[0, 0, 0, 0], [0, 0.5, 1, 0]]  # rows of 1 and of 3 tokens
    samples = to_samples(GROUPS, SELECTIONS, found)
    assert [sample.advantage for sample in samples] == [(0,), (0, 0.5, 1), (0, -0.5), (0, 0.5)]
    assert shaped(shapes(LaterTokens, Doubled))[0].tolist() == [[0, 0, 0, 0], [0, 1, 2, 0]]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "returned a NoneType; wanted one tensor per group, 3 in all"),
        ([torch.zeros(2)], "returned 1 tensors; wanted one tensor per group, 3 in all"),
        ([torch.zeros(3), torch.zeros(2), torch.zeros(0)], r"returned the shape \[3\] for group 'a'; wanted \[2\]"),
        (
            [torch.zeros(2, 2), torch.zeros(2), torch.zeros(0)],
            r"returned the shape \[2, 2\] for group 'a'.*T at least 3",
        ),
        ([torch.zeros(2), torch.full((2,), float("nan")), torch.zeros(0)], "returned NaN or inf; wanted"),
        (["no", "tensor", "here"], "returned a str; wanted"),
    ],
)
def test_a_wrong_answer_is_named_by_the_system(shapes: Any, answer: object, message: str) -> None:
    class Wrong:
        def shape(self, groups: Any, selections: Any, advantages: Any) -> object:
            return answer

    with pytest.raises(UsageError, match=rf"^shape of systems = 'own_shapes:Wrong' {message}"):
        shaped(shapes(Plus, Wrong))


def test_what_a_shape_raises_is_named_with_its_line(shapes: Any) -> None:
    class Broken:
        def shape(self, groups: Any, selections: Any, advantages: Any) -> Any:
            raise KeyError("novelty")

    expected = r"^shape of systems = 'own_shapes:Broken' raised KeyError: 'novelty' \(test_update_shapes.py, line \d+"
    with pytest.raises(UsageError, match=expected):
        shaped(shapes(Broken))


class Centred:
    """Subtracts the mean of all advantages that it has seen, which it learns from rewards."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def shape(self, groups: Any, selections: Any, advantages: Sequence[Tensor]) -> list[Tensor]:
        return [each - self.total / max(self.count, 1) for each in advantages]

    def learn(self, groups: Sequence[Group]) -> None:
        rewards = [rollout.reward for group in groups for rollout in group.rollouts]
        self.total, self.count = self.total + sum(rewards), self.count + len(rewards)

    def state(self) -> Mapping[str, Any]:
        return {"total": self.total, "count": self.count}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.total, self.count = state["total"], state["count"]


def test_a_shape_that_learns_is_saved_and_restored(shapes: Any) -> None:
    parts = shapes(Centred)
    assert shaped(parts)[1].tolist() == [-0.5, 0.5]
    parts.learn(GROUPS)  # rewards 0 1 1, 0 1, 1: a mean of 2/3
    assert shaped(parts)[1].tolist() == pytest.approx([-0.5 - 2 / 3, 0.5 - 2 / 3])
    later = shapes(Centred)
    later.restore(parts.state())
    assert [each.tolist() for each in shaped(later)] == [each.tolist() for each in shaped(parts)]
    with pytest.raises(UsageError, match="no state of the part 'own_shapes:Centred'"):
        shapes(Centred).restore({})


def test_a_shape_sees_which_chunk_a_row_belongs_to(shapes: Any) -> None:
    class ByChunk:
        def shape(self, groups: Any, selections: Sequence[Selection], advantages: Sequence[Tensor]) -> list[Tensor]:
            found = []
            for selection, values in zip(selections, advantages, strict=True):
                chunk_of = {i: c for c, chunk in enumerate(selection.chunks) for i in chunk}
                found.append(values + torch.tensor([10.0 * chunk_of[i] for i in selection.kept]))
            return found

    group = group_of("a", 0, 1, 0.25, 0.75)
    chosen = [Selection(group_id="a", kept=(0, 1, 2, 3), dropped={}, chunks=((0, 1), (2, 3)))]
    advantages = step_advantages([group], chosen, resolve_advantage("none"))
    [found] = shape_advantages([group], chosen, advantages, shapes(ByChunk)["shape"])
    assert found.tolist() == [-0.5, 0.5, 9.75, 10.25]
    assert [sample.chunk for sample in to_samples([group], chosen, [found])] == [0, 0, 1, 1]
