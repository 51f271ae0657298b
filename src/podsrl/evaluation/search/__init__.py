"""Search at test time: several answers to a question, or steps of them, become the one that is given.

`base` says what a search decides and on what, `rules` holds the searches, `run` asks in rounds on the desk,
`judge` says how good an answer is so far, `result` is accuracy against generated tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from podsrl.lib.resolve import Table

if TYPE_CHECKING:
    from podsrl.evaluation.search.base import Search
    from podsrl.score import Reward

SEARCHES: Table[Search] = Table(
    {name: f"podsrl.evaluation.search.rules:{name}" for name in ("majority", "best", "particles", "dora", "ets")}
)
"""Name of a search, as in `pods eval --search` -> the search."""

JUDGES: Table[Reward] = Table({"steps": "podsrl.evaluation.search.judge:right_so_far"})
"""Name of a judge, as in `pods eval --judge` -> the function."""

STEP_ENDS: Mapping[str, str] = {"steps": "."}
"""Name of a judge -> the text that ends a step of the answers that it knows."""
STEP_END = "\n\n"
"""Ends a step of any other."""
