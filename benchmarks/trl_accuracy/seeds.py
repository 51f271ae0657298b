"""Training seconds until 50, 80 and 90 % are right in the demo: TRL's GRPOTrainer, PODS in TRL, and podsrl itself.

    python -m benchmarks trl-accuracy            5 seeds, about 40 minutes on an idle core
    python -m benchmarks trl-accuracy --quick    one seed, 12 seconds per arm, nothing tuned, under two minutes
    python -m benchmarks trl-accuracy --save     also the picture and the table of docs/benchmarks.md

Model, task, KL penalty, questions per step and held-out questions are those of the recipe `demo`; one thread. All arms
have the same questions, rewards, temperature, token limit, loss and AdamW. An arm has the learning rate of the demo's
arm with as many rollouts, generated and kept (`python -m benchmarks demo --tune` measures them), as TRL's loss and
gradient are podsrl's (`python -m benchmarks trl`). TRL has its fastest micro-batch and way to generate, which are
measured first. With each seed the arms take turns. podsrl's engine answers the held-out questions; only generating,
scoring and updating count as training. Each finished seed is kept in a folder: the same command goes on after Ctrl-C.
Needs TRL: pip install -e '.[trl]'.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchmarks import command
from benchmarks.timing import Say, titled
from podsrl.config.files import read_tree
from podsrl.errors import UsageError, short
from podsrl.lib.logs import write_atomically
from podsrl.lib.machine import hardware_line
from podsrl.lib.time_left import time_text

if TYPE_CHECKING:
    from benchmarks.trl_accuracy.arms import Judge
    from benchmarks.trl_accuracy.turns import Curve

ARMS: dict[str, tuple[Literal["podsrl", "TRL"], int, int]] = {
    "TRL, 64 trained": ("TRL", 64, 64),
    "TRL, 16 trained": ("TRL", 16, 16),
    "PODS in TRL, 64 → 16": ("TRL", 64, 16),
    "podsrl, 64 trained": ("podsrl", 64, 64),
    "podsrl, 16 trained": ("podsrl", 16, 16),
    "podsrl PODS, 64 → 16": ("podsrl", 64, 16),
}
"""Arm -> trainer, rollouts per question, and how many of them are kept."""
PEER, OURS = "TRL, 64 trained", "podsrl PODS, 64 → 16"
_SIZES = ("trainer", "num_rollouts", "num_kept")
_TOP = 0.9
_QUICK_SECONDS, _SECONDS = 12.0, 240.0
Json = dict[str, Any]


def main(arguments: Sequence[str]) -> None:
    from benchmarks.trl_accuracy.page import publish

    parser = command.new_parser("trl-accuracy", __doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, short, and nothing is tuned")
    parser.add_argument("--seeds", type=int, help="default: 5")
    parser.add_argument("--seconds", type=float, help=f"training seconds of an arm at most; default: {_SECONDS:g}")
    parser.add_argument("--turn", type=float, default=2.0, help="training seconds of a turn; default: 2")
    parser.add_argument("--questions", type=int, default=256, help="held-out questions; default: 256")
    parser.add_argument("--every", type=float, default=1.0, help="training seconds between evaluations; default: 1")
    parser.add_argument("--out", type=Path, help="folder of finished seeds; default: runs/trl-accuracy")
    command.measure(parser, arguments, run, publish=publish)


def run(options: argparse.Namespace, say: Say = lambda text: None) -> Json:
    """Tune, then train every arm with every seed. UsageError: TRL is missing, or an option cannot be."""
    from benchmarks.trl.setup import check_trl, quiet

    settings = check_options(options)
    settings["trl"] = check_trl()
    store = Store(options.out, settings, is_kept=not options.quick)
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    try:
        with quiet():
            found = _measure(options, store, say)
    except KeyboardInterrupt:
        if store.seeds:
            print(f"{len(store.seeds)} seeds are in {store.file}; the same command goes on", file=sys.stderr)
        raise
    return {**settings, **found}


def check_options(options: argparse.Namespace) -> Json:
    """Fill in the defaults; returns what a measurement depends on. UsageError: a number out of range."""
    options.seeds = options.seeds if options.seeds is not None else 1 if options.quick else 5
    options.seconds = options.seconds if options.seconds is not None else _QUICK_SECONDS if options.quick else _SECONDS
    options.out = options.out or command.ROOT / "runs" / "trl-accuracy"
    for name, least in {"seeds": 1, "questions": 1}.items():
        if getattr(options, name) < least:
            raise UsageError(f"--{name.replace('_', '-')} {getattr(options, name)}: wanted {least} or more")
    for name in ("seconds", "turn", "every"):
        if not 0 < getattr(options, name) < float("inf"):
            raise UsageError(f"--{name} {getattr(options, name):g}: wanted a number of seconds above 0")
    names = ("quick", "seconds", "turn", "questions", "every")
    demo = read_tree("demo")
    return {**{name: getattr(options, name) for name in names}, "base": demo["base"], "demo_arms": demo["arms"]}


class Store:
    """Finished parts of a measurement, in one file that is written after each of them.

    UsageError: the file holds a measurement with other settings, or no measurement.
    """

    def __init__(self, folder: Path, settings: Json, *, is_kept: bool = True) -> None:
        self.file = folder / "seeds.json"
        self._settings = {**settings, "hardware": hardware_line()}
        self._is_kept = is_kept
        self.tuned: dict[str, Json] = {}
        """By arm."""
        self.seeds: dict[str, Json] = {}
        """By seed."""
        if is_kept and self.file.exists():
            self._read()

    def save(self) -> None:
        """Write what there is."""
        if self._is_kept:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            parts = {"settings": self._settings, "tuned": self.tuned, "seeds": self.seeds}
            write_atomically(self.file, json.dumps(parts, ensure_ascii=False))

    def _read(self) -> None:
        cure = "choose another --out, or remove the file"
        try:
            held = json.loads(self.file.read_text(encoding="utf-8"))
            theirs, self.tuned, self.seeds = held["settings"], held["tuned"], held["seeds"]
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"{self.file}: wanted finished seeds of this benchmark; {cure}") from None
        for name, value in self._settings.items():
            if theirs.get(name) != value:
                was = f"{name} = {short(theirs.get(name))}, and now it is {short(value)}"
                raise UsageError(f"{self.file}: was measured with {was}; {cure}")


def _measure(options: argparse.Namespace, store: Store, say: Say) -> Json:
    from benchmarks.trl_accuracy.arms import Judge
    from benchmarks.trl_accuracy.times import summary
    from benchmarks.trl_accuracy.turns import Curve

    with closing(Judge(num_questions=options.questions)) as judge:
        for name in ARMS:
            if name not in store.tuned:
                store.tuned[name] = _tuned(name, options, titled(say, f"tuning {name}"))
                store.save()
        progress = _Progress(options, say)
        for seed in range(options.seeds):
            if str(seed) not in store.seeds:
                progress.begin(seed)
                curves = _trained(seed, options, store.tuned, judge, progress)
                load = round(os.getloadavg()[0], 1)
                by_name = {name: asdict(curve) for name, curve in curves.items()}
                store.seeds[str(seed)] = {"load": load, "curves": by_name}
                store.save()
                progress.end(curves)
    seeds = [store.seeds[str(seed)] for seed in range(options.seeds)]
    found = [{name: Curve(**curve) for name, curve in each["curves"].items()} for each in seeds]
    return {
        "seeds": options.seeds,
        "load": [each["load"] for each in seeds],
        "ours": OURS,
        "peer": PEER,
        "arms": {name: {**dict(zip(_SIZES, sizes, strict=True)), **store.tuned[name]} for name, sizes in ARMS.items()},
        "clocks": summary(found, OURS, PEER),
        "curves": [each["curves"] for each in seeds],
    }


def _tuned(name: str, options: argparse.Namespace, say: Say) -> Json:
    """An arm's settings, and what was tried."""
    from benchmarks.trl_accuracy.arms import Sizes, rate_of
    from benchmarks.trl_accuracy.ways import best_way

    sizes = Sizes(*ARMS[name])
    way, tried = best_way(sizes, say, is_first=options.quick)
    return {"lr": rate_of(sizes), "way": way and asdict(way), "tried_cpu_seconds": tried}


def _trained(
    seed: int, options: argparse.Namespace, tuned: Mapping[str, Json], judge: Judge, progress: _Progress
) -> dict[str, Curve]:
    """All arms with one seed."""
    from benchmarks.trl_accuracy.arms import Sizes, Way, new_arm
    from benchmarks.trl_accuracy.turns import train_in_turns

    with ExitStack() as stack:
        arms = {}
        for name, sizes in ARMS.items():
            own = tuned[name]
            way = own["way"] and Way(**own["way"])
            arm = new_arm(Sizes(*sizes), way, seed=seed, budget=options.seconds)
            arms[name] = stack.enter_context(closing(arm))
        return train_in_turns(
            arms,
            judge,
            target=_TOP,
            budget=options.seconds,
            turn_seconds=options.turn,
            every_seconds=options.every,
            first=seed,
            say=progress.show,
        )


class _Progress:
    """One line about the present turn, with the time left, and one that stays for each finished seed."""

    def __init__(self, options: argparse.Namespace, say: Say) -> None:
        self._options, self._say = options, say
        self._begun = time.monotonic()
        self._seed = 0
        self._taken: list[float] = []

    def begin(self, seed: int) -> None:
        self._seed, self._begun = seed, time.monotonic()

    def show(self, name: str, curves: Mapping[str, Any]) -> None:
        at = f"{name}: {curves[name].accuracy[-1]:.0%} after {curves[name].seconds[-1]:.1f} s"
        self._say(f"seed {self._seed + 1} of {self._options.seeds}, {at}; {self._left(curves)}")

    def end(self, curves: Mapping[str, Any]) -> None:
        self._taken.append(time.monotonic() - self._begun)
        ends = ", ".join(f"{name} {curve.accuracy[-1]:.0%} {curve.seconds[-1]:.1f} s" for name, curve in curves.items())
        print(f"seed {self._seed + 1} of {self._options.seeds}: {ends}", file=sys.stderr)

    def _left(self, curves: Mapping[str, Any]) -> str:
        num_later = self._options.seeds - self._seed - 1
        if self._taken:
            mean = sum(self._taken) / len(self._taken)
            here = max(0.0, mean - (time.monotonic() - self._begun))
            return f"about {time_text(here + num_later * mean)} left"
        budget = self._options.seconds
        most = sum(max(0.0, budget - each.seconds[-1]) for each in curves.values() if each.accuracy[-1] < _TOP)
        return f"at most {time_text(most + num_later * len(curves) * budget)} of training left"
