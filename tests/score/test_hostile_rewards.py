"""Some sixty hostile rewards in both forms: the step ends, good rows are right, and nothing is left running."""

from __future__ import annotations

import math
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from podsrl.score import Scorer
from podsrl.types import Task

sys.path.insert(0, str(Path(__file__).parent))
from hostile_rewards import ODD, VALID
from test_scorer import score

from waiting import processes, variables_of, wait_for, words_of

TASK = Task(id="a", prompt="x", answer="1")


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A word in the environment, or in the command line, of all that a worker starts."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    word = str(tmp_path / uuid.uuid4().hex)
    monkeypatch.setenv("HOSTILE_MARK", word)
    yield word
    assert not Path(word).exists()  # a pickle that ran would have made it


def left_running(mark: str) -> list[str]:
    """Command lines of other processes that hold the mark."""
    found = []
    for pid in processes():
        words = words_of(pid)
        if pid != os.getpid() and any(mark in text for text in (*words, *variables_of(pid).values())):
            found.append(" ".join(words))
    return found


def test_hostile_rows_spoil_themselves_alone(mark: str) -> None:
    here = Path.cwd()
    texts = [text for i, name in enumerate(ODD) for text in (name, "g" * (i + 1))]
    with Scorer({"hostile_rewards:row": 1.0}, "correct", workers=2, timeout_seconds=2.0) as scorer:
        [rollouts] = score(scorer, (TASK, texts))
        [[again]] = score(scorer, (TASK, ["good"]))
    for text, rollout in zip(texts, rollouts, strict=True):
        if text in VALID:
            assert (text, rollout.reward, rollout.invalid_reason) == (text, 2.0, None)
        elif text in ODD:
            assert math.isnan(rollout.reward) and rollout.invalid_reason, text
        else:
            assert (rollout.reward, rollout.invalid_reason) == (len(text), None)
    assert again.reward == 4.0 and Path.cwd() == here
    wait_for(lambda: not left_running(mark), mark)


@pytest.mark.parametrize("name", ODD)
def test_a_hostile_batch_ends_and_the_next_one_is_right(mark: str, name: str) -> None:
    if name == "end memory":
        pytest.skip("there is no limit of memory for whole batches")
    here = Path.cwd()
    with Scorer({"hostile_rewards:batch": 1.0}, "correct", batch_timeout_seconds=2.0) as scorer:
        [[first, odd, last]] = score(scorer, (TASK, ["go", name, "good"]))
        [after] = score(scorer, (TASK, ["go", "good"]))
    assert [rollout.reward for rollout in after] == [2.0, 4.0] and Path.cwd() == here
    if name in VALID:
        assert odd.reward == 2.0
    else:
        assert odd.invalid_reason
    if not name.startswith("end "):
        assert (first.reward, last.reward) == (2.0, 4.0)
    wait_for(lambda: not left_running(mark), mark)
