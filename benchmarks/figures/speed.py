"""Seconds, tokens per second and memory of podsrl's own parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.figures.headline import Figure
from benchmarks.figures.markdown import percent
from benchmarks.files import Result
from benchmarks.timing import Spread

OURS, PEER, SHARED = "podsrl", "transformers continuous batching", "shared prompts"
PLAIN, PLAIN_FAST = "own prompts", "own prompts, same matmul"


def times(spread: Spread, form: str = ".2f") -> str:
    """A ratio with its spread.

    Example:
        >>> times({"min": 1.0, "median": 2.0, "max": 4.0}, ".1f")
        '2.0× (1.0 … 4.0)'
    """
    return f"{spread['median']:{form}}× ({spread['min']:{form}} … {spread['max']:{form}})"


def span(values: list[float], form: str) -> str:
    """Lowest to highest.

    Example:
        >>> span([0.2, 0.1], ".1f")
        '0.1 to 0.2'
    """
    low, high = f"{min(values):{form}}", f"{max(values):{form}}"
    return low if low == high else f"{low} to {high}"


def _cases(result: Result, which: Callable[[Iterable[int]], int]) -> dict[str, Any]:
    """The cases with the most groups (`max`), or with the fewest."""
    num_groups = which(case["num_groups"] for case in result["cases"])
    return {case["rewards"]: case for case in result["cases"] if case["num_groups"] == num_groups}


def _select_large(result: Result) -> str:
    cases = _cases(result, max)
    scan = [case["ratio_to_scan"]["median"] for case in cases.values()]
    sorts = ", ".join(f"{times(case['ratio_to_sort'])} on {kind}" for kind, case in cases.items())
    return f"{sorts} rewards; {span(scan, '.2f')}× of a scan per group"


def arm(model: Result, name: str) -> Any:
    """What the benchmark `engine` found of an engine on a model."""
    return next(each for each in model["arms"] if each["arm"] == name)


def _engine(result: Result) -> str:
    models = [
        f"{times(ours['ratio_to_hf'], '.1f')} and, by CPU seconds, "
        f"{times(ours['ratio_to_continuous_batching_by_cpu'], '.1f')} on {model['parameters'] / 1e6:.1f} M"
        for model in result["models"]
        for ours in [arm(model, OURS)]
    ]
    return "; ".join(models)


def _update(result: Result) -> str:
    own, fast = ([each["ratio_by_cpu"][key]["median"] for each in result["lengths"]] for key in (PLAIN, PLAIN_FAST))
    return f"{_listed(own, '.2f')}; {_listed(fast, '.2f')} with the same matrix library"


def _listed(values: list[float], form: str) -> str:
    return ", ".join(f"{value:{form}}×" for value in values)


def _floor(model: str) -> Callable[[Result], str]:
    def text(result: Result) -> str:
        found = result["models"][model]
        low, middle, high = (percent(found["overhead"][key], 1) for key in ("min", "median", "max"))
        return f"{found['ratio']:.1f}×; {middle} ({low} … {high}) of {1000 * found['cpu_seconds']['step']:.0f} ms"

    return text


def _watch(result: Result) -> str:
    found = result["models"].values()
    never, each = ([model[arm]["median"] for model in found] for arm in ("never due", "every step"))
    return f"{span(never, '.2f')}× with one that is never due; {span(each, '.2f')}× with one that sees every step"


def _reference_solutions(result: Result) -> str:
    sets = result["rewards"]["math_correct"]["sets"]
    return "; ".join(f"{name.upper()} {each['num_correct']:,} of {each['num_rows']:,}" for name, each in sets.items())


def _budgets(result: Result) -> str:
    shares = {name: each["share"] for name, each in result["parts"].items()}
    low, high = min(shares.values()), max(shares.values())
    worst = next(name for name, share in shares.items() if share == high)
    step = 1000 * result["cpu_seconds_step"]
    return f"{percent(low, 1)} to {percent(high, 1)} (`{worst}`) of {step:.0f} ms"


def _planner(result: Result) -> str:
    return f"{span([row['ratio'] for row in result['rows'][1:]], '.2f')}× the measured ones"


FIGURES = (
    Figure(
        "select-large",
        "select",
        "max-variance selection over `torch.sort`, `[4096, 1024]` float32, m = 256",
        _select_large,
    ),
    Figure(
        "engine",
        "engine",
        "tokens per second of the engine over Hugging Face `generate`, batch 256, and transformers' continuous "
        "batching; 64 prompts × 16, one thread",
        _engine,
    ),
    Figure(
        "update",
        "update",
        "packed rows with shared prompts over padded rows, prompt : answer = 4:1, 1:1, 1:4, m = 16",
        _update,
    ),
    Figure(
        "floor",
        "floor",
        "a step of the recipe `pods` over its matrix products; share of bookkeeping",
        _floor("demo"),
    ),
    Figure(
        "watch",
        "watch",
        "decode steps of 512 rollouts with a watch over those without; three models",
        _watch,
    ),
    Figure(
        "budgets",
        "budgets",
        "a system, as a share of a step of the recipe `pods`",
        _budgets,
    ),
    Figure(
        "planner",
        "planner",
        "predicted seconds of a step at choices that the fit has not seen",
        _planner,
        command="planner --cpu-time",
    ),
    Figure(
        "reference-solutions",
        "reference-solutions",
        "reference solutions that get the full reward of `math_correct`",
        _reference_solutions,
    ),
)
