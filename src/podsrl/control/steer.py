"""Rollouts that are ended, and groups that branch, while they are written: the parts of a run that look at them.

A part sees running rollouts between forward and draw (`Live`) and answers with records: `End` and `Fork` of rollouts
that it was shown, and `Note` to keep an array with one. It is shown a rollout once at each of the token counts `at`, an
attribute of the part; None, or none at all: in every step. A later part sees what the earlier ones left.

An answer names rollouts that are just being shown, so it is a function of what the part knows and of those rollouts:
neither slots nor schedule change what is pruned, or what forks. A fork has the next index of its group when it is made,
and the index decides what it draws: so with fewer slots than rollouts forks may draw others.

A part with a method `together(rollouts)` decides on whole groups: it may `Hold` rollouts, and is asked which of a
group's go on when all of the round have come so far or ended.

What a part is stands in plain values: its system's name, its options and its state (`Steering.pack`). So a generator in
another process makes its own, and the parts there answer as they would here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from safetensors.numpy import load, save

from podsrl.errors import UsageError, short
from podsrl.lib.part_states import split_states, whole_states
from podsrl.lib.parts import Call, Parts, make_parts
from podsrl.lib.user_function import calling
from podsrl.lib.watch import Act, End, Fork, Hold, Live, Note

_PLAIN = "plain"
"""Name of what is no array: systems, options and plain state, as JSON. An array's name has a "/"."""


class Random:
    """Each rollout that comes to a token count ends there with the same probability: a control for other parts.

    The coin is a function of (seed, group, index). A group may lose all of its rollouts.

    Args:
        at: token count at which the coin is thrown; shorter rollouts are never ended.
        share: probability with which a rollout is ended.
    """

    def __init__(self, *, at: Annotated[int, Field(ge=0)], share: Annotated[float, Field(ge=0, lt=1)] = 0.5) -> None:
        self.at, self._share = (at,), share

    def look(self, live: Live) -> list[End]:
        """Those whose coin says so."""
        is_ended = (live.coins("prune/random") < self._share).tolist()
        return [End(key) for key, ends in zip(live.keys, is_ended, strict=True) if ends]


class Steering:
    """Parts that look at running rollouts, as one watch (`podsrl.generate.Watch`).

    Args:
        systems: names of their systems, in order.
        options: system's name -> its options.
        parts: where they are, if they have been made: they are used, not copied.

    Raises:
        UsageError: as `make_parts`; or a part whose `at` is no collection of token counts.
    """

    def __init__(
        self, systems: Sequence[str], options: Mapping[str, Mapping[str, Any]], parts: Parts | None = None
    ) -> None:
        own = {name: options.get(name, {}) for name in systems}
        self._parts = (make_parts(systems, own) if parts is None else parts).only("look")
        self._systems = self._parts.systems
        self._options = {name: dict(own[name]) for name in self._systems}
        self._looks = [(part, counts_of(part)) for part in self._parts["look"]]
        counts = [each for _, each in self._looks]
        self.at = None if None in counts else frozenset().union(*(each or () for each in counts))

    def look(self, live: Live) -> list[Act]:
        """As `podsrl.generate.Watch.look`.

        Raises:
            UsageError: a part raised, or answered with anything but its records of rollouts that it was shown.
        """
        acts = list[Act]()
        for part, counts in self._looks:
            found = _answer(part, counts, live)
            acts += found
            if ended := {act.key for act in found if isinstance(act, End)}:
                live = live.only([i for i, key in enumerate(live.keys) if key not in ended])
        gone = {act.key for act in acts if isinstance(act, End)}
        return sorted(acts, key=lambda act: -1 if act.key in gone else act.key[1])  # a fork has its group's next index

    def pack(self) -> bytes:
        """The parts as bytes, with what they have learned.

        Raises:
            UsageError: a state of another form than `podsrl.lib.parts.State`.
        """
        values, arrays = split_states(self._parts.state())
        plain = json.dumps({"systems": self._systems, "options": self._options, "state": values}).encode()
        return save({_PLAIN: np.frombuffer(plain, dtype=np.uint8), **arrays})

    @staticmethod
    def unpack(data: bytes) -> Steering:
        """What `pack` was called on, with parts of its own. UsageError: as of the class."""
        arrays = load(data)
        plain = json.loads(arrays.pop(_PLAIN).tobytes())
        made = Steering(plain["systems"], plain["options"])
        made._parts.restore(whole_states(plain["state"], arrays))
        return made


def counts_of(part: Call) -> frozenset[int] | None:
    """The token counts at which a part that looks at rollouts is shown them; None: all of them.

    Raises:
        UsageError: its `at` is something else.
    """
    at = getattr(part.part, "at", None)
    if at is None:
        return None
    if not isinstance(at, Collection) or not all(type(count) is int and count >= 0 for count in at):
        raise UsageError(f"{part.option} has at = {short(at)}; wanted token counts, 0 or more each, or None for all")
    return frozenset(at)


def _answer(part: Call, counts: frozenset[int] | None, live: Live) -> list[Act]:
    """What a part answers, checked, to those of the rollouts that are due for it."""
    due = live if counts is None else live.only([i for i, count in enumerate(live.num_tokens) if count in counts])
    if not due.keys:
        return []
    found, wanted = part(due), "End, Fork and Note records of rollouts that it was shown, in a list"
    if not isinstance(found, Iterable):
        raise UsageError(f"{part.option} returned {short(found)}; wanted {wanted}")
    with calling(part.option):
        acts = list(found)
    known, may_hold = set(due.keys), hasattr(part.part, "together")
    ended = {act.key for act in acts if isinstance(act, (End, Hold))}
    for act in acts:
        is_one = isinstance(act, (End, Fork, Note)) or (may_hold and isinstance(act, Hold))
        if not is_one or act.key not in known or (isinstance(act, Fork) and act.key in ended):
            raise UsageError(f"{part.option} returned {short(act)}; wanted {wanted}, and no fork of one that ends")
    return acts
