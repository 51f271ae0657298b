"""TRACE: both allocations against brute force, advantages and targets against a tree of nodes, and whole steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from loops import each
from made import selection
from podsrl.control import Ask
from podsrl.run.step.trainer import Trainer
from podsrl.systems.trace import NOTE, Contrast, continued, divided, mean_right, shared, through
from podsrl.types import Group, Notes, Parent, Rollout, Task
from runs import config_of
from tests.systems.made_up_groups import group, right_of, rollout, view
from tests.systems.whole_steps import WAYS_TO_STEP, check_refused, check_resumed, lines, steps

# --- allocations ---


def mixed(share: float, size: int) -> float:
    """The probability of a right and a wrong one among so many: over all outcomes."""
    outcomes = product((True, False), repeat=size)
    return sum(float(np.prod([share if one else 1 - share for one in each])) for each in outcomes if len({*each}) == 2)


@each("seed", range(40), few=8)
def test_roots_are_divided_as_the_best_of_all_divisions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, most = int(rng.integers(1, 5)), int(rng.integers(2, 6))
    right = rng.uniform(0.02, 0.98, count) if seed % 4 else np.full(count, 0.5)
    values = [[mixed(share, size) for size in range(most + 1)] for share in right]
    every = list(product([0, *range(2, most + 1)], repeat=count))
    total = int(rng.choice([sum(each) for each in every]))
    every = [each for each in every if sum(each) == total]
    best = max(sum(values[i][size] for i, size in enumerate(each)) for each in every)
    found = divided(right, total, most).tolist()
    assert sum(found) == total and 1 not in found and max(found) <= most
    assert sum(values[i][size] for i, size in enumerate(found)) == pytest.approx(best, abs=1e-12)


def test_marginal_gains_would_divide_roots_worse() -> None:
    """One root gains nothing, so going by single gains would never begin."""
    assert divided(np.array([0.3, 0.4, 0.1]), 4, 4).tolist() == [2, 2, 0]
    assert divided(np.array([0.5, 0.02]), 4, 4).tolist() == [4, 0]


@each("seed", range(40), few=8)
def test_continuations_are_divided_as_the_best_of_all_divisions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, total = int(rng.integers(1, 5)), int(rng.integers(1, 6))
    agree = rng.uniform(0.02, 0.98, count)
    every = [each for each in product(range(total + 1), repeat=count) if sum(each) == total]
    best = max(sum(1 - q**k for q, k in zip(agree, each, strict=True)) for each in every)
    found = continued(agree, total)
    assert found.sum() == total and (1 - agree**found).sum() == pytest.approx(best, abs=1e-12)


# --- what a step asks ---

NODES = (2, 4)


def root(index: int, length: int, *states: float, is_right: bool = True) -> Rollout:
    """Its tokens are its own; at each node it has the state (x, 1)."""
    one = rollout(index, is_correct=is_right, logprobs=(-1.0,) * length)
    tokens = tuple(100 * index + place for place in range(length))
    notes = Notes({NOTE: [(state, 1.0) for state in states]} if states else {})
    return replace(one, token_ids=tokens, notes=notes)


def behind(index: int, source: Rollout, count: int, length: int, *, is_right: bool = True) -> Rollout:
    """A continuation."""
    one = rollout(index, is_correct=is_right, logprobs=(0.0,) * count + (-1.0,) * (length - count))
    tokens = (*source.token_ids[:count], *range(1000 * index, 1000 * index + length - count))
    return replace(one, token_ids=tokens, given=((0, count),), parent=Parent(source.index, count))


TASKS = tuple(Task(id=str(i), prompt="?" * (1 + 9 * (i % 2)), answer="!") for i in range(8))
"""Of two lengths, which is all that tells them apart."""


def learned(more: int = 1) -> Contrast:
    """It has seen that long questions are half right and short ones never, and what states say."""
    part = Contrast(at=NODES, more=more, most=8)
    groups = []
    for number in range(40):
        states = [0.5 * (number % 3), 0.5 * (number % 3)]
        right = (number // 2) % 2 == 0 if number % 2 else False
        own = [root(0, 5, *states, is_right=right), root(1, 5, *states, is_right=number % 3 > 0 and right)]
        groups.append(replace(group(f"g{number}", own), task=TASKS[number % 8]))
    part.learn(groups)
    return part


def test_until_something_is_learned_all_questions_get_the_same_roots() -> None:
    asks = [Ask(index=i, num_rollouts=8) for i in range(4)]
    found = Contrast(at=NODES, more=3).rollouts(view(4, 8, 8, tasks=TASKS), asks)
    assert found == [Ask(index=i, num_rollouts=2) for i in range(4)]


def test_roots_go_to_the_questions_that_are_likely_to_be_mixed() -> None:
    asks = [Ask(index=i, num_rollouts=8) for i in range(4)]
    found = learned().rollouts(view(4, 8, 8, tasks=TASKS), asks)
    sizes = {ask.index: ask.num_rollouts for ask in found}
    assert sum(sizes.values()) == 16 and 1 not in sizes.values()
    assert sizes.get(1, 0) + sizes.get(3, 0) > 2 * (sizes.get(0, 0) + sizes.get(2, 0))


@each("seed", range(200), few=20)
def test_every_root_brings_its_continuations_whatever_has_become_of_it(seed: int) -> None:
    """The prefixes are tokens of judged roots, shorter than these; without any, plain rollouts take their places."""
    rng = np.random.default_rng(seed)
    more, part = int(rng.integers(1, 4)), learned()
    part._more = more
    groups = []
    for number in range(3):
        own = []
        for index in range(int(rng.integers(2, 5))):
            length, is_right = int(rng.integers(1, 7)), bool(rng.integers(2))
            one = root(index, length, *rng.uniform(0, 1, sum(count < length for count in NODES)), is_right=is_right)
            own.append(one if rng.uniform() < 0.7 else replace(one, invalid_reason="the reward raised"))
        groups.append(group(f"q{number}", own, index=number))
    asked = view(3, 2 + 2 * more, 8, round=1, groups=tuple(groups), tasks=TASKS)
    found = part.rollouts(asked, [])
    assert found == part.rollouts(asked, []), "a step that is asked again asks the same"
    for each_group in groups:
        asks = [ask for ask in found if ask.joins == each_group.id]
        assert sum(ask.num_rollouts for ask in asks) == more * len(each_group.rollouts)
        nodes = [one for one in each_group.rollouts if one.is_valid and len(one.token_ids) > 2]
        assert bool(nodes) == all(ask.parent is not None and ask.parent.num_tokens for ask in asks)
        for ask in asks if nodes else []:
            assert ask.parent is not None and ask.parent.num_tokens in NODES
            source = each_group.rollouts[ask.parent.index]
            assert source in nodes and ask.parent.num_tokens < len(source.token_ids)


def test_grown_groups_probes_and_a_run_without_continuations_get_no_more() -> None:
    grown = right_of("q", 1, 2).with_more([behind(2, root(0, 5), 2, 4)])
    probe = right_of("p", 1, 2, is_trained=False)
    assert Contrast(at=NODES).rollouts(view(round=1, groups=(grown, probe)), []) == []
    assert Contrast(at=NODES, more=0).rollouts(view(round=1, groups=(right_of("q", 1, 2),)), []) == []


def test_where_states_tell_how_an_answer_ends_the_surest_prefix_gets_none() -> None:
    part, sure, open_ = Contrast(at=(2,), more=2), root(0, 4, 1.0), root(1, 4, 0.5)
    rows = [group(f"g{i}", [root(0, 4, i % 3 / 2, is_right=i % 3 + i // 3 % 2 > 1)]) for i in range(600)]
    part.learn(rows)
    asked = part.rollouts(view(round=1, groups=(group("q", [sure, open_]),), tasks=TASKS), [])
    counts = {ask.parent.index: ask.num_rollouts for ask in asked if ask.parent is not None}
    assert counts[1] >= 3 and sum(counts.values()) == 4


# --- targets and advantages ---


def tree_target(node: tuple[int, int], leaves: Sequence[tuple[int, int, float]]) -> tuple[float, int]:
    """(V̂, number of leaves) by the recursion: children are the next node of the same root, and what begins here.

    `leaves`: index of the root, tokens shared with it (all of them for itself), outcome.
    """
    index, count = node
    deeper = [other for other in (*NODES, 99) if other > count]
    here = [(value, 1) for source, length, value in leaves if source == index and length == count]
    children = [*here, *([tree_target((index, deeper[0]), leaves)] if deeper else [])]
    children = [child for child in children if child[1]]
    total = sum(size for _, size in children)
    return (sum(size * value for value, size in children) / total if total else 0.0), total


@each("seed", range(50), few=10)
def test_targets_are_means_over_leaves_as_the_recursion_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    roots = [root(i, 6, 0.0, 0.0, is_right=bool(rng.integers(2))) for i in range(2)]
    more = [
        behind(2 + i, roots[int(rng.integers(2))], int(rng.choice(NODES)), 6, is_right=bool(rng.integers(2)))
        for i in range(int(rng.integers(5)))
    ]
    leaves = [(i, 99, float(one.is_correct)) for i, one in enumerate(roots)]
    leaves += [(one.parent.index, one.given[0][1], float(one.is_correct)) for one in more if one.parent is not None]
    for index, count in product(range(2), NODES):
        found = mean_right(through(roots[index], count, [*roots, *more]))
        assert found == pytest.approx(tree_target((index, count), leaves)[0])


def by_tokens(kept: Sequence[Rollout], values: Sequence[float]) -> list[list[float]]:
    """Token for token: the mean over all kept rollouts that have the same tokens up to here; given ones do not ask."""
    found = []
    for one in kept:
        tokens, row = one.token_ids, []
        for place in range(len(tokens)):
            begins = [each.token_ids[: place + 1] == tokens[: place + 1] for each in kept]
            own = [value for value, is_same in zip(values, begins, strict=True) if is_same]
            row.append(sum(own) / len(own))
        found.append(row)
    return found


@each("seed", range(50), few=10)
def test_a_token_has_the_mean_advantage_of_all_rollouts_that_go_through_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    roots = [root(i, int(rng.integers(5, 8))) for i in range(2)]
    more = [
        behind(2 + i, roots[int(rng.integers(2))], int(rng.choice(NODES)), int(rng.integers(5, 9)))
        for i in range(1 + int(rng.integers(4)))
    ]
    kept = [one for one in (*roots, *more) if rng.uniform() < 0.8]
    values = rng.normal(size=len(kept)).tolist()
    found = shared(kept, torch.tensor(values, dtype=torch.float64))
    sources = {one.index for one in kept}
    if not any(one.parent is not None and one.parent.index in sources for one in kept):
        assert found.tolist() == values
        return
    for place, wanted in enumerate(by_tokens(kept, values)):
        one = kept[place]
        first = one.given[0][1] if one.given else 0  # no loss sees what is before
        assert found[place, first : len(one.token_ids)].tolist() == pytest.approx(wanted[first:])
        assert not found[place, len(one.token_ids) :].any()


def test_without_continuations_advantages_are_the_same_tensors() -> None:
    found, values = right_of("q", 1, 3), torch.tensor([1.0, -0.5, -0.5])
    [same] = Contrast(at=NODES).shape([found], [selection(found, range(3))], [values])
    assert same is values


# --- steps ---

TRACE = (
    *(
        "systems=trace",
        "options.trace.at=[3,6]",
        "rollouts.num_rollouts=6",
        "rollouts.max_new_tokens=16",
        "select.rule=keep_all",
    ),
    *("select.num_kept=6", "task.digits=2", "optim.lr=1e-3"),
)


def trainer_of(*overrides: str) -> Trainer:
    return Trainer(config_of(*TRACE, *overrides))


def continuations(found: Group) -> list[Rollout]:
    return [one for one in found.rollouts if one.parent is not None and one.parent.num_tokens]


@pytest.mark.parametrize("slots", [0, 5])
def test_continuations_go_on_behind_tokens_that_their_root_drew(slots: int) -> None:
    results = steps(trainer_of(f"rollouts.num_slots={slots}"), 3)
    for result in results:
        assert sum(len(each.rollouts) for each in result.groups) == 2 * 6
        for each_group in result.groups:
            more = continuations(each_group)
            assert 2 * len(more) == len(each_group.rollouts)
            for one in more:
                source = each_group.rollouts[one.parent.index]
                [(start, end)] = one.given
                assert (start, end) in ((0, 3), (0, 6)) and len(source.token_ids) > end
                assert one.token_ids[:end] == source.token_ids[:end]
    assert sum(line["tokens/given"] for line in lines(results)) > 0


def test_what_is_asked_and_drawn_does_not_depend_on_the_slots() -> None:
    few, many = (steps(trainer_of(f"rollouts.num_slots={slots}"), 1)[0].groups for slots in (3, 0))
    assert [[one.text for one in each.rollouts] for each in few] == [
        [one.text for one in each.rollouts] for each in many
    ]


@pytest.mark.parametrize("parts", WAYS_TO_STEP)
def test_a_run_that_is_resumed_goes_on_as_if_it_had_not_stopped(tmp_path: Path, parts: tuple[str, ...]) -> None:
    wanted = check_resumed(lambda: trainer_of(*parts), tmp_path)
    assert sum(line["tokens/given"] for line in wanted) > 0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("options.trace.at=[16]",), r"look of systems = 'trace' is shown .* 16 tokens, .*max_new_tokens = 16"),
        (("rollouts.num_rollouts=7",), r"options\.trace\.more = 1 makes rollouts\.num_rollouts = 7 into 3\.5 roots"),
        (("rollouts.num_rollouts=2",), r"num_rollouts = 2 into 1 roots .* 2 \.\. options\.trace\.most = 16"),
        (
            ("task.environment=environments:echo",),
            r"look of systems = 'trace' wants that a rollout is written in one go",
        ),
    ],
)
def test_what_cannot_be_is_one_line(overrides: tuple[str, ...], message: str) -> None:
    check_refused(message, *TRACE, *overrides)


def test_where_no_root_has_a_node_the_others_begin_with_none_of_its_tokens() -> None:
    """They are asked once, and know their root; nothing is shared."""
    stops = "rollouts.stop_strings=['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', '=', '+']"
    [result] = steps(trainer_of("options.trace.at=[11]", "rollouts.max_new_tokens=12", stops), 1)
    for found in result.groups:
        roots, rest = found.rollouts[: found.num_first], found.rollouts[found.num_first :]
        assert len(roots) == len(rest) and all(one.parent is None for one in roots)
        assert {one.parent for one in rest} == {Parent(0, 0)} and all(one.num_shared == 0 for one in rest)
