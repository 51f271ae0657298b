"""Tables and figures of the pages on the engine, the floor of a step, the update's memory and steps ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.figures.markdown import NOT_MEASURED, each, newest, per_processor, percent, table
from benchmarks.figures.speed import span, times
from benchmarks.files import Files, Result
from benchmarks.timing import spread_text


def engine(files: Files) -> str:
    """Every engine on every model, of the newest result."""
    ratios = ("to HF `generate` at batch 256", "the same by CPU seconds", "to continuous batching, by CPU seconds")
    head = ("model", "engine", "tokens/s", *ratios)

    def text(result: Result) -> str:
        rows = (
            (
                model["model"],
                arm["arm"],
                spread_text(arm["tokens_per_second"], ",.0f"),
                times(arm["ratio_to_hf"], ".1f"),
                times(arm["ratio_to_hf_by_cpu"], ".1f"),
                times(arm["ratio_to_continuous_batching_by_cpu"], ".1f"),
            )
            for model in result["models"]
            for arm in model["arms"]
        )
        return table(head, rows, num_left=2)

    result = newest(files("engine"))
    return NOT_MEASURED if result is None else per_processor({"": result}, text)


def floor(files: Files) -> str:
    """Milliseconds of a step by part and kind, beside those of its matrix products alone."""
    parts = ("generate", "update")
    kinds = {
        "matrix products, in the step": "products",
        "attention, softmax": "attention",
        "sampling": "sampling",
        "optimizer": "optimizer",
        "copies and gathers": "moves",
        "norms, activations, views": "elementwise",
    }

    def columns(found: Result, key: str) -> list[float]:
        return [found[key][part] for part in (*parts, "step")]

    def text(result: Result) -> str:
        models = list(result["models"].values())
        head = [f"{model['num_weights']:,} weights: {part}" for model in models for part in (*parts, "step")]
        whole, least = [[columns(m, key) for m in models] for key in ("cpu_seconds", "floor_seconds")]
        ratios = [[f"{a / b:.1f}" for a, b in zip(x, y, strict=True)] for x, y in zip(whole, least, strict=True)]
        rows = [
            ["as it is", *(_milliseconds(value) for each in whole for value in each)],
            ["its matrix products alone", *(_milliseconds(value) for each in least for value in each)],
            ["ratio", *(cell for each in ratios for cell in each)],
        ]
        for name, kind in kinds.items():
            own = [[_milliseconds(m["seconds_by_kind"][part][kind]) for part in parts] for m in models]
            rows.append([name, *(cell for each in own for cell in (*each, ""))])
        rest = [["", "", _milliseconds(m["cpu_seconds"]["bookkeeping"])] for m in models]
        rows.append(["bookkeeping", *(cell for each in rest for cell in each)])
        return table(["CPU milliseconds", *head], rows, num_left=1)

    return per_processor(files("floor"), text)


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.1f}"


def forwards(files: Files) -> str:
    """Shares of the token forwards that n = 64 needs, from the first stage of training to the last."""
    return each(files("engine"), lambda found: " … ".join(percent(s["forwards_per_token_64"]) for s in found["demo"]))


def demo_ratio(files: Files) -> str:
    """Seconds of n = 64 over those of n = 16, over the stages of training."""
    return each(files("engine"), lambda found: span([stage["ratio"]["median"] for stage in found["demo"]], ".1f"))


def matmul_share(files: Files) -> str:
    """Share of matrix products in the engine's operations."""

    def text(result: Result) -> str:
        return " and ".join(f"{percent(each['op_time']['matmul'])} on {each['model']}" for each in result["models"])

    return each(files("engine"), text)


def update_mebibytes(files: Files) -> str:
    """Peak memory of the update, by n."""

    def text(result: Result) -> str:
        return ", ".join(f"{row['update_bytes'] / 2**20:,.0f}" for row in result["memory"]) + " MiB"

    return each(files("update"), text)


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
    "floor-table": floor,
    "engine-table": engine,
    "forwards": forwards,
    "demo-ratio": demo_ratio,
    "matmul-share": matmul_share,
    "update-mebibytes": update_mebibytes,
    "next-answers": next_answers,
    "mixed-task": mixed_task,
}
