"""A desk without a model: rollouts of given lengths, turns and rewards, in any order, as in a run."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from podsrl.config.schema import OrderConfig
from podsrl.control import Ask, View
from podsrl.control.close import Certain
from podsrl.generate import EngineStats, Generator, Kind, Request, Sampling, Watch
from podsrl.generate.schedule.job import Job, Limits
from podsrl.generate.schedule.scheduler import make_scheduler
from podsrl.lib.watch import Key
from podsrl.run.step.closing import Closing, EarlyClose, Whole
from podsrl.run.step.collected import Collected
from podsrl.run.step.desk import Desk
from podsrl.run.step.judge import Judge
from podsrl.run.step.turns import Silence, no_talks
from podsrl.run.step.under_way import UnderWay, Work
from podsrl.run.step.waiting import FirstGroups
from podsrl.scale.processes import Processes
from podsrl.tasks.stream import Stream
from podsrl.types import Group, Open, Rollout, Status, Task, Way

MOST_TOKENS = 512
ALL = frozenset({"join", "start", "abort_rollouts", "partial", "load", "beside"})


def token(key: Key, place: int) -> int:
    """What a rollout draws there, whatever the weights."""
    return (31 * len(key[0]) + sum(map(ord, key[0])) + 17 * key[1] + 7 * place) % 997


class Simulated(Generator):
    """Generates rollouts of given lengths, without a model, as the engine's scheduler lets them run.

    Args:
        length_of: key -> tokens of the rollout; where a turn ends before, as in `Turns`, it stops there.
        num_slots: most rollouts at once.
        scheduler: as `rollouts.scheduler`; one that never preempts.
        turns: key -> the places where its turns end, ascending; the last one is the length.
    """

    def __init__(
        self,
        length_of: Mapping[Key, int],
        num_slots: int = 1 << 20,
        scheduler: str = "continuous",
        *,
        abilities: frozenset[str] = ALL,
        turns: Callable[[Key], Sequence[int]] | None = None,
    ) -> None:
        self.version, self.peak_kv_bytes, self.stats, self.abilities = 0, 0, EngineStats(), abilities
        self._turns = turns or (lambda key: (length_of[key],))
        self._scheduler, self._num_asked = make_scheduler(scheduler, Limits(num_slots=num_slots)), 0
        self._running: dict[Job, int] = {}  # where its turn ends
        self._begun: dict[Job, tuple[Request, list[tuple[int, int]]]] = {}  # with marks: (tokens before, version)
        self._ended: list[Rollout] = []
        self.num_begun: dict[Key, int] = {}
        """How often each rollout was begun without a token."""
        self._most_steps: float = math.inf

    @property
    def num_unfinished(self) -> int:  # type: ignore[override]
        return len(self._begun) + len(self._ended)

    def submit(self, requests: Iterable[Request], *, watch: Watch | None = None) -> None:
        jobs = list[Job]()
        for one in requests:
            for index in one.indices:
                key, start = (one.id, index), one.starts.get(index)
                assert key not in {(job.request_id, job.index) for job in self._begun}
                job = Job(*key, len(one.prompt_ids), one.sampling.max_new_tokens, order=self._num_asked)
                marks = list[tuple[int, int]]()
                if start is not None:
                    assert start.token_ids == tuple(token(key, place) for place in range(len(start.token_ids)))
                    job.num_tokens = len(start.token_ids)
                    for place, version in enumerate(start.versions or (start.version,)):
                        if not marks or marks[-1][1] != version:
                            marks.append((place, version))
                self.num_begun[key] = self.num_begun.get(key, 0) + (start is None)
                self._begun[job] = one, marks
                self._num_asked += 1
                jobs.append(job)
        self._scheduler.submit(jobs)

    def poll(self, seconds: float | None = None) -> Sequence[Rollout]:
        """To the next moment at which something ends."""
        for job in self._scheduler.admit(list(self._running)):
            key = job.request_id, job.index
            self._running[job] = next(end for end in self._turns(key) if end > job.num_tokens)
        if self._running and not self._ended:
            num_steps = int(min(self._most_steps, *(end - job.num_tokens for job, end in self._running.items())))
            self.stats.steps += num_steps
            self.stats.tokens += num_steps * len(self._running)
            for job in self._running:
                marks = self._begun[job][1]
                if not marks or marks[-1][1] != self.version:
                    marks.append((job.num_tokens, self.version))
                job.num_tokens += num_steps
            for job in [job for job, end in self._running.items() if job.num_tokens == end]:
                self._end(job)
        found, self._ended = self._ended, []
        return found

    def work_beside(self, num_steps: int) -> None:
        """So many decode steps for which nobody waits: they are not counted."""
        ended, stats, self.stats = list[Rollout](), self.stats, EngineStats()
        while self._begun and (left := num_steps - self.stats.steps):
            self._most_steps = left
            ended += self.poll()
        self._ended, self.stats, self._most_steps = ended, stats, math.inf

    def abort(self, ids: Iterable[str | Key]) -> None:
        wanted = set(ids)
        for job in list(self._begun):
            if wanted & {job.request_id, (job.request_id, job.index)}:
                if job not in self._running:
                    self._scheduler.withdraw([job])
                self._end(job, is_open=True)

    def load_weights(self, named_tensors: Any, version: int) -> None:
        assert not self._begun or "load" in self.abilities
        self.version = version

    def close(self) -> None:
        """It holds nothing."""

    def _end(self, job: Job, *, is_open: bool = False) -> None:
        if self._running.pop(job, None) is not None:
            self._scheduler.finish(job)
        _, marks = self._begun.pop(job)
        key, size = (job.request_id, job.index), job.num_tokens
        versions = [version for place in range(size) for version in [[v for at, v in marks if at <= place][-1]]]
        self._ended.append(
            Rollout(
                group_id=key[0],
                index=key[1],
                token_ids=tuple(token(key, place) for place in range(size)),
                logprobs=(0.0,) * size,
                status="open" if is_open else "done",
                finish_reason=None if is_open else "stop",
                version=versions[0] if versions else self.version,
                versions=tuple(versions) if len(set(versions)) > 1 else (),
            )
        )


class Turns(Silence):
    """Rollouts go on behind each turn but the last, when somebody has thought of it for a while; nothing is said."""

    def __init__(self, turns: Callable[[Key], Sequence[int]], draws: random.Random) -> None:
        self._turns, self._draws = turns, draws
        self._asked: dict[Key, list[Any]] = {}
        self.num_waiting = 0

    def takes(self, done: Rollout) -> bool:
        key = done.group_id, done.index
        if done.finish_reason != "stop" or len(done.token_ids) >= self._turns(key)[-1]:
            return False
        assert key not in self._asked
        self._asked[key] = [done, self._draws.randint(0, 3)]
        self.num_waiting = len(self._asked)
        return True

    def answers(self, *, is_idle: bool) -> Iterator[Rollout]:
        for asked in self._asked.values():
            asked[1] -= 1
        ready = [key for key, (_, seconds) in self._asked.items() if seconds < 0]
        found = [self._asked.pop(key)[0] for key in ready]
        self.num_waiting = len(self._asked)
        for done in found:
            yield replace(done, status="open", finish_reason=None)


class Told(Judge):
    """A judge that knows the rewards; what is slow is judged afterwards."""

    def __init__(
        self, rewards: Mapping[Key, float], is_slow: Callable[[Rollout], bool] = lambda completion: False
    ) -> None:
        self.rewards, self.is_slow = rewards, is_slow

    def prefetched(self, opens: Sequence[Open], completions: Iterable[Rollout]) -> Iterator[Rollout]:
        """As they come."""
        return iter(completions)

    def early(self, tasks_P: Sequence[Task], completions_PG: Sequence[Sequence[Rollout]]) -> list[list[Rollout]]:
        """The rollouts, but for slow ones."""
        return [[self.rollout(one) for one in of_group if not self.is_slow(one)] for of_group in completions_PG]

    def score(
        self, tasks_P: Sequence[Task], completions_PG: Sequence[Sequence[Rollout]], *, is_last: bool
    ) -> list[list[Rollout]]:
        return [[self.rollout(one) for one in of_group] for of_group in completions_PG]

    def new_step(self) -> None:
        """There is nothing to forget."""

    def rollout(self, completion: Rollout) -> Rollout:
        """With its reward; it is invalid where that is no number."""
        reward = self.rewards[completion.group_id, completion.index]
        reason = None if reward == reward else "no reward"
        is_right = reason is None and reward >= 1
        status: Status = "done" if reason is None else "failed"
        return replace(completion, status=status, reward=reward, is_correct=is_right, invalid_reason=reason)


def kind_of(generator: Any) -> Kind:
    return Kind(option="simulated", options_name="simulated", factory=lambda setting: generator)


def generated(closing: Closing, engine: Any, judge: Told, sizes: Mapping[str, int]) -> list[Open]:
    """Groups that are generated, judged and closed as the desk does it.

    Args:
        closing: decides what a group needs.
        engine: generates.
        judge: knows the rewards.
        sizes: group id -> its rollouts.
    """
    tasks = {name: Task(id=name, prompt="?", answer="!") for name in sizes}
    opens = [
        Open(group=Group(id=name, task=tasks[name], prompt_ids=(1,), rollouts=()), ways=(Way(count=size),))
        for name, size in sizes.items()
    ]
    work = Work(
        UnderWay(engine, kind=kind_of(engine), num_words=997), Sampling(max_new_tokens=MOST_TOKENS), lambda task: (1,)
    )
    work.add(opens)
    view: Any = None  # the parts that close look at none
    read = closing.read(view, opens, work, judge)
    judged = (tuple(map(judge.rollout, each.begun)) for each in read)
    grown = [
        Open(group=each.group.with_more(rollouts), ways=each.ways, pruned=each.pruned)
        for each, rollouts in zip(read, judged, strict=True)
    ]
    return [closing.closed(view, each) for each in grown]


def certain(num_kept: int, bounds: tuple[float, float] = (0.0, 1.0)) -> EarlyClose:
    """`systems = ["certain"]`, with the first two rollouts at the earliest."""
    part = Certain()
    part.check_rewards(num_kept, bounds)
    return EarlyClose(part.close, "close of systems = 'certain'", 2)


class Rewards(dict[Key, float]):
    """Of any rollout: a function of its name and index."""

    def __missing__(self, key: Key) -> float:
        return float(token(key, 0) % 2)


class Rounds:
    """A budget that asks `num_prompts` new groups, then more rollouts of those that have no right one, and new ones."""

    def __init__(self, num_rounds: int = 1) -> None:
        self._num_rounds = num_rounds

    def ask(self, view: View) -> list[Ask]:
        if view.round == 0:
            return [Ask(index=index, num_rollouts=view.num_rollouts) for index in view.stream.draw(view.num_prompts)]
        if view.round >= self._num_rounds:
            return []
        poor = [group for group in view.groups if not any(one.is_correct for one in group.rollouts)]
        more = [Ask(index=group.index or 0, num_rollouts=2, joins=group.id) for group in poor]
        new = view.stream.draw(1) if poor else []
        return [*more, *(Ask(index=index, num_rollouts=view.num_rollouts) for index in new)]

    def trained(self, view: View) -> set[str]:
        return {group.id for group in view.groups}

    def check_sizes(self, sizes: Mapping[str, int]) -> None:
        assert min(sizes.values(), default=2) >= 2


@dataclass(slots=True, kw_only=True)
class Run:
    """Steps without a model, one after the other, as a trainer takes them; one version more after each.

    Args:
        length_of: key -> tokens of a rollout.
    """

    order: OrderConfig
    length_of: Mapping[Key, int]
    num_prompts: int = 3
    num_rollouts: int = 3
    num_slots: int = 1 << 20
    scheduler: str = "continuous"
    num_rounds: int = 1
    last: int = 1 << 20
    turns: Callable[[Key], Sequence[int]] | None = None
    thinking: random.Random = field(default_factory=lambda: random.Random(0))
    processes: Processes = field(default_factory=Processes)
    step: int = 0
    position: int = 0
    version: int = 0
    published: int = 0
    num_decode_steps: int = 0
    desk: Desk = field(init=False)
    engine: Simulated = field(init=False)

    def __post_init__(self) -> None:
        self.engine = Simulated(self.length_of, self.num_slots, self.scheduler, turns=self.turns)
        self.engine.version = self.version
        tokenizer: Any = SimpleNamespace()
        budget: Any = Rounds(self.num_rounds)
        first = self.order.take == "first"
        turns, scorer = self.turns, SimpleNamespace()
        self.desk = Desk(
            self.engine,
            scorer,  # type: ignore[arg-type]  # `Told` takes its place
            tokenizer,
            self.processes,
            order=self.order,
            train=[Task(id=f"q{i}", prompt="?", answer="!") for i in range(64)],
            budget=budget,
            sampling=Sampling(max_new_tokens=MOST_TOKENS),
            max_prompt_tokens=1,
            max_guided_tokens=1,
            closing=FirstGroups(self.order, self.num_prompts) if first else Whole(),
            watch=None,
            kind=kind_of(self.engine),
            num_words=997,
            talks=no_talks if turns is None else lambda sampling: Turns(turns, self.thinking),
        )
        self.desk.judge = Told(Rewards())
        self.desk.prompt_ids = lambda task: (1,)  # type: ignore[method-assign]

    def view_at(self, step: int, position: int) -> View:
        return View(
            step=step,
            num_prompts=self.num_prompts,
            num_rollouts=self.num_rollouts,
            num_train=64,
            seed=0,
            stream=Stream(64, 0, position),
        )

    def take(self) -> Collected:
        """Wait for a step's groups."""
        from contextlib import nullcontext

        found = self.desk.take(
            self.view_at, self.step, self.position, self.last, self.load, stage=lambda name: nullcontext()
        )
        self.num_decode_steps += found.stats.steps
        return found

    def train(self, collected: Collected) -> None:
        """Count the step, as `Trainer` does."""
        self.version += 1
        if not (self.order.is_ahead and self.order.rest == "finish"):
            self.load()
        self.desk.taken(collected)
        self.step, self.position = self.step + 1, collected.data_position

    def load(self) -> None:
        if self.published != self.version:
            self.engine.load_weights((), self.version)
            self.published = self.version

    def settle(self) -> None:
        """Before an evaluation or a checkpoint."""
        self.desk.settle()
        self.load()


class Lengths(dict[Key, int]):
    """Draws the length of each rollout: a function of the seed and of the rollout alone."""

    def __init__(self, seed: int, draw: Callable[[random.Random], int]) -> None:
        super().__init__()
        self._seed, self._draw = seed, draw

    def __missing__(self, key: Key) -> int:
        self[key] = self._draw(random.Random(f"{self._seed} {key}"))
        return self[key]


class Threads(Processes):
    """One of several processes that share a run: here a thread."""

    def __init__(self, rank: int, barrier: threading.Barrier, told: list[Any]) -> None:
        super().__init__(rank=rank, num_processes=barrier.parties)
        self._barrier, self._told = barrier, told

    def gather_bytes(self, data: bytes) -> list[bytes]:
        self._told[self.rank] = data
        self._barrier.wait()
        found = [*self._told]
        self._barrier.wait()
        return found
