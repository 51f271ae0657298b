"""Random schedules: whatever arrives, waits, forks, stops and goes on, every rollout ends once, with its own tokens.

The model is a stand-in whose logits are a hash of what the engine has put into the key-value pool, so that a row that
is copied, moved, compacted or read again wrongly gives other tokens. A twin makes every rollout alone, without engine.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from held_memory import HeldMemory
from inside import CheckedEngine, inside
from torch import Tensor

from made import end_of
from podsrl.generate import End, Engine, Fork, Hold, Live, Request, Sampling, Watch
from podsrl.generate.engine import engine as engine_module
from podsrl.generate.engine.forward import zones as zones_module
from podsrl.generate.engine.forward.base import Step
from podsrl.generate.engine.kv_pool import KVPool, Layout
from podsrl.generate.engine.random_numbers import request_key, row_keys, uniforms_at
from podsrl.generate.engine.sampler import draw, filtered_logprobs
from podsrl.generate.schedule.job import ORDERS
from podsrl.generate.schedule.scheduler import SCHEDULERS
from podsrl.types import Rollout

Key = tuple[str, int]
Tokens = tuple[int, ...]

NUM_QUICK, NUM_ALL, NUM_REAL, NUM_HELD = 20, 500, 3, 8
"""Schedules per scheduler and order: with every change, under `slow`, of a real model, and with all memory counted."""
SEED = 3
VOCABULARY, STATES = 12, 61
WINDOW = 20
NAMES = [f"{scheduler}+{order}" for scheduler in SCHEDULERS for order in ORDERS]


# --- a model that is a hash ---


TABLE = torch.randn(STATES, VOCABULARY, generator=torch.Generator().manual_seed(0)) * 2.5
"""Logits, peaked, so that rollouts often agree and share rows; one state is broken."""
TABLE[17] = torch.nan
_WEIGHTS = random.Random(1).choices(range(1, 60), k=WINDOW)
WEIGHTS = torch.tensor(_WEIGHTS).float()
"""Of positions: all sums are whole numbers below 2**24, exact in float32 in any order."""


def state_of(tokens: Sequence[int]) -> int:
    """The state after these tokens: 4 times the weighted and 28 times the plain sum, see `Hashing`."""
    return (
        int(sum((token + 1) * (4 * int(w) + 28) for token, w in zip(tokens, WEIGHTS.tolist(), strict=False))) % STATES
    )


class Hashing:
    """A forward pass: keys hold token times position's weight, values the token, in 2 heads of width 2.

    It goes by the name of the step that cuts its rows into zones.
    """

    name = "fast"
    layout = Layout(keys=((2, 2),), values=((2, 2),), dtype=torch.float32, device=torch.device("cpu"))

    def refresh(self) -> None:
        """Its weights are always the same."""

    def _entries(self, tokens: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        values = tokens.float() + 1
        return values * WEIGHTS[positions], values

    def read(self, prompts: Sequence[Sequence[int]], pool: KVPool, rows: Sequence[int]) -> Any:
        for row, prompt in zip(rows, prompts, strict=True):
            length = len(prompt)
            keys, values = self._entries(torch.tensor(prompt), torch.arange(length))
            pool.keys[0][row, :, :length] = keys[:, None]
            pool.values[0][row, :, :length] = values[:, None]
        states = torch.tensor([state_of(prompt) for prompt in prompts])
        return SimpleNamespace(logits=TABLE[states], hidden=states[:, None].float())

    def __call__(self, step: Step, pool: KVPool) -> Any:
        tokens, positions, length = step.tokens, step.positions, step.length
        rows, places = torch.arange(len(tokens)), torch.arange(length)
        assert length == int(positions.max()) + 1
        assert step.is_even == bool((positions == length - 1).all())
        keys, values = self._entries(tokens, positions)
        pool.keys[0][rows, :, positions] = keys[:, None, None]
        pool.values[0][rows, :, positions] = values[:, None, None]
        zones = step.zones or [(len(rows), length)]
        visible = torch.cat([torch.full((count,), end) for count, end in zones])[:, None]  # further on nothing is read
        mask = (places <= positions[:, None]) & (places < visible)
        held = pool.keys[0][rows, :, :length] + 7 * pool.values[0][rows, :, :length]
        sums = held.mul(mask[:, None, :, None]).sum(dim=(1, 2, 3))
        states = sums.long() % STATES
        return SimpleNamespace(logits=TABLE[states], hidden=states[:, None].float() if step.want_hidden else None)


class Letters:
    """A tokenizer with a letter a token."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return [ord(letter) - ord("a") for letter in text]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        return "".join(chr(ord("a") + i) for i in ids)

    def batch_decode(self, rows: Sequence[Sequence[int]], skip_special_tokens: bool) -> list[str]:
        return [self.decode(row, skip_special_tokens) for row in rows]


# --- twins: a rollout alone, one token after the other ---


@dataclass(frozen=True)
class Story:
    """What becomes of a rollout that nobody aborts, or the start of it."""

    tokens: Tokens = ()
    logprobs: tuple[float, ...] = ()
    raw_logprobs: tuple[float, ...] = ()
    reason: str | None = None

    def first(self, count: int) -> Story:
        return Story(self.tokens[:count], self.logprobs[:count], self.raw_logprobs[:count])


Choose = Callable[[Tokens, Sampling, float], tuple[int, float, float]]
"""All tokens so far, how to sample, a uniform number -> token, log-probability (NaN: broken logits), the raw one."""


def alone(choose: Choose, request: Request, index: int, story: Story) -> Story:
    """Go on with a story to its end."""
    key = row_keys([request_key(SEED, request.id)], [index])
    sampling = request.sampling
    while True:
        number = float(uniforms_at(key, [len(story.tokens)])[0])
        token, logprob, raw = choose(request.prompt_ids + story.tokens, sampling, number)
        if math.isnan(logprob):
            return replace(story, reason="failed")
        story = Story((*story.tokens, token), (*story.logprobs, logprob), (*story.raw_logprobs, raw))
        text = Letters().decode(story.tokens, False)
        if token in sampling.stop_token_ids or any(string in text for string in sampling.stop_strings):
            return replace(story, reason="stop")
        if len(story.tokens) == sampling.max_new_tokens:
            return replace(story, reason="length")


@cache
def tables_of(sampling: Sampling) -> tuple[Any, Any, Any]:
    """[STATES, VOCABULARY] cumulative probabilities, log-probabilities, raw log-probabilities."""
    logprobs, raw = filtered_logprobs(TABLE, sampling), filtered_logprobs(TABLE, Sampling())
    return logprobs.double().exp().cumsum(-1).numpy(), logprobs.numpy(), raw.numpy()


def choose_by_hash(tokens: Tokens, sampling: Sampling, number: float) -> tuple[int, float, float]:
    cumulative, logprobs, raw = tables_of(sampling)
    state = state_of(tokens)
    sums = cumulative[state]
    token = int(np.searchsorted(sums, number * sums[-1], side="right")) % VOCABULARY  # NaN ends beyond
    return token, float(logprobs[state, token]), float(raw[state, token])


def choose_by(model: Any) -> Choose:
    """The model reads everything anew for every token."""

    def choose(tokens: Tokens, sampling: Sampling, number: float) -> tuple[int, float, float]:
        with torch.inference_mode():
            logits = model(torch.tensor([tokens])).logits[:, -1]
        drawn = draw(logits, None, torch.tensor([number], dtype=torch.float64), sampling)
        return int(drawn.tokens), float(drawn.logprobs), float(filtered_logprobs(logits, Sampling())[0, drawn.tokens])

    return choose


# --- one random schedule ---


@dataclass
class Schedule:
    """An engine, what it was asked for, and what has come of it."""

    rng: random.Random
    engine: Engine
    choose: Choose
    wanted: dict[Key, Story] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    """Group's id -> what was asked of it first."""
    ended: dict[Key, str] = field(default_factory=dict)
    found: dict[Key, Rollout] = field(default_factory=dict)
    watch: Watch | None = None
    at: frozenset[int] | None = None
    is_over: bool = False
    in_order: set[str] = field(default_factory=set)
    """Groups whose largest index was asked for, or forked, since the engine was idle: its forks come behind it."""

    def act(self) -> None:
        self.rng.choice([self.submit, self.join, self.abort, self.go_on, self.fork, self.new_weights])()

    def submit(self) -> None:
        requests = [new_request(self.rng, f"r{len(self.requests) + i}") for i in range(self.rng.randrange(1, 3))]
        self.requests |= {request.id: request for request in requests}
        if self.rng.random() < 0.3:
            requests.append(self.later_one_of(requests[0], requests[0].num_rollouts))
        self.ask(requests)

    def join(self) -> None:
        """A group that runs gets more rollouts."""
        if names := {name for name, _ in self.alive()}:
            name = self.rng.choice(sorted(names))
            self.ask([self.later_one_of(self.requests[name], self.next_index(name))])

    def later_one_of(self, request: Request, size: int) -> Request:
        """Rollouts that join the request's group, some indices on."""
        return replace(request, num_rollouts=self.rng.randrange(1, 4), first_index=size + self.rng.randrange(2))

    def ask(self, requests: list[Request]) -> None:
        self.engine.submit(requests, watch=self.watch)
        for request in requests:
            self.in_order.add(request.id)
            for index in request.indices:
                self.wanted[request.id, index] = alone(self.choose, request, index, Story())

    def go_on(self) -> None:
        """What has stopped goes on from its tokens, while others run."""
        stopped = [key for key, done in self.found.items() if done.is_open]
        if stopped and self.alive():
            self.begin_again(self.rng.sample(stopped, self.rng.randrange(1, len(stopped) + 1)))

    def begin_again(self, keys: list[Key]) -> None:
        """Each key with a request of its own."""
        requests = []
        for key in keys:
            done = self.found.pop(key)
            del self.ended[key]
            starts = {key[1]: done} if done.token_ids else {}
            requests.append(replace(self.requests[key[0]], num_rollouts=1, first_index=key[1], starts=starts))
        self.engine.submit(requests, watch=self.watch)

    def alive(self) -> list[Key]:
        return list(self.engine.states())

    def some(self, keys: list[Key]) -> list[str | Key]:
        """Some rollouts, or whole requests."""
        chosen = self.rng.sample(keys, min(len(keys), self.rng.randrange(1, 4)))
        return [key[0] if self.rng.random() < 0.3 else key for key in chosen]

    def abort(self) -> None:
        ids = self.some(self.alive())
        self.ended |= {key: "open" for key in self.alive() if key in ids or key[0] in ids}
        self.engine.abort([*ids, "unknown", *ids])

    def fork(self) -> None:
        keys = [key for key in self.alive() if key[0] in self.in_order]
        if keys:
            source, count = self.rng.choice(keys), self.rng.randrange(1, 4)
            first = self.next_index(source[0])
            forks = [(source[0], first + i) for i in range(count)]
            self.expect_forks(source, forks)
            assert self.engine.fork(*source, num_rollouts=count) == forks

    def num_made(self, key: Key) -> int:
        return int(inside(self.engine)["num_tokens"][key])

    def new_weights(self) -> None:
        """They say the same as the old ones, so no token changes; but no prompt that those have read is kept."""
        self.engine.load_weights([], self.engine.version + 1)
        assert inside(self.engine).get("cached_prompts", 0) == 0

    def step(self) -> None:
        """Every step draws a token for somebody, if anybody waits or lives, and hands out nothing twice."""
        held, before = inside(self.engine), self.engine.stats.tokens
        is_active = held["is_open"] and held["running"] + held["scheduler_waiting"] > 0
        for completion in self.engine.poll():
            key = completion.group_id, completion.index
            assert key not in self.found
            self.found[key] = completion
        assert self.engine.stats.tokens > before or not is_active or self.watch is not None
        if not inside(self.engine)["is_open"]:
            self.in_order.clear()
        self.check_memory()

    def check_memory(self) -> None:
        held, bound = inside(self.engine), self.engine.kv_cache_bytes
        if held["is_open"]:
            assert held["rows"] <= max(1, held["running"]) or held["has_empty_rows"]
            assert self.engine.num_slots is None or held["running"] <= self.engine.num_slots
            assert held["waiting"] == held["scheduler_waiting"]
            assert held["lost_places"] == 0
            assert held["pool_bytes"] + held["cached_bytes"] == held["held_bytes"]
            assert bound is None or held["held_bytes"] <= held["peak_bytes"] <= bound

    def look(self, live: Live) -> list[End | Fork]:
        """A watch sees every running rollout with the distribution of its own next token; it may end or fork one."""
        raw = live.logprobs[live.row_of].numpy()
        for key, made, logprobs in zip(live.keys, live.num_tokens, raw, strict=True):
            story = self.wanted[key]
            if made < len(story.tokens):
                assert logprobs[story.tokens[made]] == approx(story.raw_logprobs[made])
            else:
                assert story.reason == "failed" and np.isnan(logprobs[0])
        return self.random_act() if not self.is_over and self.rng.random() < 0.3 and self.alive() else []

    def random_act(self) -> list[End | Fork]:
        key = self.rng.choice(self.alive())
        if self.rng.random() < 0.5 or key[0] not in self.in_order:
            self.ended[key] = self.rng.choice(["pruned", "open"])
            return [End(key) if self.ended[key] == "pruned" else Hold(key)]
        first, count = self.next_index(key[0]), self.rng.randrange(1, 3)
        self.expect_forks(key, [(key[0], first + i) for i in range(count)])
        return [Fork(key, count)]

    def next_index(self, name: str) -> int:
        """Behind all rollouts of the group that there have been."""
        return 1 + max(index for each, index in self.wanted if each == name)

    def expect_forks(self, source: Key, forks: list[Key]) -> None:
        start, request = self.wanted[source].first(self.num_made(source)), self.requests[source[0]]
        for key in forks:
            self.wanted[key] = alone(self.choose, request, key[1], start)

    def drain(self) -> None:
        """Nothing more happens; then some of what has stopped goes on, and ends."""
        self.is_over = True
        for _ in range(2):
            while alive := self.alive():
                assert self.engine.num_unfinished >= len(alive)
                self.step()
            self.step()  # what was aborted last is handed out
            stopped = [key for key, done in self.found.items() if done.is_open]
            self.begin_again(stopped[::2])
        while self.engine.num_unfinished:
            self.step()

    def check(self) -> None:
        """Every rollout has ended once, as it would have alone; one that was ended on the way there."""
        assert self.found.keys() == self.wanted.keys()
        for key, completion in self.found.items():
            story = self.wanted[key]
            if key in self.ended:
                story = replace(story.first(len(completion.token_ids)), reason=self.ended[key])
            assert (completion.token_ids, end_of(completion)) == (story.tokens, story.reason), key
            assert completion.logprobs == approx(story.logprobs)
            assert 0 <= completion.version <= self.engine.version


PROMPTS = [(1,), (5, 7), (5, 7, 2), (0, 0, 0, 0), (11, 3, 8, 1, 4, 4)]
LONGEST = 6 + 9 - 1
"""Tokens of the longest row."""
WAYS = [
    Sampling(stop_token_ids=()),
    Sampling(temperature=0.4, stop_token_ids=()),
    Sampling(top_k=1, stop_token_ids=()),
    Sampling(temperature=1.5, top_p=0.8, stop_token_ids=(), stop_strings=("ab", "jc", "kk")),
    Sampling(top_k=5, min_p=0.05, stop_token_ids=(2, 9)),
]


def new_request(rng: random.Random, name: str) -> Request:
    sampling = replace(rng.choice(WAYS), max_new_tokens=rng.choice([1, 4, 9]))
    return Request(name, rng.choice(PROMPTS), rng.randrange(1, 4), sampling)


def new_engine(rng: random.Random, model: Any, name: str, **options: Any) -> Engine:
    """With few slots, little memory, both, or neither."""
    row_bytes = LONGEST * engine_module.choose_forward(model, None).layout.token_bytes
    return CheckedEngine(
        model,
        num_slots=rng.choice([None, 1, 2, 3, 6]),
        kv_cache_bytes=rng.choice([None, row_bytes, 2 * row_bytes + 40, 5 * row_bytes]),
        scheduler=name,
        seed=SEED,
        tokenizer=Letters(),
        **options,
    )


def approx(values: Any) -> Any:
    return pytest.approx(values, abs=1e-4)


def run(schedule: Schedule) -> None:
    rng, engine = schedule.rng, schedule.engine
    if rng.random() < 0.5:
        schedule.watch = schedule
    schedule.submit()
    for _ in range(rng.randrange(1, 12)):
        for _ in range(rng.choice([0, 0, 1, 4])):
            schedule.act()
        schedule.step()
    schedule.drain()
    schedule.check()
    held = inside(engine)
    assert not held["is_open"] and held["num_tokens"] == {} and engine.num_unfinished == 0


def run_seeds(name: str, seeds: range, model: Any, choose: Choose, **options: Any) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        schedule = Schedule(rng, new_engine(rng, model, name, **options), choose)
        try:
            run(schedule)
        except BaseException as error:
            error.add_note(f"schedule {seed} of {name}")
            raise


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "choose_forward", lambda model, name: Hashing())
    monkeypatch.setattr(zones_module, "_STEPS", 2)  # these rollouts are short


@pytest.mark.parametrize("name", NAMES)
def test_random_schedules_give_every_rollout_its_own_tokens_once_and_leak_nothing(
    hashing: None, qwen2: Any, name: str
) -> None:
    run_seeds(name, range(NUM_QUICK), qwen2, choose_by_hash)


@pytest.mark.parametrize("name", NAMES)
def test_so_do_thousands_of_them(hashing: None, qwen2: Any, name: str) -> None:
    run_seeds(name, range(NUM_QUICK, NUM_ALL), qwen2, choose_by_hash)


@pytest.mark.parametrize("name", NAMES)
def test_in_random_schedules_never_is_more_held_than_the_bound_and_all_that_is_held_is_counted(
    hashing: None, qwen2: Any, name: str
) -> None:
    for seed in range(NUM_HELD):
        rng = random.Random(seed)
        engine = new_engine(rng, qwen2, name)
        with HeldMemory(engine, head_dim=2) as held:
            run(Schedule(rng, engine, choose_by_hash))
        assert held.peak == engine.peak_kv_bytes, seed
        assert engine.kv_cache_bytes is None or held.peak <= engine.kv_cache_bytes, seed


@pytest.mark.parametrize("name", ["continuous", "dynamic+breadth"])
@pytest.mark.parametrize("forward", ["fast", "model"])
def test_so_do_random_schedules_of_a_real_model(qwen2: Any, name: str, forward: str) -> None:
    run_seeds(name, range(NUM_REAL), qwen2, choose_by(qwen2), forward=forward)
