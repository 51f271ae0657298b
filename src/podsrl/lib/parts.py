"""The parts of a run: what the systems that it names are made of.

A system is a name of `podsrl.lib.moments.SYSTEMS`, or the user's own as "module:Class". It has one part or several;
each is made by a class, or by a function, whose keyword-only parameters are its options (`[options.NAME]`). A part has
a method for each moment at which it decides something (`podsrl.lib.moments.MOMENTS`), one at least. It may also have

    learn(groups), state(), restore(state)    it learns from all groups of a step; all three, or the last two
    most(num_prompts, num_rollouts)           the largest sizes that it may ask for
    metrics()                                 numbers of its own for the line of a step in metrics.jsonl, by their names
    together(rollouts)                        beside `look`: it may postpone rollouts, and says which of a group go on
    needs, breaks                             words of `podsrl.lib.moments.WORDS`
    abilities                                 what the generator has to be able to do (`Generator.abilities`)

Before a run it may refuse by a UsageError

    check_train(num_prompts, num_train)   the size of the training set
    check_tasks(tasks)                    its questions, which may be a sample of them
    check_rewards(num_kept, bounds)       what is kept of a group, m or a share (where groups are closed what the rule
                                          keeps of plenty of the highest and lowest rewards), and the lowest and highest
                                          reward that there can be; None: not known
    check_answers(correct, are_found)     what says which answers are right, and whether it finds final answers in texts
    check_model(tokenizer, max_tokens)    the tokenizer, and the limit of a rollout's tokens

and `write_nothing()` tells it that its steps are measured only, and no other run may see them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any

from podsrl.errors import UsageError, nearest
from podsrl.lib.moments import MOMENTS, SYSTEMS, WORDS, Factory
from podsrl.lib.options import check_options, part_options
from podsrl.lib.resolve import load
from podsrl.lib.user_function import calling, check_arguments, import_function

State = Mapping[str, Any]
"""What a part remembers: plain JSON values and numpy arrays, by text keys."""
GO_ON = ("join", "start")
"""Abilities of a generator whose rollouts go on behind what they have."""
_METHODS: Mapping[str, tuple[str, ...]] = {
    "learn": ("groups",),
    "state": (),
    "metrics": (),
    "restore": ("state",),
    "most": ("num_prompts", "num_rollouts"),
    "check_train": ("num_prompts", "num_train"),
    "check_tasks": ("tasks",),
    "check_rewards": ("num_kept", "bounds"),
    "check_answers": ("correct", "are_found"),
    "check_model": ("tokenizer", "max_tokens"),
    "write_nothing": (),
    "together": ("rollouts",),
}
"""Other methods of a part, and their arguments."""
_WANTED = "a class, or a function of keyword-only options, that makes a part"


@dataclass(frozen=True, slots=True)
class Call:
    """A part's method of one moment."""

    option: str
    """For messages: "rollouts of systems = 'my_file:Twice'"."""
    function: Callable[..., Any]
    part: Any = None
    """Behind it."""

    def __call__(self, *arguments: Any) -> Any:
        with calling(self.option):
            return self.function(*arguments)


class Parts:
    """Parts of a run, in the order in which they are asked and learn.

    Args:
        named: (name, part): the system's, or "SYSTEM:CLASS" where it has several.
        systems: name of each part -> its system.
    """

    def __init__(self, named: Mapping[str, Any], systems: Mapping[str, str]) -> None:
        self._parts, self._systems = dict(named), systems

    def __getitem__(self, moment: str) -> list[Call]:
        """What is called at a moment, in order."""
        return [
            Call(self.option(name, moment), getattr(part, moment), part)
            for name, part in self._parts.items()
            if hasattr(part, moment)
        ]

    def one(self, moment: str) -> Call | None:
        """What is called at a moment that one part has at most."""
        found = self[moment]
        return found[0] if found else None

    def has(self, moment: str) -> bool:
        """Whether a part has it."""
        return any(hasattr(part, moment) for part in self._parts.values())

    def only(self, moment: str) -> Parts:
        """Those that have a moment."""
        return Parts({name: part for name, part in self._parts.items() if hasattr(part, moment)}, self._systems)

    def option(self, name: str, moment: str) -> str:
        """A part's method, for messages."""
        return f"{moment} of systems = {self._systems[name]!r}"

    @property
    def systems(self) -> list[str]:
        """Names of the systems, each once."""
        return list(dict.fromkeys(self._systems[name] for name in self._parts))

    def words(self) -> Iterator[tuple[str, frozenset[str], frozenset[str]]]:
        """(who, needs, breaks): for messages "look of systems = 'trace'", and words of `podsrl.lib.moments.WORDS`."""
        for name, part in self._parts.items():
            moments = [moment for moment in MOMENTS.values() if hasattr(part, moment.name)]
            for moment in moments:
                yield self.option(name, moment.name), moment.needs, moment.breaks
            if hasattr(part, "together"):  # what goes on is asked for anew: the engine counts indices from there
                yield self.option(name, "together"), frozenset(), frozenset({"free_indices"})
            own = frozenset(getattr(part, "needs", ())), frozenset(getattr(part, "breaks", ()))
            yield (f"systems = {self._systems[name]!r}", *own)

    def breaks(self, word: str) -> list[str]:
        """Systems that break a word of `podsrl.lib.moments.WORDS`."""
        return [who for who, _, broken in self.words() if word in broken]

    def abilities(self) -> list[tuple[str, str]]:
        """(system, ability of the generator that it wants), such as ("systems = 'adhint'", "start").

        What watches rollouts wants "watch", and what postpones them until it decides `together` wants them to go on.
        """
        found = []
        for name, part in self._parts.items():
            own = tuple(getattr(part, "abilities", GO_ON if hasattr(part, "together") else ()))
            wanted = (*(("watch",) if hasattr(part, "look") else ()), *own)
            found += [(f"systems = {self._systems[name]!r}", ability) for ability in wanted]
        return found

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

    def metrics(self, known: Container[str] = ()) -> dict[str, float | None]:
        """Numbers of the parts' own, after a step; None for those that are not finite, since JSON has none.

        Raises:
            UsageError: one has a name that is known, or another part's.
        """
        found: dict[str, float | None] = {}
        for name, part in self._with("metrics"):
            with calling(f"metrics of {name!r}", "metrics()"):
                own = {key: float(value) for key, value in dict(part.metrics()).items()}
            if taken := next((key for key in own if key in known or key in found), None):
                raise UsageError(f"metrics of {name!r}: the line of a step has {taken!r} already; give it another name")
            found |= {key: value if math.isfinite(value) else None for key, value in own.items()}
        return found

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        """The most groups of a round, and the most rollouts of a group, that the parts say they ask for."""
        sizes = [(num_prompts, num_rollouts), *self._each("most", num_prompts, num_rollouts)]
        return max(int(groups) for groups, _ in sizes), max(int(rollouts) for _, rollouts in sizes)

    def check(self, method: str, *arguments: Any) -> None:
        """Call a method "check_..." or "write_nothing" of every part that has it.

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


def make_parts(systems: Sequence[str], options: Mapping[str, Mapping[str, Any]]) -> Parts:
    """Make the parts of some systems.

    Args:
        systems: their names, in order.
        options: system's name -> its options.

    Raises:
        UsageError: a name or an option that does not exist, a part that cannot be made, has no moment or one that
            another has already, or learns without `state` and `restore`.

    Example:
        >>> make_parts(["dapo"], {"dapo": {"max_rounds": 2}}).has("keep")
        True
    """
    alone = {moment.name: moment.shape for moment in MOMENTS.values() if not moment.is_shared}
    alone["together"] = "together(rollouts)"
    parts, owners, deciding = dict[str, Any](), dict[str, str](), dict[str, str]()
    for system in systems:
        made = factories(system)
        for factory, given in zip(made, _shared_out(system, made, options.get(system, {})), strict=True):
            name = system if len(made) == 1 else f"{system}:{factory.__name__}"
            part = _make(factory, system, given)
            parts[name], owners[name] = part, system
            for method, shape in alone.items():
                if hasattr(part, method) and (other := deciding.setdefault(method, system)) != system:
                    raise UsageError(
                        f"systems = {other!r} and {system!r} both decide {shape}, and one can: leave one of them out"
                    )
    if unread := [name for name in options if name not in systems]:
        wanted = f"systems names {', '.join(map(repr, systems))}" if systems else "systems names none"
        hint = nearest(unread[0], systems) if systems else ""
        raise UsageError(
            f"[options.{unread[0]}]: nothing reads it, {wanted}: remove the table, or name what reads it.{hint}"
        )
    return Parts(parts, owners)


def factories(system: str) -> list[Factory]:
    """What makes the parts of a system. UsageError: there is none of the name."""
    if system in SYSTEMS:
        return [load(place) for place in SYSTEMS[system]]
    if ":" in system:
        return [import_function(system, where=f"systems = {system!r}", wanted=_WANTED)]
    raise UsageError(
        f"systems = {system!r}: no such system.{nearest(system, SYSTEMS)} One of your own is 'module:Class'."
    )


def _shared_out(system: str, made: Sequence[Factory], options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The options of a system, each with the part that has it. UsageError: of several parts none has it."""
    if len(made) == 1:
        return [dict(options)]  # whose own check names the option
    own = [{option.name for option in part_options(factory)} for factory in made]
    if unknown := [name for name in options if not any(name in names for names in own)]:
        hint = nearest(unknown[0], set().union(*own))
        raise UsageError(f"options.{system}.{unknown[0]}: there is no such option.{hint}")
    return [{name: value for name, value in options.items() if name in names} for names in own]


def _make(factory: Factory, system: str, options: Mapping[str, Any]) -> Any:
    """A part, from its factory."""
    option = f"systems = {system!r}"
    checked = check_options(factory, options, where=f"options.{system}")
    check_arguments(partial(factory, **checked), 0, where=option, wanted=_WANTED)
    with calling(option):
        part = factory(**checked)
        learns, has_state, restores = (hasattr(part, verb) for verb in ("learn", "state", "restore"))
    if learns and not (has_state and restores):
        raise UsageError(f"{option} learns, but has no state() and restore(): a resumed run would forget; add both")
    if has_state and not restores:
        raise UsageError(f"{option} has state(), but no restore(state): add it")
    methods = {**_METHODS, **{name: moment.arguments for name, moment in MOMENTS.items()}}
    own = [name for name in dir(part) if name not in methods and name[0] != "_" and callable(getattr(part, name, 0))]
    for name in own:
        if close := get_close_matches(name, methods, n=1, cutoff=0.8):
            raise UsageError(
                f"{option} makes a {type(part).__name__} with {name}, which nothing reads. Did you mean {close[0]!r}?"
            )
    if not any(hasattr(part, name) for name in MOMENTS):
        raise UsageError(
            f"{option} makes a {type(part).__name__} with no method of a moment: wanted one of "
            f"{', '.join(moment.shape for moment in MOMENTS.values())}"
        )
    for method, arguments in methods.items():
        if hasattr(part, method):
            _check_method(getattr(part, method), len(arguments), f"{option}: its {method}")
    for attribute in ("needs", "breaks"):
        if unknown := sorted(set(getattr(part, attribute, ())) - WORDS.keys()):
            raise UsageError(f"{option}: its {attribute} have {unknown[0]!r}.{nearest(unknown[0], WORDS)}")
    return part


def _check_method(method: Any, num_arguments: int, where: str) -> None:
    wanted = f"a method of {num_arguments} arguments besides self"
    if not callable(method):
        raise UsageError(f"{where} has the type {type(method).__name__}; wanted {wanted}")
    check_arguments(method, num_arguments, where=where, wanted=wanted)


def _state_of(name: str, part: Any) -> Any:
    with calling(f"state of {name!r}", "state()"):
        return part.state()
