"""What `pods demo` and `pods compare` print at their end, and what the demo says before it begins."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from podsrl.cli.console import counted

QUESTION = """Is your task like this demo's? PODS beats training on all rollouts. Over generating few it can gain where
  1. correct answers are rare, so that a few rollouts of a question seldom hold one, and
  2. updates are expensive compared with generating: a KL penalty, as here, makes each trained rollout cost more.
Where correct answers are frequent, generate fewer: plain GRPO is as fast. `pods plan CONFIG` measures your model and
task and suggests n and m; docs/when-pods-helps.md maps where PODS helps and where it does not."""
Json = dict[str, Any]


def shown(result: Json, advice: str = "") -> Group:
    """Three tables of what `compare.json` holds, the quickest arm's gain over each other one, and the hardware.

    Where there is no gain to tell, the last sentence says so, followed by the advice.
    """
    from podsrl.compare.interval import SpeedupInterval, over_each_text, quickest

    num_seeds = len(next(iter(result["arms"].values()))["seeds"])
    title = f"{result['seconds']:g} training seconds per arm, {counted(num_seeds, 'seed')}"
    over = {
        base: {arm: SpeedupInterval.from_json(entry) for arm, entry in entries.items()}
        for base, entries in result["speedup_over"].items()
        if result["learned"][base]
    }
    reasons = [f"{arm} has not learned: {why}." for arm, why in result["why_not_learned"].items()]
    if result["not_learned"]:
        lines = [f"Measured on {result['hardware']}.", *reasons, f"{result['not_learned']}{advice}"]
    else:
        arm = quickest(over[result["baseline"]], result["baseline"])
        lines = [f"{result['unequal_pace']}."] if result["unequal_pace"] else []
        lines += [f"{over_each_text(arm, over, result['fraction'])}."] if arm else []
        lines += [
            f"Speed-up: time of one arm to {100 * result['fraction']:g} % of its own best mean accuracy, over the "
            "other arm's time to the same.",
            "In brackets: its 95 % interval over seeds.",
            *reasons,
            f"Measured on {result['hardware']}.",
        ]
    prices = [] if result["not_learned"] else [_prices(result)]
    return Group(_speedups(result, title), _times(result), *prices, Text("\n".join(lines)))


def _speedups(result: Json, title: str) -> Table:
    from podsrl.compare.interval import SpeedupInterval
    from podsrl.report.numbers import kept

    table = Table(title=title)
    by = " by processor seconds" if result["unequal_pace"] else ""
    speedup = f"speed-up{by} over {result['baseline']} (95 %)"
    for column in ("arm", "n → m", "steps", "final accuracy", "seconds per step", speedup):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for arm, facts in result["arms"].items():
        steps = result["steps"][arm]
        table.add_row(
            arm,
            f"{facts['num_rollouts']:g} → {kept(facts['num_kept'])}",
            f"{sum(steps) / len(steps):.0f}",
            f"{result['mean_accuracy'][arm][-1]:.1%}",
            f"{sum(result['stage_seconds'][arm].values()):.2f}",
            "–" if result["not_learned"] else SpeedupInterval.from_json(result["speedup"][arm]).full_text,
        )
    return table


def _times(result: Json) -> Table:
    from podsrl.compare.costs import COSTS

    table = Table(title=f"{COSTS[result['clock']].capitalize()} until the mean accuracy is")
    table.add_column("arm")
    for accuracy in result["seconds_to"]:
        table.add_column(f"{float(accuracy):.0%}", justify="right")
    for arm in result["arms"]:
        times = (found[arm] for found in result["seconds_to"].values())
        table.add_row(arm, *("not reached" if time is None else f"{time:.1f} s" for time in times))
    return table


def _prices(result: Json) -> Table | Text:
    """Seconds here and the cost at each price to the target; below each its ratio to the baseline's."""
    from podsrl.compare.costs import NO_PRICES
    from podsrl.compare.interval import SpeedupInterval
    from podsrl.report.numbers import compact

    def text(spent: Json, arm: str) -> str:
        if spent["to_target"] is None:
            return "not reached"
        needed = SpeedupInterval.from_json(spent["saving"]).inverse.point
        over = "" if needed is None or arm == result["baseline"] else f" ({needed:.2f}×)"
        return compact(spent["to_target"]) + over

    if not result["prices"]:
        return Text(NO_PRICES)
    target = f"{100 * result['fraction']:g} % of {result['baseline']}'s best mean accuracy"
    table = Table(
        title=f"Cost to {target} where a generated token costs g trained ones",
        caption=f"trained tokens + g × generated tokens; in brackets: over {result['baseline']}'s",
    )
    clock = {"seconds": "seconds here", "cpu": "processor seconds here"}[result["clock"]]
    found = {clock: result["costs"][result["clock"]]} | {f"g = {g}": each for g, each in result["prices"].items()}
    table.add_column("arm")
    for column in found:
        table.add_column(column, justify="right")
    for arm in result["arms"]:
        table.add_row(arm, *(text(spent[arm], arm) for spent in found.values()))
    return table
