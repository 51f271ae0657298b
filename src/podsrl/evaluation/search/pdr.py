"""PDR: drafts in parallel, a workspace of the best of them, and one answer that refines these (arXiv 2510.01123).

This is the paper's shortest form, of two rounds. What distils is "the best few": as many of the drafts that the judge
finds best as fit into a prompt, each behind the question as in an earlier turn, the best one last.
"""

from __future__ import annotations

from collections.abc import Sequence

from podsrl.errors import UsageError
from podsrl.evaluation.search.base import Leaf, Search, highest
from podsrl.evaluation.search.whole import stay
from podsrl.tasks.rows import Prompt
from podsrl.tasks.solved import with_examples
from podsrl.types import Task, TokenMarkup


def workspaces(task: Task, drafts: Sequence[Leaf]) -> list[Prompt]:
    """The question behind all of its drafts, behind all but the worst, and so on down to the best one.

    Raises:
        UsageError: the prompt is one text of special tokens, and drafts before it would be read as such too.
    """
    if isinstance(task.prompt, TokenMarkup):
        raise UsageError(
            f"--search pdr shows drafts before the question, and the prompt of task {task.id!r} is one text with "
            "special tokens: give it as chat messages"
        )
    best = sorted(drafts, key=lambda leaf: -leaf.score)
    return [with_examples(task, [(task, leaf.text) for leaf in best[:size]]) for size in range(len(best), 0, -1)]


pdr = Search(grow=stay, choose=highest, is_stepwise=False, revise=workspaces)
"""The refined answer is given."""
