"""The collector: asks, generates and scores in rounds. It knows no weights.

A step has three parts: `begin` asks its first round and gives the requests to the generator, `read` waits for the
completions, and `finish` scores them and asks further rounds. With several processes each generates and scores a share
of the groups, and all of them hold all groups afterwards.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from podsrl.control import Ask, Budget, View
from podsrl.errors import UsageError, short
from podsrl.generate import Generator, Kind, Sampling, add_stats, answers_of
from podsrl.generate.schedule.lengths import request_id
from podsrl.policy import prompt_ids
from podsrl.run.checks import check_same_asks
from podsrl.run.collected import Collected
from podsrl.run.underway import Underway, take_stats
from podsrl.run.wanted import TOO_LONG, More, Wanted, check_join, marked, merged
from podsrl.scale.exchange import exchange_groups
from podsrl.scale.processes import Processes
from podsrl.score import Scorer
from podsrl.types import Completion, Group, Task

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
            stage: entered with "generate", "score" and, with several processes, "exchange".

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
        task_of = {each.group.id: each.group.task for each in step.wanted}
        try:
            for completion in step.rest:
                step.completions.append(completion)
                if is_judged:
                    self._prefetch(task_of[completion.request_id], completion)
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
        view, wanted, completions = step.view, step.wanted, step.completions
        asked, postponed = Counter[str](), list[Completion]()
        while wanted:
            asked.update({each.group.id: each.count for each in wanted})
            postponed += [each for each in completions if each.finish_reason == "postponed"]
            view = view.after(self._judged(wanted, completions, stage, is_last=False))
            with stage("generate"):
                wanted = self._asked(view)
                completions = list(self._generate(self._processes.share(wanted), self.sampling)) if wanted else []
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
        is_last: bool = True,
    ) -> list[Group]:
        """Add rollouts to groups, which may be empty so far (`new_group`).

        Args:
            wanted: each group with the number of rollouts to add; the same on every process. Its id decides, with the
                run's seed, every random number.
            sampling: how they are drawn.
            on_answer: called after each completion.
            is_last: as in `Scorer.score`.

        Returns:
            The grown groups in the same order, on every process.
        """
        everything = [Wanted(group, (More(count),)) for group, count in wanted]
        completions, own = [], self._processes.share(everything)
        total = sum(each.count for each in own)
        for done, completion in enumerate(self._generate(own, sampling), start=1):
            completions.append(completion)
            if on_answer is not None:
                on_answer(done, total)
        return self._judged(everything, completions, nullcontext, is_last)

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

    def _generated(self, wanted: Sequence[Wanted], sampling: Sampling) -> Iterator[Completion]:
        """By this process alone. A generator with the ability "beside" starts when this is called."""
        check_join(wanted, self.engine)
        requests = {
            request.id: (request, each.group.id)
            for each in wanted
            for request in each.requests(self.prompt_ids(each.group.task), sampling)
        }
        asked = [request for request, _ in requests.values()]
        found = answers_of(self.engine, asked, kind=self._kind, num_words=self._num_words)
        return (_of_group(completion, requests[completion.request_id][1]) for completion in found)

    def _generate(self, wanted: Sequence[Wanted], sampling: Sampling) -> Iterator[Completion]:
        """As `_generated`, and slow rewards begin as the completions come."""
        task_of = {each.group.id: each.group.task for each in wanted}
        for completion in self._generated(wanted, sampling):
            self._prefetch(task_of[completion.request_id], completion)
            yield completion

    def _prefetch(self, task: Task, completion: Completion) -> None:
        if self.scorer.has_workers and completion.finish_reason not in ("pruned", "postponed"):
            self.scorer.prefetch(task, self._text(completion))

    def _judged(
        self, wanted: Sequence[Wanted], completions: Iterable[Completion], stage: Stage, is_last: bool
    ) -> list[Group]:
        """The wanted groups, grown by the completions of this process and of the others."""
        with stage("score"):
            found = self._score(self._processes.share(wanted), completions, is_last)
        if not self._processes.is_alone:
            with stage("exchange"):
                found = exchange_groups({each.group.id: each.group.task for each in wanted}, found, self._processes)
        return [
            replace(more, rollouts=(*each.group.rollouts, *more.rollouts))
            for each, more in zip(wanted, found, strict=True)
        ]

    def _score(self, wanted: Sequence[Wanted], completions: Iterable[Completion], is_last: bool) -> list[Group]:
        """The groups with these completions' rollouts in place of their own; by this process alone."""
        if not wanted:
            return []
        groups = [each.group for each in wanted]
        found: dict[str, list[Completion]] = {group.id: [] for group in groups}
        for completion in completions:
            if completion.finish_reason != "postponed":
                found[completion.request_id].append(completion)
        ordered = [sorted(of_group, key=lambda completion: completion.index) for of_group in found.values()]
        texts = self._all_texts(ordered)
        texts_PG = [[texts[completion.token_ids] for completion in of_group] for of_group in ordered]
        rollouts = self.scorer.score([group.task for group in groups], ordered, texts_PG, is_last=is_last)
        return [
            replace(each.group, prompt_ids=self.prompt_ids(each.group.task), rollouts=marked(of_group, each))
            for each, of_group in zip(wanted, rollouts, strict=True)
        ]

    def _text(self, completion: Completion) -> str:
        ids = completion.token_ids
        if ids not in self._texts:
            self._texts[ids] = self.tokenizer.decode(ids, skip_special_tokens=True)
        return self._texts[ids]

    def _all_texts(self, completions: Sequence[Sequence[Completion]]) -> dict[tuple[int, ...], str]:
        """Each distinct completion decoded once."""
        known, self._texts = self._texts, {}
        distinct = {completion.token_ids: None for of_group in completions for completion in of_group}
        new = [ids for ids in distinct if ids not in known]
        if not new:
            return known
        return known | dict(zip(new, self.tokenizer.batch_decode(new, skip_special_tokens=True), strict=True))


def _of_group(completion: Completion, name: str) -> Completion:
    return completion if completion.request_id == name else replace(completion, request_id=name)


def new_group(name: str, task: Task) -> Group:
    """A group without rollouts; its prompt becomes tokens with the first of them."""
    return Group(id=name, task=task, prompt_ids=(), rollouts=())
