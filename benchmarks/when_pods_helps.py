"""When PODS helps: what 90 % accuracy costs with PODS, with GRPO of both sizes and with `auto`, by the start.

    python -m benchmarks when-pods-helps                  all runs that are missing: two hours
    python -m benchmarks when-pods-helps --minutes 30     those that fit, seed by seed; the same command goes on
    python -m benchmarks when-pods-helps --starts 4% 18%  from these alone: a second process may make the others
    python -m benchmarks when-pods-helps --minutes 0      none: the tables of what is there
    python -m benchmarks when-pods-helps --save           also the picture of docs/when-pods-helps.md
    python -m benchmarks when-pods-helps --out benchmarks/results/amd-zen-4/when_pods_helps    goes on with stored runs
    python -m benchmarks when-pods-helps --quick          some steps of two arms, nothing tuned, nothing kept

All of this was decided before the runs:

- Task: the recipe `pods` (sums of two digits, 8 prompts per step) from four models that differ in how they were
  pretrained, without a KL penalty, which is the default, and from one of them with the weight 0.04 of the paper.
- Arms: PODS 64 → 16; GRPO that trains on all of 64, and that generates 16; and the recipe `auto`, which begins with 64
  and decides n and m by their expected gain and the default prices.
- Rates: each arm has from each start the better one of 3e-4 and 1.5e-4, by the steps to 90 % on two seeds that count
  for nothing else. 6e-4 is not in the grid: tuning chose it often, because most runs are fast there, but of 93 earlier
  runs at that rate 19 never got there and 12 took over 2.5 times the steps of their arm's fastest; of 319 at 3e-4 these
  were 2 and 4 (commit 34ec5093 has them).
- Clock: CPU seconds of training to 90 % decide; steps, generated and trained tokens stand beside them. The 256 held-out
  questions are the same for all, and evaluations do not count. A run ends at 40 CPU seconds, from 0.9 % at 150.
- Size: a factor of 1.25 is the smallest difference worth knowing. Twelve seeds are made, and a verdict takes all.
- Order: all arms of a seed and start, one after the other; the first arm rotates with the seed.

Two things were decided after the runs had begun. From 0.9 %, PODS did not get there on some seeds at the rate that
tuning had chosen, twice that of the other arms, so from there PODS was also run at their rate. And 0.9 % with the
penalty was left out for want of time, after two seeds: on one of them PODS did not get there.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from benchmarks import command, runs
from benchmarks.bases import STARTS
from benchmarks.cells import AUTO, Cell, name_of
from benchmarks.decided import NUM_DECIDE, compared, line_cells, median_text, turned
from benchmarks.figures.markdown import table
from benchmarks.paired import Json, over_text
from benchmarks.runs import Limits, Log, Plan, best_rate, facts_of
from benchmarks.timing import Say
from podsrl.report.figures import theme

PODS, GRPO_64, GRPO_16, BY_ITSELF = "PODS 64 → 16", "GRPO 64", "GRPO 16", "auto"
CALM = "PODS 64 → 16 at 1.5e-4"
"""From `RARE` alone."""
RARE = ("0.9%", 0.0)
ARMS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    PODS: (64, 16, ()),
    GRPO_64: (64, 64, ()),
    GRPO_16: (16, 16, ()),
    BY_ITSELF: (64, 16, AUTO),
}
"""Name -> n, m and further options."""
LINES = (
    *((arm, base) for base in (PODS, CALM) for arm in (GRPO_64, GRPO_16, BY_ITSELF)),
    *((arm, BY_ITSELF) for arm in (GRPO_64, GRPO_16)),
)
"""Arm, and the arm over whose cost that of the first stands."""
REGIMES = (("4%", 0.0), ("18%", 0.0), ("59%", 0.0), RARE, ("4%", 0.04))
"""Starts and weights of the KL penalty."""
SEEDS = range(50, 50 + NUM_DECIDE)
"""Those of other benchmarks and of tuning are none of them."""
RATES, MOST_TUNING_STEPS = (3e-4, 1.5e-4), 400
ACCURACY = 0.9
CLOCKS = {"cpu_seconds": "CPU seconds", "step": "steps", "tokens": "generated tokens", "trained": "trained tokens"}
LEAST, MOST = 0.4, 5.0
"""Of the picture's axis."""
PICTURE = command.ROOT / "docs" / "images" / "when-pods-helps.svg"


def main(arguments: Sequence[str]) -> None:
    quick = "some steps of two arms, nothing tuned, nothing kept"
    parser = runs.new_parser("when-pods-helps", __doc__, quick=quick, parts=STARTS)
    command.measure(parser, arguments, run, publish=publish)


def cell(name: str, start: str, kl: float, seed: int, rate: float = RATES[0]) -> Cell:
    """A run of an arm."""
    n, m, more = ARMS[name]
    return Cell(start=start, kl=kl, num_rollouts=n, num_kept=m, more=more, rate=rate, seed=seed)


def planned(own: Cell) -> str:
    """The name of a planned run's arm."""
    return CALM if own.rate != RATES[0] else name_of(own, ARMS)


def cells() -> list[Cell]:
    """All runs, in the order in which they are made; the rates are not theirs yet, but for `CALM`."""
    own = [
        cell(name, start, kl, seed)
        for k, seed in enumerate(SEEDS)
        for start, kl in REGIMES
        for name in turned(tuple(ARMS), k)
    ]
    return [*own, *(cell(PODS, *RARE, seed, RATES[1]) for seed in SEEDS)]


def limits(own: Cell) -> Limits:
    """Where a run ends."""
    return Limits(accuracy=ACCURACY, cpu_seconds=150.0 if own.start == "0.9%" else 40.0)


def tuned(own: Cell, tuning: Log) -> tuple[float, tuple[Cell, Limits] | None]:
    """The rate of a run's arm so far, and the tuning run that is to be made next; None: the rate is known."""
    if planned(own) == CALM:
        return own.rate, None
    rate, run = best_rate(
        lambda rate, seed: replace(own, rate=rate, seed=seed), RATES, tuning, ACCURACY, MOST_TUNING_STEPS
    )
    return rate, run and (run[0], replace(limits(own), steps=run[1]))


def run(options: argparse.Namespace, say: Say = lambda text: None) -> Json:
    """Make the missing runs, then sum up all that there are."""
    plan = Plan(runs=cells(), tuned=tuned, limits=lambda own, log, tuning: limits(own))
    records, _ = runs.make(
        plan,
        "when-pods-helps",
        options,
        say,
        dict.fromkeys((cell(name, "4%", 0.0, SEEDS[0]) for name in (PODS, BY_ITSELF)), Limits(steps=2)),
        of=lambda own: own.start in (options.starts or STARTS),
    )
    return {"quick": options.quick, **summarize(records)}


def summarize(records: Mapping[Cell, Json]) -> Json:
    """For every start and penalty the arms' costs by seed, and of each line how many times the second's they are."""
    made: dict[tuple[str, float], dict[str, dict[int, Json]]] = {}
    for own, record in records.items():
        made.setdefault((own.start, own.kl), {name: {} for name in (*ARMS, CALM)})[planned(own)][own.seed] = record
    return {
        **facts_of(records, len(cells())),
        "regimes": [
            {"start": start, "kl": kl, **compared(arms, LINES, ACCURACY, CLOCKS)}
            for (start, kl), arms in sorted(made.items(), key=lambda item: (item[0][1], float(item[0][0][:-1])))
        ],
    }


def help_table(result: Json) -> str:
    """For the page that a reader meets first: CPU seconds over those of PODS and of `auto`."""
    lines = [line for line in LINES if line[1] != CALM]
    head = ["correct at the start", *(f"{arm} over {base}" for arm, base in lines)]
    rows = []
    for regime in result["regimes"]:
        of_line = {(line["arm"], line["over"]): _short(line["cpu_seconds"]) for line in regime["lines"]}
        rows.append([_title(regime), *(of_line.get(line, "–") for line in lines)])
    return table(head, rows)


def page(result: Json) -> str:
    """All lines by every clock with their verdicts, and the medians of the arms."""
    head = ["correct at the start", "arm", "over", *CLOCKS.values(), "seeds", "verdict"]
    rows = [[_title(regime), *line_cells(line, CLOCKS)] for regime in result["regimes"] for line in regime["lines"]]
    names = (*ARMS, CALM)
    medians = [
        [_title(regime), *(median_text(regime["arms"].get(name)) for name in names)] for regime in result["regimes"]
    ]
    note = (
        f"What {ACCURACY:.0%} cost, over what it cost the other arm, with 95 % intervals over paired seeds; the "
        f"verdict goes by CPU seconds. {result['num_runs']} of {result['num_wanted']} runs are made, of commit "
        f"{', '.join(result['commits'])}; the machine's load was {result['max_load']:.1f} at most."
    )
    return "\n\n".join([table(head, rows, num_left=3), table(["median cost", *names], medians), note])


def _title(regime: Json) -> str:
    return f"{regime['start'].replace('%', ' %')}{', KL' if regime['kl'] else ''}"


def _short(found: Json) -> str:
    """A ratio with its interval, bold where it is clear."""
    low, high = found["interval"]["low"], found["interval"]["high"]
    is_clear = low > 1 or (high is not None and high < 1)
    return f"**{over_text(found)}**" if is_clear else over_text(found)


def draw(result: Json) -> Figure:
    """How many times the seconds of PODS the other arms take, by the start, with intervals."""
    regimes = result["regimes"]
    figure = theme.new_figure(9.0, 4.4)
    axes = figure.subplots()
    theme.style(axes, "CPU seconds to 90 %, over those of PODS 64 → 16", x_label="correct at the start", key_rows=1)
    axes.axhline(1.0, color=theme.INK, linewidth=1.2)
    others = {GRPO_64: theme.SERIES[1], GRPO_16: theme.SERIES[0], BY_ITSELF: theme.SERIES[2]}
    for i, regime in enumerate(regimes):
        for line in (each for each in regime["lines"] if each["over"] == PODS):
            found, color = line["cpu_seconds"], others[line["arm"]]
            low, high = found["interval"]["low"], found["interval"]["high"]
            if found["ratio"] is None:
                continue
            marker = {"≥": "^", "≤": "v"}.get(found["bound"], "o")
            place = i + 0.2 * (list(others).index(line["arm"]) - 1)
            axes.plot([place, place], [max(low, LEAST), min(high or MOST, MOST)], color=color, linewidth=2.0)
            axes.plot(place, found["ratio"], color=color, marker=marker, markersize=6)
    axes.set_yscale("log")
    axes.set_ylim(LEAST, MOST)
    axes.set_xticks(range(len(regimes)), [_title(regime) for regime in regimes])
    axes.yaxis.set_major_locator(FixedLocator([0.5, 0.7, 1, 1.5, 2, 3, 4]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    theme.write_key(axes, others, len(others))
    note = f"above 1×: PODS is faster; 95 % intervals; ▾: at most, a run of PODS failed\n{result['hardware']}"
    figure.supxlabel(theme.plain(note), x=0.012, ha="left", fontsize=8.5, color=theme.MUTED)
    return figure


def publish(result: Json) -> None:
    """Draw the picture."""
    from podsrl.report.figures.svg import save_svg

    save_svg(draw(result), PICTURE)
