"""Length predictors: against closed forms, and in the order in which they may learn."""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest

from podsrl.errors import UsageError
from podsrl.generate.schedule.job import Job
from podsrl.generate.schedule.lengths import LeastSquares, LengthRegression, TaskMean, request_id, task_of


def job_of(request_id: str = "s1/0/q", length: int = 0, prompt_length: int = 8, index: int = 0) -> Job:
    return Job(request_id, index, prompt_length=prompt_length, max_new_tokens=256, order=index, num_tokens=length)


def end(predictor: TaskMean | LengthRegression, job: Job, length: int) -> None:
    job.num_tokens = length
    predictor.finish(job)


@pytest.mark.parametrize("task_id", ["7+5", "gsm8k/train/7", "s1/2", "s1/2/3", "s1", "/", "12/7"])
def test_the_task_of_a_request_is_what_follows_step_and_place(task_id: str) -> None:
    assert request_id(12, 3, task_id) == f"s12/3/{task_id}"
    assert task_of(request_id(12, 3, task_id)) == task_of(request_id(7, 40, task_id)) == task_id


@pytest.mark.parametrize("name", ["plain", "eval/3/7+5", "gsm8k/train/7", "steps1/2/x", "s1/x/2"])
def test_a_request_named_in_another_way_is_its_own_task(name: str) -> None:
    assert task_of(name) == name


def test_a_task_mean_is_the_geometric_mean_of_the_first_rollouts() -> None:
    mean = TaskMean()
    for length in (2, 8):
        end(mean, job_of("s1/0/q"), length)
    end(mean, job_of("s1/1/other"), 32)
    assert mean.of("s9/1/q") == pytest.approx(4.0)
    assert mean.of("s9/0/unseen") == pytest.approx(8.0)


def test_a_task_mean_forgets_exponentially() -> None:
    mean = TaskMean(rate=0.5)
    for length in (1, 1, 16):
        end(mean, job_of(), length)
    assert mean.of("q") == pytest.approx(4.0)


def test_nothing_is_predicted_before_anything_was_learned() -> None:
    for predictor in (TaskMean(), LengthRegression()):
        job = job_of()
        predictor.submit([job])
        assert job.predicted is None


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
    for step in range(30):
        for place, (task, length) in enumerate((("short", 5), ("long", 80))):
            job = job_of(f"s{step}/{place}/{task}")
            regression.submit([job])
            end(regression, job, length)
    jobs = [job_of("s99/1/short"), job_of("s99/0/long")]
    regression.submit(jobs)
    assert jobs[0].predicted == pytest.approx(5, rel=0.3)
    assert jobs[1].predicted == pytest.approx(80, rel=0.3)


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
    seen = job.predicted
    regression.submit([job])
    assert job.predicted == seen


def test_broken_features_do_not_reach_other_predictions() -> None:
    regression = LengthRegression(probe_at=1)
    for features in ([[1.0, math.nan]], [[math.inf, 1.0]], [[1.0, 2.0]]):
        job = job_of()
        regression.submit([job])
        regression.observe([job], np.array(features, dtype=np.float32))
        end(regression, job, 10)
    assert job.predicted is not None and math.isfinite(job.predicted)


def test_a_rollout_without_a_token_counts_as_one_token() -> None:
    for predictor in (TaskMean(), LengthRegression()):
        first, second = job_of(), job_of()
        predictor.submit([first])
        end(predictor, first, 0)
        predictor.submit([second])
        assert second.predicted == pytest.approx(1.0, abs=0.01)


def test_an_aborted_job_is_forgotten_with_its_object() -> None:
    regression = LengthRegression()
    regression.submit([job_of()])
    gc.collect()
    assert len(regression._early_inputs) == 0


def test_features_of_another_width_are_refused() -> None:
    regression = LengthRegression(probe_at=1)
    job = job_of()
    regression.submit([job])
    regression.observe([job], np.ones((1, 3), dtype=np.float32))
    with pytest.raises(UsageError, match="2 columns, earlier ones had 3"):
        regression.observe([job], np.ones((1, 2), dtype=np.float32))


@pytest.mark.parametrize("rate", [0.0, 1.5, math.nan])
def test_a_rate_out_of_range_is_refused(rate: float) -> None:
    with pytest.raises(UsageError, match="rate ="):
        TaskMean(rate=rate)


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
            errors.append(abs(np.log(job.predicted or 1.0) - np.log(80 if kind else 20)))
        job.num_tokens = 80 if kind else 20
        regression.finish(job)
    assert regression._late is not None and regression._late.width == 3 + 128 + 2
    assert np.mean(errors) < 0.1
