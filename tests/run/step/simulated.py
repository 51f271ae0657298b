"""Groups that are generated without a model: rollouts of given lengths and rewards, closed or put off as in a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from podsrl.control import View
from podsrl.control.close import Certain
from podsrl.generate import EngineStats, Kind, Request, Sampling
from podsrl.generate.schedule.job import Job, Limits
from podsrl.generate.schedule.scheduler import make_scheduler
from podsrl.run.step.closing import Closing, EarlyClose
from podsrl.run.step.coming import Coming
from podsrl.run.step.judge import Judge
from podsrl.run.step.opens import requests_of
from podsrl.run.step.waiting import oldest_first
from podsrl.tasks.stream import Stream
from podsrl.types import Completion, Group, Open, Rollout, Task, Way

MOST_TOKENS = 512


class Simulated:
    """Generates rollouts of given lengths, without a model, as the engine's scheduler lets them run.

    Args:
        lengths: (group id, index) -> tokens of the rollout.
        num_slots: most rollouts at once.
        scheduler: as `rollouts.scheduler`; one that never preempts.
        is_able: whether it can end rollouts.
    """

    def __init__(
        self,
        lengths: Mapping[tuple[str, int], int],
        num_slots: int,
        scheduler: str = "continuous",
        *,
        is_able: bool = True,
    ) -> None:
        self.version, self.peak_kv_bytes, self.num_ready, self.stats = 0, 0, 0, EngineStats()
        self.abilities = frozenset({"join", "start", "abort_rollouts", "partial"} if is_able else {"join"})
        self._lengths, self._limits, self._name = lengths, Limits(num_slots=num_slots), scheduler
        self._ended: set[str | tuple[str, int]] = set()

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        """Whole steps; what ends together comes in the order in which it started."""
        jobs = {
            Job(one.random_stream, index, len(one.prompt_ids), one.sampling.max_new_tokens, order=0): one.id
            for one in requests
            for index in one.indices
        }
        begun = {(one.random_stream, index): start for one in requests for index, start in one.starts.items()}
        for order, job in enumerate(jobs):
            job.order = order
            if (start := begun.get((job.request_id, job.index))) is not None:
                job.num_tokens = len(start.token_ids)
        self._ended = set()
        scheduler, running, waiting = make_scheduler(self._name, self._limits), list[Job](), dict.fromkeys(jobs)
        scheduler.submit(list(jobs))
        while waiting or running:
            for job in scheduler.admit(running):
                del waiting[job]
                running.append(job)
            num_steps = min(self._length(job) - job.num_tokens for job in running)
            self.stats.steps += num_steps
            self.stats.tokens += num_steps * len(running)
            for job in running:
                job.num_tokens += num_steps
            done = [job for job in running if job.num_tokens == self._length(job)]
            for self.num_ready, job in zip(reversed(range(len(done))), done, strict=True):
                running.remove(job)
                yield _completion(job, jobs[job], "stop")
            ended, self._ended = self._ended, set()
            cut = [job for job in (*running, *waiting) if ended & {jobs[job], (jobs[job], job.index)}]
            for self.num_ready, job in zip(reversed(range(len(cut))), cut, strict=True):
                if job in waiting:
                    scheduler.withdraw([job])
                    del waiting[job]
                else:
                    running.remove(job)
                yield _completion(job, jobs[job], "aborted")

    def abort(self, ids: Iterable[str | tuple[str, int]]) -> None:
        """With the end of the step."""
        self._ended |= set(ids)

    def _length(self, job: Job) -> int:
        return self._lengths[job.request_id, job.index]


def _completion(job: Job, name: str, reason: Any) -> Completion:
    ids, logprobs = (1,) * job.num_tokens, (0.0,) * job.num_tokens
    return Completion(
        request_id=name, index=job.index, token_ids=ids, logprobs=logprobs, finish_reason=reason, version=0
    )


class Told(Judge):
    """A judge that knows the rewards; what is slow is judged afterwards."""

    def __init__(
        self, rewards: Mapping[tuple[str, int], float], is_slow: Callable[[Completion], bool] = lambda completion: False
    ) -> None:
        self.rewards, self.is_slow = rewards, is_slow

    def prefetched(self, opens: Sequence[Open], completions: Iterable[Completion]) -> Iterator[Completion]:
        """As they come."""
        return iter(completions)

    def early(self, tasks_P: Sequence[Task], completions_PG: Sequence[Sequence[Completion]]) -> list[list[Rollout]]:
        """The rollouts, but for slow ones."""
        return [[self.rollout(one) for one in of_group if not self.is_slow(one)] for of_group in completions_PG]

    def rollout(self, completion: Completion) -> Rollout:
        """With its reward; it is invalid where that is no number."""
        reward = self.rewards[completion.request_id, completion.index]
        reason = None if reward == reward else "no reward"
        is_right = reason is None and reward >= 1
        return Rollout(
            completion=completion, text="", reward=reward, parts={}, is_correct=is_right, invalid_reason=reason
        )


def generated(closing: Closing, engine: Any, judge: Told, sizes: Mapping[str, int]) -> list[Open]:
    """Groups that are generated, judged and closed as the collector does it.

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
    sampling = Sampling(max_new_tokens=MOST_TOKENS)
    requests = [request for each in opens for request in requests_of(each, (1,), sampling)]
    kind = Kind(option="simulated", options_name="simulated", factory=lambda setting: engine)
    view: Any = None  # the parts that close look at none
    read = closing.read(view, opens, Coming(engine, requests, kind=kind, num_words=2), judge)
    judged = (tuple(map(judge.rollout, each.begun)) for each in read)
    grown = [
        Open(group=each.group.with_more(rollouts), ways=each.ways, pruned=each.pruned)
        for each, rollouts in zip(read, judged, strict=True)
    ]
    return [closing.closed(view, each) for each in grown]


def certain(num_kept: int, bounds: tuple[float, float] = (0.0, 1.0)) -> EarlyClose:
    """`steer.close = "certain"`."""
    part = Certain()
    part.check_rewards(num_kept, bounds)
    return EarlyClose(part.close, "steer.close = 'certain'", 2)


@dataclass(slots=True, kw_only=True)
class Steps:
    """Steps without a model, one after the other, as the collector takes them.

    Args:
        length_of: (group id, index) -> tokens of a rollout.
    """

    closing: Closing
    length_of: Mapping[tuple[str, int], int]
    num_prompts: int = 8
    num_rollouts: int = 8
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
