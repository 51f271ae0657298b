"""`pods eval --search`: what it prints and writes, on real models, and one line for every mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from podsrl.evaluation.evaluator import Evaluator
from podsrl.evaluation.search import SEARCHES
from podsrl.evaluation.search.judge import StepJudge
from podsrl.evaluation.search.result import Point, point_of
from podsrl.evaluation.search.run import Found, run_search
from podsrl.evaluation.target import find_target
from podsrl.report.figures.search import search_figure
from podsrl.score.accuracy import accuracy_of

Pods = Callable[..., tuple[int, str, str]]
SIZES = ("rollouts.max_new_tokens=16", "task.num_eval=6", "eval.num_samples=3")


def searched(recipe: str, name: str, *overrides: str, num_questions: int = 0) -> list[Found]:
    config = find_target(recipe, overrides).config
    judge = StepJudge("steps") if SEARCHES[name].is_judged else None
    width, tokens = config.eval.num_samples, config.eval.num_samples * config.rollouts.max_new_tokens
    with Evaluator(config, num_questions=num_questions) as evaluator:
        return run_search(evaluator, SEARCHES[name], width=width, tokens=tokens, judge=judge, step_end=".")


def test_a_majority_of_all_answers_is_that_of_an_evaluation() -> None:
    found = searched("pods", "majority", *SIZES)
    with Evaluator(find_target("pods", SIZES).config) as evaluator:
        groups = sorted(evaluator.answers(), key=lambda group: group.id)
    by_search = [[one.token_ids for one in each.group.rollouts] for each in found]
    assert by_search == [[one.token_ids for one in group.rollouts] for group in groups]
    assert point_of("majority", 3, found).accuracy == (accuracy_of(groups).majority or 0)
    assert all(each.num_tokens == sum(map(len, tokens)) for each, tokens in zip(found, by_search, strict=True))


def test_the_number_of_slots_moves_nothing_in_a_search_by_steps() -> None:
    sizes = ("eval.num_samples=3", "rollouts.max_new_tokens=64")
    many = searched("steps", "particles", *sizes, num_questions=2)
    few = searched("steps", "particles", *sizes, "rollouts.num_slots=2", num_questions=2)
    assert [each.num_tokens for each in many] == [each.num_tokens for each in few]
    assert [[one.text for one in each.group.rollouts] for each in many] == [
        [one.text for one in each.group.rollouts] for each in few
    ]
    assert any(one.text.count(".") > 2 for each in many for one in each.group.rollouts)  # of several steps


def test_the_command_prints_a_table_or_json_and_writes_a_picture(tmp_path: Path, pods: Pods) -> None:
    (tmp_path / "my_judge.py").write_text(
        "def often(task, text):\n    return None if len(text) % 2 else len(text) / 100\n"
    )
    plot = tmp_path / "search.svg"
    given = ("pods", "--samples", "2", "--num-questions", "3", "--tokens", "64", "--rollouts.max_new_tokens=16")
    judged = ("--search", "majority,best", "--judge", "my_judge:often", "--plot", str(plot))
    code, printed, errors = pods("eval", *given, *judged, "--json")
    result = json.loads(printed)
    assert code == 0 and plot.read_text().startswith("<?xml")
    assert [(each["search"], each["width"]) for each in result["points"]] == [
        *(("majority", 1), ("majority", 2), ("best", 1), ("best", 2))
    ]
    assert all(each["low"] <= each["accuracy"] <= each["high"] for each in result["points"])
    assert all(0 < each["most_tokens"] <= result["tokens_bound"] == 64 for each in result["points"])
    assert result["num_judged"] == 9 and 0 < result["num_not_judged"] < 9  # 3 questions, 1 and 2 answers
    assert f"{result['num_not_judged']} of 9 texts" in errors and "returned None" in errors


def test_a_picture_has_a_line_and_intervals_for_each_search() -> None:
    points = [
        Point(
            search=name,
            width=width,
            num_questions=20,
            num_right=right,
            tokens=40.0 * width,
            most_tokens=99,
            num_unanswered=0,
        )
        for name, right in (("majority", 5), ("best", 10))
        for width in (1, 2)
    ]
    [axes] = search_figure(points).axes
    assert [line.get_xdata().tolist() for line in axes.lines] == [[40, 80], [40, 80]]  # type: ignore[union-attr]
    assert {text.get_text() for text in axes.texts} >= {"majority", "best"}
    low, high = points[0].interval
    segments = axes.collections[0].get_segments()  # type: ignore[attr-defined]
    assert [y for _, y in segments[0].tolist()] == pytest.approx([low, high])


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--search", "bst"], ["--search bst", "Did you mean 'best'?"]),
        (["--search", "majority"], ["there is no --tokens", "--tokens 192"]),
        (["--search", "majority", "--tokens", "10"], ["--tokens 10", "at least 96"]),
        (["--search", "majority", "--tokens", "99", "--samples", "1"], ["--samples", "= 1", "--samples 8"]),
        (["--search", "best", "--tokens", "99"], ["--search best", "there is no --judge", "module:function"]),
        (["--search", "majority", "--tokens", "99", "--judge", "steps"], ["--judge steps", "leave it out"]),
        (["--search", "best", "--tokens", "99", "--judge", "steps"], ["--judge steps", "task.name = 'arithmetic'"]),
        (
            ["--search", "best", "--tokens", "99", "--judge", "nowhere:f"],
            ["--judge = 'nowhere:f'", "cannot be imported"],
        ),
        (["--search", "majority", "--tokens", "99", "--step-end", "."], ["--step-end '.'", "leave it out"]),
        (["--search", "majority", "--tokens", "99", "--plot", "a.txt"], ["--plot a.txt", ".png"]),
        (["--search", "majority", "--tokens", "99", "--out", "a.jsonl"], ["--out a.jsonl", "leave"]),
        (["--search", "ets", "--tokens", "99", "--judge", "my:f", "--samples", "17"], ["= 17", "at most 16"]),
        (["--judge", "steps"], ["--judge steps: only a search reads it", "--search majority"]),
        (["--tokens", "5"], ["--tokens 5: only a search reads it"]),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(arguments: list[str], wanted: list[str], pods: Pods) -> None:
    given = ("pods", "--rollouts.max_new_tokens=96", "--samples", "2")  # of two for one option the last counts
    code, _, errors = pods("eval", *given, *arguments)
    last = errors.strip().splitlines()[-1]
    assert code == 2 and last.startswith("error: ") and all(text in last for text in wanted), last
