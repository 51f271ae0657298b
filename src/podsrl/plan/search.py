"""Search n and m: what each choice costs and teaches, and which teaches most per second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from podsrl.config.schema import CostsConfig, RunConfig
from podsrl.errors import UsageError
from podsrl.plan.cost import CostModel, StepSeconds
from podsrl.plan.measured import Measurements, own_kept
from podsrl.plan.rewards import RewardModel
from podsrl.plan.value import (
    BEST_RATE,
    BETWEEN,
    DEFAULT_NOISE,
    FIXED_RATE,
    Teaching,
    noise_range,
    noise_ratio,
    teaching,
)
from podsrl.select import SelectionRule, resolve_rule
from podsrl.select.base import reads_groups
from podsrl.update.advantage import NORMALIZERS, RewardAdvantage, resolve_advantage
from podsrl.update.advantage import reads_groups as advantage_reads_groups
from podsrl.update.algorithms import resolve_algorithm

NUM_DRAWS = 768
"""Groups drawn to average over."""
REACH = 2
"""n is predicted up to this many times the largest measured one."""
WORTH_CHANGING = 1.03
"""The config's own choice stands unless another is better by more than this: less is within the prediction's error."""
STANDS_FOR = {"keep_all": "max_variance", "max_signal": "max_variance"}
"""Rules -> what a plan puts in their place."""
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One choice, predicted."""

    num_rollouts: int
    num_kept: int
    seconds: StepSeconds
    share: float
    """share(n, m): how much of a step's gradient is signal, 0 .. 1 (`value.py`)."""
    taught: Teaching

    @property
    def key(self) -> tuple[int, int]:
        return self.num_rollouts, self.num_kept

    def at(self, noise: float) -> Candidate:
        """The same choice with another κ."""
        return replace(self, share=max(self.taught.share(noise), 0.0))

    def progress(self, exponent: float = BETWEEN) -> float:
        """Progress per second: share^exponent / seconds."""
        return float(self.share**exponent) / self.seconds.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What tokens cost in a step at the config's own sizes, the fixed parts of both stages included."""

    generated_token_seconds: float
    trained_token_seconds: float
    """Of a token of a completion, each time that the update processes it."""
    point: float
    """The first over the second, which `pods compare` takes as one of `prices`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was found."""

    own: Candidate
    """The config's choice."""
    best: Candidate
    """The suggestion; `own` where nothing is better by more than the prediction's error."""
    candidates: tuple[Candidate, ...]
    """One for each n and m, both ascending."""
    pass_rate: float
    concentration: float
    noise_ratio: float
    is_noise_measured: bool
    noise_range: tuple[float, float] | None
    """How far κ may be off, by its middle 90 % over resampled steps; None where not measured on several steps."""
    is_rule_replaced: bool
    """The config keeps all, and max-variance stands for that rule here: the same at m = n."""
    spread: float | None
    """How far single measurements lie from the fit (`cost.CostModel.spread`); None where nothing was repeated."""
    price: Price | None
    """Of a generated token, in trained ones; None where no update at the config's own sizes would train."""
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

    @property
    def flags(self) -> list[str]:
        """The suggestion as overrides to paste; `keep_all` cannot keep fewer than all, so it makes way."""
        n, m = self.best.key
        rule = ["--select.rule=max_variance"] if self.is_rule_replaced and m < n else []
        return [f"--rollouts.num_rollouts={n}", f"--select.num_kept={m}", *rule]

    def to_json(self) -> Json:
        """Plain numbers: what `pods plan --json` prints, and its table and picture are made from."""
        return {
            "spread": self.spread,
            "pass_rate": self.pass_rate,
            "concentration": self.concentration,
            "noise_ratio": self.noise_ratio,
            "is_noise_measured": self.is_noise_measured,
            "noise_range": self.noise_range and list(self.noise_range),
            "price": self.price and asdict(self.price),
            "costs": self.costs and self.costs.model_dump(),
            "own": self._entry(self.own),
            "best": self._entry(self.best),
            "flags": self.flags,
            "candidates": [self._entry(candidate) for candidate in self.candidates],
            "unknown": list(self.unknown),
        }

    def _entry(self, candidate: Candidate) -> Json:
        return {
            "num_rollouts": candidate.num_rollouts,
            "num_kept": candidate.num_kept,
            "seconds": {**asdict(candidate.seconds), "total": candidate.seconds.total},
            "share": candidate.share,
            "progress": candidate.progress(),
            "relative_progress": _finite(self.relative(candidate)),
            "relative_progress_range": [_finite(end) for end in self.relative_range(candidate)],
            "signal_share": candidate.taught.signal_share,
            "trained_rows": candidate.taught.trained_rows,
        }


def _finite(value: float) -> float | None:
    """None where the config's own choice teaches nothing, so that there is no ratio."""
    return value if value != float("inf") else None


def make_plan(measured: Measurements) -> Plan:
    """Predict every candidate and choose.

    Where all seen rewards were equal, the config's own choice stands with its seconds; `unknown` says so.
    """
    config, costs = measured.config, CostModel(measured)
    rewards = RewardModel.from_groups([group for step in measured.steps for group in step.groups])
    gradients = [[update.gradient for update in step.updates] for step in measured.steps]
    found = noise_ratio([probe for own in gradients for probe in own])
    noise = DEFAULT_NOISE if found is None else found
    largest = REACH * max(step.num_rollouts for step in measured.steps)
    groups = rewards.draw(max(rollout_sizes(config, largest)), NUM_DRAWS)
    length = float(groups.lengths.mean())
    rule, advantage = planning_rule(config), planning_advantage(config)

    def candidate(n: int, m: int) -> Candidate:
        taught = teaching(groups, n, m, rule=rule, advantage=advantage, num_chunks=config.select.num_chunks)
        return Candidate(
            num_rollouts=n,
            num_kept=m,
            seconds=costs.seconds(n, taught, length),
            share=max(taught.share(noise), 0.0),
            taught=taught,
        )

    candidates = [candidate(n, m) for n in rollout_sizes(config, largest) for m in kept_sizes(config, n)]
    own = next(c for c in candidates if c.key == (config.rollouts.num_rollouts, own_kept(config)))
    best = max(candidates, key=lambda c: (c.progress(), -c.seconds.total))
    is_better = best.progress() > WORTH_CHANGING * own.progress()
    return Plan(
        own=own,
        best=best if is_better else own,
        candidates=tuple(candidates),
        pass_rate=rewards.pass_rate,
        concentration=rewards.concentration,
        noise_ratio=noise,
        is_noise_measured=found is not None,
        noise_range=None if found is None else noise_range(gradients),
        is_rule_replaced=config.select.rule == "keep_all",
        spread=costs.spread,
        price=_price(config, own, length),
        costs=costs.constants(),
        unknown=tuple(_unknown(config, rewards, best, costs, found)),
    )


def _price(config: RunConfig, own: Candidate, length: float) -> Price | None:
    """By the predicted seconds of the config's own choice."""
    num_prompts, trained = config.rollouts.num_prompts, own.taught.trained_tokens * config.optim.num_epochs
    if not trained or not length or not own.seconds.update:
        return None
    generated_token = own.seconds.generate / (num_prompts * own.num_rollouts * length)
    trained_token = own.seconds.update / (num_prompts * trained)
    return Price(
        generated_token_seconds=generated_token,
        trained_token_seconds=trained_token,
        point=generated_token / trained_token,
    )


def _unknown(
    config: RunConfig, rewards: RewardModel, best: Candidate, costs: CostModel, noise: float | None
) -> Iterator[str]:
    """What the measurements could not tell, in words."""
    if best.progress() == 0:
        yield (
            f"which n and m teach most, since every reward that was seen is {rewards.base.rollouts.rewards[0]:g}: "
            "measure longer (--measure), raise rollouts.num_rollouts or rollouts.temperature, or take easier (or "
            "harder) questions"
        )
    if noise is None:
        yield "the noise of a rollout's gradient: no gradients at three different m"
    yield from _replaced(config)
    if costs.spread is None:
        yield "how far repeats of a measurement differ: there were too few of them; measure longer (--measure)"


def planning_rule(config: RunConfig) -> SelectionRule:
    """The config's rule; max-variance for `keep_all`, which is the same at m = n and refuses m < n, and for
    `max_signal`, which keeps at most m.

    Raises:
        UsageError: a rule that reads groups: the plan has rewards alone.
    """
    name = STANDS_FOR.get(config.select.rule, config.select.rule)
    rule = resolve_rule(name, {} if config.select.rule in STANDS_FOR else config.select.options)
    if reads_groups(rule):
        raise UsageError(
            f"select.rule = {name!r} reads groups, and pods plan has only rewards; plan with another, as "
            "--select.rule=max_variance"
        )
    return cast(SelectionRule, rule)


def _replaced(config: RunConfig) -> tuple[str, ...]:
    """What decides for itself, so that the plan's n and m are not its own."""
    found = {"select.rule = 'max_signal'": config.select.rule == "max_signal"}
    found["systems = 'worth'"] = "worth" in config.systems
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
        raise UsageError(
            f"loss.advantage = {name!r} reads groups, and pods plan has only rewards; plan with another, as "
            "--loss.advantage=std"
        )
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
