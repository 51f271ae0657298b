"""What published claims look like on `builtin:steps`: each arm until it holds an accuracy, and what that took.

    python -m benchmarks claims                    all runs that are missing: hours
    python -m benchmarks claims --minutes 30       those that fit, by their worth; the same command goes on
    python -m benchmarks claims --arms "GRPO 16"   these alone: a second process may make the others
    python -m benchmarks claims --minutes 0        none: the table of what is there
    python -m benchmarks claims --out benchmarks/results/amd-zen-4/claims    goes on with those that are stored
    python -m benchmarks claims --save             also the table of docs/systems-measured.md, the picture of steps.md
    python -m benchmarks claims --quick            one short run of two arms, nothing tuned, about a minute

Each arm has its own best learning rate, which is found first on two seeds that count for nothing else. All run on one
thread and end once they hold the accuracy, or after a bound of CPU seconds. Only training counts. Finished runs are
lines of a file and are not made again.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from benchmarks import command, runs
from benchmarks.figures.markdown import table as markdown_table
from benchmarks.paired import Json, over_text, speedup
from benchmarks.runs import Limits, Log, Plan, best_rate, cost, facts_of, time_of
from benchmarks.timing import Say
from benchmarks.worlds import WORLDS, World
from podsrl.config.schema import RunConfig
from podsrl.report.figures import theme
from podsrl.report.numbers import compact

PRICES = (0.1, 0.3, 1.0, 2.3)
"""Of a generated token, in trained tokens."""
_AT = tuple(f"at {price:g}" for price in PRICES)
CURVE_PRICE = 0.3
SEEDS = (0, 1, 2)
"""Of each arm."""
PICTURE = command.ROOT / "docs" / "images" / "claims.svg"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRun:
    """One run."""

    arm: str
    rate: float
    seed: int
    world: str = "stories"
    """A key of `WORLDS`."""

    @property
    def title(self) -> str:
        """It in words."""
        return f"{self.arm}, rate {self.rate:g}, seed {self.seed}"

    @property
    def key(self) -> str:
        """The same for equal runs of a world, in this process and in others."""
        return json.dumps({"arm": self.arm, "rate": self.rate, "seed": self.seed}, sort_keys=True)

    def at(self, rate: float) -> ClaimRun:
        """The same at another rate."""
        return replace(self, rate=rate)

    def config(self) -> RunConfig:
        """What is trained."""
        return WORLDS[self.world].config(self.arm, self.rate, self.seed)


def main(arguments: Sequence[str]) -> None:
    measure("claims", __doc__, "stories", arguments, publish)


def measure(
    name: str, doc: str | None, world: str, arguments: Sequence[str], publish: Callable[[Json], None] | None = None
) -> None:
    """Make the missing runs of a world, then sum up all that there are, as the benchmark of a name."""
    own, plan = WORLDS[world], plan_of(world)
    parser = runs.new_parser(
        name, doc, quick="two short runs, nothing tuned, nothing kept", part="arms", parts=own.arms
    )

    def run(options: argparse.Namespace, say: Say) -> Json:
        quick = {run: Limits(accuracy=own.target, steps=3) for run in plan.runs if run.seed == SEEDS[0]}
        first = dict(list(quick.items())[:2])
        records, tuning = runs.make(
            plan, name, options, say, first, of=lambda run: run.arm in (options.arms or own.arms)
        )
        return {"quick": options.quick, **summarize(records, tuning, world)}

    command.measure(parser, arguments, run, publish=publish)


def plan_of(world: str) -> Plan[ClaimRun]:
    """All runs of a world, arm by arm; those that tune end at its last accuracy."""
    own = WORLDS[world]
    limits = Limits(accuracy=own.target, cpu_seconds=own.cpu_seconds)

    def tuned(run: ClaimRun, tuning: Log) -> tuple[float, tuple[ClaimRun, Limits] | None]:
        rate, missing = best_rate(
            lambda rate, seed: replace(run, rate=rate, seed=seed), own.rates, tuning, own.target, own.steps
        )
        return rate, missing and (missing[0], replace(limits, steps=missing[1]))

    return Plan(
        runs=[ClaimRun(arm=arm, rate=own.rates[0], seed=seed, world=world) for arm in own.arms for seed in SEEDS],
        tuned=tuned,
        limits=lambda run, log, tuning: limits,
        marks=own.marks,
    )


CLOCKS = {
    "step": "steps",
    "rollouts": "rollouts",
    "tokens": "generated tokens",
    "trained": "trained tokens",
    "decode_steps": "decode steps",
    "cpu_seconds": "CPU seconds",
    **{at: f"cost at g = {at[3:]}" for at in _AT},
}
"""What an accuracy costs: key -> its name. A cost at a price is the trained tokens and g times the generated ones."""


def summarize(records: Mapping[ClaimRun, Json], tuning: Log, world: str = "stories") -> Json:
    """All figures.

    Returns:
        "arms": name -> "rate", "seeds", "claim" (clock and words; None: none), "start" (mean accuracy), "to": target ->
        clock -> the cost per seed, None where it was not reached, and "over": target -> clock -> how many times cheaper
        than the first arm, on common seeds. "curves": name -> per seed the costs at `CURVE_PRICE` and the accuracies of
        its evaluations. "tuning": steps of every tuning run; None where it did not reach the target. "turns": `turns`.
        "num_runs", "num_wanted".
    """
    own = WORLDS[world]
    made: dict[str, dict[int, Json]] = {arm: {} for arm in own.arms}
    for run, record in records.items():
        made[run.arm][run.seed] = record
    arms = {arm: _arm(own, arm, made) for arm in own.arms if made[arm]}
    return {
        "targets": own.marks.targets,
        "baseline": own.baseline,
        **facts_of(records, len(own.arms) * len(SEEDS)),
        "tuning": [
            {**{name: record[name] for name in ("arm", "rate", "seed")}, "steps": cost(record, own.target, "step")}
            for record in tuning.records.values()
        ],
        "arms": arms,
        "turns": turns({n: one["to"][f"{own.target:g}"] for n, one in by_size(arms).items()}),
        "curves": {arm: [_curve(record["points"]) for record in made[arm].values()] for arm in own.curves if made[arm]},
    }


def _arm(world: World, arm: str, made: Mapping[str, Mapping[int, Json]]) -> Json:
    own, base, targets = made[arm], made[world.baseline], world.marks.targets
    common = sorted(own.keys() & base.keys())
    return {
        "rate": next(iter(own.values()))["rate"],
        "seeds": sorted(own),
        "claim": world.claims.get(arm),
        "start": round(statistics.mean(record["points"]["accuracy"][0] for record in own.values()), 4),
        "best": round(statistics.mean(max(record["points"]["accuracy"]) for record in own.values()), 4),
        "to": {
            f"{target:g}": {clock: [cost(own[seed], target, clock) for seed in sorted(own)] for clock in CLOCKS}
            for target in targets
        },
        "over": {
            f"{target:g}": {
                clock: speedup(
                    [time_of(base[seed], target, clock) for seed in common],
                    [time_of(own[seed], target, clock) for seed in common],
                    world.marks.growth,
                )
                for clock in CLOCKS
            }
            for target in targets
            if common and arm != world.baseline
        },
    }


def by_size(arms: Mapping[str, Json]) -> dict[int, Json]:
    """Those of the arms that are GRPO of a fixed size, by rollouts per question, ascending."""
    return {n: arms[f"GRPO {n}"] for n in sorted(int(arm[5:]) for arm in arms if re.fullmatch(r"GRPO \d+", arm))}


def turns(sizes: Mapping[int, Mapping[str, Sequence[float | None]]]) -> Json:
    """From which price of a decode step on a larger group is the cheaper one.

    A decode step draws one token of every rollout that is running, and costs something however few these are. With p
    its price in trained tokens, a run costs trained + g · generated tokens + p · decode steps.

    Args:
        sizes: rollouts per question -> clock -> the cost per seed; a size is left out if one of its runs got nowhere.

    Returns:
        "4 → 16" and so on, for each size and four times as many -> "at g" -> p where both cost the same, in the mean
        over seeds; None: the larger group needs as many decode steps, so that there is none.

    Example:
        >>> few = {"decode_steps": [300.0], **{f"at {price:g}": [1000.0] for price in PRICES}}
        >>> many = {"decode_steps": [100.0], **{f"at {price:g}": [2000.0] for price in PRICES}}
        >>> turns({4: few, 16: many})["4 → 16"]["at 0.3"]
        5.0
    """
    means = {
        n: {clock: statistics.mean(each for each in own[clock] if each is not None) for clock in ("decode_steps", *_AT)}
        for n, own in sizes.items()
        if None not in own["decode_steps"]
    }
    found: Json = {}
    for n, few in means.items():
        if many := means.get(4 * n):
            saved = few["decode_steps"] - many["decode_steps"]
            found[f"{n} → {4 * n}"] = {at: round((many[at] - few[at]) / saved, 1) if saved > 0 else None for at in _AT}
    return found


def _curve(points: Json) -> tuple[list[float], list[float]]:
    counts = zip(points["trained"], points["tokens"], strict=True)
    return [round(trained + CURVE_PRICE * tokens) for trained, tokens in counts], points["accuracy"]


SHOWN = tuple(clock for clock in CLOCKS if clock not in ("rollouts", "at 0.3", "at 2.3"))
"""The clocks of the table: rollouts go with tokens, and these prices with those beside them."""
EVEN = "no clear difference"


def verdict(over: Json) -> str:
    """Whether an arm is clearly cheaper or dearer, by the interval of how many times cheaper it is.

    Example:
        >>> verdict({"interval": {"point": 2.0, "low": 1.2, "high": None, "share_unreached": 0.0}})
        'cheaper'
        >>> verdict({"interval": {"point": 1.0, "low": 0.9, "high": 1.1, "share_unreached": 0.0}})
        'no clear difference'
    """
    low, high = over["interval"]["low"], over["interval"]["high"]
    if low > 1:
        return "cheaper"
    return "dearer" if high is not None and high < 1 else EVEN


def table(result: Json) -> str:
    """A row per arm with a clear difference; the others in one line, and whether the claims of the papers were seen."""
    target = f"{result['targets'][-1]:g}"
    compared = {arm: own["over"][target] for arm, own in result["arms"].items() if own["over"].get(target)}
    if not compared:
        return f"{result['num_runs']} of {result['num_wanted']} runs are made, all of {result['baseline']}."
    rows, unclear = [], []
    for arm, own in result["arms"].items():
        steps = ", ".join("–" if step is None else f"{step:g}" for step in own["to"][target]["step"])
        found = {clock: verdict(over) for clock, over in compared.get(arm, {}).items() if clock in SHOWN}
        if arm in compared and {*found.values()} == {EVEN}:
            unclear.append(f"{arm} ({steps})")
            continue
        texts = [
            "; ".join(f"{CLOCKS[clock]} {over_text(compared[arm][clock])}" for clock in found if found[clock] == side)
            for side in ("cheaper", "dearer")
        ]
        rows.append([arm, steps, *(text or "–" for text in texts)])
    head = ("arm", f"steps to {float(target):.0%}, by seed", "clearly cheaper by", "clearly dearer by")
    note = f"How many times cheaper than {result['baseline']}, with 95 % intervals; a dash: not reached, or nothing."
    lines = [f"- No clear difference, with their steps: {'; '.join(unclear)}."] * bool(unclear)
    claims = {arm: claim for arm in compared if (claim := result["arms"][arm]["claim"])}
    seen = {arm for arm, (clock, _) in claims.items() if verdict(compared[arm][clock]) == "cheaper"}
    shown = [f"{arm} ({words})" for arm, (_, words) in claims.items() if arm in seen]
    lines += [f"- Claims of papers that were seen: {', '.join(shown)}."] * bool(shown)
    missing = [arm for arm in claims if arm not in seen]
    lines += [f"- Claims of papers that were not seen: {', '.join(missing)}."] * bool(missing)
    arms = markdown_table(head, rows, num_left=4)
    return "\n\n".join([arms, note, "\n".join([*lines, *_turns_line(result["turns"])])])


def _turns_line(found: Json) -> list[str]:
    """Nothing where no two sizes are there."""
    ends = {sizes: [prices[at] for at in (_AT[0], _AT[-1])] for sizes, prices in found.items()}
    said = "; ".join(
        f"{sizes}: {' to '.join('never' if price is None else f'{price:g}' for price in own)}"
        for sizes, own in ends.items()
    )
    line = (
        f"- The larger group is cheaper where a decode step costs more trained tokens than this, at g = {PRICES[0]:g} "
        f"to {PRICES[-1]:g}: {said}."
    )
    return [line] if ends else []


def publish(result: Json) -> None:
    """Draw the picture."""
    from podsrl.report.figures.svg import save_svg

    save_svg(draw(result), PICTURE)


def draw(result: Json) -> Figure:
    """Steps and costs to the accuracies by the group's size, then accuracy by cost of some arms."""
    figure = theme.new_figure(12.5, 4.2)
    steps, costs, curves = figure.subplots(1, 3)
    sizes = {n: own["to"] for n, own in by_size(result["arms"]).items()}
    target = f"{result['targets'][-1]:g}"
    for level, color in zip(result["targets"], theme.SERIES, strict=False):
        _by_size(steps, {n: to[f"{level:g}"]["step"] for n, to in sizes.items()}, f"to {level:.0%}", color)
    for price, color in zip(PRICES, theme.SERIES, strict=False):
        _by_size(costs, {n: to[target][f"at {price:g}"] for n, to in sizes.items()}, f"g = {price:g}", color)
    for (arm, own), color in zip(result["curves"].items(), theme.SERIES, strict=False):
        for number, (spent_so_far, accuracy) in enumerate(own):
            curves.plot(spent_so_far, accuracy, color=color, linewidth=1.3, alpha=0.8, label="_" * (number > 0) + arm)
    theme.style(steps, "Steps by rollouts per question", x_label="rollouts per question")
    theme.style(costs, f"Cost to {float(target):.0%}, in trained tokens", x_label="rollouts per question")
    theme.style(curves, f"Accuracy by cost at g = {CURVE_PRICE:g}", x_label="trained tokens")
    theme.percent_axis(curves)
    curves.xaxis.set_major_formatter(lambda value, _: compact(value))
    curves.set_xlim(left=0)
    for axes in (steps, costs, curves):
        axes.legend(frameon=False, fontsize=9, labelcolor=theme.INK)
    for axes in (steps, costs):
        axes.loglog()
        axes.set_xticks(sorted(sizes), [str(n) for n in sorted(sizes)])
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(lambda value, _: compact(value))
        axes.minorticks_off()
    figure.supxlabel(theme.plain(result["hardware"]), x=0.012, ha="left", fontsize=8.5, color=theme.MUTED)
    return figure


def _by_size(axes: Axes, costs: Mapping[int, Sequence[float | None]], name: str, color: str) -> None:
    """A point per seed that has reached it, and a line through the medians of the sizes of which all have."""
    found = {n: [cost for cost in own if cost is not None] for n, own in sorted(costs.items())}
    for n, own in found.items():
        axes.plot([n] * len(own), own, "o", color=color, markersize=4, alpha=0.5)
    whole = {n: statistics.median(own) for n, own in found.items() if own and len(own) == len(costs[n])}
    axes.plot([*whole], [*whole.values()], color=color, linewidth=2.0, label=name)
