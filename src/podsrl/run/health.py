"""A run's health, judged in one place: signs of a wasted run, why steps teach nothing, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from podsrl.errors import short
from podsrl.lib.rounding import has_signal
from podsrl.lib.text import prompt_text
from podsrl.run.step.step_result import StepResult
from podsrl.types import Group

Array = npt.NDArray[np.float64]
MOST, NEARLY_ALL = 0.5, 0.95
"""Share of the answers from which on they are the reason: of a reward that fails, and of any other."""
NEWEST_STEPS = 10
"""Steps at the end of a log that say why its groups teach nothing."""


class Logged(Protocol):
    """A run's logs, as `podsrl.report.read.Run` holds them."""

    @property
    def steps(self) -> Sequence[Mapping[str, float]]: ...

    def series(self, name: str) -> Array: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why steps teach nothing."""

    text: str
    cure: str
    is_solved: bool = False
    """There is nothing left to learn: a success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What became of the answers of some steps."""

    num: float = 0
    right: float = 0
    invalid: float = 0
    """Without a usable reward."""
    cut: float = 0
    """At the token limit."""
    lowest: float = math.inf
    """Reward, and `highest` likewise: the other way round where there is none, -inf and inf where it is not known."""
    highest: float = -math.inf
    are_left_out: bool = True
    """The budget kept all their groups out of the training."""

    @property
    def wrong(self) -> float:
        return self.num - self.right

    @property
    def alike(self) -> float:
        """With one and the same reward, where some of them are right and some are wrong; else 0."""
        judged = self.num - self.invalid
        return judged if self.lowest == self.highest and 0 < self.right < judged else 0

    def __add__(self, other: Answers) -> Answers:
        return Answers(
            num=self.num + other.num,
            right=self.right + other.right,
            invalid=self.invalid + other.invalid,
            cut=self.cut + other.cut,
            lowest=min(self.lowest, other.lowest),
            highest=max(self.highest, other.highest),
            are_left_out=self.are_left_out and other.are_left_out,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """One check of one run."""

    name: str
    value: float | None
    """None where the run recorded nothing to measure it by."""
    limit: float
    is_share: bool
    """The value is a share between 0 and 1, which is written as percent."""
    advice: str
    """What to do above the limit."""
    is_solved: bool = False
    """What is measured comes from a solved task, so it is no alarm."""

    @property
    def is_alarm(self) -> bool:
        return self.is_above and not self.is_solved

    @property
    def is_above(self) -> bool:
        return self.value is not None and self.value > self.limit

    @property
    def title(self) -> str:
        """What stands before the advice."""
        return "solved" if self.is_solved else self.name


def reason_of(answers: Answers) -> Reason:
    """Why steps with these answers, without unequal rewards in any group, taught nothing.

    Example:
        >>> reason_of(Answers(num=16, right=0, are_left_out=False)).text
        'all answers are wrong'
    """
    for name, (least, text, cure) in REASONS.items():
        share = getattr(answers, name) / answers.num if answers.num else 0.0
        if share >= least and not (name == "wrong" and answers.are_left_out):
            how_many = "all" if share == 1 else f"{share:.0%} of the"
            return Reason(text=f"{how_many} {text.format(answers)}", cure=cure, is_solved=name == "right")
    return _LEFT_OUT if answers.num and answers.are_left_out else EQUAL


def answers_of(result: StepResult) -> Answers:
    """Of a step, with those that the budget left out."""
    groups = (*result.groups, *result.left_out)
    rollouts = [rollout for group in groups for rollout in group.rollouts if not rollout.is_pruned]
    rewards = [rollout.reward for rollout in rollouts if rollout.is_valid]
    return Answers(
        num=len(rollouts),
        right=sum(rollout.is_correct for rollout in rollouts),
        invalid=sum(not rollout.is_valid for rollout in rollouts),
        cut=sum(rollout.finish_reason == "length" for rollout in rollouts),
        lowest=min(rewards, default=math.inf),
        highest=max(rewards, default=-math.inf),
        are_left_out=not result.groups,
    )


def example_of(result: StepResult) -> str:
    """An answer of a step in a sentence, for a person to look at; empty where there is none."""
    for group in (*result.groups, *result.left_out):
        for rollout in group.rollouts:
            verdict = "" if rollout.invalid_reason is None else f"; it is invalid: {rollout.invalid_reason}"
            question, answer = short(prompt_text(group.task.prompt)), short(rollout.text)
            return f"one answer: {question} -> {answer} (reference {short(group.task.answer)}){verdict}"
    return ""


def first_look(groups: Sequence[Group], *, has_form: bool) -> str:
    """How many of a first step's sampled answers earn something, in a line; with cures where none does."""
    rollouts = [rollout for group in groups for rollout in group.rollouts if not rollout.is_pruned]
    earning = sum(rollout.is_valid and rollout.reward > 0 for rollout in rollouts)
    form = f", and {sum(rollout.is_formatted for rollout in rollouts)} have the wanted form" if has_form else ""
    line = f"{earning} of {len(rollouts)} sampled answers earn something{form}"
    rewards = [[rollout.reward for rollout in group.rollouts if rollout.is_valid] for group in groups]
    if earning or any(map(has_signal, rewards)):
        return line
    return f"{line}: {_NOTHING_EARNED if any(rewards) else _INVALID}"


def logged_answers(lines: Sequence[Mapping[str, Any]]) -> Answers:
    """Of the steps whose lines of `metrics.jsonl` know them; of what was left out, only which were right is known."""
    known = [line for line in lines if _is_number(line.get("rollouts/all")) and _is_number(line.get("accuracy/all"))]
    asked, left_out, invalid, cut = (
        sum(line.get(f"rollouts/{name}") or 0 for line in known) for name in ("all", "left_out", "invalid", "truncated")
    )
    sizes = [line["rollouts/all"] + (line.get("rollouts/left_out") or 0) for line in known]
    return Answers(
        num=asked + left_out,
        right=sum(line["accuracy/all"] * size for line, size in zip(known, sizes, strict=True)),
        invalid=invalid,
        cut=cut,
        lowest=min(_bounds(known, "reward/min", -math.inf), default=math.inf),
        highest=max(_bounds(known, "reward/max", math.inf), default=-math.inf),
        are_left_out=asked == 0,
    )


def check_run(run: Logged) -> tuple[HealthCheck, ...]:
    """Measure every sign of a wasted run: all checks, alarming or not, in a fixed order."""
    reason = reason_of(logged_answers(run.steps[-NEWEST_STEPS:]))
    return (
        HealthCheck(
            name="answers cut at the token limit",
            value=_share(run, "rollouts/truncated", "rollouts/all"),
            limit=0.1,
            is_share=True,
            advice=_CUT,
        ),
        HealthCheck(
            name="groups without signal",
            value=_share(run, "groups/zero_signal", "groups/all"),
            limit=0.5,
            is_share=True,
            advice=f"in the newest steps {reason.text}; {reason.cure}",
            is_solved=reason.is_solved,
        ),
        HealthCheck(
            name="rollouts without a reward",
            value=_share(run, "rollouts/invalid", "rollouts/all"),
            limit=0.01,
            is_share=True,
            advice=f"{_INVALID}; the reasons stand in the groups below",
        ),
        HealthCheck(
            name="log-prob gap, generator to trainer",
            value=mean_logprob_gap(run),
            limit=0.05,
            is_share=False,
            advice="generator and trainer disagree about the policy: check that weights reach the generator (sync) and "
            "that both use the same precision and sampling options",
        ),
    )


def mean_logprob_gap(run: Logged) -> float | None:
    """Mean over steps of how far the generator's log-probabilities are from the trainer's, nats per token.

    Steps on rollouts of older weights are left out: their gap is also that of the two policies.
    """
    gaps, lags = run.series("logprob_gap"), run.series("rollouts/lag")
    gaps = np.abs(gaps[np.isfinite(gaps) & ~(lags > 0)])
    return float(gaps.mean()) if gaps.size else None


def _bounds(lines: Sequence[Mapping[str, Any]], name: str, unknown: float) -> list[float]:
    """Of the steps that have one; a log of an older version has none, so that it is unknown."""
    return [value for line in lines if (value := line.get(name, unknown)) is not None and not math.isnan(value)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _share(run: Logged, part: str, whole: str) -> float | None:
    """Sum of a metric over the sum of another, of the steps that have both; None where there is none."""
    counts, totals = run.series(part), run.series(whole)
    is_known = np.isfinite(counts) & np.isfinite(totals)
    total = float(totals[is_known].sum())
    return float(counts[is_known].sum()) / total if total > 0 else None


_CUT = "raise rollouts.max_new_tokens, or reward shorter answers: a cut answer can rarely be correct"
_NOTHING_EARNED = (
    "nothing can be learned from such answers; take easier questions (task.name, task.path), say in task.system_prompt "
    "what is wanted, or take another model (model.path)"
)
_INVALID = (
    "a reward function or the environment raises or returns nothing usable: `pods check-reward` tries a reward alone"
)
REASONS = {
    "invalid": (MOST, "rewards are invalid", _INVALID),
    "alike": (
        MOST,
        "rewards are {0.lowest:g}, though {0.right:.0f} of {0.num:.0f} answers are correct",
        "the reward does not tell correct answers from wrong ones: `pods check-reward` tries it alone, and "
        "task.rewards can name what judges the answer",
    ),
    "right": (
        NEARLY_ALL,
        "answers are correct",
        "the model solves these questions: train it on harder ones, or end here",
    ),
    "cut": (NEARLY_ALL, "answers are cut at the token limit", _CUT),
    "wrong": (
        NEARLY_ALL,
        "answers are wrong",
        "see whether the reward pays a correct answer (`pods check-reward`), or wants another form than the model "
        "writes; else choose easier questions or a stronger model, or raise rollouts.num_rollouts",
    ),
}
"""Field of `Answers` -> from which share on it is the reason, what it says, and what to do; the first one counts."""
EQUAL = Reason(
    text="the rewards within a group are equal",
    cure="choose questions that the model neither always solves nor never, or a reward with more levels, or raise "
    "rollouts.num_rollouts",
)
_LEFT_OUT = Reason(
    text="systems left out every group (dapo and mixed want correct and wrong answers in one)",
    cure="choose easier questions or raise rollouts.num_rollouts; without that system a run also learns from unequal "
    "rewards of wrong answers",
)
