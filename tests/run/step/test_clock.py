"""The clock of a step's stages, on a clock that is one second later at every reading."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

import pytest
import torch

from podsrl.run.step.clock import STAGES, StageClock


def test_a_stage_has_the_seconds_of_all_its_visits(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = count(10)
    monkeypatch.setattr("podsrl.run.step.clock.time", SimpleNamespace(perf_counter=lambda: float(next(readings))))
    clock = StageClock(torch.device("cpu"))  # at 10
    with clock.stage("generate"), clock.stage("score"):  # 11 to 14, and within it 12 to 13
        pass
    with pytest.raises(KeyError), clock.stage("generate"):  # 15 to 16, whatever ends it
        raise KeyError
    with clock.stage("exchange"):  # 17 to 18: one of several processes
        pass
    assert clock.total() == 19.0 - 10.0
    assert clock.seconds == {**dict.fromkeys(STAGES, 0.0), "generate": 4.0, "score": 1.0, "exchange": 1.0}
    assert clock.going_on() is clock  # at 20
    assert clock.total() == 21.0 - 20.0 + 6.0 and sum(clock.seconds.values()) == 6.0
