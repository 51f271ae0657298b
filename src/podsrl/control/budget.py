"""Make the parts that a config names, call them in every round, and check every answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from numbers import Integral
from typing import Any

from podsrl.control.base import Enough, Questions, Rollouts, View
from podsrl.control.fixed import equal, one_round, stream
from podsrl.errors import UsageError, nearest, short
from podsrl.lib.options import check_options
from podsrl.lib.resolve import resolve
from podsrl.lib.user_function import calling, check_arguments
from podsrl.types import Ask, Group

MAX_ASKS = 1 << 20
"""In one round; a budget that asks for more is mistaken, or endless."""
MAX_ROLLOUTS = 1 << 24
"""In one round: the bound of rollouts.num_rollouts."""
MAX_ROUNDS = 16
"""A budget that asks in more rounds of one step would never end."""

ENOUGH: dict[str, Callable[..., Enough]] = {"one_round": one_round}
QUESTIONS: dict[str, Callable[..., Questions]] = {"stream": stream}
ROLLOUTS: dict[str, Callable[..., Rollouts]] = {"equal": equal}
SHAPES = {"enough": ("view",), "questions": ("view", "count"), "rollouts": ("view", "asks")}
"""Slot -> what its function is called with, by position."""
TABLES: dict[str, Mapping[str, Callable[..., Any]]] = {"enough": ENOUGH, "questions": QUESTIONS, "rollouts": ROLLOUTS}
"""Slot -> the names that fill it."""

State = Mapping[str, Any]
"""What a part remembers: plain JSON values and numpy arrays, by text keys."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One filled slot."""

    option: str
    """For messages: "budget.rollouts = 'my_budget:twice'"."""
    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        with calling(self.option):
            return self.function(*arguments)


class Budget:
    """Three filled slots that decide together what a step asks.

    Args:
        enough, questions, rollouts: the slots.
        parts: the objects behind them by name, each once.
    """

    def __init__(self, enough: Slot, questions: Slot, rollouts: Slot, parts: Mapping[str, Any]) -> None:
        self._enough, self._questions, self._rollouts = enough, questions, rollouts
        self._learning = {name: part for name, part in parts.items() if hasattr(part, "learn")}
        self._stateful = {name: part for name, part in parts.items() if hasattr(part, "state")}

    def ask(self, view: View) -> list[Ask]:
        """What one round asks for; nothing ends the sampling of the step.

        Raises:
            UsageError: a part raised, gave something else than its slot wants, or asked in more than 16 rounds.
        """
        count = self._number_of_groups(view)
        asks = [Ask(index=index, num_rollouts=view.num_rollouts) for index in self._indices(view, count)]
        answer = self._rollouts(view, asks)
        found = _as_list(answer, self._rollouts.option, "a sequence of Ask", MAX_ASKS)
        if len(found) > MAX_ASKS:
            raise UsageError(f"{self._rollouts.option} returned more than {MAX_ASKS:,} asks in one round; end the list")
        for ask in found:
            self._check(ask, view)
        if (total := sum(ask.num_rollouts for ask in found)) > MAX_ROLLOUTS:
            got, wanted = f"{short(total)} rollouts in one round", f"at most {MAX_ROLLOUTS:,}"
            raise UsageError(f"{self._rollouts.option} asked for {got}; wanted {wanted}")
        found = [replace(ask, index=int(ask.index), num_rollouts=int(ask.num_rollouts)) for ask in found]
        if found and view.round >= MAX_ROUNDS:
            raise UsageError(
                f"{self._rollouts.option} asked in {MAX_ROUNDS} rounds of step {view.step + 1} and has not had enough: "
                "end with an empty list"
            )
        return found

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Check how many rollouts were asked for in all, by the id of each group that is trained on.

        Raises:
            UsageError: fewer than two, which have no advantage.
        """
        for name, size in sizes.items():
            if size < 2:
                raise UsageError(
                    f"{self._rollouts.option} asked for {size} rollout of group {name!r} in all; wanted at least 2 in "
                    "a group that is trained on, or is_trained=False"
                )

    def learn(self, groups: Sequence[Group]) -> None:
        """Show the step's scored groups, probes too, to every part that learns."""
        for name, part in self._learning.items():
            with calling(f"learn of {name!r}", "learn(groups)"):
                part.learn(tuple(groups))

    def state(self) -> dict[str, State]:
        """What each part that has a state remembers, by its name."""
        return {name: _state_of(name, part) for name, part in self._stateful.items()}

    def restore(self, states: Mapping[str, State]) -> None:
        """Go on from `state`.

        Raises:
            UsageError: a part's state is missing, or the part refuses it.
        """
        for name, part in self._stateful.items():
            if name not in states:
                raise UsageError(
                    f"the checkpoint holds no state of the part {name!r}, which has state(): resume with the part as "
                    "it was, or start a new run"
                )
            with calling(f"restore of {name!r}", "restore(state)"):
                part.restore(states[name])

    def _number_of_groups(self, view: View) -> int:
        count = self._enough(view)
        if not _is_whole(count) or count < 0:
            raise UsageError(f"{self._enough.option} returned {short(count)}; wanted a whole number, 0 or more")
        if count > MAX_ASKS:
            raise UsageError(f"{self._enough.option} returned {short(count)}; wanted at most {MAX_ASKS:,} groups")
        return int(count)

    def _indices(self, view: View, count: int) -> list[int]:
        if count == 0:
            return []
        option = self._questions.option
        wanted = f"{count} whole numbers 0 .. {view.num_train - 1}"
        indices = _as_list(self._questions(view, count), option, wanted, most=count)
        if len(indices) != count:
            got = f"{len(indices)} indices" if len(indices) < count else f"more than {count} indices"
            raise UsageError(f"{option} returned {got}; wanted {wanted}")
        for index in indices:
            if not _is_whole(index) or not 0 <= index < view.num_train:
                raise UsageError(f"{option} returned the index {short(index)}; wanted {wanted}")
        return [int(index) for index in indices]

    def _check(self, ask: Any, view: View) -> None:
        option = self._rollouts.option
        if not isinstance(ask, Ask):
            raise UsageError(f"{option} returned {short(ask)} among its asks; wanted an Ask")
        if not _is_whole(ask.index) or not 0 <= ask.index < view.num_train:
            raise UsageError(f"{option} asked for the index {short(ask.index)}; wanted 0 .. {view.num_train - 1}")
        if not _is_whole(ask.num_rollouts) or ask.num_rollouts < 1:
            raise UsageError(f"{option} asked for num_rollouts = {short(ask.num_rollouts)}; wanted 1, 2, …")
        if not isinstance(ask.is_trained, bool):
            raise UsageError(f"{option} asked with is_trained = {short(ask.is_trained)}; wanted True or False")
        if ask.joins is None:
            return
        group = next((group for group in view.groups if group.id == ask.joins), None)
        if group is None:
            raise UsageError(f"{option} asked to join {short(ask.joins)}; wanted the id of a group of this step")
        if (group.index, group.is_trained) != (ask.index, ask.is_trained):
            raise UsageError(
                f"{option} asked with index = {ask.index}, is_trained = {ask.is_trained} to join group {group.id!r}, "
                f"which has {group.index}, {group.is_trained}; wanted the same"
            )


def make_budget(names: Mapping[str, str], options: Mapping[str, Mapping[str, Any]]) -> Budget:
    """Make the parts of a budget.

    Args:
        names: slot ("enough", "questions", "rollouts") -> a name of the slot's table, or "module:function". The same
            name in two slots is one part.
        options: part's name -> its options.

    Raises:
        UsageError: a name or an option that does not exist, a part that cannot be made, cannot fill its slot, or
            learns without `state` and `restore`.

    Example:
        >>> budget = make_budget({"enough": "one_round", "questions": "stream", "rollouts": "equal"}, {})
        >>> budget.state()
        {}
    """
    parts: dict[str, Any] = {}
    slots = {}
    for slot, name in names.items():
        option = f"budget.{slot} = {name!r}"
        wanted = "a function that makes a part from its options"
        factory = resolve(name, TABLES[slot], option=f"budget.{slot}", kind="part", wanted=wanted)
        if name not in parts:
            parts[name] = _make(factory, name, option, options.get(name, {}), f"{slot}({', '.join(SHAPES[slot])})")
        slots[slot] = Slot(option, _filler(parts[name], slot, option))
    for name in options:
        if name not in parts:
            used = ", ".join(f"budget.{slot} = {name!r}" for slot, name in names.items())
            raise UsageError(f"[options.{name}]: no slot names it ({used}); remove the table.{nearest(name, parts)}")
    return Budget(slots["enough"], slots["questions"], slots["rollouts"], parts)


def _make(factory: Callable[..., Any], name: str, option: str, options: Mapping[str, Any], wanted: str) -> Any:
    """The part under a name, from its factory."""
    checked = check_options(factory, options, where=f"options.{name}")
    wanted = f"a function of keyword-only options that makes {wanted}"
    check_arguments(partial(factory, **checked), 0, where=option, wanted=wanted)
    with calling(option):
        part = factory(**checked)
        learns, has_state, restores = (hasattr(part, verb) for verb in ("learn", "state", "restore"))
    if learns and not (has_state and restores):
        raise UsageError(f"{option} learns, but has no state() and restore(): a resumed run would forget; add both")
    if has_state and not restores:
        raise UsageError(f"{option} has state(), but no restore(state): add it")
    for verb, num_arguments in (("learn", 1), ("state", 0), ("restore", 1)):
        if hasattr(part, verb):
            _check_method(getattr(part, verb), num_arguments, f"{option}: its {verb}")
    return part


def _check_method(method: Any, num_arguments: int, where: str) -> None:
    wanted = f"a method of {num_arguments} arguments besides self"
    if not callable(method):
        raise UsageError(f"{where} has the type {type(method).__name__}; wanted {wanted}")
    check_arguments(method, num_arguments, where=where, wanted=wanted)


def _filler(part: Any, slot: str, option: str) -> Callable[..., Any]:
    """The part's method of the slot's name, or the part itself where it is a plain function."""
    with calling(option):
        function = getattr(part, slot, part)
    if not callable(function):
        raise UsageError(
            f"{option} makes a {type(part).__name__}, which cannot fill the slot: wanted a function, or an object with "
            f"a method {slot}"
        )
    shape = f"{slot}({', '.join(SHAPES[slot])})"
    check_arguments(function, len(SHAPES[slot]), where=f"{option} makes a part that", wanted=shape)
    return function  # type: ignore[no-any-return]  # `callable` says that it is one


def _state_of(name: str, part: Any) -> Any:
    with calling(f"state of {name!r}", "state()"):
        return part.state()


def _is_whole(value: Any) -> bool:
    """Whether it is a whole number, Python's or numpy's."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _as_list(answer: Any, option: str, wanted: str, most: int) -> list[Any]:
    """What it holds, but at most `most` + 1: it may be endless."""
    if isinstance(answer, (str, bytes, Mapping)) or not isinstance(answer, Iterable):
        raise UsageError(f"{option} returned {short(answer)}; wanted {wanted}")
    with calling(option):
        return list(islice(answer, most + 1))
