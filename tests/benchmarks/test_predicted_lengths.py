"""Length predictors: against closed forms, and in the order in which they may learn."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.infinite_sampling.predict import LeastSquares, LengthRegression, TaskMean
from podsrl.errors import UsageError
from podsrl.generate.schedule.job import Job


def job_of(request_id: str = "q", length: int = 0, prompt_length: int = 8, index: int = 0) -> Job:
    return Job(request_id, index, prompt_length=prompt_length, max_new_tokens=256, order=index, num_tokens=length)


def end(regression: LengthRegression, job: Job, length: int) -> None:
    job.num_tokens = length
    regression.finish(job)


def test_a_task_mean_is_the_geometric_mean_of_the_first_rollouts() -> None:
    mean = TaskMean()
    for task, length in (("q", 2), ("q", 8), ("other", 32)):
        mean.learn(job_of(task, length))
    assert mean.of("q") == pytest.approx(4.0)
    assert mean.of("unseen") == pytest.approx(8.0)


def test_one_sample_at_a_time_gives_the_ridge_solution() -> None:
    draw = np.random.default_rng(0)
    inputs = np.concatenate([np.ones((50, 1)), draw.normal(size=(50, 4))], axis=1)
    targets = draw.normal(size=50)
    online = LeastSquares(5, prior=2.0)
    for row, target in zip(inputs, targets, strict=True):
        online.learn(row, float(target))
    penalty = np.diag([1 / 2e4, 0.5, 0.5, 0.5, 0.5])
    weights = np.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ targets)
    np.testing.assert_allclose(online.predict(np.eye(5)), weights, rtol=1e-6)


def test_a_prediction_at_submission_uses_the_tasks_own_mean() -> None:
    regression = LengthRegression()
    for _ in range(30):
        for task, length in (("short", 5), ("long", 80)):
            job = job_of(task)
            regression.submit([job])
            end(regression, job, length)
    jobs = [job_of("short"), job_of("long")]
    regression.submit(jobs)
    assert [regression.predicted[job] for job in jobs] == pytest.approx([5, 80], rel=0.3)


def test_a_job_that_comes_back_keeps_what_was_seen_of_it() -> None:
    regression = LengthRegression(probe_at=1)
    for length in (10, 20):
        job = job_of()
        regression.submit([job])
        regression.observe([job], np.ones((1, 2), dtype=np.float32))
        end(regression, job, length)
    job = job_of(length=1)
    regression.submit([job])
    regression.observe([job], np.full((1, 2), 5, dtype=np.float32))
    seen = regression.predicted[job]
    regression.submit([job])
    assert regression.predicted[job] == seen


def test_broken_features_do_not_reach_other_predictions() -> None:
    regression = LengthRegression(probe_at=1)
    for features in ([[1.0, math.nan]], [[math.inf, 1.0]], [[1.0, 2.0]]):
        job = job_of()
        regression.submit([job])
        regression.observe([job], np.array(features, dtype=np.float32))
        predicted = regression.predicted.get(job, math.nan)
        end(regression, job, 10)
    assert math.isfinite(predicted)


def test_features_of_another_width_are_refused() -> None:
    regression = LengthRegression(probe_at=1)
    job = job_of()
    regression.submit([job])
    regression.observe([job], np.ones((1, 3), dtype=np.float32))
    with pytest.raises(UsageError, match="2 columns, earlier ones had 3"):
        regression.observe([job], np.ones((1, 2), dtype=np.float32))


def test_a_negative_probe_is_refused() -> None:
    with pytest.raises(UsageError, match="probe_at = -1"):
        LengthRegression(probe_at=-1)


def test_wide_hidden_states_are_projected_and_still_tell_lengths_apart() -> None:
    rng = np.random.default_rng(3)
    direction = rng.standard_normal(2000)
    regression = LengthRegression(probe_at=2)
    errors = []
    for i in range(600):
        kind = rng.integers(2)
        job = Job("a", i, 5, 200, order=i)
        hidden = 0.3 * rng.standard_normal(2000) + (1 if kind else -1) * direction
        regression.submit([job])
        regression.observe([job], np.concatenate([hidden, [-1.0, 0.5]])[None].astype(np.float32))
        if i >= 300:
            errors.append(abs(np.log(regression.predicted.get(job, 1.0)) - np.log(80 if kind else 20)))
        job.num_tokens = 80 if kind else 20
        regression.finish(job)
    assert regression._late is not None and regression._late.width == 3 + 128 + 2
    assert np.mean(errors) < 0.1
