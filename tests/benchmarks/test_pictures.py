"""docs/pictures.md: its pictures are those of the result files, and what its sentences say is true of them."""

from __future__ import annotations

import re
from argparse import Namespace
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import pvariance
from typing import Any

import pytest

from benchmarks.figures.markdown import newest
from benchmarks.files import ROOT, read_all
from benchmarks.pictures import draw, page
from benchmarks.pictures.page import CSS_PIXELS_PER_INCH, FOLDER, PICTURES
from benchmarks.pictures.record import kind_of, run
from loops import each
from podsrl.report.figures.svg import save_svg
from podsrl.select import max_variance
from podsrl.types import Group, group_of_rewards

PAGE = (ROOT / "docs" / "pictures.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def result(name: str) -> Any:
    return newest(read_all(name))


def group(*rewards: float) -> Group:
    """Where a reward of 1.1 is that of a correct answer."""
    made = group_of_rewards("q", rewards)
    return replace(made, rollouts=tuple(replace(each, is_correct=each.reward == 1.1) for each in made.rollouts))


@each("name", [*PICTURES])
def test_a_picture_is_what_the_code_draws_of_the_results(name: str, tmp_path: Path) -> None:
    figure = PICTURES[name].draw(PICTURES[name].data(read_all))
    drawn = save_svg(figure, tmp_path / f"{name}.svg", pixels_per_inch=CSS_PIXELS_PER_INCH).read_text()
    kept = (FOLDER / f"{name}.svg").read_text()
    assert NUMBER.sub("", drawn) == NUMBER.sub("", kept), "`python -m benchmarks pictures --save` draws it"
    numbers = [[*map(float, NUMBER.findall(text))] for text in (drawn, kept)]
    assert numbers[0] == pytest.approx(numbers[1], abs=0.5), "`python -m benchmarks pictures --save` draws it"


@each("name", [*PICTURES])
def test_a_picture_is_light_and_fits_a_phone(name: str) -> None:
    drawing = (FOLDER / f"{name}.svg").read_text()
    assert len(drawing) < 60_000
    assert re.search(r'width="480" height="\d+".* viewBox="0 0 360 \d', drawing), (
        "a unit is a pixel where 360 are shown"
    )
    assert (
        min(float(size or bold) for size, bold in re.findall(r"font-size: ([\d.]+)px|font: [^;]*?([\d.]+)px", drawing))
        >= 9
    )


def test_the_page_shows_every_picture_in_order() -> None:
    assert re.findall(r"<!-- figures: picture (\w+) -->", PAGE) == [*PICTURES]
    assert len(re.findall(r"^## \d+\. ", PAGE, re.MULTILINE)) == len(PICTURES) == 10


@each("kind", ["shown", "rare", "common"])
def test_what_is_kept_of_a_recorded_group_is_the_best_of_all_splits(kind: str) -> None:
    found = result("pictures")[kind]
    rewards, kept = found["rewards"], found["kept"]
    assert max_variance(rewards, len(kept)) == kept
    variances = draw.split_variances(rewards, len(kept))
    best = draw.best_split(found)
    assert variances[best] == max(variances) == pytest.approx(pvariance([rewards[i] for i in kept]), abs=1e-6)
    assert sorted(rewards[i] for i in kept)[-best:] == sorted(rewards)[-best:]


def test_splits_and_advantages_by_hand() -> None:
    assert draw.split_variances([0.5, 0.0, 1.0, 0.0], 2) == [0, 0.25, 0.0625]
    assert draw.best_split({"rewards": [0.0, 0.0, 0.0, 1.0], "kept": [0, 1, 3]}) == 1
    assert draw.best_split({"rewards": [0.0] * 4, "kept": [0, 1]}) == 1  # all are equal: the most even
    alone = {"rewards": [1.1, *[0.1] * 15], "kept": [*range(16)]}
    assert [*draw.kept_advantages(alone).values()] == pytest.approx([3.75, *[-0.25] * 15], abs=0.002)


def test_kinds_of_groups() -> None:
    assert kind_of(group(1.1, 0.1, 0.1, 0.1), 2) == "rare"
    assert kind_of(group(1.1, 1.1, 1.1, 0.0), 2) == "common"
    assert kind_of(group(1.1, 1.1, 1.1, 0.1, 0.0), 2) == "shown"
    assert kind_of(group(1.1, 1.1, 1.1, 0.1, 0.0), 3) is None  # no more correct ones than are kept
    assert kind_of(group(1.1, 1.1, 1.1, 0.1, 0.1), 2) is None  # two rewards
    assert kind_of(group(0.1, 0.1, 0.1), 1) is None


def test_a_quick_run_finds_a_group_of_each_kind() -> None:
    found = run(Namespace(quick=True))
    assert {kind: sum(own["correct"]) for kind, own in found.items() if kind != "shown"} == {"rare": 1, "common": 7}
    for own in found.values():
        assert max_variance(own["rewards"], 4) == own["kept"]
        assert all(value < 0 for value in own["before"] + own["after"]) and own["before"] != own["after"]
    assert len(page.captions(found).splitlines()) == 8


def test_what_the_page_says_of_the_update_holds() -> None:
    shown = result("pictures")["shown"]
    ways = draw.ways(shown)
    assert {*ways} == {0, 1, 2, 3}, "both ways can be correct and wrong"
    assert all((draw.factor(shown, i) > 1) == (way < 2) for i, way in enumerate(ways)), "worked out, or guessed"


def test_what_the_page_says_of_rare_answers_holds() -> None:
    assert [round(1 / (1 - 0.99**16)), round(1 / (1 - 0.99**64))] == [7, 2]


def test_what_the_page_says_of_training_on_all_holds() -> None:
    over = [
        arm["over_grpo_ga"]["0.9"]["cpu_seconds"]
        for row in result("when-pods-helps")["rows"]
        for arm in row["arms"]
        if (row["digits"], arm["arm"]) == (2, "PODS 64 → 16")
    ]
    assert len(over) == 10 and all(each["ratio"] >= 2 and each["bound"] in ("", "≥") for each in over)


def test_the_answer_of_the_exercise_has_the_largest_variance_of_all_seventy() -> None:
    rewards = [float(reward) for reward in re.findall(r"^\| \d \| (.*) \|$", PAGE, re.MULTILINE)]
    [(shown, answer)] = re.findall(r"rewards = (\[.*\])\nprint\(max_variance\(rewards, 4\)\)  # (\[.*\])", PAGE)
    kept = [int(i) for i in NUMBER.findall(answer)]
    assert [float(value) for value in NUMBER.findall(shown)] == rewards
    best = max(pvariance([rewards[i] for i in four]) for four in combinations(range(8), 4))
    assert pvariance([rewards[i] for i in kept]) == pytest.approx(best)
