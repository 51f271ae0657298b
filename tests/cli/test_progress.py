"""Lines for a log by a clock of the test's own, and whether a real command gives signs of life in a pipe."""

from __future__ import annotations

import io
import os
import re
import time
from pathlib import Path

import pytest
from early_lines import EARLY
from rich.console import Console

import children
from podsrl.cli import progress
from podsrl.cli.progress import FIRST_LINE_SECONDS, LINE_SECONDS, Bar, Cell, Lines, TimeLeft, shown, waiting
from waiting import SECONDS


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def lines(clock: Clock, log: io.StringIO) -> Lines:
    return Lines("judging", Console(file=log), clock)


def test_the_first_line_comes_early_and_then_at_most_one_in_ten_seconds(
    lines: Lines, clock: Clock, log: io.StringIO
) -> None:
    printed_at: list[float] = []
    for tenth in range(600):
        clock.now = 100.0 + tenth / 10
        before = len(log.getvalue())
        lines.update(tenth, 600, f"{tenth} of 600 rows")
        if len(log.getvalue()) > before:
            printed_at.append(clock.now - 100)
    assert printed_at == pytest.approx([3, 13, 23, 33, 43, 53], abs=0.11)
    first, *_, last = log.getvalue().splitlines()
    assert first == "judging    5%  57 s left  30 of 600 rows"
    assert last == "judging   88%  7 s left  530 of 600 rows"


def test_a_phase_that_reports_nothing_still_gives_signs_of_life(lines: Lines, clock: Clock, log: io.StringIO) -> None:
    lines.update(0, None, "loading")
    for _ in range(60):
        clock.now += 0.5
        lines.beat()
    assert log.getvalue().splitlines() == [f"judging  {seconds} s so far  loading" for seconds in (3, 13, 23)]


def test_what_is_said_is_printed_at_once_and_leaves_the_lines_their_turn(
    lines: Lines, clock: Clock, log: io.StringIO
) -> None:
    clock.now += FIRST_LINE_SECONDS - 0.1
    lines.say("step 0: [brackets] stay")
    assert log.getvalue() == "step 0: [brackets] stay\n"
    clock.now += 0.2
    lines.beat()
    assert len(log.getvalue().splitlines()) == 2


def test_a_line_is_whole_however_long_it_is(lines: Lines, clock: Clock, log: io.StringIO) -> None:
    clock.now += LINE_SECONDS
    lines.update(1, 2, "x" * 400)
    assert len(log.getvalue().splitlines()) == 1 and "\x1b" not in log.getvalue() and "\r" not in log.getvalue()


def test_of_two_that_wait_the_inner_one_speaks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "FIRST_LINE_SECONDS", float("inf"))  # while only one is there
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.1)
    monkeypatch.setattr(progress, "BEAT_SECONDS", 0.01)
    said, deadline = "", time.monotonic() + SECONDS
    with waiting("outer") as outer, Lines("inner") as inner:
        outer._due = inner._due = 0.0
        while said.count("\n") < 5 and time.monotonic() < deadline:
            inner._ended.wait(0.05)
            said += capsys.readouterr().err
    assert said and all(line.startswith("inner") for line in said.splitlines())


def test_the_time_left_is_by_the_pace_since_the_first_report(clock: Clock) -> None:
    left = TimeLeft(clock)
    assert left.seconds is None and left.text == "0 s so far"
    clock.now += 50  # loading
    left.report(0.5)  # a run that is resumed in the middle
    assert left.seconds is None and left.text == "50 s so far"
    clock.now += 10
    left.report(0.6)
    assert left.seconds == pytest.approx(40) and left.text == "40 s left"
    clock.now += 10  # nothing gained
    assert left.seconds == pytest.approx(80) and left.text == "1 min 20 s left"
    left.report(1.0)
    assert left.seconds == pytest.approx(0)


def test_a_file_gets_lines_even_where_colours_are_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "errors", Console(file=io.StringIO(), force_terminal=True))
    assert isinstance(shown("training"), Lines)


def test_in_a_terminal_what_is_said_stays_above_the_bar() -> None:
    screen = io.StringIO()
    with Bar("training", Console(file=screen, force_terminal=True, width=100)) as live:
        for step in range(3):
            live.say(f"step {step}: held-out accuracy 2.7%")
            live.update(step, 2, f"step {step}: accuracy: training 9.1%")
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert [text.count(f"step {step}: held-out accuracy 2.7%") for step in range(3)] == [1, 1, 1]
    end = text[text.rindex("held-out") :]
    assert "100%" in end
    assert "step 2: accuracy: training 9.1%" in end


def test_a_long_command_in_a_pipe_says_how_far_it_is(tmp_path: Path) -> None:
    command = [*EARLY, "pretrain", "base", "--skill_steps=22", "--mixture_steps=10", "--batch_size=16"]
    environment = {**os.environ, "FORCE_COLOR": "1", "OMP_NUM_THREADS": "1"}
    done = children.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    wanted = re.compile(r"pretraining +(\d+)%  .* (left|so far)  step ([\d,]+) of 32, loss [\d.]+ nats per token")
    found = [match for line in said if (match := wanted.fullmatch(line))]
    assert found and "\r" not in done.stderr
    shares = [int(match[1]) for match in found]
    assert shares == sorted(shares) and all(
        int(match[3]) / 0.32 == pytest.approx(int(match[1]), abs=1) for match in found
    )


def test_a_training_run_in_a_pipe_tells_how_far_its_evaluation_is(tmp_path: Path) -> None:
    options = ["--stop.seconds=0", "--stop.steps=1", "--eval.every_seconds=0", "--task.num_eval=64"]
    options += ["--eval.num_samples=8", "--rollouts.num_slots=64"]
    command = [*EARLY, "train", "pods", "--out", "run", *options]
    done = children.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = re.findall(r"^training .*evaluating: (\d+) of 512 answers$", done.stderr, re.MULTILINE)
    assert any(0 < int(count) < 512 for count in said), done.stderr


def as_seen(written: str) -> list[str]:
    """Lines as a notebook shows them: what follows a carriage return stands over what was there."""
    seen = []
    for line in written.removesuffix("\n").split("\n"):
        over = ""
        for part in line.split("\r"):
            over = part + over[len(part) :]
        seen.append(over.rstrip())
    return seen


def test_a_notebook_has_one_line_that_is_written_over_and_warnings_stay(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with Cell("training", clock) as cell:
        cell.update(0, None, "a long first text")
        cell.say("warning: two rollouts are invalid")
        cell.say("step 0: held-out accuracy 1.6%")
        for step in range(1, 41):
            clock.now += 0.1
            cell.update(step, 40, f"step {step}")
    written = capsys.readouterr().out
    assert as_seen(written) == ["warning: two rollouts are invalid", "training  100%  0 s left  step 40"]
    assert 6 <= written.count("\r") - 3 <= 8  # over four seconds two per second; and the first, the warning, the last


def test_a_notebook_shows_nothing_of_what_reports_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Cell("loading"):
        pass
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("is_plain", [False, True])
def test_in_a_notebook_every_display_is_its_line(
    is_plain: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(progress, "errors", Console(force_jupyter=True))
    assert isinstance(shown("training", folder=tmp_path, is_plain=is_plain), Cell)
    assert isinstance(waiting("loading"), Cell)
