"""What the supervisor of a reward worker does while nothing happens: it waits."""

from __future__ import annotations

import time
from pathlib import Path

from podsrl.score.base import Rows
from podsrl.score.workers.pool import WorkerPool
from podsrl.types import Task


def stat(pid: int) -> list[str]:
    """Of /proc: the state comes first, then the parent."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def test_the_supervisor_sleeps_after_a_worker_has_died(user_folder: Path) -> None:
    """One that spins is running, or ready to, whenever it is looked at, on a busy machine too."""
    task = Task(id="a", prompt="?", answer="1")
    with WorkerPool(["worker_rewards:odd", "worker_rewards:process"], num_workers=1) as workers:
        crashed = workers.judge("worker_rewards:odd", Rows(tasks=[task], texts=["crash"], token_ids=[()]))
        assert crashed.faults[0].kind == "died"
        [worker] = workers.judge("worker_rewards:process", Rows(tasks=[task], texts=["a"], token_ids=[()])).values
        supervisor = int(stat(int(worker))[1])
        time.sleep(0.2)
        states = []
        for _ in range(40):
            time.sleep(0.01)
            states.append(stat(supervisor)[0])
    assert states.count("S") > 30
