"""Ray actors as generators, on a real cluster: the tokens of one engine, whatever dies meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError
from podsrl.generate import Engine, Request, Sampling, Setting
from podsrl.policy import load_model
from podsrl.scale.generators import ray_cluster
from podsrl.scale.generators.ray_cluster import Need, check_cluster, describe_nodes, reserve
from podsrl.scale.generators.ray_join import Address, joined
from podsrl.scale.generators.ray_pool import RayPool
from podsrl.scale.generators.worker import Blueprint
from podsrl.types import Completion
from tests.scale.generators.ray_nodes import SOURCE, RayCluster, processes_of_session, wait_until

pytest.importorskip("ray")
pytestmark = pytest.mark.slow
Pods = Callable[..., tuple[int, str, str]]
NewPool = Callable[..., RayPool]
SAMPLING = Sampling(max_new_tokens=40, stop_token_ids=(1,))
REQUESTS = [
    Request(
        f"q{i}", tuple(3 + (7 * i + j) % 40 for j in range(6 + i)), 8, Sampling(max_new_tokens=40, stop_token_ids=(1,))
    )
    for i in range(6)
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    made = RayCluster()
    with pytest.MonkeyPatch.context() as patch:
        try:
            made.start_head(num_cpus=2)
            for name, value in made.variables.items():
                patch.setenv(name, value)
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def model(tiny_model_folder: Path) -> Any:
    return load_model(ModelConfig(path=str(tiny_model_folder))).eval()


@pytest.fixture
def new_pool(cluster: RayCluster, model: Any, tokenizer: Any, tiny_model_folder: Path) -> Iterator[NewPool]:
    made: list[RayPool] = []

    def make(num: int) -> RayPool:
        setting = Setting(load_model=lambda: model, folder=str(tiny_model_folder), tokenizer=tokenizer, num_slots=64)
        blueprint = Blueprint.of(
            model, tokenizer, setting, generator="engine", options={},
            config=ModelConfig(path=str(tiny_model_folder)), threads=1, num_workers_here=num,
        )  # fmt: skip
        made.append(RayPool(blueprint, num, Need(), Address(cluster.address), timeout_seconds=120.0))
        made[-1].load_weights(model.named_parameters(), version=1)
        return made[-1]

    yield make
    for pool in made:
        pool.close()


@pytest.fixture(scope="module")
def expected(model: Any) -> dict[tuple[str, int], tuple[int, ...]]:
    return tokens(Engine(model, num_slots=64).generate(REQUESTS))


def tokens(found: Any) -> dict[tuple[str, int], tuple[int, ...]]:
    completions: list[Completion] = list(found)
    result = {(each.request_id, each.index): tuple(each.token_ids) for each in completions}
    assert len(result) == len(completions), "a completion came twice"
    return result


@pytest.mark.parametrize("num", [1, 2])
def test_same_tokens(num: int, new_pool: Any, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    puts, put = [], ray.put
    monkeypatch.setattr(ray, "put", lambda value: puts.append(value.nbytes) or put(value))
    pool = new_pool(num)
    assert tokens(pool.generate(REQUESTS)) == expected
    assert len(puts) == 1, "the weights are stored once for all actors"
    assert {completion.version for completion in pool.generate(REQUESTS[:1])} == {1}
    assert pool.stats.tokens > sum(map(len, expected.values())) - 1


def test_new_weights_arrive(new_pool: Any, model: Any) -> None:
    pool = new_pool(2)
    other = {name: 1.5 * weight.detach() for name, weight in model.named_parameters()}
    pool.load_weights(other.items(), version=2)
    copy = type(model)(model.config).eval()
    copy.load_state_dict(other, strict=False)
    assert tokens(pool.generate(REQUESTS)) == tokens(Engine(copy, num_slots=64).generate(REQUESTS))


def test_an_actor_killed_in_the_middle_changes_no_token(new_pool: Any, expected: Any) -> None:
    import ray

    pool = new_pool(2)
    for kill in (lambda pid, actor: ray.kill(actor), lambda pid, actor: os.kill(pid, signal.SIGKILL)):
        pid, actor = actor_0(pool)
        found = pool.generate(REQUESTS)
        first = next(found)
        kill(pid, actor)
        assert tokens([first, *found]) == expected
        assert actor_0(pool)[0] != pid


def actor_0(pool: RayPool) -> tuple[int, Any]:
    member = pool._members[0]
    return member.facts["pid"], member._actor


def test_a_node_that_dies_changes_no_token(cluster: RayCluster, new_pool: Any, expected: Any) -> None:
    node = cluster.add_node(num_cpus=1)
    try:
        pool = new_pool(2)  # spread: one on each node
        assert "2 nodes" in pool.describe(REQUESTS)
        found = pool.generate(REQUESTS)
        first = next(found)
        cluster.end(node)
        assert tokens([first, *found]) == expected
        assert tokens(pool.generate(REQUESTS)) == expected
    finally:
        cluster.end(node)


def test_what_cannot_fit(cluster: RayCluster, new_pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    check_cluster(cluster.address, 2, Need())
    for num, need in ((3, Need()), (1, Need(num_cpus=3)), (1, Need(num_gpus=1))):
        with pytest.raises(UsageError, match=rf"scale\.generators = {num}.* 2 CPU cores and 0 GPUs"):
            check_cluster(cluster.address, num, need)
    new_pool(2)
    monkeypatch.setattr(ray_cluster, "PLACE_SECONDS", 0.5)
    with joined(Address(cluster.address)):
        assert describe_nodes().startswith("1 node (")
        with pytest.raises(UsageError, match="free"):
            reserve(cluster.address, 1, Need())


def test_other_tokens_versions_and_code_are_one_line(
    cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    with monkeypatch.context() as patch, pytest.raises(UsageError, match="RAY_AUTH_TOKEN"):
        patch.setenv("RAY_AUTH_TOKEN", "0" * 32)
        check_cluster(cluster.address, 1, Need())
    with monkeypatch.context() as patch, pytest.raises(UsageError, match=r"Ray: 2\.0\.0") as error:
        patch.setattr(ray, "__version__", "2.0.0")
        check_cluster(cluster.address, 1, Need())
    assert "\n" not in str(error.value)
    (tmp_path / "podsrl").mkdir()
    (tmp_path / "podsrl" / "__init__.py").touch()  # stands before the installed package
    node = cluster.add_node(num_cpus=1, python_path=tmp_path)
    try:
        with pytest.raises(UsageError, match=r"no podsrl.*pip install"):
            check_cluster(cluster.address, 1, Need())
    finally:
        cluster.end(node)


def metrics(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith(("seconds/", "memory/"))} for line in lines]


def test_a_run_on_a_local_cluster_is_the_run_without_and_resumes(pods: Pods, tmp_path: Path) -> None:
    small = ["--rollouts.num_prompts=4", "--rollouts.num_rollouts=8", "--select.num_kept=4", "--task.num_eval=8"]
    small += ["--model.matmul=onednn", "--record.groups_every_steps=0", "--eval.every_seconds=0"]
    assert pods("train", "pods", *small, "--stop.steps=4", "--out=plain")[0] == 0
    own = ["--scale.generators=2", "--scale.ray=local"]
    code, _, error = pods("train", "pods", *small, *own, "--stop.steps=2", "--out=ray")
    assert code == 0, error
    code, _, error = pods("train", "--resume=ray", "--stop.steps=4")
    assert code == 0, error
    plain, ray = metrics(tmp_path / "plain"), metrics(tmp_path / "ray")
    steps = [[line for line in lines if "loss" in line] for lines in (plain, ray)]
    assert len(steps[0]) == len(steps[1]) == 4
    for name in ("step", "tokens/generated", "reward/all", "version"):
        assert [line[name] for line in steps[0]] == [line[name] for line in steps[1]]
    for one, other in zip(*steps, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3, abs=1e-6)


DRIVER = """
from podsrl.scale.generators.ray_cluster import Need
from podsrl.scale.generators.ray_join import join
from podsrl.scale.generators.ray_local import LocalCluster
cluster = LocalCluster(Need(), 1, 100 << 20)
join(cluster.address)
import ray
ray.get(ray.remote(lambda: 1).remote())  # a process that works
print(cluster.keeper_pid, cluster.folder, flush=True)
input()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_when_the_command_is_killed(number: signal.Signals) -> None:
    store = set(os.listdir("/dev/shm")) if Path("/dev/shm").exists() else set()
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        text=True,
    )
    try:
        assert driver.stdout is not None
        keeper, folder = driver.stdout.readline().split()
        assert len(processes_of_session(int(keeper))) > 4 and Path(folder).exists()
        driver.send_signal(number)
        driver.wait()
        wait_until(lambda: not processes_of_session(int(keeper)), 20.0)
        assert not Path(folder).exists()
        if store:
            assert not [name for name in set(os.listdir("/dev/shm")) - store if "plasma" in name or "ray" in name]
    finally:
        driver.kill()
        driver.communicate()
