"""Arms that take turns: each trains for a slice of its own seconds, then the next one does.

An arm is evaluated after the first of its optimizer steps that ends so many seconds after the last evaluation. The time
to an accuracy is that of the first evaluation that has it. An arm's clock runs only while it generates, scores and
updates.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from benchmarks.timing import Taken
from podsrl.errors import PodsError

MAX_STEP_SECONDS = 600.0
"""A step in a thread that takes longer is given up."""


class Arm(Protocol):
    """One way of training."""

    @property
    def model(self) -> Any:
        """The weights as they are now."""

    def step(self) -> Taken:
        """Generate, score and update once; returns what it took."""

    def close(self) -> None:
        """End what it has started."""


@dataclass(slots=True)
class Curve:
    """Held-out accuracy of one arm with one seed, at the start and at every evaluation."""

    accuracy: list[float]
    """[evaluations + 1]"""
    seconds: list[float] = field(default_factory=lambda: [0.0])
    """[evaluations + 1] training seconds so far."""
    cpu_seconds: list[float] = field(default_factory=lambda: [0.0])
    """[evaluations + 1] of them, processor time."""
    steps: list[int] = field(default_factory=lambda: [0])
    """[evaluations + 1] optimizer steps so far."""

    def add(self, trained: Trained, accuracy: float) -> None:
        """Add an evaluation."""
        self.seconds.append(round(trained.seconds, 4))
        self.cpu_seconds.append(round(trained.cpu_seconds, 4))
        self.steps.append(trained.steps)
        self.accuracy.append(accuracy)


@dataclass(slots=True)
class Trained:
    """What an arm has trained so far."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    steps: int = 0

    def add(self, taken: Taken) -> None:
        """Count one step."""
        self.seconds += taken.seconds
        self.cpu_seconds += taken.cpu_seconds
        self.steps += 1


def train_in_turns(
    arms: Mapping[str, Arm],
    accuracy_of: Callable[[Any], float],
    *,
    target: float,
    budget: float,
    turn_seconds: float,
    every_seconds: float = 0.0,
    first: int = 0,
    say: Callable[[str, Mapping[str, Curve]], None] = lambda name, curves: None,
) -> dict[str, Curve]:
    """Train every arm until it has the accuracy `target`, or has trained for `budget` seconds.

    In round r every arm trains until its own clock is at r · `turn_seconds` or beyond, so an arm whose step is longer
    than a turn misses some turns. The order rotates from round to round, beginning with arm `first`.

    Args:
        accuracy_of: from a model to its held-out accuracy.
        every_seconds: of training between two evaluations, at least; 0: every step is evaluated.
        say: called before each turn with the arm's name and the curves so far.
    """
    names = list(arms)
    curves = {name: Curve([accuracy_of(arm.model)]) for name, arm in arms.items()}
    trained = {name: Trained() for name in arms}
    active = {name for name, curve in curves.items() if curve.accuracy[0] < target}
    number = 0
    gc.collect()
    gc.freeze()  # so that the collections below look at new objects only
    try:
        while active:
            turn = (first + number) % len(names)
            number += 1
            for name in (*names[turn:], *names[:turn]):
                if name not in active:
                    continue
                arm, curve, so_far = arms[name], curves[name], trained[name]
                say(name, curves)
                gc.collect()  # an arm does not pay for the garbage of another
                while name in active and so_far.seconds < number * turn_seconds:
                    so_far.add(arm.step())
                    is_over = so_far.seconds >= budget
                    if is_over or so_far.seconds >= curve.seconds[-1] + every_seconds:
                        curve.add(so_far, accuracy_of(arm.model))
                    if is_over or curve.accuracy[-1] >= target:
                        active.remove(name)
    finally:
        gc.unfreeze()
    return curves


class Paused(BaseException):
    """Ends a function that `Stepwise` runs."""


class Stepwise:
    """Runs a function in a thread that stands still from each of its calls of `pause` to the next `go_on`.

    The function has the global random numbers of torch for itself: they go on where they were at its last pause.
    """

    def __init__(self, function: Callable[[], object], name: str) -> None:
        self._function, self._name = function, name
        self._may_run, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        self._num_threads = torch.get_num_threads()
        self._error: BaseException | None = None
        self._is_over = self._is_closed = False
        self._random = torch.get_rng_state()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def go_on(self) -> None:
        """Run to the next pause. PodsError: there is none, or it takes too long; else what the function raises."""
        others = torch.get_rng_state()
        torch.set_rng_state(self._random)
        self._may_run.release()
        if not self._stands.acquire(timeout=MAX_STEP_SECONDS):
            raise PodsError(f"{self._name}: a step took more than {MAX_STEP_SECONDS:g} s; the machine is too busy")
        self._random = torch.get_rng_state()
        torch.set_rng_state(others)
        if self._error is not None:
            raise self._error
        if self._is_over:
            raise PodsError(f"{self._name}: its training ended by itself")

    def pause(self) -> None:
        """Called by the function."""
        self._stands.release()
        self._may_run.acquire()
        if self._is_closed:
            raise Paused

    def close(self) -> None:
        """End the function at its pause, or at the next one."""
        self._is_closed = True
        self._may_run.release()
        self._thread.join(MAX_STEP_SECONDS)

    def _run(self) -> None:
        self._may_run.acquire()
        try:
            torch.set_num_threads(self._num_threads)
            if not self._is_closed:
                self._function()
        except Paused:
            pass
        except BaseException as error:
            self._error = error
        self._is_over = True
        self._stands.release()
