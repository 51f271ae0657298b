"""Generators in child processes: equal to the one in this process, however often they are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from contract import SEED, GeneratorContract, Models, left_nothing
from podsrl_processes import blueprint_of

from podsrl.config.schema import ModelConfig
from podsrl.errors import LostGenerator, PodsError, UsageError
from podsrl.generate import Engine, Generator, Request, Sampling
from podsrl.lib.matmul import choose, use
from podsrl.policy import load_model
from podsrl.scale.generators.pool import Pool
from podsrl.scale.generators.process import ProcessGenerator, SharedStore
from podsrl.types import Completion

pytestmark = pytest.mark.slow
SAMPLING = Sampling(max_new_tokens=100, stop_token_ids=(1,))
REQUESTS = [Request(f"s0/{i}", (3 + i, 9), 8, SAMPLING) for i in range(5)]
HERE = Path(__file__).parent
Found = dict[tuple[str, int], Completion]


def by_place(completions: Any) -> Found:
    completions = list(completions)
    found = {(done.request_id, done.index): done for done in completions}
    assert len(found) == len(completions), "a completion came twice"
    return found


def tokens(found: Found) -> dict[tuple[str, int], tuple[int, ...]]:
    return {place: done.token_ids for place, done in found.items()}


class ProcessContract(GeneratorContract):
    num: int

    @pytest.fixture(scope="class")
    @classmethod
    def generator(cls, models: Models) -> Iterator[Generator]:
        use(choose("mkl").rule)
        blueprint = blueprint_of(models.folder, model=models.first, seed=SEED)
        with left_nothing():
            make = lambda: ProcessGenerator(blueprint, timeout_seconds=120.0)  # noqa: E731
            pool = Pool([make] * cls.num, SharedStore())
            pool.load_weights(models.first.named_parameters(), 0)
            yield pool
            pool.close()


class TestOneProcess(ProcessContract):
    num = 1


class TestTwoProcesses(ProcessContract):
    num = 2


@pytest.fixture
def model(tiny_model_folder: Path) -> Any:
    use(choose("mkl").rule)
    return load_model(ModelConfig(path=str(tiny_model_folder), device="cpu")).eval()


@pytest.fixture
def new_pool(tiny_model_folder: Path, model: Any) -> Iterator[Callable[..., tuple[Pool, list[ProcessGenerator]]]]:
    """A pool with the model's weights, and all processes that it ever made."""
    pools: list[Pool] = []

    def make(num: int, timeout_seconds: float = 120.0) -> tuple[Pool, list[ProcessGenerator]]:
        blueprint, made = blueprint_of(tiny_model_folder, model=model), list[ProcessGenerator]()

        def start() -> ProcessGenerator:
            made.append(ProcessGenerator(blueprint, timeout_seconds=timeout_seconds))
            return made[-1]

        pools.append(pool := Pool([start] * num, SharedStore()))
        pool.load_weights(model.named_parameters(), 6)
        return pool, made

    yield make
    for pool in pools:
        pool.close()


def in_this_process(model: Any) -> Found:
    engine = Engine(model, seed=5)
    engine.version = 6
    return by_place(engine.generate(REQUESTS))


@pytest.mark.parametrize("num", [1, 3])
def test_tokens_are_those_of_this_process_and_with_one_also_the_bits(model: Any, new_pool: Any, num: int) -> None:
    pool, _ = new_pool(num)
    found, wanted = by_place(pool.generate(REQUESTS)), in_this_process(model)
    assert tokens(found) == tokens(wanted)
    assert num > 1 or found == wanted
    assert pool.stats.tokens == sum(len(done.token_ids) for done in found.values()) and pool.peak_kv_bytes > 0


@pytest.mark.parametrize("after", [0, 1, 20])
def test_a_killed_process_changes_no_bit(model: Any, new_pool: Any, after: int) -> None:
    """Killed before the first completion is read, after it, and half-way."""
    pool, made = new_pool(2)
    wanted = by_place(pool.generate(REQUESTS))
    stream = pool.generate(REQUESTS)
    found = [next(stream) for _ in range(after)]
    os.kill(made[1].pid, signal.SIGKILL)
    found += list(stream)
    assert by_place(found) == wanted
    os.kill(made[0].pid, signal.SIGKILL)  # between two calls: noticed by the next
    assert by_place(pool.generate(REQUESTS)) == wanted
    os.kill(made[2 if len(made) > 2 else 1].pid, signal.SIGKILL)
    pool.load_weights(model.named_parameters(), 6)
    assert by_place(pool.generate(REQUESTS)) == wanted


def test_a_process_that_is_stopped_is_lost_when_its_time_is_over(model: Any, new_pool: Any) -> None:
    pool, made = new_pool(1, timeout_seconds=20.0)
    wanted = by_place(pool.generate(REQUESTS))
    os.kill(made[0].pid, signal.SIGSTOP)
    made[0]._timeout_seconds = 1.0  # the process that takes its place has longer, since it starts first
    assert by_place(pool.generate(REQUESTS)) == wanted and len(made) == 2


def test_it_is_said_how_a_process_ended(new_process: Any) -> None:
    process = new_process()
    assert process.abilities == {"beside", "join", "abort_rollouts"}
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(LostGenerator, match=rf"{process.pid}.*SIGKILL"):
        list(process.generate(REQUESTS))


def test_what_fails_at_the_start_is_said_in_one_line(new_process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    with pytest.raises(UsageError, match="there is no such option"):
        new_process(generator="own_generators:raising", options={"txt": 1}).describe([])
    with pytest.raises(UsageError, match="no memory today"):
        new_process(generator="own_generators:raising").describe([])
    with pytest.raises(LostGenerator, match=r"exit code 7.*the last words"):
        new_process(generator="own_generators:leaving").describe([])


def test_a_generator_of_ones_own_and_its_errors(new_process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    process = new_process(generator="own_generators:counting", options={"first": 11})
    found = by_place(process.generate([Request("a", (4, 5), 2, Sampling(max_new_tokens=3))]))
    assert {done.token_ids for done in found.values()} == {(11, 12, 13)}
    assert process.abilities == {"beside"}
    with pytest.raises(PodsError, match=r"ValueError: a prompt of 99"):
        list(process.generate([Request("a", (99,), 1)]))
    assert len(by_place(process.generate([Request("a", (4, 5), 2)]))) == 2


def test_a_stopped_call_leaves_the_process_free(model: Any, new_pool: Any) -> None:
    pool, made = new_pool(2)
    wanted = by_place(pool.generate(REQUESTS))
    pool.generate(REQUESTS).close()
    stream = pool.generate(REQUESTS)
    next(stream)
    stream.close()
    assert by_place(pool.generate(REQUESTS)) == wanted and len(made) == 2


def test_it_works_while_the_caller_does_not_read(model: Any, new_process: Any) -> None:
    process = new_process()
    process.load_weights(model.named_parameters(), 6)
    stream = process.generate(REQUESTS)
    deadline = time.monotonic() + 60
    while process._inbox.qsize() < 2:
        assert time.monotonic() < deadline, "nothing came beside the caller"
        time.sleep(0.01)
    with pytest.raises(UsageError, match="open"):
        process.load_weights(model.named_parameters(), 7)
    assert by_place(stream) == in_this_process(model)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_processes_end_with_their_parent(tiny_model_folder: Path, number: int) -> None:
    """Whatever ends it, and while they generate."""
    before = set(os.listdir("/dev/shm"))
    script = f"""
import sys
sys.path[:0] = {[str(HERE), *sys.path]!r}
from pathlib import Path
from podsrl_processes import blueprint_of
from podsrl.generate import Request, Sampling
from podsrl.policy import load_model
from podsrl.config.schema import ModelConfig
from podsrl.scale.generators.pool import Pool
from podsrl.scale.generators.process import ProcessGenerator, SharedStore
folder = Path({str(tiny_model_folder)!r})
blueprint = blueprint_of(folder)
made = []
def start():
    made.append(ProcessGenerator(blueprint, timeout_seconds=60))
    return made[-1]
pool = Pool([start] * 2, SharedStore())
pool.load_weights(load_model(ModelConfig(path=str(folder), device="cpu")).named_parameters(), 0)
print(*[process.pid for process in made], flush=True)
while True:
    for done in pool.generate([Request(str(i), (3,), 64, Sampling(max_new_tokens=200)) for i in range(2)]):
        pass
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    children = [int(word) for word in parent.stdout.readline().split()]
    assert len(children) == 2 and all(map(is_running, children))
    time.sleep(0.5)
    parent.send_signal(number)
    parent.wait(30)
    deadline = time.monotonic() + 10
    while any(map(is_running, children)):
        assert time.monotonic() < deadline, "a child is left"
        time.sleep(0.02)
    assert {name for name in set(os.listdir("/dev/shm")) - before if "podsrl" in name} == set()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_signals_of_the_terminal_do_not_reach_a_process(new_process: Any) -> None:
    process = new_process()
    assert os.getsid(process.pid) == process.pid != os.getsid(0)


def test_a_forgotten_process_is_ended(tiny_model_folder: Path) -> None:
    process = ProcessGenerator(blueprint_of(tiny_model_folder), timeout_seconds=60)
    pid = process.pid
    del process
    deadline = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


