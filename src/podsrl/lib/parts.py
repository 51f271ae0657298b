"""The slots of a run, and the parts that ship, each with the slots that it fills; `lib/slots.py` makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from podsrl.lib.resolve import Table

Factory = Callable[..., Any]
"""What makes a part: its keyword-only parameters are the part's options."""


@dataclass(frozen=True, slots=True)
class Slot:
    """An option that names a part."""

    option: str
    """For example "budget.rollouts"; its last word names the method of an object that fills it."""
    table: Mapping[str, Factory]
    """Name -> what makes the part."""
    arguments: tuple[str, ...]
    """What its function is called with, by position."""

    @property
    def method(self) -> str:
        """The method of an object that fills the slot."""
        return self.option.rpartition(".")[2]

    @property
    def shape(self) -> str:
        """For messages: "rollouts(view, asks)"."""
        return f"{self.method}({', '.join(self.arguments)})"


_ARGUMENTS = {
    "budget.enough": "view",
    "budget.questions": "view count",
    "budget.rollouts": "view asks",
    "budget.guide": "view asks",
    "budget.keep": "view",
    "steer.close": "view group",
    "steer.prune": "live",
    "steer.branch": "live",
    "replay.groups": "view",
    "replay.wait": "view",
    "replay.repair": "view group",
    "loss.shape": "groups selections advantages",
    "loss.bound": "groups selections",
}
"""Option of each slot -> what its function is called with. In this order the parts of a run are made, and learn."""
_PARTS = (
    ("one_round", "podsrl.control.fixed:one_round", "budget.enough"),
    ("stream", "podsrl.control.fixed:stream", "budget.questions"),
    ("equal", "podsrl.control.fixed:equal", "budget.rollouts"),
    ("none", "podsrl.control.fixed:none", "budget.guide"),
    ("all", "podsrl.control.fixed:every", "budget.keep"),
    ("never", "podsrl.control.fixed:Nothing", "steer.close steer.prune steer.branch replay.repair"),
    ("nothing", "podsrl.control.fixed:Nothing", "replay.groups replay.wait"),
    ("same", "podsrl.update.bounds:of_the_loss", "loss.bound"),
    ("certain", "podsrl.control.close:Certain", "steer.close"),
    ("until_mixed", "podsrl.control.close:until_mixed", "steer.close"),
    ("random", "podsrl.control.steer:Random", "steer.prune"),
    ("mixed", "podsrl.systems.dapo:DynamicSampling", "budget.enough"),
    ("mixed", "podsrl.systems.dapo:mixed_alone", "budget.keep"),  # where it does not fill `budget.enough` too
    ("dynamics", "podsrl.systems.dps:Dynamics", "budget.questions"),
    ("harder", "podsrl.systems.dars:Harder", "budget.rollouts"),
    ("difficulty", "podsrl.systems.dots:Difficulty", "budget.questions budget.rollouts"),
    ("profile", "podsrl.systems.sgpo:Profile", "budget.questions budget.rollouts"),
    ("bandit", "podsrl.systems.gdro:Bandit", "budget.rollouts"),
    ("confidence", "podsrl.systems.xrpo:Confidence", "budget.rollouts"),
    ("worth", "podsrl.systems.worth:Worth", "budget.rollouts"),
    ("seek", "podsrl.systems.reinforce_ada:Seek", "budget.rollouts"),
    ("varied", "podsrl.systems.vigor:Varied", "budget.rollouts"),
    ("neyman", "podsrl.systems.duet:Neyman", "budget.rollouts"),
    ("hints", "podsrl.systems.adhint:Hints", "budget.rollouts"),
    ("examples", "podsrl.systems.xrpo:Examples", "budget.guide"),
    ("nudge", "podsrl.systems.nudgerl:Nudge", "budget.guide"),
    ("quality", "podsrl.systems.arrol:Quality", "steer.prune"),
    ("states", "podsrl.systems.poise:States", "steer.prune"),
    ("ambiguous", "podsrl.systems.latr:Ambiguous", "budget.rollouts steer.prune steer.branch"),
    ("anchors", "podsrl.systems.gigpo:Anchors", "loss.shape"),
    ("bins", "podsrl.systems.gdro:BinWeights", "loss.shape"),
    ("confident", "podsrl.systems.echo:Confident", "steer.prune steer.branch loss.shape loss.bound"),
    ("contexts", "podsrl.systems.nudgerl:Contexts", "loss.shape"),
    ("contrast", "podsrl.systems.trace:Contrast", "budget.rollouts steer.prune loss.shape"),
    ("pilot", "podsrl.systems.pilot_commit:Pilot", "budget.enough budget.rollouts budget.keep replay.wait"),
    ("fifo", "podsrl.systems.dots_rr:Fifo", "replay.groups"),
    ("swarm", "podsrl.systems.sapo:Swarm", "replay.groups"),
    ("scope", "podsrl.systems.scope:Scope", "replay.repair"),
    ("halves", "podsrl.systems.adhint:Halves", "loss.shape"),
    ("novelty", "podsrl.systems.xrpo:Novelty", "loss.shape"),
    ("pool_mean", "podsrl.systems.reinforce_ada:pool_mean", "loss.shape"),
    ("posterior", "podsrl.systems.aero:posterior", "loss.shape"),
    ("probe", "podsrl.systems.poise:Probe", "loss.shape"),
    ("votes", "podsrl.systems.echo:Votes", "loss.shape"),
)
"""Name of each part, what makes it, and the slots that it fills."""


def _slot(option: str) -> Slot:
    places = {name: place for name, place, options in _PARTS if option in options.split()}
    return Slot(option, Table[Factory](places), tuple(_ARGUMENTS[option].split()))


SLOTS: Mapping[str, Slot] = {option: _slot(option) for option in _ARGUMENTS}
"""Option -> its slot."""
