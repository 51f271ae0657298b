"""Run systems on simulated questions: what they would ask and what that teaches, in a second and without a model.

A population is N questions, each with a logit θ of its success p = 1 / (1 + e^-θ). A step asks the real parts in real
rounds, draws every rollout of question i as right with probability p_i, and then raises the logits:

    S_i = sum of the signals of the trained groups of question i
    θ_i ← θ_i + rate · ((1 - shared) · S_i + shared · mean of S over all questions)

The signal of a group of n rollouts with k right ones is n · sqrt(p̂ (1 - p̂)), p̂ = k / n. That is GRPO's own gradient
(Shao et al. 2024) for a policy with the one parameter θ_i: the sum over the group of A_j · d log P(r_j) / dθ with
A_j = (r_j - p̂) / std, which is half the sum of |A_j|. So a group that is all right or all wrong teaches nothing.

What is ours: plain gradient ascent in place of AdamW, no division by the rows of the batch (every group teaches as
much, whatever the others are), and `shared`, by which a question also learns from all others, as questions of one
skill do in a real policy. It moves gains between questions and adds none: the sum of all θ grows by rate · sum of S.

There are no texts, tokens or seconds, and no question ever gets harder: a simulation compares systems with each other
and predicts no run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from podsrl.control.base import Stream, View
from podsrl.control.budget import Budget
from podsrl.lib.parts import Parts
from podsrl.lib.seeds import derive
from podsrl.types import Ask, Group, Rollout, Task

Floats: TypeAlias = NDArray[np.float64]
Signal: TypeAlias = Callable[[Group], float]
"""A trained group -> how much it teaches its question, at least 0."""


class Population:
    """Questions that differ in difficulty; `learn` is the only thing that changes it.

    Args:
        logits: [N] the logit of each question's success, finite.
        rate: rise of the logit per unit of signal, above 0.
        shared: 0: a question learns from its own groups alone; 1: as much from every other.

    Example:
        >>> population = Population([-2.0, 0.0], rate=0.1, shared=0.5)
        >>> population.learn([0.0, 4.0])
        >>> population.logits.round(6).tolist()
        [-1.9, 0.3]
    """

    def __init__(self, logits: ArrayLike, *, rate: float = 0.05, shared: float = 0.0) -> None:
        self.logits: Floats = np.array(logits, dtype=np.float64)
        self.rate, self.shared = rate, shared

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def success(self) -> Floats:
        """[N] probability that a rollout of each question is right."""
        return np.exp(-np.logaddexp(0.0, -self.logits))

    def learn(self, signals: ArrayLike) -> None:
        """Raise the logits by the signals [N] of a step."""
        own = np.asarray(signals, dtype=np.float64)
        self.logits = self.logits + self.rate * ((1 - self.shared) * own + self.shared * own.mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStep:
    """What one step asked for and found. Groups are counted when the step has ended, those that were trained on alone.

    Example: 8 questions with 4 rollouts each, of which 3 were all wrong and 1 all right: num_rollouts = 32,
    num_mixed = 4, num_all_wrong = 3, num_all_right = 1.
    """

    num_rounds: int
    num_rollouts: int
    """All that were generated: probes and groups that were left out too."""
    num_trained: int
    """Rollouts of the trained groups."""
    num_mixed: int
    """Trained groups with right and wrong rollouts."""
    num_all_wrong: int
    num_all_right: int
    num_left_out: int
    """Groups that `keep` left out."""
    spread: float
    """Mean of p (1 - p) over the generated rollouts, with their questions' p before the step: at most 0.25; NaN where
    none was generated."""
    success: float
    """Mean of p over all questions, after the step."""

    @property
    def num_groups(self) -> int:
        """Groups that were trained on."""
        return self.num_mixed + self.num_all_wrong + self.num_all_right


def grpo_signal(group: Group) -> float:
    """n · sqrt(p̂ (1 - p̂)) for a share p̂ of right rollouts: half the sum of GRPO's |advantages|."""
    num_right = sum(rollout.is_correct for rollout in group.rollouts)
    return math.sqrt(num_right * (len(group.rollouts) - num_right))


def simulate(
    parts: Parts,
    population: Population,
    stream: Stream,
    *,
    num_prompts: int,
    num_rollouts: int,
    num_steps: int,
    seed: int = 0,
    signal: Signal = grpo_signal,
    tasks: Sequence[Task] | None = None,
) -> list[SimulatedStep]:
    """Train a population on what parts ask; the parts and the population learn, as in a run.

    Args:
        parts: fresh, or with what they learned before.
        population: N questions; changed.
        stream: of the N questions, such as `podsrl.tasks.Stream(N, seed=0)`.
        num_prompts, num_rollouts: P and n of the view.
        num_steps: how many.
        seed: of all draws; with the same arguments the result is the same.
        signal: of a trained group.
        tasks: [N] the questions' texts, for parts that read them; None: "Question 0?", "Question 1?" …

    Returns:
        One record per step.

    Raises:
        UsageError: what the parts raise.

    Example:
        >>> from podsrl.lib.parts import make_parts
        >>> from podsrl.tasks import Stream
        >>> sizes = {"num_prompts": 4, "num_rollouts": 8, "num_steps": 1}
        >>> [step] = simulate(make_parts([], {}), Population([-9, 9, 0, 0]), Stream(4, seed=0), **sizes)
        >>> step.num_rollouts, step.num_all_wrong, step.num_all_right, step.num_mixed
        (32, 1, 1, 2)
    """
    if tasks is None:
        tasks = [Task(id=str(index), prompt=f"Question {index}?", answer="yes") for index in range(len(population))]
    steps = []
    for step in range(num_steps):
        view = View(
            step=step,
            num_prompts=num_prompts,
            num_rollouts=num_rollouts,
            num_train=len(population),
            seed=seed,
            stream=stream,
            tasks=tasks,
        )
        steps.append(_step(parts, population, view, tasks, signal))
    return steps


def _step(parts: Parts, population: Population, view: View, tasks: Sequence[Task], signal: Signal) -> SimulatedStep:
    success, budget = population.success, Budget(parts)
    while asks := budget.ask(view):
        view = view.after(_answers(asks, view, population, tasks))
    kept = budget.trained(view)
    trained = [group for group in view.groups if group.id in kept]
    budget.check_sizes({group.id: len(group.rollouts) for group in trained})
    signals = np.zeros(len(population))
    for group in trained:
        signals[_place(group)] += signal(group)
    population.learn(signals)
    parts.learn(view.groups)
    p = np.repeat([success[_place(group)] for group in view.groups], [len(group.rollouts) for group in view.groups])
    kinds = Counter(frozenset(rollout.is_correct for rollout in group.rollouts) for group in trained)
    return SimulatedStep(
        num_rounds=view.round,
        num_rollouts=len(p),
        num_trained=sum(len(group.rollouts) for group in trained),
        num_mixed=kinds[frozenset({False, True})],
        num_all_wrong=kinds[frozenset({False})],
        num_all_right=kinds[frozenset({True})],
        num_left_out=sum(group.is_trained for group in view.groups) - len(trained),
        spread=float(np.mean(p * (1 - p))) if len(p) else math.nan,
        success=float(population.success.mean()),
    )


def _place(group: Group) -> int:
    assert group.index is not None, "every group here is of the training set"
    return group.index


def _answers(asks: Sequence[Ask], view: View, population: Population, tasks: Sequence[Task]) -> list[Group]:
    """The groups that the asks open or join, with their new rollouts."""
    groups, grown = {group.id: group for group in view.groups}, dict[str, Group]()
    name = ""
    for ask in asks:
        group = groups.get((name if ask.joins == "" else ask.joins) or "") or _new_group(ask, view, len(groups), tasks)
        name = group.id
        groups[group.id] = grown[group.id] = _grown(group, ask, population, view.seed)
    return list(grown.values())


def _new_group(ask: Ask, view: View, place: int, tasks: Sequence[Task]) -> Group:
    return Group(
        id=f"s{view.step}/{place}/{ask.index}",
        task=tasks[ask.index],
        prompt_ids=(ask.index,),
        rollouts=(),
        index=ask.index,
        step=view.step,
        is_trained=ask.is_trained,
    )


def _grown(group: Group, ask: Ask, population: Population, seed: int) -> Group:
    """As in a run, the group's name decides its random numbers: 8 rollouts and then 24 are the 32 of one round."""
    first = len(group.rollouts)
    draws = np.random.default_rng(derive(seed, "population", group.id)).random(first + ask.num_rollouts)[first:]
    logit = float(population.logits[ask.index])
    logs = {is_right: -float(np.logaddexp(0.0, -logit if is_right else logit)) for is_right in (True, False)}
    right = (draws < math.exp(logs[True])).tolist()
    new = []
    for index, is_right in enumerate(right, start=first):
        rollout = Rollout(
            group_id=group.id,
            index=index,
            token_ids=(int(is_right),),
            logprobs=(logs[is_right],),
            finish_reason="stop",
            version=group.step,
            text="yes" if is_right else "no",
            reward=float(is_right),
            parts={"correct": float(is_right)},
            is_correct=is_right,
            prompt_ids=None if ask.prompt is None else (ask.index, ask.index),
            origin=ask.origin,
        )
        new.append(rollout)
    return group.with_more(new)
