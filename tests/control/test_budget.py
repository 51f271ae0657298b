"""What a budget may ask: every answer of a part is checked, in every round."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count, repeat
from types import ModuleType
from typing import Any

import pytest

from podsrl.control import Ask, Budget, View
from podsrl.errors import UsageError
from podsrl.lib.parts import make_parts
from podsrl.types import Group, Notes, Parent, Task


class Counted:
    """A stream that gives 0, 1, 2 …"""

    def __init__(self) -> None:
        self.position = 0

    def draw(self, count: int) -> list[int]:
        self.position += count
        return list(range(self.position - count, self.position))


def view(**changes: Any) -> View:
    return View(step=6, num_prompts=3, num_rollouts=8, num_train=10, seed=0, stream=Counted(), **changes)


def group(name: str = "s6/0/a", index: int = 4, *, is_trained: bool = True) -> Group:
    task = Task(id="a", prompt="?", answer="!")
    return Group(id=name, task=task, prompt_ids=(1,), rollouts=(), index=index, step=6, is_trained=is_trained)


def test_an_ask_of_a_group_names_its_question_and_joins_it_or_opens_another() -> None:
    assert Ask.of(group(), 3) == Ask(index=4, num_rollouts=3, joins="s6/0/a")
    assert Ask.of(group(), 3, joins=False) == Ask(index=4, num_rollouts=3)
    with pytest.raises(ValueError, match="'s6/0/a': its task is not of the training set"):
        Ask.of(replace(group(), index=None), 3)


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Budget]:
    """A budget of one part, a user's class with one method."""

    def budget(moment: str, function: Callable[..., Any]) -> Budget:
        module = ModuleType("own_parts")
        module.Own = type("Own", (), {moment: staticmethod(function)})  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "own_parts", module)
        return Budget(make_parts(["own_parts:Own"], {}))

    return budget


def default() -> Budget:
    return Budget(make_parts([], {}))


def test_the_default_asks_for_p_questions_of_the_stream_with_n_rollouts_each_in_one_round() -> None:
    budget, first = default(), view()
    assert budget.ask(first) == [Ask(index=i, num_rollouts=8) for i in range(3)]
    assert first.stream.position == 3
    later = first.after([group(), group("s6/1/p", is_trained=False)])
    assert budget.ask(later) == [] and budget.trained(later) == {"s6/0/a"}


def test_a_view_puts_grown_groups_in_place_of_the_old_ones() -> None:
    one, two, three = group("a"), group("b"), group("c")
    grown = group("a", index=9)
    later = view().after([one, two]).after([grown, three])
    assert later.round == 2 and later.groups == (grown, two, three)


def test_random_numbers_depend_on_seed_name_step_and_round_alone() -> None:
    first = view()
    draws = [float(each.rng(name).random()) for each in (first, first.after([])) for name in ("a", "b")]
    assert len(set(draws)) == 4 and draws[0] == float(view().rng("a").random())


@pytest.mark.parametrize("count", [-1, 1.5, True, None, "2"])
def test_a_number_of_groups_is_a_whole_number(part: Any, count: Any) -> None:
    with pytest.raises(UsageError, match=r"enough of systems = 'own_parts:Own' returned .*; wanted a whole number"):
        part("enough", lambda view: count).ask(view())


@pytest.mark.parametrize("indices", [[0, 1], [0, 1, 10], [0, 1, -1], [0, 1, 1.5], 3, None])
def test_indices_are_as_many_as_wanted_and_in_range(part: Any, indices: Any) -> None:
    with pytest.raises(UsageError, match=r"questions of systems = 'own_parts:Own' .*wanted 3 whole numbers 0 .. 9"):
        part("questions", lambda view, count: indices).ask(view())


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (7, "wanted an Ask"),
        (Ask(index=10, num_rollouts=2), r"index = 10; wanted 0 .. 9"),
        (Ask(index=-1, num_rollouts=2), r"index = -1; wanted 0 .. 9"),
        (Ask(index=True, num_rollouts=2), r"index = True; wanted 0 .. 9"),
        (Ask(index=1, num_rollouts=0), "num_rollouts = 0; wanted 1"),
        (Ask(index=1, num_rollouts=1.5), r"num_rollouts = 1.5; wanted 1"),  # type: ignore[arg-type]
        (Ask(index=1, num_rollouts=True), "num_rollouts = True; wanted 1"),
        (Ask(index=4, num_rollouts=2, joins="s5/0/a"), r"join 's5/0/a'; wanted the id of a group of this step"),
        (Ask(index=4, num_rollouts=2, joins=group()), r"join Group\(.*; wanted the id of a group of this step"),  # type: ignore[arg-type]
        (Ask(index=5, num_rollouts=2, joins="s6/0/a"), r"index = 5, .* group 's6/0/a', which has 4"),
        (Ask(index=4, num_rollouts=2, joins="s6/0/a", is_trained=False), "is_trained = False to join"),
        (Ask(index=4, num_rollouts=2, joins=""), "join ''; wanted an ask before it in the same list"),
        (Ask(index=4, num_rollouts=2, parent=Parent(0, 1)), r"parent = .*; wanted a Parent in the group that it joins"),
        (Ask(index=4, num_rollouts=2, joins="s6/0/a", parent=Parent(99, 1)), "wanted a rollout that is judged"),
        (Ask(index=4, num_rollouts=2, joins="s6/0/a", parent=Parent(0, 99)), "wanted a rollout that is judged"),
        (Ask(index=4, num_rollouts=2, joins="s6/0/a", parent=Parent(0, 1), start="x"), "start = 'x'; wanted a text"),
        (Ask(index=4, num_rollouts=2, notes=Notes({"a": 1})), r"notes = .*; wanted Notes, and only beside a start"),
        (Ask(index=4, num_rollouts=2, start="7", start_share=1.0), r"start_share = 1.0; .* below 1"),
        (Ask(index=4, num_rollouts=2, start=(7,)), r"start = \(7,\)"),  # type: ignore[arg-type]
    ],
)
def test_an_ask_that_cannot_be_answered_is_an_error(part: Any, ask: Any, message: str) -> None:
    with pytest.raises(UsageError, match=f"^rollouts of systems = 'own_parts:Own' .*{message}"):
        part("rollouts", lambda view, asks: [ask]).ask(view(groups=(group(),)))


@pytest.mark.parametrize(
    ("moment", "answer", "cure"),
    [("rollouts", [Ask(index=1, num_rollouts=1)], " of step 7 and has not"), ("enough", 1, " .*: end with 0")],
)
def test_the_sixteenth_round_is_the_last(part: Any, moment: str, answer: Any, cure: str) -> None:
    assert default().ask(view(round=16)) == []
    endless = part(moment, lambda *arguments: answer)
    assert endless.ask(view(round=15))
    with pytest.raises(UsageError, match=f"{moment} of systems = 'own_parts:Own' asked in 16 rounds{cure}"):
        endless.ask(view(round=16))


def test_a_trained_group_of_one_rollout_is_an_error() -> None:
    budget = default()
    budget.check_sizes({"a": 2, "b": 3})
    with pytest.raises(UsageError, match=r"^rollouts asked for 1 rollout of group 'b' in all"):
        budget.check_sizes({"a": 2, "b": 1})


class Both:
    def questions(self, view: View, count: int) -> list[int]:
        self.count = count
        return list(range(count))

    def rollouts(self, view: View, asks: Sequence[Ask]) -> list[Ask]:
        return [Ask(index=ask.index, num_rollouts=self.count) for ask in asks]


def test_one_part_may_decide_several_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_both")
    module.Both = Both  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_both", module)
    assert Budget(make_parts(["own_both:Both"], {})).ask(view()) == [Ask(index=i, num_rollouts=3) for i in range(3)]


def test_parts_of_several_systems_are_asked_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the five moments is another's, and the guide sees what `rollouts` made of the asks."""
    module = ModuleType("own_five")
    answers: dict[str, Callable[..., Any]] = {
        "enough": lambda view: 2 if view.round == 0 else 0,
        "questions": lambda view, count: [7, 3][:count],
        "rollouts": lambda view, asks: [replace(ask, num_rollouts=ask.index) for ask in asks],
        "guide": lambda view, asks: [replace(ask, prompt=f"{ask.num_rollouts}?") for ask in asks],
        "keep": lambda view: [view.groups[-1].id],
    }
    for moment, function in answers.items():
        setattr(module, moment.title(), type(moment.title(), (), {moment: staticmethod(function)}))
    monkeypatch.setitem(sys.modules, "own_five", module)
    budget = Budget(make_parts([f"own_five:{moment.title()}" for moment in reversed(answers)], {}))
    asked = budget.ask(view())
    assert asked == [Ask(index=7, num_rollouts=7, prompt="7?"), Ask(index=3, num_rollouts=3, prompt="3?")]
    later = view().after([group("a"), group("b")])
    assert budget.ask(later) == [] and budget.trained(later) == {"b"}


class Unsaid(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


def fails_late(view: View, asks: Sequence[Ask]) -> Any:
    yield from asks
    raise Unsaid


def broken(view: View, asks: Sequence[Ask]) -> list[Ask]:
    raise KeyError("no such question")


@pytest.mark.parametrize(("function", "error"), [(broken, "KeyError"), (fails_late, "Unsaid")])
def test_what_a_part_raises_at_once_or_while_its_answer_is_read_is_one_line(
    part: Any, function: Any, error: str
) -> None:
    expected = rf"^rollouts of systems = 'own_parts:Own' raised {error}: .*\(test_budget.py, line \d+\)$"
    with pytest.raises(UsageError, match=expected):
        part("rollouts", function).ask(view())


@pytest.mark.parametrize(
    ("moment", "answer", "message"),
    [
        ("enough", 10**30, "wanted at most"),
        ("questions", count(), "more than 3 indices"),
        ("rollouts", repeat(Ask(index=1, num_rollouts=2)), "more than .* asks"),
        ("rollouts", [Ask(index=1, num_rollouts=10**12)], "asked for 1000000000000 rollouts .*; wanted at most"),
        ("rollouts", [Ask(index=1, num_rollouts=2, is_trained="no")], "is_trained = 'no'; wanted True or False"),  # type: ignore[arg-type]
        ("rollouts", "abc", "returned 'abc'; wanted a sequence of Ask"),
    ],
)
def test_what_is_endless_or_too_much_is_an_error(part: Any, moment: str, answer: Any, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{moment} of systems = 'own_parts:Own' .*{message}"):
        part(moment, lambda *arguments: answer).ask(view())


@pytest.mark.parametrize(
    ("moment", "answer", "message"),
    [
        ("keep", [group()], r"keep of systems = .* returned Group\(.*wanted ids of groups of this step"),
        ("keep", ["s6/0/b"], r"keep of systems = .* returned 's6/0/b'; wanted ids of groups of this step"),
        ("keep", ["s6/1/p"], r"keep of systems = .* returned 's6/1/p'; wanted ids of groups of this step, no probes"),
        ("keep", ["s6/0/a", "s6/0/a"], "keep of systems = .* returned an id twice"),
        ("keep", "s6/0/a", "keep of systems = .* returned 's6/0/a'; wanted ids"),
        ("keep", None, "keep of systems = .* returned None; wanted ids"),
    ],
)
def test_what_is_kept_are_ids_of_groups_that_may_be_trained_on(
    part: Any, moment: str, answer: Any, message: str
) -> None:
    probe = group("s6/1/p", is_trained=False)
    with pytest.raises(UsageError, match=message):
        part(moment, lambda view: answer).trained(view(groups=(group(), probe)))
