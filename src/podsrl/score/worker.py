"""The life of one reward worker: a process of its own that judges what the main process sends, one job after another.

Goes in, over the pipe: what to load (`Setup`), then lists of jobs. Comes out: None once all is loaded, then an outcome
and its seconds for each job, as soon as they are there. The process ends with its pipe. It loads no torch, unless a
user's function does.
"""

from __future__ import annotations

import hashlib
import random
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from podsrl.lib.parent import end_with
from podsrl.score.base import Fault, Rows
from podsrl.score.find import IN_WORKERS, find_reward
from podsrl.score.forms import RowForm
from podsrl.types import Task

_FIRST_TEXTS = (r"\boxed{1+x}", r"\boxed{y \sqrt{2}}", r"\boxed{[1, 2)}")
"""An equal and two unequal answers go through most of the algebra, parts of which load when first used."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker is told first."""

    names: tuple[str, ...]
    """Of the functions, as `podsrl.score.find.find_reward` knows them."""
    memory_bytes: int
    """Data that the worker may hold; what wants more raises MemoryError."""


@dataclass(frozen=True, slots=True)
class Job:
    """One completion for one function."""

    name: str
    task: tuple[str, Any, str, dict[str, Any]]
    """See `packed`."""
    text: str


def packed(task: Task) -> tuple[str, Any, str, dict[str, Any]]:
    """Give a task's fields as what can be pickled, which a read-only mapping cannot."""
    prompt = task.prompt if isinstance(task.prompt, str) else tuple(dict(message) for message in task.prompt)
    return task.id, prompt, task.answer, dict(task.columns)


def main() -> None:
    """Run a worker; its arguments are the pipe's file descriptor and the parent's process id."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    end_with(parent)
    sys.stdout = sys.stderr  # what a reward prints must not mix with what a command prints as its result
    connection: Connection[Any, Any] = Connection(descriptor)
    setup: Setup = connection.recv()
    resource.setrlimit(resource.RLIMIT_DATA, (setup.memory_bytes, setup.memory_bytes))
    try:
        functions = {name: _function(name) for name in setup.names}
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")
        return
    connection.send(None)
    try:
        while True:
            for job in connection.recv():
                start = time.perf_counter()
                outcome = _outcome(functions, job)
                connection.send((outcome, time.perf_counter() - start))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _function(name: str) -> RowForm:
    function: Any = find_reward(name, option="task.rewards")
    if name in IN_WORKERS:  # sympy and the grammar are loaded now, and not within the first completion's time limit
        for text in _FIRST_TEXTS:
            function(Task(id="", prompt="", answer="x+1"), text)
    return RowForm(name, function)


def _outcome(functions: Mapping[str, RowForm], job: Job) -> float | Fault:
    identity, prompt, answer, columns = job.task
    task = Task(id=identity, prompt=prompt, answer=answer, columns=columns)
    rows, judge = Rows(tasks=[task], texts=[job.text], token_ids=[()]), functions[job.name]
    had_torch = _seed(job)
    values = judge(rows)
    if not had_torch and _seed(job):  # the function has just loaded torch, whose numbers were not seeded
        values = judge(rows)
    return values.faults.get(0, values.values[0])


def _seed(job: Job) -> bool:
    """A function that draws random numbers gives a row the same value in every run and in whichever worker.

    Returns:
        Whether torch is loaded.
    """
    content = f"{job.name}\0{job.task[0]}\0{job.task[2]}\0{job.text}".encode("utf-8", "surrogatepass")
    seed = int.from_bytes(hashlib.blake2b(content, digest_size=4).digest(), "little")
    random.seed(seed)
    np.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
    return torch is not None
