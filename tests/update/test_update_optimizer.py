import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import make_model
from torch import nn

from podsrl.config.schema import OptimConfig
from podsrl.errors import CheckpointError, UsageError
from podsrl.update.optimizer import Optimizer

OPTIONS: dict[str, Any] = {
    "lr": 0.1,
    "betas": (0.9, 0.99),
    "eps": 1e-8,
    "weight_decay": 0.0,
    "max_grad_norm": 1e9,
    "warmup_steps": 0,
}


def two_weights(dtype: torch.dtype = torch.float64) -> nn.Linear:
    layer = nn.Linear(1, 1).to(dtype)
    with torch.no_grad():
        layer.weight.fill_(2.0)
        layer.bias.fill_(3.0)
    return layer


def optimizer_of(model: nn.Module, **options: Any) -> Optimizer:
    return Optimizer(model, OptimConfig(**options))


def give(layer: nn.Linear, weight: float, bias: float) -> None:
    layer.weight.grad = torch.full_like(layer.weight, weight)
    layer.bias.grad = torch.full_like(layer.bias, bias)


def test_three_steps_equal_adamw_worked_out_with_plain_numbers() -> None:
    layer = two_weights()
    optimizer = optimizer_of(layer, **OPTIONS | {"weight_decay": 0.5, "warmup_steps": 2})
    values, first, second = {"weight": 2.0, "bias": 3.0}, dict.fromkeys("wb", 0.0), dict.fromkeys("wb", 0.0)
    for step, (g_weight, g_bias) in enumerate([(3.0, -4.0), (1.0, 2.0), (-2.0, 0.5)], start=1):
        give(layer, g_weight, g_bias)
        assert optimizer.step() == pytest.approx(math.hypot(g_weight, g_bias))
        lr = 0.1 * step / 3  # warm-up: 1/3, 2/3, then the whole rate
        for name, g, decay in (("weight", g_weight, 0.5), ("bias", g_bias, 0.0)):
            key = name[0]
            first[key] = 0.9 * first[key] + 0.1 * g
            second[key] = 0.99 * second[key] + 0.01 * g * g
            move = (first[key] / (1 - 0.9**step)) / (math.sqrt(second[key] / (1 - 0.99**step)) + 1e-8)
            values[name] = values[name] * (1 - lr * decay) - lr * move
        assert layer.weight.item() == pytest.approx(values["weight"], abs=1e-12)
        assert layer.bias.item() == pytest.approx(values["bias"], abs=1e-12)
    assert (optimizer.num_steps, optimizer.num_skipped_steps) == (3, 0)


def test_a_large_gradient_is_scaled_down_to_the_norm_and_the_old_norm_is_returned() -> None:
    layer = two_weights()
    optimizer = optimizer_of(layer, **OPTIONS | {"max_grad_norm": 1.0})
    give(layer, 30.0, 40.0)
    assert optimizer.step() == pytest.approx(50.0)
    tensors, _ = optimizer.state_dict()
    assert tensors["exp_avg/weight"].item() == pytest.approx(0.1 * 0.6, rel=1e-6)
    assert tensors["exp_avg/bias"].item() == pytest.approx(0.1 * 0.8, rel=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_is_dropped_and_counted(bad: float) -> None:
    layer = two_weights()
    optimizer = optimizer_of(layer, **OPTIONS)
    give(layer, 1.0, bad)
    assert not math.isfinite(optimizer.step())
    assert (layer.weight.item(), layer.bias.item(), layer.weight.grad) == (2.0, 3.0, None)
    assert (optimizer.num_steps, optimizer.num_skipped_steps) == (0, 1)
    assert optimizer.state_dict()[0] == {}
    give(layer, 1.0, 1.0)
    assert optimizer.step() == pytest.approx(math.sqrt(2))
    assert layer.weight.item() == pytest.approx(1.9)


def test_without_a_gradient_nothing_moves() -> None:
    layer = two_weights()
    optimizer = optimizer_of(layer, **OPTIONS | {"weight_decay": 0.5})
    give(layer, 1.0, 1.0)
    optimizer.step()
    before = layer.weight.item(), {k: v.clone() for k, v in optimizer.state_dict()[0].items()}
    assert optimizer.step() == 0.0
    after, numbers = optimizer.state_dict()
    assert layer.weight.item() == before[0] and numbers["num_steps"] == 1
    assert all(torch.equal(value, before[1][key]) for key, value in after.items())


def test_frozen_weights_are_left_alone_and_a_model_without_others_is_refused() -> None:
    layer = two_weights()
    layer.bias.requires_grad_(False)
    optimizer = optimizer_of(layer, **OPTIONS)
    layer.weight.grad = torch.ones_like(layer.weight)
    optimizer.step()
    assert layer.bias.item() == 3.0 and set(optimizer.state_dict()[0]) == {
        "step/weight",
        "exp_avg/weight",
        "exp_avg_sq/weight",
    }
    layer.weight.requires_grad_(False)
    with pytest.raises(UsageError, match="no parameter that requires a gradient"):
        optimizer_of(layer, **OPTIONS)


def test_many_steps_too_small_for_bfloat16_still_move_a_bfloat16_weight() -> None:
    layer = two_weights(torch.bfloat16)
    optimizer = optimizer_of(layer, **OPTIONS | {"lr": 1e-4})
    for _ in range(100):
        give(layer, 1.0, 0.0)
        optimizer.step()
    # one step of 1e-4 is far under bfloat16's spacing of 1/128 below 2; a hundred sum to 0.01
    assert layer.weight.item() == 1.9921875
    assert optimizer.state_dict()[0]["master/weight"].item() == pytest.approx(1.99, abs=1e-5)
    assert layer.weight.dtype == torch.bfloat16


def train(model: nn.Module, optimizer: Optimizer, seeds: range) -> None:
    for seed in seeds:
        draw = torch.Generator().manual_seed(seed)
        for weight in model.parameters():
            weight.grad = torch.randn(weight.shape, generator=draw).to(weight.dtype)
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_state_that_went_through_a_file_continues_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    options = OPTIONS | {"warmup_steps": 4, "max_grad_norm": 0.5, "weight_decay": 0.1, "lr": 1e-3}
    model = make_model(dtype=dtype)
    optimizer = optimizer_of(model, **options)
    train(model, optimizer, range(3))
    tensors, numbers = optimizer.state_dict()
    save_file(tensors, tmp_path / "optimizer.safetensors")
    copy = make_model(dtype=dtype)
    copy.load_state_dict(model.state_dict())
    other = optimizer_of(copy, **options)
    other.load_state_dict(load_file(tmp_path / "optimizer.safetensors"), numbers | {"num_skipped_steps": 2})
    train(model, optimizer, range(3, 6))
    train(copy, other, range(3, 6))
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, copy.state_dict()[name]), name
    for key, value in optimizer.state_dict()[0].items():
        assert torch.equal(value, other.state_dict()[0][key]), key
    assert (other.num_steps, other.num_skipped_steps) == (6, 2)


def test_a_loaded_state_is_a_copy() -> None:
    layer = two_weights()
    optimizer = optimizer_of(layer, **OPTIONS)
    give(layer, 1.0, 1.0)
    optimizer.step()
    tensors = {key: value.clone() for key, value in optimizer.state_dict()[0].items()}
    kept = {key: value.clone() for key, value in tensors.items()}
    optimizer.load_state_dict(tensors, {"num_steps": 1, "num_skipped_steps": 0})
    give(layer, 5.0, 5.0)
    optimizer.step()
    assert all(torch.equal(value, kept[key]) for key, value in tensors.items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, n: n.pop("num_steps"), "lacks"),
        (lambda t, n: t.pop("exp_avg/weight"), "'weight' holds"),
        (lambda t, n: t.update({"exp_avg/other": torch.zeros(1)}), "no trainable 'other'"),
        (lambda t, n: t.update({"speed/weight": torch.zeros(1, 1)}), "'weight' holds"),
        (lambda t, n: t.update({"exp_avg/weight": torch.zeros(2, 1)}), "another shape"),
        (lambda t, n: t.update({"exp_avg/weight": torch.zeros(1, 1, dtype=torch.int32)}), "is torch.int32"),
        (lambda t, n: t.pop("master/weight"), "lacks master/weight"),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(
    change: Callable[[dict[str, Any], dict[str, Any]], Any], message: str
) -> None:
    layer = two_weights(torch.bfloat16)
    optimizer = optimizer_of(layer, **OPTIONS)
    give(layer, 1.0, 1.0)
    optimizer.step()
    tensors, numbers = optimizer.state_dict()
    before = {key: value.clone() for key, value in tensors.items()}
    change(tensors, numbers)
    with pytest.raises(CheckpointError, match=message):
        optimizer.load_state_dict(tensors, numbers)
    after = optimizer.state_dict()[0]
    assert set(after) == set(before) and all(torch.equal(after[key], before[key]) for key in before)


# --- schedules ---


def rates(num_steps: int, **options: Any) -> list[float]:
    """How far each step moves a weight whose gradient is always 1: Adam's step is then the rate itself."""
    layer = two_weights()
    optimizer = optimizer_of(layer, **OPTIONS | {"eps": 1e-30} | options)
    found = []
    for _ in range(num_steps):
        before = layer.weight.item()
        give(layer, 1.0, 0.0)
        optimizer.step()
        found.append(before - layer.weight.item())
        assert optimizer.lr == pytest.approx(found[-1], abs=1e-12)
    return found


def test_a_cosine_rate_falls_from_the_whole_to_nothing_and_stays_there() -> None:
    half = math.sqrt(0.5)
    wanted = [1.0, (1 + half) / 2, 0.5, (1 - half) / 2, 0.0, 0.0]  # cos of 0, π/4, π/2, 3π/4, π
    found = rates(6, schedule="cosine", schedule_steps=4)
    assert found == pytest.approx([0.1 * factor for factor in wanted], abs=1e-12)


def test_warm_up_steps_count_among_those_of_the_schedule() -> None:
    found = rates(6, schedule="cosine", schedule_steps=4, warmup_steps=2)
    assert found == pytest.approx([0.1 / 3, 0.2 / 3, 0.1, 0.05, 0.0, 0.0], abs=1e-12)


def test_a_step_that_is_skipped_does_not_move_the_schedule() -> None:
    layer = two_weights()
    optimizer = optimizer_of(layer, **OPTIONS | {"schedule": "cosine", "schedule_steps": 2})
    for value in (1.0, math.inf, 1.0):
        give(layer, value, 0.0)
        optimizer.step()
    assert optimizer.lr == pytest.approx(0.05)


def test_a_resumed_schedule_goes_on_where_it_was() -> None:
    options = OPTIONS | {"schedule": "cosine", "schedule_steps": 4}
    first, second = (optimizer_of(two_weights(), **options) for _ in range(2))
    numbers = {"num_steps": 3, "num_skipped_steps": 0}
    second.load_state_dict({}, numbers)
    assert first.lr == pytest.approx(0.1) and second.lr == pytest.approx(0.1 * (1 + math.cos(math.pi / 2)) / 2)


# --- 8-bit moments ---


def wide_layer(dtype: torch.dtype = torch.float32) -> nn.Linear:
    """A matrix of 4,100 elements, whose moments have 8 bits, and a bias of 41, whose moments have 32."""
    torch.manual_seed(0)
    return nn.Linear(100, 41).to(dtype)


def test_8_bit_adam_steps_small_weights_exactly_as_adamw_worked_out_with_plain_numbers() -> None:
    pytest.importorskip("bitsandbytes")
    layer = two_weights(torch.float32)
    optimizer = optimizer_of(layer, **OPTIONS | {"name": "adamw_8bit", "weight_decay": 0.5})
    value, first, second = 2.0, 0.0, 0.0
    for step, g in enumerate([3.0, 1.0, -2.0], start=1):
        give(layer, g, 0.0)
        optimizer.step()
        first, second = 0.9 * first + 0.1 * g, 0.99 * second + 0.01 * g * g
        move = (first / (1 - 0.9**step)) / (math.sqrt(second / (1 - 0.99**step)) + 1e-8)
        value = value * (1 - 0.1 * 0.5) - 0.1 * move
        assert layer.weight.item() == pytest.approx(value, rel=1e-5)


def test_8_bit_adam_stays_near_adamw_with_a_quarter_of_its_memory() -> None:
    pytest.importorskip("bitsandbytes")
    layers, sizes = [], []
    for name in ("adamw", "adamw_8bit"):
        layer = wide_layer()
        start = layer.weight.detach().clone()
        optimizer = optimizer_of(layer, **OPTIONS | {"name": name, "lr": 1e-2})
        train(layer, optimizer, range(10))
        layers.append(layer.weight.detach() - start)
        state = optimizer.state_dict()[0]
        sizes.append(sum(value.nbytes for key, value in state.items() if key.endswith("/weight")))
    exact, short = layers
    assert (exact - short).norm() < 0.05 * exact.norm()
    assert sizes[1] < 0.27 * sizes[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_8_bit_state_that_went_through_a_file_continues_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    pytest.importorskip("bitsandbytes")
    options = OPTIONS | {"name": "adamw_8bit", "lr": 1e-3, "warmup_steps": 4, "weight_decay": 0.1}
    layer = wide_layer(dtype)
    optimizer = optimizer_of(layer, **options)
    train(layer, optimizer, range(3))
    tensors, numbers = optimizer.state_dict()
    masters = {"master/weight", "master/bias"} if dtype == torch.bfloat16 else set()
    assert set(tensors) == masters | {
        f"{kind}/{name}"
        for name, kinds in {"weight": ["state1", "state2", "absmax1", "absmax2"], "bias": ["state1", "state2"]}.items()
        for kind in ("step", *kinds)
    }
    assert tensors["state1/weight"].dtype == torch.uint8 and tensors["absmax1/weight"].shape == (17,)
    save_file(tensors, tmp_path / "optimizer.safetensors")
    copy = wide_layer(dtype)
    copy.load_state_dict(layer.state_dict())
    other = optimizer_of(copy, **options)
    other.load_state_dict(load_file(tmp_path / "optimizer.safetensors"), dict(numbers))
    train(layer, optimizer, range(3, 6))
    train(copy, other, range(3, 6))
    assert torch.equal(layer.weight, copy.weight) and torch.equal(layer.bias, copy.bias)
    again = other.state_dict()[0]
    assert all(torch.equal(value, again[key]) for key, value in optimizer.state_dict()[0].items())


def test_moments_of_the_other_optimizer_are_refused() -> None:
    pytest.importorskip("bitsandbytes")
    layer = wide_layer()
    exact, short = optimizer_of(layer, **OPTIONS), optimizer_of(layer, **OPTIONS | {"name": "adamw_8bit"})
    train(layer, exact, range(1))
    with pytest.raises(CheckpointError, match=r"'weight' holds .*exp_avg.*; want .*absmax1"):
        short.load_state_dict(*exact.state_dict())


def test_without_bitsandbytes_8_bit_adam_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    with pytest.raises(UsageError, match=r"needs bitsandbytes, .*: pip install 'podsrl\[quantized\]'"):
        optimizer_of(two_weights(), **OPTIONS | {"name": "adamw_8bit"})


def test_sharded_weights_are_stepped_as_whole_ones_are_but_not_in_8_bits() -> None:
    from torch.distributed.tensor import DeviceMesh, Replicate, distribute_tensor

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = DeviceMesh("cpu", [0])
        whole, sharded = wide_layer(), wide_layer()
        for name, weight in list(sharded.named_parameters()):
            setattr(sharded, name, nn.Parameter(distribute_tensor(weight.detach(), mesh, [Replicate()])))
        optimizers = [optimizer_of(layer, **OPTIONS | {"max_grad_norm": 0.5}) for layer in (whole, sharded)]
        for step in range(3):
            draw = torch.Generator().manual_seed(step)
            for weight, other in zip(whole.parameters(), sharded.parameters(), strict=True):
                weight.grad = torch.randn(weight.shape, generator=draw)
                other.grad = distribute_tensor(weight.grad.clone(), mesh, [Replicate()])
            norms = [optimizer.step() for optimizer in optimizers]
            assert norms[0] == pytest.approx(norms[1], rel=1e-6)
        assert torch.allclose(whole.weight, sharded.weight.full_tensor(), atol=1e-7)
        with pytest.raises(UsageError, match="does not step sharded weights"):
            optimizer_of(sharded, **OPTIONS | {"name": "adamw_8bit"})
    finally:
        torch.distributed.destroy_process_group()
