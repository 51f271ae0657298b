"""Tables and figures of the pages on the engine, the floor of a step, the update's memory and steps ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.figures.markdown import NOT_MEASURED, each, newest, per_processor, percent, table, where
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


def ahead(files: Files) -> str:
    """Steps in turn, in a child process, and ahead."""

    def text(result: Result) -> str:
        arms = result["arms"]
        rows = [
            ["seconds per step (median)", *(f"{own['seconds_step']['median']:.3f}" for own in arms.values())],
            ["of them waiting for rollouts", *(f"{own['seconds_waited']['median']:.3f}" for own in arms.values())],
            ["steps per second, `sync` = 1", *(spread_text(result["throughput"][arm]) for arm in arms)],
        ]
        rows += [
            [
                f"accuracy after {step} steps",
                *(f"{percent(own['accuracy'][i], 1)} at {own['elapsed'][i]:.1f} s" for own in arms.values()),
            ]
            for i, step in enumerate(result["evaluated_steps"])
            if step and i % 2 == 0
        ]
        head = [
            f"recipe `pods`, mean of {result['seeds']} paired seeds",
            "`sync`",
            "child process, not ahead",
            "`ahead`",
        ]
        return f"{table(head, rows)}\n\nLoad of the machine: {spread_text(result['load'], '.1f')}."

    return per_processor(files("ahead"), text)


def sampling(files: Files) -> str:
    """The schedules in the engine."""
    head = ("schedule", "steps", "tokens/s", "to micro groups", "KV bytes to full group", "recomputed")

    def text(result: Result) -> str:
        rows = (
            (
                arm["schedule"],
                f"{arm['steps']:.0f}",
                f"{arm['tokens_per_second']:,.0f}",
                times(arm["tokens_per_second_to_micro"]),
                percent(arm["kv_bytes_to_full"]),
                percent(arm["reread_share"]),
            )
            for arm in result["engine"]["arms"]
        )
        return table(head, rows)

    return per_processor(files("infinite-sampling"), text)


def waiting(files: Files) -> str:
    """Decode steps per trained group where steps end early, by surplus."""
    result = newest(files("waiting"))
    if result is None:
        return NOT_MEASURED
    rows = [
        (
            f"{row['surplus']:g}",
            f"{spread_text(row['fewer'])}×",
            f"{spread_text(row['as_many_slots'])}×",
            f"{100 * row['resumed']['median']:.0f} %",
            str(row["oldest"]),
        )
        for row in result["rows"]
    ]
    head = (
        "surplus",
        "fewer decode steps per trained group",
        "on as many slots",
        "went on",
        "oldest, steps",
    )
    return (
        f"{where(result)}:\n\n{table(head, rows)}\n\nSteps of {result['groups']} groups of {result['rollouts']} "
        f"rollouts of `builtin:steps`, {result['run_steps']} in each of {result['run_seeds']} seeds: median (lowest … "
        "highest). Fewer than steps that wait for as many groups; on as many slots: than steps that begin as many "
        "groups and train on all of them.\n"
    )


WORLDS = {"steps": "`builtin:steps`, 4 × 64 → 16", "demo": "the demo's world, 8 × 64 → 16"}


def closing(files: Files) -> str:
    """Tokens, decode steps and costs with groups that are closed, over those without: a row per arm and world."""
    result = newest(files("closing"))
    if result is None:
        return NOT_MEASURED
    clocks = {"tokens": "generated tokens", "decode_steps": "decode steps", "cpu_seconds": "CPU seconds"}
    clocks |= {f"at {price}": f"cost at g = {price}" for price in ("0.3", "1", "2.3")}
    rows = [
        (WORLDS[world], name, *(f"{own[clock]:.2f}" for clock in clocks))
        for world, found in result["runs"].items()
        for name, own in found["arms"].items()
        if name != "PODS"
    ]
    steps = " and ".join(f"{found['steps']} of {WORLDS[world]}" for world, found in result["runs"].items())
    return (
        f"Of the first steps of runs, over those of PODS with a slot for each rollout ({steps}; {where(result)}):\n\n"
        f"{table(('world', 'arm', *clocks.values()), rows)}"
    )


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
    "ahead-table": ahead,
    "sampling": sampling,
    "closing-table": closing,
    "waiting": waiting,
    "next-answers": next_answers,
    "mixed-task": mixed_task,
}
