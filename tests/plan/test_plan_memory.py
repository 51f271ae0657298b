"""How much memory a run may use: the machine's, or less in a container or a job of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from podsrl.config.load import load_config
from podsrl.plan import memory
from podsrl.plan.memory import cgroup_limits, total_bytes
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
    monkeypatch.setattr(memory, "cgroup_limits", lambda root: [])
    machine = total_bytes(CPU)
    assert machine > 1 << 28
    monkeypatch.setattr(memory, "cgroup_limits", lambda root: [1 << 28, 1 << 62])
    assert total_bytes(CPU) == 1 << 28
    monkeypatch.setattr(memory, "cgroup_limits", lambda root: [1 << 62])
    assert total_bytes(CPU) == machine


def test_a_dry_run_says_what_the_container_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `pods plan` does: it asks the same function."""
    monkeypatch.setattr(memory, "cgroup_limits", lambda root: [1 << 28])
    plan = preview_run(load_config("pods", ["model.device=cpu", "rollouts.num_rollouts=16000"]))
    assert plan.machine_bytes == 1 << 28 < plan.peak_bytes
    assert any("this machine's CPU has 0.2 GiB" in line for line in plan.warnings)
