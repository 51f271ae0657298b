"""A signal at any instant ends a command in one line, and nothing that the command started outlives it."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import children
import small_options
from podsrl.lib.parent import PARENT, asked_of_child
from waiting import SECONDS, processes, variables_of, wait_for, words_of

SMALL = (*small_options.SMALL, "--checkpoint.every_seconds=0", "--checkpoint.every_steps=2")
LONG = (*SMALL, "--stop.steps=100000")
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
MARK = "PODS_TEST_MARK"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "podsrl.cli", *arguments]


def start(mark: str, *arguments: str, popen: type[subprocess.Popen[str]] = children.Popen) -> subprocess.Popen[str]:
    """All that it starts has the mark in its environment."""
    folder = Path(__file__).parent
    here = os.pathsep.join([str(folder), str(folder.parent), os.environ.get("PYTHONPATH", "")])
    return popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, MARK: mark, "COLUMNS": "200", "PYTHONPATH": here},
    )


def marked(mark: str) -> dict[int, str]:
    """Process id -> command line of every living process with that mark."""
    return {pid: " ".join(words_of(pid)) for pid in processes() if variables_of(pid).get(MARK) == mark}


def catches(process: subprocess.Popen[str], number: int) -> bool:
    """Whether it has a handler for a signal: the command has begun, and not Python alone."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    caught = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt")), 0)
    return bool(caught >> (number - 1) & 1) or process.poll() is not None


def has_steps(run: Path) -> bool:
    log = run / "metrics.jsonl"
    return log.exists() and any("seconds/total" in line for line in log.read_text().splitlines())


# --- early ---


@pytest.mark.parametrize("number", CODES)
def test_a_signal_while_the_command_is_imported_ends_it_in_one_line(number: signal.Signals, tmp_path: Path) -> None:
    process = start(str(tmp_path), "train", "pods", *LONG, "--out", str(tmp_path / "run"), popen=subprocess.Popen)
    wait_for(lambda: catches(process, signal.SIGTERM))
    process.send_signal(number)
    shown = process.communicate(timeout=300)
    assert (process.returncode, shown) == (CODES[number], ("", "interrupted\n"))
    assert not (tmp_path / "run").exists()


def test_a_signal_at_any_instant_ends_a_run_in_words_and_a_run_that_had_begun_goes_on(
    tmp_path: Path, pods: Callable[..., tuple[int, str, str]]
) -> None:
    began: list[Path] = []
    i = 0
    while len(began) < 2:  # however long this machine takes to load
        i += 1
        assert i < 17, "no run began"
        number = [*CODES][i % len(CODES)]
        run, mark = tmp_path / f"run{i}", f"{tmp_path}{i}"
        process = start(mark, "train", "pods", *LONG, "--out", str(run))
        wait_for(lambda process=process: catches(process, signal.SIGTERM))  # type: ignore[misc]
        time.sleep(0.25 * 1.5**i)  # to 200 seconds
        process.send_signal(number)
        _, shown = process.communicate(timeout=300)
        assert process.returncode == CODES[number], shown
        assert "Traceback" not in shown and "interrupted" in shown.splitlines()[-1], shown
        wait_for(lambda mark=mark: not marked(mark))  # type: ignore[misc]
        if (run / "config.toml").exists():
            began.append(run)
    log = began[-1] / "metrics.jsonl"
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()] if log.exists() else [0]
    code, _, shown = pods("train", "--resume", str(began[-1]), f"--stop.steps={steps[-1] + 2}")
    assert code == 0, shown


def test_a_closed_terminal_lets_a_run_save_itself(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command("train", "pods", *LONG, "--out", str(run)),
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: _take_terminal(),
    )  # fmt: skip
    os.close(theirs)
    os.set_blocking(ours, False)

    def has_trained() -> bool:
        with suppress(BlockingIOError):
            os.read(ours, 1 << 16)
        return process.poll() is not None or has_steps(run)

    wait_for(has_trained)
    os.close(ours)  # the system sends SIGHUP, and every write to the terminal is an error from now on
    assert process.wait(SECONDS) == 129
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert sorted((run / "checkpoints").iterdir())[-1].name == f"step-{last:08d}"


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_an_interrupt_in_the_exec_of_a_text_keeps_the_signal_s_exit_code(tmp_path: Path) -> None:
    """Python alone would end by SIGINT: libraries make classes by `exec`, and the command may be started with -m."""
    (tmp_path / "program.py").write_text(
        "import os, sys\nfrom podsrl.lib.signals import exit_code, leave_on_signal\nleave_on_signal()\n"
        "try:\n    exec('os.kill(os.getpid(), 15)\\nwhile True: pass')\n"
        "except KeyboardInterrupt:\n    print('caught')\n    sys.exit(exit_code())\n"
    )
    done = subprocess.run([sys.executable, "-m", "program"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (143, "caught\n", "")


# --- children ---


COMPARE = (
    "compare", "demo", "--num_seeds=1", "--jobs=2", "--base.task.num_eval=8", "--base.stop.seconds=600",
    "--base.eval.every_seconds=300", '--base.task.rewards={"test_signals:judged" = 1.0}',
    "--base.task.correct=test_signals:judged", "--base.task.reward_workers=1", "--base.checkpoint.every_seconds=1",
)  # fmt: skip


def judged(task: object, text: str) -> float:
    """In the form that reward workers run."""
    return float(len(set(text)) > 3)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_run_of_a_comparison_and_none_of_its_reward_workers_outlives_it(
    number: signal.Signals, tmp_path: Path
) -> None:
    mark, out = str(tmp_path), tmp_path / "out"
    process = start(mark, *COMPARE, "--out", str(out))
    try:
        wait_for(lambda: process.poll() is not None or len([*(out / "runs").glob("*/checkpoints/step-*")]) >= 2)
        everyone = marked(mark).values()
        assert sum(" train " in line for line in everyone) == 2, process.communicate()
        assert sum("podsrl.score.workers.supervisor" in line for line in everyone) >= 2
        process.send_signal(number)
        _, shown = process.communicate(timeout=300)
        assert process.returncode == CODES.get(number, -number), shown
        wait_for(lambda: not marked(mark))
    finally:
        process.kill()
    assert len([*(out / "runs").glob("*/checkpoints/step-*")]) >= 2


def test_a_child_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """Even one that hangs with the interpreter's lock held."""
    hang = "import time, sys; sys.setswitchinterval(1e6); print('ready', flush=True)\nwhile True: pass"
    child = f"import os; from podsrl.lib.parent import *; end_with_parent(); assert PARENT not in os.environ\n{hang}"
    parent = (
        "import subprocess, sys, os; from podsrl.lib.parent import asked_of_child\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], env=os.environ | asked_of_child())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, env={**os.environ, MARK: str(tmp_path)}
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    assert len(marked(str(tmp_path))) == 2
    process.kill()
    process.wait()
    wait_for(lambda: not marked(str(tmp_path)))


def test_a_child_whose_parent_is_gone_already_ends_at_once() -> None:
    program = "from podsrl.lib.parent import end_with_parent; end_with_parent(); print('alive')"
    environment = {**os.environ, **asked_of_child()}
    assert subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True).stdout == b"alive\n"
    done = subprocess.run([sys.executable, "-c", program], env={**environment, PARENT: "1"}, capture_output=True)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")


# --- the folder ---


def test_a_run_whose_folder_is_removed_ends_in_one_line(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(str(tmp_path), "train", "pods", *LONG, "--out", str(run))
    wait_for(lambda: has_steps(run))
    run.rename(tmp_path / "elsewhere")
    _, shown = process.communicate(timeout=300)
    assert process.returncode == 1 and "Traceback" not in shown
    assert shown.splitlines()[-1].startswith(f"failed: {run}: the run's folder") and not run.exists()


LATE = """
import os, signal
from podsrl.lib.signals import answered_by, leave_on_signal

class Last:
    def __del__(self, kill=os.kill, process=os.getpid()):
        kill(process, signal_number)

leave_on_signal()
signal_number, last = int(signal.SIGINT), Last()
with answered_by(lambda number: None):
    os.kill(os.getpid(), signal.SIGINT)
raise SystemExit(130)
"""


def test_a_signal_while_python_ends_does_not_change_the_exit_code() -> None:
    """Python has given up its handlers when the last objects are destroyed."""
    assert subprocess.run([sys.executable, "-c", LATE], timeout=300).returncode == 130
