"""Online predictors of a rollout's length: each rollout is predicted before the predictor learns from it.

    LengthRegression   recursive least squares on log-length: at submission from the prompt's length and the task's
                       mean, after k tokens also from what the policy has computed anyway (hidden state, entropy …)
    KnownLengths       the true lengths

The paper trains a separate regressor on the text; here the policy's own hidden state is the text's summary. Lengths
drift as the policy learns: the task's mean forgets, and the regression has it as a feature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from podsrl.errors import UsageError
from podsrl.generate.schedule.job import Job

_MAX_WIDTH = 128
"""Hidden states wider than this are projected."""
_RATE = 0.02
"""Weight of the newest rollout in a task's mean once there are many; the first 1 / rate count alike."""
Features = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]


class Predictor(Protocol):
    """Predicts the total of new tokens of jobs that have not ended."""

    @property
    def probe_at(self) -> int | None:
        """Ask for features when a job has made exactly this many tokens; None: never."""
        ...

    @property
    def predicted(self) -> Mapping[Job, float]:
        """Tokens, of the jobs for which something is known."""
        ...

    def submit(self, jobs: Sequence[Job]) -> None:
        """Predict for jobs, from what is known before their prompt is read; known jobs may come again."""
        ...

    def observe(self, jobs: Sequence[Job], features: Features) -> None:
        """Predict again, with features [J, F] of the jobs."""
        ...

    def finish(self, job: Job) -> None:
        """Learn from a job that has ended with `job.num_tokens` tokens."""
        ...


def remaining(predictor: Predictor, job: Job) -> float:
    """New tokens expected still to come, at least 1; the token limit where nothing is predicted."""
    total = min(predictor.predicted.get(job, job.max_new_tokens), job.max_new_tokens)
    return max(1.0, total - job.num_tokens)


class KnownLengths:
    """A predictor that knows the true lengths of jobs."""

    probe_at = None

    def __init__(self, lengths: Mapping[Job, int]) -> None:
        self.predicted = lengths

    def submit(self, jobs: Sequence[Job]) -> None:
        """Nothing: the lengths are known; so it is below."""

    def observe(self, jobs: Sequence[Job], features: Features) -> None: ...

    def finish(self, job: Job) -> None: ...


class TaskMean:
    """Running mean of log-length, exponentially forgetting, for each task (the job's `request_id`) and over all.

    Example:
        >>> mean = TaskMean()
        >>> mean.learn(Job("a", 0, prompt_length=1, max_new_tokens=9, order=0, num_tokens=6))
        >>> round(mean.of("a"), 6), round(mean.of("new task"), 6)
        (6.0, 6.0)
    """

    def __init__(self) -> None:
        self._means: dict[str | None, tuple[int, float]] = {}  # task, None for all -> rollouts seen, mean log-length

    def of(self, task: str) -> float | None:
        """Predicted tokens of a task's rollouts; None before the first rollout has ended."""
        known = self._means.get(task) or self._means.get(None)
        return None if known is None else float(np.exp(known[1]))

    def learn(self, job: Job) -> None:
        """Take in a job that has ended."""
        for key in (job.request_id, None):
            count, mean = self._means.get(key, (0, 0.0))
            rate = max(_RATE, 1 / (count + 1))
            self._means[key] = (count + 1, mean + rate * (_log_length(job) - mean))


class LengthRegression:
    """Recursive least squares from features to log-length.

    Inputs at submission: 1, log prompt length, log of the task's mean; after `probe_at` tokens also the features seen.
    UsageError: a negative `probe_at`; (by `observe`) features of another width than before.

    Example:
        >>> regression = LengthRegression()
        >>> ended = [Job("q", i, prompt_length=10 * i, max_new_tokens=99, order=i, num_tokens=20 * i) for i in (1, 2)]
        >>> for job in ended:
        ...     regression.submit([job])
        ...     regression.finish(job)
        >>> jobs = [Job("new", i, prompt_length=10 * i, max_new_tokens=99, order=i) for i in (1, 2)]
        >>> regression.submit(jobs)
        >>> regression.predicted[jobs[0]] < regression.predicted[jobs[1]]
        True
    """

    def __init__(self, probe_at: int | None = None) -> None:
        if probe_at is not None and probe_at < 0:
            raise UsageError(f"probe_at = {probe_at}: wanted None or at least 0")
        self.probe_at = probe_at
        self.predicted: dict[Job, float] = {}
        self._mean = TaskMean()
        self._early = LeastSquares(3)
        self._late: LeastSquares | None = None
        self._scale = 1.0
        self._early_inputs: dict[Job, Floats] = {}
        self._late_inputs: dict[Job, Floats] = {}

    def submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if job in self._early_inputs:  # it was preempted, and keeps its prediction
                continue
            mean = self._mean.of(job.request_id)
            inputs = np.array([1.0, np.log(job.prompt_length), np.log(mean or 1.0)])
            self._early_inputs[job] = inputs
            if mean is not None:
                self.predicted[job] = float(np.exp(self._early.predict(inputs)))

    def observe(self, jobs: Sequence[Job], features: Features) -> None:
        # a rollout with broken logits ends by itself; its features must not reach the others' predictions
        wide = _narrowed(np.nan_to_num(features.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0))
        if self._late is None:
            # the prior is of unit size, so a row of features has to be: its norm in the first batch is taken for all
            self._scale = 1 / max(1e-12, float(np.sqrt((wide**2).sum(axis=1).mean())))
            self._late = LeastSquares(3 + wide.shape[1])
        if wide.shape[1] + 3 != self._late.width:
            raise UsageError(f"features have {wide.shape[1]} columns, earlier ones had {self._late.width - 3}")
        rows = np.concatenate([np.stack([self._early_inputs[job] for job in jobs]), self._scale * wide], axis=1)
        for job, row, predicted in zip(jobs, rows, np.exp(self._late.predict(rows)), strict=True):
            self._late_inputs[job] = row
            if self._late.num_seen:
                self.predicted[job] = float(predicted)

    def finish(self, job: Job) -> None:
        target = _log_length(job)
        self._mean.learn(job)
        self.predicted.pop(job, None)
        self._early.learn(self._early_inputs.pop(job), target)
        if self._late is not None and job in self._late_inputs:
            self._late.learn(self._late_inputs.pop(job), target)


def _narrowed(features: Floats) -> Floats:
    """At most `_MAX_WIDTH` columns of a hidden state, by a fixed random projection, and the last two as they are.

    Least squares keep a square matrix of the width, and each sample costs its square.
    """
    hidden, rest = features[:, :-2], features[:, -2:]
    if hidden.shape[1] <= _MAX_WIDTH:
        return features
    return np.concatenate([hidden @ _directions(hidden.shape[1]), rest], axis=1)


@cache
def _directions(width: int) -> Floats:
    directions: Floats = np.random.default_rng(0).standard_normal((width, _MAX_WIDTH)) / np.sqrt(_MAX_WIDTH)
    return directions


def _log_length(job: Job) -> float:
    return float(np.log(max(1, job.num_tokens)))  # a rollout whose first logits were broken has no token


class LeastSquares:
    """Ridge regression, one sample at a time: the same weights as solving (X'X + I / prior) w = X'y at once.

    Of the `width` inputs the first is constant and hardly regularised. `prior` is the variance of a weight before
    anything is seen, in units of the noise's.

    Example:
        >>> line = LeastSquares(2, prior=1e9)
        >>> for x in (0.0, 1.0, 2.0):
        ...     line.learn(np.array([1.0, x]), 3 * x + 1)
        >>> round(float(line.predict(np.array([1.0, 5.0]))), 3)
        16.0
    """

    def __init__(self, width: int, prior: float = 10.0) -> None:
        self.width = width
        self.num_seen = 0
        self._weights: Floats = np.zeros(width)
        self._covariance: Floats = np.eye(width) * prior
        self._covariance[0, 0] = 1e4 * prior

    def predict(self, inputs: Floats) -> Floats:
        """Value at inputs [D] or [J, D]."""
        values: Floats = np.asarray(inputs @ self._weights)
        return values

    def learn(self, inputs: Floats, target: float) -> None:
        """Take in one sample: inputs [D]; time O(D^2)."""
        gain = self._covariance @ inputs
        gain_norm = gain / (1.0 + inputs @ gain)
        self._weights += gain_norm * (target - inputs @ self._weights)
        self._covariance -= np.outer(gain_norm, gain)
        self.num_seen += 1
