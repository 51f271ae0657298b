"""Records in, selections out: who is kept, and why the others are not."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

import made
from podsrl.errors import UsageError
from podsrl.select import (
    GroupRule,
    SelectionRule,
    keep_all,
    max_reward,
    max_variance,
    random,
    resolve_rule,
    select_groups,
    try_rule,
)
from podsrl.types import Group, Selection


def group_of(name: str, *rewards: float | None) -> Group:
    """A group with these rewards; None is an invalid rollout."""
    invalid = {"invalid_reason": "the reward function returned None"}
    rollouts = (
        made.rollout(math.nan, index=i, **invalid) if reward is None else made.rollout(reward, index=i)
        for i, reward in enumerate(rewards)
    )
    return made.group(name, *rollouts)


class Recorder:
    """max_variance that remembers the shapes it was called with."""

    def __init__(self) -> None:
        self.shapes: list[list[int]] = []

    def __call__(
        self, rewards: torch.Tensor, num_kept: int, *, generator: torch.Generator | None = None
    ) -> torch.Tensor:
        self.shapes.append(list(rewards.shape))
        return max_variance(rewards, num_kept)


def test_a_group_keeps_its_extremes_and_says_why_the_others_go() -> None:
    (selection,) = select_groups([group_of("a", 0.0, 1.0, 0.5, 0.25)], max_variance, 2)
    assert selection.group_id == "a"
    assert selection.kept == (0, 1)
    assert selection.dropped == {2: "not_selected", 3: "not_selected"}


def test_invalid_rollouts_are_dropped_and_indices_still_point_into_the_group() -> None:
    (selection,) = select_groups([group_of("a", None, 0.0, 0.4, None, 0.6, 1.0)], max_variance, 2)
    assert selection.kept == (1, 5)
    assert selection.dropped == {0: "invalid", 2: "not_selected", 3: "invalid", 4: "not_selected"}


def test_a_group_with_no_more_valid_rollouts_than_asked_for_keeps_them_all() -> None:
    short, exact = select_groups([group_of("a", 1.0, None, 1.0, None), group_of("b", 0, 1, 2, None)], max_reward, 3)
    assert (short.kept, short.dropped) == ((0, 2), {1: "invalid", 3: "invalid"})
    assert (exact.kept, exact.dropped) == ((0, 1, 2), {3: "invalid"})


def test_a_group_with_under_two_valid_rollouts_keeps_none() -> None:
    one, none, empty = select_groups(
        [group_of("a", None, 1.0, None), group_of("b", None, None), group_of("c")], max_variance, 2
    )
    assert (one.kept, one.dropped) == ((), {0: "invalid", 1: "group_too_small", 2: "invalid"})
    assert (none.kept, none.dropped) == ((), {0: "invalid", 1: "invalid"})
    assert (empty.kept, empty.dropped) == ((), {})


def test_keep_all_keeps_all_of_every_group_whatever_its_size() -> None:
    small, large = select_groups([group_of("a", 0, None), group_of("b", *range(9), None)], keep_all, 3)
    assert (small.kept, large.kept, large.dropped) == ((), tuple(range(9)), {9: "invalid"})


def test_groups_of_one_size_go_through_the_rule_in_one_call_and_come_back_in_order() -> None:
    rule = Recorder()
    groups = [group_of("a", 1, 2, 3, 4, 9, 0), group_of("b", 0, 5, 6, 9), group_of("c", 0, None, 6, 9, 5)]
    groups += [group_of("d", 9, 1, 2, 0), group_of("e", 1, 2), group_of("f", None)]
    selections = select_groups(groups, rule, 2)
    assert rule.shapes == [[3, 4], [1, 6]]
    assert [s.group_id for s in selections] == list("abcdef")
    assert [s.kept for s in selections] == [(4, 5), (0, 3), (0, 3), (0, 3), (0, 1), ()]


def test_kept_and_dropped_partition_every_group() -> None:
    draw = np.random.default_rng(0)
    groups = [
        group_of(str(p), *(None if draw.random() < 0.2 else float(draw.integers(3)) for _ in range(draw.integers(9))))
        for p in range(200)
    ]
    for rule in (max_variance, random):
        for group, selection in zip(groups, select_groups(groups, rule, 3), strict=True):
            assert sorted([*selection.kept, *selection.dropped]) == list(range(len(group.rollouts)))
            assert list(selection.kept) == sorted(selection.kept)
            num_valid = sum(rollout.is_valid for rollout in group.rollouts)
            assert len(selection.kept) == (min(3, num_valid) if num_valid >= 2 else 0)
            assert all(group.rollouts[i].is_valid for i in selection.kept)


def test_a_valid_rollout_without_a_finite_reward_is_named() -> None:
    with pytest.raises(UsageError, match="group 'b', rollout 1: the reward is inf"):
        select_groups([group_of("a", 0, 1, 2), group_of("b", 0, math.inf, 2)], max_variance, 2)


def test_num_kept_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="num_kept = 0; wanted at least 1"):
        select_groups([], max_variance, 0)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([[0, 1, 2]], r"'of_my_own' returned the shape \[1, 3\]; wanted \[1, 2\] int64"),
        ([0, 1], r"the shape \[2\]"),
        ([[1, 1]], r"returned \[1, 1\] for one group; wanted .* distinct"),
        ([[0, 3]], r"returned \[0, 3\] for one group; wanted .* 0 .. 2"),
        ([[-1, 0]], r"returned \[-1, 0\]"),
        ([[0.0, 1.0]], "torch.float32; wanted"),
        ([[True, False]], "torch.bool; wanted"),
        (None, "returned a NoneType; wanted"),
        ("01", "returned a str; wanted"),
    ],
)
def test_a_rule_with_a_bad_answer_is_named(answer: object, message: str) -> None:
    def of_my_own(rewards: torch.Tensor, num_kept: int, *, generator: torch.Generator | None = None) -> object:
        return answer

    rule: SelectionRule = of_my_own  # type: ignore[assignment]  # a wrong answer is what is tested
    with pytest.raises(UsageError, match=message):
        select_groups([group_of("a", 0, 1, 2)], rule, 2)


def test_the_answer_of_a_rule_is_put_in_ascending_order() -> None:
    def backwards(rewards: torch.Tensor, num_kept: int, *, generator: torch.Generator | None = None) -> torch.Tensor:
        return torch.tensor([[2, 0]])

    assert select_groups([group_of("a", 0, 1, 2)], backwards, 2)[0].kept == (0, 2)


def test_each_chunk_is_chosen_from_as_if_it_were_a_group() -> None:
    rule = Recorder()
    groups = [group_of("a", 0, 1, 2, 3, None, 5), group_of("b", 9, 0, 4)]
    (first, second) = select_groups(groups, rule, 1, num_chunks=3)
    assert (first.kept, first.chunks) == ((0, 2), ((0, 1), (2, 3), (4, 5)))
    assert first.dropped == {1: "not_selected", 3: "not_selected", 4: "invalid", 5: "group_too_small"}
    assert (second.kept, second.chunks) == ((), ((0,), (1,), (2,)))
    assert set(second.dropped.values()) == {"group_too_small"}
    assert rule.shapes == [[2, 2]]


def test_chunks_draw_as_the_same_number_of_small_groups_do() -> None:
    rewards = [[float(i % 5) for i in range(p, p + 12)] for p in range(4)]
    chunked = select_groups(
        [group_of(str(p), *row) for p, row in enumerate(rewards)],
        random,
        2,
        num_chunks=3,
        generator=torch.Generator().manual_seed(0),
    )
    small = select_groups(
        [group_of(f"{p}{c}", *row[4 * c : 4 * c + 4]) for p, row in enumerate(rewards) for c in range(3)],
        random,
        2,
        generator=torch.Generator().manual_seed(0),
    )
    for p, selection in enumerate(chunked):
        assert selection.kept == tuple(4 * c + i for c in range(3) for i in small[3 * p + c].kept)


@pytest.mark.parametrize("num_chunks", [4, 7])
def test_a_number_of_chunks_that_does_not_divide_a_group_is_an_error(num_chunks: int) -> None:
    with pytest.raises(UsageError, match=f"num_chunks = {num_chunks} does not divide the 6 rollouts of group 'a'"):
        select_groups([group_of("a", 0, 1, 2, 3, 4, 5)], max_variance, 2, num_chunks=num_chunks)
    with pytest.raises(UsageError, match=f"num_chunks = {num_chunks} does not divide the 0 rollouts of group 'a'"):
        select_groups([group_of("a")], max_variance, 2, num_chunks=num_chunks)


def test_a_pruned_rollout_is_dropped_as_pruned() -> None:
    group = group_of("a", 0, None, 2, 3)
    pruned = replace(group.rollouts[1], **made.ended("pruned"))
    (selection,) = select_groups([replace(group, rollouts=(group.rollouts[0], pruned, *group.rollouts[2:]))], random, 3)
    assert (selection.kept, selection.dropped) == ((0, 2, 3), {1: "pruned"})


def shortest_and_longest(
    groups: Sequence[Group], num_kept: int, *, generator: torch.Generator | None = None, margin: int = 0
) -> list[list[int]]:
    """All rollouts whose length is within `margin` of the group's shortest or longest."""
    kept = []
    for group in groups:
        lengths = [len(rollout.token_ids) for rollout in group.rollouts]
        ends = min(lengths) + margin, max(lengths) - margin
        kept.append([i for i, length in enumerate(lengths) if length <= ends[0] or length >= ends[1]])
    return kept


def with_lengths(name: str, *lengths: int | None) -> Group:
    """A group whose rollouts have these numbers of tokens; None is an invalid one."""
    group = group_of(name, *(None if length is None else 0.5 for length in lengths))
    return replace(
        group,
        rollouts=tuple(
            replace(rollout, token_ids=(2,) * (length or 1))
            for rollout, length in zip(group.rollouts, lengths, strict=True)
        ),
    )


def test_a_rule_of_groups_goes_by_anything_and_keeps_as_many_as_it_likes() -> None:
    groups = [with_lengths("a", None, 5, 1, 3, 9), with_lengths("b", 2, None), with_lengths("c", 4, 4, 4)]
    first, second, third = select_groups(groups, shortest_and_longest, 2)
    assert (first.kept, first.dropped) == ((2, 4), {0: "invalid", 1: "not_selected", 3: "not_selected"})
    assert (second.kept, second.dropped) == ((), {0: "group_too_small", 1: "invalid"})
    assert third.kept == (0, 1, 2)
    wide = resolve_rule(f"{__name__}:shortest_and_longest", {"margin": 2})
    assert select_groups(groups[:1], wide, 2)[0].kept == (2, 3, 4)
    with pytest.raises(UsageError, match=r"select.options.margin = 0.5: "):
        resolve_rule(f"{__name__}:shortest_and_longest", {"margin": 0.5})


def test_a_rule_of_groups_sees_each_chunk_as_a_group_and_may_compare_them() -> None:
    seen: list[list[int]] = []

    def two_or_all(
        groups: Sequence[Group], num_kept: int, *, generator: torch.Generator | None = None
    ) -> list[Selection]:
        """All of the group with the longest completion, two of the others."""
        seen.append([len(group.rollouts) for group in groups])
        longest = [max(len(rollout.token_ids) for rollout in group.rollouts) for group in groups]
        kept = [
            tuple(range(len(group.rollouts))) if own == max(longest) else (0, 1)
            for group, own in zip(groups, longest, strict=True)
        ]
        return [Selection(group_id=g.id, kept=k, dropped={}) for g, k in zip(groups, kept, strict=True)]

    group = with_lengths("a", 1, 2, 1, None, 7, 3)
    (selection,) = select_groups([group], two_or_all, 2, num_chunks=2)
    assert seen == [[3, 2]]
    assert (selection.kept, selection.chunks) == ((0, 1, 4, 5), ((0, 1, 2), (3, 4, 5)))
    assert selection.dropped == {2: "not_selected", 3: "invalid"}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([[0, 1]], "returned 1 answers; wanted a list of 2: the kept indices of each group"),
        (None, "returned a NoneType; wanted a list of 2"),
        ([[0, 1], [2]], r"returned \[2\] for group 'b'; wanted at least 2 distinct indices 0 .. 2"),
        ([[0, 1], [1, 1]], r"returned \[1, 1\] for group 'b'"),
        ([[0, 3], [0, 1]], r"returned \[0, 3\] for group 'a'"),
        ([[0, 1], [-1, 1]], r"returned \[-1, 1\] for group 'b'"),
        ([[0, 1], [0.0, 1.0]], r"returned \[0.0, 1.0\] for group 'b'"),
        ([[0, 1], None], "returned None for group 'b'"),
        ([torch.tensor([0, 1]), torch.tensor([0.5, 1])], "for group 'b'; wanted at least 2"),
    ],
)
def test_a_rule_of_groups_with_a_bad_answer_is_named(answer: object, message: str) -> None:
    def of_my_own(groups: Sequence[Group], num_kept: int, *, generator: torch.Generator | None = None) -> object:
        return answer

    rule: GroupRule = of_my_own  # type: ignore[assignment]  # a wrong answer is what is tested
    with pytest.raises(UsageError, match=f"^the selection rule 'of_my_own' .*{message}"):
        select_groups([group_of("a", 0, 1, 2), group_of("b", 0, 1, 2)], rule, 2)


def test_a_rule_of_groups_is_tried_on_made_up_rollouts() -> None:
    def by_answer(
        groups: Sequence[Group], num_kept: int, *, generator: torch.Generator | None = None
    ) -> list[list[int]]:
        raise LookupError("no such column")

    try_rule(shortest_and_longest, 4, 2)
    with pytest.raises(
        UsageError, match=r"'by_answer' raised LookupError: no such column \(test_select_groups.py, line"
    ):
        try_rule(by_answer, 4, 2)


def test_a_rule_is_tried_on_rewards_that_rise_from_0_to_1() -> None:
    """As rewards or as rollouts, with the sizes that the run will ask for, and a generator of its own."""
    seen: list[object] = []

    def of_rewards(
        rewards: torch.Tensor, num_kept: int, *, generator: torch.Generator | None = None
    ) -> list[list[int]]:
        assert rewards.dtype == torch.float64 and generator is not None
        seen.append((rewards.tolist(), num_kept, generator.initial_seed()))
        return [[0, 4]]

    def of_groups(
        groups: Sequence[Group], num_kept: int, *, generator: torch.Generator | None = None
    ) -> list[list[int]]:
        assert generator is not None
        [group] = groups
        seen.append(([[rollout.reward for rollout in group.rollouts]], num_kept, generator.initial_seed()))
        assert [rollout.parts for rollout in group.rollouts] == [{"correct": r.reward} for r in group.rollouts]
        assert [rollout.is_correct for rollout in group.rollouts] == [False] * 4 + [True]
        completions = group.rollouts
        assert [completion.index for completion in completions] == [0, 1, 2, 3, 4]
        assert [len(completion.token_ids) for completion in completions] == [1, 2, 3, 1, 2]
        assert [len(completion.logprobs) for completion in completions] == [1, 2, 3, 1, 2]
        assert {logprob < 0 for completion in completions for logprob in completion.logprobs} == {True}
        return [[0, 4]]

    try_rule(of_rewards, 5, 2)  # type: ignore[arg-type]  # an answer as a list is read too
    try_rule(of_groups, 5, 2)
    assert seen == [([[0.0, 0.25, 0.5, 0.75, 1.0]], 2, 0)] * 2


def test_a_rule_sees_rewards_that_differ_in_the_twelfth_digit() -> None:
    """In float32 both were 1, and of equal rewards the latest is kept."""
    (selection,) = select_groups([group_of("a", 1.0 + 1e-12, 1.0)], max_reward, 1)
    assert selection.kept == (0,)


def refuses(rewards: torch.Tensor, num_kept: int, *, generator: torch.Generator | None = None) -> torch.Tensor:
    raise UsageError(f"no {num_kept} of {rewards.shape[1]} here")


def test_a_users_error_of_a_rule_keeps_its_words() -> None:
    with pytest.raises(UsageError, match=r"^no 2 of 3 here$"):
        select_groups([group_of("a", 0, 1, 2)], refuses, 2)


class Asked(Recorder):
    """Also remembers how many it was asked to keep."""

    def __call__(
        self, rewards: torch.Tensor, num_kept: int, *, generator: torch.Generator | None = None
    ) -> torch.Tensor:
        super().__call__(rewards, num_kept)
        self.shapes[-1].append(num_kept)
        return max_variance(rewards, num_kept)


def test_a_share_is_of_each_groups_rollouts_and_the_rule_is_called_once_per_size_and_number() -> None:
    rule, draw = Asked(), np.random.default_rng(0)
    sizes = (8, 128, 12, 8, 3, 2, 128)
    groups = [group_of(str(p), *map(float, draw.integers(5, size=size))) for p, size in enumerate(sizes)]
    groups.append(group_of("broken", *[None] * 4, *map(float, range(8))))  # 12 rollouts, of which 8 count
    selections = select_groups(groups, rule, 0.25)
    # 0.25 · 8 = 2, 0.25 · 12 = 3; of 3 and 2 rollouts at least 2.
    assert [len(selection.kept) for selection in selections] == [2, 32, 3, 2, 2, 2, 32, 3]
    assert rule.shapes == [[1, 3, 2], [2, 8, 2], [1, 8, 3], [1, 12, 3], [2, 128, 32]]
    for group, selection, size in zip(groups, selections, (2, 32, 3, 2, 2, 2, 32, 3), strict=True):
        assert selection.kept == select_groups([group], max_variance, size)[0].kept


@pytest.mark.parametrize(
    ("share", "size", "kept"), [(0.9, 4, 4), (0.5, 5, 2), (0.5, 7, 4), (0.01, 300, 3), (0.3, 1, 0)]
)
def test_a_share_is_rounded_and_at_least_two(share: float, size: int, kept: int) -> None:
    (selection,) = select_groups([group_of("a", *range(size))], max_reward, share)
    assert len(selection.kept) == kept


def test_a_share_with_chunks_is_of_each_chunk() -> None:
    rewards = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
    (selection,) = select_groups([group_of("a", *rewards)], max_variance, 0.5, num_chunks=2)
    chunks = [select_groups([group_of("a", *half)], max_variance, 3)[0].kept for half in (rewards[:6], rewards[6:])]
    assert selection.kept == (*chunks[0], *(6 + i for i in chunks[1]))
    assert selection.chunks == (tuple(range(6)), tuple(range(6, 12)))


@pytest.mark.parametrize("share", [0.0, 1.0, 1.5, -0.25, math.nan])
def test_a_share_lies_between_0_and_1(share: float) -> None:
    with pytest.raises(UsageError, match=r"num_kept = .*; wanted at least 1 rollout of a group, or a share between"):
        select_groups([], max_variance, share)


def test_a_rule_of_groups_is_called_once_per_number_that_it_is_to_keep() -> None:
    calls: list[tuple[list[str], int]] = []

    def first_ones(groups: Sequence[Group], num_kept: int, *, generator: torch.Generator | None = None) -> list[range]:
        calls.append(([group.id for group in groups], num_kept))
        return [range(num_kept) for _ in groups]

    groups = [group_of("a", *range(16)), group_of("b", *range(8)), group_of("c", *range(16)), group_of("d", 1.0)]
    selections = select_groups(groups, first_ones, 0.5)
    assert calls == [(["b"], 4), (["a", "c"], 8)]
    assert [len(selection.kept) for selection in selections] == [8, 4, 8, 0]
    calls.clear()
    select_groups(groups, first_ones, 2)
    assert calls == [(["a", "b", "c"], 2)]
