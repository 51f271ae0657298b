"""LATR: its tree against one grown by hand from single rollouts, likeness against definitions, and whole steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loops import each
from podsrl.control import Steering
from podsrl.generate import End, Engine, Live, Request, Sampling
from podsrl.run.step.trainer import Trainer
from podsrl.systems.latr import (
    BIRTH,
    LINE,
    Ambiguous,
    alive,
    common_subsequence,
    common_suffix,
    edit_distance,
    is_alike,
)
from podsrl.types import Notes, Rollout
from runs import assert_same_weights, config_of
from small_models import new_model
from tests.systems.whole_steps import WAYS_TO_STEP, check_refused, check_resumed, forbid_draws, lines, steps

# --- the tree: V = 4, T = 6 ---

SAMPLING = Sampling(max_new_tokens=6, stop_token_ids=(1,))


@cache
def small_model() -> Any:
    return new_model("qwen2", vocab_size=4, initializer_range=0.2)


@dataclass(frozen=True)
class Node:
    """A rollout of a tree that is grown by hand."""

    tokens: tuple[int, ...]
    first: int = 0
    """Of its tokens that its source does not have."""
    late: int = 0
    """Steps that it is behind the root."""
    given: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Rule:
    prompt: tuple[int, ...]
    seed: int
    least: float
    gap: float
    is_released: bool

    def ambiguous(self, tokens: tuple[int, ...]) -> tuple[int, int] | None:
        """The two likeliest tokens behind these, if there is a branch."""
        with torch.inference_mode():
            odds = small_model()(torch.tensor([self.prompt + tokens])).logits[0, -1].softmax(-1).tolist()
        one, two = sorted(range(4), key=lambda word: -odds[word])[:2]
        is_near = odds[one] - odds[two] > self.gap if self.is_released else odds[one] - odds[two] < self.gap
        return (one, two) if odds[two] > self.least and is_near and 1 not in (one, two) else None

    def alone(self, index: int, tokens: tuple[int, ...] = (), given: tuple[tuple[int, int], ...] = ()) -> Any:
        """What a rollout of this index draws behind these tokens, without any watch."""
        begun = Rollout(
            group_id="g",
            status="open",
            index=index,
            token_ids=tokens,
            logprobs=(0.0,) * len(tokens),
            version=0,
            given=given,
        )
        starts = {index: begun} if tokens else {}
        request = Request("q", self.prompt, 1, SAMPLING, first_index=index, starts=starts)
        [found] = Engine(small_model(), seed=self.seed).generate([request])
        return found.token_ids

    def tree(self, size: int) -> list[Node]:
        """Step by step, and in a step by index, every place that is ambiguous gets its branch."""
        tree = [Node(self.alone(0))]
        for clock, place in ((clock, place) for clock in range(40) for place in range(size)):
            if place >= len(tree) or len(tree) == size:
                continue
            node = tree[place]
            count = clock - node.late  # tokens that it has, the newest of which was drawn in the step before
            if not node.first < count < len(node.tokens):
                continue
            pair = self.ambiguous(node.tokens[: count - 1])
            if pair is not None:
                other = pair[1] if node.tokens[count - 1] == pair[0] else pair[0]
                given = (*node.given, (count - 1, count))
                whole = self.alone(len(tree), (*node.tokens[: count - 1], other), given)
                tree.append(Node(whole, first=count, late=clock - count + 1, given=given))
        return tree


def watching(size: int, **options: Any) -> Steering:
    watch = Steering(["latr"], {"latr": options})
    watch._parts.restore({"latr": {"size": size}})
    return watch


def live(num_tokens: list[int]) -> Live:
    """A rollout for each count, all on one row."""
    return Live(
        keys=[("q", i) for i in range(len(num_tokens))],
        num_tokens=num_tokens,
        random_keys=np.zeros(len(num_tokens), np.uint64),
        row_of=torch.zeros(len(num_tokens), dtype=torch.int64),
        logits=torch.zeros(1, 4),
        hidden=torch.zeros(1, 2),
        notes=[Notes()] * len(num_tokens),
        tokens=lambda key: np.zeros(0, np.int32),
        stop_ids=frozenset(),
    )


@each("seed", range(30))
def test_the_tree_is_that_of_the_rule(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rule = Rule(tuple(rng.choice([0, 2, 3], 3).tolist()), seed, 0.1, 0.3, seed % 3 == 2)
    size = int(rng.integers(2, 9))
    watch = watching(size, until=5, least=0.1, gap=0.3, edits=0.0, as_released=rule.is_released)
    found = Engine(small_model(), seed=seed).generate([Request("q", rule.prompt, 1, SAMPLING)], watch=watch)
    found = sorted(found, key=lambda one: one.index)
    expected = rule.tree(size)
    assert [(one.token_ids, one.given) for one in found] == [(node.tokens, node.given) for node in expected]


def test_a_branch_that_is_like_its_source_ends_with_its_branches_and_makes_room() -> None:
    """A branch of three tokens that has one in common with its source is like it where `rouge` is 0."""
    num_ended = 0
    for seed in range(8):
        request, counts = Request("q", (2, 3, 0), 1, Sampling(max_new_tokens=12, stop_token_ids=())), []
        for rouge in (1.0, 0.0):
            watch = watching(3, until=11, least=0.1, gap=0.5, look=(3,), edits=0.0, rouge=rouge)
            found = list(Engine(small_model(), seed=seed).generate([request], watch=watch))
            ended = [one for one in found if one.status == "pruned"]
            counts.append(len(found) - len(ended))
            num_ended += len(ended)
            assert not (rouge and ended)
            ages = [len(one.token_ids) - one.given[-1][0] for one in ended if len(one.given) == 1]
            assert ages == [3] * len(ages) and all(one.index > 0 for one in ended)
        assert max(counts) <= 3
    assert num_ended > 5


def test_branches_of_a_branch_end_with_it() -> None:
    part = Ambiguous(until=9, look=(2,), edits=1.0)
    part.restore({"size": 9})
    keys = [("q", index) for index in range(5)]
    places = [(0, []), (1, [0]), (2, [0, 1]), (2, [0]), (2, [0, 3])]
    notes = [Notes({BIRTH: [birth], LINE: line}) for birth, line in places]
    tokens = {0: [5, 6, 7, 8], 1: [5, 0, 7], 2: [5, 0, 1], 3: [5, 6, 0], 4: [5, 6, 1]}
    shown = live([len(tokens[i]) for i in range(5)])
    shown = replace(shown, keys=keys, notes=notes, tokens=lambda key: np.array(tokens[key[1]]))
    assert part.look(shown) == [End(("q", 1)), End(("q", 2))]  # one edit of two tokens, and what branched from it
    assert part._trees == {"q": [-1, 2]}


# --- likeness ---


def edits_by_definition(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    if not one or not other:
        return len(one) + len(other)
    rest = edits_by_definition(one[1:], other[1:]) + (one[0] != other[0])
    return min(rest, edits_by_definition(one[1:], other) + 1, edits_by_definition(one, other[1:]) + 1)


def parts(tokens: tuple[int, ...], size: int) -> set[tuple[int, ...]]:
    return {tuple(tokens[i] for i in places) for places in combinations(range(len(tokens)), size)}


def test_likeness_is_as_defined_for_all_pairs_of_four_tokens() -> None:
    for one, other in product(product(range(3), repeat=4), product(range(2), repeat=4)):
        assert edit_distance(one, other) == edits_by_definition(one, other)
        sizes = range(5)
        assert common_subsequence(one, other) == max(k for k in sizes if parts(one, k) & parts(other, k))
        stands = [
            k
            for k in sizes
            for ending, whole in ((one, other), (other, one))
            if ending[4 - k :] in [whole[i : i + k] for i in range(5 - k)]
        ]
        assert common_suffix(one, other) == max(stands)
    assert is_alike((1, 2, 3, 4, 5), (9, 2, 3, 4, 5), 0.4, 1.0, 1.0) and not is_alike((1, 2), (3, 4), 0.4, 0.2, 0.5)
    assert is_alike((1, 2, 3, 4), (4, 9, 9, 9), 0.0, 0.2, 1.0) and is_alike((1, 9, 2, 3), (4, 1, 2, 3), 0.0, 1.0, 0.5)
    assert not is_alike((1, 2), (1, 2), 0.0, 1.0, 1.0)


# --- steps ---

STEPS = ("rollouts.num_rollouts=6", "rollouts.max_new_tokens=20", "select.num_kept=3", "task.digits=1")
LATR = ("systems=latr", "options.latr.until=18", "options.latr.least=0.01")
WIDE = (*LATR, "options.latr.gap=0.9", "options.latr.look=[3,4]", "options.latr.rouge=0")


def trainer_of(*overrides: str) -> Trainer:
    return Trainer(config_of(*STEPS, *overrides))


def test_where_nothing_can_branch_a_run_is_the_plain_one_and_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = trainer_of()
    wanted = lines(steps(plain, 2))
    forbid_draws(monkeypatch)
    neutral = trainer_of(*LATR, "options.latr.least=1")
    assert lines(steps(neutral, 2)) == wanted
    assert_same_weights(neutral, plain)


@pytest.mark.parametrize("slots", [0, 5])
def test_every_group_has_n_rollouts_that_live_of_which_a_share_is_a_tree(slots: int) -> None:
    trainer = trainer_of(*WIDE, "options.latr.shares=[[0,1],[1,0.67],[2,0]]", f"rollouts.num_slots={slots}")
    most = []
    for result in steps(trainer, 3):
        trees = []
        for group in result.groups:
            assert alive(group) == 6
            assert [one.index for one in group.rollouts] == list(range(len(group.rollouts)))
            forks = [one for one in group.rollouts if one.parent is not None]
            assert all(one.given for one in forks)
            trees.append(1 + sum(not one.is_pruned for one in forks))
        most.append(max(trees))
    assert 1 < most[0] <= 6 and most[1:] == [4, 1]


@pytest.mark.parametrize("parts", WAYS_TO_STEP)
def test_a_run_that_is_resumed_goes_on_as_if_it_had_not_stopped(tmp_path: Path, parts: tuple[str, ...]) -> None:
    wanted = check_resumed(lambda: trainer_of(*WIDE, "seed=3", *parts), tmp_path)
    assert sum(line["rollouts/pruned"] for line in wanted) > 0 and sum(line["tokens/given"] for line in wanted) > 0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("options.latr.until=20",), r"look of systems = 'latr' is shown .* 20 tokens, .*max_new_tokens = 20"),
        (("rollouts.stop_strings=['a']",), r"systems = 'latr' wants that no stop string .*stop_strings = \['a'\]"),
        (("rollouts.num_rollouts=1",), r"rollouts\.num_rollouts = 1"),
        (("options.latr.shares=[[1,0.5]]",), r"options\.latr\.shares = .*the first of them 0"),
    ],
)
def test_what_cannot_be_is_one_line(overrides: tuple[str, ...], message: str) -> None:
    check_refused(message, *STEPS, *LATR, *overrides)
