import math
import statistics
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from made import group_of
from podsrl.errors import UsageError
from podsrl.types import Group, Selection
from podsrl.update.advantage import (
    ADVANTAGES,
    Advantage,
    group_advantages,
    kept_by_chunk,
    resolve_advantage,
    step_advantages,
    try_advantage,
)

ALL = sorted(ADVANTAGES)
groups_of_numbers = st.integers(2, 9).flatmap(
    lambda m: st.lists(st.lists(st.floats(-3, 3), min_size=m, max_size=m), min_size=1, max_size=4)
)


def close(actual: torch.Tensor, expected: list[float] | list[list[float]], tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual.double(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=tolerance)


def of_step(rewards_P_K: Sequence[Sequence[float]], advantage: Advantage) -> list[list[float]]:
    """Advantages of groups that kept everything."""
    groups = [group_of(str(i), *rewards) for i, rewards in enumerate(rewards_P_K)]
    selections = [Selection(group_id=group.id, kept=tuple(range(len(group.rollouts))), dropped={}) for group in groups]
    found = step_advantages(groups, selections, advantage)
    assert all(each.dtype == torch.float32 for each in found)
    return [each.tolist() for each in found]


def test_std_divides_by_the_sample_standard_deviation_of_each_group() -> None:
    # mean 1/2, std sqrt(4 * 0.25 / 3) = 0.577350; second group: mean 2, std 1.414214
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 2.0, 4.0]])
    close(group_advantages(rewards)[0], [0.865876, -0.865876, -0.865876, 0.865876])
    close(group_advantages(rewards)[1], [-1 / 1.414314, -1 / 1.414314, 0.0, 2 / 1.414314])


@pytest.mark.parametrize(
    ("normalize", "rewards", "wanted"),
    [
        ("none", [1.0, 0.0, 0.0, 0.0], [0.75, -0.25, -0.25, -0.25]),
        ("leave_one_out", [3.0, 0.0, 1.0], [2.5, -2.0, -0.5]),
        # the published formula: median 0.5, MAD 0.25, scale 0.25 + 1e-3
        ("median_mad", [0.0, 0.25, 0.5, 0.75, 1.0], [-1.992032, -0.996016, 0.0, 0.996016, 1.992032]),
        # MAD 0, floor half of std 0.5, scale 0.25 + 1e-3: about four and not a thousand
        ("median_mad", [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 3.984064, 0.0]),
        # centred .5 -.5 1.5 -1.5, sum of squares 5, std sqrt(5 / 3) = 1.290994
        ("batch_std", [[1.0, 0.0], [3.0, 0.0]], [[0.387268, -0.387268], [1.161804, -1.161804]]),
    ],
)
def test_each_advantage_gives_the_numbers_worked_out_by_hand(
    normalize: str, rewards: list[float] | list[list[float]], wanted: list[float] | list[list[float]]
) -> None:
    close(group_advantages(torch.tensor(rewards), normalize), wanted)


def test_median_mad_takes_the_lower_of_two_middle_rewards_so_one_row_is_an_exact_zero() -> None:
    # median 1, distances -1 0 1 2, MAD 1 (lower middle of 0 1 1 2), scale 1.001
    advantages = group_advantages(torch.tensor([0.0, 1.0, 2.0, 3.0]), "median_mad")
    close(advantages, [-0.999001, 0.0, 0.999001, 1.998002])
    assert advantages[1].item() == 0.0


def test_groups_of_unequal_size_keep_their_own_statistics_and_batch_std_whitens_over_all_their_rows() -> None:
    assert of_step([[1.0, 0.0], [3.0, 0.0, 1.0]], ADVANTAGES["leave_one_out"]) == [[1.0, -1.0], [2.5, -2.0, -0.5]]
    # centred .5 -.5 | 2 -1 -1, sum of squares 6.5, std sqrt(6.5 / 4) = 1.274755
    first, second = of_step([[1.0, 0.0], [3.0, 0.0, 0.0]], ADVANTAGES["batch_std"])
    assert first == pytest.approx([0.5 / 1.274855, -0.5 / 1.274855], abs=1e-6)
    assert second == pytest.approx([2 / 1.274855, -1 / 1.274855, -1 / 1.274855], abs=1e-6)


@pytest.mark.parametrize("normalize", ALL)
def test_equal_rewards_give_exact_zeros(normalize: str) -> None:
    for value in (0.1, 1.0 / 3.0, -7.3, 1e6 + 0.1):
        for m in (2, 3, 7, 16, 33):
            for dtype in (torch.float32, torch.float64):
                advantages = group_advantages(torch.full((2, m), value, dtype=dtype), normalize)
                assert torch.equal(advantages, torch.zeros(2, m, dtype=dtype))
    assert of_step([[0.1] * 3, [0.7] * 5], ADVANTAGES[normalize]) == [[0.0] * 3, [0.0] * 5]


@pytest.mark.parametrize("normalize", ALL)
def test_an_equal_group_stays_zero_beside_a_varied_one(normalize: str) -> None:
    advantages = group_advantages(torch.tensor([[0.1, 0.1, 0.1], [0.0, 1.0, 0.5]]), normalize)
    assert advantages[0].tolist() == [0.0, 0.0, 0.0]
    assert advantages[1].abs().sum() > 0


def slow_advantages(groups: list[list[float]], normalize: str) -> list[list[float]]:
    centred = [[r - statistics.fmean(g) for r in g] for g in groups]
    if normalize == "batch_std":
        scale = statistics.stdev([a for g in centred for a in g]) + 1e-4
        return [[a / scale for a in g] for g in centred]
    out = []
    for g, c in zip(groups, centred, strict=True):
        median = statistics.median_low(g)
        mad = statistics.median_low([abs(r - median) for r in g])
        out.append(
            {
                "std": [a / (statistics.stdev(g) + 1e-4) for a in c],
                "none": c,
                "leave_one_out": [r - (sum(g) - r) / (len(g) - 1) for r in g],
                "median_mad": [(r - median) / (max(mad, statistics.stdev(g) / 2) + 1e-3) for r in g],
            }[normalize]
        )
    return out


@given(groups_of_numbers, st.sampled_from(ALL))
@settings(max_examples=150, deadline=None)
def test_advantages_equal_a_slow_twin_on_plain_numbers(groups: list[list[float]], normalize: str) -> None:
    rewards = torch.tensor(groups, dtype=torch.float64)
    before = rewards.clone()
    close(group_advantages(rewards, normalize), slow_advantages(groups, normalize), 1e-8)
    assert torch.equal(rewards, before)


@given(groups_of_numbers)
@settings(max_examples=50, deadline=None)
def test_the_rank_of_the_leading_dimensions_does_not_matter(groups: list[list[float]]) -> None:
    rewards = torch.tensor(groups, dtype=torch.float64)
    one_by_one = torch.stack([group_advantages(group) for group in rewards])
    stacked = group_advantages(rewards[None, :, None])[0, :, 0]
    torch.testing.assert_close(stacked, one_by_one, rtol=1e-12, atol=0)


def test_integers_and_booleans_become_float32_and_floats_keep_their_dtype() -> None:
    assert group_advantages(torch.tensor([1, 0])).dtype == torch.float32
    assert group_advantages(torch.tensor([True, False])).dtype == torch.float32
    assert group_advantages(torch.tensor([1.0, 0.0], dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert group_advantages(torch.tensor([1.0, 0.0], dtype=torch.float64)).dtype == torch.float64


def test_float32_rewards_are_averaged_in_float64() -> None:
    # 16777217 is no float32, so a float32 sum of these would lose the 1
    advantages = group_advantages(torch.tensor([16777216.0, 1.0, 1.0]), "none")
    assert advantages[1].item() == pytest.approx(1 - 16777218 / 3, rel=1e-7)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_rewards_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(UsageError, match="NaN or inf"):
        group_advantages(torch.tensor([0.0, bad, 1.0]))


@pytest.mark.parametrize("shape", [(1,), (3, 1), (0,), ()])
def test_a_group_of_fewer_than_two_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match="at least 2"):
        group_advantages(torch.ones(shape))


def test_an_unknown_normalizer_names_the_nearest_known_one() -> None:
    with pytest.raises(UsageError, match="Did you mean 'median_mad'"):
        group_advantages(torch.tensor([0.0, 1.0]), "median_mat")
    with pytest.raises(UsageError, match=r"loss.advantage = 'std_' is no advantage. Did you mean 'std'\?"):
        resolve_advantage("std_")


def test_no_group_and_a_group_of_which_nothing_was_kept_give_no_advantage() -> None:
    assert step_advantages([], [], ADVANTAGES["batch_std"]) == []
    nothing = Selection(group_id="a", kept=(), dropped=dict.fromkeys(range(2), "group_too_small"))
    for advantage in ADVANTAGES.values():
        (found,) = step_advantages([group_of("a", 1.0, 0.0)], [nothing], advantage)
        assert found.tolist() == []


@pytest.mark.parametrize("normalize", ALL)
def test_a_chunk_is_normalised_as_a_group_of_its_own_to_the_last_bit(normalize: str) -> None:
    rewards = [0.1, 0.9, 0.3, 1.0, 0.0, 0.7, 0.2, 0.2]
    whole = [group_of("a", *rewards), group_of("b", 1.0, 0.3, 0.0, 0.0)]
    chosen = [
        Selection(group_id="a", kept=(0, 1, 3, 4, 5, 6), dropped={}, chunks=((0, 1, 2, 3), (4, 5, 6, 7))),
        Selection(group_id="b", kept=(0, 1, 2, 3), dropped={}, chunks=((0, 1), (2, 3))),
    ]
    chunked = step_advantages(whole, chosen, ADVANTAGES[normalize])
    alone = of_step([[0.1, 0.9, 1.0], [0.0, 0.7, 0.2], [1.0, 0.3], [0.0, 0.0]], ADVANTAGES[normalize])
    assert [each.tolist() for each in chunked] == [alone[0] + alone[1], alone[2] + alone[3]]


def test_the_kept_rollouts_of_each_chunk_are_places_in_kept() -> None:
    chosen = Selection(group_id="a", kept=(1, 2, 5), dropped={}, chunks=((0, 2, 4), (1, 3, 5)))
    assert kept_by_chunk(chosen) == [[1], [0, 2]]
    assert kept_by_chunk(Selection(group_id="a", kept=(1, 2, 5), dropped={})) == [[0, 1, 2]]


def test_an_advantage_of_groups_reads_lengths_and_may_give_one_value_per_token() -> None:
    def shorter_is_better(groups: Sequence[Group], selections: Sequence[Selection]) -> list[torch.Tensor]:
        lengths = [
            torch.tensor([len(g.rollouts[i].token_ids) for i in s.kept])
            for g, s in zip(groups, selections, strict=True)
        ]
        return [own.double().mean() - own for own in lengths]

    def first_token(groups: Sequence[Group], selections: Sequence[Selection]) -> list[torch.Tensor]:
        return [torch.eye(1, 4).repeat(len(s.kept), 1) + torch.tensor([0, 0, 0, math.nan]) for s in selections]

    group = group_of("a", 0.0, 1.0, 0.0, lengths=(1, 3, 2))
    chosen = Selection(group_id="a", kept=(0, 1), dropped={2: "not_selected"})
    assert [each.tolist() for each in step_advantages([group], [chosen], shorter_is_better)] == [[1.0, -1.0]]
    (found,) = step_advantages([group], [chosen], first_token)  # the fourth column is behind every completion
    assert found.tolist() == [[1.0, 0.0, 0.0, 0.0]] * 2


def wrong_shape(rewards: torch.Tensor) -> torch.Tensor:
    return rewards[:1]


def not_a_number(rewards: torch.Tensor) -> torch.Tensor:
    return rewards / 0


def raises(rewards: torch.Tensor) -> torch.Tensor:
    raise KeyError("no such column")


def exits(groups: Sequence[Group], selections: Sequence[Selection]) -> list[torch.Tensor]:
    raise SystemExit(0)


def nothing(rewards: torch.Tensor) -> None:
    return None


def one_too_few(groups: Sequence[Group], selections: Sequence[Selection]) -> list[torch.Tensor]:
    return [torch.zeros(len(s.kept)) for s in selections[1:]]


def narrow(groups: Sequence[Group], selections: Sequence[Selection]) -> list[torch.Tensor]:
    return [torch.zeros(len(s.kept), 1) for s in selections]


def infinite(groups: Sequence[Group], selections: Sequence[Selection]) -> list[list[float]]:
    return [[math.inf] * len(s.kept) for s in selections]


def other_names(answers: torch.Tensor, kept: int) -> torch.Tensor:
    return answers


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("wrong_shape", r"'wrong_shape' returned the shape \[1\]; wanted .* \[4\]"),
        ("not_a_number", r"'not_a_number' returned NaN or inf; wanted .* \[4\]"),
        ("raises", r"'raises' raised KeyError: 'no such column' \(test_update_advantage.py, line \d+\)"),
        ("exits", r"'exits' raised SystemExit: 0 \(test_update_advantage.py, line \d+\)"),
        ("nothing", "'nothing' returned a NoneType; wanted"),
        ("one_too_few", "'one_too_few' returned 1 tensors; wanted one tensor per group, 2 in all"),
        (
            "narrow",
            r"'narrow' returned the shape \[4, 1\] for group 'first'; wanted \[4\], or \[4, T\] with T at least 3",
        ),
        ("infinite", "'infinite' returned NaN or inf"),
    ],
)
def test_an_advantage_of_ones_own_that_fails_is_named_in_one_line_before_there_are_rollouts(
    name: str, message: str
) -> None:
    with pytest.raises(UsageError, match=f"^the advantage {message}") as caught:
        try_advantage(resolve_advantage(f"{__name__}:{name}"), 4)
    assert "\n" not in str(caught.value)


def test_the_names_of_its_parameters_say_what_an_advantage_reads() -> None:
    wanted = r"takes \(answers, kept\); wanted a function f\(rewards\) or f\(groups, selections\)"
    with pytest.raises(UsageError, match=f"loss.advantage = '{__name__}:other_names' {wanted}"):
        resolve_advantage(f"{__name__}:other_names")


def test_an_advantage_is_tried_on_two_groups_whose_rewards_rise_from_0_to_1() -> None:
    seen = []

    def of_groups(groups: Sequence[Group], selections: Sequence[Selection]) -> list[torch.Tensor]:
        for group, selection in zip(groups, selections, strict=True):
            lengths = [len(rollout.token_ids) for rollout in group.rollouts]
            seen.append(([rollout.reward for rollout in group.rollouts], lengths, selection.kept))
        return [torch.zeros(len(selection.kept)) for selection in selections]

    try_advantage(of_groups, 5)
    assert seen == [([0.0, 0.25, 0.5, 0.75, 1.0], [1, 2, 3, 1, 2], (0, 1, 2, 3, 4))] * 2
