"""Search n, m and the micro-batch size: what each choice costs and teaches, and which teaches most per second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from podsrl.config.schema import CostsConfig, RunConfig
from podsrl.errors import PodsError, UsageError
from podsrl.plan.cost import CostModel, StepSeconds
from podsrl.plan.measured import Measurements, own_kept
from podsrl.plan.price import Price, machine_costs, machine_price
from podsrl.plan.rewards import RewardModel
from podsrl.plan.value import BEST_RATE, BETWEEN, DEFAULT_NOISE, FIXED_RATE, Teaching, teaching
from podsrl.select import SelectionRule, resolve_rule
from podsrl.select.base import reads_groups
from podsrl.update.advantage import NORMALIZERS, RewardAdvantage, resolve_advantage
from podsrl.update.advantage import reads_groups as advantage_reads_groups
from podsrl.update.algorithms import resolve_algorithm

NUM_DRAWS = 768
"""Groups drawn to average over."""
REACH = 2
"""n is predicted up to this many times the largest measured one."""
SPARE = 0.1
"""Share of the memory that a suggestion leaves free."""
WORTH_CHANGING = 1.03
"""The config's own choice stands unless another is better by more than this: less is within the prediction's error."""
WORTH_RECUTTING = 1.05
"""Likewise for the micro-batch of a row: it stays the config's own unless the step is shorter by more than this."""
TRUSTED = 16
"""A line through the measured peaks is believed up to this many times the largest measured micro-batch."""
STANDS_FOR = {"keep_all": "max_variance", "max_signal": "max_variance"}
"""Rules -> what a plan puts in their place."""
NO_REPEATS = "how far repeats of a measurement differ: there were too few of them; measure longer (--measure)"


class DoesNotFit(PodsError):
    """No choice of n, m and micro-batch stays under the bound of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One choice, predicted."""

    num_rollouts: int
    num_kept: int
    micro_batch_tokens: int
    seconds: StepSeconds
    share: float
    """share(n, m): how much of a step's gradient is signal, 0 .. 1 (`value.py`)."""
    taught: Teaching
    kv_bytes: float
    update_bytes: float | None

    @property
    def key(self) -> tuple[int, int, int]:
        return self.num_rollouts, self.num_kept, self.micro_batch_tokens

    @property
    def peak_bytes(self) -> float:
        return max(self.kv_bytes, self.update_bytes or 0.0)

    def at(self, noise: float) -> Candidate:
        """The same choice with another κ."""
        return replace(self, share=max(self.taught.share(noise), 0.0))

    def progress(self, exponent: float = BETWEEN) -> float:
        """Progress per second: share^exponent / seconds."""
        return float(self.share**exponent) / self.seconds.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was found."""

    own: Candidate
    """The config's choice."""
    best: Candidate
    """The suggestion; `own` where nothing is better by more than the prediction's error."""
    candidates: tuple[Candidate, ...]
    """One for each n and m, with its best micro-batch, n and m ascending."""
    pass_rate: float
    concentration: float
    noise_ratio: float
    is_noise_measured: bool
    noise_range: tuple[float, float] | None
    """How far κ may be off (`Measurements.noise_range`)."""
    largest_micro_batch: int | None
    """Tokens that would still leave a tenth of the memory free; None where that is far beyond what was measured."""
    is_rule_replaced: bool
    """The config keeps all, and max-variance stands for that rule here: the same at m = n."""
    spread: float | None
    """How far single measurements lie from the fit (`cost.CostModel.spread`); None where nothing was repeated."""
    price: Price | None
    """Of a generated token, in trained ones; None where no measured step of the config's own sizes trained."""
    costs: CostsConfig | None
    """What a group, a rollout and a row take, for `[costs]`; None where the measurements do not tell."""
    unknown: tuple[str, ...]

    def relative(self, candidate: Candidate, exponent: float = BETWEEN) -> float:
        """Progress per second over that of the config's own choice; infinite where that teaches nothing."""
        own = self.own.progress(exponent)
        return candidate.progress(exponent) / own if own > 0 else float("inf")

    def relative_range(self, candidate: Candidate) -> tuple[float, float]:
        """Lower and upper end of `relative` over exponents and κ."""
        ends = [
            replace(self, own=self.own.at(noise)).relative(candidate.at(noise), exponent)
            for noise in (self.noise_ratio, *(self.noise_range or ()))
            for exponent in (FIXED_RATE, BETWEEN, BEST_RATE)
        ]
        return min(ends), max(ends)


def make_plan(measured: Measurements, bound_bytes: int | None = None) -> Plan:
    """Predict every candidate and choose; `bound_bytes` stands for the machine's memory, where it is given.

    Under a bound the config's own choice is only suggested where it fits.

    Where all seen rewards were equal, the config's own choice stands with its seconds and memory; `unknown` says so.

    Raises:
        DoesNotFit: no candidate stays under the bound.
    """
    rewards, costs = RewardModel.from_groups(measured.groups), CostModel(measured)
    noise = DEFAULT_NOISE if measured.noise_ratio is None else measured.noise_ratio
    search = _Search(measured, costs, noise, bound_bytes)
    found = search.candidates(rewards)
    own = next(c for c in found if c.key == _own_key(measured.config))
    allowed = [candidate for candidate in found if search.is_allowed(candidate)]
    if not allowed:
        raise DoesNotFit(
            f"--memory of {(bound_bytes or 0) / 2**30:.2f} GiB: with a tenth of it left free, no measured n, m and "
            f"micro-batch fits (the config's own wants {own.peak_bytes / 2**30:.2f} GiB); "
            "`pods train CONFIG --dry-run --memory` names what makes it fit"
        )
    candidates = _one_micro_batch(allowed, own.micro_batch_tokens)
    best = max(candidates, key=lambda c: (c.progress(), -c.seconds.total))
    alike = () if best.progress() > 0 else (_nothing_teaches(float(rewards.base.rollouts.rewards[0])),)
    return Plan(
        own=own,
        best=own if search.is_allowed(own) and best.progress() <= WORTH_CHANGING * own.progress() else best,
        candidates=tuple(candidates),
        pass_rate=rewards.pass_rate,
        concentration=rewards.concentration,
        noise_ratio=noise,
        is_noise_measured=measured.noise_ratio is not None,
        noise_range=measured.noise_range,
        largest_micro_batch=_largest_micro_batch(costs, search.limit),
        is_rule_replaced=measured.config.select.rule == "keep_all",
        spread=costs.spread,
        price=machine_price(measured),
        costs=machine_costs(measured),
        unknown=(
            *alike,
            *measured.unknown,
            *_replaced(measured.config),
            *(() if costs.spread is not None else (NO_REPEATS,)),
        ),
    )


def _nothing_teaches(reward: float) -> str:
    return (
        f"which n and m teach most, since every reward that was seen is {reward:g}: "
        "measure longer (--measure), raise rollouts.num_rollouts or rollouts.temperature, or take easier (or harder) "
        "questions"
    )


class _Search:
    def __init__(self, measured: Measurements, costs: CostModel, noise: float, bound_bytes: int | None) -> None:
        self._config, self._costs, self._noise = measured.config, costs, noise
        self._largest = REACH * max(p.num_rollouts for p in measured.generation)
        self._is_bound = bound_bytes is not None
        memory = measured.memory_bytes if bound_bytes is None else bound_bytes
        self.limit = None if memory is None else (1 - SPARE) * memory
        self._rule = planning_rule(measured.config)
        self._advantage = planning_advantage(measured.config)

    def candidates(self, rewards: RewardModel) -> list[Candidate]:
        """All of them, also those that do not fit."""
        sizes = rollout_sizes(self._config, self._largest)
        groups = rewards.draw(sizes[-1], NUM_DRAWS)
        length = float(groups.lengths.mean())
        found: list[Candidate] = []
        for n in sizes:
            for m in kept_sizes(self._config, n):
                taught = teaching(
                    groups, n, m, rule=self._rule, advantage=self._advantage, num_chunks=self._config.select.num_chunks
                )
                found += [self._candidate(n, m, size, taught, length) for size in self._costs.micro_batches]
        return found

    def _candidate(self, n: int, m: int, micro: int, taught: Teaching, length: float) -> Candidate:
        return Candidate(
            num_rollouts=n,
            num_kept=m,
            micro_batch_tokens=micro,
            seconds=self._costs.seconds(n, micro, taught, length),
            share=max(taught.share(self._noise), 0.0),
            taught=taught,
            kv_bytes=self._costs.kv_bytes(n),
            update_bytes=self._costs.update_bytes(micro),
        )

    def is_allowed(self, candidate: Candidate) -> bool:
        """Whether it may be suggested: it fits, or is the config's own choice, which ran, unless a bound is given."""
        if not self._is_bound and candidate.key == _own_key(self._config):
            return True
        return self.limit is None or candidate.peak_bytes <= self.limit


def planning_rule(config: RunConfig) -> SelectionRule:
    """The config's rule; max-variance for `keep_all`, which is the same at m = n and refuses m < n, and for
    `max_signal`, which keeps at most m.

    Raises:
        UsageError: a rule that reads groups: the plan has rewards alone.
    """
    name = STANDS_FOR.get(config.select.rule, config.select.rule)
    rule = resolve_rule(name, {} if config.select.rule in STANDS_FOR else config.select.options)
    if reads_groups(rule):
        raise UsageError(f"select.rule = {name!r} reads groups, and pods plan has only rewards; plan with another")
    return cast(SelectionRule, rule)


def _replaced(config: RunConfig) -> tuple[str, ...]:
    """What decides for itself, so that the plan's n and m are not its own."""
    found = {"select.rule = 'max_signal'": config.select.rule == "max_signal"}
    found["budget.rollouts = 'worth'"] = config.budget.rollouts == "worth"
    names = " and ".join(name for name, is_used in found.items() if is_used)
    return (f"what {names} would choose: every n and m above is of max_variance and equal groups",) if names else ()


def planning_advantage(config: RunConfig) -> str | RewardAdvantage:
    """The config's advantage, as `teaching` takes it.

    Raises:
        UsageError: a function of the user's own that reads groups: the plan has rewards alone.
    """
    name = resolve_algorithm(config.loss.name, advantage=config.loss.advantage).advantage
    if name in NORMALIZERS:
        return name
    advantage = resolve_advantage(name)
    if advantage_reads_groups(advantage):
        raise UsageError(f"loss.advantage = {name!r} reads groups, and pods plan has only rewards; plan with another")
    return cast(RewardAdvantage, advantage)


def rollout_sizes(config: RunConfig, largest: int) -> list[int]:
    """n: four per chunk, doubled up to `largest`, and the config's own."""
    return _doubled(4 * config.select.num_chunks, largest, config.rollouts.num_rollouts)


def kept_sizes(config: RunConfig, num_rollouts: int) -> list[int]:
    """m: two per chunk, doubled up to n, and n itself; the config's own where it is not more than n."""
    own = min(own_kept(config), num_rollouts)
    return sorted({*_doubled(2 * config.select.num_chunks, num_rollouts, own), num_rollouts})


def _doubled(first: int, last: int, own: int) -> list[int]:
    sizes = {own}
    while first <= last:
        sizes.add(first)
        first *= 2
    return sorted(sizes)


def _own_key(config: RunConfig) -> tuple[int, int, int]:
    return config.rollouts.num_rollouts, own_kept(config), config.optim.micro_batch_tokens


def _largest_micro_batch(costs: CostModel, limit: float | None) -> int | None:
    largest = None if limit is None else costs.largest_micro_batch(limit)
    return largest if largest is not None and largest <= TRUSTED * costs.micro_batches[-1] else None


def _one_micro_batch(candidates: Sequence[Candidate], own: int) -> list[Candidate]:
    """For each n and m the fastest micro-batch, or the config's own where no other is faster by enough to tell."""
    by_pair: dict[tuple[int, int], list[Candidate]] = {}
    for candidate in candidates:
        by_pair.setdefault((candidate.num_rollouts, candidate.num_kept), []).append(candidate)

    def seconds(candidate: Candidate) -> float:
        handicap = 1.0 if candidate.micro_batch_tokens == own else WORTH_RECUTTING
        return candidate.seconds.total * handicap

    return [min(group, key=seconds) for _, group in sorted(by_pair.items())]
