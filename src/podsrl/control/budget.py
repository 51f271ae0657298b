"""Ask the parts of a run in every round of a step, and check every answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from numbers import Integral, Real
from typing import Any

from podsrl.control import fixed
from podsrl.control.base import View
from podsrl.errors import UsageError, short
from podsrl.lib.parts import Call, Parts
from podsrl.lib.user_function import calling
from podsrl.types import Ask, Group, Notes, Parent, Rollout

MAX_ASKS = 1 << 20
"""In one round; a budget that asks for more is mistaken, or endless."""
MAX_ROLLOUTS = 1 << 24
"""In one round: the bound of rollouts.num_rollouts."""
MAX_ROUNDS = 16
"""A budget that asks in more rounds of one step would never end."""


class Budget:
    """What a step asks for, and what of it is trained on: by the parts of a run, and where none decides by `fixed`."""

    def __init__(self, parts: Parts) -> None:
        def decides(moment: str) -> Call:
            return parts.one(moment) or Call(moment, getattr(fixed, moment))

        self._enough, self._questions, self._rollouts = map(decides, ("enough", "questions", "rollouts"))
        self._guide, self._keep = map(decides, ("guide", "keep"))

    def ask(self, view: View) -> list[Ask]:
        """What one round asks for; nothing ends the sampling of the step.

        Raises:
            UsageError: a part raised, gave something else than its moment wants, or asked in more than 16 rounds.
        """
        count = self._number_of_groups(view)
        asks = [Ask(index=index, num_rollouts=view.num_rollouts) for index in self._indices(view, count)]
        for part in (self._rollouts, self._guide):
            asks = self._answer(part, view, asks)
        if asks and view.round >= MAX_ROUNDS:
            part, end = (self._enough, "0") if count else (self._rollouts, "an empty list")
            raise UsageError(
                f"{part.option} asked in {MAX_ROUNDS} rounds of step {view.step + 1} and has not had enough: "
                f"end with {end}"
            )
        return asks

    def trained(self, view: View) -> set[str]:
        """Ids of the groups that are trained on; the others of the step are left out.

        Args:
            view: after the last round.

        Raises:
            UsageError: the part gave something else than ids of groups that are no probes.
        """
        return set(_ids(self._keep, view, view.groups, " of this step"))

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

    def _answer(self, part: Call, view: View, asks: Sequence[Ask]) -> list[Ask]:
        """What a part makes of the asks, checked, with Python's numbers."""
        found = _as_list(part(view, asks), part.option, "a sequence of Ask", MAX_ASKS)
        if len(found) > MAX_ASKS:
            raise UsageError(f"{part.option} returned more than {MAX_ASKS:,} asks in one round; end the list")
        known: dict[str, Group | Ask] = {group.id: group for group in (*view.waiting, *view.groups)}
        for ask in found:
            _check(ask, view, known, part.option)
            known[""] = ask
        if (total := sum(ask.num_rollouts for ask in found)) > MAX_ROLLOUTS:
            got, wanted = f"{short(total)} rollouts in one round", f"at most {MAX_ROLLOUTS:,}"
            raise UsageError(f"{part.option} asked for {got}; wanted {wanted}")
        return [replace(ask, index=int(ask.index), num_rollouts=int(ask.num_rollouts)) for ask in found]


def _check(ask: Any, view: View, known: Mapping[str, Group | Ask], option: str) -> None:
    """Check an ask; `known` has the groups of the step, and under "" the ask before it."""
    if not isinstance(ask, Ask):
        raise UsageError(f"{option} returned {short(ask)} among its asks; wanted an Ask")
    parent: Any = ask.parent
    has_start = bool(ask.start) or getattr(parent, "num_tokens", 0) > 0
    share: Any = ask.start_share
    for name, is_right, wanted in (
        ("index", _is_whole(ask.index) and 0 <= ask.index < view.num_train, f"0 .. {view.num_train - 1}"),
        ("num_rollouts", _is_whole(ask.num_rollouts) and ask.num_rollouts >= 1, "1, 2, …"),
        ("is_trained", isinstance(ask.is_trained, bool), "True or False"),
        ("origin", isinstance(ask.origin, str), "a text"),
        ("prompt", _is_prompt(ask.prompt), "None, a text, or a tuple of chat messages"),
        ("parent", parent is None or (isinstance(parent, Parent) and ask.joins), "a Parent in the group that it joins"),
        ("notes", isinstance(ask.notes, Notes) and (has_start or not ask.notes), "Notes, and only beside a start"),
        ("start", isinstance(ask.start, str) and not (ask.start and parent), "a text, and none beside parent"),
        ("start_share", isinstance(share, Real) and 0 <= float(share) < 1, "a share from 0 to below 1"),
    ):
        if not is_right:
            raise UsageError(f"{option} asked with {name} = {short(getattr(ask, name))}; wanted {wanted}")
    if ask.joins is None:
        return
    group = known.get(ask.joins) if isinstance(ask.joins, str) else None
    if group is None:
        wanted = (
            "the id of a group of this step, or of one that waits" if ask.joins else "an ask before it in the same list"
        )
        raise UsageError(f"{option} asked to join {short(ask.joins)}; wanted {wanted}")
    if parent is not None:
        lengths = {one.index: len(one.token_ids) for one in getattr(group, "rollouts", ())}
        if not 0 <= parent.num_tokens <= lengths.get(parent.index, -1):
            raise UsageError(
                f"{option} asked with parent = {parent} in group {ask.joins!r}; wanted a rollout that "
                "is judged, and at most its tokens"
            )
    if (group.index, group.is_trained) != (ask.index, ask.is_trained):
        raise UsageError(
            f"{option} asked with index = {ask.index}, is_trained = {ask.is_trained} to join group {ask.joins!r}, "
            f"which has {group.index}, {group.is_trained}; wanted the same"
        )


def recalled(part: Call | None, view: View) -> list[Group]:
    """The groups of earlier steps that are trained on, too.

    Args:
        part: its `recall`; None: no part has it.
        view: of a step whose groups are all judged.

    Raises:
        UsageError: the part raised, or gave something else than groups, each once.
    """
    if part is None:
        return []
    known = {group.id for group in view.groups}
    found = _as_list(part(view), part.option, "groups of earlier steps", MAX_ASKS)
    for group in found:
        if not isinstance(group, Group) or group.id in known:
            got = f"the group {group.id!r} twice" if isinstance(group, Group) else short(group)
            raise UsageError(f"{part.option} gave {got}; wanted groups of earlier steps, each once")
        known.add(group.id)
    return found


def repaired(part: Call, view: View, group: Group) -> list[Rollout]:
    """The repaired rollouts that join a group.

    Args:
        part: its `repair`.
        view: after the last round.
        group: of the step, judged.

    Raises:
        UsageError: the part raised, or gave something else than completions of the group with the next indices, some
            of whose tokens are given.
    """
    size = len(group.rollouts)
    found = _as_list(part(view, group), part.option, "completions", MAX_ROLLOUTS)
    for place, done in enumerate(found, start=size):
        if not isinstance(done, Rollout) or (done.group_id, done.index) != (group.id, place) or not done.given:
            raise UsageError(
                f"{part.option} gave {short(done)}; wanted completions of group {group.id!r} with the indices {size}, "
                f"{size + 1} … and given tokens"
            )
    return found


def waiting_ids(part: Call, view: View) -> list[str]:
    """Ids of the groups that wait for later steps.

    Args:
        part: its `wait`.
        view: after the last round.

    Raises:
        UsageError: the part raised, or gave something else than ids of groups of the step or of `View.waiting`, once
            each, none of them a probe.
    """
    return _ids(part, view, (*view.waiting, *view.groups))


def _ids(part: Call, view: View, groups: Sequence[Group], of_what: str = "") -> list[str]:
    """What a part answers: ids of some of the groups, once each, none of them a probe."""
    known = {group.id for group in groups if group.is_trained}
    wanted = f"ids of groups{of_what}, no probes"
    found = _as_list(part(view), part.option, wanted, len(known))
    for name in found:
        if not isinstance(name, str) or name not in known:
            raise UsageError(f"{part.option} returned {short(name)}; wanted {wanted}")
    if len(set(found)) != len(found):
        raise UsageError(f"{part.option} returned an id twice; wanted each group once")
    return found


def _is_prompt(prompt: Any) -> bool:
    if prompt is None or isinstance(prompt, str):
        return True
    return isinstance(prompt, tuple) and all(isinstance(message, Mapping) for message in prompt)


def _is_whole(value: Any) -> bool:
    """Whether it is a whole number, Python's or numpy's."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _as_list(answer: Any, option: str, wanted: str, most: int) -> list[Any]:
    """What it holds, but at most `most` + 1: it may be endless."""
    if isinstance(answer, (str, bytes, Mapping)) or not isinstance(answer, Iterable):
        raise UsageError(f"{option} returned {short(answer)}; wanted {wanted}")
    with calling(option):
        return list(islice(answer, most + 1))
