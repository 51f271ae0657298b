"""What fills the slots of a run (`lib/parts.py`).

An option names a part that ships, or one of the user's own as "module:function". What the name stands for
makes the part: its keyword-only parameters are the part's options (`[options.NAME]`). A part is a plain function, or an
object with one method for each slot that it fills; the same name in several slots is one part. A part that learns has
`learn(groups)`, `state()` and `restore(state)` besides. It may tell its largest sizes by
`most(num_prompts, num_rollouts)`, and name in `needs` the options of all slots that it has to fill, and in `abilities`
what the generator has to be able to do (`Generator.abilities`). Before a run it may refuse by a UsageError

    check_train(num_prompts, num_train)   the size of the training set
    check_tasks(tasks)                    its questions, which may be a sample of them
    check_rewards(num_kept, bounds)       what is kept of a group, m or a share (for "certain" what the rule keeps of
                                          plenty of the highest and lowest rewards), and the lowest and highest reward
                                          that there can be; None: not known
    check_answers(correct, are_found)     what says which answers are right, and whether it finds final answers in texts
    check_model(tokenizer, max_tokens)    the tokenizer, and the limit of a rollout's tokens
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from podsrl.errors import UsageError, nearest
from podsrl.lib.options import check_options
from podsrl.lib.parts import SLOTS, Factory, Slot
from podsrl.lib.resolve import resolve
from podsrl.lib.user_function import calling, check_arguments

State = Mapping[str, Any]
"""What a part remembers: plain JSON values and numpy arrays, by text keys."""
GO_ON = ("join", "start")
"""Abilities of a generator whose rollouts go on behind what they have."""
_METHODS: Mapping[str, tuple[str, ...]] = {
    "learn": ("groups",),
    "state": (),
    "restore": ("state",),
    "most": ("num_prompts", "num_rollouts"),
    "check_train": ("num_prompts", "num_train"),
    "check_tasks": ("tasks",),
    "check_rewards": ("num_kept", "bounds"),
    "check_answers": ("correct", "are_found"),
    "check_model": ("tokenizer", "max_tokens"),
    "together": ("rollouts",),
}
"""Method of a part, and its arguments."""


@dataclass(frozen=True, slots=True)
class Filled:
    """The function of one part in one slot."""

    option: str
    """For messages: "budget.rollouts = 'my_budget:twice'"."""
    function: Callable[..., Any]
    part: Any = None
    """Behind it."""

    def __call__(self, *arguments: Any) -> Any:
        with calling(self.option):
            return self.function(*arguments)


class Slots:
    """The slots of a run, filled.

    Args:
        filled: option -> the functions that fill its slot, in order.
        parts: name -> the object behind them.
    """

    def __init__(self, filled: Mapping[str, Sequence[Filled]], parts: Mapping[str, Any]) -> None:
        self._filled, self._parts = filled, parts

    def __getitem__(self, option: str) -> Sequence[Filled]:
        """What fills the slot of an option."""
        return self._filled[option]

    def only(self, names: Mapping[str, Sequence[str]]) -> Slots:
        """Some of them, with the same parts.

        Args:
            names: option of each slot -> names of the parts that fill it.
        """
        parts = {name: self._parts[name] for of_slot in names.values() for name in of_slot}
        return Slots({option: self._filled[option] for option in names}, parts)

    def abilities(self) -> list[tuple[str, str]]:
        """(what fills a slot, ability of the generator that it wants), such as ("budget.rollouts = 'hints'", "start").

        What postpones rollouts until it decides on them `together` wants them to go on.
        """
        return [
            (each.option, ability)
            for filled in self._filled.values()
            for each in filled
            for ability in getattr(each.part, "abilities", GO_ON if hasattr(each.part, "together") else ())
        ]

    def learn(self, groups: Sequence[Any]) -> None:
        """Show all groups of a step, those that no batch holds too, to every part that learns."""
        self._each("learn", tuple(groups))

    def state(self) -> dict[str, State]:
        """What each part that has a state remembers, by its name."""
        return {name: _state_of(name, part) for name, part in self._with("state")}

    def restore(self, states: Mapping[str, State]) -> None:
        """Go on from `state`.

        Raises:
            UsageError: a part's state is missing, or the part refuses it.
        """
        for name, part in self._with("state"):
            if name not in states:
                raise UsageError(
                    f"the checkpoint holds no state of the part {name!r}, which has state(): resume with the part as "
                    "it was, or start a new run"
                )
            with calling(f"restore of {name!r}", "restore(state)"):
                part.restore(states[name])

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        """The most groups of a round, and the most rollouts of a group, that the parts say they ask for."""
        sizes = [(num_prompts, num_rollouts), *self._each("most", num_prompts, num_rollouts)]
        return max(int(groups) for groups, _ in sizes), max(int(rollouts) for _, rollouts in sizes)

    def check(self, method: str, *arguments: Any) -> None:
        """Call a method "check_..." of every part that has it.

        Raises:
            UsageError: of the part.
        """
        self._each(method, *arguments)

    def _each(self, method: str, *arguments: Any) -> list[Any]:
        """What the method gives, of every part that has it."""
        found = []
        for name, part in self._with(method):
            with calling(f"{method} of {name!r}", f"{method}({', '.join(_METHODS[method])})"):
                found.append(getattr(part, method)(*arguments))
        return found

    def _with(self, method: str) -> list[tuple[str, Any]]:
        return [(name, part) for name, part in self._parts.items() if hasattr(part, method)]


def make_slots(
    names: Mapping[str, Sequence[str]],
    options: Mapping[str, Mapping[str, Any]],
    *,
    others_are_filled: bool = False,
) -> Slots:
    """Make the parts that fill some slots.

    Args:
        names: option of each of these slots -> names of the parts that fill it, in order.
        options: part's name -> its options.
        others_are_filled: whether slots that a part needs, and that are not among these, are filled elsewhere.

    Raises:
        UsageError: a name or an option that does not exist, a part that cannot be made, cannot fill its slot,
            does not fill all that it has to, or learns without `state` and `restore`.

    Example:
        >>> make_slots({"replay.groups": ["nothing"]}, {})["replay.groups"][0](None)
        ()
    """
    parts: dict[str, Any] = {}
    filled: dict[str, list[Filled]] = {option: [] for option in SLOTS if option in names}
    for key, found in filled.items():
        slot = SLOTS[key]
        for name in names[key]:
            option = f"{key} = {name!r}"
            factory = _factory(slot, name)
            if name not in parts:
                parts[name] = _make(factory, name, option, options.get(name, {}), slot.shape)
            found.append(Filled(option, _filler(parts[name], slot, option), parts[name]))
    for name, part in parts.items():
        for option in getattr(part, "needs", ()):
            if option not in names and others_are_filled:
                continue
            if option not in names:
                raise UsageError(f"{name!r} needs the slot {option!r}; wanted slots among {', '.join(names)}")
            if name not in names[option]:
                others = " and ".join(other for other, own in names.items() if name in own)
                raise UsageError(
                    f"{others} = {name!r} works with {option} = {name!r} alone, which is "
                    f"{', '.join(names[option])!r}: set both, or choose another part"
                )
    for name in options:
        if name not in parts:
            used = ", ".join(each.option for found in filled.values() for each in found)
            raise UsageError(f"[options.{name}]: no slot names it ({used}); remove the table.{nearest(name, parts)}")
    return Slots(filled, parts)


def _factory(slot: Slot, name: str) -> Factory:
    elsewhere = [other.option for other in SLOTS.values() if name in other.table]
    if elsewhere and name not in slot.table:
        raise UsageError(f"{slot.option} = {name!r}: {name!r} fills {' and '.join(elsewhere)} only")
    wanted = "a function that makes a part from its options"
    return resolve(name, slot.table, option=slot.option, kind="part", wanted=wanted)


def _make(factory: Factory, name: str, option: str, options: Mapping[str, Any], wanted: str) -> Any:
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
    for method, arguments in _METHODS.items():
        if hasattr(part, method):
            _check_method(getattr(part, method), len(arguments), f"{option}: its {method}")
    return part


def _check_method(method: Any, num_arguments: int, where: str) -> None:
    wanted = f"a method of {num_arguments} arguments besides self"
    if not callable(method):
        raise UsageError(f"{where} has the type {type(method).__name__}; wanted {wanted}")
    check_arguments(method, num_arguments, where=where, wanted=wanted)


def _filler(part: Any, slot: Slot, option: str) -> Callable[..., Any]:
    """The part's method of the slot's name, or the part itself where it is a plain function."""
    with calling(option):
        function = getattr(part, slot.method, part)
    if not callable(function):
        raise UsageError(
            f"{option} makes a {type(part).__name__}, which cannot fill the slot: wanted a function, or an object with "
            f"a method {slot.method}"
        )
    check_arguments(function, len(slot.arguments), where=f"{option} makes a part that", wanted=slot.shape)
    return function  # type: ignore[no-any-return]  # `callable` says that it is one


def _state_of(name: str, part: Any) -> Any:
    with calling(f"state of {name!r}", "state()"):
        return part.state()
