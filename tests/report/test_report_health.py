"""Signs of a wasted run, measured by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from podsrl.report.facts import key_facts
from podsrl.report.html import render_report
from podsrl.report.read import Run, read_run
from podsrl.run import health
from run_folders import step_line, write_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return read_run(write_run(tmp_path / "run"))


def test_shares_are_of_all_rollouts_and_groups_of_the_steps(tmp_path: Path) -> None:
    of_first = {"rollouts/all": 6, "rollouts/truncated": 3, "rollouts/invalid": 0, "groups/all": 1}
    of_other = {"rollouts/all": 8, "rollouts/truncated": 2, "rollouts/invalid": 1, "groups/zero_signal": 0}
    steps = [
        step_line(1, **of_first),
        step_line(2, **of_other),
        step_line(3, **{"rollouts/all": None, "groups/all": None}),
    ]
    checks = health.check_run(read_run(write_run(tmp_path / "run", steps=steps)))
    assert [check.value for check in checks[:3]] == [5 / (6 + 8), 1 / (1 + 2), 1 / (6 + 8)]


def test_the_logprob_gap_is_a_mean_of_sizes(tmp_path: Path) -> None:
    steps = [step_line(1, logprob_gap=-0.1), step_line(2, logprob_gap=0.3), step_line(3, logprob_gap=None)]
    run = read_run(write_run(tmp_path / "run", steps=steps))
    assert health.mean_logprob_gap(run) == pytest.approx(0.2)


def test_the_logprob_gap_of_rollouts_of_older_weights_is_no_disagreement(tmp_path: Path) -> None:
    own = {"rollouts/lag": 0.0}, {"rollouts/lag": None}
    steps = [
        step_line(1, logprob_gap=0.1, **own[0]),
        step_line(2, logprob_gap=0.9, **{"rollouts/lag": 1.0, "seconds/overlapped": 0.5}),
        step_line(3, logprob_gap=0.3, **own[1]),
    ]
    run = read_run(write_run(tmp_path / "run", steps=steps))
    assert health.mean_logprob_gap(run) == pytest.approx(0.2)
    assert key_facts(run)["ahead"] == "rollouts 0.5 updates old; 0.5 s per step beside the one before"
    assert "ahead" not in key_facts(read_run(write_run(tmp_path / "other", steps=steps[:1])))


def test_the_money_of_a_run_at_a_service_is_a_key_fact(tmp_path: Path) -> None:
    steps = [step_line(n, **{"service/cost": 0.25 * n, "service/cost_all": 0.5 * n}) for n in (1, 2, 3)]
    facts = key_facts(read_run(write_run(tmp_path / "there", steps=steps)))
    assert facts["spent"] == "1.5; 3 with every rollout trained"
    assert "spent" not in key_facts(read_run(write_run(tmp_path / "here", steps=[step_line(1)])))


def test_sizes_and_costs_of_a_run_that_decides_by_them_are_key_facts_and_a_dash_elsewhere(tmp_path: Path) -> None:
    steps = [step_line(1, **{"rollouts/kept": 5}), step_line(2, **{"rollouts/all": 24, "rollouts/kept": 6})]
    config = '[select]\nrule = "max_signal"\n[costs]\ngroup_ms = 9.6\nrollout_ms = 0.05\nrow_ms = 1.0\n'
    by_costs = write_run(tmp_path / "auto", steps=steps, config=config)
    facts = key_facts(read_run(by_costs))
    assert facts["n → m"] == "8 → 2.75"  # 32 and 11 of 4 groups
    assert facts["costs"] == "group 9.6 ms, rollout 0.05 ms, row 1 ms"
    assert "<b>8 → 2.75</b><span>rollouts generated → trained per prompt" in render_report([by_costs])
    page = render_report([by_costs, write_run(tmp_path / "plain")])
    assert page.count('data-label="costs">') == 2 and 'data-label="costs">–<' in page


def test_answers_in_the_wanted_form_are_a_column_where_some_right_ones_are_not(tmp_path: Path) -> None:
    """The folder's three evaluations have 0.1, 0.3 and 0.5 right."""
    folder = write_run(tmp_path / "run")
    log, cell = folder / "metrics.jsonl", 'data-label="in form">'
    assert cell not in render_report([folder])
    text = log.read_text()
    for share, is_shown in ((0.5, False), (0.25, True)):
        log.write_text(
            text.replace('"eval/accuracy": 0.5', f'"eval/accuracy": 0.5, "eval/accuracy_and_format": {share}')
        )
        page = render_report([folder])
        assert (f"{cell}25" in page) == (cell in page) == ("in form:" in page) == is_shown


def test_a_check_alarms_above_its_limit_only(run: Run) -> None:
    by_name = {check.name: check for check in health.check_run(run)}
    assert by_name["answers cut at the token limit"].is_alarm
    assert by_name["rollouts without a reward"].is_alarm
    # 0.5 is the limit itself.
    assert not by_name["groups without signal"].is_alarm
    assert not by_name["log-prob gap, generator to trainer"].is_alarm


@pytest.mark.parametrize(
    ("accuracy", "counts", "is_alarm", "advice"),
    [
        (0.99, {}, False, "99% of the answers are correct"),
        (0.0, {}, True, "all answers are wrong"),
        (0.0, {"rollouts/truncated": 8}, True, "max_new_tokens"),
        (0.0, {"rollouts/invalid": 8}, True, "all rewards are invalid"),
        (0.5, {}, True, "rewards within a group are equal"),
        (
            0.125,
            {"rollouts/invalid": 0, "reward/min": 1.0, "reward/max": 1.0},
            True,
            "all rewards are 1, though 10 of 80 answers are correct",
        ),
        (
            0.125,
            {"rollouts/invalid": 0, "reward/min": 0.0, "reward/max": 0.0},
            True,
            "all rewards are 0, though 10 of 80 answers are correct",
        ),
        (0.125, {"rollouts/invalid": 5, "reward/min": 0.0, "reward/max": 0.0}, True, "62% of the rewards are invalid"),
        (0.0, {"reward/min": 0.0, "reward/max": 0.0}, True, "all answers are wrong"),
        (None, {}, True, "rewards within a group are equal"),
        (0.0, {"rollouts/all": 0, "rollouts/left_out": 8, "groups/all": 2}, True, "systems left out"),
    ],
)
def test_groups_without_signal_are_blamed_on_what_the_newest_answers_were(
    tmp_path: Path, accuracy: float | None, counts: dict[str, int], is_alarm: bool, advice: str
) -> None:
    """An early step that was otherwise is no reason."""
    known = {"groups/zero_signal": 2, "rollouts/all": 8, "rollouts/left_out": 0, "accuracy/all": accuracy, **counts}
    steps = [step_line(1, **{"accuracy/all": 0.5}), *(step_line(step, **known) for step in range(2, 12))]
    check = health.check_run(read_run(write_run(tmp_path / "run", steps=steps)))[1]
    assert (check.is_above, check.is_alarm) == (True, is_alarm) and advice in check.advice
    assert is_alarm or "num_rollouts" not in check.advice


def test_what_was_not_recorded_is_unknown_and_no_alarm(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", steps=[], groups=[], config=""))
    measured = health.check_run(run)
    assert [check.value for check in measured] == [None] * 4
    assert not any(check.is_alarm for check in measured)
