"""Questions in, judged answers out: generate and score, each process its own share, and all get all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from podsrl.errors import UsageError
from podsrl.generate import Generator, Request, Sampling
from podsrl.policy import prompt_ids
from podsrl.scale.exchange import exchange_groups
from podsrl.scale.processes import Processes
from podsrl.score import Scorer
from podsrl.types import Completion, Group, Task

MAX_REMEMBERED_PROMPTS = 4096

Stage = Callable[[str], AbstractContextManager[Any]]
OnAnswer = Callable[[int, int], None]
"""Told how many answers are generated, and of how many; those of one process."""


class Asker:
    """Turns tasks into groups.

    Args:
        engine: that generates; may be replaced at any time between questions.
        scorer: that judges.
        tokenizer: of the model.
        processes: that share the run.
        max_prompt_tokens: a longer prompt is an error; what a task set holds was looked through before, a set that
            makes its tasks on demand only by a sample.
    """

    def __init__(
        self, engine: Generator, scorer: Scorer, tokenizer: Any, processes: Processes, max_prompt_tokens: int
    ) -> None:
        self.engine, self.scorer, self.tokenizer, self._processes = engine, scorer, tokenizer, processes
        self._max_prompt_tokens = max_prompt_tokens
        self._prompt_ids: dict[str, tuple[int, ...]] = {}
        self._texts: dict[tuple[int, ...], str] = {}  # decoded while others were still being generated

    def answer(
        self,
        ids: Sequence[str],
        tasks: Sequence[Task],
        num_rollouts: int,
        sampling: Sampling,
        *,
        stage: Stage = nullcontext,
        on_answer: OnAnswer | None = None,
    ) -> list[Group]:
        """Generate and score any tasks with any sampling, shared out over the processes.

        Args:
            ids: one a task, unique; with the run's seed they decide every random number.
            tasks: the same on every process.
            num_rollouts: completions a task.
            sampling: how they are drawn.
            stage: entered with "generate", "score" and, with several processes, "exchange".
            on_answer: told of each that is generated.

        Returns:
            One group a task, in their order; all of them on every process.
        """
        places = self._processes.share(range(len(tasks)))
        own = [tasks[i] for i in places]
        with stage("generate"):
            completions = self.complete(
                [ids[i] for i in places], own, num_rollouts, sampling, prefetch=True, on_answer=on_answer
            )
        with stage("score"):
            groups = self.score(own, completions)
        if self._processes.is_alone:
            return groups
        with stage("exchange"):
            return exchange_groups(tasks, dict(zip(places, groups, strict=True)), self._processes)

    def complete(
        self,
        ids: Sequence[str],
        tasks: Sequence[Task],
        num_rollouts: int,
        sampling: Sampling,
        *,
        prefetch: bool = False,
        on_answer: OnAnswer | None = None,
    ) -> list[list[Completion]]:
        """By this process alone: one list a task, in the order of their index.

        With `prefetch` slow rewards begin meanwhile; `score` must follow, since it takes them up.
        """
        requests = [Request(i, self.prompt_ids(t), num_rollouts, sampling) for i, t in zip(ids, tasks, strict=True)]
        found: dict[str, list[Completion]] = {request.id: [] for request in requests}
        task_of = dict(zip(ids, tasks, strict=True))
        for done, completion in enumerate(self.engine.generate(requests), start=1):
            found[completion.request_id].append(completion)
            if prefetch and self.scorer.has_workers:
                self.scorer.prefetch(task_of[completion.request_id], self._text(completion))
            if on_answer is not None:
                on_answer(done, len(requests) * num_rollouts)
        return [sorted(found[request.id], key=lambda completion: completion.index) for request in requests]

    def score(self, tasks: Sequence[Task], completions: Sequence[Sequence[Completion]]) -> list[Group]:
        """Completions -> groups of rollouts with rewards; by this process alone."""
        if not tasks:
            return []
        texts = self._all_texts(completions)
        texts_PG = [[texts[completion.token_ids] for completion in group] for group in completions]
        rollouts = self.scorer.score(tasks, completions, texts_PG)
        return [
            Group(id=group[0].completion.request_id, task=task, prompt_ids=self.prompt_ids(task), rollouts=tuple(group))
            for task, group in zip(tasks, rollouts, strict=True)
        ]

    def prompt_ids(self, task: Task) -> tuple[int, ...]:
        """Tokens of a task's prompt; the newest thousands are remembered, since a step asks for each twice."""
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

    def _text(self, completion: Completion) -> str:
        ids = completion.token_ids
        if ids not in self._texts:
            self._texts[ids] = self.tokenizer.decode(ids, skip_special_tokens=True)
        return self._texts[ids]

    def _all_texts(self, completions: Sequence[Sequence[Completion]]) -> dict[tuple[int, ...], str]:
        """Each distinct completion decoded once."""
        known, self._texts = self._texts, {}
        distinct = {completion.token_ids: None for group in completions for completion in group}
        new = [ids for ids in distinct if ids not in known]
        if not new:
            return known
        return known | dict(zip(new, self.tokenizer.batch_decode(new, skip_special_tokens=True), strict=True))
