"""What an accuracy costs: counted by hand from logs written by hand."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from podsrl.cli.compare_result import shown
from podsrl.compare.costs import COSTS, NO_PRICES, at_price, chosen_sizes, cost_curve, signal
from podsrl.compare.measure import measure
from podsrl.compare.runs import Member, plan
from podsrl.config.files import read_tree
from podsrl.config.load import apply_overrides, build
from podsrl.config.schema import CompareConfig
from podsrl.errors import UsageError
from podsrl.report.comparison import read_comparison
from podsrl.report.figures.costs import cost_figure, needed_figure
from podsrl.report.html import write_report

Json = dict[str, Any]


def step(number: int, rollouts: Sequence[int], tokens: int, **more: float) -> Json:
    trained, left_out, probes = rollouts
    counts = {"rollouts/all": trained, "rollouts/left_out": left_out, "rollouts/probes": probes}
    return {"step": number, **counts, "tokens/generated": tokens, **more}


STEPS = [step(1, (8, 4, 2), 100), step(2, (8, 0, 0), 50), step(3, (0, 0, 0), 0), step(4, (6, 0, 1), 30)]


def evaluation(number: int, accuracy: float) -> Json:
    return {"step": number, "eval/accuracy": accuracy, "seconds/train_elapsed": 2.0 * number}


EVALUATIONS = [evaluation(0, 0.1), evaluation(1, 0.2), evaluation(2, 0.5), evaluation(3, 0.9), evaluation(4, 0.8)]


@pytest.mark.parametrize(
    ("cost", "costs", "accuracies"),
    [
        ("rollouts", [0, 14, 22, 29], [0.1, 0.2, 0.5, 0.8]),  # step 3 generated nothing
        ("tokens", [0, 100, 150, 180], [0.1, 0.2, 0.5, 0.8]),
        ("seconds", [0, 2, 4, 6, 8], [0.1, 0.2, 0.5, 0.9, 0.8]),
        ("steps", [0, 1, 2, 3, 4], [0.1, 0.2, 0.5, 0.9, 0.8]),
    ],
)
def test_all_that_was_generated_before_an_evaluation_counts(
    cost: str, costs: list[float], accuracies: list[float]
) -> None:
    found = cost_curve(STEPS, EVALUATIONS, cost)
    assert found is not None and found[0].tolist() == costs and found[1].tolist() == accuracies


def test_a_price_weighs_generated_tokens_and_epochs_weigh_trained_ones() -> None:
    """Trained 60, 10, 0, 30 and generated 100, 50, 0, 30 tokens per step."""
    steps = [{**line, "tokens/trained": trained} for line, trained in zip(STEPS, (60, 10, 0, 30), strict=True)]
    for weights, costs in (
        (at_price(0.5), [0, 110, 145, 190]),  # 60 + 50, + 10 + 25, + 30 + 15
        (at_price(2.0), [0, 260, 370, 460]),
        (at_price(0.5, num_epochs=3), [0, 230, 285, 390]),
    ):
        found = cost_curve(steps, EVALUATIONS, weights)
        assert found is not None and found[0].tolist() == costs and found[1].tolist() == [0.1, 0.2, 0.5, 0.8]
    assert cost_curve(STEPS, EVALUATIONS, at_price(0.5)) is None  # older, without trained tokens


@pytest.mark.parametrize("value", [None, "x", True, float("nan")])
def test_a_log_that_does_not_say_what_a_step_cost_has_no_curve(value: Any) -> None:
    broken = [{**STEPS[0], "rollouts/probes": value}, *STEPS[1:]]
    assert cost_curve(broken, EVALUATIONS, "rollouts") is None
    assert cost_curve(broken, EVALUATIONS, "tokens") is not None
    assert cost_curve(STEPS, [{**EVALUATIONS[0], "eval/accuracy": value}], "tokens") is None
    assert cost_curve([{"step": 1}], EVALUATIONS, "rollouts") is None


def test_shares_are_of_all_steps_of_all_runs() -> None:
    def groups(zero: int, of_all: int, mixed: int, wrong: int, left_out: int) -> Json:
        names = ("zero_signal", "all", "mixed", "all_wrong", "left_out")
        counts = {
            f"groups/{name}": value for name, value in zip(names, (zero, of_all, mixed, wrong, left_out), strict=True)
        }
        return step(1, (8, 2, 0), 9) | counts

    found = signal([[groups(1, 4, 3, 0, 1), groups(3, 4, 1, 2, 1)], [groups(0, 4, 4, 1, 0)]])
    shares = {"zero_signal": 4 / 12, "all_wrong": 3 / 14, "all_wrong_early": 3 / 14, "mixed": 8 / 14}
    assert found == {**shares, "mixed_per_100": 100 * 8 / 30}
    in_chunks = signal([[groups(1, 8, 2, 1, 1)]], num_chunks=4)
    assert (in_chunks["zero_signal"], in_chunks["all_wrong"], in_chunks["mixed"]) == (1 / 8, 1 / 3, 2 / 3)
    assert signal([[{"step": 1}]]) == dict.fromkeys(found)
    nothing = signal([[groups(0, 0, 0, 0, 0)]])
    assert nothing["zero_signal"] is None and nothing["mixed_per_100"] == 0


def test_early_are_the_steps_of_the_first_5000_rollouts_of_each_run() -> None:
    def line(rollouts: int, wrong: int) -> Json:
        return step(1, (rollouts, 0, 0), 9) | {"groups/all": 10, "groups/left_out": 0, "groups/all_wrong": wrong}

    found = signal([[line(2000, 4), line(3000, 2), line(10, 9)], [line(4999, 0), line(1, 6), line(1, 9)]])
    assert found["all_wrong_early"] == 12 / 40 and found["all_wrong"] == 30 / 60


def compared(folder: Path, num_seeds: int = 2, *options: str) -> tuple[CompareConfig, list[Member]]:
    """Finished runs: twice the rollouts of the baseline per step, half the steps to 80 %."""
    seconds = ("base.stop.seconds=40", "base.eval.every_seconds=5")
    changes = (f"num_seeds={num_seeds}", "baseline=grpo_ga", "fraction=0.995", *seconds, *options)
    tree = read_tree("demo")
    del tree["arms"]["auto"]
    config = build(CompareConfig, apply_overrides(tree, changes), "demo")
    members = plan(config, folder)
    stages = {f"seconds/{name}": 0.1 for name in ("generate", "score", "select", "update", "sync", "record")}
    groups = {"groups/all": 4, "groups/zero_signal": 1, "groups/mixed": 3, "groups/all_wrong": 1, "groups/left_out": 0}
    accuracies = {"grpo_ga": [0.1, 0.4, 0.8, 0.8], "pods": [0.1, 0.8, 0.8, 0.9], "grpo": [0.1, 0.2, 0.3, 0.4]}
    rollouts = {"grpo_ga": 10, "pods": 5, "grpo": 40}
    trained = {"grpo_ga": 7, "pods": 2, "grpo": 7}
    for member in members:
        member.path.mkdir(parents=True)
        lines: list[Json] = []
        for number, accuracy in enumerate(accuracies[member.arm]):
            if number:
                counts = step(number, (rollouts[member.arm], 0, 0), 7, **stages, **groups)
                counts["tokens/trained"] = trained[member.arm]
                lines.append(counts | {"seconds/total": 0.7, "seconds/train_elapsed": 2.0 * number})
            lines.append(evaluation(number, accuracy))
        (member.path / "finished.json").write_text('{"hardware": "an abacus"}')
        (member.path / "config.toml").write_text("seed = 1\n")
        (member.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return config, members


def test_a_saving_is_the_baselines_cost_to_the_target_over_the_arms(tmp_path: Path) -> None:
    config, members = compared(tmp_path)
    result = measure(config, members, tmp_path)
    assert result["costs"].keys() == COSTS.keys() - {"cpu"}
    rollouts, steps = result["costs"]["rollouts"], result["costs"]["steps"]
    assert [rollouts[arm]["total"] for arm in ("grpo_ga", "pods", "grpo")] == [30, 15, 120]
    assert [rollouts[arm]["to_target"] for arm in ("grpo_ga", "pods", "grpo")] == [20, 5, None]
    assert rollouts["pods"]["saving"]["point"] == 4.0 and steps["pods"]["saving"]["point"] == 2.0
    assert rollouts["grpo"]["saving"]["point"] is None and rollouts["grpo_ga"]["saving"]["point"] == 1.0
    assert [*result["signal"]["pods"].values()] == [0.25, 0.25, 0.25, 0.75, 60.0]


def test_an_older_log_leaves_its_cost_out_for_all(tmp_path: Path) -> None:
    config, members = compared(tmp_path, 1)
    log = members[1].path / "metrics.jsonl"
    log.write_text(log.read_text().replace('"rollouts/probes"', '"rollouts/guesses"'))
    assert [*measure(config, members, tmp_path)["costs"]] == ["tokens", "seconds", "steps"]


def test_a_comparison_states_the_cost_to_the_target_at_each_price(tmp_path: Path) -> None:
    """All generate 7 tokens per step and train on 7, PODS on 2; the baseline needs two steps, PODS one."""
    config, members = compared(tmp_path, 2, "prices=[0.1, 1]")
    result = measure(config, members, tmp_path)
    dear, cheap = result["prices"]["1"], result["prices"]["0.1"]
    assert [*result["prices"]] == ["0.1", "1"]
    assert [dear[arm]["to_target"] for arm in ("grpo_ga", "pods", "grpo")] == [28, 9, None]
    assert [dear[arm]["total"] for arm in ("grpo_ga", "pods", "grpo")] == [42, 27, 42]
    assert cheap["grpo_ga"]["to_target"] == pytest.approx(15.4) and cheap["pods"]["to_target"] == pytest.approx(2.7)
    assert dear["pods"]["saving"]["point"] == pytest.approx(28 / 9)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(shown(result))
    text = console.export_text()
    assert "to 99.5 % of its own" in text and "to 99.5 % of grpo_ga's" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["│", "pods", "│", "2", "(0.50×)", "│", "2.7", "(0.18×)", "│", "9", "(0.32×)", "│"] in rows


def test_an_arm_pays_for_a_trained_token_once_per_epoch(tmp_path: Path) -> None:
    result = measure(*compared(tmp_path, 1, "prices=[1]", "arms.pods.optim.num_epochs=2"), tmp_path)
    assert [result["prices"]["1"][arm]["to_target"] for arm in ("grpo_ga", "pods")] == [28, 11]


def test_without_trained_tokens_in_a_log_there_is_no_price_and_it_is_said(tmp_path: Path) -> None:
    config, members = compared(tmp_path, 1)
    log = members[1].path / "metrics.jsonl"
    log.write_text(log.read_text().replace('"tokens/trained"', '"tokens/kept"'))
    result = measure(config, members, tmp_path)
    assert result["prices"] == {} and result["costs"].keys() == COSTS.keys() - {"cpu"}
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(shown(result))
    assert NO_PRICES in console.export_text()


@pytest.mark.parametrize(
    ("prices", "wanted"),
    [
        ("[0.3, 0]", "prices.1 = 0: wanted more than 0"),
        ("[-1]", "prices.0 = -1"),
        ("[nan]", "prices.0 = nan"),
        ("['cheap']", "prices.0 = 'cheap'"),
        ("cheap", "prices = 'cheap': wanted a list"),
        ("[]", "prices = []"),
        ("[1, 0.3, 1.0]", "prices = [1.0, 0.3, 1.0]: wanted each price once"),
        ("[1, 1.00000001]", "wanted each price once"),
    ],
)
def test_a_wrong_price_is_named_in_one_line(prices: str, wanted: str) -> None:
    with pytest.raises(UsageError) as error:
        build(CompareConfig, apply_overrides(read_tree("demo"), (f"prices={prices}",)), "demo")
    assert wanted in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_the_page_shows_what_was_spent(tmp_path: Path, num_seeds: int) -> None:
    """The runs of one seed are older: they hold no trained tokens."""
    config, members = compared(tmp_path, num_seeds)
    for log in (member.path / "metrics.jsonl" for member in members if num_seeds == 1):
        log.write_text(log.read_text().replace('"tokens/trained"', '"tokens/kept"'))
    measure(config, members, tmp_path)
    comparison = read_comparison(tmp_path)
    panels = needed_figure(comparison).axes
    assert [panel.get_title(loc="left") for panel in panels] == [COSTS[cost].capitalize() for cost in comparison.costs]
    texts = {text.get_text() for text in panels[0].texts}
    assert {"not reached", "0.25×"} <= texts
    lines = cost_figure(comparison, "rollouts").axes[1].get_lines()
    np.testing.assert_allclose(lines[0].get_xdata(), [10, 20, 30])
    page = write_report([tmp_path], tmp_path / "report.html").read_text()
    assert "What an accuracy costs" in page and "Held-out accuracy against tokens generated" in page
    assert (NO_PRICES in page, "g = 2.3" in page, "0.32×" in page) == (num_seeds == 1, num_seeds == 2, num_seeds == 2)


def test_sizes_that_a_run_chose_are_means_over_the_groups_of_all_its_logs() -> None:
    logs = [
        [{"groups/all": 4, "rollouts/all": 256, "rollouts/kept": 20}],
        [{"groups/all": 2, "rollouts/all": 16, "rollouts/kept": 6}],
    ]
    assert chosen_sizes(logs, "max_signal", []) == chosen_sizes(logs, "max_variance", ["worth"]) == (45.3, 4.33)
    assert chosen_sizes(logs, "max_signal", [], num_chunks=2) == (90.7, 8.67)
    assert chosen_sizes(logs, "max_variance", ["dars"]) is None
    assert chosen_sizes([*logs, [{"groups/all": 4}]], "max_signal", ["worth"]) is None


def paced(folder: Path, waits: Mapping[str, float | None]) -> tuple[CompareConfig, list[Member]]:
    """Each arm works 2 s in a step, and waits so long for a core; its seconds of the wall clock are both."""
    config, members = compared(folder)
    for member in members:
        wait, file = waits[member.arm], member.path / "metrics.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            line["seconds/train_elapsed"] = line["step"] * (2.0 + (wait or 0.0))
            if "seconds/total" in line:
                line |= {"seconds/cpu": 2.0, "seconds/cpu_wait": wait}
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return config, members


def test_arms_that_had_unequal_shares_of_the_machine_are_compared_by_processor_seconds(tmp_path: Path) -> None:
    """PODS reaches the target in step 1, the baseline in step 2, which had a third of its seconds only to wait."""
    config, members = paced(tmp_path, {"grpo_ga": 1.0, "pods": 0.1, "grpo": 0.0})
    result = measure(config, members, tmp_path)
    assert result["clock"] == "cpu" and result["slowdown"] == {"grpo_ga": 1.5, "pods": 1.05, "grpo": 1.0}
    assert result["speedup"]["pods"]["point"] == 2.0, "by the clock on the wall it is 6 / 2.1"
    assert result["grid_seconds"]["grpo_ga"] == [2.0, 4.0, 6.0]
    assert result["seconds_to"]["0.8"] == {"grpo_ga": 4.0, "pods": 2.0, "grpo": None}
    assert result["costs"].keys() == COSTS.keys() - {"seconds"} and result["costs"]["cpu"]["pods"]["to_target"] == 2.0
    comparison = read_comparison(tmp_path)
    assert comparison.curves()["grpo_ga"][0][0].tolist() == [0.0, 2.0, 4.0, 6.0]
    page = write_report([tmp_path], tmp_path / "report.html").read_text()
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(shown(result))
    for text in (page, console.export_text()):
        assert "1.50 s in grpo_ga and 1.00 s in grpo" in text and "Processor seconds" in text
    assert "by processor seconds" in page and "processor time of training" in page and "cpu needed" not in page


@pytest.mark.parametrize("waits", [(1.0, 0.9, 1.1), (1.0, None, 0.0)], ids=["equal pace", "an older log"])
def test_at_equal_pace_and_where_it_is_not_known_the_clock_on_the_wall_counts(
    tmp_path: Path, waits: tuple[float | None, ...]
) -> None:
    config, members = paced(tmp_path, dict(zip(("grpo_ga", "pods", "grpo"), waits, strict=True)))
    result = measure(config, members, tmp_path)
    assert result["clock"] == "seconds" and result["unequal_pace"] is None
    assert result["seconds_to"]["0.8"]["grpo_ga"] == 6.0 and result["costs"].keys() == COSTS.keys() - {"cpu"}


def test_a_gpus_runs_are_compared_by_the_clock_on_the_wall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, members = paced(tmp_path, {"grpo_ga": 1.0, "pods": 0.1, "grpo": 0.0})
    monkeypatch.setattr(Member, "is_on_cpu", False)
    assert measure(config, members, tmp_path)["clock"] == "seconds"
