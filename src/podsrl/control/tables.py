"""The slots of `[budget]`, `[steer]` and `[replay]`: for each a table of what may fill it, and its default."""

from __future__ import annotations

from collections.abc import Mapping

from podsrl.lib.resolve import Table
from podsrl.lib.slots import Factory, Slot

ENOUGH: Table[Factory] = Table(
    {
        "one_round": "podsrl.control.fixed:one_round",
        "mixed": "podsrl.systems.dapo:DynamicSampling",
        "pilot": "podsrl.systems.pilot_commit:Pilot",
    }
)
"""Name -> what makes a part for `budget.enough`; the other tables likewise, each for its slot."""
QUESTIONS: Table[Factory] = Table(
    {
        "stream": "podsrl.control.fixed:stream",
        "dynamics": "podsrl.systems.dps:Dynamics",
        "difficulty": "podsrl.systems.dots:Difficulty",
        "profile": "podsrl.systems.sgpo:Profile",
    }
)
"""For `budget.questions`."""
ROLLOUTS: Table[Factory] = Table(
    {
        "equal": "podsrl.control.fixed:equal",
        "harder": "podsrl.systems.dars:Harder",
        "difficulty": "podsrl.systems.dots:Difficulty",
        "profile": "podsrl.systems.sgpo:Profile",
        "bandit": "podsrl.systems.gdro:Bandit",
        "confidence": "podsrl.systems.xrpo:Confidence",
        "worth": "podsrl.systems.worth:Worth",
        "seek": "podsrl.systems.reinforce_ada:Seek",
        "varied": "podsrl.systems.vigor:Varied",
        "neyman": "podsrl.systems.duet:Neyman",
        "hints": "podsrl.systems.adhint:Hints",
        "ambiguous": "podsrl.systems.latr:Ambiguous",
        "contrast": "podsrl.systems.trace:Contrast",
        "pilot": "podsrl.systems.pilot_commit:Pilot",
    }
)
"""For `budget.rollouts`."""
GUIDES: Table[Factory] = Table(
    {
        "none": "podsrl.control.fixed:none",
        "examples": "podsrl.systems.xrpo:Examples",
        "nudge": "podsrl.systems.nudgerl:Nudge",
    }
)
"""For `budget.guide`."""
KEEPS: Table[Factory] = Table(
    {
        "all": "podsrl.control.fixed:every",
        "mixed": "podsrl.systems.dapo:mixed_alone",
        "pilot": "podsrl.systems.pilot_commit:Pilot",
    }
)
"""For `budget.keep`."""
CLOSES: Table[Factory] = Table(
    {
        "never": "podsrl.control.steer:Never",
        "certain": "podsrl.control.close:Certain",
        "until_mixed": "podsrl.control.close:until_mixed",
    }
)
"""For `steer.close`."""
PRUNES: Table[Factory] = Table(
    {
        "never": "podsrl.control.steer:Never",
        "random": "podsrl.control.steer:Random",
        "quality": "podsrl.systems.arrol:Quality",
        "states": "podsrl.systems.poise:States",
        "ambiguous": "podsrl.systems.latr:Ambiguous",
        "confident": "podsrl.systems.echo:Confident",
        "contrast": "podsrl.systems.trace:Contrast",
    }
)
"""For `steer.prune`."""
BRANCHES: Table[Factory] = Table(
    {
        "never": "podsrl.control.steer:Never",
        "ambiguous": "podsrl.systems.latr:Ambiguous",
        "confident": "podsrl.systems.echo:Confident",
    }
)
"""For `steer.branch`."""
RECALLS: Table[Factory] = Table(
    {
        "nothing": "podsrl.control.fixed:nothing",
        "fifo": "podsrl.systems.dots_rr:Fifo",
        "swarm": "podsrl.systems.sapo:Swarm",
    }
)
"""For `replay.groups`."""
WAITS: Table[Factory] = Table({"nothing": "podsrl.control.fixed:nothing", "pilot": "podsrl.systems.pilot_commit:Pilot"})
"""For `replay.wait`."""
CLOSE = Slot("steer.close", CLOSES, ("view", "group"))
"""Asked while rollouts are generated; so are the next two."""
PRUNE = Slot("steer.prune", PRUNES, ("live",))
BRANCH = Slot("steer.branch", BRANCHES, ("live",))
RECALL = Slot("replay.groups", RECALLS, ("view",))
"""Asked when all of the step's groups are judged; before it `WAIT`, and first `REPAIR`."""
REPAIRS: Table[Factory] = Table({"never": "podsrl.control.steer:Never", "scope": "podsrl.systems.scope:Scope"})
"""For `replay.repair`."""
WAIT = Slot("replay.wait", WAITS, ("view",))
REPAIR = Slot("replay.repair", REPAIRS, ("view", "group"))
"""Asked of each group that is judged."""
SLOTS = (
    Slot("budget.enough", ENOUGH, ("view",)),
    Slot("budget.questions", QUESTIONS, ("view", "count")),
    Slot("budget.rollouts", ROLLOUTS, ("view", "asks")),
    Slot("budget.guide", GUIDES, ("view", "asks")),
    Slot("budget.keep", KEEPS, ("view",)),
)
"""Of `[budget]`, in the order in which they are asked."""
DEFAULTS = {"enough": "one_round", "questions": "stream", "rollouts": "equal", "guide": "none", "keep": "all"}
"""What fills each slot of `[budget]` unless the config says otherwise."""


def budget_names(names: Mapping[str, str]) -> dict[str, list[str]]:
    """Option of each slot -> what fills it, from slot -> name."""
    return {f"budget.{slot}": [name] for slot, name in (DEFAULTS | dict(names)).items()}
