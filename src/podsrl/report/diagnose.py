"""What a run spent its rollouts on, and what to try first: `pods diagnose`.

The counts are the log's. What parts would have saved is simulated on the groups that the run recorded, with the same
answers: no part changes what the policy then learns.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from podsrl.compare.systems import TROUBLES, read_system
from podsrl.config.bounds import kept_of
from podsrl.config.schema import DEFAULT_COSTS, CostsConfig
from podsrl.control.close import is_certain
from podsrl.errors import UsageError
from podsrl.lib.moments import MOMENTS
from podsrl.lib.parts import factories
from podsrl.lib.rounding import has_signal
from podsrl.lib.stages import FATES
from podsrl.report.read import Array, Run
from podsrl.run.group_log import RecordedGroup, RecordedRollout
from podsrl.run.health import REASONS, logged_answers
from podsrl.select import resolve_rule, select_groups
from podsrl.systems.worth import Worth
from podsrl.types import group_of_rewards

Flags = tuple[str, ...]
"""section.key=value."""
DIFFICULTIES = {
    "0%": 0.0,
    "to 25%": 0.25,
    "to 50%": 0.5,
    "to 75%": 0.75,
    "below 100%": math.nextafter(1, 0),
    "100%": 1.0,
}
"""By which groups are told apart: name -> the largest share of correct answers."""
QUARTERS = 4
"""Of the recorded completions by their length."""


LARGE = 1 / 3
"""The share from which a cause is the verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why rollouts do not teach."""

    name: str
    finding: str
    """What the share counts."""
    cure: str = ""
    parts: tuple[tuple[str, Flags], ...] = ()
    """What to try before a system, and the options that do it."""

    @property
    def advice(self) -> tuple[tuple[str, Flags], ...]:
        """What to try first: its parts, and the systems for a trouble with this verdict."""
        named = [name for trouble in TROUBLES if trouble.verdict == self.name for name in trouble.systems]
        return (*self.parts, *map(_of_system, named))


def _of_system(name: str) -> tuple[str, Flags]:
    """What it does and what was seen of it; of a recipe with systems these alone, for the rest is about its task."""
    system = read_system(name)
    flags = system.flags[:1] if system.config.systems else system.flags
    return f"{system.about.idea} (seen: {system.about.seen})", flags


CAUSES = (
    Cause(name="unscored", finding="of the rollouts have no usable reward", cure=REASONS["invalid"][-1]),
    Cause(
        name="indifferent",
        finding="of the rewards are one number, for correct answers and for wrong ones",
        cure=REASONS["alike"][-1],
    ),
    Cause(
        name="over-long",
        finding="of the rollouts reach the token limit",
        cure=REASONS["cut"][-1],
        parts=(("allow longer answers", ("rollouts.max_new_tokens={twice}",)),),
    ),
    Cause(name="starved", finding="of the groups have no correct answer", cure=REASONS["wrong"][-1]),
    Cause(name="solved", finding="of the groups have only correct answers", cure=REASONS["right"][-1]),
)
"""In this order: one above may be the reason of one below."""
HEALTHY = Cause(
    name="healthy",
    finding="of the groups hold correct and wrong answers",
    parts=(
        ("ask as many rollouts as the last groups were worth", ("systems=worth", "select.rule=max_signal")),
        ("train on what varies most", ("select.rule=max_variance", "select.num_kept={quarter}")),
        ("generate the next step during the update", ("order.ahead=1",)),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Recorded groups or rollouts of one kind; counts of tokens are of their completions."""

    name: str
    count: int
    generated: int
    trained: int
    """Kept, with an advantage other than 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What a part would have done with the recorded groups."""

    flags: Flags
    generated: float
    """Tokens over those that were generated."""
    trained: float
    """Tokens with a gradient over all that were generated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A run's."""

    cause: Cause
    shares: Mapping[str, float]
    """Name of every cause -> its share in the run."""
    late: Mapping[str, float]
    """The same of the last quarter of the steps."""
    tokens: Mapping[str, float]
    """Fate -> its share of the generated tokens."""
    seconds: Mapping[str, float]
    """Stage -> its share of the training time."""
    lag: float | None
    """Mean age of the kept rollouts, in updates; None: the log does not say."""
    most_lag: float | None
    num_groups: int
    """Recorded."""
    by_difficulty: tuple[Part, ...]
    by_length: tuple[Part, ...]
    by_turns: tuple[Part, ...]
    """Of a run of several turns."""
    savings: tuple[Saving, ...]
    parts: tuple[tuple[str, Flags], ...]
    """The cause's advice that the run has not."""


def diagnose(run: Run) -> Diagnosis:
    """Look at a run.

    Raises:
        UsageError: it has not done a step.
    """
    if not run.steps:
        raise UsageError(f"{run.path} has no step in metrics.jsonl: let it do some first (pods train --resume FOLDER)")
    shares, late = _shares(run, 0), _shares(run, len(run.steps) * 3 // 4)
    cause = next((each for each in CAUSES if shares[each.name] >= LARGE), HEALTHY)
    tokens, seconds = run.tokens(), run.stage_seconds()
    all_tokens = max(tokens["generated"], sum(tokens[fate] for fate in FATES))  # the latter with recalled ones
    groups = [group for group in run.groups if group.rollouts]
    return Diagnosis(
        cause=cause,
        shares=shares,
        late=late,
        tokens={fate: tokens[fate] / max(all_tokens, 1) for fate in FATES},
        seconds={stage: value / max(sum(seconds.values()), 1e-9) for stage, value in seconds.items()},
        lag=_known(run.series("rollouts/lag"), np.mean),
        most_lag=_known(run.series("rollouts/lag_max"), np.max),
        num_groups=len(groups),
        by_difficulty=_by_difficulty(groups),
        by_length=_by_length(groups),
        by_turns=_by_turns(groups) if np.nanmax(run.series("turns/max"), initial=1) > 1 else (),
        savings=_savings(run, groups),
        parts=_parts(run, cause),
    )


def _shares(run: Run, first: int) -> dict[str, float]:
    """Each cause's share in the steps from one on."""

    def total(*names: str) -> float:
        return float(sum(np.nansum(run.series(name)[first:]) for name in names))

    groups = total("groups/all") / (run.option("select.num_chunks") or 1) + total("groups/left_out")
    rollouts = total("rollouts/all")
    mixed, wrong = total("groups/mixed"), total("groups/all_wrong")
    answers = logged_answers(run.steps[first:])
    counts = {
        "unscored": (total("rollouts/invalid"), rollouts),
        "indifferent": (answers.alike, answers.num),
        "over-long": (total("rollouts/truncated"), rollouts),
        "starved": (wrong, groups),
        "solved": (groups - mixed - wrong, groups),
        "healthy": (mixed, groups),
    }
    return {name: max(part, 0.0) / whole if whole else 0.0 for name, (part, whole) in counts.items()}


def _by_difficulty(groups: Sequence[RecordedGroup]) -> tuple[Part, ...]:
    found: dict[str, list[RecordedGroup]] = {name: [] for name in DIFFICULTIES}
    for group in groups:
        share = sum(rollout.is_correct for rollout in group.rollouts) / len(group.rollouts)
        found[next(name for name, most in DIFFICULTIES.items() if share <= most)].append(group)
    return tuple(_part(name, len(own), [one for each in own for one in each.rollouts]) for name, own in found.items())


def _by_length(groups: Sequence[RecordedGroup]) -> tuple[Part, ...]:
    rollouts = sorted((one for group in groups for one in group.rollouts), key=lambda one: one.num_tokens)
    bounds = [len(rollouts) * quarter // QUARTERS for quarter in range(QUARTERS + 1)]
    quarters = [rollouts[low:high] for low, high in pairwise(bounds)]
    return tuple(_part(f"{own[0].num_tokens} to {own[-1].num_tokens}", len(own), own) for own in quarters if own)


def _by_turns(groups: Sequence[RecordedGroup]) -> tuple[Part, ...]:
    found: dict[int, list[RecordedRollout]] = defaultdict(list)
    for rollout in (one for group in groups for one in group.rollouts):
        found[sum(not is_given for _, is_given in rollout.pieces)].append(rollout)
    return tuple(_part(f"{turns}", len(own), own) for turns, own in sorted(found.items()))


def _part(name: str, count: int, rollouts: Sequence[RecordedRollout]) -> Part:
    taught = [one for one in rollouts if one.is_kept and one.advantage not in (None, 0.0)]
    return Part(name=name, count=count, generated=_tokens(rollouts), trained=_tokens(taught))


def _tokens(rollouts: Iterable[RecordedRollout]) -> int:
    return sum(rollout.num_tokens for rollout in rollouts)


def _savings(run: Run, recorded: Sequence[RecordedGroup]) -> tuple[Saving, ...]:
    """What rules and stops would have done, from training on all to the recipe `auto`."""
    rewards = [[math.nan if one.reward is None else one.reward for one in each.rollouts] for each in recorded]
    known = [reward for of_group in rewards for reward in of_group if not math.isnan(reward)]
    generated = sum(_tokens(each.rollouts) for each in recorded)
    if not known or not generated:
        return ()
    whole, largest = [*map(len, rewards)], max(map(len, rewards))
    option = run.option("select.num_kept")
    own_m = kept_of(option, largest) if isinstance(option, int | float) else largest
    m = max(2, own_m if own_m < largest else largest // 4)
    costs = _costs(run)

    def saving(rule: str, sizes: Sequence[int], *flags: str, num_kept: int = m) -> Saving:
        options = {"overhead": costs.overhead(largest)} if rule == "max_signal" else {}
        groups = [group_of_rewards("", own[:size]) for own, size in zip(rewards, sizes, strict=True)]
        drawn = trained = 0
        for each, own, size, chosen in zip(
            recorded, rewards, sizes, select_groups(groups, resolve_rule(rule, options), num_kept), strict=True
        ):
            drawn += _tokens(each.rollouts[:size])
            if has_signal([own[index] for index in chosen.kept]):
                trained += _tokens(each.rollouts[index] for index in chosen.kept)
        kept = () if rule == "keep_all" else (f"select.num_kept={num_kept}",)
        flags = (f"select.rule={rule}", *kept, *flags)
        return Saving(flags=flags, generated=drawn / generated, trained=trained / generated)

    lowest, highest = min(known), max(known)
    closed = [
        next((k for k in range(m, n) if lowest < highest and is_certain(own[:k], m, lowest, highest)), n)
        for own, n in zip(rewards, whole, strict=True)
    ]
    worth = Worth(window=len(recorded))
    outcomes = [
        [float(one.is_correct) if one.reward is not None else math.nan for one in own.rollouts] for own in recorded
    ]
    worth.learn([group_of_rewards("", own) for own in outcomes])
    size = worth.best(costs)
    return (
        saving("keep_all", whole, num_kept=largest),
        saving("max_variance", whole),
        saving("max_variance", closed, "systems=certain"),
        saving("max_signal", whole),
        saving("max_signal", [min(size, n) for n in whole], "systems=worth"),
    )


def _costs(run: Run) -> CostsConfig:
    """The run's own, or the defaults of its device's kind; "auto" was a GPU if the log has memory of one."""
    device = run.option("model.device") or "auto"
    is_gpu = np.isfinite(run.series("memory/peak_update_bytes")).any() if device == "auto" else device != "cpu"
    return CostsConfig.model_validate(run.option("costs") or DEFAULT_COSTS["cuda" if is_gpu else "cpu"])


def _parts(run: Run, cause: Cause) -> tuple[tuple[str, Flags], ...]:
    n, most = run.option("rollouts.num_rollouts") or 2, run.option("rollouts.max_new_tokens") or 0
    known = {"twice": 2 * most, "quarter": max(2, n // 4)}
    advice = [(why, tuple(flag.format(**known) for flag in flags)) for why, flags in cause.advice]
    missing = [(why, flags) for why, flags in advice if any(not _has(run, flag) for flag in flags)]
    return tuple((why, tuple(_beside(run, flag) for flag in flags)) for why, flags in missing)


def _has(run: Run, flag: str) -> bool:
    key, _, value = flag.partition("=")
    own = run.option(key)
    return {*value.split(",")} <= {*own} if isinstance(own, list) else str(own) == value


def _beside(run: Run, flag: str) -> str:
    """The flag; of systems, behind those of the run that decide something else."""
    key, _, value = flag.partition("=")
    if key != "systems":
        return flag
    names = value.split(",")
    taken = set[str]().union(*map(_decides, names))
    return f"{key}={','.join([*(own for own in run.option(key) or [] if not _decides(own) & taken), *names])}"


def _decides(system: str) -> set[str]:
    """What it alone may decide; of a user's own, which is not imported for this, nothing is known."""
    parts = () if ":" in system else factories(system)
    return {name for part in parts for name, moment in MOMENTS.items() if hasattr(part, name) and not moment.is_shared}


def _known(values: Array, of: Callable[[Array], np.float64]) -> float | None:
    values = values[np.isfinite(values)]
    return float(of(values)) if len(values) else None
