"""The machine's cores, threads and memory: those of a container or a job of a cluster where it has fewer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from podsrl.config.load import load_config
from podsrl.lib import machine
from podsrl.lib.machine import (
    SMALL_MODEL_PARAMETERS,
    cgroup_limits,
    configure_threads,
    hardware_line,
    set_waiting_policy,
    total_bytes,
)
from podsrl.plan.preview import preview_run

CPU = torch.device("cpu")


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


SYSTEMS: dict[str, tuple[dict[str, str], list[int]]] = {
    "version 2, a job's group below its user's": (
        {
            "proc/self/cgroup": "0::/user/job",
            "sys/fs/cgroup/user/job/memory.max": "3000",
            "sys/fs/cgroup/user/memory.max": "9000",
        },
        [3000, 9000],
    ),
    "version 2, a container that sees its own group as the root": (
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "2000"},
        [2000],
    ),
    "version 2, no limit in the group, one above it": (
        {
            "proc/self/cgroup": "0::/a/b",
            "sys/fs/cgroup/a/b/memory.max": "max",
            "sys/fs/cgroup/a/memory.max": "7000",
        },
        [7000],
    ),
    "version 1": (
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/slurm/job\n1:name=systemd:/y\n0::/",
            "sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes": "4000",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "sys/fs/cgroup/cpu,cpuacct/x/memory.limit_in_bytes": "1",
        },
        [4000, 9223372036854771712],
    ),
    "version 1, a container whose path is the host's": (
        {
            "proc/self/cgroup": "4:memory:/docker/0123",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "5000",
        },
        [5000],
    ),
    "no control groups": ({}, []),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_limits_of_the_groups_that_a_process_is_in_are_found(tmp_path: Path, system: str) -> None:
    files, limits = SYSTEMS[system]
    assert cgroup_limits(write(tmp_path, files)) == limits


def test_the_smaller_of_machine_and_container_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cgroup_limits", lambda root: [])
    whole = total_bytes(CPU)
    assert whole > 1 << 28
    monkeypatch.setattr(machine, "cgroup_limits", lambda root: [1 << 28, 1 << 62])
    assert total_bytes(CPU) == 1 << 28
    monkeypatch.setattr(machine, "cgroup_limits", lambda root: [1 << 62])
    assert total_bytes(CPU) == whole


def test_memory_that_is_held_is_of_a_process_and_those_below_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = {"/proc/7/status": "Name:\tx\nVmHWM:\t9 kB\nVmRSS:\t  5 kB", "/proc/8/status": "VmRSS: 2 kB"}
    said["/proc/meminfo"] = "MemFree: 1 kB\nMemAvailable:    3 kB"
    monkeypatch.setattr(machine, "_text", lambda path: said.get(str(path), ""))
    monkeypatch.setattr(machine, "below", lambda pid: {8, 9})
    assert machine.resident_bytes(7) == 7 * 1024 and machine.available_bytes() == 3 * 1024
    said.clear()
    assert machine.resident_bytes(7) == machine.available_bytes() == 0


def test_a_dry_run_says_what_the_container_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `pods plan` does: it asks the same function."""
    monkeypatch.setattr(machine, "cgroup_limits", lambda root: [1 << 28])
    plan = preview_run(load_config("pods", ["model.device=cpu", "rollouts.num_rollouts=16000"]))
    assert plan.machine_bytes == 1 << 28 < plan.peak_bytes
    assert any("this machine's CPU has 0.2 GiB" in line for line in plan.warnings)


@pytest.fixture(autouse=True)
def same_threads_afterwards() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_small_model_gets_one_thread_and_a_large_one_every_usable_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 5})
    assert configure_threads(0, SMALL_MODEL_PARAMETERS - 1).startswith("1 of 3 CPU threads")
    assert torch.get_num_threads() == 1
    assert configure_threads(0, SMALL_MODEL_PARAMETERS).startswith("3 of 3 CPU threads")
    assert torch.get_num_threads() == 3


def test_a_wanted_number_of_threads_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert configure_threads(2, 10**12).endswith("OpenMP waiting policy ACTIVE")
    assert torch.get_num_threads() == 2


def test_the_waiting_policy_is_set_unless_the_user_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    set_waiting_policy()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    set_waiting_policy()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


@pytest.mark.parametrize(("usable", "wanted"), [({0}, ", 1 core, "), ({0, 1}, ", 2 cores, ")])
def test_the_hardware_line_counts_usable_cores_and_the_container_s_memory(
    usable: set[int], wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: usable)
    monkeypatch.setattr(machine, "cgroup_limits", lambda root: [3 << 28])
    assert f"{wanted}1 GiB, " in hardware_line()
