"""Decode steps per trained group where steps end early and groups go on in the next (`replay.unfinished = "keep"`).

    python -m benchmarks waiting            5 seeds of 200 steps, 3 of 24 in runs: about half an hour
    python -m benchmarks waiting --quick    one seed of 20 steps, and of 2 in runs

Steps train on 8 groups of 8 rollouts. On recorded lengths (GSM8K's solutions; geometric ones with mean 20, cut at 128)
there is no model: the project's own rule says when a step ends, and all groups run at once. The runs generate
`builtin:steps` with the weights that they start with, so lengths do not change. "as many slots" is what a step costs
that trains on all groups that the arm has under way, without ending early: it has the arm's slots, and a larger batch.
APRIL's claim (arXiv 2509.18521) is 22.5 % more rollout tokens per second, 44 % at most.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks import command
from benchmarks.closing import MOST_TOKENS, Simulated, Told, gsm8k_lengths
from benchmarks.timing import Say, ratios, spread
from podsrl.config.schema import ReplayConfig
from podsrl.control import View
from podsrl.generate import Kind, Sampling
from podsrl.run.step.closing import Closing, Whole
from podsrl.run.step.coming import Coming
from podsrl.run.step.opens import requests_of
from podsrl.run.step.waiting import FirstGroups, oldest_first
from podsrl.tasks.stream import Stream
from podsrl.types import Group, Open, Task, Way

Json = dict[str, Any]
NUM_PROMPTS, NUM_ROLLOUTS = 8, 8
SURPLUSES = (1.25, 1.5, 2.0)
WARM_UP = 4
"""Steps that do not count: in the first nothing goes on."""


@dataclass(slots=True, kw_only=True)
class Steps:
    """Steps without a model, one after the other, as the collector takes them.

    Args:
        length_of: (group id, index) -> tokens of a rollout.
    """

    closing: Closing
    length_of: Mapping[tuple[str, int], int]
    num_prompts: int = NUM_PROMPTS
    num_rollouts: int = NUM_ROLLOUTS
    num_slots: int = 1 << 20
    scheduler: str = "continuous"
    step: int = 0
    waiting: tuple[Open, ...] = ()
    num_decode_steps: int = 0
    trained: list[Group] = field(default_factory=list)
    """Of the last step."""

    def take(self) -> None:
        """One step."""
        stream = Stream(1, 0, 0)
        view = View(
            step=self.step,
            num_prompts=self.num_prompts,
            num_rollouts=self.num_rollouts,
            num_train=1,
            seed=0,
            stream=stream,
        )
        count = self.closing.opening(view, self.waiting).num_prompts
        opens = [*self.waiting, *(self._new(place) for place in range(count))]
        engine: Any = Simulated(self.length_of, self.num_slots, self.scheduler)
        judge = Told(dict.fromkeys(((each.group.id, i) for each in opens for i in range(each.size)), 0.0))
        requests = [
            request for each in opens for request in requests_of(each, (1,), Sampling(max_new_tokens=MOST_TOKENS))
        ]
        kind = Kind(option="simulated", options_name="simulated", factory=lambda setting: engine)
        coming = Coming(engine, requests, kind=kind, num_words=2)
        read = [self._judged(each, judge) for each in self.closing.read(view, opens, coming, judge)]
        whole = self.closing.whole(read)
        names = {each.group.id for each in whole}
        self.trained = [each.group for each in whole]
        self.waiting = oldest_first(each for each in read if each.group.id not in names)
        self.num_decode_steps += engine.stats.steps
        self.step += 1

    def _new(self, place: int) -> Open:
        name = f"{self.step}/{place}"
        group = Group(id=name, task=Task(id=name, prompt="?", answer="!"), prompt_ids=(1,), rollouts=(), step=self.step)
        return Open(group=group, ways=(Way(count=self.num_rollouts),))

    def _judged(self, each: Open, judge: Told) -> Open:
        ended = tuple(judge.rollout(done) for done in each.begun if not done.is_postponed)
        begun = tuple(done for done in each.begun if done.is_postponed)
        return replace(each, group=each.group.with_more(ended), begun=begun)


class Lengths(dict[tuple[str, int], int]):
    """Draws the length of each rollout that is asked for, once."""

    def __init__(self, draw: Callable[[], int]) -> None:
        super().__init__()
        self._draw = draw

    def __missing__(self, key: tuple[str, int]) -> int:
        self[key] = self._draw()
        return self[key]


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("waiting", __doc__)
    parser.add_argument("--quick", action="store_true", help="one seed of 20 steps, and of 2 in runs")

    def of(options: argparse.Namespace, say: Say) -> Json:
        return run(20, 2, 1, 1, say) if options.quick else run(200, 24, 5, 3, say)

    command.measure(parser, arguments, of)


def run(num_steps: int, num_run_steps: int, num_seeds: int, num_run_seeds: int, say: Say) -> Json:
    """Each kind of lengths at each surplus, and runs."""
    recorded = gsm8k_lengths()
    kinds: dict[str, Callable[[np.random.Generator], int]] = {
        "gsm8k": lambda drawn: int(drawn.choice(recorded)),
        "geometric": lambda drawn: int(min(drawn.geometric(1 / 20), 128)),
    }
    rows = []
    for kind, draw in kinds.items():

        def simulated(closing: Closing, num_prompts: int, seed: int, draw: Any = draw) -> Json:
            drawn = np.random.default_rng(seed)
            lengths = Lengths(lambda: draw(drawn))
            return of_steps(Steps(closing=closing, length_of=lengths, num_prompts=num_prompts), num_steps)

        rows += arms(kind, simulated, num_seeds, say)
    rows += arms("steps", partial(of_run, num_steps=num_run_steps), num_run_seeds, say)
    sizes = {"groups": NUM_PROMPTS, "rollouts": NUM_ROLLOUTS, "seeds": num_seeds, "run_seeds": num_run_seeds}
    return {**sizes, "steps": num_steps, "run_steps": num_run_steps, "rows": rows}


def arms(kind: str, measured: Callable[[Closing, int, int], Json], num_seeds: int, say: Say) -> list[Json]:
    """Each surplus beside steps that wait for all groups: of the same batch, and on the same slots."""

    def seeds(name: str, closing: Callable[[], Closing], num_prompts: int) -> list[Json]:
        found = []
        for seed in range(num_seeds):
            say(f"{kind}, {name}, seed {seed + 1} of {num_seeds}")
            found.append(measured(closing(), num_prompts, seed))
        return found

    plain, rows = seeds("all groups", Whole, NUM_PROMPTS), []
    for surplus in SURPLUSES:
        replay = ReplayConfig(unfinished="keep", surplus=surplus)
        own = seeds(f"surplus {surplus}", partial(FirstGroups, replay, NUM_PROMPTS), NUM_PROMPTS)
        wide = seeds(f"all of surplus {surplus}", Whole, replay.num_groups(NUM_PROMPTS))
        per_group = {
            name: [each["per_group"] for each in of] for name, of in (("own", own), ("plain", plain), ("wide", wide))
        }
        rows.append(
            {
                "lengths": kind,
                "surplus": surplus,
                "per_group": spread(per_group["own"]),
                "fewer": ratios(per_group["plain"], per_group["own"]),
                "as_many_slots": ratios(per_group["wide"], per_group["own"]),
                "resumed": spread([each["resumed"] for each in own]),
                "oldest": max(each["oldest"] for each in own),
            }
        )
    return rows


def of_steps(steps: Steps, num_steps: int) -> Json:
    """Decode steps per trained group, and the share of groups that began in an earlier step."""
    for _ in range(WARM_UP):
        steps.take()
    before, ages = steps.num_decode_steps, list[int]()
    for _ in range(num_steps):
        steps.take()
        ages += [steps.step - 1 - group.step for group in steps.trained]
    return _facts(steps.num_decode_steps - before, ages)


def of_run(closing: Closing, num_prompts: int, seed: int, num_steps: int) -> Json:
    """The same of a run of `builtin:steps` that learns nothing."""
    from podsrl.config.load import load_config
    from podsrl.plan.probe import STILL
    from podsrl.run.step.trainer import Trainer
    from podsrl.run.steps import training_step

    replay = [f"replay.surplus={closing.surplus}", "replay.unfinished=keep"] if isinstance(closing, FirstGroups) else []
    sizes = {"num_prompts": num_prompts, "num_rollouts": NUM_ROLLOUTS}
    still = ["threads=1", "model.device=cpu", "task.num_eval=4", f"optim.lr={STILL}", f"seed={seed}"]
    keep = ["select.rule=keep_all", f"select.num_kept={NUM_ROLLOUTS}"]
    options = [*still, *keep, *replay, *(f"rollouts.{name}={size}" for name, size in sizes.items())]
    trainer = Trainer(load_config("steps", options))
    try:
        num_decode_steps, ages = 0, list[int]()
        for number in range(WARM_UP + num_steps):
            result = training_step(trainer)
            if number >= WARM_UP:
                num_decode_steps += result.load.num_decode_steps
                ages += [number - group.step for group in result.fresh]
        return _facts(num_decode_steps, ages)
    finally:
        trainer.close()


def _facts(num_decode_steps: int, ages: Sequence[int]) -> Json:
    return {
        "per_group": num_decode_steps / len(ages),
        "resumed": sum(age > 0 for age in ages) / len(ages),
        "oldest": max(ages),
    }
