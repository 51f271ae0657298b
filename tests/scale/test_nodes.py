"""A run on several machines: two torchruns on this one, or in network namespaces of their own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from running import SMALL, environment, ranks_of, run, same_numbers, steps
from safetensors.torch import load_file

import children
from runs import numbers
from waiting import wait_for

pytestmark = pytest.mark.slow  # nodes wait for each other
Popen = subprocess.Popen[str]


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def start_node(rank: int, address: str, logs: Path, *words: str, inside: tuple[str, ...] = (), **own: str) -> Popen:
    """Start torchrun with one process of `pods train`."""
    host, _, port = address.rpartition(":")
    place = ("--node-rank", str(rank), "--nnodes", "2", "--nproc-per-node", "1", "--master-addr", host)
    torchrun = (*inside, sys.executable, "-m", "torch.distributed.run", *place, "--master-port", port)
    command, pipe = [*torchrun, "-m", "podsrl.cli", "train", *words], subprocess.PIPE
    variables = environment() | {"TMPDIR": str(logs), **own}
    return children.Popen(command, stdout=pipe, stderr=pipe, text=True, env=variables)


def start_two(logs: Path, *words: str) -> list[Popen]:
    address = free_address()
    return [start_node(rank, address, logs, *words) for rank in (0, 1)]


def ends(launchers: list[Popen], seconds: float = 300.0) -> list[str]:
    """What each showed on stderr; all have ended within the time."""
    deadline = time.monotonic() + seconds
    try:
        return [launcher.communicate(timeout=max(1.0, deadline - time.monotonic()))[1] for launcher in launchers]
    finally:
        for launcher in launchers:
            launcher.kill()


def wait_in(launchers: list[Popen], condition: Callable[[], bool]) -> None:
    """Wait for the condition while the launchers run."""
    try:
        wait_for(lambda: condition() or any(launcher.poll() is not None for launcher in launchers))
        assert condition(), ends(launchers)
    except BaseException:
        for launcher in launchers:
            launcher.kill()
        raise


def small(*changes: str) -> list[str]:
    """Options of a small run, with changes."""
    keys = {text.partition("=")[0] for text in changes}
    return [*(text for text in SMALL if text.partition("=")[0] not in keys), *changes]


def root_cause(shown: str) -> str:
    """What torchrun names as the first failure."""
    return shown.partition("Root Cause")[2]


# --- whole runs ---


def test_nodes_with_different_configs_all_say_in_what_they_differ(tmp_path: Path) -> None:
    address, out = free_address(), ("--stop.steps=1", "--out", str(tmp_path / "run"))
    words = ("--select.num_kept=3", "--task.num_eval=21")
    launchers = [
        start_node(0, address, tmp_path, "pods", *SMALL, *out),
        start_node(1, address, tmp_path, "pods", *small(*words), *out),
    ]
    for shown in ends(launchers):
        said = [line for line in shown.splitlines() if line.startswith("error: process 0 (")]
        assert len(said) == 1 and "select.num_kept" in said[0] and "task.num_eval" in said[0], shown
    assert [launcher.returncode for launcher in launchers] == [1, 1] and not (tmp_path / "run").exists()


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_both_nodes_and_its_torchrun_names_it(tmp_path: Path, killed: int) -> None:
    folder = tmp_path / "run"
    launchers = start_two(tmp_path, "pods", *small("--stop.steps=5000"), "--out", str(folder))
    wait_in(launchers, lambda: len(steps(folder)) >= 2)
    os.kill(ranks_of(folder)[killed], signal.SIGKILL)
    shown = ends(launchers)
    assert "SIGKILL" in root_cause(shown[killed]), shown
    assert "another process of this run ended" in root_cause(shown[1 - killed]), shown
    assert [launcher.returncode for launcher in launchers] == [1, 1]
    assert ranks_of(folder) == {}


def test_ctrl_c_on_either_node_saves_and_the_resumed_run_has_the_numbers_of_one_process(
    tmp_path: Path, pods: Callable[..., tuple[int, str, str]]
) -> None:
    options = [*SMALL, "--optim.lr=1e-6", "--stop.steps=20"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert pods("train", "pods", *options, "--out", str(whole))[0] == 0
    words: tuple[str, ...] = ("pods", *options, "--out", str(cut))
    for asked in (0, 1):
        launchers, done = start_two(tmp_path, *words), len(steps(cut))
        wait_in(launchers, lambda: len(steps(cut)) >= done + 4)  # noqa: B023 - it is called at once
        launchers[asked].send_signal(signal.SIGINT)
        shown = ends(launchers)
        for text in shown:
            assert "interrupted; to resume: torchrun --nnodes 2 --node-rank R --nproc-per-node 1" in text, text
        newest = sorted((cut / "checkpoints").iterdir())[-1].name
        assert newest == f"step-{steps(cut)[-1]['step']:08d}" and steps(cut)[-1]["step"] < 20
        words = ("--resume", str(cut))
    launchers = start_two(tmp_path, *words)
    shown = ends(launchers)
    assert [launcher.returncode for launcher in launchers] == [0, 0] and f"resumed {newest}" in shown[0], shown
    same_numbers(cut, whole)


def test_without_a_shared_file_system_a_resume_wants_the_same_copy_on_every_node(tmp_path: Path) -> None:
    own, copy = tmp_path / "own", tmp_path / "copy"

    def both(*words: str) -> tuple[list[int | None], list[str]]:
        address = free_address()
        launchers = [start_node(rank, address, tmp_path, *words, str(path)) for rank, path in enumerate((own, copy))]
        shown = ends(launchers)
        return [launcher.returncode for launcher in launchers], shown

    codes, shown = both("pods", *SMALL, "--stop.steps=2", "--out")
    assert codes == [0, 0] and not copy.exists(), shown
    shutil.copytree(own, copy)
    codes, shown = both("--stop.steps=4", "--resume")
    assert codes == [0, 0] and "resumed step-00000002" in shown[0], shown
    (copy / "config.toml").write_text((own / "config.toml").read_text())
    codes, shown = both("--stop.steps=6", "--resume")  # the copy is older now
    assert codes == [1, 1], shown
    assert "step-00000004" in shown[1] and "copy" in shown[1], shown


# --- two machines, as far as the network goes ---

CABLE = f"pv{os.getpid()}{{}}"


@pytest.fixture(scope="module")
def machines() -> Iterator[tuple[str, str]]:
    """Two network namespaces, joined by a cable; 10.97.0.1 and 10.97.0.2."""
    names = tuple(f"pods{os.getpid()}{side}" for side in "ab")
    cables = tuple(map(CABLE.format, "ab"))

    def ip(*words: str) -> None:
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no network namespaces here: {done.stderr.strip()}")

    if shutil.which("ip") is None:
        pytest.skip("no network namespaces here: iproute2 is not installed")
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", cables[0], "netns", names[0], "type", "veth", "peer", "name", cables[1], "netns", names[1])
        for number, (name, cable) in enumerate(zip(names, cables, strict=True)):
            ip("-n", name, "address", "add", f"10.97.0.{number + 1}/24", "dev", cable)
            ip("-n", name, "link", "set", cable, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def in_namespace(name: str) -> tuple[str, ...]:
    return "ip", "netns", "exec", name


STEPS, RATE = 5, 1e-6
OPTIONS = (*SMALL, f"--optim.lr={RATE}", f"--stop.steps={STEPS}")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert run("train", "pods", *OPTIONS, "--out", str(folder)).returncode == 0
    return folder


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoints" / f"step-{STEPS:08d}" / "model" / "model.safetensors")


def same_run(folder: Path, expected: Path) -> None:
    """As one process's: AdamW moves a weight by up to its rate, whatever the size of its gradient."""
    same_numbers(folder, expected)
    one, several = weights_of(expected), weights_of(folder)
    assert one.keys() == several.keys()
    for name, weight in one.items():
        assert float((several[name] - weight).abs().max()) <= 2 * RATE * STEPS, name


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_two_machines_have_the_numbers_of_one_process_and_the_bits_of_two(
    tmp_path: Path, machines: tuple[str, str], alone: Path, strategy: str
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    words = ("pods", *OPTIONS, f"--scale.strategy={strategy}", "--out")
    launchers = [
        start_node(
            rank,
            "10.97.0.1:29500",
            tmp_path,
            *words,
            str(two),
            inside=in_namespace(name),
            GLOO_SOCKET_IFNAME=CABLE.format("ab"[rank]),
        )
        for rank, name in enumerate(machines)
    ]
    shown = ends(launchers)
    assert [launcher.returncode for launcher in launchers] == [0, 0], shown
    same_run(two, alone)
    if strategy == "ddp":
        done = run("launch", "--processes", "2", *words, str(one))
        assert done.returncode == 0, done.stderr
        assert numbers(one) == numbers(two)
        assert all(torch.equal(weight, weights_of(two)[name]) for name, weight in weights_of(one).items())
