"""What a watch costs: decode steps of 512 rollouts with one, over those without.

    python -m benchmarks watch            three sizes of model, 9 rounds, four minutes
    python -m benchmarks watch --quick    the smallest, 3 rounds

The three arms take turns on one engine: no watch, one that is never due, and one that is shown every rollout in every
step and asks for nothing. Times are CPU seconds of a call, so that reading the prompts counts too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks import command
from benchmarks.models import shaped_model, skewed_workload
from benchmarks.timing import Clock, Say, ratios, spread, spread_text, take_turns, titled
from podsrl.generate import Engine, Live, Request, Sampling, Watch

SHAPES = ("s128", "s256", "s384")
NUM_PROMPTS, NUM_ROLLOUTS, NUM_TOKENS = 8, 64, 32
BARE, NEVER, EACH = "none", "never due", "every step"


class Idle:
    """Looks, and asks for nothing."""

    def __init__(self, at: frozenset[int] | None) -> None:
        self.at = at

    def look(self, live: Live) -> Iterable[Any]:
        """Nothing."""
        return ()


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("watch", __doc__)
    parser.add_argument("--quick", action="store_true", help="the smallest model, 3 rounds")
    command.measure(
        parser,
        arguments,
        lambda options, say: run(SHAPES[:1], 3, say) if options.quick else run(SHAPES, 9, say),
        table,
    )


def run(shapes: Sequence[str], rounds: int, say: Say) -> dict[str, Any]:
    """Measure each shape of model; every rollout has `NUM_TOKENS` tokens."""
    return {
        "rounds": rounds,
        "rollouts": NUM_PROMPTS * NUM_ROLLOUTS,
        "models": {s: measure(s, rounds, say) for s in shapes},
    }


def measure(shape: str, rounds: int, say: Say) -> dict[str, Any]:
    """CPU milliseconds of a decode step without a watch, and the ratios of the watched ones to it, round by round."""
    engine, work = Engine(shaped_model(shape)), skewed_workload(NUM_PROMPTS, NUM_ROLLOUTS)
    sampling = Sampling(max_new_tokens=NUM_TOKENS, stop_token_ids=())
    requests = [Request(str(i), ids, NUM_ROLLOUTS, sampling) for i, ids in enumerate(work.prompts)]

    def arm(watch: Watch | None) -> Callable[[int], float]:
        def call(number: int) -> float:
            clock = Clock()
            list(engine.generate(requests, watch=watch))
            return clock.read().cpu_seconds * 1000 / NUM_TOKENS

        return call

    watches = {BARE: None, NEVER: Idle(frozenset()), EACH: Idle(None)}
    list(engine.generate(requests))  # memory is taken, and what is chosen by timing is chosen
    found = take_turns({name: arm(watch) for name, watch in watches.items()}, rounds, titled(say, shape))
    return {"step_ms": spread(found[BARE]), **{name: ratios(found[name], found[BARE]) for name in (NEVER, EACH)}}


def table(result: dict[str, Any]) -> str:
    """One line per model."""
    return "\n".join(
        f"{shape}: {spread_text(found['step_ms'])} ms per step of {result['rollouts']} rollouts; times "
        f"{spread_text(found[NEVER], '.3f')} with a watch never due, {spread_text(found[EACH], '.3f')} with one "
        "that sees every step"
        for shape, found in result["models"].items()
    )
