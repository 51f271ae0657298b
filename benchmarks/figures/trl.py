"""podsrl beside TRL, and PODS in TRL."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.figures.headline import Figure
from benchmarks.figures.markdown import by_its_page
from benchmarks.figures.speed import times
from benchmarks.files import Result
from podsrl.lib.resolve import load


def _seconds(part: str) -> Callable[[Result], str]:
    def text(result: Result) -> str:
        ragged, equal = (times(result[part][kind]["cpu_ratio"]) for kind in ("ragged", "equal"))
        return f"{ragged} on ragged completions, {equal} on equal ones"

    return text


def _losses(result: Result) -> str:
    both = (max(each[key] for each in result["losses"].values()) for key in ("difference", "gradient_difference"))
    loss, gradient = (f"{value:.1e}" for value in both)
    return f"equal to {loss} and {gradient}"


def _pods(result: Result) -> str:
    plain, with_reference = (times(result["betas"][beta]["ratio"]) for beta in ("0.0", "0.04"))
    return f"{plain}; with a reference model {with_reference}"


def _accuracy(result: Result) -> str:
    return str(load("benchmarks.trl_accuracy.page:headline")(result))


FIGURES = (
    Figure(
        "trl-update",
        "trl",
        "one update over that of TRL's GRPOTrainer: same model (2.8 M) and 8 × 16 rollouts, one thread",
        _seconds("update"),
    ),
    Figure(
        "trl-step",
        "trl",
        "one whole step (generate, score, update) over TRL's, same model and sizes",
        _seconds("step"),
    ),
    Figure(
        "trl-losses",
        "trl",
        "loss and gradient on the same batch: GRPO, Dr. GRPO, DAPO, GSPO, CISPO, and TRL's",
        _losses,
    ),
    Figure(
        "trl-pods",
        "trl-pods",
        "seconds of a step in TRL, 2 prompts × 64 rollouts, 0.7 M parameters: `PODSTrainer` 64 → 16 over GRPOTrainer",
        _pods,
    ),
    Figure(
        "trl-accuracy",
        "trl-accuracy",
        "the demo's task to 90 % held-out accuracy: training seconds of TRL's GRPOTrainer over those of podsrl's PODS "
        "64 → 16, paired seeds",
        _accuracy,
    ),
)
PARTS: dict[str, Callable[..., str]] = {
    "trl-accuracy-table": by_its_page("trl-accuracy", "benchmarks.trl_accuracy.page:markdown"),
    "trl-real": by_its_page("trl-real", "benchmarks.trl.real:page"),
}
