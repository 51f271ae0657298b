"""The moments of a step at which systems decide, and the systems that ship; `lib/parts.py` makes their parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Factory = Callable[..., Any]
"""What makes a part: its keyword-only parameters are the part's options."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment, and the method of a part that is called then.

    Of the words (`WORDS`) that say what goes with what, a part has those of its moments, and those of its own
    attributes `needs` and `breaks` besides.
    """

    name: str
    """Of the method, too."""
    arguments: tuple[str, ...]
    """What the method is called with, by position."""
    is_shared: bool = False
    """Whether several parts may have it, which are called in the order of `systems`."""
    needs: frozenset[str] = frozenset()
    """What has to hold for it."""
    breaks: frozenset[str] = frozenset()
    """What does not hold with it."""

    @property
    def shape(self) -> str:
        """For messages: "rollouts(view, asks)"."""
        return f"{self.name}({', '.join(self.arguments)})"


WORDS = {
    "equal_groups": "all groups have rollouts.num_rollouts rollouts",
    "whole_groups": "every rollout that is asked for is generated to its end",
    "settled_steps": "all that a step asks for has ended when it ends",
    "asked_once": "each group is asked once, whole",
    "fixed_sizes": "nothing else decides how many rollouts a question gets",
    "kept_alone": "nothing reads rollouts that max-variance drops",
    "one_version": "the weights stay the same until a rollout has ended",
    "one_turn": "a rollout is written in one go",
    "judged_singly": "rollouts are judged one by one",
    "one_process": "one process trains, which sees what others write and what is whole first",
    "lone_runs": "a run knows nothing of other runs",
    "free_indices": "a group's next index is free for a fork",
    "first_of_equals": "the rule keeps the first of equal rewards",
    "free_ties": "nothing else decides which of equal rewards are kept",
    "no_stop_strings": "no stop string may reach across a token that was set",
}
"""What a part or an option may need, and another one break; in words."""


def _moment(name: str, arguments: str, needs: str = "", breaks: str = "", *, is_shared: bool = False) -> Moment:
    words = frozenset(needs.split()), frozenset(breaks.split())
    return Moment(name, tuple(arguments.split()), is_shared, *words)


MOMENTS: Mapping[str, Moment] = {
    moment.name: moment
    for moment in (
        _moment("enough", "view", breaks="asked_once kept_alone"),
        _moment("questions", "view count", breaks="kept_alone"),
        _moment("rollouts", "view asks", breaks="asked_once fixed_sizes kept_alone"),
        _moment("guide", "view asks", breaks="kept_alone"),
        _moment("keep", "view", breaks="kept_alone"),
        _moment("close", "view group", "fixed_sizes judged_singly", "whole_groups equal_groups settled_steps"),
        _moment("look", "live", "one_version one_turn", is_shared=True),
        _moment("recall", "view"),
        _moment("wait", "view", "settled_steps"),
        _moment("repair", "view group", breaks="equal_groups settled_steps"),
        _moment("prefer", "groups", "first_of_equals free_ties", "kept_alone"),
        _moment("shape", "groups selections advantages", breaks="kept_alone", is_shared=True),
        _moment("bound", "groups selections"),
    )
}
"""Name -> moment."""
_SYSTEMS = {
    "adhint": "adhint:Hints,Halves",
    "aero": "reinforce_ada:Seek aero:Posterior",
    "arrol": "arrol:Quality",
    "dapo": "dapo:DynamicSampling",
    "dars": "dars:Harder",
    "dots": "dots:Difficulty",
    "dots_rr": "dots_rr:Fifo",
    "dps": "dps:Dynamics",
    "duet": "duet:Neyman",
    "echo": "echo:Votes,Confident",
    "gdro_prompts": "gdro_prompts:BinWeights",
    "gdro_rollouts": "gdro_rollouts:Bandit",
    "gigpo": "gigpo:Anchors",
    "latr": "latr:Ambiguous",
    "mixed": "dapo:Mixed",
    "nudgerl": "nudgerl:Nudge,Contexts",
    "pilot_commit": "pilot_commit:Pilot",
    "poise": "poise:States,Probe",
    "prof": "prof:Prof",
    "reinforce_ada": "reinforce_ada:Seek,PoolMean",
    "sapo": "sapo:Swarm",
    "scope": "scope:Scope",
    "sgpo": "sgpo:Profile",
    "trace": "trace:Contrast",
    "vigor": "vigor:Varied",
    "worth": "worth:Worth",
    "xrpo": "xrpo:Confidence,Examples,Novelty",
}
"""Name -> module of `podsrl.systems` and its classes."""
SYSTEMS: Mapping[str, tuple[str, ...]] = {
    "certain": ("podsrl.control.close:Certain",),
    "until_mixed": ("podsrl.control.close:UntilMixed",),
    "random": ("podsrl.control.steer:Random",),
    "levels": ("podsrl.control.levels:Levels",),
    **{
        name: tuple(
            f"podsrl.systems.{module}:{kind}"
            for module, _, kinds in (each.partition(":") for each in places.split())
            for kind in kinds.split(",")
        )
        for name, places in _SYSTEMS.items()
    },
}
"""Name of each system -> "module:class" of its parts, in the order in which they are asked."""
