"""Options of the control stage."""

from __future__ import annotations

from podsrl.config.section import Section


class BudgetConfig(Section):
    """Which questions a step asks, and how many rollouts of each. A part's own options stand in `[options.NAME]`."""

    enough: str = "one_round"
    """How many new groups each round asks for: a known part (`podsrl.control.ENOUGH`: "one_round", all
    `rollouts.num_prompts` at once) or "module:function"."""
    questions: str = "stream"
    """Which questions: a known part (`podsrl.control.QUESTIONS`: "stream", the next ones of the data stream) or
    "module:function"."""
    rollouts: str = "equal"
    """How many rollouts of each: a known part (`podsrl.control.ROLLOUTS`: "equal", `rollouts.num_rollouts`) or
    "module:function"."""
