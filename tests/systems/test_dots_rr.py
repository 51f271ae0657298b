"""The buffer of DOTS-RR, against a list that is kept by hand."""

from __future__ import annotations

import numpy as np
import pytest

from loops import each
from made import group_of
from podsrl.control import View
from podsrl.errors import UsageError
from podsrl.systems.dots_rr import Fifo
from podsrl.tasks.stream import Stream
from podsrl.types import Group


def view(step: int, seed: int = 0) -> View:
    return View(step=step, num_prompts=2, num_rollouts=2, num_train=9, seed=seed, stream=Stream(9, 0, 0))


def met(step: int, index: int, *rewards: float, is_trained: bool = True) -> Group:
    return group_of(f"s{step}/{index}", *rewards, index=index, is_trained=is_trained)


@each("seed", range(100))
def test_it_keeps_the_newest_mixed_group_of_each_question(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fifo, twin = Fifo(num=3, size=4), list[Group]()
    for step in range(12):
        assert len(fifo.recall(view(step, seed))) == min(3, len(twin))
        assert all(group in twin for group in fifo.recall(view(step, seed)))
        groups = [
            met(step, index, *rng.integers(2, size=3).astype(float), is_trained=bool(rng.integers(4)))
            for index in rng.choice(9, 3, replace=False).tolist()
        ]
        fifo.learn(groups)
        for group in groups:
            rewards = {rollout.reward for rollout in group.rollouts}
            if group.is_trained and rewards == {0.0, 1.0}:
                twin = [*(other for other in twin if other.index != group.index), group]
        twin = twin[-4:]
        assert list(fifo.state()["kept"]) == twin


def test_asking_takes_nothing_out_and_gives_the_same_again_and_others_in_another_step() -> None:
    fifo = Fifo(num=2, size=8)
    fifo.learn([met(0, index, 0.0, 1.0) for index in range(8)])
    first = fifo.recall(view(1))
    assert first == fifo.recall(view(1)) and len(first) == 2
    assert len({tuple(group.id for group in fifo.recall(view(step))) for step in range(20)}) > 10
    again = Fifo(num=2, size=8)
    again.restore(fifo.state())
    assert again.recall(view(1)) == first


def test_more_than_are_kept_cannot_be_given() -> None:
    with pytest.raises(UsageError, match=r"options\.dots_rr\.num = 9 .*options\.dots_rr\.size = 8"):
        Fifo(num=9, size=8)
