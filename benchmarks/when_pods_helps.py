"""Where PODS helps, on a CPU: start accuracy × n, the selection rules, and GRPO with gradient accumulation.

    python -m benchmarks when-pods-helps bases     base models that start at about 1 %, 20 % and 60 % (4 % is built in)
    python -m benchmarks when-pods-helps tune      each arm's own best learning rate, on seeds that are not used again
    python -m benchmarks when-pods-helps map       speed-up over GRPO (n = m = 16) for every start and n
    python -m benchmarks when-pods-helps versus    PODS 64 -> 16 against GRPO-GA (64 -> 64) and GRPO (16 -> 16)
    python -m benchmarks when-pods-helps kept      PODS 64 -> 8 and 64 -> 4 against GRPO-GA
    python -m benchmarks when-pods-helps rules     the selection rules at 64 -> 16
    python -m benchmarks when-pods-helps harder    three-digit sums, on which nothing was tuned
    python -m benchmarks when-pods-helps publish   tables and a picture -> benchmarks/results, docs/images

Every part runs `pods compare`, so a part that was stopped resumes. A run uses one thread, two runs share the two cores,
and the order of the arms rotates with the seed. The
parts together take hours.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import tomli_w

from benchmarks import command, files

WORK = command.ROOT / "runs" / "when-pods-helps"
STARTS = {"1%": 0.004, "4%": None, "20%": 0.2, "60%": 0.6}
"""Start accuracy -> share of careful answers in pretraining; None: the built-in model."""
ROLLOUTS = (32, 64, 128)
RATES = (1.5e-4, 3e-4, 6e-4, 1e-3)
FINE_RATES = (3e-4, 6e-4)
FRACTIONS = (0.9, 0.95, 0.99)
TUNE_SEEDS = {"first_seed": 100, "num_seeds": 2}
FINE_SEEDS = {"first_seed": 200, "num_seeds": 3}
SEEDS = {"first_seed": 0, "num_seeds": 5}
MAP_SEEDS = {"first_seed": 0, "num_seeds": 4}
MAP_SECONDS = {"1%": 40.0, "4%": 25.0, "20%": 15.0, "60%": 15.0}
"""Training seconds: long enough for GRPO to level off."""
VERSUS_SECONDS, KEPT_SECONDS, HARDER_SECONDS, RULES_SECONDS = 50.0, 36.0, 40.0, 20.0
TUNE_SECONDS, FINE_SECONDS = 25.0, 40.0


def arm(num_rollouts: int, num_kept: int, rate: float, rule: str = "max_variance") -> dict[str, Any]:
    """Changes to the shared config that make one arm."""
    return {
        "rollouts": {"num_rollouts": num_rollouts},
        "select": {"rule": "keep_all" if num_rollouts == num_kept else rule, "num_kept": num_kept},
        "optim": {"lr": rate},
    }


def compare(
    name: str, arms: dict[str, Any], baseline: str, start: str = "4%", *, seconds: float, **more: Any
) -> dict[str, Any]:
    """Run or resume one comparison and return its `compare.json`."""
    digits = more.pop("digits", 2)
    config = {
        "baseline": baseline,
        "jobs": 2,
        **(more or SEEDS),
        "base": {
            "threads": 1,
            "model": {"path": "builtin:arithmetic" if STARTS[start] is None else str(WORK / "bases" / start)},
            "task": {"name": "arithmetic", "digits": digits, "num_eval": 256},
            "rollouts": {"num_prompts": 8, "max_new_tokens": 24 + 8 * digits},
            "optim": {"micro_batch_tokens": 3072},  # fastest for this model, whatever the arm
            "eval": {"every_seconds": 1.0},
            "stop": {"steps": 0, "seconds": seconds},
            "checkpoint": {"every_seconds": 0},
            "record": {"groups_every_steps": 0},
        },
        "arms": arms,
    }
    WORK.mkdir(parents=True, exist_ok=True)
    file = WORK / f"{name}.toml"
    file.write_text(tomli_w.dumps(config))
    words = [sys.executable, "-m", "podsrl.cli", "compare", str(file), "--out", str(WORK / name)]
    subprocess.run(words, check=True)
    return load(name)


def bases() -> None:
    """Continue pretraining the built-in model with other shares of careful answers."""
    for start, careful in STARTS.items():
        folder = WORK / "bases" / start
        if careful is not None and not folder.exists():
            options = ["--start=builtin:arithmetic", "--skill_steps=0", f"--careful={careful}", "--mixture_steps=400"]
            subprocess.run([sys.executable, "-m", "podsrl.cli", "pretrain", str(folder), *options], check=True)


def tune() -> None:
    """Each arm's best rate: four rates, then the best two again for as long as a comparison lasts; PODS at n = 64.

    The second round matters: a large rate leads at first and is unstable later.
    """
    sizes = {"grpo": (16, 16), "grpo_ga": (64, 64), "pods": (64, 16)}
    best: dict[str, Any] = {}
    for name, (n, m) in sizes.items():
        rounds: dict[str, Any] = {
            "tune": (RATES, TUNE_SECONDS, TUNE_SEEDS),
            "fine": (FINE_RATES, FINE_SECONDS, FINE_SEEDS),
        }
        best[name] = {}
        for part, (rates, seconds, seeds) in rounds.items():
            arms = {f"{name}@{rate:g}": arm(n, m, rate) for rate in rates}
            compare(f"{part}-{name}", arms, f"{name}@{rates[0]:g}", seconds=seconds, **seeds)
            scores = accuracy_over_steps(f"{part}-{name}")
            best[name][part] = scores
            best[name]["lr"] = float(max(scores, key=lambda rate: scores[rate]))
        (WORK / "rates.json").write_text(json.dumps(best, indent=1))
        print(name, best[name])


def accuracy_over_steps(part: str) -> dict[str, float]:
    """Rate -> mean accuracy over the steps that all runs of the part did, whatever the machine's speed."""
    curves: dict[str, list[Any]] = {}
    for folder in sorted((WORK / part / "runs").glob("*/")):
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        points = [(line["step"], line["eval/accuracy"]) for line in lines if "eval/accuracy" in line]
        curves.setdefault(folder.name.split("@")[1].split("-seed")[0], []).append(np.array(points).T)
    steps = np.arange(1, min(curve[0][-1] for runs in curves.values() for curve in runs) + 1)
    return {rate: float(np.mean([np.interp(steps, *curve) for curve in runs])) for rate, runs in curves.items()}


def rate(name: str) -> float:
    """An arm's own best learning rate, from `tune`."""
    value: float = json.loads((WORK / "rates.json").read_text())[name]["lr"]
    return value


def speedup_map() -> None:
    """GRPO (16 -> 16) is the baseline of every row; n = 16 is that baseline itself."""
    for start in STARTS:
        arms = {"grpo": arm(16, 16, rate("grpo")), **{f"pods{n}": arm(n, 16, rate("pods")) for n in ROLLOUTS}}
        compare(f"map-{start}", arms, "grpo", start, seconds=MAP_SECONDS[start], **MAP_SEEDS)


def versus() -> None:
    """The paper's comparison at equal seconds: all 64 trained, or the 16 that vary most."""
    compare("versus", paper_arms(), "grpo_ga", seconds=VERSUS_SECONDS)


def paper_arms() -> dict[str, Any]:
    """The arms of the paper's comparison, each with its best rate."""
    sizes = {"grpo_ga": (64, 64), "grpo": (16, 16), "pods": (64, 16)}
    return {name: arm(n, m, rate(name)) for name, (n, m) in sizes.items()}


def kept() -> None:
    """How few of 64 need training: the paper found m flat down to n / 16."""
    arms = {"grpo_ga": arm(64, 64, rate("grpo_ga")), **{f"pods{m}": arm(64, m, rate("pods")) for m in (8, 4)}}
    compare("kept", arms, "grpo_ga", seconds=KEPT_SECONDS)


def rules() -> None:
    """All at 64 -> 16 with the rate that was best for max_variance; the built-in model."""
    names = ("max_variance", "random", "percentile", "max_reward")
    arms = {name: arm(64, 16, rate("pods"), name) for name in names}
    compare("rules", arms, "random", seconds=RULES_SECONDS, first_seed=0, num_seeds=3)


def harder() -> None:
    """Three-digit sums with the rates of the two-digit task."""
    compare("harder", paper_arms(), "grpo_ga", seconds=HARDER_SECONDS, digits=3, first_seed=0, num_seeds=3)


def publish() -> None:
    """The figures that the docs show, and the picture, from the finished parts."""
    from podsrl.report.figures.compare import comparison_figure
    from podsrl.report.figures.theme import save_png
    from podsrl.report.read import read_comparison

    maps = {start: load(f"map-{start}") for start in STARTS}
    keep = ("baseline", "seconds", "jobs", "speedup", "steps", "stage_seconds", "arms")
    parts = {
        **{f"map-{start}": maps[start] for start in STARTS},
        **{
            name: load(name)
            for name in ("versus", "kept", "rules", "harder")
            if (WORK / name / "compare.json").exists()
        },
    }
    summary = {
        **files.stamp("when-pods-helps", {}),
        "hardware": maps["4%"]["hardware"],
        "rates": json.loads((WORK / "rates.json").read_text()),
        "start_accuracy": {start: maps[start]["start_accuracy"]["grpo"] for start in STARTS},
        **{
            name: {
                **{key: part[key] for key in keep},
                "final_accuracy": final(part),
                "speedup_by_fraction": {f"{fraction:g}": by_fraction(name, part, fraction) for fraction in FRACTIONS},
            }
            for name, part in parts.items()
        },
    }
    files.write(summary)
    images = command.ROOT / "docs" / "images"
    save_png(comparison_figure(read_comparison(WORK / "versus")), images / "versus.png")
    for name, part in parts.items():
        print(f"\n{name}: {part['seconds']:g} s, start {part['start_accuracy'][part['baseline']]:.1%}")
        print("\n".join(table(part)))
        print(json.dumps(summary[name]["speedup_by_fraction"]))


def by_fraction(name: str, part: dict[str, Any], fraction: float) -> dict[str, list[float | None]]:
    """Arm -> speed-up to another fraction of the baseline's best, with its interval: 99 % is one choice of many."""
    from podsrl.compare.bootstrap import bootstrap_speedups
    from podsrl.lib.logs import read_lines

    curves: dict[str, list[Any]] = {}
    for arm_name, facts in part["arms"].items():
        for run in facts["runs"]:
            lines = [line for line in read_lines(WORK / name / run / "metrics.jsonl") if "eval/accuracy" in line]
            points = [(line["seconds/train_elapsed"], line["eval/accuracy"]) for line in lines]
            curves.setdefault(arm_name, []).append(tuple(zip(*points, strict=True)))
    found = {arm: each.to_json() for arm, each in bootstrap_speedups(curves, part["baseline"], fraction).items()}
    return {arm: [each["point"], each["low"], each["high"]] for arm, each in found.items()}


def table(part: dict[str, Any]) -> list[str]:
    """One comparison as a Markdown table."""
    from podsrl.compare.interval import SpeedupInterval

    head = (
        f"| arm | n → m | rate | steps | seconds per step | final accuracy | speed-up over {part['baseline']} (95 %) |"
    )
    lines = [head, "|---|---|---|---|---|---|---|"]
    for name, facts in part["arms"].items():
        shown, steps = SpeedupInterval.from_json(part["speedup"][name]).text, part["steps"][name]
        lines.append(
            f"| {name} | {facts['num_rollouts']} → {facts['num_kept']} | {facts['lr']:g} | {np.mean(steps):.0f} | "
            f"{sum(part['stage_seconds'][name].values()):.3f} | {part['mean_accuracy'][name][-1]:.1%} | {shown} |"
        )
    return lines


def load(name: str) -> dict[str, Any]:
    """A finished part's `compare.json`."""
    result: dict[str, Any] = json.loads((WORK / name / "compare.json").read_text())
    return result


def final(part: dict[str, Any]) -> dict[str, float]:
    """Mean accuracy at the end, by arm."""
    return {arm: values[-1] for arm, values in part["mean_accuracy"].items()}


PARTS = {
    "bases": bases,
    "tune": tune,
    "map": speedup_map,
    "versus": versus,
    "kept": kept,
    "rules": rules,
    "harder": harder,
    "publish": publish,
}


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("when-pods-helps", __doc__)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    for part in parser.parse_args(arguments).parts:
        PARTS[part]()
