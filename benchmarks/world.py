"""What the base model of `builtin:steps` finds easy and hard: 64 answers to each of 256 held-out questions.

    python -m benchmarks world            about three minutes on one core
    python -m benchmarks world --quick    8 answers to 32 questions
    python -m benchmarks world --save     also the picture of docs/steps.md

A group of n rollouts is without signal where all of its answers are right, or all are wrong; its share is counted over
all ways to choose n of the 64.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks import command
from benchmarks.figures.markdown import table as markdown_table
from benchmarks.paired import Json
from benchmarks.timing import Say
from podsrl.report.figures import theme
from podsrl.types import Group

QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
SIZES = (4, 8, 16, 32, 64)
"""Rollouts per group."""
LENGTH_BIN = 10
"""Tokens."""
GSM8K = Path(__file__).parent / "infinite_sampling" / "gsm8k_lengths.npz"
PICTURE = command.ROOT / "docs" / "images" / "steps.svg"


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("world", __doc__)
    parser.add_argument("--quick", action="store_true", help="8 answers to 32 questions")
    command.measure(parser, arguments, run, publish=publish)


def run(options: argparse.Namespace, say: Say = lambda text: None) -> Json:
    """Ask the base model and count."""
    from benchmarks.our_arm import OurArm
    from podsrl.config.load import load_config
    from podsrl.run.evaluate import eval_groups, eval_sampling

    num_questions, num_samples = (32, 8) if options.quick else (256, 64)
    own = ("threads=1", 'model.device="cpu"', f"task.num_eval={num_questions}", "rollouts.num_slots=512")
    config = load_config("steps", own)
    with closing(OurArm(config)) as arm:
        trainer = arm.trainer
        wanted = eval_groups(dict(enumerate(trainer.tasks.eval)), num_samples)
        total, done = num_questions * num_samples, 0

        def answered(*_: Any) -> None:
            nonlocal done
            done += 1
            say(f"{done} of {total} answers")

        groups = trainer.collector.answer(wanted, eval_sampling(config, trainer.stop_token_ids), on_answer=answered)
    return summary(groups)


def summary(groups: Sequence[Group]) -> Json:
    """All figures.

    Returns:
        "right": level -> how many answers to each of its questions are right. "levels": level -> shares of right and of
        formatted answers. "lengths": quantiles of tokens. "length_counts": answers of 0 .. 9 tokens, 10 .. 19, and so
        on. "zero_signal": n -> shares of groups with all answers
        right, and all wrong. "entropy": nats per token.
    """
    from podsrl.tasks.step_judge import read_story
    from podsrl.tasks.steps import level_of

    levels = [level_of(read_story(str(group.task.prompt))) for group in groups]
    right = [sum(rollout.is_correct for rollout in group.rollouts) for group in groups]
    formatted = [sum(rollout.is_formatted for rollout in group.rollouts) for group in groups]
    size = len(groups[0].rollouts)
    completions = [rollout.completion for group in groups for rollout in group.rollouts]
    lengths = [len(completion.token_ids) for completion in completions]
    of_level = {level: [place for place, own in enumerate(levels) if own == level] for level in sorted(set(levels))}
    return {
        "num_questions": len(groups),
        "num_samples": size,
        "accuracy": round(sum(right) / (size * len(groups)), 4),
        "right": {str(level): [right[place] for place in places] for level, places in of_level.items()},
        "levels": {
            str(level): {
                name: round(sum(counts[place] for place in places) / (size * len(places)), 4)
                for name, counts in (("correct", right), ("formatted", formatted))
            }
            for level, places in of_level.items()
        },
        "lengths": dict(
            zip(map(str, QUANTILES), np.quantile(lengths, QUANTILES).round().astype(int).tolist(), strict=True)
        ),
        "length_counts": np.histogram(lengths, np.arange(0, 331, LENGTH_BIN))[0].tolist(),
        "zero_signal": {str(n): zero_signal(right, size, n) for n in SIZES if n <= size},
        "entropy": round(-sum(sum(each.logprobs) for each in completions) / sum(lengths), 4),
    }


def zero_signal(right: Sequence[int], size: int, n: int) -> list[float]:
    """Shares of groups of n, drawn without return from `size` answers, with all answers right and with all wrong.

    Example:
        >>> zero_signal([2, 0], 4, 2)
        [0.0833, 0.5833]
    """
    ways = math.comb(size, n) * len(right)
    return [
        round(sum(math.comb(count, n) for count in counts) / ways, 4) for counts in (right, [size - k for k in right])
    ]


def table(result: Json) -> str:
    """Levels, then group sizes."""
    levels = [
        [level, str(len(result["right"][level])), f"{own['correct']:.1%}", f"{own['formatted']:.1%}"]
        for level, own in result["levels"].items()
    ]
    sizes = [[n, f"{right:.1%}", f"{wrong:.1%}"] for n, (right, wrong) in result["zero_signal"].items()]
    first = markdown_table(("level", "questions", "right", "in the form"), levels, num_left=0)
    second = markdown_table(("rollouts per group", "all right", "all wrong"), sizes, num_left=0)
    lengths = ", ".join(f"{float(q):.0%}: {tokens}" for q, tokens in result["lengths"].items())
    end = (
        f"Right in all: {result['accuracy']:.1%}. Entropy: {result['entropy']:.3f} nats per token. "
        f"Tokens per answer by quantile: {lengths}."
    )
    return f"{first}\n\n{second}\n\n{end}"


def publish(result: Json) -> None:
    """Draw the picture."""
    from podsrl.report.figures.svg import save_svg

    save_svg(draw(result), PICTURE)


def draw(result: Json) -> Figure:
    """Difficulties by level, lengths of answers beside those of GSM8K's solutions, groups without signal."""
    figure = theme.new_figure(12.5, 4.0)
    difficulty, length, signal = figure.subplots(1, 3)
    edges = np.linspace(0, result["num_samples"] + 1, 18)
    counts = [np.histogram(own, edges)[0] for own in result["right"].values()]
    bottom = np.zeros(len(edges) - 1)
    for level, own, color in zip(result["right"], counts, theme.SERIES, strict=False):
        places = np.arange(len(own)) / (len(own) - 1)
        difficulty.bar(places, own, width=0.05, bottom=bottom, color=color, label=f"level {level}")
        bottom += own
    theme.style(difficulty, "Questions by their right answers", x_label=f"share right of {result['num_samples']}")
    shares = np.array(result["length_counts"]) / sum(result["length_counts"])
    middles = LENGTH_BIN * (np.arange(len(shares)) + 0.5)
    length.bar(middles, shares, width=0.8 * LENGTH_BIN, color=theme.SERIES[0], label="steps")
    with np.load(GSM8K) as file:
        theirs = np.histogram(file["train_length"], np.arange(0, 331, LENGTH_BIN))[0]
    length.plot(middles, theirs / theirs.sum(), color=theme.INK, linewidth=1.2, label="GSM8K's solutions")
    theme.style(length, "Lengths of answers", x_label="tokens")
    for place, name, color in ((1, "all wrong", theme.SERIES[1]), (0, "all right", theme.SERIES[2])):
        values = [each[place] for each in result["zero_signal"].values()]
        signal.plot([*result["zero_signal"]], values, color=color, linewidth=2.0, marker="o", markersize=5, label=name)
    theme.style(signal, "Groups without signal", x_label="rollouts per group")
    signal.set_ylim(0, 1)
    for axes in (length, signal):
        theme.percent_axis(axes)
    for axes in (difficulty, length, signal):
        axes.legend(frameon=False, fontsize=9, labelcolor=theme.INK)
    figure.supxlabel(theme.plain(result["hardware"]), x=0.012, ha="left", fontsize=8.5, color=theme.MUTED)
    return figure
