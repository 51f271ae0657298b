"""Decode steps per trained group where steps end early and groups go on in the next (`replay.unfinished = "keep"`).

    python -m benchmarks waiting            3 seeds of 24 steps: about half an hour
    python -m benchmarks waiting --quick    one seed of 2 steps

Steps of `builtin:steps` train on 8 groups of 8 rollouts, with the weights that the runs start with, so that lengths do
not change. "as many slots" is what a step costs that trains on all groups that the arm has under way, without ending
early: it has the arm's slots, and a larger batch. APRIL's claim (arXiv 2509.18521) is 22.5 % more rollout tokens per
second, 44 % at most.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import command
from benchmarks.paired import Json
from benchmarks.timing import Say, ratios, spread
from podsrl.config.schema import ReplayConfig

NUM_PROMPTS, NUM_ROLLOUTS = 8, 8
SURPLUSES = (1.25, 1.5, 2.0)
WARM_UP = 4
"""Steps that do not count: in the first nothing goes on."""


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("waiting", __doc__)
    parser.add_argument("--quick", action="store_true", help="one seed of 2 steps")
    command.measure(parser, arguments, lambda options, say: run(2, 1, say) if options.quick else run(24, 3, say))


def run(num_steps: int, num_seeds: int, say: Say) -> Json:
    """Each surplus beside steps that wait for all groups: of the same batch, and on the same slots."""

    def seeds(name: str, num_prompts: int, surplus: float | None = None) -> list[Json]:
        found = []
        for seed in range(num_seeds):
            say(f"{name}, seed {seed + 1} of {num_seeds}")
            found.append(of_run(num_prompts, seed, num_steps, surplus))
        return found

    plain, rows = seeds("all groups", NUM_PROMPTS), []
    for surplus in SURPLUSES:
        own = seeds(f"surplus {surplus}", NUM_PROMPTS, surplus)
        wide = seeds(
            f"all of surplus {surplus}", ReplayConfig(unfinished="keep", surplus=surplus).num_groups(NUM_PROMPTS)
        )
        per_group = {
            name: [each["per_group"] for each in of] for name, of in (("own", own), ("plain", plain), ("wide", wide))
        }
        rows.append(
            {
                "surplus": surplus,
                "per_group": spread(per_group["own"]),
                "fewer": ratios(per_group["plain"], per_group["own"]),
                "as_many_slots": ratios(per_group["wide"], per_group["own"]),
                "resumed": spread([each["resumed"] for each in own]),
                "oldest": max(each["oldest"] for each in own),
            }
        )
    sizes = {"groups": NUM_PROMPTS, "rollouts": NUM_ROLLOUTS}
    return {**sizes, "run_seeds": num_seeds, "run_steps": num_steps, "rows": rows}


def of_run(num_prompts: int, seed: int, num_steps: int, surplus: float | None) -> Json:
    """Decode steps per trained group, and the share of groups that began in an earlier step; it learns nothing.

    Args:
        num_prompts: groups that a step trains on.
        seed: of the run.
        num_steps: that count.
        surplus: how many times as many begin; None: steps wait for all of them.
    """
    from podsrl.config.load import load_config
    from podsrl.plan.probe import STILL
    from podsrl.run.step.trainer import Trainer
    from podsrl.run.steps import training_step

    replay = [f"replay.surplus={surplus}", "replay.unfinished=keep"] if surplus else []
    sizes = {"num_prompts": num_prompts, "num_rollouts": NUM_ROLLOUTS}
    still = ["threads=1", "model.device=cpu", "task.num_eval=4", f"optim.lr={STILL}", f"seed={seed}"]
    keep = ["select.rule=keep_all", f"select.num_kept={NUM_ROLLOUTS}"]
    options = [*still, *keep, *replay, *(f"rollouts.{name}={size}" for name, size in sizes.items())]
    trainer = Trainer(load_config("steps", options))
    try:
        num_decode_steps, ages = 0, list[int]()
        for number in range(WARM_UP + num_steps):
            result = training_step(trainer)
            if number >= WARM_UP:
                num_decode_steps += result.load.num_decode_steps
                ages += [number - group.step for group in result.fresh]
        return {
            "per_group": num_decode_steps / len(ages),
            "resumed": sum(age > 0 for age in ages) / len(ages),
            "oldest": max(ages),
        }
    finally:
        trainer.close()
