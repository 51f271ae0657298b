"""Generators in child processes: equal to the one in this process, however often they are killed."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from contract import SEED, GeneratorContract, Models, by_place, drain, left_nothing, tokens_of
from podsrl_processes import blueprint_of

import children
from podsrl.config.schema import ModelConfig
from podsrl.control import Steering
from podsrl.errors import LostGenerator, PodsError, UsageError
from podsrl.generate import Engine, EngineStats, Generator, Request, Sampling
from podsrl.lib.matmul import use
from podsrl.policy import load_model
from podsrl.scale.generators.pool import Pool
from podsrl.scale.generators.process import ProcessGenerator
from podsrl.scale.generators.weights import SharedWeights
from podsrl.types import Rollout
from waiting import is_alive, wait_for

SAMPLING = Sampling(max_new_tokens=100, stop_token_ids=(1,))
REQUESTS = [Request(f"s0/{i}", (3 + i, 9), 8, SAMPLING) for i in range(5)]
HERE = Path(__file__).parent
pytestmark = pytest.mark.slow  # its generators take processor time that no test waits for
Found = dict[tuple[str, int], Rollout]
KEPT_PROCESSES = (b"generators.child",)
"""The module's pools have their processes to the end, and one that was lost has another in its place."""


class TestOneProcess(GeneratorContract):
    @pytest.fixture(scope="class")
    @classmethod
    def generator(cls, models: Models) -> Iterator[Generator]:
        use("mkl")
        with left_nothing():
            process = ProcessGenerator(blueprint_of(models.folder, model=models.first, seed=SEED), timeout_seconds=300)
            process.load_weights(models.first.named_parameters(), 0)
            yield process
            process.close()


class TestTwoProcesses(GeneratorContract):
    @pytest.fixture(scope="class")
    @classmethod
    def generator(cls, models: Models) -> Iterator[Generator]:
        use("mkl")
        blueprint = blueprint_of(models.folder, model=models.first, seed=SEED)
        with left_nothing():
            pool = Pool([lambda: ProcessGenerator(blueprint, timeout_seconds=300.0)] * 2, SharedWeights())
            pool.load_weights(models.first.named_parameters(), 0)
            yield pool
            pool.close()


@pytest.fixture
def model(tiny_model_folder: Path) -> Any:
    use("mkl")
    return load_model(ModelConfig(path=str(tiny_model_folder), device="cpu")).eval()


@pytest.fixture(scope="module")
def made() -> list[ProcessGenerator]:
    """All processes that the pool ever made: its members 0 and 1, and those that took the place of lost ones."""
    return []


@pytest.fixture(scope="module")
def shared_pool(tiny_model_folder: Path, made: list[ProcessGenerator]) -> Iterator[Pool]:
    blueprint = blueprint_of(tiny_model_folder)

    def start() -> ProcessGenerator:
        made.append(ProcessGenerator(blueprint, timeout_seconds=300.0))
        return made[-1]

    pool = Pool([start] * 2, SharedWeights())
    yield pool
    pool.close()


@pytest.fixture
def pool(shared_pool: Pool, model: Any) -> Pool:
    """Two processes with the model's weights; all tests share them."""
    shared_pool.load_weights(model.named_parameters(), 6)
    return shared_pool


@pytest.fixture(scope="module")
def shared_process(tiny_model_folder: Path) -> Iterator[ProcessGenerator]:
    process = ProcessGenerator(blueprint_of(tiny_model_folder), timeout_seconds=300.0)
    yield process
    process.close()


@pytest.fixture
def process(shared_process: ProcessGenerator, model: Any) -> ProcessGenerator:
    """One with the model's weights; all tests share it."""
    shared_process.load_weights(model.named_parameters(), 6)
    return shared_process


@pytest.fixture
def new_process(tiny_model_folder: Path) -> Iterator[Callable[..., ProcessGenerator]]:
    """Starts a generator in a child process, on a model folder; all are closed after the test."""
    made: list[ProcessGenerator] = []

    def start(folder: Path = tiny_model_folder, *, timeout_seconds: float = 300.0, **changes: Any) -> ProcessGenerator:
        made.append(ProcessGenerator(blueprint_of(folder, **changes), timeout_seconds=timeout_seconds))
        return made[-1]

    yield start
    for process in made:
        process.close()


def in_this_process(model: Any) -> Found:
    engine = Engine(model, seed=5)
    engine.version = 6
    return by_place(engine.generate(REQUESTS))


def test_one_gives_the_bits_of_this_process_and_two_give_the_tokens(
    model: Any, process: ProcessGenerator, pool: Pool
) -> None:
    wanted = in_this_process(model)
    assert by_place(process.generate(REQUESTS)) == wanted
    pool.stats = EngineStats()
    found = by_place(pool.generate(REQUESTS))
    assert tokens_of(found.values()) == tokens_of(wanted.values())
    assert pool.stats.tokens == sum(len(done.token_ids) for done in found.values()) and pool.peak_kv_bytes > 0


def test_a_killed_process_changes_no_bit(model: Any, pool: Pool, made: list[ProcessGenerator]) -> None:
    """Killed before the first completion is read, half-way, between two calls, and before new weights."""
    wanted = by_place(pool.generate(REQUESTS))
    for after in (0, 20):
        stream = pool.generate(REQUESTS)
        found = [next(stream) for _ in range(after)]
        before = len(made)
        os.kill(made[-1].pid, signal.SIGKILL)
        found += list(stream)
        assert by_place(found) == wanted
        assert after or len(made) == before + 1
    os.kill(made[-1].pid, signal.SIGKILL)  # noticed by the next call
    assert by_place(pool.generate(REQUESTS)) == wanted
    os.kill(made[-1].pid, signal.SIGKILL)
    pool.load_weights(model.named_parameters(), 6)
    assert by_place(pool.generate(REQUESTS)) == wanted


def test_a_watch_acts_there_as_here_also_in_place_of_a_lost_one(
    model: Any, process: ProcessGenerator, pool: Pool, made: list[ProcessGenerator]
) -> None:
    watch = Steering(["small_steering:Learned", "small_steering:Forked"], {})
    engine = Engine(model, seed=5)
    engine.version = 6
    wanted = by_place(engine.generate(REQUESTS, watch=watch))
    assert len(wanted) == 5 * (8 + 3) and any(done.is_pruned for done in wanted.values())
    assert by_place(process.generate(REQUESTS, watch=watch)) == wanted
    stream = pool.generate(REQUESTS, watch=watch)
    found = [next(stream) for _ in range(20)]
    os.kill(made[-1].pid, signal.SIGKILL)
    watch._parts["look"][0].part.shares[:] = 1.0  # what a part learns meanwhile is not for this call
    assert tokens_of([*found, *stream]) == tokens_of(wanted.values())
    for generator in (process, pool):
        with pytest.raises(UsageError, match=r"a set cannot watch a generator in another process: wanted a podsrl\."):
            list(generator.generate(REQUESTS, watch={1}))  # type: ignore[arg-type]  # on purpose
    assert len(by_place(pool.generate(REQUESTS))) == 40


def test_a_process_that_is_stopped_is_lost_when_its_time_is_over(pool: Pool, made: list[ProcessGenerator]) -> None:
    wanted, before = by_place(pool.generate(REQUESTS)), len(made)
    made[-1]._timeout_seconds = 1.0  # the process that takes its place has longer, since it starts first
    assert "decode step" in made[-1].describe(REQUESTS)  # from now on it waits so long
    os.kill(made[-1].pid, signal.SIGSTOP)
    assert by_place(pool.generate(REQUESTS)) == wanted and len(made) == before + 1


def test_silence_is_no_loss_while_nothing_is_awaited(
    model: Any, process: ProcessGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_timeout_seconds", 0.5)
    process.describe(REQUESTS)
    time.sleep(1.2)
    monkeypatch.undo()
    assert by_place(process.generate(REQUESTS)) == in_this_process(model)


def test_an_answer_that_nobody_waited_for_is_dropped(
    model: Any, process: ProcessGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where Ctrl-C ends the wait, and the program goes on."""

    def interrupted(self: Any, number: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ProcessGenerator, "_answer", interrupted)
        process.describe(REQUESTS)
    assert by_place(process.generate(REQUESTS)) == in_this_process(model)
    assert "decode step" in process.describe(REQUESTS)


def test_it_is_said_how_a_process_ended(new_process: Any) -> None:
    process = new_process()
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(LostGenerator, match=rf"{process.pid}.*SIGKILL"):
        list(process.generate(REQUESTS))


def test_what_fails_at_the_start_is_said_in_one_line(new_process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    cases = [
        ("raising", {"txt": 1}, UsageError, "there is no such option"),
        ("raising", {}, UsageError, "no memory today"),
        ("leaving", {}, LostGenerator, r"exit code 7.*the last words"),
        ("garbling", {}, LostGenerator, "it sent no message"),
    ]
    started = [new_process(generator=f"own_generators:{name}", options=options) for name, options, _, _ in cases]
    for process, (_, _, error, words) in zip(started, cases, strict=True):
        with pytest.raises(error, match=words):
            process.describe([])


def test_a_generator_of_ones_own_and_its_errors(new_process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    process = new_process(generator="own_generators:counting", options={"first": 11})
    found = by_place(process.generate([Request("a", (4, 5), 2, Sampling(max_new_tokens=3, stop_token_ids=()))]))
    assert {done.token_ids for done in found.values()} == {(11, 12, 13)}
    assert process.abilities == {"beside"}
    with pytest.raises(PodsError, match=r"ValueError: a prompt of 99"):
        list(process.generate([Request("a", (99,), 1)]))
    process.submit([Request("a", (4, 5), 1)])
    process.submit([Request("b", (4, 5), 2)])  # waits for the end of that call
    with pytest.raises(UsageError, match="'load'"):
        process.load_weights([], 1)
    assert drain(process).keys() == {("a", 0), ("b", 0), ("b", 1)}
    assert len(by_place(process.generate([Request("a", (4, 5), 2)]))) == 2


def test_it_works_while_the_caller_does_not_poll(model: Any, process: ProcessGenerator) -> None:
    assert process.abilities == Engine.abilities | {"beside"}
    rung = Event()
    process.on_event = rung.set
    process.submit(REQUESTS)
    assert rung.wait(300), "nothing came beside the caller"
    wait_for(lambda: not process._is_busy)
    found = process.poll(0)
    assert process.num_unfinished == 0 and by_place(found) == in_this_process(model)


def test_any_schedule_of_kills_gives_the_tokens_of_one_engine(
    model: Any, pool: Pool, made: list[ProcessGenerator]
) -> None:
    """Submits in pieces, aborts, what goes on from aborted tokens, loads of equal weights, and kills."""
    rng = random.Random(0)
    whole, found, num_kills = tokens_of(in_this_process(model).values()), list[Rollout](), 0
    waiting = [replace(one, num_rollouts=2, first_index=first) for one in REQUESTS for first in (0, 2, 4, 6)]
    while waiting or pool.num_unfinished:
        what = rng.randrange(8)
        if what < 3 and waiting:
            pool.submit([waiting.pop() for _ in range(min(len(waiting), 3))])
        elif what == 3:
            pool.abort([f"s0/{rng.randrange(5)}"])
        elif what == 4:
            pool.load_weights(model.named_parameters(), 6)
        elif what == 5 and num_kills < 2:
            os.kill(rng.choice(pool._members).generator.pid, signal.SIGKILL)  # type: ignore[attr-defined]
            num_kills += 1
        for done in pool.poll(0.05):
            if done.is_open:
                request, starts = REQUESTS[int(done.group_id[3:])], {done.index: done} if done.token_ids else {}
                waiting.append(replace(request, num_rollouts=1, first_index=done.index, starts=starts))
            else:
                found.append(done)
    assert tokens_of(found) == whole and num_kills == 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_processes_end_with_their_parent(tiny_model_folder: Path, number: int) -> None:
    """Whatever ends it, and while they generate."""
    script = f"""
import sys
sys.path[:0] = {[str(HERE), *sys.path]!r}
from pathlib import Path
from podsrl_processes import blueprint_of
from podsrl.generate import Request, Sampling
from podsrl.policy import load_model
from podsrl.config.schema import ModelConfig
from podsrl.scale.generators.pool import Pool
from podsrl.scale.generators.process import ProcessGenerator
from podsrl.scale.generators.weights import SharedWeights
folder = Path({str(tiny_model_folder)!r})
blueprint = blueprint_of(folder)
child = ProcessGenerator(blueprint, timeout_seconds=300)
pool = Pool([lambda: child], SharedWeights())
pool.load_weights(load_model(ModelConfig(path=str(folder), device="cpu")).named_parameters(), 0)
print(child.pid, flush=True)
while True:
    for done in pool.generate([Request("0", (3,), 64, Sampling(max_new_tokens=200, stop_token_ids=()))]):
        pass
"""
    parent = children.Popen([sys.executable, "-c", script], stdout=children.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert is_alive(child)
    time.sleep(0.5)
    parent.send_signal(number)
    parent.wait(300)
    wait_for(lambda: not is_alive(child), "a child is left")


def test_a_forgotten_process_is_ended(tiny_model_folder: Path) -> None:
    process = ProcessGenerator(blueprint_of(tiny_model_folder), timeout_seconds=300)
    pid = process.pid
    del process
    wait_for(lambda: not is_alive(pid))
