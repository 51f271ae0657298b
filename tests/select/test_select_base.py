"""The edge every rule shares: kinds of array, leading dimensions, and errors that say what to do."""

import numpy as np
import pytest
import torch

from loops import each
from podsrl.errors import UsageError
from podsrl.select import both_ends, keep_all, max_reward, max_variance, percentile, random
from podsrl.select.base import ArrayRule

DROPPING: list[ArrayRule] = [max_variance, max_reward, percentile, both_ends, random]
OF_ARRAYS = [*DROPPING, keep_all]
REWARDS = [[[0.0, 0.5, 1.0, 0.25], [1.0, 0.0, 1.0, 0.0]], [[3.0, 3.0, 3.0, 3.0], [-1.0, 2.0, 0.5, 0.75]]]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(7)


@pytest.mark.parametrize("rule", DROPPING)
def test_tensor_array_and_list_give_the_same_indices_each_in_its_own_kind(rule: ArrayRule) -> None:
    tensor = rule(torch.tensor(REWARDS), 2, generator=seeded())
    array = rule(np.array(REWARDS), 2, generator=seeded())
    nested = rule(REWARDS, 2, generator=seeded())
    assert isinstance(tensor, torch.Tensor) and tensor.dtype == torch.int64
    assert isinstance(array, np.ndarray) and array.dtype == np.int64
    assert tensor.tolist() == array.tolist() == nested


@pytest.mark.parametrize("rule", DROPPING)
def test_leading_dimensions_are_groups(rule: ArrayRule) -> None:
    rewards = torch.rand(2, 3, 4, 6, generator=seeded())
    kept = rule(rewards, 3, generator=seeded())
    assert torch.equal(kept, rule(rewards.view(24, 6), 3, generator=seeded()).view(2, 3, 4, 3))
    assert rule(rewards[0, 0, 0], 3, generator=seeded()).shape == (3,)


@pytest.mark.parametrize("rule", DROPPING)
def test_no_groups_give_no_indices(rule: ArrayRule) -> None:
    assert rule(torch.zeros(0, 5), 2).shape == (0, 2)
    assert rule(np.zeros((3, 0, 5)), 2).shape == (3, 0, 2)
    assert rule(torch.zeros(0, 5), 5).shape == (0, 5)


@pytest.mark.parametrize("rule", OF_ARRAYS)
def test_keeping_n_of_n_is_the_identity_for_every_rule(rule: ArrayRule) -> None:
    assert rule([[0.0, 2.0, 1.0], [1.0, 1.0, 1.0]], 3) == [[0, 1, 2], [0, 1, 2]]
    assert rule([4.0], 1) == [0]


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
def test_every_real_dtype_is_read(dtype: torch.dtype) -> None:
    rewards = torch.tensor([[0, 0, 1, 0, 1, 0]]).to(dtype)
    assert max_variance(rewards, 4).tolist() == [[0, 1, 2, 4]]
    if dtype != torch.bfloat16:
        assert max_variance(rewards.numpy(), 4).tolist() == [[0, 1, 2, 4]]


def test_strided_read_only_swapped_and_differentiable_inputs_are_read() -> None:
    array = np.array([[0.0, 9.0, 0.4, 9.0, 0.5, 9.0, 1.0, 9.0]])
    array.flags.writeable = False
    assert max_variance(array[:, ::2], 2).tolist() == [[0, 3]]
    assert max_variance(array[:, -2::-2][:, ::-1], 3).tolist() == [[0, 1, 3]]
    assert max_variance(array[:, ::2].astype(">f4"), 2).tolist() == [[0, 3]]
    assert max_variance(torch.tensor(array)[:, ::2].requires_grad_(), 2).tolist() == [[0, 3]]
    assert max_variance(torch.tensor(array.T)[::2].T, 2).tolist() == [[0, 3]]


def test_a_numpy_integer_counts_as_num_kept() -> None:
    assert max_variance([0.0, 0.5, 1.0], np.arange(3)[2]) == [0, 2]


@each("rule", OF_ARRAYS)
@pytest.mark.parametrize(
    ("rewards", "num_kept", "message"),
    [
        ([[0.0, 1.0], [0.0, float("nan")]], 1, "reward of rollout 1 of group 1 is nan"),
        ([0.0, 1.0, float("inf")], 1, "reward of rollout 2 is inf"),
        (torch.tensor([0.0, -float("inf")]), 1, "reward of rollout 1 is -inf"),
        (torch.tensor([[[0.0], [float("nan")]]]), 1, "reward of rollout 0 of group 0, 1 is nan"),
        ([0.0, 1e301], 1, "within ±1e\\+300"),
        ([0.0, 1.0], 3, "num_kept = 3 is more than the 2 rollouts .* lower num_kept"),
        ([], 1, "more than the 0 rollouts"),
        ([0.0, 1.0], 0, "num_kept = 0; wanted 1 .. 2"),
        ([0.0, 1.0], -1, "num_kept = -1"),
        ([0.0, 1.0], 1.0, "num_kept is 1.0; wanted a whole number"),
        (1.0, 1, "single number"),
        (torch.tensor(1.0), 1, "single number"),
        ([[0.0, 1.0], [0.0]], 1, "ragged list"),
        (["right", "wrong"], 1, "wanted real numbers"),
        ([0.0, None], 1, "wanted real numbers"),
        (torch.zeros(4, dtype=torch.complex64), 1, "complex64; wanted real numbers"),
    ],
)
def test_bad_input_is_named_with_its_cure(rule: ArrayRule, rewards: object, num_kept: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rule(rewards, num_kept)  # type: ignore[call-overload]  # a wrong type is what is tested


def test_keep_all_refuses_to_drop() -> None:
    with pytest.raises(UsageError, match="keep_all got num_kept = 2 of 3 rollouts; wanted num_kept = 3"):
        keep_all([0.0, 1.0, 2.0], 2)


@pytest.mark.gpu
@pytest.mark.parametrize("rule", [max_variance, max_reward, percentile, both_ends])
def test_a_gpu_tensor_stays_there_and_gives_the_cpu_s_answer(rule: ArrayRule) -> None:
    rewards = torch.rand(50, 64, generator=seeded())
    rewards[::2] = (rewards[::2] * 4).floor()
    kept = rule(rewards.cuda(), 16)
    assert kept.is_cuda
    assert torch.equal(kept.cpu(), rule(rewards, 16))
