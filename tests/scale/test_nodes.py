"""`pods launch` on several machines: two launchers on this one, or in network namespaces of their own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from running import SMALL, environment, ranks_of, run, steps
from running import pods as command_of
from safetensors.torch import load_file

import children
from podsrl.errors import UsageError
from podsrl.scale.nodes import Nodes
from podsrl.scale.rendezvous import find_place
from waiting import wait_for

pytestmark = pytest.mark.slow  # nodes wait for each other
Popen = subprocess.Popen[str]


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def start_node(rank: int, address: str, *words: str, inside: tuple[str, ...] = (), nodes: int = 2) -> Popen:
    place = ("--nodes", str(nodes), "--node-rank", str(rank), "--rendezvous", address, "--processes", "1")
    pipe = subprocess.PIPE
    command = [*inside, *command_of("launch", *place, *words)]
    return children.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment())


def start_two(*words: str) -> list[Popen]:
    address = free_address()
    return [start_node(rank, address, *words) for rank in (0, 1)]


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


def error_lines(shown: str) -> list[str]:
    return [line for line in shown.splitlines() if "killed by" in line or "error:" in line or "failed:" in line]


def same_numbers(folder: Path, expected: Path) -> None:
    assert len(steps(folder)) == len(steps(expected))
    for line, other in zip(steps(folder), steps(expected), strict=True):
        for name, value in other.items():
            if isinstance(value, float) and not name.startswith("seconds/"):
                assert line[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
            elif not name.startswith(("seconds/", "memory/", "sync/")):
                assert line[name] == value, name


# --- options and the meeting ---


def test_options_that_name_a_node_are_checked_before_anything_is_waited_for(
    pods: Callable[..., tuple[int, str, str]],
) -> None:
    for words, message in (
        (("--nodes", "2"), "--rendezvous HOST:PORT and --node-rank R"),
        (("--nodes", "2", "--node-rank", "2", "--rendezvous", "localhost:1"), "--node-rank 2: wanted 0 .. 1"),
        (("--nodes", "2", "--node-rank", "0", "--rendezvous", "localhost"), "wanted HOST:PORT"),
        (("--nodes", "2", "--node-rank", "0", "--rendezvous", "localhost:99999"), "wanted HOST:PORT"),
        (("--node-rank", "0"), "add --nodes N"),
        (("--rendezvous", "localhost:29500"), "add --nodes N"),
        (("--nodes", "2", "--node-rank", "0", "--rendezvous", "192.0.2.77:29500"), "--rendezvous 192.0.2.77:29500"),
        (("--nodes", "2", "--select.num_kept=few"), "select.num_kept"),
    ):
        code, _, err = pods("launch", "--processes", "1", *words, "pods")
        assert code == 2 and message in " ".join(err.split()), err
        assert len(err.strip().splitlines()) == 1, err


def test_the_address_may_be_of_ip_version_6() -> None:
    place = find_place(2, 0, "[::1]:29500", 1.0)
    assert (place.host, place.port) == ("::1", 29500)


def meet(address: str, rank: int, *, nodes: int = 2, seconds: float = 300.0, **options: Any) -> Nodes:
    return Nodes(find_place(nodes, rank, address, seconds), "runs/x", lambda line: None, **options)


def test_nodes_agree_and_count_their_processes_together() -> None:
    address = free_address()
    with meet(address, 0) as first, meet(address, 1) as second:
        other = threading.Thread(target=second.agree, args=(3, {"a": 1}))
        other.start()
        first.agree(2, {"a": 1})
        other.join()
        assert (first.first_rank, first.num_processes, second.first_rank, second.num_processes) == (0, 5, 2, 5)


def test_a_node_that_never_joins_is_named_with_the_bound() -> None:
    expected = pytest.raises(UsageError, match=r"1 of 2 nodes joined within --join-seconds 1; .*--node-rank 1")
    with expected, meet(free_address(), 0, seconds=1.0) as node:
        node.agree(1, {})


def test_an_address_where_nobody_answers_is_named_with_the_bound() -> None:
    with pytest.raises(UsageError, match=r"did not answer within --join-seconds 1 \(Connection refused\)"):
        meet(free_address(), 1, seconds=1.0)


def test_an_address_in_use_cannot_be_bound() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(UsageError, match=rf"127.0.0.1:{port}: cannot listen there \(Address already in use"):
            meet(f"127.0.0.1:{port}", 0)


def test_another_service_at_the_address_is_no_rendezvous() -> None:
    expected = pytest.raises(UsageError, match="something listens there, but it is no")
    with socket.create_server(("127.0.0.1", 0)) as server, expected:
        meet(f"127.0.0.1:{server.getsockname()[1]}", 1, answer_seconds=1.0)


def test_a_rank_that_is_taken_and_another_number_of_nodes_harm_no_one_else() -> None:
    address = free_address()
    with meet(address, 0, nodes=3) as first, meet(address, 1, nodes=3):
        with pytest.raises(UsageError, match=f"--node-rank 1 is taken already, .* {socket.gethostname()}"):
            meet(address, 1, nodes=3)
        with pytest.raises(UsageError, match="--nodes 4: node 0 was started with --nodes 3"):
            meet(address, 3, nodes=4)
        assert first.end is None


# --- whole runs ---


def test_nodes_with_different_configs_all_say_in_what_they_differ(tmp_path: Path) -> None:
    address, out = free_address(), ("--stop.steps=1", "--out", str(tmp_path / "run"))
    words = ("--select.num_kept=3", "--task.num_eval=21")
    launchers = [start_node(0, address, "pods", *SMALL, *out), start_node(1, address, "pods", *small(*words), *out)]
    for shown in ends(launchers):
        [line] = error_lines(shown)
        assert all(word in line for word in ("select.num_kept", "task.num_eval", "node 0 (", "node 1 (")), line
    assert [launcher.returncode for launcher in launchers] == [2, 2] and not (tmp_path / "run").exists()


def test_a_wrong_config_on_one_node_is_said_on_the_other_too(tmp_path: Path) -> None:
    address, out = free_address(), ("--stop.steps=1", "--out", str(tmp_path / "run"))
    wrong = '--task.rewards={"nowhere:nothing" = 1.0}'
    launchers = [start_node(0, address, "pods", *SMALL, *out), start_node(1, address, "pods", *SMALL, wrong, *out)]
    mine, other = ends(launchers)
    assert "failed: node 1 (" in mine and "nowhere" in mine and "error: " in other and "nowhere" in other


INSTANTS: dict[str, Callable[[Path], bool]] = {
    "imports": lambda folder: len(ranks_of(folder)) == 2,
    "rendezvous": lambda folder: len(ranks_of(folder)) == 2,  # and one process is stopped meanwhile
    "evaluation": lambda folder: (folder / "config.toml").exists(),
    "save": lambda folder: any((folder / "checkpoints").glob(".step-*")),
}


@pytest.mark.parametrize(("instant", "killed"), list(zip(INSTANTS, (1, 0, 1, 0), strict=True)))
def test_a_killed_process_ends_both_nodes_with_its_name(tmp_path: Path, instant: str, killed: int) -> None:
    folder = tmp_path / "run"
    options = small("--stop.steps=5000", "--task.num_eval=200", "--checkpoint.every_steps=1")
    launchers = start_two("pods", *options, "--out", str(folder))
    wait_in(launchers, lambda: INSTANTS[instant](folder))
    if instant == "rendezvous":
        os.kill(ranks_of(folder)[1 - killed], signal.SIGSTOP)
        time.sleep(8)
        os.kill(ranks_of(folder)[1 - killed], signal.SIGCONT)
    os.kill(ranks_of(folder)[killed], signal.SIGKILL)
    for shown in ends(launchers):
        [line] = error_lines(shown)
        assert f"process {killed}" in line and "killed by SIGKILL" in line and "Traceback" not in shown, shown
    assert [launcher.returncode for launcher in launchers] == [1, 1]
    assert ranks_of(folder) == {}


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_launcher_takes_its_processes_along_and_ends_the_other_node(tmp_path: Path, killed: int) -> None:
    folder = tmp_path / "run"
    launchers = start_two("pods", *SMALL, "--stop.steps=5000", "--out", str(folder))
    wait_in(launchers, lambda: len(steps(folder)) >= 2)
    launchers[killed].kill()
    shown = ends(launchers)[1 - killed]
    assert f"node {killed} (" in shown and "launcher" in shown and "Traceback" not in shown, shown
    assert launchers[1 - killed].returncode == 1 and ranks_of(folder) == {}


def test_ctrl_c_on_either_node_saves_and_the_resumed_run_has_the_numbers_of_one_process(
    tmp_path: Path, pods: Callable[..., tuple[int, str, str]]
) -> None:
    options = [*SMALL, "--optim.lr=1e-6", "--stop.steps=30"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert pods("train", "pods", *options, "--out", str(whole))[0] == 0
    words: tuple[str, ...] = ("pods", *options, "--out", str(cut))
    for asked in (0, 1):
        launchers, done = start_two(*words), len(steps(cut))
        wait_in(launchers, lambda: len(steps(cut)) >= done + 4)  # noqa: B023 - it is called at once
        launchers[asked].send_signal(signal.SIGINT)
        shown = ends(launchers)
        assert [launcher.returncode for launcher in launchers] == [130, 130], shown
        for text in shown:
            assert "interrupted; to resume: pods launch --nodes 2" in text, text
        newest = sorted((cut / "checkpoints").iterdir())[-1].name
        assert newest == f"step-{steps(cut)[-1]['step']:08d}" and steps(cut)[-1]["step"] < 30
        words = ("--resume", str(cut))
    launchers = start_two(*words)
    shown = ends(launchers)
    assert [launcher.returncode for launcher in launchers] == [0, 0] and f"resumed {newest}" in shown[0], shown
    same_numbers(cut, whole)


def test_the_second_ctrl_c_ends_both_nodes_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    launchers = start_two("pods", *small("--stop.steps=5000", "--task.num_eval=1000"), "--out", str(folder))
    wait_in(launchers, lambda: (folder / "config.toml").exists())  # in a long evaluation
    for _ in range(2):
        launchers[1].send_signal(signal.SIGINT)
        time.sleep(0.5)
    ends(launchers)
    assert [launcher.returncode for launcher in launchers] == [130, 130]
    assert ranks_of(folder) == {}


def test_without_a_shared_file_system_a_resume_wants_the_same_copy_on_every_node(tmp_path: Path) -> None:
    own, copy = tmp_path / "own", tmp_path / "copy"

    def both(*words: str) -> tuple[list[int | None], list[str]]:
        address = free_address()
        launchers = [start_node(rank, address, *words, str(folder)) for rank, folder in enumerate((own, copy))]
        shown = ends(launchers)
        return [launcher.returncode for launcher in launchers], shown

    codes, shown = both("pods", *SMALL, "--stop.steps=2", "--out")
    assert codes == [0, 0] and [path.name for path in copy.iterdir()] == ["logs"], shown
    codes, shown = both("--stop.steps=4", "--resume")
    assert codes == [1, 2] and all("copy the folder from node 0" in text for text in shown), shown

    shutil.copytree(own, copy, dirs_exist_ok=True)
    codes, shown = both("--stop.steps=4", "--resume")
    assert codes == [0, 0] and "resumed step-00000002" in shown[0], shown
    (copy / "config.toml").write_text((own / "config.toml").read_text())
    codes, shown = both("--stop.steps=6", "--resume")  # the copy is older now
    assert codes == [2, 2], shown
    assert all("step-00000004" in text and "copy" in text for text in shown), shown


# --- two machines, as far as the network goes ---


@pytest.fixture(scope="module")
def machines() -> Iterator[tuple[str, str]]:
    """Two network namespaces, joined by a cable; 10.97.0.1 and 10.97.0.2."""
    names = tuple(f"pods{os.getpid()}{side}" for side in "ab")
    cables = tuple(f"pv{os.getpid()}{side}" for side in "ab")

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
        start_node(rank, "10.97.0.1:29500", *words, str(two), inside=in_namespace(name))
        for rank, name in enumerate(machines)
    ]
    shown = ends(launchers)
    assert [launcher.returncode for launcher in launchers] == [0, 0], shown
    same_run(two, alone)
    if strategy == "ddp":
        done = run("launch", "--processes", "2", *words, str(one))
        assert done.returncode == 0, done.stderr
        bits = [[numbers(line) for line in steps(folder)] for folder in (one, two)]
        assert bits[0] == bits[1]
        assert all(torch.equal(weight, weights_of(two)[name]) for name, weight in weights_of(one).items())


def numbers(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if not name.startswith(("seconds/", "memory/"))}


def test_torchrun_on_two_machines(tmp_path: Path, machines: tuple[str, str], alone: Path) -> None:
    two = tmp_path / "two"
    place = ("--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "10.97.0.1", "--master-port", "29501")
    program = ("-m", "podsrl.cli", "train", "pods", *OPTIONS, "--out", str(two))
    launchers = []
    for rank, name in enumerate(machines):
        torchrun = [*in_namespace(name), sys.executable, "-m", "torch.distributed.run", "--node-rank", str(rank)]
        command, pipe = [*torchrun, *place, *program], subprocess.PIPE
        variables = environment() | {"TMPDIR": str(tmp_path)}
        launchers.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=variables))
    shown = ends(launchers)
    assert [launcher.returncode for launcher in launchers] == [0, 0], shown
    same_run(two, alone)


def test_a_machine_that_is_switched_off_is_noticed_though_no_connection_closes(
    tmp_path: Path, machines: tuple[str, str]
) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    launchers = [
        start_node(rank, "10.97.0.1:29502", "pods", *SMALL, "--stop.steps=5000", "--out", str(folders[rank]),
                   inside=in_namespace(name))
        for rank, name in enumerate(machines)
    ]  # fmt: skip
    cable = f"pv{os.getpid()}b"
    try:
        wait_in(launchers, lambda: len(steps(folders[0])) >= 2)
        subprocess.run(["ip", "-n", machines[1], "link", "set", cable, "down"], check=True)
        shown = ends(launchers)
    finally:
        subprocess.run(["ip", "-n", machines[1], "link", "set", cable, "up"], check=True)
    assert [launcher.returncode for launcher in launchers] == [1, 1], shown
    assert "node 1 (" in shown[0] and "node 0 (" in shown[1] and "network" in shown[0] + shown[1], shown
    assert ranks_of(folders[0]) == ranks_of(folders[1]) == {}
