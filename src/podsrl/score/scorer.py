"""Completions to rollouts: calls every reward function and adds the values up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from podsrl.errors import RewardError, UsageError
from podsrl.lib.rounding import SHARE
from podsrl.score.base import Fault, Rows, Values, collect
from podsrl.score.forms import BatchForm
from podsrl.score.panel import Panel
from podsrl.score.rewards import CODE, EXTRACTORS, SLOW
from podsrl.score.rewards.earned import EARNED, earned
from podsrl.types import Rollout, Task

_DUMMY_TEXTS = ("Answer: 0.", "I do not know.")
"""Finish reasons of completions that carry no reward, because the policy did not end them."""


@dataclass(slots=True)
class ScoreStats:
    """Completions whose judging was stopped."""

    num_stopped: int = 0
    """Completions counted as wrong, because a known reward ran out of time or memory, or its worker died."""
    num_hurried: int = 0
    """Completions stopped at a time limit that other time-outs of the same step had lowered."""
    reasons: dict[str, None] = field(default_factory=dict)
    """Why those counted as wrong were stopped, each reason once."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One rollout to judge."""

    task: Task
    rollout: Rollout
    text: str


_NO_FAULTS: Mapping[str, Fault] = MappingProxyType({})


class Scorer:
    """The reward of a run: a weighted sum of reward functions.

    Functions that may be slow run in worker processes (`podsrl.score.panel`), which start with the first `prefetch`,
    `score` or `probe`.

    A function that returns None for a completion has nothing to say about it: the others are summed, and the rollout
    is invalid only where all of `rewards` are None. A None of `correct` means not right, one of `format` not in the
    form. Source: TRL (GRPOTrainer, 1.16), which sums by nansum, warns where all are None and takes such a row out of
    its group's mean and gradient.

    Args:
        rewards: known name (`podsrl.score.REWARDS`) or "module:function" -> finite weight, not all zero.
        correct: the function, named in the same way, that says whether an answer is right (value at least 1). It need
            not be among `rewards`; then it does not count in the sum.
        format: the function that says whether an answer has the wanted form (value at least 1); None: all have.
        workers: processes for slow functions; 0: one per core. The results do not depend on it.
        timeout_seconds: limit in a worker for one function on one completion. Beyond it, a known reward counts the
            answer as wrong, and the rollout is invalid for any other function.
        batch_timeout_seconds: limit for a function of TRL's form on a whole batch, all of whose rollouts are invalid
            beyond it.

    Raises:
        UsageError: no rewards, weights that are all zero or not finite, an unknown name, a function of neither form.

    Example:
        >>> scorer = Scorer({"correct": 1.0, "format": 0.5}, correct="correct")
        >>> task = Task(id="1+2", prompt="1+2=", answer="3")
        >>> done = Rollout(
        ...     group_id="s0/1+2", index=0, token_ids=(5,), logprobs=(-0.1,), finish_reason="stop", version=0
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
            is_run=True,
        )
        self.stats = ScoreStats()
        """Counts since it was last replaced."""

    @property
    def has_workers(self) -> bool:
        """Whether `prefetch` would start any work."""
        return self._panel.has_workers

    def prefetch(self, task: Task, text: str) -> None:
        """Begin to judge a completion in a worker, while others are still being generated.

        The rollouts of `score` are the same with and without. It must get the same task object.
        """
        self._panel.submit([task], [text])

    def is_ready(self, task: Task, text: str) -> bool:
        """Whether `score` would not wait for a worker: the completion was prefetched, and is judged."""
        return self._panel.is_ready(task, text)

    @property
    def batches(self) -> list[str]:
        """The functions of TRL's form, which are called with all completions of a call."""
        return [name for name, form in self._panel.forms.items() if isinstance(form, BatchForm)]

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
        completions_PG: Sequence[Sequence[Rollout]],
        texts_PG: Sequence[Sequence[str]],
        *,
        is_last: bool = True,
    ) -> list[list[Rollout]]:
        """Judge completions: all of a step, or any of its groups, in any number of calls.

        A function of TRL's form is called once with all completions of the call.

        Args:
            tasks_P: P tasks; groups may differ in size.
            completions_PG: the completions of each task.
            texts_PG: the same, decoded without special tokens.
            is_last: call `new_step` afterwards; False where further calls of the same step follow.

        Returns:
            Rollouts in the same nesting. Where any function failed, it is "failed", as one that came so: the
            reward is NaN, `is_correct` is False and `invalid_reason` says why; `parts` has NaN for the failed function,
            and for one that returned None. No function judges a "pruned" one: its reward and parts are NaN, and
            its `invalid_reason` is None, because it is no failure.

        Raises:
            RewardError: a function breaks its contract for a whole batch.
            ValueError: the three arguments do not have the same nesting, or a rollout is "open".
        """
        if len(tasks_P) != len(completions_PG) or list(map(len, completions_PG)) != list(map(len, texts_PG)):
            shape = f"{len(tasks_P)} tasks, groups of {[*map(len, completions_PG)]}, texts of {[*map(len, texts_PG)]}"
            raise ValueError(f"{shape}; wanted the same nesting")
        rows_PG = [
            [_Row(task, rollout, text) for rollout, text in zip(completions_G, texts_G, strict=True)]
            for task, completions_G, texts_G in zip(tasks_P, completions_PG, texts_PG, strict=True)
        ]
        rollouts = iter(self._judge([row for rows_G in rows_PG for row in rows_G if not row.rollout.is_pruned]))
        if is_last:
            self.new_step()
        return [
            [self._pruned(row) if row.rollout.is_pruned else next(rollouts) for row in rows_G] for rows_G in rows_PG
        ]

    def new_step(self) -> None:
        """The time limit, which time-outs of a step lower, is back at its full length."""
        self._panel.new_step()

    def _judge(self, judged: Sequence[_Row]) -> list[Rollout]:
        for row in judged:
            if row.rollout.is_open:
                raise ValueError(
                    f"rollout {row.rollout.index} of {row.rollout.group_id!r} is open; wanted one that ended"
                )
        rows = Rows(
            tasks=[row.task for row in judged],
            texts=[row.text for row in judged],
            token_ids=[row.rollout.token_ids for row in judged],
        )
        self._panel.submit(rows.tasks, rows.texts)  # the workers are busy while other functions are called here
        found = {
            name: collect([earned(row.rollout) for row in judged]) if name == EARNED else self._panel.judge(name, rows)
            for name in self._panel.forms
        }
        self._panel.forget(rows.tasks, rows.texts)
        self._count(found)
        extract = EXTRACTORS.get(self._correct)
        answers = {text: None if extract is None else extract(text) for text in set(rows.texts)}
        faults = _faults_by_row(found)
        values = zip(*(values.values for values in found.values()), strict=True)
        return [
            self._rollout(row, dict(zip(found, of_row, strict=True)), faults.get(i, _NO_FAULTS), answers[row.text])
            for i, (row, of_row) in enumerate(zip(judged, values, strict=True))
        ]

    def _count(self, judged: Mapping[str, Values]) -> None:
        stopped = {row for values in judged.values() for row in values.stopped}
        faults = [item for values in judged.values() for item in (*values.stopped.items(), *values.faults.items())]
        self.stats.num_stopped += len(stopped)
        self.stats.num_hurried += len({row for row, fault in faults if fault.is_hurried})
        self.stats.reasons |= {fault.reason: None for row, fault in faults if row in stopped}

    def _rollout(
        self, row: _Row, values: Mapping[str, float], faults: Mapping[str, Fault], answer: str | None
    ) -> Rollout:
        """From each function's value, and the faults of those that have none."""
        total = rounding = 0.0
        for name, weight in self._weights.items():
            if name not in faults or faults[name].kind != "none":
                total += weight * values[name]
                rounding += SHARE * abs(weight * values[name])
        total = 0.0 if abs(total) < rounding else total  # 0.1 + 0.2 - 0.3
        reason = self._invalid_reason(row, faults, total)
        return replace(
            row.rollout,
            status="done" if reason is None else "failed",
            text=row.text,
            reward=total if reason is None else math.nan,
            parts={name: values[name] for name in self._weights},
            is_correct=reason is None and values[self._correct] >= 1,
            is_formatted=reason is None and (self._format is None or values[self._format] >= 1),
            answer=answer,
            invalid_reason=reason,
        )

    def _pruned(self, row: _Row) -> Rollout:
        parts = dict.fromkeys(self._weights, math.nan)
        return replace(row.rollout, text=row.text, parts=parts, is_formatted=False)

    def _invalid_reason(self, row: _Row, faults: Mapping[str, Fault], total: float) -> str | None:
        """Why there is no usable reward, naming every function that failed; None where there is one."""
        if failures := self._failures(faults):
            return "; ".join(fault.reason for fault in failures.values())
        if not math.isfinite(total):
            return f"the weighted sum of the rewards is {total}, not a finite number"
        return row.rollout.invalid_reason or ("it failed" if row.rollout.status == "failed" else None)

    def _failures(self, faults: Mapping[str, Fault]) -> Mapping[str, Fault]:
        """The faults of one row that make it invalid: None counts only where all rewards are None."""
        if not faults:
            return faults
        silent = {name for name, fault in faults.items() if fault.kind == "none"}
        is_empty = silent.issuperset(self._weights)
        return {
            name: fault for name, fault in faults.items() if name not in silent or (is_empty and name in self._weights)
        }

    def probe(self, task: Task) -> list[str]:
        """Try every function on two made-up completions of one task, before any model is loaded.

        What cannot be the completions' fault is an error: no list, a list of the wrong length, something that is not a
        number, a column that the task does not have. An exception, None, NaN or infinity may be due to the made-up
        text: a warning.

        Raises:
            RewardError: a function breaks its contract.
            UsageError: the task has no tests for a program.

        Example:
            >>> Scorer({"correct": 1.0}, correct="correct").probe(Task(id="1+2", prompt="1+2=", answer="3"))
            []
        """
        rows = Rows(tasks=[task, task], texts=_DUMMY_TEXTS, token_ids=((0,), (0,)))
        self._panel.start()
        judged = {}
        for name in self._panel.forms:
            if name in CODE:
                from podsrl.score.rewards.code import read_tests

                read_tests(task)
            if name in SLOW or name == EARNED:  # known to keep the contract; workers take a second to start
                judged[name] = Values(values=[0.0] * len(rows), faults={})
                continue
            judged[name] = self._panel.judge(name, rows)
            for fault in judged[name].faults.values():
                if fault.kind == "not_a_number":
                    raise RewardError(f"{fault.reason}; wanted a number for each completion")
        failed = [(row, self._failures(faults)) for row, faults in sorted(_faults_by_row(judged).items())]
        failures: dict[str, str] = {}
        for fault, row in ((faults[name], row) for name in judged for row, faults in failed if name in faults):
            failures.setdefault(fault.reason, fault.on(_DUMMY_TEXTS[row]) if fault.kind == "raised" else fault.reason)
        unweighted = [values for name, values in judged.items() if name not in self._weights]
        others = [fault.reason for values in unweighted for fault in values.faults.values()]
        others = [reason for reason in others if reason not in failures]
        return list(dict.fromkeys((*self._panel.warnings, *failures.values(), *others)))


def _check_weights(rewards: Mapping[str, float]) -> None:
    if not rewards:
        raise UsageError("task.rewards is empty; wanted at least one reward function with its weight")
    for name, weight in rewards.items():
        if not isinstance(weight, (int, float)) or not math.isfinite(weight):
            raise UsageError(f"task.rewards: the weight of '{name}' is {weight!r}; wanted a finite number")
    if (weight := rewards.get(EARNED, 1.0)) != 1:
        raise UsageError(
            f"task.rewards: the weight of '{EARNED}' is {weight!r}; wanted 1: how much it gives, the environment says"
        )
    if not any(rewards.values()):
        raise UsageError(f"task.rewards: all weights of {list(rewards)} are 0; give at least one another weight")


def _faults_by_row(judged: Mapping[str, Values]) -> dict[int, dict[str, Fault]]:
    """Of the rows that have any, by the function's name."""
    faults: dict[int, dict[str, Fault]] = {}
    for name, values in judged.items():
        for row, fault in values.faults.items():
            faults.setdefault(row, {})[name] = fault
    return faults
