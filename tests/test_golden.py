"""What compares two commits, by hand; and a planted change, which it must find."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import golden

FACTS = {
    "config": {"config": {"lr": 1.0}},
    "train": {
        "run/metrics.jsonl": [{"step": 1, "loss": 0.5, "kl": None}, {"step": 2, "loss": float("nan"), "kl": None}]
    },
}


def changed(change: Callable[[Any], object]) -> Any:
    facts = json.loads(json.dumps(FACTS))
    change(facts)
    return facts


LOG = "run/metrics.jsonl"


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda facts: None, None),
        (lambda facts: facts["config"]["config"].update(new=2), None),
        (lambda facts: facts["config"]["config"].update(lr=2.0), "config, config, lr: 1.0 -> 2.0"),
        (lambda facts: facts["train"][LOG][1].update(loss=1), f"train, {LOG}, step 2, loss: NaN -> 1"),
        (lambda facts: facts["train"][LOG][0].update(kl=0), f"train, {LOG}, step 1, kl: null -> 0"),
        (lambda facts: facts["train"][LOG][0].update(x=1), f"train, {LOG}, step 1, x: nothing -> 1"),
        (lambda facts: facts["train"][LOG].pop(), f"train, {LOG}: 2 entries -> 1 entries"),
        (lambda facts: facts["train"].update(more={}), "train, more: nothing -> {}"),
    ],
)
def test_the_first_difference_has_its_place_and_both_values(
    change: Callable[[Any], object], wanted: str | None
) -> None:
    assert golden.first_difference(changed(lambda facts: None), changed(change)) == wanted


def test_a_name_that_has_changed_is_translated_and_a_new_one_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden, "RENAMED", {"new/loss": "loss", "added": None, "kl=3": "beta=9"})
    assert golden.renamed({"lines": [{"new/loss": 1, "added": 2, "kl": 3}]}) == {"lines": [{"loss": 1, "kl": 3}]}
    words = ("train", "pods", "--new/loss=5", "--added=1", "--kl=2", "--plain")
    assert [*golden.translated(words)] == ["train", "pods", "--loss=5", "--kl=2", "--plain"]
    assert [*golden.translated(("--kl=3", "--kl=33"))] == ["--beta=9", "--kl=33"]


@pytest.mark.skipif(not (golden.ROOT / ".git").exists(), reason="no git repository")
def test_a_commit_is_checked_out_beside_this_one(tmp_path: Path) -> None:
    found = golden.check_out("HEAD", tmp_path / "there")
    assert found is not None and len(found) == 40 and (tmp_path / "there/src/podsrl/cli/main.py").exists()
    with pytest.raises(SystemExit, match=r"'no-such': wanted a commit of .*, or a folder with src/podsrl"):
        golden.check_out("no-such", tmp_path / "other")


def test_a_planted_change_and_a_failure_are_named_and_other_cases_are_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A seed that is one step late, which only a random choice reads; and a recipe that is gone."""
    shutil.copytree(golden.ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    seeds = tmp_path / "src/podsrl/lib/seeds.py"
    before = seeds.read_text()
    seeds.write_text(before.replace('derive(seed, "selection", step)', 'derive(seed, "selection", step + 1)'))
    assert seeds.read_text() != before
    (tmp_path / golden.RECIPES / "systems/april.toml").unlink()
    only = [
        "one round, random choice, 2 epochs",
        "4 slots, preempted",
        "evaluation",
        "paper/compare-a",
        "groups that wait",
    ]
    assert {*golden.compare(str(tmp_path), only, 2)} == {only[0], only[4]}
    said = capsys.readouterr().out
    assert f"{only[0]}: train, run/metrics.jsonl, step 1, " in said and f"{only[1]}: equal" in said
    assert f"{only[4]}: there: pods train" in said and said.endswith(f"3 of 5 cases equal to {tmp_path}\n")
