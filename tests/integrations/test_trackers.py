"""What trackers get, what they remember, and what is checked before a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from podsrl.config.files import read_tree
from podsrl.config.load import apply_overrides, build
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.integrations.trackers import follow, tracking
from podsrl.integrations.trackers.table import COLUMNS, markdown, rows_of
from podsrl.run.before import checks
from podsrl.run.session import resume, start

GROUP = {
    "step": 3,
    "group": "s2/q",
    "task": {"id": "q", "prompt": "1 | 2?", "answer": "3"},
    "rollouts": [
        {
            "index": i,
            "text": text,
            "reward": reward,
            "parts": {},
            "is_correct": False,
            "invalid_reason": "no value" if reward is None else None,
            "num_tokens": 4,
            "finish_reason": "stop",
            "kept": kept,
            "drop_reason": None if kept else "invalid" if reward is None else "not_selected",
            "advantage": [0.5, 1.5] if kept else None,
        }
        for i, (text, reward, kept) in enumerate(
            (("plain", 0.5, False), ("<script>|\n# [x](y) \x1b[2J", 1.0, True), ("", None, False))
        )
    ],
}


def config_of(*overrides: str) -> RunConfig:
    return build(RunConfig, apply_overrides(read_tree("pods"), overrides), "of the test")


def test_a_row_tells_of_each_rollout_why_it_was_kept_or_dropped() -> None:
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in rows_of([GROUP])]
    assert [row["reward"] for row in rows] == [1.0, 0.5, None]
    assert [row["kept"] for row in rows] == [True, False, False]
    assert [row["advantage"] for row in rows] == [1.0, None, None]
    assert [row["why"] for row in rows] == ["", "not_selected", "invalid: no value"]
    assert all("\x1b" not in str(row["completion"]) for row in rows)


def test_a_model_cannot_leave_its_cell_of_the_markdown_table() -> None:
    head, ruler, *body = markdown(rows_of([GROUP])).split("\n")
    assert len(body) == 3
    for line in (head, ruler, *body):
        assert line.count("|") == len(COLUMNS) + 1
        assert not set(line.replace("<br>", "")) & set("<>[]()`*\x1b")


@pytest.mark.parametrize(
    "text", ["", "null", "[]", '{"id": "../../x", "last_step": {}}', '{"id": "a", "last_step": 3}', '{"id": "a"}']
)
def test_a_damaged_state_begins_a_new_run_of_the_tracker(tmp_path: Path, text: str) -> None:
    (tmp_path / "wandb.json").write_text(text)
    state = follow.State.read(tmp_path / "wandb.json")
    assert state.id.isalnum() and len(state.id) == 12 and state.last_step == {}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("wandbb", "'wandb'"),
        ("wandb,wandb", "twice"),
        ("comet", "Known: mlflow, tensorboard, trackio, wandb"),
        ("[3]", "record.trackers"),
    ],
)
def test_a_name_that_is_no_tracker_gets_one_line(pods: Any, value: str, message: str) -> None:
    code, _, err = pods("train", "pods", f"--record.trackers={value}", "--out", "run")
    assert code == 2 and message in err and "record.trackers" in err and len(err.strip().splitlines()) == 1


def test_trackers_are_given_as_a_list_or_with_commas() -> None:
    assert config_of("--record.trackers=wandb, mlflow").record.trackers == ("wandb", "mlflow")
    assert config_of('--record.trackers=["trackio"]').record.trackers == ("trackio",)
    assert config_of().record.trackers == config_of("--record.trackers=").record.trackers == ()
    with pytest.raises(UsageError, match=r"record\.project"):
        config_of("--record.project=a/b")


def test_a_missing_package_is_reported_with_its_install_line(
    pods: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    code, _, err = pods("train", "pods", "--record.trackers=wandb", "--out", "run")
    assert code == 2 and "pip install 'podsrl[trackers]'" in err and "wandb" in err
    assert not (tmp_path / "run").exists()
    code, _, err = pods("train", "pods", "--record.trackers=wandb", "--dry-run")
    assert "pip install 'podsrl[trackers]'" in err
    code, out, _ = pods("doctor")
    assert out.count("podsrl[trackers]") == 4 and "can train here" in out.splitlines()[0] and "paper/a" not in out
    assert "paper/a" in pods("doctor", "--all")[1]


def test_a_folder_of_a_packages_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_a_folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not checks.is_installed("only_a_folder") and checks.is_installed("json")


def test_a_package_that_its_finder_cannot_load_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        @staticmethod
        def find_spec(name: str, path: object, target: object = None) -> None:
            raise ImportError(name)

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    assert not checks.is_installed("no_such_package_q")


def test_in_python_trackers_are_not_ignored(tmp_path: Path) -> None:
    config = config_of("--record.trackers=tensorboard")
    watched: Any = {"on_record": print, "say": print}
    with pytest.raises(UsageError, match="tracking="):
        start(config, tmp_path / "run", **watched)
    assert not (tmp_path / "run").exists()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.toml").write_text('[record]\ntrackers = ["tensorboard"]\n')
    with pytest.raises(UsageError, match="tracking="):
        resume(tmp_path / "old", [], **watched)


def test_ctrl_c_waits_for_no_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow._Tracker, "join", lambda *_: pytest.fail("it waited"))
    with pytest.raises(KeyboardInterrupt), tracking(config_of("--record.trackers=tensorboard"), tmp_path, print):
        raise KeyboardInterrupt
