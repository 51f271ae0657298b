"""For the tests of this folder: bubblewrap, or they are left out; and a user's own module of rewards in the row form,
some of which fail on purpose.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from podsrl.errors import UsageError
from podsrl.score.sandbox import BWRAP, require

REWARDS = """
import os, random, signal, sys, time
import numpy as np

def draw(task, text):
    return random.random() + np.random.rand()

def draw_torch(task, text):
    import torch
    return float(torch.rand(()))

def length(task, text):
    return float(len(text))

def process(task, text):
    return os.getpid()

def columns(task, text):
    return task.columns["level"] + len(task.prompt) + len(text)

def loads_torch(task, text):
    return "torch" in sys.modules

def odd(task, text):
    if text == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if text == "exit":
        sys.exit(3)
    if text == "hang":
        time.sleep(1000)
    if text == "greedy":
        return len([0] * (1 << 29))
    if text == "raise":
        raise KeyError("level")
    if text == "print":
        print("said by a reward")
        os.write(1, b"said by native code;")
    return float(len(text))


def has_module(task, text):
    return "own_module" in sys.modules

has_module.worker_modules = ()
"""


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the user's own module `worker_rewards`, on the path."""
    (tmp_path / "worker_rewards.py").write_text(REWARDS)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("worker_rewards", None)
    yield tmp_path
    sys.modules.pop("worker_rewards", None)  # not by monkeypatch, which would put it back


@pytest.fixture(scope="session")
def bubblewrap() -> None:
    try:
        require(BWRAP)
    except UsageError as error:
        pytest.skip(str(error))
