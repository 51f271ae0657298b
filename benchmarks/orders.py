"""What the desk is worth: turns without a barrier, decode steps that a step waits for, seconds to an accuracy.

    python -m benchmarks orders                              turns and decode steps: minutes of one core
    python -m benchmarks orders --seeds 12                   also trains each order: half an hour of two idle cores
    python -m benchmarks orders --quick                      small sizes, and a few steps of two trained orders

Turns: the engine generates the rollouts of one step, behind a barrier and without it; the barrier lets none go on
before all others have ended their turn. Decode steps: the desk without a model, over the lengths of GSM8K's solutions
and of answers of SmolLM2-135M to GSM8K (benchmarks/judges), in tokens of that model (PODS_DATA, PODS_MODELS). An update
takes as long as half of the decode steps that `ahead = 0` waits for. Trained runs are kept in a folder. They say in
how many steps an order learns; what a step takes is measured in turns behind them, so that all orders have the same
machine, and both make the seconds.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean, median

from benchmarks import barrier, command, runs
from benchmarks.decided import turned
from benchmarks.figures.markdown import table
from benchmarks.judges.labelled import ANSWERS
from benchmarks.our_arm import OurArm
from benchmarks.paired import Json, over_text, speedup
from benchmarks.runs import MARKS, Limits, Log, Plan, cost, facts_of, time_of
from benchmarks.timing import Say, one_thread, titled
from podsrl.config.load import load_config
from podsrl.config.schema import ModelConfig, OrderConfig, RunConfig
from podsrl.errors import UsageError
from podsrl.lib.logs import read_lines
from podsrl.policy import load_tokenizer
from tests.run.step.simulated import Lengths, Run

NUM_TURNS, SLOTS = (2, 4, 8), (None, 64)
NUM_PROMPTS, NUM_ROLLOUTS, NUM_SLOTS = 8, 16, 64
"""Of a simulated step."""
WARM_STEPS = 10
"""Of a simulated run, which do not count: "first" takes short groups first."""
ORDERS = {
    "`ahead = 0`": OrderConfig(),
    "1, asked, finish": OrderConfig(ahead=1),
    "1, asked, put_off": OrderConfig(ahead=1, rest="put_off"),
    "1, asked, run": OrderConfig(ahead=1, rest="run"),
    "0.25, first, put_off, `most_age` 4": OrderConfig(ahead=0.25, take="first", rest="put_off", most_age=4),
    "1, first, put_off": OrderConfig(ahead=1, take="first", rest="put_off"),
    "1, first, run": OrderConfig(ahead=1, take="first", rest="run"),
    "4, first, run, `most_age` 4": OrderConfig(ahead=4, take="first", rest="run", most_age=4),
}
_RUN, _CHILD = ("order.ahead=1", "order.rest=run"), "scale.generators=1"
RECIPE, TARGET, MOST_STEPS = "pods", 0.9, 80
"""What is trained, up to which accuracy, and the steps at which a run is given up."""
ARMS: dict[str, tuple[str, ...]] = {
    "`ahead = 0`": (),
    "1, asked, finish, child process": ("order.ahead=1", _CHILD),
    "1, asked, run, child process": (*_RUN, _CHILD),
    "0.25, first, put_off, `most_age` 4": (
        *("order.ahead=0.25", "order.take=first", "order.rest=put_off", "order.most_age=4"),
        "correct.proximal=step_start",
    ),
}
"""Trained orders -> their options; the others are compared with the first."""
FIRST = next(iter(ARMS))
CLOCKS = ("seconds", "step")
PACE_ROUNDS, PACE_STEPS = 4, 10
"""How often the pace of each order is measured, and over how many steps, of which the first two do not count."""
Paces = dict[str, list[float]]
"""Order -> seconds per step, one of each round."""
LATER = replace(MARKS, targets=(TARGET,), growth=1.1, first=10, is_later=True)


def main(arguments: Sequence[str]) -> None:
    parser = runs.new_parser("orders", __doc__, quick="small sizes", part="orders", parts=ARMS)
    parser.add_argument("--seeds", type=int, default=0, help="of each trained order; default: 0, nothing is trained")
    command.measure(parser, arguments, run, lambda result: f"{turns_table(result)}\n\n{orders_table(result)}")


def run(options: argparse.Namespace, say: Say = lambda text: None) -> Json:
    """Measure all three."""
    is_quick = options.quick
    turns = [
        barrier.turns(name, count, slots, rounds=1 if is_quick else 2, say=titled(say, f"{name}, {count} turns"))
        for name, count, slots in product((barrier.COLUMNS, barrier.MADE), NUM_TURNS[: 1 if is_quick else 3], SLOTS)
    ]
    sets = {name: waits(own, 5 if is_quick else 40, titled(say, name)) for name, own in recorded().items()}
    records = trained(options, say) if options.seeds or is_quick else {}
    made = [order for order in ARMS if any(trial.order == order for trial in records)]
    pace = paces(made, 1 if is_quick else PACE_ROUNDS, 3 if is_quick else PACE_STEPS, say)
    return {"quick": is_quick, "turns": turns, "waits": sets, "trained": summary(records, pace, options.seeds)}


# --- decode steps ---


def recorded() -> dict[str, list[int]]:
    """Tokens of answers to GSM8K's questions, by who wrote them. UsageError: the files are not there."""
    if "PODS_DATA" not in os.environ:
        raise UsageError("PODS_DATA is not set: wanted a folder with gsm8k/train.jsonl")
    tokenizer = load_tokenizer(ModelConfig(path="package:smollm2-135m"))
    answers = [row for row in read_lines(ANSWERS) if (row["model"], row["task"]) == ("smollm2-135m", "gsm8k")]
    texts = {
        "GSM8K's solutions": [row["answer"] for row in read_lines(Path(os.environ["PODS_DATA"]) / "gsm8k/train.jsonl")],
        "answers of SmolLM2-135M": [row["text"] for row in answers],
    }
    return {name: list(map(len, tokenizer(own)["input_ids"])) for name, own in texts.items()}


def waits(lengths: Sequence[int], num_steps: int, say: Say = lambda text: None) -> Json:
    """Decode steps that a step waits for, per group that it trains on, by order; each rollout draws a length.

    Returns:
        "mean" and "max" of the lengths, "update": decode steps that an update takes, and for each order "one process",
        "beside" (generators work during the update) and "oldest", the largest age in steps of any beside.
    """
    first = waited(ORDERS[FIRST], lengths, num_steps, 0)[0]
    update, found = round(first * NUM_PROMPTS / 2), dict[str, Json]()
    for name, order in ORDERS.items():
        say(name)
        can_be_alone = order.rest != "finish" or not order.is_ahead
        beside, oldest = waited(order, lengths, num_steps, update)
        alone = waited(order, lengths, num_steps, 0)[0] if can_be_alone else None
        found[name] = {"one process": alone, "beside": beside, "oldest": oldest}
    return {"mean": fmean(lengths), "max": max(lengths), "update": update, "orders": found}


def waited(order: OrderConfig, lengths: Sequence[int], num_steps: int, num_beside: int) -> tuple[float, int]:
    """Decode steps that a step waits for per group, after the first ones, and the largest age in steps."""
    own = Run(
        order=order,
        length_of=Lengths(0, lambda draw: draw.choice(lengths)),
        num_prompts=NUM_PROMPTS,
        num_rollouts=NUM_ROLLOUTS,
        num_slots=NUM_SLOTS,
    )
    before = oldest = num_groups = 0
    for step in range(WARM_STEPS + num_steps):
        before = own.num_decode_steps if step == WARM_STEPS else before
        found = own.take()
        own.engine.work_beside(num_beside)
        if step >= WARM_STEPS:
            versions = [one.oldest_version for each in found.groups for one in each.rollouts]
            oldest, num_groups = max(oldest, own.version - min(versions)), num_groups + len(found.groups)
        own.train(found)
    return round((own.num_decode_steps - before) / num_groups, 3), oldest


# --- seconds to an accuracy ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A trained run."""

    order: str
    """A key of `ARMS`."""
    seed: int
    rate: float = 3e-4
    """That of the recipe, for all orders."""

    @property
    def arm(self) -> str:
        return self.order

    @property
    def title(self) -> str:
        return f"{self.arm}, seed {self.seed}"

    @property
    def key(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    def at(self, rate: float) -> Trial:
        return replace(self, rate=rate)

    def config(self) -> RunConfig:
        own = (f"seed={self.seed}", "threads=1", "model.device=cpu", f"optim.lr={self.rate}")
        return load_config(RECIPE, [*own, *ARMS[self.order]])


def trained(options: argparse.Namespace, say: Say) -> dict[Trial, Json]:
    """The runs of the seeds: those that are missing are made."""
    trials = [
        Trial(order=order, seed=seed) for seed in range(options.seeds or 1) for order in turned(tuple(ARMS), seed)
    ]

    def limits(trial: Trial, log: Log | None = None, tuning: Log | None = None) -> Limits:
        return Limits(accuracy=TARGET, cpu_seconds=1e5, steps=MOST_STEPS)

    plan = Plan(runs=trials, tuned=lambda trial, tuning: (trial.rate, None), limits=limits, marks=LATER)
    few = dict.fromkeys(trials[:2], Limits(accuracy=TARGET, steps=3))
    return runs.make(plan, "orders", options, say, few, of=lambda trial: trial.order in (options.orders or ARMS))[0]


def paces(orders: Sequence[str], rounds: int, steps: int, say: Say = lambda text: None) -> Paces:
    """Seconds per step of the orders, measured in turns."""
    found: Paces = {order: [] for order in orders}
    for seed, order in product(range(rounds), orders):
        say(f"seconds per step, round {seed + 1} of {rounds}: {order}")
        with one_thread(), closing(OurArm(Trial(order=order, seed=seed).config())) as arm:
            taken = [arm.step().seconds for _ in range(steps)]
        found[order].append(round(fmean(taken[min(2, steps - 1) :]), 4))
    return found


def summary(records: Mapping[Trial, Json], pace: Paces, num_seeds: int) -> Json:
    """By order: seconds and steps to the accuracy, and how many times fewer than with the first order."""
    arms: dict[str, dict[int, Json]] = {order: {} for order in ARMS}
    for trial, record in records.items():
        arms[trial.order][trial.seed] = record
    found = {}
    for order, own in arms.items():
        if not own:
            continue
        seconds = [median(pace[name]) for name in (FIRST, order)]
        clocks = {
            clock: compared(arms[FIRST], own, TARGET, seconds if clock == "seconds" else (1.0, 1.0)) for clock in CLOCKS
        }
        first, steps = ([(each, True) for each in pace[name]] for name in (FIRST, order))
        found[order] = {**clocks, "pace": {"seconds": pace[order], "fewer": speedup(first, steps, 1.0)}}
    return {"orders": found, "facts": facts_of(records, num_seeds * len(ARMS))}


def compared(base: Mapping[int, Json], own: Mapping[int, Json], target: float, prices: Sequence[float]) -> Json:
    """What an accuracy cost by seed, and how many times more it cost the base on the same seeds; None: it has none.

    Args:
        prices: what a step costs, of the base and of the order.
    """
    both = sorted({*own} & {*base})
    times = [
        [(price * steps, is_reached) for seed in both for steps, is_reached in [time_of(arm[seed], target, "step")]]
        for arm, price in zip((base, own), prices, strict=True)
    ]
    fewer = speedup(times[0], times[1], LATER.growth) if both else None
    costs = [cost(own[seed], target, "step") for seed in sorted(own)]
    return {"cost": [None if each is None else round(prices[1] * each, 4) for each in costs], "fewer": fewer}


# --- pages ---


def turns_table(result: Json) -> str:
    """Decode steps of a step's rollouts, behind the barrier and without it."""
    head = ["task", "turns", "rollouts", "slots", "decode steps behind a barrier", "without", "ratio", "CPU seconds"]
    rows = [
        [
            {barrier.COLUMNS: "`columns`", barrier.MADE: "made, exponential"}[each["task"]],
            f"{each['turns']}",
            f"{each['rollouts']}",
            "one each" if each["slots"] is None else f"{each['slots']}",
            f"{each['steps']['barrier']:.0f}",
            f"{each['steps']['none']:.0f}",
            f"{each['ratio']:.2f}×",
            f"{each['cpu_seconds']['barrier']:.2f}, {each['cpu_seconds']['none']:.2f}",
        ]
        for each in result["turns"]
    ]
    return table(head, rows)


def _fewer_text(found: Json | None, order: str) -> str:
    """How many times fewer; where neither order reaches the accuracy on each seed, that is not known."""
    if found is None or order == FIRST:
        return ""
    return "not known" if found["ratio"] is None else over_text(found)


def _median_text(costs: Sequence[float | None]) -> str:
    """The median of the seeds that reached the accuracy, and their number where some did not."""
    found = [each for each in costs if each is not None]
    few = f" ({len(found)} of {len(costs)})" if len(found) < len(costs) else ""
    return f"{median(found):.1f}{few}" if found else "never"


def orders_table(result: Json) -> str:
    """Decode steps that each order waits for, and what each order's runs cost, where any was trained."""
    sets = list(result["waits"].values())
    head = ["`ahead`, `take`, `rest`"]
    for name in result["waits"]:
        head += [f"{name}: one process", "generators beside", "oldest, steps"]
    rows = []
    for order in ORDERS:
        found = [each["orders"][order] for each in sets]
        cells = [[each["one process"], each["beside"], each["oldest"]] for each in found]
        rows.append(
            [
                order,
                *(
                    "" if one is None else f"{one:.1f}" if isinstance(one, float) else f"{one}"
                    for each in cells
                    for one in each
                ),
            ]
        )
    parts = [table(head, rows)]
    if arms := result["trained"]["orders"]:
        at = f"{TARGET:.0%}"
        head = [f"`{RECIPE}`", f"seconds to {at}", "how many times fewer", "steps", "how many times fewer"]
        head += ["seconds per step", "how many times fewer"]
        rows = [
            [
                order,
                *(
                    cell
                    for clock in CLOCKS
                    for cell in (_median_text(each[clock]["cost"]), _fewer_text(each[clock]["fewer"], order))
                ),
                f"{median(each['pace']['seconds']):.2f}",
                _fewer_text(each["pace"]["fewer"], order),
            ]
            for order, each in arms.items()
        ]
        facts = result["trained"]["facts"]
        num_seeds = max(len(each["step"]["cost"]) for each in arms.values())
        note = (
            f"Medians of {num_seeds} paired seeds with 95 % intervals; {facts['num_runs']} of {facts['num_wanted']} "
            "runs are made."
        )
        parts += [table(head, rows), note]
    return "\n\n".join(parts)
