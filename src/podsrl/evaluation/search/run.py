"""Runs a search: rounds of open groups on the desk, in each of which leaves of all questions go on by a step.

A token's random numbers depend on the run's seed, the question, the round, the place of its leaf and its position; so
neither the number of slots nor the order in which rollouts end changes what a search finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from podsrl.errors import UsageError
from podsrl.evaluation.evaluator import Evaluator
from podsrl.evaluation.search.base import Leaf, Search
from podsrl.evaluation.search.judge import StepJudge
from podsrl.generate import Sampling, abilities_of
from podsrl.lib.seeds import derive
from podsrl.run.step.desk import new_group
from podsrl.types import Group, Open, Rollout, Task, Way


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search found for one question."""

    group: Group
    """The answers that have ended, judged by the task's rewards."""
    answer: Rollout | None
    """The one that is given; None: no answer has ended within the tokens, or none can be chosen."""
    num_tokens: int
    """Tokens drawn."""


class Tree:
    """The search for the answer to one question."""

    def __init__(self, place: int, task: Task, width: int, seed: int) -> None:
        self.task, self.num_tokens, self.leaves = task, 0, [Leaf()] * width
        self._name, self._seed, self._num_steps = f"eval/{place}/{task.id}", seed, 0

    def going_on(self, tokens: int, limit: int) -> list[int]:
        """Places of the leaves that go on: the first ones that could even run to the limit with the tokens left."""
        left, places = tokens - self.num_tokens, []
        for place, leaf in enumerate(self.leaves):
            most = limit - leaf.num_tokens
            if not leaf.is_ended and most <= left:
                left -= most
                places.append(place)
        return places

    def asked(self, places: Sequence[int], number: int) -> Open:
        """A round's group. In the first round its random numbers are those of an evaluation without a search."""
        name = f"{self._name}/{number}" if number else self._name
        begun = (_begun(name, index, self.leaves[place].rollout) for index, place in enumerate(places))
        ways = (Way(count=len(places)),)
        return Open(group=new_group(name, self.task), ways=ways, begun=tuple(done for done in begun if done))

    def add(self, place: int, done: Rollout, text: str, *, is_ended: bool) -> None:
        """Put what a leaf has become in its place."""
        before = self.leaves[place]
        self._num_steps += 1
        self.num_tokens += done.num_drawn
        self.leaves[place] = Leaf(
            rollout=done,
            steps=(*before.steps, self._num_steps),
            text=text,
            step=text[len(before.text) :],
            is_ended=is_ended,
        )

    def grow(self, search: Search, width: int, number: int) -> None:
        """Let the search say which leaves stay."""
        if not all(leaf.is_ended for leaf in self.leaves):
            rng = np.random.default_rng([derive(self._seed, "search", self._name), number])
            self.leaves = [self.leaves[place] for place in search.grow(self.leaves, width, rng)]

    def ended(self) -> Open:
        """The group of the answers that have ended."""
        done = [leaf.rollout for leaf in self.leaves if leaf.is_ended and leaf.rollout is not None]
        begun = tuple(replace(one, group_id=self._name, index=index) for index, one in enumerate(done))
        return Open(group=new_group(self._name, self.task), ways=(Way(count=len(begun)),), begun=begun)

    @property
    def scores(self) -> list[float]:
        """Of the answers that have ended."""
        return [leaf.score for leaf in self.leaves if leaf.is_ended]


def _begun(name: str, index: int, done: Rollout | None) -> Rollout | None:
    """A leaf as what a rollout goes on from. Its tokens are given: a text that ended a step ends no other."""
    if done is None:
        return None
    size = len(done.token_ids)
    return replace(
        done,
        group_id=name,
        index=index,
        status="open",
        finish_reason=None,
        logprobs=(0.0,) * size,
        given=((0, size),),
    )


def run_search(
    evaluator: Evaluator, search: Search, *, width: int, tokens: int, judge: StepJudge | None, step_end: str
) -> list[Found]:
    """Search for the answer to each question of an evaluation.

    Args:
        width: leaves of a question, at least 1.
        tokens: most tokens that are drawn for a question, at least the limit of one answer. A leaf goes on when it
            could even run to that limit with what is left; until then it waits.
        judge: of the leaves; None where the search wants none.
        step_end: the text that ends a step; a search of whole answers does not read it.

    Raises:
        UsageError: an environment answers the model, or the generator cannot go on from tokens.
    """
    _check(evaluator, search)
    sampling = evaluator.sampling
    trees = [Tree(place, task, width, evaluator.config.seed) for place, task in evaluator.questions.items()]
    strings = (*sampling.stop_strings, step_end) if search.is_stepwise else sampling.stop_strings
    stepwise = replace(sampling, stop_strings=strings)
    for number in count():
        places = {tree: tree.going_on(tokens, sampling.max_new_tokens) for tree in trees}
        going_on = {tree: own for tree, own in places.items() if own}
        if not going_on:
            break
        asked = [tree.asked(places, number) for tree, places in going_on.items()]
        _take(going_on, evaluator.desk.generated(asked, stepwise), evaluator.tokenizer, sampling, search)
        if judge is not None and search.is_judged:
            _judge(going_on, judge)
        for tree in going_on:
            tree.grow(search, width, number)
    judged = evaluator.desk.answer([tree.ended() for tree in trees], sampling)
    return [
        Found(group=group, answer=search.choose(group.rollouts, tree.scores), num_tokens=tree.num_tokens)
        for tree, group in zip(trees, judged, strict=True)
    ]


def _check(evaluator: Evaluator, search: Search) -> None:
    if evaluator.environment is not None:
        raise UsageError(
            f"task.environment = {evaluator.environment.name!r} answers the model's turns, and a search wants answers "
            "of one turn: leave --search out"
        )
    engine = evaluator.desk.engine
    if search.is_stepwise and not {"join", "start"} <= abilities_of(engine):
        raise UsageError(
            f"--search: the generator {type(engine).__name__} cannot go on from the tokens of a step (abilities 'join' "
            "and 'start'): use rollouts.generator = 'engine', or search among whole answers: majority, best"
        )


def _take(
    going_on: Mapping[Tree, Sequence[int]], opens: Sequence[Open], tokenizer: Any, sampling: Sampling, search: Search
) -> None:
    """Put what was generated in the places of the leaves that went on; all texts are decoded in one call."""
    came = [
        (tree, place, done)
        for (tree, places), each in zip(going_on.items(), opens, strict=True)
        for place, done in zip(places, each.begun, strict=True)
    ]
    texts = tokenizer.batch_decode([done.token_ids for *_, done in came], skip_special_tokens=True)
    for (tree, place, done), text in zip(came, texts, strict=True):
        is_over = (
            done.finish_reason != "stop"
            or not search.is_stepwise
            or done.token_ids[-1] in (sampling.stop_token_ids or ())
        )
        is_ended = is_over or any(string in text for string in sampling.stop_strings)
        tree.add(place, done, text, is_ended=is_ended)


def _judge(going_on: Mapping[Tree, Sequence[int]], judge: StepJudge) -> None:
    """Score the leaves that went on, in one call."""
    places = [(tree, place) for tree, of_tree in going_on.items() for place in of_tree]
    scores = judge.scores([tree.task for tree, _ in places], [tree.leaves[place] for tree, place in places])
    for (tree, place), score in zip(places, scores, strict=True):
        tree.leaves[place] = replace(tree.leaves[place], score=score)
