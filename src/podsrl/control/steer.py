"""Rollouts that are ended, and groups that branch, while they are written: `steer.prune` and `steer.branch`.

A part sees running rollouts between forward and draw (`Live`) and answers with records: `prune(live)` with `End`,
`branch(live)` with `Fork`; both may keep numbers with a rollout (`Note`). It is shown a rollout once at each of the
token counts `at`, an attribute of the part; None, or none at all: in every step. First prune is asked, then branch,
which sees what is left.

An answer names rollouts that are just being shown, so it is a function of what the part knows and of those rollouts:
neither slots nor schedule change what is pruned, or what forks. A fork has the next index of its group when it is made,
and the index decides what it draws: so with fewer slots than rollouts forks may draw others.

A prune part with a method `together(rollouts)` decides on whole groups: it may postpone rollouts, and is asked which of
a group's go on when all of the round have come so far or ended.

What a part is stands in plain values: its name, its options and its state (`Steering.pack`). So a generator in another
process makes its own, and the parts there answer as they would here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from safetensors.numpy import load, save

from podsrl.errors import UsageError, short
from podsrl.lib.part_states import split_states, whole_states
from podsrl.lib.slots import Filled, Slots, make_slots
from podsrl.lib.user_function import calling
from podsrl.lib.watch import Act, End, Fork, Live, Note

_PLAIN = "plain"
"""Name of what is no array: names, options and plain state, as JSON. An array's name has a "/"."""


class Random:
    """Each rollout that comes to a token count ends there with the same probability: a control for other parts.

    The coin is a function of (seed, group, index). A group may lose all of its rollouts.

    Args:
        at: token count at which the coin is thrown; shorter rollouts are never ended.
        share: probability with which a rollout is ended.
    """

    def __init__(self, *, at: Annotated[int, Field(ge=0)], share: Annotated[float, Field(ge=0, lt=1)] = 0.5) -> None:
        self.at, self._share = (at,), share

    def prune(self, live: Live) -> list[End]:
        """Those whose coin says so."""
        is_ended = (live.coins("prune/random") < self._share).tolist()
        return [End(key) for key, ends in zip(live.keys, is_ended, strict=True) if ends]


class Steering:
    """`steer.prune` and `steer.branch` as one watch (`podsrl.generate.Watch`).

    Args:
        names: option of each of the two slots -> name of its part.
        options: part's name -> its options.
        slots: where the parts are, if they have been made: they are used, not copied.

    Raises:
        UsageError: as `make_slots`; or a part whose `at` is no collection of token counts.
    """

    def __init__(
        self, names: Mapping[str, str], options: Mapping[str, Mapping[str, Any]], slots: Slots | None = None
    ) -> None:
        self._names, self._options = dict(names), {name: dict(options.get(name, {})) for name in names.values()}
        every = {option: [name] for option, name in names.items()}
        if slots is None:
            slots = make_slots(every, self._options, others_are_filled=True)
        self._slots = slots.only(every)
        [self._prune], [self._branch] = self._slots["steer.prune"], self._slots["steer.branch"]
        self._pruned_at, self._branched_at = pruned_at, branched_at = counts_of(self._prune), counts_of(self._branch)
        self.at = None if pruned_at is None or branched_at is None else pruned_at | branched_at

    def look(self, live: Live) -> list[Act]:
        """As `podsrl.generate.Watch.look`.

        Raises:
            UsageError: a part raised, or answered with anything but its records of rollouts that it was shown.
        """
        ends = _answer(self._prune, self._pruned_at, live, End)
        if ended := {act.key for act in ends if isinstance(act, End)}:
            live = live.only([i for i, key in enumerate(live.keys) if key not in ended])
        forks = _answer(self._branch, self._branched_at, live, Fork)
        return [*ends, *sorted(forks, key=lambda fork: fork.key[1])]

    def pack(self) -> bytes:
        """The parts as bytes, with what they have learned.

        Raises:
            UsageError: a state of another form than `podsrl.lib.slots.State`.
        """
        values, arrays = split_states(self._slots.state())
        plain = json.dumps({"names": self._names, "options": self._options, "state": values}).encode()
        return save({_PLAIN: np.frombuffer(plain, dtype=np.uint8), **arrays})

    @staticmethod
    def unpack(data: bytes) -> Steering:
        """What `pack` was called on, with parts of its own. UsageError: as of the class."""
        arrays = load(data)
        plain = json.loads(arrays.pop(_PLAIN).tobytes())
        made = Steering(plain["names"], plain["options"])
        made._slots.restore(whole_states(plain["state"], arrays))
        return made


def counts_of(part: Filled) -> frozenset[int] | None:
    """The token counts at which a part of `steer.prune` or `steer.branch` is shown rollouts; None: all of them.

    Raises:
        UsageError: its `at` is something else.
    """
    at = getattr(part.part, "at", None)
    if at is None:
        return None
    if not isinstance(at, Collection) or not all(type(count) is int and count >= 0 for count in at):
        raise UsageError(f"{part.option} has at = {short(at)}; wanted token counts, 0 or more each, or None for all")
    return frozenset(at)


def _answer(part: Filled, counts: frozenset[int] | None, live: Live, kind: type[End | Fork]) -> list[Act]:
    """What a part answers, checked, to those of the rollouts that are due for it."""
    due = live if counts is None else live.only([i for i, count in enumerate(live.num_tokens) if count in counts])
    if not due.keys:
        return []
    found, wanted = part(due), f"{kind.__name__} records of rollouts that it was shown, in a list"
    if not isinstance(found, Iterable):
        raise UsageError(f"{part.option} returned {short(found)}; wanted {wanted}")
    with calling(part.option):
        acts = list(found)
    known, reasons = set(due.keys), ("pruned", "postponed") if hasattr(part.part, "together") else ("pruned",)
    for act in acts:
        if not isinstance(act, (kind, Note)) or act.key not in known or getattr(act, "reason", "pruned") not in reasons:
            raise UsageError(f"{part.option} returned {short(act)}; wanted {wanted}")
    return acts
