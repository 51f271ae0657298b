"""What closing groups whose choice is certain saves (`steer.close = "certain"`): PODS with and without it, in runs.

    python -m benchmarks closing            72 steps of five arms: about ten minutes
    python -m benchmarks closing --quick    one step

All arms of a world draw the same rollouts and train on the same ones, so their steps are compared one by one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing

from benchmarks import command
from benchmarks.claims import PRICES
from benchmarks.our_arm import OurArm
from benchmarks.paired import Json
from benchmarks.runs import spent
from benchmarks.timing import Say, take_turns, titled
from benchmarks.worlds import STORIES
from podsrl.config.files import merge, read_tree
from podsrl.config.load import apply_overrides, build
from podsrl.config.schema import RunConfig

STEPS: Mapping[str, int] = {"steps": 12, "demo": 60}
"""World -> steps of each arm; in the demo's hardly anything is right at first, and two thirds at the end."""
PODS, FEW = "PODS", "PODS, a quarter of the slots"
ALL, HALF, CERTAIN = (f"certain, {slots} slots" for slots in ("all", "half of the", "a quarter of the"))
CLOSE = "steer.close=certain"


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("closing", __doc__)
    parser.add_argument("--quick", action="store_true", help="one step")
    command.measure(parser, arguments, run)


def run(options: argparse.Namespace, say: Say) -> Json:
    """Both worlds, or the demo's alone."""
    steps = {"demo": 1} if options.quick else STEPS
    return {"runs": {world: measure(world, count, say) for world, count in steps.items()}}


def config_of(world: str, *changes: str) -> RunConfig:
    """PODS on a world, of which every right answer counts 1 and every other 0."""
    own = ("task.rewards={correct=1.0}", *changes)
    if world == "steps":
        return STORIES.config("PODS 64 → 16", 3e-4, 0, *own)
    demo = read_tree("demo")
    return build(RunConfig, apply_overrides(merge(demo["base"], demo["arms"]["pods"]), own), "closing")


def measure(world: str, num_steps: int, say: Say) -> Json:
    """The sums of each arm over so many steps, over those of `PODS`: "arms", by name and clock; and "steps"."""
    first = config_of(world)
    rows = first.rollouts.num_prompts * first.rollouts.num_rollouts
    half, few = ((f"rollouts.num_slots={rows // k}", "rollouts.scheduler=continuous+breadth") for k in (2, 4))
    changes = {PODS: (), FEW: few, ALL: (CLOSE,), HALF: (*half, CLOSE), CERTAIN: (*few, CLOSE)}
    with ExitStack() as at_end:
        arms = {name: at_end.enter_context(closing(OurArm(config_of(world, *own)))) for name, own in changes.items()}
        found = take_turns({name: _stepping(arm) for name, arm in arms.items()}, num_steps, titled(say, world))
    totals = {name: {key: sum(step[key] for step in steps) for key in steps[0]} for name, steps in found.items()}
    return {"steps": num_steps, "arms": {name: _over(own, totals[PODS]) for name, own in totals.items()}}


def _stepping(arm: OurArm) -> Callable[[int], Json]:
    def step(number: int) -> Json:
        taken = arm.step()
        return {
            "tokens": arm.metrics["tokens/generated"],
            "trained": arm.metrics["tokens/trained"],
            "decode_steps": arm.num_decode_steps,
            "cpu_seconds": taken.cpu_seconds,
        }

    return step


def _over(own: Json, base: Json) -> Json:
    clocks = ("tokens", "trained", "decode_steps", "cpu_seconds", *(f"at {price:g}" for price in PRICES))
    return {clock: round(spent(own, clock) / spent(base, clock), 4) for clock in clocks}
