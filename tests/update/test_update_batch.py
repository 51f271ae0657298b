import itertools
from collections.abc import Sequence
from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import make_rows

import made
from podsrl.errors import UsageError
from podsrl.types import Group, Rollout, Sample, Selection
from podsrl.update.batch import Batch, make_batch, to_samples
from podsrl.update.micro_batches import micro_batches


def completion(tokens: tuple[int, ...], logprobs: tuple[float, ...] | None = None) -> Rollout:
    return made.completion(tokens, logprobs=tuple(-float(token) for token in tokens) if logprobs is None else logprobs)


def group_of(name: str, *lengths: int) -> Group:
    """Rollout i is `lengths[i]` times the token i."""
    rollouts = (completion((i,) * length) for i, length in enumerate(lengths))
    return made.group(name, *rollouts, prompt_ids=(5, 6))


def batch_from(
    prompts: Sequence[tuple[int, ...]],
    completions: Sequence[Rollout],
    advantages: Sequence[float | tuple[float, ...]],
    pad_token_id: int = 0,
) -> Batch:
    samples = [
        Sample(group_id="g", prompt_ids=prompt, rollout=done, advantage=advantage)
        for prompt, done, advantage in zip(prompts, completions, advantages, strict=True)
    ]
    return make_batch(samples, pad_token_id=pad_token_id)


def batch_of(lengths: list[int]) -> Batch:
    """Row i is one prompt token i + 1 and then lengths[i] - 1 times the same."""
    rows = [completion((i + 1,) * (length - 1)) for i, length in enumerate(lengths)]
    return batch_from([(i + 1,) for i in range(len(lengths))], rows, [float(i) for i in range(len(lengths))])


def test_rows_are_laid_out_prompt_first_and_padded_on_the_right() -> None:
    batch = batch_from([(5, 6), (8,)], [completion((7,)), completion((9, 2, 3))], [0.5, -1.0], pad_token_id=4)
    assert batch.input_ids.tolist() == [[5, 6, 7, 4], [8, 9, 2, 3]]
    assert batch.attention_mask.int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert batch.target_mask.int().tolist() == [[0, 0, 1, 0], [0, 1, 1, 1]]
    assert batch.behaviour_logprobs.tolist() == [[0, 0, -7, 0], [0, -9, -2, -3]]
    assert batch.advantages.tolist() == [0.5, -1.0]
    assert (batch.num_sequences, batch.num_tokens) == (2, 4)
    dtypes = [value.dtype for field in fields(batch) if (value := getattr(batch, field.name)) is not None]
    floats = torch.float32
    wanted = [torch.int64, torch.bool, torch.bool, floats, floats, torch.int64, floats, torch.int64]
    assert dtypes == wanted
    assert batch.group.tolist() == [0, 1]


def test_given_tokens_are_input_and_no_targets() -> None:
    """The middle token of one row, and the first two of another whose advantages are one per token."""
    middle = made.completion((7, 8, 9), logprobs=(-1.0, 0.0, -3.0), given=((1, 2),))
    hinted = made.completion((2, 3, 4), logprobs=(0.0, 0.0, -4.0), given=((0, 2),))
    batch = batch_from([(5, 6), (5,)], [middle, hinted], [0.5, (1.0, 2.0, 3.0)])
    assert batch.input_ids.tolist() == [[5, 6, 7, 8, 9], [5, 2, 3, 4, 0]]
    assert batch.completion_mask.int().tolist() == [[0, 0, 1, 1, 1], [0, 1, 1, 1, 0]]
    assert batch.target_mask.int().tolist() == [[0, 0, 1, 0, 1], [0, 0, 0, 1, 0]]
    assert batch.behaviour_logprobs.tolist() == [[0, 0, -1, 0, -3], [0, 0, 0, -4, 0]]
    assert batch.advantages.tolist() == [[0, 0, 0.5, 0.5, 0.5], [0, 1, 2, 3, 0]]
    assert batch.num_tokens == 3
    [row] = [piece for piece in micro_batches(batch, 1) if piece.input_ids[0, 0] == 5 and piece.input_ids[0, 1] == 2]
    assert row.given_mask is not None and row.given_mask.int().tolist() == [[0, 1, 1, 0]]


def test_a_pad_token_inside_a_row_is_a_token_like_any_other() -> None:
    batch = batch_from([(0, 0)], [completion((0, 1))], [1.0])
    assert batch.attention_mask.all() and batch.target_mask.int().tolist() == [[0, 0, 1, 1]]


def test_a_completion_without_tokens_is_a_row_without_targets() -> None:
    batch = batch_from([(5, 6), (5,)], [completion(()), completion((7,))], [1.0, 1.0])
    assert batch.target_mask.int().tolist() == [[0, 0], [0, 1]]


def test_no_rows_make_an_empty_batch() -> None:
    batch = make_batch([], pad_token_id=0)
    assert (batch.num_sequences, batch.num_tokens, micro_batches(batch, 5)) == (0, 0, [])
    none_of_two = batch_of([2, 3]).rows(torch.tensor([], dtype=torch.int64))
    shapes = [getattr(none_of_two, field.name).shape for field in fields(Batch)[:-3]]
    assert shapes == [(0, 0)] * 4 + [(0,)] * 4


@pytest.mark.parametrize(
    ("prompts", "row", "advantage", "message"),
    [
        ([(1,), ()], completion((2,)), 1.0, "prompt of row 1 is empty"),
        ([(1,), (1,)], completion((2, 3)), (0.5,), "row 0 has 1 advantages for the 2 tokens"),
        ([(1,), (1,)], completion((2, 3), (-1.0,)), 1.0, "one log-prob per token"),
        ([(1,), (1,)], completion((2,), (float("nan"),)), 1.0, "NaN or infinite"),
        ([(1,), (1,)], completion((2,), (-float("inf"),)), 1.0, "NaN or infinite"),
    ],
)
def test_rollouts_that_cannot_be_trained_on_are_refused(
    prompts: list[tuple[int, ...]], row: Rollout, advantage: float | tuple[float, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        batch_from(prompts, [row] * len(prompts), [advantage] * len(prompts))


def test_micro_batches_take_the_longest_rows_first_and_stay_within_the_budget() -> None:
    pieces = micro_batches(batch_of([5, 2, 3, 2, 3]), 6)
    assert [piece.input_ids.tolist() for piece in pieces] == [
        [[1, 1, 1, 1, 1]],
        [[3, 3, 3], [5, 5, 5]],
        [[2, 2], [4, 4]],
    ]
    assert [piece.advantages.tolist() for piece in pieces] == [[0.0], [2.0, 4.0], [1.0, 3.0]]
    assert pieces[1].behaviour_logprobs.tolist() == [[0, -3, -3], [0, -5, -5]]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=20), st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_micro_batches_hold_every_row_once_within_the_budget(lengths: list[int], budget: int) -> None:
    batch = batch_of(lengths)
    pieces = micro_batches(batch, budget)
    seen = [int(row) for piece in pieces for row in piece.advantages]
    assert seen == sorted(range(len(lengths)), key=lambda i: -lengths[i])
    for piece in pieces:
        rows, width = piece.input_ids.shape
        assert rows * width <= budget or rows == 1
        assert piece.attention_mask.any(0).all()  # no column of padding alone
        for index, ids, real in zip(piece.advantages, piece.input_ids, piece.attention_mask, strict=True):
            assert ids[real].tolist() == [int(index) + 1] * lengths[int(index)]
    for left, right in itertools.pairwise(pieces):  # no piece could have taken its neighbour's first row
        assert (left.num_sequences + 1) * left.input_ids.shape[1] > budget or right.num_sequences == 0


def test_a_budget_under_one_is_refused() -> None:
    with pytest.raises(UsageError, match="micro_batch_tokens = 0"):
        micro_batches(batch_of([2]), 0)


def test_cutting_does_not_change_the_batch() -> None:
    batch, fresh = make_rows(), make_rows()
    for piece in micro_batches(batch, 20):
        piece.input_ids.zero_()
    assert torch.equal(batch.input_ids, fresh.input_ids)


def test_an_advantage_per_token_lies_on_the_completion_and_one_number_fills_it() -> None:
    rows = [completion((7, 8)), completion((9, 2, 3))]
    batch = batch_from([(5, 6), (8,)], rows, [(0.5, -1.0), 2.0])
    assert batch.advantages.tolist() == [[0, 0, 0.5, -1.0], [0, 2.0, 2.0, 2.0]]
    assert batch.advantages.dtype == torch.float32
    assert batch.rows(torch.tensor([1])).advantages.tolist() == [[0, 2.0, 2.0, 2.0]]
    assert batch_from([(5,), (8, 9)], rows, [(0.0, 0.0), (0.0, 0.0, 1.0)]).has_advantage().tolist() == [False, True]
    assert batch_from([(5,), (8, 9)], rows, [0.0, -1.0]).has_advantage().tolist() == [False, True]


def test_samples_are_the_kept_rollouts_in_the_order_of_groups_and_kept() -> None:
    groups = [group_of("a", 1, 2, 3), group_of("b", 1, 1), group_of("c", 2, 1)]
    selections = [
        Selection(group_id="a", kept=(1, 2), dropped={0: "not_selected"}),
        Selection(group_id="b", kept=(), dropped={0: "group_too_small", 1: "invalid"}),
        Selection(group_id="c", kept=(0, 1), dropped={}),
    ]
    per_token = torch.tensor([[0.5, 1.0, 0.0], [0.25, 0.25, 0.25]])
    samples = to_samples(groups, selections, [per_token, torch.zeros(0), torch.tensor([0.1, -0.1])])
    assert [sample.group_id for sample in samples] == ["a", "a", "c", "c"]
    assert [sample.rollout.token_ids for sample in samples] == [(1, 1), (2, 2, 2), (0, 0), (1,)]
    assert [sample.advantage for sample in samples[:2]] == [(0.5, 1.0), (0.25, 0.25, 0.25)]
    assert torch.tensor([sample.advantage for sample in samples[2:]]).tolist() == torch.tensor([0.1, -0.1]).tolist()
    assert samples[0].prompt_ids == (5, 6)
    assert [sample.has_advantage for sample in samples] == [True] * 4


def test_rows_of_equal_prompts_are_one_group_whether_or_not_they_are_one_object() -> None:
    prompts = [tuple(ids) for ids in ([5, 6], [5, 6], [5], [5, 6])]
    assert prompts[0] is not prompts[1]
    assert batch_from(prompts, [completion((7,))] * 4, [1.0] * 4).group.tolist() == [0, 0, 1, 2]


def test_a_sample_names_the_chunk_that_it_was_chosen_in() -> None:
    group = group_of("a", 1, 1, 1, 1)
    chosen = Selection(group_id="a", kept=(0, 2, 3), dropped={1: "not_selected"}, chunks=((0, 1), (2, 3)))
    samples = to_samples([group], [chosen], [torch.tensor([0.0, 1.0, -1.0])])
    assert [(sample.rollout.token_ids, sample.chunk) for sample in samples] == [((0,), 0), ((2,), 1), ((3,), 1)]
    assert [sample.has_advantage for sample in samples] == [False, True, True]
