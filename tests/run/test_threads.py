"""The number of CPU threads is chosen, set and said."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from podsrl.run.threads import SMALL_MODEL_PARAMETERS, configure_threads, set_waiting_policy


@pytest.fixture(autouse=True)
def same_threads_afterwards() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_small_model_gets_one_thread_and_a_large_one_every_usable_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 5})
    assert configure_threads(0, SMALL_MODEL_PARAMETERS - 1).startswith("1 of 3 CPU threads")
    assert torch.get_num_threads() == 1
    assert configure_threads(0, SMALL_MODEL_PARAMETERS).startswith("3 of 3 CPU threads")
    assert torch.get_num_threads() == 3


def test_a_wanted_number_of_threads_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert configure_threads(2, 10**12).endswith("OpenMP waiting policy ACTIVE")
    assert torch.get_num_threads() == 2


def test_the_waiting_policy_is_set_unless_the_user_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    set_waiting_policy()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    set_waiting_policy()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
