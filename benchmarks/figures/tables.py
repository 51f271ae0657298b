"""Figures within the sentences of several pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.figures.markdown import each, percent
from benchmarks.figures.speed import span
from benchmarks.files import Files, Result


def forwards(files: Files) -> str:
    """Shares of the token forwards that n = 64 needs, from the first stage of training to the last."""
    return each(files("engine"), lambda found: " … ".join(percent(s["forwards_per_token_64"]) for s in found["demo"]))


def demo_ratio(files: Files) -> str:
    """Seconds of n = 64 over those of n = 16, over the stages of training."""
    return each(files("engine"), lambda found: span([stage["ratio"]["median"] for stage in found["demo"]], ".1f"))


def update_mebibytes(files: Files) -> str:
    """Peak memory of the update, by n."""

    def text(result: Result) -> str:
        return ", ".join(f"{row['update_bytes'] / 2**20:,.0f}" for row in result["memory"]) + " MiB"

    return each(files("update"), text)


def turns(files: Files) -> str:
    """Decode steps of turns behind a barrier over those without, from the least to the most."""
    return each(files("orders"), lambda found: span([one["ratio"] for one in found["turns"]], ".2f"))


def next_answers(files: Files) -> str:
    """Reference solutions that are right against the next row's answer too."""

    def text(result: Result) -> str:
        sets = result["rewards"]["math_correct"]["sets"].values()
        return " and ".join(str(found["num_correct_by_the_next_answer"]) for found in sets)

    return each(files("reference-solutions"), text)


def mixed_task(files: Files) -> str:
    """How plain GRPO fares on the task of mixed difficulty."""

    def text(result: Result) -> str:
        signal: dict[str, Any] = result["signal"]["grpo"]
        return (
            f"{percent(result['start_accuracy']['grpo'])} to {percent(result['last_accuracy']['grpo'])} in "
            f"{result['seconds']:g} training seconds (mean of {result['num_seeds']} seeds), with "
            f"{percent(signal['zero_signal'])} of the groups without signal and "
            f"{percent(signal['all_wrong'])} all wrong"
        )

    return each(files("systems"), text)


PARTS: dict[str, Callable[..., str]] = {
    "forwards": forwards,
    "demo-ratio": demo_ratio,
    "update-mebibytes": update_mebibytes,
    "turns": turns,
    "next-answers": next_answers,
    "mixed-task": mixed_task,
}
