"""SCOPE (arXiv 2602.24110): the beginning of a wrong answer that is right is kept, and the rest of it is put right.

A wrong rollout whose first step is right is repaired: what is before its first wrong step are its own tokens, with the
log-probs that they were drawn with, and a worked solution goes on from there. The repaired rollout is judged and joins
the group, whose statistics hold it. So a question that no rollout solves has a right one, and the tokens before the
mistake are rewarded where those from the mistake on are not.

Only abstract and accounts of the paper could be read, so the rest is ours. At most `share` of a group's rollouts are
repaired, in the order of the group, and one of those that begin with the same tokens; only what the model has ended by
itself, and asked plainly, without forks. What the solution says counts as given, so no loss counts it, where the paper
may shape it. Which step is wrong, and how it goes on, a function of the task says, not a model.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Annotated, Any, cast

from pydantic import Field

from podsrl.control.base import View
from podsrl.errors import UsageError, short
from podsrl.lib.user_function import calling, import_function
from podsrl.types import Group, Parent, Rollout, Task

Repaired = Callable[[Task, str], tuple[int, str] | None]
"""(task, wrong answer) -> place in the text where its first wrong step begins, and what a solution says from there on;
None: there is no right step before, or no repair."""


class Scope:
    """Repairs wrong rollouts; it learns nothing.

    Args:
        repair: "module:function" of a task and an answer; see `Repaired`.
        share: of a group's rollouts that may be repaired.
    """

    def __init__(self, *, repair: str, share: Annotated[float, Field(gt=0, le=1)] = 0.5) -> None:
        self._where = f"options.scope.repair = {repair!r}"
        self._repaired = cast(Repaired, import_function(repair, where=self._where, wanted="a function f(task, answer)"))
        self._share = share
        self._tokenizer: Any = None
        self._most_tokens = 0

    def check_model(self, tokenizer: Any, max_tokens: int) -> None:
        """Remember how text becomes tokens, and how many a rollout may have."""
        self._tokenizer, self._most_tokens = tokenizer, max_tokens

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        return num_prompts, num_rollouts + int(self._share * num_rollouts)

    def repair(self, view: View, group: Group) -> list[Rollout]:
        """Repaired rollouts of a group, to be judged and added."""
        size, done = len(group.rollouts), dict[tuple[int, ...], Rollout]()
        for one in self._candidates(group):
            done.setdefault(one.token_ids[: one.given[0][0]], one)
        found = islice(done.values(), int(self._share * size))
        return [replace(one, index=size + place) for place, one in enumerate(found)]

    def _candidates(self, group: Group) -> Iterator[Rollout]:
        for rollout in group.rollouts:
            is_own = rollout.prompt_ids is None and rollout.parent is None and not rollout.given
            if is_own and rollout.is_valid and not rollout.is_correct and rollout.finish_reason == "stop":
                one = self._of(group.task, rollout)
                if one is not None:
                    yield one

    def _of(self, task: Task, rollout: Rollout) -> Rollout | None:
        with calling(self._where, "f(task, answer)"):
            found = self._repaired(task, rollout.text)
        if found is None:
            return None
        place, rest = _checked(found, self._where, rollout.text)
        kept = self._kept(rollout.token_ids, rollout.text[:place])
        text = self._tokenizer.decode(rollout.token_ids[:kept], skip_special_tokens=True)
        missing = rollout.text[len(text) : place] + rest
        end = [self._tokenizer.eos_token_id]
        given = tuple(self._tokenizer(missing, add_special_tokens=False)["input_ids"] + end)
        if not kept or kept + len(given) > self._most_tokens:
            return None
        return Rollout(
            group_id=rollout.group_id,
            index=rollout.index,
            token_ids=(*rollout.token_ids[:kept], *given),
            logprobs=(*rollout.logprobs[:kept], *(0.0,) * len(given)),
            version=rollout.version,
            versions=(*rollout.versions[:kept], *(rollout.version,) * len(given)) if rollout.versions else (),
            given=((kept, kept + len(given)),),
            parent=Parent(rollout.index, kept),
        )

    def _kept(self, token_ids: Sequence[int], text: str) -> int:
        """The most first tokens whose text begins this one."""

        def told(count: int) -> str:
            return str(self._tokenizer.decode(token_ids[:count], skip_special_tokens=True))

        kept = bisect_right(range(len(token_ids) + 1), len(text), key=lambda count: len(told(count))) - 1
        while kept > 0 and not text.startswith(told(kept)):  # a character of several tokens, or one that is read anew
            kept -= 1
        return kept


def _checked(found: Any, where: str, text: str) -> tuple[int, str]:
    """UsageError: it is no place in the text with a text."""
    is_pair = isinstance(found, tuple) and len(found) == 2
    if not is_pair or not isinstance(found[0], int) or not isinstance(found[1], str) or not 0 < found[0] <= len(text):
        raise UsageError(f"{where} returned {short(found)}; wanted None, or a place 1 .. {len(text)} and a text")
    return found[0], found[1]
