"""Rollouts of several turns on the engine, with a barrier between the turns and without one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from statistics import fmean
from typing import Any

from benchmarks.paired import Json
from benchmarks.timing import Clock, Say, take_turns
from podsrl.config.load import load_config
from podsrl.errors import PodsError
from podsrl.generate import EngineStats, Request, Sampling, Watch
from podsrl.lib.watch import Key
from podsrl.run.step.desk import new_group, request_id
from podsrl.run.step.trainer import Trainer
from podsrl.run.step.turns import EnvironmentTalks
from podsrl.run.step.under_way import UnderWay, Work
from podsrl.score import Reply
from podsrl.tasks import columns
from podsrl.types import Open, Rollout, Task, Way

COLUMNS, MADE = "columns", "made"
COLUMN_TOKENS = 10
"""Most tokens of a rollout for each turn, as in the recipe."""
MADE_ROLLOUTS, MEAN_TOKENS, MOST_TOKENS = 16, 20, 128
"""Of the made task: per question, and of a turn."""


class Barrier:
    """A generator in which a rollout goes on when all others have ended their turn."""

    def __init__(self, generator: Any) -> None:
        self._generator, self.abilities, self._held = generator, generator.abilities, list[Request]()

    @property
    def num_unfinished(self) -> int:
        return int(self._generator.num_unfinished) + sum(each.num_rollouts for each in self._held)

    def submit(self, requests: Iterable[Request], *, watch: Watch | None = None) -> None:
        asked = list(requests)
        self._held += [each for each in asked if each.starts]
        self._generator.submit([each for each in asked if not each.starts])

    def poll(self, seconds: float | None = None) -> Sequence[Rollout]:
        if not self._generator.num_unfinished:
            self._generator.submit(self._held)
            self._held = []
        found: Sequence[Rollout] = self._generator.poll(seconds)
        return found


class Lengths:
    """A generator whose turns have lengths that are drawn from an exponential, whatever the model says."""

    def __init__(self, generator: Any) -> None:
        self._generator, self.abilities = generator, generator.abilities

    @property
    def num_unfinished(self) -> int:
        return int(self._generator.num_unfinished)

    def submit(self, requests: Iterable[Request], *, watch: Watch | None = None) -> None:
        self._generator.submit([turn_of(each, index) for each in requests for index in each.indices])

    def poll(self, seconds: float | None = None) -> Sequence[Rollout]:
        return [replace(done, finish_reason="stop") for done in self._generator.poll(seconds)]


def turn_of(request: Request, index: int) -> Request:
    """The next turn of a rollout, as a request that ends with it."""
    begun = request.starts.get(index)
    read, number = (0, 0) if begun is None else (len(begun.token_ids), len(begun.given))
    drawn = random.Random(f"{request.id} {index} {number}").expovariate(1 / MEAN_TOKENS)
    sampling = Sampling(max_new_tokens=read + min(MOST_TOKENS, 1 + int(drawn)), stop_token_ids=())
    starts = {} if begun is None else {index: begun}
    return replace(request, num_rollouts=1, first_index=index, sampling=sampling, starts=starts)


class AtOnce:
    """An environment without workers: no clock decides when a rollout goes on."""

    def __init__(self, reply: Callable[[Task, list[str]], str | None]) -> None:
        self._reply = reply

    def ask(self, task: Task, turns: list[str], key: Key) -> Reply:
        said = self._reply(task, turns)
        return Reply() if said is None else Reply(texts=(said,))

    def is_ready(self, job: Reply) -> bool:
        return True

    def reply(self, job: Reply) -> Reply:
        return job

    def over(self, keys: Iterable[Key]) -> None:
        """Nothing is open."""

    def new_step(self) -> None:
        """There is no time limit."""


def sums(digits: int, count: int, seed: int) -> list[Task]:
    """Sums as of the task `columns`, of any number of digits."""
    draw, found = random.Random(seed), list[Task]()
    for _ in range(count):
        one, other = (draw.randrange(10 ** (digits - 1), 10**digits) for _ in range(2))
        task = Task(id=f"{one}+{other}", prompt=f"What is {one} + {other}?\n", answer=str(one + other))
        found.append(replace(task, prompt=f"{task.prompt}{columns.columns_of(task)[0]}"))
    return found


def turns(name: str, num_turns: int, num_slots: int | None, *, rounds: int = 3, say: Say = lambda text: None) -> Json:
    """Decode steps, and their CPU seconds, of the rollouts of some steps behind the barrier and without it.

    Args:
        name: COLUMNS: sums as in the recipe; MADE: whatever the model says, in turns of made lengths.
        num_turns: of each rollout.
        num_slots: None: one for each rollout.
        rounds: steps, with other questions each.
        say: shows what is measured.

    Raises:
        PodsError: the barrier changes a token.
    """
    is_made = name == MADE
    config = load_config("columns", ["threads=1", "model.device=cpu", *slots_option(num_slots)])
    with closing(Trainer(config)) as trainer:
        trainer.model.config.max_position_embeddings = 1 << 12  # what it says does not matter here
        environment: Any = AtOnce((lambda task, said: " ") if is_made else columns.reply)
        talks = EnvironmentTalks(environment, trainer.tokenizer, num_turns)
        most = 1 << 11 if is_made else COLUMN_TOKENS * num_turns
        sampling = replace(trainer.sampling, max_new_tokens=most)
        ways = (Way(count=MADE_ROLLOUTS if is_made else config.rollouts.num_rollouts),)

        def generated(number: int, *, has_barrier: bool) -> tuple[dict[Key, Rollout], int, float]:
            tasks = sums(num_turns - 1, config.rollouts.num_prompts, number)
            groups = [new_group(request_id(number, place, task.id), task) for place, task in enumerate(tasks)]
            clock, trainer.engine.stats = Clock(), EngineStats()
            generator: Any = Lengths(trainer.engine) if is_made else trainer.engine
            generator = Barrier(generator) if has_barrier else generator
            under_way = UnderWay(generator, kind=trainer.parts.generator, num_words=len(trainer.tokenizer))
            work = Work(under_way, sampling, trainer.desk.prompt_ids, talk=talks(sampling))
            work.add([Open(group=group, ways=ways) for group in groups])
            found = {(done.group_id, done.index): done for done in work}
            return found, trainer.engine.stats.steps, clock.read().cpu_seconds

        made = take_turns(
            {
                "barrier": lambda number: generated(number, has_barrier=True),
                "none": lambda number: generated(number, has_barrier=False),
            },
            rounds,
            say,
        )
    for (behind, *_), (without, *_) in zip(made["barrier"], made["none"], strict=True):
        if tokens_of(behind) != tokens_of(without):
            raise PodsError(f"{name}, {num_turns} turns: the barrier changed a token")
    rollouts = [done for found, *_ in made["none"] for done in found.values()]
    steps = {arm: sum(each[1] for each in many) for arm, many in made.items()}
    return {
        "task": name,
        "turns": num_turns,
        "mean_turns": round(fmean(len(done.turns) for done in rollouts), 3),
        "rollouts": len(rollouts) // rounds,
        "slots": num_slots,
        "steps": {arm: round(total / rounds, 1) for arm, total in steps.items()},
        "ratio": round(steps["barrier"] / steps["none"], 3),
        "cpu_seconds": {arm: round(sum(each[2] for each in many) / rounds, 3) for arm, many in made.items()},
    }


def tokens_of(rollouts: Mapping[Key, Rollout]) -> dict[Key, tuple[int, ...]]:
    """What was said and read."""
    return {key: done.token_ids for key, done in rollouts.items()}


def slots_option(num_slots: int | None) -> list[str]:
    """The override of the slots."""
    return [] if num_slots is None else [f"rollouts.num_slots={num_slots}"]
