"""Parts of systems: names, options shared out among classes, moments that two decide, state, and what is refused."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from made import group_of
from podsrl.errors import UsageError
from podsrl.lib.moments import MOMENTS, SYSTEMS, WORDS
from podsrl.lib.options import part_options
from podsrl.lib.parts import Parts, factories, make_parts
from podsrl.types import Ask, Group


class Rollouts:
    """Its options are a number of rollouts and a mark."""

    def __init__(self, *, more: int = 1, mark: str = "") -> None:
        self.more, self.mark = more, mark

    def rollouts(self, view: Any, asks: Sequence[Ask]) -> list[Ask]:
        return [replace(ask, num_rollouts=ask.num_rollouts + self.more, origin=self.mark) for ask in asks]


class Keeps:
    """It learns ids."""

    def __init__(self, *, first: int = 0) -> None:
        self.ids, self.first = list[str](), first

    def keep(self, view: Any) -> list[str]:
        return self.ids[self.first :]

    def learn(self, groups: Sequence[Group]) -> None:
        self.ids += [group.id for group in groups]

    def state(self) -> Mapping[str, Any]:
        return {"ids": list(self.ids)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.ids = list(state["ids"])


class Shapes:
    """Adds a number to advantages, and has two words."""

    needs, breaks = frozenset({"one_turn"}), ("free_indices",)
    abilities = ("start",)

    def __init__(self, *, number: float) -> None:
        self.number = number

    def shape(self, groups: Any, selections: Any, advantages: Sequence[float]) -> list[float]:
        return [2 * each + self.number for each in advantages]

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        return 2 * num_prompts, num_rollouts


def three() -> Parts:
    """Those of "pair"."""
    return make_parts(["pair"], {"pair": {"number": 1.0}})


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts what is given by name into the module own_parts."""
    module = ModuleType("own_parts")
    monkeypatch.setitem(sys.modules, "own_parts", module)
    return lambda **made: vars(module).update(made)


@pytest.fixture
def pair(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system "pair" of three parts."""
    own(Rollouts=Rollouts, Keeps=Keeps, Shapes=Shapes)
    places = tuple(f"own_parts:{name}" for name in ("Rollouts", "Keeps", "Shapes"))
    monkeypatch.setattr("podsrl.lib.parts.SYSTEMS", {**SYSTEMS, "pair": places})


def made_of(*methods: str, **attributes: Any) -> type:
    """A class with these methods of moments, which answer with nothing."""

    def method(name: str) -> Callable[..., None]:
        arguments = ", ".join(MOMENTS[name].arguments)
        function: Callable[..., None] = eval(f"lambda self, {arguments}: None")
        return function

    return type("Made", (), {name: method(name) for name in methods} | attributes)


# --- names and options ---


def test_each_option_goes_to_the_class_that_has_it(pair: None) -> None:
    parts = make_parts(["pair"], {"pair": {"more": 3, "number": 0.5, "first": 1, "mark": "m"}})
    [rollouts], [keep], [shape] = parts["rollouts"], parts["keep"], parts["shape"]
    assert rollouts(None, [Ask(index=4, num_rollouts=2)]) == [Ask(index=4, num_rollouts=5, origin="m")]
    assert (keep.part.first, shape([], [], [1.0])) == (1, [2.5])
    assert [call.option for call in (rollouts, keep, shape)] == [
        "rollouts of systems = 'pair'",
        "keep of systems = 'pair'",
        "shape of systems = 'pair'",
    ]


@pytest.mark.parametrize(
    ("systems", "options", "message"),
    [
        (
            ["pair"],
            {"pair": {"numbr": 1.0}},
            r"options\.pair\.numbr: there is no such option\. Did you mean 'number'\?",
        ),
        (["pair"], {"pair": {}}, r"options\.pair\.number is not set, and has no default"),
        (["pair"], {"pair": {"number": "x"}}, r"options\.pair\.number = 'x': Input should be a valid number"),
        (["dars"], {"dars": {"mots": 8}}, r"options\.dars\.mots = 8: there is no such option\. Did you mean 'most'\?"),
        (["dars"], {"dras": {}}, r"\[options\.dras\]: nothing reads it, systems names 'dars': .*Did you mean 'dars'"),
        ([], {"dars": {}}, r"\[options\.dars\]: nothing reads it, systems names none"),
        (["drs"], {}, r"systems = 'drs': no such system\. Did you mean 'dars'\? One of your own is 'module:Class'"),
        (
            ["own_parts:Rollouts"],
            {"own_parts:Rollouts": {"less": 1}},
            r"options\.own_parts:Rollouts\.less = 1: there is",
        ),
        (
            ["own_parts:Roll"],
            {},
            r"systems = 'own_parts:Roll' cannot be imported: no 'Roll' in 'own_parts'.*'Rollouts'",
        ),
        (["no_such_module:It"], {}, r"systems = 'no_such_module:It' cannot be imported: ModuleNotFoundError"),
    ],
)
def test_names_and_options_that_do_not_exist_are_one_line(
    pair: None, systems: list[str], options: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=f"^{message}") as error:
        make_parts(systems, options)
    assert "\n" not in str(error.value)


def test_systems_are_made_in_the_order_in_which_they_are_named(pair: None) -> None:
    names = ["own_parts:Shapes", "pair"]
    options = {"own_parts:Shapes": {"number": 1.0}, "pair": {"number": 0.0}}
    for systems in (names, names[::-1]):
        parts = make_parts(systems, options)
        assert parts.systems == systems
        values = [3.0]
        for shape in parts["shape"]:
            values = shape([], [], values)
        assert values == [{"pair": 14.0, "own_parts:Shapes": 13.0}[systems[-1]]]  # 2 (2·3 + 1), and 2 (2·3) + 1
    assert make_parts([], {}).systems == []


def test_every_system_that_ships_is_made_of_classes_whose_options_are_all_different() -> None:
    for name in SYSTEMS:
        options = [option.name for factory in factories(name) for option in part_options(factory)]
        assert len(options) == len(set(options)), name
        moments = {moment for factory in factories(name) for moment in MOMENTS if hasattr(factory, moment)}
        assert moments, name


def test_the_parts_with_a_moment_alone(pair: None) -> None:
    parts = three()
    only = parts.only("keep")
    assert only.has("keep") and not only.has("rollouts") and only.systems == ["pair"]
    assert (parts.one("look"), parts["look"]) == (None, [])
    assert only.state() == {"pair:Keeps": {"ids": []}}


# --- moments ---


@pytest.mark.parametrize("moment", MOMENTS)
def test_what_two_systems_decide_is_refused_unless_several_may(moment: str, own: Any) -> None:
    own(One=made_of(moment), Two=made_of(moment, *({"keep"} - {moment})))
    systems = ["own_parts:One", "own_parts:Two"]
    if moment in ("look", "shape"):
        assert [call.option for call in make_parts(systems, {})[moment]] == [
            f"{moment} of systems = 'own_parts:One'",
            f"{moment} of systems = 'own_parts:Two'",
        ]
        return
    wanted = re.escape(f"{moment}({', '.join(MOMENTS[moment].arguments)})")
    with pytest.raises(UsageError, match=rf"^systems = 'own_parts:One' and 'own_parts:Two' both decide {wanted}"):
        make_parts(systems, {})


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (type("Empty", (), {}), "makes a Empty with no method of a moment: wanted one of enough\\(view\\), questions"),
        (made_of("keep", rolouts=lambda self, view, asks: asks), "makes a Made with rolouts, which.*mean .rollouts"),
        (
            type("Old", (), {"rollout": lambda self, view, asks: asks}),
            "makes a Old with rollout, which.*mean .rollouts",
        ),
        (made_of("keep", together=3), "its together has the type int; wanted a method of 1 arguments"),
        (
            type("Few", (), {"rollouts": lambda self, view: []}),
            r"its rollouts takes \(view\) .*of 2 arguments besides self",
        ),
        (made_of("keep", needs={"equl_groups"}), "its needs have 'equl_groups'. Did you mean 'equal_groups'"),
        (made_of("keep", breaks=("one_trun",)), "its breaks have 'one_trun'. Did you mean 'one_turn'"),
        (made_of("keep", learn=lambda self, groups: None), r"learns, but has no state\(\) and restore\(\)"),
        (made_of("keep", state=lambda self: {}), r"has state\(\), but no restore\(state\): add it"),
        (lambda view, asks: asks, r"takes \(view, asks\) .*wanted a class, or a function of keyword-only options"),
        (lambda: lambda view, asks: asks, "makes a function with no method of a moment"),
        (7, "has the type int; wanted a class, or a function of keyword-only options, that makes a part"),
    ],
)
def test_what_makes_no_part_is_one_line(own: Any, made: Any, message: str) -> None:
    own(made=made)
    with pytest.raises(UsageError, match=f"^systems = 'own_parts:made'[: ]+{message}") as error:
        make_parts(["own_parts:made"], {})
    assert "\n" not in str(error.value)


class Late:
    """Its method is asynchronous."""

    async def rollouts(self, view: Any, asks: Sequence[Ask]) -> Sequence[Ask]:
        return asks


class Broken:
    """It cannot be made."""

    def __init__(self) -> None:
        raise KeyError("no such thing")

    def keep(self, view: Any) -> list[str]:
        return []


def test_an_asynchronous_method_and_one_that_cannot_be_made_are_one_line(own: Any) -> None:
    own(Late=Late, Broken=Broken)
    with pytest.raises(UsageError, match=r"^systems = 'own_parts:Late': its rollouts is asynchronous \(async def\)"):
        make_parts(["own_parts:Late"], {})
    with pytest.raises(
        UsageError, match=r"^systems = 'own_parts:Broken' raised KeyError: .*\(test_parts.py, line \d+\)"
    ):
        make_parts(["own_parts:Broken"], {})


def test_a_function_of_options_may_make_a_part(own: Any) -> None:
    own(rare=lambda *, more=2: Rollouts(more=more))
    parts = make_parts(["own_parts:rare"], {"own_parts:rare": {"more": 5}})
    assert parts["rollouts"][0](None, [Ask(index=0, num_rollouts=1)]) == [Ask(index=0, num_rollouts=6, origin="")]


# --- what parts say, learn and remember ---


def test_words_are_those_of_the_moments_and_the_parts_own(pair: None) -> None:
    assert set().union(*(moment.needs | moment.breaks for moment in MOMENTS.values())) <= WORDS.keys()
    moments = {who.partition(" ")[0]: (needs, breaks) for who, needs, breaks in three().words() if " of " in who}
    assert moments == {name: (MOMENTS[name].needs, MOMENTS[name].breaks) for name in ("rollouts", "keep", "shape")}
    own = [(set(needs), set(breaks)) for who, needs, breaks in three().words() if who == "systems = 'pair'"]
    assert own == [(set(), set()), (set(), set()), ({"one_turn"}, {"free_indices"})]
    assert three().breaks("free_indices") == ["systems = 'pair'"]
    assert three().breaks("asked_once") == ["rollouts of systems = 'pair'"] and not three().breaks("one_turn")


def test_abilities_are_those_of_moments_and_the_parts_own(pair: None, own: Any) -> None:
    assert three().abilities() == [("systems = 'pair'", "start")]
    own(Sees=made_of("look"), Waits=made_of("look", together=lambda self, rollouts: []))
    assert [name for _, name in make_parts(["own_parts:Sees"], {}).abilities()] == ["watch"]
    assert [name for _, name in make_parts(["own_parts:Waits"], {}).abilities()] == ["watch", "join", "start"]


def test_a_state_has_the_name_of_the_system_or_of_one_of_its_parts(pair: None) -> None:
    parts, alone = three(), make_parts(["own_parts:Keeps"], {})
    for each in (parts, alone):
        each.learn([group_of("a", 1.0), group_of("b", 0.0)])
    assert parts.state() == {"pair:Keeps": {"ids": ["a", "b"]}}
    assert alone.state() == {"own_parts:Keeps": {"ids": ["a", "b"]}}
    fresh = three()
    fresh.restore({"pair:Keeps": {"ids": ["c"]}, "other": {}})
    assert fresh.state() == {"pair:Keeps": {"ids": ["c"]}} and fresh["keep"][0](None) == ["c"]
    with pytest.raises(UsageError, match="no state of the part 'pair:Keeps'"):
        three().restore({"pair": {"ids": []}})
    with pytest.raises(UsageError, match=r"restore of 'pair:Keeps' raised KeyError: 'ids'"):
        three().restore({"pair:Keeps": {}})


def test_the_largest_sizes_are_those_of_any_part(pair: None) -> None:
    assert three().most(3, 8) == (6, 8)
    both = make_parts(["own_parts:Shapes", "dars"], {"own_parts:Shapes": {"number": 1.0}, "dars": {"most": 40}})
    assert both.most(3, 8) == (6, 40)
    assert make_parts(["dars"], {"dars": {"most": 40}}).most(3, 8) == (3, 40)
    assert make_parts([], {}).most(3, 8) == (3, 8)
