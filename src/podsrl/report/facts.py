"""What the page says about a run in words and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from podsrl.compare.costs import chosen_sizes
from podsrl.lib.time_left import pace_text
from podsrl.report import numbers
from podsrl.report.numbers import MISSING
from podsrl.report.read import Run
from podsrl.run.group_log import RecordedGroup

_OPTIONS = {
    "model": "model.path",
    "task": "task.name",
    "rule": "select.rule",
    "loss": "loss.name",
    "lr": "optim.lr",
    "seed": "seed",
}


def wants_form(runs: Sequence[Run]) -> bool:
    """Whether a right answer of some evaluation had not the wanted form."""
    return any(
        line.get("eval/accuracy_and_format", right := line["eval/accuracy"]) < right
        for run in runs
        for line in run.evaluations
    )


def key_facts(run: Run) -> dict[str, str]:
    """The options that a reader asks for first, name -> value as text; a dash where the config has none."""
    prompts = run.option("rollouts.num_prompts")
    options = {name: run.option(key) for name, key in _OPTIONS.items()}
    facts = {name: MISSING if value is None else str(value) for name, value in options.items()}
    head = {"prompts": MISSING if prompts is None else str(prompts), "n → m": sizes(run)}
    return head | facts | _by_costs(run) | _ahead(run) | _spent(run)


def sizes(run: Run) -> str:
    """Rollouts per question, generated → trained: the config's, or means of a run that chooses them by costs."""
    own = run.option("rollouts.num_rollouts"), run.option("select.num_kept")
    by = run.option("select.rule"), run.option("systems") or (), run.option("select.num_chunks") or 1
    chosen = chosen_sizes([run.steps], *by)
    if chosen is not None:
        return " → ".join(f"{size:g}" for size in chosen)
    return " → ".join(MISSING if size is None else numbers.kept(size) for size in own)


def fact_names(runs: Sequence[Run]) -> list[str]:
    """Names of the key facts of several runs, each once."""
    return list(dict.fromkeys(name for run in runs for name in key_facts(run)))


def when(run: Run) -> str:
    """When a run began, and when it was last resumed."""
    first, *more = (start["date"].replace("T", " ").replace("+00:00", " UTC") for start in run.starts)
    return f"{first}, resumed {len(more)}×, last {more[-1]}" if more else first


def _by_costs(run: Run) -> dict[str, str]:
    """Of a run that decides by costs, these."""
    costs = {name: run.option(f"costs.{name}_ms") for name in ("group", "rollout", "row")}
    return {} if None in costs.values() else {"costs": ", ".join(f"{name} {cost:g} ms" for name, cost in costs.items())}


def _ahead(run: Run) -> dict[str, str]:
    """Of a run whose steps were generated ahead: how old its rollouts were, and what went on at the same time."""
    overlapped = run.series("seconds/overlapped")
    if not (overlapped > 0).any():
        return {}
    lag, seconds = np.nanmean(run.series("rollouts/lag")), np.nanmean(overlapped)
    return {"ahead": f"rollouts {lag:.2g} updates old; {pace_text(float(seconds))} per step beside the one before"}


def _spent(run: Run) -> dict[str, str]:
    """Of a run at a service with prices: money for its steps, and what they had cost with every rollout trained."""
    spent, of_all = (float(np.nansum(run.series(f"service/{name}"))) for name in ("cost", "cost_all"))
    return {"spent": f"{spent:.4g}; {of_all:.4g} with every rollout trained"} if spent > 0 else {}


class StartAndEnd(NamedTuple):
    """Recorded held-out questions with their first and last answers."""

    shown: list[tuple[Mapping[str, Any], Mapping[str, Any]]]
    """Of at most three, those first whose answer became correct, then those whose answer became wrong."""
    num_all: int
    num_learned: int
    num_lost: int


def start_and_end(answers: Mapping[int, Sequence[Mapping[str, Any]]], most: int = 3) -> StartAndEnd:
    """What `eval/examples` of the first and the last evaluation show.

    Example:
        >>> before = [{"id": "a", "is_correct": True}, {"id": "b", "is_correct": False}]
        >>> found = start_and_end({0: before, 9: [before[0], {"id": "b", "is_correct": True}]}, most=1)
        >>> found.shown[0][0]["id"], found.num_all, found.num_learned, found.num_lost
        ('b', 2, 1, 0)
    """
    pairs = list(zip(answers[min(answers)], answers[max(answers)], strict=False))
    gains = [bool(last.get("is_correct")) - bool(first.get("is_correct")) for first, last in pairs]
    order = sorted(range(len(pairs)), key=lambda i: (gains[i] != 1, gains[i] == 0))
    return StartAndEnd([pairs[i] for i in order[:most]], len(pairs), gains.count(1), gains.count(-1))


def group_summary(group: RecordedGroup) -> dict[str, float | int | None]:
    """The counts of a group's rollouts: all, kept, right and without reward; and their mean reward."""
    rewards = [rollout.reward for rollout in group.rollouts if rollout.reward is not None]
    return {
        "num_rollouts": len(group.rollouts),
        "num_kept": sum(rollout.is_kept for rollout in group.rollouts),
        "num_correct": sum(rollout.is_correct for rollout in group.rollouts),
        "num_invalid": sum(rollout.invalid_reason is not None for rollout in group.rollouts),
        "mean_reward": sum(rewards) / len(rewards) if rewards else None,
    }


def reward_strip(group: RecordedGroup) -> list[tuple[int, bool]]:
    """(height in percent, is kept) of every rollout with a reward, highest first; equal rewards are all full."""
    rewarded = [(rollout.reward, rollout.is_kept) for rollout in group.by_reward() if rollout.reward is not None]
    rewards = [reward for reward, _ in rewarded]
    low, width = (min(rewards), max(rewards) - min(rewards)) if rewards else (0.0, 0.0)
    return [(round(25 + 75 * (reward - low) / width) if width else 100, kept) for reward, kept in rewarded]
