"""`loss.shape`: functions that rewrite a step's advantages, one after another."""

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
from podsrl.lib.slots import Slots, make_slots
from podsrl.types import Group, Selection
from podsrl.update import Shape, resolve_advantage, shape_advantages, step_advantages, to_samples

GROUPS = (group_of("a", 0, 1, 1, lengths=(1, 2, 3)), group_of("b", 0, 1, lengths=(2, 2)), group_of("c", 1))
SELECTIONS = (
    Selection(group_id="a", kept=(0, 2), dropped={1: "not_selected"}),
    Selection(group_id="b", kept=(0, 1), dropped={}),
    Selection(group_id="c", kept=(), dropped={0: "group_too_small"}),
)


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Slots]:
    """Factories -> the filled slot of `loss.shape`; each is named "own_shapes:NAME"."""

    def build(*factories: Callable[..., Any], **options: Mapping[str, Any]) -> Slots:
        module = ModuleType("own_shapes")
        for factory in factories:
            setattr(module, factory.__name__, factory)
        monkeypatch.setitem(sys.modules, "own_shapes", module)
        names = [f"own_shapes:{factory.__name__}" for factory in factories]
        tables = {f"own_shapes:{name}": table for name, table in options.items()}
        return make_slots({"loss.shape": names}, tables)

    return build


def shaped(slots: Slots) -> list[Tensor]:
    advantages = step_advantages(GROUPS, SELECTIONS, resolve_advantage("none"))
    assert [each.tolist() for each in advantages] == [[-0.5, 0.5], [-0.5, 0.5], []]
    return shape_advantages(GROUPS, SELECTIONS, advantages, slots["loss.shape"])


def plus(*, number: float = 1.0) -> Shape:
    return lambda groups, selections, advantages: [each + number for each in advantages]


def doubled() -> Shape:
    return lambda groups, selections, advantages: [2 * each for each in advantages]


def later_tokens() -> Shape:
    """[m] -> [m, T]: token t of a row gets its advantage times t, with a number behind the row's end too."""

    def shape(groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]) -> list[Tensor]:
        assert all(isinstance(each, tuple) for each in (groups, selections, advantages))  # which it cannot change
        return [each[:, None] * torch.arange(4) for each in advantages]

    return shape


def test_without_shapes_the_advantages_are_as_they_were(shapes: Any) -> None:
    assert [each.tolist() for each in shaped(shapes())] == [[-0.5, 0.5], [-0.5, 0.5], []]


def test_shapes_are_applied_from_left_to_right(shapes: Any) -> None:
    assert shaped(shapes(plus, doubled))[0].tolist() == [1.0, 3.0]
    assert shaped(shapes(doubled, plus))[0].tolist() == [0.0, 2.0]
    assert shaped(shapes(doubled, plus, plus={"number": 3}))[0].tolist() == [2.0, 4.0]


def test_one_number_per_row_becomes_one_per_token_and_ends_with_its_row(shapes: Any) -> None:
    found = shaped(shapes(later_tokens))
    assert [list(each.shape) for each in found] == [[2, 4], [2, 4], [0, 4]]
    assert found[0].tolist() == [[0, 0, 0, 0], [0, 0.5, 1, 0]]  # rows of 1 and of 3 tokens
    samples = to_samples(GROUPS, SELECTIONS, found)
    assert [sample.advantage for sample in samples] == [(0,), (0, 0.5, 1), (0, -0.5), (0, 0.5)]
    assert shaped(shapes(later_tokens, doubled))[0].tolist() == [[0, 0, 0, 0], [0, 1, 2, 0]]


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
def test_a_wrong_answer_is_named_by_the_option(shapes: Any, answer: object, message: str) -> None:
    def wrong() -> Shape:
        return lambda groups, selections, advantages: answer  # type: ignore[return-value]

    with pytest.raises(UsageError, match=rf"^loss.shape = 'own_shapes:wrong' {message}"):
        shaped(shapes(plus, wrong))


def test_what_a_shape_raises_is_named_with_its_line(shapes: Any) -> None:
    def broken() -> Shape:
        def shape(groups: Any, selections: Any, advantages: Any) -> Any:
            raise KeyError("novelty")

        return shape

    expected = r"^loss.shape = 'own_shapes:broken' raised KeyError: 'novelty' \(test_update_shapes.py, line \d+"
    with pytest.raises(UsageError, match=expected):
        shaped(shapes(broken))


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


def centred() -> Centred:
    return Centred()


def test_a_shape_that_learns_is_saved_and_restored(shapes: Any) -> None:
    slots = shapes(centred)
    assert shaped(slots)[1].tolist() == [-0.5, 0.5]
    slots.learn(GROUPS)  # rewards 0 1 1, 0 1, 1: a mean of 2/3
    assert shaped(slots)[1].tolist() == pytest.approx([-0.5 - 2 / 3, 0.5 - 2 / 3])
    later = shapes(centred)
    later.restore(slots.state())
    assert [each.tolist() for each in shaped(later)] == [each.tolist() for each in shaped(slots)]
    with pytest.raises(UsageError, match="no state of the part 'own_shapes:centred'"):
        shapes(centred).restore({})


def test_a_shape_sees_which_chunk_a_row_belongs_to(shapes: Any) -> None:
    def by_chunk() -> Shape:
        def shape(groups: Any, selections: Sequence[Selection], advantages: Sequence[Tensor]) -> list[Tensor]:
            found = []
            for selection, values in zip(selections, advantages, strict=True):
                chunk_of = {i: c for c, chunk in enumerate(selection.chunks) for i in chunk}
                found.append(values + torch.tensor([10.0 * chunk_of[i] for i in selection.kept]))
            return found

        return shape

    group = group_of("a", 0, 1, 0.25, 0.75)
    chosen = [Selection(group_id="a", kept=(0, 1, 2, 3), dropped={}, chunks=((0, 1), (2, 3)))]
    advantages = step_advantages([group], chosen, resolve_advantage("none"))
    [found] = shape_advantages([group], chosen, advantages, shapes(by_chunk)["loss.shape"])
    assert found.tolist() == [-0.5, 0.5, 9.75, 10.25]
    assert [sample.chunk for sample in to_samples([group], chosen, [found])] == [0, 0, 1, 1]
