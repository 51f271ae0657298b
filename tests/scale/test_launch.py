"""`pods launch`, as a person uses it: real processes that are killed, fail, are interrupted and resumed."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import SMALL, environment, ranks_of, run, same_numbers, start, steps

import children
from podsrl.scale.launch import launch
from waiting import wait_for

Pods = Callable[..., tuple[int, str, str]]


def test_a_killed_process_ends_all_and_the_run_goes_on_with_other_numbers_of_processes(
    tmp_path: Path, pods: Pods
) -> None:
    """Two processes until one is killed, three until Ctrl-C, one to the end: the numbers of one process throughout."""
    options = [*SMALL, "--optim.lr=1e-6", "--stop.steps=30"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert pods("train", "pods", *options, "--out", str(whole))[0] == 0

    first = start("launch", "--processes", "2", "pods", *options, "--out", str(cut))
    wait_for(lambda: len(steps(cut)) >= 5)
    os.kill(ranks_of(cut)[1], signal.SIGKILL)
    _, shown = first.communicate(timeout=300)
    assert first.returncode == 1
    assert "process 1: killed by SIGKILL" in shown and "Traceback" not in shown
    assert ranks_of(cut) == {} and not (cut / "finished.json").exists()

    done = len(steps(cut))
    second = start("launch", "--processes", "3", "--resume", str(cut))
    wait_for(lambda: len(steps(cut)) >= done + 3)
    second.send_signal(signal.SIGINT)
    _, shown = second.communicate(timeout=300)
    assert second.returncode == 130
    assert f"interrupted; to resume: pods launch --processes 3 --resume {cut}" in shown
    newest = sorted((cut / "checkpoints").iterdir())[-1].name
    assert newest == f"step-{steps(cut)[-1]['step']:08d}" and ranks_of(cut) == {}

    code, _, shown = pods("train", "--resume", str(cut))
    assert code == 0 and f"resumed {newest}" in shown, shown
    assert len(steps(whole)) == 30 + 4
    same_numbers(cut, whole)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_all_processes_fall_back_to_the_checkpoint_before_a_damaged_one(tmp_path: Path, strategy: str) -> None:
    folder = tmp_path / "run"
    options = [*SMALL, f"--scale.strategy={strategy}"]
    done = run("launch", "--processes", "2", "pods", *options, "--stop.steps=4", "--out", str(folder))
    assert done.returncode == 0, done.stderr
    before = steps(folder)
    optimizer = folder / "checkpoints" / "step-00000004" / "optimizer.safetensors"
    data = bytearray(optimizer.read_bytes())
    data[-1] ^= 1
    optimizer.write_bytes(data)
    done = run("launch", "--processes", "2", "--resume", str(folder), "--stop.steps=6")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("optimizer.safetensors is damaged") == 1 and "resumed step-00000002" in done.stderr
    assert [line["step"] for line in steps(folder) if "seconds/total" in line] == [1, 2, 3, 4, 5, 6]
    again = [line for line in steps(folder) if "seconds/total" in line]
    for old, new in zip([line for line in before if "seconds/total" in line], again, strict=False):
        assert (new["reward/all"], new["length/all"]) == (old["reward/all"], old["length/all"]), old["step"]
    assert ranks_of(folder) == {}


def test_modules_beside_the_user_shadow_nothing_in_a_launched_process(tmp_path: Path) -> None:
    (tmp_path / "scipy.py").write_text("open('ran', 'w')")
    (tmp_path / "pydantic.py").write_text("open('ran', 'w')")
    command = [sys.executable, "-P", "-m", "podsrl.cli", "launch", "--processes", "1", "pods", *SMALL]
    done = children.run(
        [*command, "--stop.steps=1", "--out", "run"], cwd=tmp_path, capture_output=True, text=True, env=environment()
    )
    assert done.returncode == 0 and not (tmp_path / "ran").exists(), done.stderr


def breaks_on_one(prompts: list[str], completions: list[str]) -> list[float]:
    """Breaks its contract in process 1 alone, after the trial before training, the evaluation, and step 0."""
    breaks_on_one.calls = getattr(breaks_on_one, "calls", 0) + 1  # type: ignore[attr-defined]
    is_broken = os.environ.get("RANK") == "1" and breaks_on_one.calls > 3  # type: ignore[attr-defined]
    return [float(len(set(text))) for text in completions[is_broken:]]


def test_the_error_of_the_process_that_fails_is_the_one_shown(tmp_path: Path) -> None:
    done = run(
        "launch", "--processes", "2", "pods", *SMALL, "--stop.steps=500",
        '--task.rewards={"test_launch:breaks_on_one" = 1.0}', "--task.correct=test_launch:breaks_on_one",
        "--out", str(tmp_path / "run"),
    )  # fmt: skip
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if "error:" in line or "failed:" in line]
    assert len(errors) == 1 and errors[0].startswith("process 1: error: ") and "breaks_on_one" in errors[0], done.stderr
    assert str(tmp_path / "run" / "logs" / "rank-1.log") in done.stderr
    assert ranks_of(tmp_path / "run") == {}


def test_torchrun_names_the_process_that_failed_with_its_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "-m", "podsrl.cli", "train", "pods"]
    command += [*SMALL, "--stop.steps=500", '--task.rewards={"test_launch:breaks_on_one" = 1.0}']
    done = children.run(
        [*command, "--task.correct=test_launch:breaks_on_one", "--out", str(tmp_path / "run")],
        capture_output=True, text=True, env=environment() | {"TMPDIR": str(tmp_path)}, timeout=300,
    )  # fmt: skip
    cause = done.stderr.partition("Root Cause")[2]
    assert done.returncode == 1 and "(local_rank: 1)" in cause and "breaks_on_one" in cause, done.stderr


def test_no_process_outlives_a_killed_launcher(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    launcher = start("launch", "--processes", "2", "pods", *SMALL, "--stop.steps=5000", "--out", str(folder))
    wait_for(lambda: len(steps(folder)) >= 2)
    assert sorted(ranks_of(folder)) == [0, 1]
    launcher.kill()
    launcher.wait()
    wait_for(lambda: ranks_of(folder) == {})


def test_a_wrong_config_is_refused_before_any_process_starts(tmp_path: Path, pods: Pods) -> None:
    for words, message in (
        (("--rollouts.num_prompts=1",), "rollouts.num_prompts = 1 is fewer than the 2 processes"),
        (("--select.rule=max_varianse",), "Did you mean 'max_variance'?"),
        (("--model.device=cuda:0",), "each takes a GPU of its own"),
    ):
        code, _, shown = pods("launch", "--processes", "2", "pods", *words, "--out", str(tmp_path / "run"))
        assert code == 2 and message in shown, shown
        assert not (tmp_path / "run").exists()


def launched(tmp_path: Path, program: str, num_processes: int, **options: Any) -> Any:
    text = f"import os, sys, time\nrank = os.environ['RANK']\n{program}"
    return launch([sys.executable, "-c", text], num_processes, tmp_path, **options)


LISTENERS = """
import psutil
from podsrl.scale.processes import join_processes
processes = join_processes('cpu')
pids = processes.gather(os.getpid())
found = [each for pid in (*pids, os.getppid()) for each in psutil.Process(pid).net_connections()]
print(*{each.laddr.ip for each in found if each.status == 'LISTEN'})
processes.gather(rank)
sys.stdout.flush()
os._exit(0)
"""


def test_processes_of_one_machine_meet_where_no_other_machine_reaches(tmp_path: Path) -> None:
    end = launched(tmp_path, LISTENERS, 3)
    assert end.code == 0
    for rank in (1, 2):
        assert set((tmp_path / f"rank-{rank}.log").read_text().split()) == {"127.0.0.1"}


def test_the_first_real_failure_decides_though_others_lost_it_earlier(tmp_path: Path) -> None:
    """Processes 0 and 2 say that another was lost (3) before the one that failed has ended."""
    program = "if rank != '1': sys.exit(3)\ntime.sleep(0.5); print('first\\nit broke', file=sys.stderr); sys.exit(2)"
    end = launched(tmp_path, program, 3)
    assert (end.rank, end.code, end.last_line) == (1, 2, "it broke")


def test_processes_that_do_not_notice_are_killed(tmp_path: Path) -> None:
    began = time.monotonic()
    end = launched(tmp_path, "sys.exit(4) if rank == '1' else time.sleep(500)", 2, grace_seconds=0.5)
    assert (end.rank, end.code) == (1, 4) and time.monotonic() - began < 400


def test_all_is_well_when_all_end_well(tmp_path: Path) -> None:
    end = launched(tmp_path, "print(os.environ['WORLD_SIZE'], rank)", 3)
    assert (end.rank, end.code, end.log) == (0, 0, None)
    assert (tmp_path / "rank-2.log").read_text() == "3 2\n"
