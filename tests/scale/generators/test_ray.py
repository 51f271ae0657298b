"""Ray actors as generators, on a real cluster: the tokens of one engine, whatever dies meanwhile."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from contract import SEED, GeneratorContract, Models, tokens_of
from podsrl_processes import blueprint_of

import children
from podsrl.config.schema import ModelConfig
from podsrl.control import Steering
from podsrl.errors import UsageError
from podsrl.generate import Engine, EngineStats, Generator, Request, Sampling
from podsrl.policy import load_model
from podsrl.scale.generators.pool import Pool
from podsrl.scale.generators.ray_cluster import VARIABLES, check_cluster
from runs import numbers
from tests.scale.generators.ray_nodes import SOURCE, RayCluster, processes_of_session
from tests.scale.running import SMALL, run, start, steps
from waiting import wait_for

pytest.importorskip("ray")
pytestmark = pytest.mark.slow  # its clusters take processor time that no test waits for
SAMPLING = Sampling(max_new_tokens=40, stop_token_ids=(1,))
REQUESTS = [Request(f"q{i}", tuple(3 + (7 * i + j) % 40 for j in range(6 + i)), 8, SAMPLING) for i in range(6)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    made = RayCluster()
    with pytest.MonkeyPatch.context() as patch:
        try:
            made.start_head(num_cpus=4)
            for name, value in (VARIABLES | made.variables).items():
                patch.setenv(name, value)
            read_token_again()
            yield made
        finally:
            made.close()


def read_token_again() -> None:
    """Ray reads it once per process, and another test may have imported it."""
    raylet = import_module("ray._raylet")
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


def pool_of_two(cluster: RayCluster, folder: Path, model: Any, seed: int) -> Pool:
    from podsrl.scale.generators.ray import ObjectStore, ray_pool

    blueprint = blueprint_of(folder, model=model, seed=seed, num_workers_here=2)
    return ray_pool(ObjectStore(cluster.address), blueprint, 2, {"CPU": 1}, timeout_seconds=300.0)


class TestTwoActors(GeneratorContract):
    @pytest.fixture(scope="class")
    @classmethod
    def generator(cls, models: Models, cluster: RayCluster) -> Iterator[Generator]:
        with closing(pool_of_two(cluster, models.folder, models.first, SEED)) as pool:
            pool.load_weights(models.first.named_parameters(), 0)
            yield pool


@pytest.fixture(scope="module")
def model(tiny_model_folder: Path) -> Any:
    return load_model(ModelConfig(path=str(tiny_model_folder))).eval()


@pytest.fixture(scope="module")
def node(cluster: RayCluster) -> Any:
    """A second node."""
    return cluster.add_node(num_cpus=2)


@pytest.fixture(scope="module")
def shared_pool(cluster: RayCluster, node: Any, model: Any, tiny_model_folder: Path) -> Iterator[Pool]:
    import ray

    made, shutdown, late = pool_of_two(cluster, tiny_model_folder, model, seed=0), ray.shutdown, list[str]()

    def end() -> None:
        late.extend(thread.name for thread in threading.enumerate() if thread.name.startswith("Ray generator"))
        shutdown()

    with closing(made), pytest.MonkeyPatch.context() as patch:
        yield made
        patch.setattr(ray, "shutdown", end)
        made.close()
    assert not late  # the next call of a thread that still reads would start a cluster


@pytest.fixture
def pool(shared_pool: Pool, model: Any) -> Pool:
    """Two actors, of which each began on a node of its own; all tests share them."""
    shared_pool.load_weights(model.named_parameters(), version=1)
    return shared_pool


@pytest.fixture(scope="module")
def expected(model: Any) -> dict[tuple[str, int], tuple[int, ...]]:
    return tokens_of(Engine(model, num_slots=64).generate(REQUESTS))


def test_same_tokens(pool: Pool, expected: Any, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    puts, put = [], ray.put
    monkeypatch.setattr(ray, "put", lambda value: puts.append(value.nbytes) or put(value))
    pool.load_weights(model.named_parameters(), version=1)
    assert len(puts) == 1, "the weights are stored once for all actors"
    pool.stats = EngineStats()
    assert tokens_of(pool.generate(REQUESTS)) == expected
    assert pool.stats.tokens == sum(map(len, expected.values()))
    assert {completion.version for completion in pool.generate(REQUESTS[:1])} == {1}


def test_a_watch_acts_in_an_actor_as_here(pool: Pool, expected: Any, model: Any) -> None:
    watch = Steering(["random"], {"random": {"at": 3}})
    wanted = tokens_of(Engine(model, num_slots=64).generate(REQUESTS, watch=watch))
    assert tokens_of(pool.generate(REQUESTS, watch=watch)) == wanted != expected


def test_an_actor_killed_in_the_middle_changes_no_token(pool: Pool, expected: Any) -> None:
    import ray

    actor = pool._members[0].generator._actor
    found = pool.generate(REQUESTS)
    first = next(found)
    ray.kill(actor)
    assert tokens_of([first, *found]) == expected  # it may have given all of its own before it was killed
    assert tokens_of(pool.generate(REQUESTS)) == expected
    assert pool._members[0].generator._actor is not actor


def test_what_cannot_be_used_is_one_line(cluster: RayCluster, node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check_cluster(cluster.address, 6, {"CPU": 1})
    with pytest.raises(UsageError, match=r"scale\.generators = 2 .* room for 1, .* 4 CPU cores and 0 GPUs"):
        check_cluster(cluster.address, 2, {"CPU": 3})
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 32)
    with pytest.raises(UsageError, match="RAY_AUTH_TOKEN"):
        check_cluster(cluster.address, 1, {"CPU": 1})


def test_a_node_that_dies_changes_no_token(cluster: RayCluster, node: Any, pool: Pool, expected: Any) -> None:
    assert "2 nodes" in pool.describe(REQUESTS)
    found = pool.generate(REQUESTS)
    first = next(found)
    cluster.end(node)
    assert tokens_of([first, *found]) == expected
    assert tokens_of(pool.generate(REQUESTS)) == expected


OPTIONS = ("pods", *SMALL, "--scale.generators=2")


def test_a_run_ahead_on_a_local_cluster_is_the_run_without_though_an_actor_is_killed(tmp_path: Path) -> None:
    plain, ray = tmp_path / "plain", tmp_path / "ray"
    options = (*OPTIONS, "--order.ahead=1", "--stop.steps=3", "--out")
    command = start("train", *options, str(ray), "--scale.ray=local")
    wait_for(lambda: len(steps(ray)) > 0 or command.poll() is not None)
    actors = actors_below(command.pid)
    assert len(actors) == 2, command.communicate()
    os.kill(actors[0], signal.SIGKILL)
    _, shown = command.communicate(timeout=300)
    assert command.returncode == 0, shown
    assert run("train", *options, str(plain)).returncode == 0
    assert numbers(ray) == numbers(plain)


def test_two_processes_share_a_local_cluster_to_the_end(tmp_path: Path) -> None:
    done = run(
        "launch", "--processes", "2", *OPTIONS, "--scale.ray=local", "--stop.steps=1", "--out", str(tmp_path / "run")
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "finished.json").exists()


def actors_below(pid: int) -> list[int]:
    import psutil

    return [each.pid for each in psutil.Process(pid).children(recursive=True) if "ray::Service" in each.name()]


DRIVER = """
import os, sys
from podsrl.scale.generators.ray_cluster import local_cluster
cluster, token = local_cluster(1, 0, 100 << 20, "")
os.environ.update(token)
import ray
ray.init(address=cluster.address)
ray.get(ray.remote(lambda: 1).remote())  # a process that works
print(cluster._child.pid, cluster._folder.name, flush=True)
input()
"""


def test_nothing_is_left_when_the_command_is_killed() -> None:
    shared = Path("/dev/shm")
    before = {*shared.glob("*")}
    driver = children.Popen(
        [sys.executable, "-c", DRIVER],
        stdin=children.PIPE,
        stdout=children.PIPE,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        text=True,
    )
    try:
        assert driver.stdout is not None
        keeper, folder = driver.stdout.readline().split()
        assert len(processes_of_session(int(keeper))) > 4 and Path(folder).exists()
        driver.kill()
        driver.wait()
        wait_for(lambda: not processes_of_session(int(keeper)))
        assert not Path(folder).exists()
        # Another cluster that starts at this time removes the names of its memory at once.
        wait_for(lambda: not {*shared.glob("*plasma*"), *shared.glob("*ray*")} - before)
    finally:
        driver.kill()
        driver.communicate()
