"""The collector: asks, generates and scores in rounds. It knows no weights.

A step has three parts: `begin` asks its first round and gives the requests to the generator, `read` waits for the
completions, and `finish` scores them and asks further rounds. With several processes each generates and scores a share
of the groups, and all of them hold all groups afterwards.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any

from podsrl.control import Ask, Budget, View
from podsrl.errors import UsageError, short
from podsrl.generate import Generator, Kind, Sampling, add_stats, answers_of
from podsrl.generate.schedule.lengths import request_id
from podsrl.lib.stages import EXCHANGE
from podsrl.policy import prompt_ids
from podsrl.run.step.agreement import check_same_asks
from podsrl.run.step.collected import Collected
from podsrl.run.step.underway import Underway, take_stats
from podsrl.run.step.wanted import TOO_LONG, More, Wanted, by_group, check_join, merged
from podsrl.scale.exchange import exchange_groups
from podsrl.scale.processes import Processes
from podsrl.score import Scorer
from podsrl.types import Completion, Group, Rollout, Task

MAX_REMEMBERED_PROMPTS = 4096

Stage = Callable[[str], AbstractContextManager[Any]]
OnAnswer = Callable[[int, int], None]
"""Called with the number of completions that are done, and of all; both of this process."""


class Collector:
    """Turns asks into groups of scored rollouts.

    Args:
        engine: the generator; may be replaced at any time between rounds.
        scorer: judges completions.
        tokenizer: of the model.
        processes: that share the run.
        train: the training set.
        budget: decides what a step asks.
        sampling: how the rollouts that are trained on are drawn.
        max_prompt_tokens: a longer prompt is an error. What a task set holds was looked through before; of a set that
            makes its tasks on demand, a sample.
        max_guided_tokens: a guide's prompt that is longer is dropped, and the task's own is asked.
        kind, num_words: as in `answers_of`.
    """

    def __init__(
        self,
        engine: Generator,
        scorer: Scorer,
        tokenizer: Any,
        processes: Processes,
        *,
        train: Sequence[Task],
        budget: Budget,
        sampling: Sampling,
        max_prompt_tokens: int,
        max_guided_tokens: int,
        kind: Kind,
        num_words: int,
    ) -> None:
        self.engine, self.scorer, self.tokenizer, self._processes = engine, scorer, tokenizer, processes
        self.budget, self.sampling = budget, sampling
        self.underway: Underway | None = None
        """The step that has begun and is not finished."""
        self._train = train
        self._max_prompt_tokens, self._max_guided_tokens = max_prompt_tokens, max_guided_tokens
        self._kind, self._num_words = kind, num_words
        self._prompt_ids: dict[str, tuple[int, ...]] = {}
        self._texts: dict[tuple[int, ...], str] = {}  # decoded while others were still being generated

    def begin(self, view: View, *, stage: Stage = nullcontext) -> None:
        """Ask round 0 of a step, and give its requests to the generator: one with the ability "beside" starts now.

        Args:
            view: of round 0.
            stage: entered with "generate", "score" and, with several processes, EXCHANGE.

        Raises:
            UsageError: a part of the budget failed, or gave something that cannot be asked.
        """
        with stage("generate"):
            wanted = self._asked(view)
            take_stats(self.engine)
            rest = self._generated(self._processes.share(wanted), self.sampling)
            self.underway = Underway(view=view, wanted=wanted, rest=rest, begun=time.perf_counter())

    def read(self, *, is_judged: bool = False) -> None:
        """Wait until round 0 of the step under way, if there is one, is generated; the step stays under way.

        With `is_judged` slow rewards begin as the completions come: then `finish` has to follow. After an error no step
        is under way.
        """
        step = self.underway
        if step is None or step.rest is None:
            return
        step.overlapped_seconds = time.perf_counter() - step.begun
        try:
            for rollout in self._prefetched(step.wanted, step.rest) if is_judged else step.rest:
                step.rollouts.append(rollout)
        except BaseException:
            self.underway = None  # nothing can read what is missing, and a checkpoint must not hold a part of a step
            raise
        step.rest = None
        step.stats, step.peak_kv_bytes = take_stats(self.engine)

    def finish(self, *, stage: Stage = nullcontext) -> Collected:
        """Score what was read, and ask, generate and score further rounds; arguments and errors as of `begin`."""
        step, self.underway = self.underway, None
        assert step is not None and step.rest is None, "begun and read"
        take_stats(self.engine)
        view, wanted, rollouts = step.view, step.wanted, step.rollouts
        asked, postponed = Counter[str](), list[Completion]()
        while wanted:
            asked.update({each.group.id: each.count for each in wanted})
            postponed += [each.completion for each in rollouts if _is_postponed(each)]
            view = view.after(self._judged(wanted, rollouts, stage))
            with stage("generate"):
                wanted = self._asked(view)
                rollouts = list(self._generate(self._processes.share(wanted), self.sampling)) if wanted else []
        self.scorer.new_step()
        trained = self.budget.trained(view)
        self.budget.check_sizes({group.id: asked[group.id] for group in view.groups if group.id in trained})
        stats, peak_kv_bytes = take_stats(self.engine)
        return Collected(
            seen=view.groups,
            trained=trained,
            postponed=tuple(postponed),
            data_position=view.stream.position,
            stats=add_stats([step.stats, stats]),
            peak_kv_bytes=max(step.peak_kv_bytes, peak_kv_bytes),
            overlapped_seconds=step.overlapped_seconds,
        )

    def answer(
        self,
        wanted: Sequence[tuple[Group, int]],
        sampling: Sampling,
        *,
        on_answer: OnAnswer | None = None,
    ) -> list[Group]:
        """Add rollouts to groups, which may be empty so far (`new_group`).

        Args:
            wanted: each group with the number of rollouts to add; the same on every process. Its id decides, with the
                run's seed, every random number.
            sampling: how they are drawn.
            on_answer: called after each completion.

        Returns:
            The grown groups in the same order, on every process.
        """
        found = list(self.answers(self._processes.share(wanted), sampling, on_answer=on_answer))
        return self._grown([group for group, _ in wanted], found, nullcontext)

    def answers(
        self,
        wanted: Sequence[tuple[Group, int]],
        sampling: Sampling,
        *,
        num_waiting: int | None = None,
        on_answer: OnAnswer | None = None,
    ) -> Iterator[Group]:
        """As `answer`, of this process alone: each group with the rollouts to add, in place of those it has.

        Args:
            num_waiting: whole groups that wait before the first is judged and yielded, while workers judge them and
                others are generated; None: all groups are judged in one call, and yielded in the order of `wanted`.
        """
        asked = {group.id: Wanted(group, (More(count),)) for group, count in wanted}
        found: dict[str, list[Rollout]] = {name: [] for name in asked}
        whole, total = deque[str](), sum(each.count for each in asked.values())
        for done, rollout in enumerate(self._generate(list(asked.values()), sampling), start=1):
            name = rollout.completion.request_id
            found[name].append(rollout)
            if on_answer is not None:
                on_answer(done, total)
            if num_waiting is not None and len(found[name]) == asked[name].count:
                whole.append(name)
                if len(whole) > num_waiting:
                    yield from self._score([asked[whole[0]]], found.pop(whole.popleft()))
        for names in [[name] for name in whole] if num_waiting is not None else [list(found)]:
            yield from self._score([asked[name] for name in names], chain.from_iterable(found[name] for name in names))

    def prompt_ids(self, task: Task) -> tuple[int, ...]:
        """Tokens of a task's prompt. The newest thousands are remembered, since a step needs each twice."""
        ids = self._tokens(task)
        if len(ids) > self._max_prompt_tokens:
            raise UsageError(
                f"prompt of task {task.id!r} has {len(ids)} tokens, wanted 1 .. rollouts.max_prompt_tokens = "
                f"{self._max_prompt_tokens}: raise the limit or remove the task"
            )
        return ids

    def _tokens(self, task: Task) -> tuple[int, ...]:
        key = repr(task.prompt)  # which tells `TokenMarkup` from the same text of a data set
        if key not in self._prompt_ids:
            if len(self._prompt_ids) >= MAX_REMEMBERED_PROMPTS:
                self._prompt_ids.clear()
            self._prompt_ids[key] = prompt_ids(self.tokenizer, task)
        return self._prompt_ids[key]

    def _asked(self, view: View) -> list[Wanted]:
        """The group of each ask, new or joined, with the rollouts to add; asks of one group are together."""
        asks = self.budget.ask(view)
        check_same_asks(asks, self._processes)
        groups = {group.id: group for group in view.groups}
        more: dict[str, list[More]] = defaultdict(list)
        for ask in asks:
            group = groups.get(ask.joins or "") or self._new_group(view, ask, place=len(groups))
            groups[group.id] = group
            more[group.id].append(self._way(ask, group.task))
        return [Wanted(groups[name], merged(of_group)) for name, of_group in more.items()]

    def _way(self, ask: Ask, task: Task) -> More:
        """How an ask's rollouts are asked; a guided prompt beyond the limit is dropped, never cut."""
        if ask.prompt is None:
            return More(ask.num_rollouts, None, ask.origin)
        try:
            ids = self._tokens(replace(task, prompt=ask.prompt))
        except UsageError as error:
            raise UsageError(f"the budget asked with another prompt, {short(ask.prompt)}: {error}") from None
        if len(ids) > self._max_guided_tokens:
            return More(ask.num_rollouts, None, TOO_LONG)
        return More(ask.num_rollouts, ids, ask.origin)

    def _new_group(self, view: View, ask: Ask, place: int) -> Group:
        task = self._train[ask.index]
        group = new_group(request_id(view.step, place, task.id), task)
        return replace(group, index=ask.index, step=view.step, is_trained=ask.is_trained)

    def _generated(self, wanted: Sequence[Wanted], sampling: Sampling) -> Iterator[Rollout]:
        """Not judged; by this process alone. A generator with the ability "beside" starts when this is called."""
        check_join(wanted, self.engine)
        asked = {
            request.id: (request, way, each.group.id)
            for each in wanted
            for request, way in each.requests(self.prompt_ids(each.group.task), sampling)
        }
        requests = [request for request, _, _ in asked.values()]
        found = answers_of(self.engine, requests, kind=self._kind, num_words=self._num_words)
        return (_unjudged(completion, *asked[completion.request_id][1:]) for completion in found)

    def _generate(self, wanted: Sequence[Wanted], sampling: Sampling) -> Iterator[Rollout]:
        """As `_generated`, and slow rewards begin as the rollouts come."""
        return self._prefetched(wanted, self._generated(wanted, sampling))

    def _prefetched(self, wanted: Sequence[Wanted], rollouts: Iterable[Rollout]) -> Iterator[Rollout]:
        task_of = {each.group.id: each.group.task for each in wanted}
        for rollout in rollouts:
            if self.scorer.has_workers and not rollout.is_pruned and not _is_postponed(rollout):
                self.scorer.prefetch(task_of[rollout.completion.request_id], self._text(rollout.completion))
            yield rollout

    def _judged(self, wanted: Sequence[Wanted], rollouts: Iterable[Rollout], stage: Stage) -> list[Group]:
        """The wanted groups, grown by the rollouts of this process and of the others."""
        with stage("score"):
            found = self._score(self._processes.share(wanted), rollouts, is_last=False)
        return self._grown([each.group for each in wanted], found, stage)

    def _grown(self, groups: Sequence[Group], found: list[Group], stage: Stage) -> list[Group]:
        """The groups with the rollouts to add, which this process has found and the others."""
        if not self._processes.is_alone:
            with stage(EXCHANGE):
                found = exchange_groups({group.id: group.task for group in groups}, found, self._processes)
        return [
            replace(group, prompt_ids=more.prompt_ids).with_more(more.rollouts)
            for group, more in zip(groups, found, strict=True)
        ]

    def _score(self, wanted: Sequence[Wanted], rollouts: Iterable[Rollout], *, is_last: bool = True) -> list[Group]:
        """The groups with these rollouts, judged, in place of their own; by this process alone."""
        if not wanted:
            return []
        found = list(by_group(wanted, (each for each in rollouts if not _is_postponed(each))).values())
        completions = [[rollout.completion for rollout in of_group] for of_group in found]
        texts = self._all_texts(completions)
        texts_PG = [[texts[completion.token_ids] for completion in of_group] for of_group in completions]
        judged = self.scorer.score([each.group.task for each in wanted], completions, texts_PG, is_last=is_last)
        return [
            replace(each.group, prompt_ids=self.prompt_ids(each.group.task), rollouts=tuple(map(_as_asked, new, old)))
            for each, new, old in zip(wanted, judged, found, strict=True)
        ]

    def _text(self, completion: Completion) -> str:
        ids = completion.token_ids
        if ids not in self._texts:
            self._texts[ids] = self.tokenizer.decode(ids, skip_special_tokens=True)
        return self._texts[ids]

    def _all_texts(self, completions: Sequence[Sequence[Completion]]) -> dict[tuple[int, ...], str]:
        """Each distinct completion decoded once, and then forgotten."""
        distinct = {completion.token_ids: None for of_group in completions for completion in of_group}
        known = {ids: self._texts.pop(ids) for ids in distinct if ids in self._texts}
        if new := [ids for ids in distinct if ids not in known]:
            known |= zip(new, self.tokenizer.batch_decode(new, skip_special_tokens=True), strict=True)
        return known


def _unjudged(completion: Completion, way: More, name: str) -> Rollout:
    """A rollout of the group of this name, asked in this way."""
    completion = completion if completion.request_id == name else replace(completion, request_id=name)
    return Rollout(
        completion=completion,
        text="",
        reward=math.nan,
        parts={},
        is_correct=False,
        prompt_ids=way.prompt_ids,
        origin=way.origin,
    )


def _as_asked(judged: Rollout, asked: Rollout) -> Rollout:
    if asked.prompt_ids is None and not asked.origin:
        return judged
    return replace(judged, prompt_ids=asked.prompt_ids, origin=asked.origin)


def _is_postponed(rollout: Rollout) -> bool:
    return rollout.completion.finish_reason == "postponed"


def new_group(name: str, task: Task) -> Group:
    """A group without rollouts; its prompt becomes tokens with the first of them."""
    return Group(id=name, task=task, prompt_ids=(), rollouts=())
