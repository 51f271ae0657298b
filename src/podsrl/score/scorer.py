"""Completions to rollouts: calls every reward function and adds up.

Goes in: tasks [P], completions and their texts [P][G]. Comes out: rollouts [P][G]. All rows of a step go to a function
of TRL's form in one call.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

import podsrl.score  # for its table; read at call time only, because that package imports this file
from podsrl.errors import RewardError, UsageError
from podsrl.score.base import Fault, Rows, Values
from podsrl.score.find import IN_WORKERS
from podsrl.score.panel import Panel
from podsrl.types import Completion, Rollout, Task

_DUMMY_TEXTS = ("Answer: 0.", "I do not know.")


@dataclass(slots=True)
class ScoreStats:
    """Rows whose judging did not come to its end."""

    num_stopped: int = 0
    """Counted as wrong, because a known reward ran out of time or memory, or its worker died."""
    num_hurried: int = 0
    """Stopped at a time limit that other time-outs of the same step had lowered."""
    reasons: dict[str, None] = field(default_factory=dict)
    """Why those counted as wrong were stopped, each reason once."""


class Scorer:
    """The reward of a run: a weighted sum of reward functions.

    Functions that may be slow run in worker processes (`podsrl.score.panel`), which start with the first `prefetch`,
    `score` or `probe`.

    A function that returns None for a row has nothing to say about it: the others are summed, and only where all of
    `rewards` are None the rollout is invalid. A None of `correct` means not right, one of `format` not in the form.
    Source: TRL (GRPOTrainer, 1.16), which sums by nansum, warns where all are None and takes such a row out of its
    group's mean and gradient.

    Args:
        rewards: known name (`podsrl.score.REWARDS`) or "module:function" -> finite weight, not all zero.
        correct: the function, named in the same way, that says whether an answer is right (value at least 1). It need
            not be among `rewards`; then it does not count in the sum.
        format: the function that says whether an answer has the wanted form (value at least 1); None: all have.
        workers: processes for slow functions; 0: one a core. The results do not depend on it.
        timeout_seconds: limit in a worker for one function on one completion. Beyond it, a known reward counts the
            answer as wrong, and the rollout is invalid for any other function.
        batch_timeout_seconds: limit for a function of TRL's form on a whole batch, all of whose rollouts are invalid
            beyond it.

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
        batch_timeout_seconds: float = 300.0,
    ) -> None:
        _check_weights(rewards)
        self._weights, self._correct, self._format = dict(rewards), correct, format
        options = dict.fromkeys(rewards, "task.rewards")
        self._panel = Panel(
            {correct: "task.correct"} | ({format: "task.format"} if format is not None else {}) | options,
            num_workers=workers,
            timeout_seconds=timeout_seconds,
            batch_timeout_seconds=batch_timeout_seconds,
            is_capped=True,
        )
        self.stats = ScoreStats()
        """Counts since it was last replaced."""

    @property
    def has_workers(self) -> bool:
        """Whether `prefetch` would begin anything."""
        return self._panel.has_workers

    def prefetch(self, task: Task, text: str) -> None:
        """Begin to judge a completion in a worker, while others are still being generated.

        `score` gives the same with and without; it wants the same task object.
        """
        self._panel.submit([task], [text])

    def close(self) -> None:
        """End the worker processes. They also end with the scorer, and with the process that made it."""
        self._panel.close()

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
            reward is NaN, `is_correct` is False and `invalid_reason` says why; `parts` has NaN for the failed function,
            and for one that returned None.

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
        self._panel.submit(rows.tasks, rows.texts)  # the workers are busy while the others are called here
        judged = {name: self._panel.judge(name, rows) for name in self._panel.forms}
        self._panel.forget(rows)
        self._count(judged)
        rollouts = iter(self._rollouts(completions, rows.texts, judged))
        return [[next(rollouts) for _ in completions_G] for completions_G in completions_PG]

    def _count(self, judged: Mapping[str, Values]) -> None:
        stopped = {row for values in judged.values() for row in values.stopped}
        faults = [item for values in judged.values() for item in (*values.stopped.items(), *values.faults.items())]
        self.stats.num_stopped += len(stopped)
        self.stats.num_hurried += len({row for row, fault in faults if fault.is_hurried})
        self.stats.reasons |= {fault.reason: None for row, fault in faults if row in stopped}

    def _rollouts(
        self, completions: Sequence[Completion], texts: Sequence[str], judged: Mapping[str, Values]
    ) -> list[Rollout]:
        names, parts = list(self._weights), [judged[name].values for name in self._weights]
        totals = _weighted_sums(self._weights, judged)
        reasons = _unfinished(completions) | _reasons(self._failures(judged), totals)
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

    def _failures(self, judged: Mapping[str, Values]) -> list[tuple[int, Fault]]:
        """What makes rows invalid, in the functions' order: every fault, but None only where all rewards are None."""
        num_values = Counter(
            row
            for name in self._weights
            for row in range(len(judged[name].values))
            if not _is_none(judged[name].faults.get(row))
        )
        return [
            (row, fault)
            for name, values in judged.items()
            for row, fault in values.faults.items()
            if not _is_none(fault) or (name in self._weights and not num_values[row])
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
        self._panel.start(task)
        judged = {}
        for name in self._panel.forms:
            if name in IN_WORKERS:  # known to keep the contract, and its workers take a second to start
                judged[name] = Values(values=[0.0] * len(rows), faults={})
                continue
            judged[name] = self._panel.judge(name, rows)
            for fault in judged[name].faults.values():
                if fault.kind == "not_a_number":
                    raise RewardError(f"{fault.reason}; wanted a number for each completion")
        failures = [fault for _, fault in self._failures(judged)]
        others = [fault for name in judged.keys() - self._weights.keys() for fault in judged[name].faults.values()]
        return list(dict.fromkeys((*self._panel.warnings, *(fault.reason for fault in (*failures, *others)))))


def _check_weights(rewards: Mapping[str, float]) -> None:
    if not rewards:
        raise UsageError("task.rewards is empty; wanted at least one reward function with its weight")
    for name, weight in rewards.items():
        if not isinstance(weight, (int, float)) or not math.isfinite(weight):
            raise UsageError(f"task.rewards: the weight of '{name}' is {weight!r}; wanted a finite number")
    if not any(rewards.values()):
        raise UsageError(f"task.rewards: all weights of {list(rewards)} are 0; give at least one another weight")


def _weighted_sums(weights: Mapping[str, float], judged: Mapping[str, Values]) -> list[float]:
    """Add up in the functions' order, so that a row's sum does not depend on its batch; NaN where a part has failed.

    A part that is None is left out.
    """
    num_rows = len(next(iter(judged.values())).values)
    total = np.zeros(num_rows)
    with np.errstate(over="ignore", invalid="ignore"):  # a sum beyond the largest float makes its row invalid
        for name, weight in weights.items():
            values = np.array(judged[name].values)
            values[[row for row, fault in judged[name].faults.items() if _is_none(fault)]] = 0.0
            total = total + weight * values
    sums: list[float] = total.tolist()
    return sums


def _is_none(fault: Fault | None) -> bool:
    """Whether a function had nothing to say about the row."""
    return fault is not None and fault.kind == "none"


def _unfinished(completions: Sequence[Completion]) -> dict[int, str]:
    """Completions that did not come to an end of the policy's own making carry no reward."""
    causes = {"invalid": "the model's logits were no numbers", "aborted": "the completion was aborted"}
    found = ((row, causes.get(completion.finish_reason)) for row, completion in enumerate(completions))
    return {row: cause for row, cause in found if cause is not None}


def _reasons(failures: Sequence[tuple[int, Fault]], totals: Sequence[float]) -> dict[int, str]:
    """Say for each invalid row why it is, naming every function that failed."""
    reasons: dict[int, str] = {}
    for row, fault in failures:
        reasons[row] = f"{reasons[row]}; {fault.reason}" if row in reasons else fault.reason
    for row, total in enumerate(totals):
        if not math.isfinite(total) and row not in reasons:
            reasons[row] = f"the weighted sum of the rewards is {total}, not a finite number"
    return reasons
