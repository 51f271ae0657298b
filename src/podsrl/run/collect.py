"""The collector: asks, generates and scores in rounds. It knows no weights.

A step has three parts: `begin` asks its first round and gives the requests to the generator, `read` waits for the
completions, and `finish` scores them and asks further rounds. With several processes each generates and scores a share
of the groups, and all of them hold all groups afterwards.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from podsrl.control import Ask, Budget, View
from podsrl.errors import UsageError
from podsrl.generate import EngineStats, Generator, Request, Sampling, abilities_of, add_stats, answers_of
from podsrl.generate.schedule.lengths import request_id
from podsrl.policy import prompt_ids
from podsrl.run.checks import check_same_asks
from podsrl.run.underway import Underway, take_stats
from podsrl.scale.exchange import exchange_groups
from podsrl.scale.processes import Processes
from podsrl.score import Scorer
from podsrl.types import Completion, Group, Task

MAX_REMEMBERED_PROMPTS = 4096

Stage = Callable[[str], AbstractContextManager[Any]]
OnAnswer = Callable[[int, int], None]
"""Called with the number of completions that are done, and of all; both of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The groups of one step."""

    groups: tuple[Group, ...]
    """To train on, in the order in which they were first asked."""
    probes: tuple[Group, ...]
    """Only for the budget to look at."""
    postponed: tuple[Completion, ...]
    """What came back unfinished, of this process alone; it is in no group."""
    data_position: int
    """Where the data stream stands after them."""
    stats: EngineStats
    """Of all rounds, by this process alone."""
    peak_kv_bytes: int
    overlapped_seconds: float
    """From the begin of the generation of round 0 until the caller waited for it."""


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
        num_words, own: as in `answers_of`.
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
        num_words: int,
        own: str = "",
    ) -> None:
        self.engine, self.scorer, self.tokenizer, self._processes = engine, scorer, tokenizer, processes
        self.budget, self.sampling = budget, sampling
        self.underway: Underway | None = None
        """The step that has begun and is not finished."""
        self._train, self._max_prompt_tokens = train, max_prompt_tokens
        self._num_words, self._own = num_words, own
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
        task_of = {group.id: group.task for group, _ in step.wanted}
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
            asked.update({group.id: count for group, count in wanted})
            postponed += [each for each in completions if each.finish_reason == "postponed"]
            view = view.after(self._judged(wanted, completions, stage, is_last=False))
            with stage("generate"):
                wanted = self._asked(view)
                completions = list(self._generate(self._processes.share(wanted), self.sampling)) if wanted else []
        self.scorer.new_step()
        self.budget.check_sizes({group.id: asked[group.id] for group in view.groups if group.is_trained})
        stats, peak_kv_bytes = take_stats(self.engine)
        return Collected(
            groups=tuple(group for group in view.groups if group.is_trained),
            probes=tuple(group for group in view.groups if not group.is_trained),
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
        completions, own = [], self._processes.share(wanted)
        total = sum(count for _, count in own)
        for done, completion in enumerate(self._generate(own, sampling), start=1):
            completions.append(completion)
            if on_answer is not None:
                on_answer(done, total)
        return self._judged(wanted, completions, nullcontext, is_last)

    def prompt_ids(self, task: Task) -> tuple[int, ...]:
        """Tokens of a task's prompt. The newest thousands are remembered, since a step needs each twice."""
        key = repr(task.prompt)  # which tells `TokenMarkup` from the same text of a data set
        if key not in self._prompt_ids:
            if len(self._prompt_ids) >= MAX_REMEMBERED_PROMPTS:
                self._prompt_ids.clear()
            ids = prompt_ids(self.tokenizer, task)
            if len(ids) > self._max_prompt_tokens:
                raise UsageError(
                    f"prompt of task {task.id!r} has {len(ids)} tokens, wanted 1 .. rollouts.max_prompt_tokens = "
                    f"{self._max_prompt_tokens}: raise the limit or remove the task"
                )
            self._prompt_ids[key] = ids
        return self._prompt_ids[key]

    def _asked(self, view: View) -> list[tuple[Group, int]]:
        """The group of each ask, new or joined, with the rollouts to add; asks that join the same group are one."""
        asks = self.budget.ask(view)
        check_same_asks(asks, self._processes)
        groups = {group.id: group for group in view.groups}
        counts = Counter[str]()
        for ask in asks:
            group = groups.get(ask.joins or "") or self._new_group(view, ask, place=len(groups))
            groups[group.id] = group
            counts[group.id] += ask.num_rollouts
        return [(groups[name], count) for name, count in counts.items()]

    def _new_group(self, view: View, ask: Ask, place: int) -> Group:
        task = self._train[ask.index]
        group = new_group(request_id(view.step, place, task.id), task)
        return replace(group, index=ask.index, step=view.step, is_trained=ask.is_trained)

    def _generated(self, wanted: Sequence[tuple[Group, int]], sampling: Sampling) -> Iterator[Completion]:
        """By this process alone. A generator with the ability "beside" starts when this is called."""
        requests = [self._request(group, count, sampling) for group, count in wanted]
        return answers_of(self.engine, requests, num_words=self._num_words, own=self._own)

    def _generate(self, wanted: Sequence[tuple[Group, int]], sampling: Sampling) -> Iterator[Completion]:
        """As `_generated`, and slow rewards begin as the completions come."""
        task_of = {group.id: group.task for group, _ in wanted}
        for completion in self._generated(wanted, sampling):
            self._prefetch(task_of[completion.request_id], completion)
            yield completion

    def _prefetch(self, task: Task, completion: Completion) -> None:
        if self.scorer.has_workers and completion.finish_reason not in ("pruned", "postponed"):
            self.scorer.prefetch(task, self._text(completion))

    def _request(self, group: Group, count: int, sampling: Sampling) -> Request:
        """The group's id names the random numbers, so that later rollouts continue those of the earlier ones."""
        if not group.rollouts:
            return Request(group.id, self.prompt_ids(group.task), count, sampling)
        if "join" not in abilities_of(self.engine):
            raise UsageError(
                f"the budget asks for more rollouts of group {group.id!r}, and the generator "
                f"{type(self.engine).__name__} has not the ability 'join': use one that has, or a budget of one round"
            )
        first = 1 + max(rollout.completion.index for rollout in group.rollouts)
        return Request(group.id, group.prompt_ids, count, sampling, first_index=first, stream=group.id)

    def _judged(
        self, wanted: Sequence[tuple[Group, int]], completions: Iterable[Completion], stage: Stage, is_last: bool
    ) -> list[Group]:
        """The wanted groups, grown by the completions of this process and of the others."""
        with stage("score"):
            found = self._score([group for group, _ in self._processes.share(wanted)], completions, is_last)
        if not self._processes.is_alone:
            with stage("exchange"):
                found = exchange_groups({group.id: group.task for group, _ in wanted}, found, self._processes)
        return [
            replace(more, rollouts=(*group.rollouts, *more.rollouts))
            for (group, _), more in zip(wanted, found, strict=True)
        ]

    def _score(self, groups: Sequence[Group], completions: Iterable[Completion], is_last: bool) -> list[Group]:
        """The groups with these completions' rollouts in place of their own; by this process alone."""
        if not groups:
            return []
        found: dict[str, list[Completion]] = {group.id: [] for group in groups}
        for completion in completions:
            if completion.finish_reason != "postponed":
                found[completion.request_id].append(completion)
        ordered = [sorted(of_group, key=lambda completion: completion.index) for of_group in found.values()]
        texts = self._all_texts(ordered)
        texts_PG = [[texts[completion.token_ids] for completion in of_group] for of_group in ordered]
        rollouts = self.scorer.score([group.task for group in groups], ordered, texts_PG, is_last=is_last)
        return [
            replace(group, prompt_ids=self.prompt_ids(group.task), rollouts=tuple(of_group))
            for group, of_group in zip(groups, rollouts, strict=True)
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


def new_group(name: str, task: Task) -> Group:
    """A group without rollouts; its prompt becomes tokens with the first of them."""
    return Group(id=name, task=task, prompt_ids=(), rollouts=())
