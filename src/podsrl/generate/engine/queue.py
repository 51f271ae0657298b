"""The runs that wait for the scheduler, and the prompts they will start from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from podsrl.generate.engine.prefix_cache import Prefix, Shelf
from podsrl.generate.engine.sequence import Run
from podsrl.generate.schedule.job import Job
from podsrl.generate.schedule.scheduler import Scheduler


class Waiting:
    """Pending runs by their jobs. A prompt on the shelf stays there as long as somebody waits for it."""

    def __init__(self, scheduler: Scheduler, shelf: Shelf) -> None:
        self.has_changed = True
        """Something arrived, ended or left since the scheduler was asked."""
        self._scheduler = scheduler
        self._shelf = shelf
        self._runs: dict[Job, Run] = {}
        self._starters: Counter[Prefix] = Counter()  # runs that will start from this prompt

    def __contains__(self, run: Run) -> bool:
        return run.job in self._runs

    def add(self, runs: Sequence[Run]) -> None:
        """Let runs wait."""
        for run in runs:
            run.state = "pending"
            self._runs[run.job] = run
            if len(run.history) == 0:
                self._starters[run.request.prompt_ids] += 1
        self._scheduler.submit([run.job for run in runs])
        self.has_changed = True

    def withdraw(self, runs: Sequence[Run]) -> None:
        """Take runs back."""
        self._scheduler.withdraw([run.job for run in runs])
        self._remove(runs)
        self.forget_prompts(runs)

    def withdraw_all(self) -> None:
        """Take everything back from the scheduler, which may be the user's own object and live on."""
        with suppress(Exception):  # the scheduler itself may be what failed
            self._scheduler.withdraw(list(self._runs))

    def admit(self, live: Sequence[Job]) -> list[Run]:
        """The runs that start now. Call `forget_prompts` when they have."""
        self.has_changed = False
        runs = [self._runs[job] for job in self._scheduler.admit(live)]
        self._remove(runs)
        return runs

    def is_wanted(self, prompt: Prefix) -> bool:
        """Whether somebody waits to start from it."""
        return self._starters[prompt] > 0

    def forget_prompts(self, runs: Sequence[Run]) -> None:
        """Let go the prompts of these runs that nobody waits for any more."""
        for prompt in {run.request.prompt_ids for run in runs}:
            if self._starters[prompt] == 0:
                del self._starters[prompt]
                self._shelf.forget_prompt(prompt)

    def _remove(self, runs: Sequence[Run]) -> None:
        for run in runs:
            del self._runs[run.job]
            if len(run.history) == 0:
                self._starters[run.request.prompt_ids] -= 1
