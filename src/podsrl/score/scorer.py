"""Completions to rollouts: calls every reward function and adds up.

Goes in: tasks [P], completions and their texts [P][G]. Comes out: rollouts [P][G]. All rows of a step go to a function
of TRL's form in one call.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout

import numpy as np

import podsrl.score  # for its table; read at call time only, because that package imports this file
from podsrl.errors import RewardError, UsageError
from podsrl.score.base import Judge, Rows, Values
from podsrl.score.find import HIDDEN_FROM_WORKERS, IN_WORKERS, find_reward, is_found_by_workers, is_quick
from podsrl.score.forms import RowForm, judge_of
from podsrl.score.workers import Workers
from podsrl.types import Completion, Rollout, Task

_DUMMY_TEXTS = ("Answer: 0.", "I do not know.")


class Scorer:
    """The reward of a run: a weighted sum of reward functions.

    Functions of the row form that may be slow (mathematics, and a user's own) run in worker processes, which start with
    the first `prefetch`, `score` or `probe`; all others run in the caller's thread.

    Args:
        rewards: known name (`podsrl.score.REWARDS`) or "module:function" -> finite weight, not all zero.
        correct: the function, named in the same way, that says whether an answer is right (value at least 1). It need
            not be among `rewards`; then it does not count in the sum.
        format: the function that says whether an answer has the wanted form (value at least 1); None: all have.
        workers: processes for slow functions; 0: one a core. The results do not depend on it.
        timeout_seconds: limit in a worker for one function on one completion, whose rollout is invalid beyond it.

    Raises:
        UsageError: no rewards, weights that are all zero or not finite, an unknown name, a function of neither form.

    Example:
        >>> scorer = Scorer({"correct": 1.0, "format": 0.5}, correct="correct")
        >>> task = Task(id="1+2", prompt="1+2=", answer="3")
        >>> done = Completion(
        ...     request_id="s0/1+2", index=0, token_ids=(5,), logprobs=(-0.1,), finish_reason="stop", version=0
        ... )
        >>> [[rollout]] = scorer.score([task], [[done]], [["Answer: 4."]])
        >>> rollout.reward, rollout.is_correct, rollout.parts, rollout.answer
        (0.5, False, {'correct': 0.0, 'format': 1.0}, '4')
    """

    def __init__(
        self,
        rewards: Mapping[str, float],
        correct: str,
        *,
        format: str | None = None,
        workers: int = 0,
        timeout_seconds: float = 10.0,
    ) -> None:
        _check_weights(rewards)
        self._weights, self._correct, self._format = dict(rewards), correct, format
        options = dict.fromkeys(rewards, "task.rewards")
        options = {correct: "task.correct"} | ({format: "task.format"} if format is not None else {}) | options
        judges = {name: judge_of(name, find_reward(name, option=option)) for name, option in options.items()}
        slow = [name for name, judge in judges.items() if isinstance(judge, RowForm) and not is_quick(name)]
        self._unlimited = [name for name in slow if not is_found_by_workers(name)]
        in_workers = [name for name in slow if name not in self._unlimited]
        self._workers = (
            Workers(in_workers, num_workers=workers, timeout_seconds=timeout_seconds) if in_workers else None
        )
        self._judges = judges | {name: self._judge_in_workers(name) for name in in_workers}

    def _judge_in_workers(self, name: str) -> Judge:
        workers = self._workers
        assert workers is not None
        return lambda rows: workers.judge(name, rows)

    @property
    def has_workers(self) -> bool:
        """Whether `prefetch` would begin anything."""
        return self._workers is not None

    def prefetch(self, task: Task, text: str) -> None:
        """Begin to judge a completion in a worker, while others are still being generated.

        `score` gives the same with and without; it wants the same task object.
        """
        if self._workers is not None:
            self._workers.submit([task], [text])

    def close(self) -> None:
        """End the worker processes. They also end with the scorer, and with the process that made it."""
        if self._workers is not None:
            self._workers.close()

    def __enter__(self) -> Scorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def score(
        self,
        tasks_P: Sequence[Task],
        completions_PG: Sequence[Sequence[Completion]],
        texts_PG: Sequence[Sequence[str]],
    ) -> list[list[Rollout]]:
        """Judge every completion.

        Args:
            tasks_P: P tasks; groups may differ in size.
            completions_PG: the completions of each task.
            texts_PG: the same, decoded without special tokens.

        Returns:
            Rollouts in the same nesting. Where any function failed, or a completion is "invalid" or "aborted", the
            reward is NaN, `is_correct` is False and `invalid_reason` says why; `parts` has NaN for the failed function.

        Raises:
            RewardError: a function breaks its contract for a whole batch.
            ValueError: the three arguments do not have the same nesting.
        """
        if len(tasks_P) != len(completions_PG) or list(map(len, completions_PG)) != list(map(len, texts_PG)):
            shape = f"{len(tasks_P)} tasks, groups of {[*map(len, completions_PG)]}, texts of {[*map(len, texts_PG)]}"
            raise ValueError(f"{shape}; wanted the same nesting")
        completions = [completion for completions_G in completions_PG for completion in completions_G]
        rows = Rows(
            tasks=[task for task, texts_G in zip(tasks_P, texts_PG, strict=True) for _ in texts_G],
            texts=[text for texts_G in texts_PG for text in texts_G],
            token_ids=[completion.token_ids for completion in completions],
        )
        if self._workers is not None:
            self._workers.submit(rows.tasks, rows.texts)  # the workers are busy while the others are called here
        with redirect_stdout(sys.stderr):  # as in the workers: what a reward prints is no part of a command's result
            judged = {name: judge(rows) for name, judge in self._judges.items()}
        if self._workers is not None:
            self._workers.forget(rows)
        rollouts = iter(self._rollouts(completions, rows.texts, judged))
        return [[next(rollouts) for _ in completions_G] for completions_G in completions_PG]

    def _rollouts(
        self, completions: Sequence[Completion], texts: Sequence[str], judged: Mapping[str, Values]
    ) -> list[Rollout]:
        names, parts = list(self._weights), [judged[name].values for name in self._weights]
        totals = _weighted_sums(self._weights, judged)
        reasons = _unfinished(completions) | _reasons(judged, totals)
        correct, formatted = judged[self._correct].values, self._formatted(judged, len(texts))
        answers = self._answers(texts)
        columns = zip(completions, texts, totals, correct, formatted, zip(*parts, strict=True), strict=True)
        return [
            Rollout(
                completion=completion,
                text=text,
                reward=math.nan if row in reasons else total,
                parts=dict(zip(names, values, strict=True)),
                is_correct=right >= 1 and row not in reasons,
                is_formatted=form >= 1 and row not in reasons,
                answer=answers[text],
                invalid_reason=reasons.get(row),
            )
            for row, (completion, text, total, right, form, values) in enumerate(columns)
        ]

    def _formatted(self, judged: Mapping[str, Values], num_rows: int) -> list[float]:
        return [1.0] * num_rows if self._format is None else judged[self._format].values

    def _answers(self, texts: Sequence[str]) -> dict[str, str | None]:
        """Each distinct text's final answer, where the way to find it is known."""
        extract = podsrl.score.EXTRACTORS.get(self._correct)
        return {text: None if extract is None else extract(text) for text in set(texts)}

    def probe(self, task: Task) -> list[str]:
        """Try every function on two made-up completions of one task, before any model is loaded.

        What cannot be the completions' fault is an error: no list, a list of the wrong length, something that is not a
        number, a column that the task does not have. An exception, None, NaN or infinity may be due to the made-up
        text: a warning.

        Args:
            task: any task of the run.

        Returns:
            Warnings, one sentence each; empty where all is well.

        Raises:
            RewardError: a function breaks its contract.

        Example:
            >>> Scorer({"correct": 1.0}, correct="correct").probe(Task(id="1+2", prompt="1+2=", answer="3"))
            []
        """
        rows = Rows(tasks=[task, task], texts=_DUMMY_TEXTS, token_ids=((0,), (0,)))
        warnings: dict[str, None] = {}
        for name in self._unlimited:
            warnings[f"reward '{name}' runs in the main process, without a time limit: {HIDDEN_FROM_WORKERS}"] = None
        if self._workers is not None:
            self._workers.start()
        for name, judge in self._judges.items():
            if name in IN_WORKERS:
                continue  # known to keep the contract, and its workers take a second to start
            with redirect_stdout(sys.stderr):
                faults = judge(rows).faults
            for fault in faults.values():
                if fault.kind == "not_a_number":
                    raise RewardError(f"{fault.reason}; wanted a number for each completion")
                warnings.setdefault(fault.reason, None)
        return list(warnings)


def _check_weights(rewards: Mapping[str, float]) -> None:
    if not rewards:
        raise UsageError("task.rewards is empty; wanted at least one reward function with its weight")
    for name, weight in rewards.items():
        if not isinstance(weight, (int, float)) or not math.isfinite(weight):
            raise UsageError(f"task.rewards: the weight of '{name}' is {weight!r}; wanted a finite number")
    if not any(rewards.values()):
        raise UsageError(f"task.rewards: all weights of {list(rewards)} are 0; give at least one another weight")


def _weighted_sums(weights: Mapping[str, float], judged: Mapping[str, Values]) -> list[float]:
    """Add up in the functions' order, so that a row's sum does not depend on its batch; NaN where a part is NaN."""
    num_rows = len(next(iter(judged.values())).values)
    total = np.zeros(num_rows)
    with np.errstate(over="ignore", invalid="ignore"):  # a sum beyond the largest float makes its row invalid
        for name, weight in weights.items():
            total = total + weight * np.array(judged[name].values)
    sums: list[float] = total.tolist()
    return sums


def _unfinished(completions: Sequence[Completion]) -> dict[int, str]:
    """Completions that did not come to an end of the policy's own making carry no reward."""
    causes = {"invalid": "the model's logits were no numbers", "aborted": "the completion was aborted"}
    found = ((row, causes.get(completion.finish_reason)) for row, completion in enumerate(completions))
    return {row: cause for row, cause in found if cause is not None}


def _reasons(judged: Mapping[str, Values], totals: Sequence[float]) -> dict[int, str]:
    """Say for each invalid row why it is, naming every function that failed."""
    reasons: dict[int, str] = {}
    for values in judged.values():
        for row, fault in values.faults.items():
            reasons[row] = f"{reasons[row]}; {fault.reason}" if row in reasons else fault.reason
    for row, total in enumerate(totals):
        if not math.isfinite(total) and row not in reasons:
            reasons[row] = f"the weighted sum of the rewards is {total}, not a finite number"
    return reasons
