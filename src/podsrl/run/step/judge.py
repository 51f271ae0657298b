"""Completions to rollouts, in one call or as they come; each is decoded once and judged once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from podsrl.score import Scorer
from podsrl.types import Open, Rollout, Task


class Judge:
    """Decodes and judges rollouts.

    Args:
        scorer: judges texts.
        tokenizer: of the model.
    """

    def __init__(self, scorer: Scorer, tokenizer: Any) -> None:
        self.scorer, self.tokenizer = scorer, tokenizer
        self._texts: dict[tuple[int, ...], str] = {}  # decoded while others were still being generated
        self._early: dict[tuple[str, int], Rollout] = {}  # judged meanwhile

    def prefetched(self, opens: Sequence[Open], completions: Iterable[Rollout]) -> Iterator[Rollout]:
        """The completions of open groups, as they come; slow rewards begin."""
        task_of = {each.group.id: each.group.task for each in opens}
        for completion in completions:
            if self.scorer.has_workers and _is_judged(completion):
                self.scorer.prefetch(task_of[completion.group_id], self._text(completion))
            yield completion

    def early(self, tasks_P: Sequence[Task], completions_PG: Sequence[Sequence[Rollout]]) -> list[list[Rollout]]:
        """Of completions that were prefetched, those whose reward takes no waiting, judged; in the same nesting."""
        ready_PG = [
            [one for one in of_group if self._is_ready(task, one)]
            for task, of_group in zip(tasks_P, completions_PG, strict=True)
        ]
        rollouts_PG = self._judged(tasks_P, ready_PG, is_last=False) if any(ready_PG) else [[] for _ in ready_PG]
        for ready, rollouts in zip(ready_PG, rollouts_PG, strict=True):
            self._early |= zip(_keys(ready), rollouts, strict=True)
        return rollouts_PG

    def score(
        self, tasks_P: Sequence[Task], completions_PG: Sequence[Sequence[Rollout]], *, is_last: bool
    ) -> list[list[Rollout]]:
        """The rollouts, in the same nesting; arguments as of `Scorer.score`."""
        known = {
            key: self._early.pop(key) for of_group in completions_PG for key in _keys(of_group) if key in self._early
        }
        new_PG = [
            [one for key, one in zip(_keys(of_group), of_group, strict=True) if key not in known]
            for of_group in completions_PG
        ]
        judged = map(iter, self._judged(tasks_P, new_PG, is_last=is_last))
        return [
            [known[key] if key in known else next(new) for key in _keys(of_group)]
            for of_group, new in zip(completions_PG, judged, strict=True)
        ]

    def new_step(self) -> None:
        """Forget what nobody asked for; the time limit of rewards is back at its full length."""
        self._texts, self._early = {}, {}
        self.scorer.new_step()

    def _is_ready(self, task: Task, one: Rollout) -> bool:
        if not _is_judged(one):
            return False
        return not self.scorer.has_workers or self.scorer.is_ready(task, self._text(one))

    def _judged(
        self, tasks_P: Sequence[Task], completions_PG: Sequence[Sequence[Rollout]], *, is_last: bool
    ) -> list[list[Rollout]]:
        texts = self._all_texts(completions_PG)
        texts_PG = [[texts[completion.token_ids] for completion in of_group] for of_group in completions_PG]
        return self.scorer.score(tasks_P, completions_PG, texts_PG, is_last=is_last)

    def _text(self, completion: Rollout) -> str:
        ids = completion.token_ids
        if ids not in self._texts:
            self._texts[ids] = self.tokenizer.decode(ids, skip_special_tokens=True)
        return self._texts[ids]

    def _all_texts(self, completions: Sequence[Sequence[Rollout]]) -> dict[tuple[int, ...], str]:
        """Each distinct completion decoded once, and then forgotten."""
        distinct = {completion.token_ids: None for of_group in completions for completion in of_group}
        known = {ids: self._texts.pop(ids) for ids in distinct if ids in self._texts}
        if new := [ids for ids in distinct if ids not in known]:
            known |= zip(new, self.tokenizer.batch_decode(new, skip_special_tokens=True), strict=True)
        return known


def _keys(completions: Sequence[Rollout]) -> list[tuple[str, int]]:
    return [(completion.group_id, completion.index) for completion in completions]


def _is_judged(one: Rollout) -> bool:
    """Whether reward functions see it."""
    return not one.is_open and not one.is_pruned
