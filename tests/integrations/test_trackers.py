"""What trackers get, what they remember, and what is checked before a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from podsrl.config.files import read_tree
from podsrl.config.load import apply_overrides, build
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.integrations.trackers import follow, tracking
from podsrl.integrations.trackers import start as trackers_start
from podsrl.integrations.trackers.table import COLUMNS, markdown, rows_of
from podsrl.lib.child import Child
from podsrl.run.before import checks
from podsrl.run.session import resume, start
from waiting import words_of

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
    assert state.id.isalnum() and len(state.id) == 12 and state.last_step == {} and not state.is_begun


def test_a_state_is_read_back(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"id": "ab12", "is_begun": True, "last_step": {"step": 4}}))
    state = follow.State.read(tmp_path / "a.json")
    assert (state.id, state.is_begun) == ("ab12", True)
    assert [state.is_new("step", step) for step in (3, 4, 5)] == [False, False, True]
    assert state.is_new("evaluation", 0)


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


def test_a_folder_that_cannot_be_made_switches_the_tracker_off(tmp_path: Path) -> None:
    (tmp_path / "trackers").write_text("no folder")
    said: list[str] = []
    with tracking(config_of("--record.trackers=tensorboard"), tmp_path, said.append):
        pass
    assert len(said) == 1 and "tensorboard is switched off" in said[0]


def test_a_tracker_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the lock of another process that follows the same run, and there is none that lets go."""
    import fcntl

    monkeypatch.setattr(trackers_start, "END_SECONDS", 1.0)
    said: list[str] = []
    (tmp_path / "trackers").mkdir()
    with (tmp_path / "trackers" / "tensorboard.log").open("a") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        with tracking(config_of("--record.trackers=tensorboard"), tmp_path, said.append):
            pass
    assert len(said) == 2 and "waiting for tracker tensorboard" in said[0] and "did not finish" in said[1]


def test_ctrl_c_while_trackers_start_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Child] = []

    def start_one(*arguments: Any, **options: Any) -> Child:
        if started:
            raise KeyboardInterrupt
        started.append(Child(*arguments, **options))
        return started[0]

    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(trackers_start, "Child", start_one)
    with pytest.raises(KeyboardInterrupt), tracking(config_of("--record.trackers=tensorboard,mlflow"), tmp_path, print):
        pytest.fail("the run began")
    assert started[0].code is not None and list((tmp_path / "temporary").iterdir()) == []


def test_a_trackers_process_ends_within_a_bound_after_its_run_also_before_it_has_begun(tmp_path: Path) -> None:
    import fcntl

    (tmp_path / "own_follow.py").write_text(
        "from podsrl.integrations.trackers import follow\n"
        "follow.END_SECONDS = -4.0  # the bound is 5 s more\n"
        "main = follow.main\n"
    )
    file = tmp_path / "tensorboard.log"
    with file.open("a") as log, file.open("ab") as printed:
        fcntl.flock(log, fcntl.LOCK_EX)  # of another process, which does not let go
        child = Child(f"{tmp_path}/own_follow.py:main", "tensorboard", str(tmp_path), output=printed, ends_itself=True)
        child.channel.put("end")
        assert child.wait(300) == 1 and not file.read_text(), "it failed"


def test_ctrl_c_ends_trackers_at_once(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), tracking(config_of("--record.trackers=trackio"), tmp_path, print):
        raise KeyboardInterrupt
    import psutil

    assert not [child for child in psutil.Process().children() if "trackers.follow" in " ".join(words_of(child.pid))]
