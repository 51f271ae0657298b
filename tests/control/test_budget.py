"""What a budget may ask: every answer of a part is checked, in every round."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import count, repeat
from types import ModuleType
from typing import Any

import pytest

from podsrl.control import Ask, Budget, View, make_budget
from podsrl.errors import UsageError
from podsrl.types import Group, Task

NAMES = {"enough": "one_round", "questions": "stream", "rollouts": "equal"}


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


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Budget]:
    """A budget with one slot filled by a user's function."""

    def budget(slot: str, function: Any, **options: Any) -> Budget:
        module = ModuleType("own_parts")
        module.made = lambda: function  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "own_parts", module)
        return make_budget({**NAMES, slot: "own_parts:made"}, options)

    return budget


def test_the_default_asks_for_p_questions_of_the_stream_with_n_rollouts_each_in_one_round() -> None:
    budget, first = make_budget(NAMES, {}), view()
    assert budget.ask(first) == [Ask(index=i, num_rollouts=8) for i in range(3)]
    assert first.stream.position == 3
    assert budget.ask(first.after([group()])) == []
    assert budget.slots.state() == {}


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
    with pytest.raises(UsageError, match=r"budget.enough = 'own_parts:made' returned .*; wanted a whole number"):
        part("enough", lambda view: count).ask(view())


@pytest.mark.parametrize("indices", [[0, 1], [0, 1, 10], [0, 1, -1], [0, 1, 1.5], 3, None])
def test_indices_are_as_many_as_wanted_and_in_range(part: Any, indices: Any) -> None:
    with pytest.raises(UsageError, match=r"budget.questions = 'own_parts:made' .*wanted 3 whole numbers 0 .. 9"):
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
        (Ask(index=4, num_rollouts=2, start="7", start_share=1.0), r"start_share = 1.0; .* below 1"),
        (Ask(index=4, num_rollouts=2, start=(7,)), r"start = \(7,\)"),  # type: ignore[arg-type]
    ],
)
def test_an_ask_that_cannot_be_answered_is_an_error(part: Any, ask: Any, message: str) -> None:
    with pytest.raises(UsageError, match=f"^budget.rollouts = 'own_parts:made' .*{message}"):
        part("rollouts", lambda view, asks: [ask]).ask(view(groups=(group(),)))


@pytest.mark.parametrize(
    ("slot", "answer", "cure"),
    [("rollouts", [Ask(index=1, num_rollouts=1)], " of step 7 and has not"), ("enough", 1, " .*: end with 0")],
)
def test_the_sixteenth_round_is_the_last(part: Any, slot: str, answer: Any, cure: str) -> None:
    assert make_budget(NAMES, {}).ask(view(round=16)) == []
    endless = part(slot, lambda *arguments: answer)
    assert endless.ask(view(round=15))
    with pytest.raises(UsageError, match=f"budget.{slot} = 'own_parts:made' asked in 16 rounds{cure}"):
        endless.ask(view(round=16))


def test_a_trained_group_of_one_rollout_is_an_error() -> None:
    budget = make_budget(NAMES, {})
    budget.check_sizes({"a": 2, "b": 3})
    with pytest.raises(UsageError, match=r"budget.rollouts = 'equal' asked for 1 rollout of group 'b' in all"):
        budget.check_sizes({"a": 2, "b": 1})


def test_unknown_names_and_options_are_errors_that_name_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"budget.rollouts = 'eqal' is no part. Did you mean 'equal'"):
        make_budget({**NAMES, "rollouts": "eqal"}, {})
    with pytest.raises(UsageError, match=r"\[options.equl\]: no slot names it .*Did you mean 'equal'"):
        make_budget(NAMES, {"equl": {}})
    with pytest.raises(UsageError, match=r"options.equal.below = 0.5: there is no such option"):
        make_budget(NAMES, {"equal": {"below": 0.5}})


def test_a_part_that_needs_a_slot_which_is_none_is_an_error(part: Any) -> None:
    def rollouts(view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        return asks

    rollouts.needs = ("budget.rolouts",)  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"'own_parts:made' needs the slot 'budget.rolouts'; .*budget.rollouts"):
        part("rollouts", rollouts)


class Both:
    def questions(self, view: View, count: int) -> list[int]:
        self.count = count
        return list(range(count))

    def rollouts(self, view: View, asks: Sequence[Ask]) -> list[Ask]:
        return [Ask(index=ask.index, num_rollouts=self.count) for ask in asks]


def test_one_name_in_two_slots_is_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_both")
    module.both = Both  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_both", module)
    budget = make_budget({**NAMES, "questions": "own_both:both", "rollouts": "own_both:both"}, {})
    assert budget.ask(view()) == [Ask(index=i, num_rollouts=3) for i in range(3)]
    with pytest.raises(UsageError, match=r"budget.enough = 'own_both:both' makes a Both, .*a method enough"):
        make_budget({**NAMES, "enough": "own_both:both"}, {})


def test_a_part_that_learns_has_to_have_a_state(part: Any) -> None:
    class Learns(Both):
        def learn(self, groups: Sequence[Group]) -> None: ...

    with pytest.raises(UsageError, match=r"'own_parts:made' learns, but has no state\(\) and restore\(\)"):
        part("rollouts", Learns())


def test_a_state_that_is_missing_in_a_checkpoint_is_an_error(part: Any) -> None:
    class Learns(Both):
        def learn(self, groups: Sequence[Group]) -> None:
            self.seen = list(groups)

        def state(self) -> dict[str, Any]:
            return {"count": len(self.seen)}

        def restore(self, state: Any) -> None:
            self.seen = [group()] * state["count"]

    budget = part("rollouts", Learns())
    budget.slots.learn([group(), group("b")])
    assert budget.slots.state() == {"own_parts:made": {"count": 2}}
    budget.slots.restore({"own_parts:made": {"count": 3}})
    assert budget.slots.state() == {"own_parts:made": {"count": 3}}
    with pytest.raises(UsageError, match="no state of the part 'own_parts:made'"):
        budget.slots.restore({})


def one_argument(view: View) -> list[Ask]:
    return []


async def later(view: View, asks: Sequence[Ask]) -> list[Ask]:
    return []


@pytest.mark.parametrize(("function", "message"), [(one_argument, "takes .*view"), (later, "is asynchronous")])
def test_a_part_that_cannot_be_called_as_its_slot_is_fails_when_it_is_made(
    part: Any, function: Any, message: str
) -> None:
    wanted = rf"^budget.rollouts = 'own_parts:made' makes a part that {message}.*; wanted rollouts\(view, asks\)"
    with pytest.raises(UsageError, match=wanted):
        part("rollouts", function)


def test_a_function_of_the_slot_in_place_of_what_makes_it_fails_when_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType("own_slot")
    module.rollouts = lambda view, asks: asks  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_slot", module)
    with pytest.raises(UsageError, match=r"wanted a function of keyword-only options that makes rollouts\("):
        make_budget({**NAMES, "rollouts": "own_slot:rollouts"}, {})


def test_a_name_of_another_slots_table_fills_no_slot() -> None:
    with pytest.raises(UsageError, match=r"budget.rollouts = 'stream': 'stream' fills budget.questions only"):
        make_budget({**NAMES, "rollouts": "stream"}, {})


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
    expected = rf"^budget.rollouts = 'own_parts:made' raised {error}: .*\(test_budget.py, line \d+\)$"
    with pytest.raises(UsageError, match=expected):
        part("rollouts", function).ask(view())


@pytest.mark.parametrize(
    ("slot", "answer", "message"),
    [
        ("enough", 10**30, "wanted at most"),
        ("questions", count(), "more than 3 indices"),
        ("rollouts", repeat(Ask(index=1, num_rollouts=2)), "more than .* asks"),
        ("rollouts", [Ask(index=1, num_rollouts=10**12)], "asked for 1000000000000 rollouts .*; wanted at most"),
        ("rollouts", [Ask(index=1, num_rollouts=2, is_trained="no")], "is_trained = 'no'; wanted True or False"),  # type: ignore[arg-type]
        ("rollouts", "abc", "returned 'abc'; wanted a sequence of Ask"),
    ],
)
def test_what_is_endless_or_too_much_is_an_error(part: Any, slot: str, answer: Any, message: str) -> None:
    with pytest.raises(UsageError, match=f"^budget.{slot} = 'own_parts:made' .*{message}"):
        part(slot, lambda *arguments: answer).ask(view())


@pytest.mark.parametrize(
    ("slot", "answer", "message"),
    [
        ("keep", [group()], r"budget.keep = .* returned Group\(.*wanted ids of groups of this step"),
        ("keep", ["s6/0/b"], r"budget.keep = .* returned 's6/0/b'; wanted ids of groups of this step"),
        ("keep", ["s6/1/p"], r"budget.keep = .* returned 's6/1/p'; wanted ids of groups of this step, no probes"),
        ("keep", ["s6/0/a", "s6/0/a"], "budget.keep = .* returned an id twice"),
        ("keep", "s6/0/a", "budget.keep = .* returned 's6/0/a'; wanted ids"),
        ("keep", None, "budget.keep = .* returned None; wanted ids"),
    ],
)
def test_what_is_kept_are_ids_of_groups_that_may_be_trained_on(part: Any, slot: str, answer: Any, message: str) -> None:
    probe = group("s6/1/p", is_trained=False)
    with pytest.raises(UsageError, match=message):
        part(slot, lambda view: answer).trained(view(groups=(group(), probe)))
