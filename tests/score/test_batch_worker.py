"""Functions of TRL's form in a process of their own: the same values as in this one, within a limit."""

from __future__ import annotations

import importlib
import math
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import RewardError
from podsrl.score.base import Rows
from podsrl.score.forms import judge_of
from podsrl.score.panel import Panel
from podsrl.types import Task

FUNCTIONS = """
import os, random, time, zlib
import numpy as np

seen = []

def spy(prompts, completions, completion_ids, answer, id, **columns):
    said = [repr((p, c, i, a, n, sorted((k, v[j]) for k, v in columns.items())))
            for j, (p, c, i, a, n) in enumerate(zip(prompts, completions, completion_ids, answer, id))]
    return [float(zlib.crc32(text.encode())) for text in said]  # a process has hashes of its own

def third(completions):
    return [len(str(text)) / 3 for text in completions]

def counts(completions):
    seen.extend(completions)
    return [len(seen)] * len(completions)

def process(completions):
    return [os.getpid()] * len(completions)

def draws(completions):
    return [random.gauss(0, 1) + np.random.standard_normal() for _ in completions]

def draws_torch(completions):
    import torch
    return torch.rand(len(completions), dtype=torch.float64)

def threads(completions):
    import torch
    return [torch.get_num_threads()] * len(completions)

def odd(completions):
    for text in completions:
        if text == "hang":
            time.sleep(600)
        if text == "die":
            os._exit(7)
        if text == "raise":
            raise KeyError("no")
        if text == "short":
            return [1.0]
        if text == "far":
            os.chdir("/")
    return [float(len(text)) for text in completions]

def level(completions, level):
    return level

def much(completions):
    return [float(len(np.empty(3 << 30, dtype=np.uint8)) > 0)] * len(completions)

def killed_first(completions):
    return [float(open("/proc/self/oom_score_adj").read())] * len(completions)
"""
TASK = Task(id="a", prompt="x", answer="1", columns={"level": 3, "span": (1, 2), "blob": b"\xff"})
CHAT = Task(id="c", prompt=({"role": "user", "content": "x\ud800"},), answer="2", columns={"level": 4, "span": None})
ROWS = Rows(tasks=[TASK, CHAT, TASK], texts=["a", "b\ud83d\ude00", "ccc"], token_ids=[(1, 2), (3,), ()])


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "trl_rewards.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "trl_rewards", raising=False)
    return importlib.import_module("trl_rewards")


def worker_of(functions: Any, *names: str, timeout_seconds: float = 100.0) -> Panel:
    return Panel({f"trl_rewards:{name}": "--reward" for name in names}, batch_timeout_seconds=timeout_seconds)


def texts(*texts: str) -> Rows:
    return Rows(tasks=[TASK] * len(texts), texts=texts, token_ids=[()] * len(texts))


def test_arguments_and_values_are_those_of_a_call_in_this_process(functions: Any) -> None:
    worker = worker_of(functions, "spy", "third")
    for name in ("spy", "third"):
        here = judge_of(f"trl_rewards:{name}", getattr(functions, name))(ROWS)
        assert worker.judge(f"trl_rewards:{name}", ROWS) == here and not here.faults
    assert len(set(here.values)) > 1
    worker.close()


def test_the_process_and_its_module_live_on(functions: Any) -> None:
    worker = worker_of(functions, "counts", "process")
    assert worker.judge("trl_rewards:counts", texts("a", "b")).values == [2.0, 2.0]
    assert worker.judge("trl_rewards:counts", texts("c")).values == [3.0]
    [pid] = worker.judge("trl_rewards:process", texts("c")).values
    assert pid != os.getpid()
    assert worker.judge("trl_rewards:process", texts()).values == []
    worker.close()
    assert functions.seen == []


@pytest.mark.parametrize("name", ["draws", "draws_torch"])
def test_random_numbers_are_those_of_the_batch_and_the_run_s_own_go_on(functions: Any, name: str) -> None:
    state, found = random.getstate(), []
    for _ in range(2):
        worker = worker_of(functions, name)
        found += [worker.judge(f"trl_rewards:{name}", ROWS).values for _ in range(2)]
        found.append(worker.judge(f"trl_rewards:{name}", texts("a", "b", "c")).values)
        worker.close()
    assert found[0] == found[1] == found[3] == found[4] and found[2] == found[5]
    assert len({*found[0], *found[2]}) == 6 and random.getstate() == state


def test_torch_has_the_main_process_s_threads(functions: Any) -> None:
    import torch

    before = torch.get_num_threads()
    worker = worker_of(functions, "threads")
    try:
        torch.set_num_threads(3)
        assert worker.judge("trl_rewards:threads", texts("a")).values == [3.0]
    finally:
        torch.set_num_threads(before)
        worker.close()


def test_a_hang_a_death_and_an_exception(functions: Any) -> None:
    worker = worker_of(functions, "odd", timeout_seconds=0.5)
    name = "trl_rewards:odd"
    hung = worker.judge(name, texts("a", "hang", "cc"))
    assert [fault.kind for fault in hung.faults.values()] == ["timeout"] * 3 and all(map(math.isnan, hung.values))
    assert hung.faults[0].reason == f"reward '{name}' took longer than 0.5 s and was stopped"
    assert worker.judge(name, texts("a", "cc")).values == [1.0, 2.0]
    dead = worker.judge(name, texts("a", "die"))
    assert {fault.reason for fault in dead.faults.values()} == {f"reward '{name}': its worker died (exit code 7)"}
    alone = worker.judge(name, texts("a", "raise", "cc"))
    assert alone.values[::2] == [1.0, 2.0]
    assert alone.faults[1].reason.startswith(f"reward '{name}' raised KeyError: 'no' (trl_rewards.py, line ")
    here = Path.cwd()
    assert worker.judge(name, texts("far")).values == [3.0] and Path.cwd() == here
    worker.close()


def test_a_broken_contract_is_an_error(functions: Any) -> None:
    worker = worker_of(functions, "odd", "level")
    with pytest.raises(RewardError, match=r"reward 'trl_rewards:odd' returned a list of 1; wanted a list of 2"):
        worker.judge("trl_rewards:odd", texts("a", "short"))
    other = Task(id="b", prompt="x", answer="1", columns={"levle": 2})
    with pytest.raises(RewardError, match=r"needs \['level'\], but task 'b' has none. Did you mean 'levle'"):
        worker.judge("trl_rewards:level", Rows(tasks=[other], texts=["a"], token_ids=[()]))
    assert worker.judge("trl_rewards:level", texts("a")).values == [3.0]
    worker.close()


def test_memory_has_no_limit_but_goes_first_where_it_runs_out(functions: Any) -> None:
    worker = worker_of(functions, "much", "killed_first")
    assert worker.judge("trl_rewards:much", texts("a")).values == [1.0]
    assert worker.judge("trl_rewards:killed_first", texts("a")).values == [500.0]
    worker.close()


def test_a_worker_that_is_killed_between_two_batches_is_replaced(functions: Any) -> None:
    worker = worker_of(functions, "process")
    [pid] = worker.judge("trl_rewards:process", texts("a")).values
    os.kill(int(pid), signal.SIGKILL)
    values = [worker.judge("trl_rewards:process", texts("a")) for _ in range(2)]
    assert values[1].values[0] not in (pid, math.nan) and not values[1].faults
    worker.close()
