import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from loops import each
from podsrl.errors import UsageError
from podsrl.update import NAMED_LOSSES, policy_loss

# Two rows: ratios 2 and 1/2 with advantage 1; ratio 2 with advantage -1 and one place outside the mask.
BEHAVIOUR = torch.tensor([[0.25, 0.5], [0.25, 0.9]], dtype=torch.float64).log()
POLICY = torch.tensor([[0.5, 0.25], [0.5, 0.1]], dtype=torch.float64).log()
MASK = torch.tensor([[True, True], [True, False]])
ADVANTAGES = torch.tensor([1.0, -1.0], dtype=torch.float64)

HAND = {
    # row 0: -min(2, 1.2) and -min(.5, .8), mean -.85; row 1: -min(-2, -1.2) = 2; mean of the rows
    "grpo": (0.575, 1),
    # (-1.2 - .5 + 2) / (2 rows * 10)
    "dr_grpo": (0.015, 1),
    # (-1.28 - .5 + 2) / 3 tokens
    "dapo": (0.22 / 3, 1),
    # row 0: geometric mean of 2 and 1/2 is 1, -1 a token; row 1: 2
    "gspo": (0.5, 0),
    # -2 ln .5 - .5 ln .25 + 2 ln .5, over 3 tokens; no weight is outside [0, 5]
    "cispo": (-0.5 * math.log(0.25) / 3, 0),
    # (-2 - .5 + 2) / (2 rows * 10)
    "rloo": (-0.025, 0),
    # (-1.2 - .5 + 2) / 3 tokens
    "reinforce_pp_baseline": (0.1, 1),
    "mc_grpo": (0.575, 1),
}


@pytest.mark.parametrize("name", sorted(NAMED_LOSSES))
def test_each_named_loss_gives_the_number_worked_out_by_hand(name: str) -> None:
    loss, stats = policy_loss(POLICY, BEHAVIOUR, ADVANTAGES, MASK, **NAMED_LOSSES[name], max_length=10)
    expected, clipped = HAND[name]
    assert loss.item() == pytest.approx(expected, abs=1e-12)
    assert (stats["clipped"].item(), stats["num_tokens"].item(), stats["kl"].item()) == (clipped, 3, 0)
    assert stats["logprob_gap"].item() == pytest.approx(3 * math.log(2))
    assert stats["ratio_max"].item() == pytest.approx(2)


def test_gspo_clips_a_whole_sequence_at_its_narrow_bounds() -> None:
    # the ratio of row 1 is 2, its bound 1.0004; row 0 has ratio 1
    loss, stats = policy_loss(POLICY, BEHAVIOUR, torch.ones(2), MASK, **NAMED_LOSSES["gspo"])
    assert loss.item() == pytest.approx(-(1 + 1.0004) / 2, abs=1e-12)
    assert stats["clipped"].item() == 1


def test_cispo_limits_a_weight_and_keeps_its_gradient() -> None:
    policy = torch.tensor([[0.9]], dtype=torch.float64).log().requires_grad_()
    loss, stats = policy_loss(
        policy, torch.tensor([[0.1]]).log(), torch.ones(1), torch.ones(1, 1) > 0, **NAMED_LOSSES["cispo"]
    )
    loss.backward()
    assert loss.item() == pytest.approx(-5 * math.log(0.9), abs=1e-7)
    assert policy.grad is not None and policy.grad.item() == pytest.approx(-5)
    assert stats["clipped"].item() == 1


def test_the_kl_penalty_is_exp_d_minus_d_minus_one() -> None:
    # d = ln 2 everywhere: 2 - ln 2 - 1 = 0.30685 a token
    loss, stats = policy_loss(
        POLICY,
        BEHAVIOUR,
        ADVANTAGES,
        MASK,
        **NAMED_LOSSES["grpo"],
        kl_beta=0.1,
        reference_logprobs=POLICY + math.log(2),
    )
    assert loss.item() == pytest.approx(0.575 + 0.1 * (1 - math.log(2)), abs=1e-12)
    assert stats["kl"].item() == pytest.approx(3 * (1 - math.log(2)), abs=1e-12)


def random_inputs(seed: int, rows: int = 5, width: int = 6) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=draw, dtype=torch.float64)

    behaviour = -3 * uniform(rows, width)
    policy = behaviour + 1.2 * (uniform(rows, width) - 0.5)
    reference = policy + uniform(rows, width) - 0.5
    mask = uniform(rows, width) < 0.7
    mask[3] = False  # an empty row
    return policy, behaviour, 2 * uniform(rows) - 1, mask, reference


def slow_loss(
    policy: Tensor, behaviour: Tensor, advantages: Tensor, mask: Tensor, reference: Tensor, **options: Any
) -> tuple[float, list[list[float]], int]:
    """Value, gradient and clipped tokens, one token at a time, with derivatives worked out on paper."""
    rows, width = mask.shape
    num_tokens = sum(bool(mask[i, t]) for i in range(rows) for t in range(width))
    value, clipped, gradient = 0.0, 0, [[0.0] * width for _ in range(rows)]
    for i in range(rows):
        places = [t for t in range(width) if mask[i, t]]
        gaps = [float(policy[i, t] - behaviour[i, t]) for t in places]
        for t, gap in zip(places, gaps, strict=True):
            rho = math.exp(sum(gaps) / len(gaps) if options["ratio"] == "sequence" else gap)
            a, lp = float(advantages[i]), float(policy[i, t])
            low, high = 1 - options["clip_low"], 1 + options["clip_high"]
            bounded = min(max(rho, low), high)
            if options["clip"] == "ppo":
                token, slope = (-rho * a, -rho * a) if rho * a <= bounded * a else (-bounded * a, 0.0)
                clipped += (a > 0 and rho > high) or (a < 0 and rho < low)
            elif options["clip"] == "cispo":
                token, slope = -bounded * a * lp, -bounded * a
                clipped += rho != bounded
            else:
                token, slope = -rho * a, -rho * a
            d = float(reference[i, t]) - lp
            token += options["kl_beta"] * (math.exp(d) - d - 1)
            slope += options["kl_beta"] * (1 - math.exp(d))
            weight = {
                "sequence_mean": 1 / (len(places) * rows),
                "token_mean": 1 / num_tokens,
                "constant": 1 / (rows * options["max_length"]),
            }[options["aggregate"]]
            value += weight * token
            gradient[i][t] = weight * slope
    return value, gradient, clipped


COMBINATIONS = list(
    itertools.product(
        ("token", "sequence"), ("ppo", "cispo", "none"), ("sequence_mean", "token_mean", "constant"), (0.0, 0.3)
    )
)


@each(("ratio", "clip", "aggregate", "kl_beta"), COMBINATIONS, few=8)
def test_every_combination_equals_a_slow_twin_in_value_and_gradient(
    ratio: str, clip: str, aggregate: str, kl_beta: float
) -> None:
    options = {"ratio": ratio, "clip": clip, "aggregate": aggregate, "kl_beta": kl_beta}
    options |= {"clip_low": 0.15, "clip_high": 0.1, "max_length": 9}
    total_clipped = 0
    for seed in range(6):
        policy, behaviour, advantages, mask, reference = random_inputs(seed)
        policy.requires_grad_()
        loss, stats = policy_loss(policy, behaviour, advantages, mask, reference_logprobs=reference, **options)
        loss.backward()
        value, gradient, clipped = slow_loss(policy.detach(), behaviour, advantages, mask, reference, **options)
        assert loss.item() == pytest.approx(value, abs=1e-12)
        torch.testing.assert_close(policy.grad, torch.tensor(gradient, dtype=torch.float64), rtol=0, atol=1e-12)
        assert stats["clipped"].item() == clipped
        total_clipped += clipped
    assert (total_clipped > 0) == (clip != "none")


@pytest.mark.parametrize("aggregate", ["sequence_mean", "token_mean", "constant"])
def test_pieces_with_the_whole_step_s_denominators_sum_to_the_whole_loss(aggregate: str) -> None:
    policy, behaviour, advantages, mask, reference = random_inputs(3)
    options = {"clip_low": 0.2, "clip_high": 0.2, "aggregate": aggregate, "max_length": 6, "kl_beta": 0.2}
    whole, stats = policy_loss(policy, behaviour, advantages, mask, reference_logprobs=reference, **options)
    parts = [
        policy_loss(
            policy[rows],
            behaviour[rows],
            advantages[rows],
            mask[rows],
            reference_logprobs=reference[rows],
            num_sequences=5,
            num_tokens=int(mask.sum()),
            **options,
        )
        for rows in (slice(0, 1), slice(1, 4), slice(4, 5))
    ]
    assert sum(loss.item() for loss, _ in parts) == pytest.approx(whole.item(), abs=1e-14)
    for key in ("num_tokens", "clipped", "kl", "logprob_gap"):
        assert sum(part[key].item() for _, part in parts) == pytest.approx(stats[key].item())


@each("name", sorted(NAMED_LOSSES))
@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf, 1e30])
def test_junk_outside_the_mask_changes_nothing(name: str, junk: float) -> None:
    policy, behaviour, advantages, mask, reference = random_inputs(2)
    results = []
    for value in (0.0, junk):
        inputs = [torch.where(mask, tensor, value) for tensor in (policy, behaviour, reference)]
        inputs[0].requires_grad_()
        loss, stats = policy_loss(
            inputs[0],
            inputs[1],
            advantages,
            mask,
            **NAMED_LOSSES[name],
            kl_beta=0.1,
            reference_logprobs=inputs[2],
            max_length=6,
        )
        loss.backward()
        results.append((loss, inputs[0].grad, stats))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert all(torch.equal(results[0][2][name], value) for name, value in results[1][2].items())


@pytest.mark.parametrize("name", sorted(NAMED_LOSSES))
def test_no_trained_token_gives_a_loss_and_a_gradient_of_zero(name: str) -> None:
    policy = torch.full((2, 3), math.nan, requires_grad=True)
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    loss, stats = policy_loss(policy, policy.detach(), torch.ones(2), nothing, **NAMED_LOSSES[name], max_length=4)
    loss.backward()
    assert loss.item() == 0 and torch.equal(policy.grad, torch.zeros(2, 3))
    assert not any(value.any() for value in stats.values())


@pytest.mark.parametrize("gap", [-300.0, 300.0])
@pytest.mark.parametrize("advantage", [-1.0, 1.0])
@each("name", sorted(NAMED_LOSSES))
def test_a_huge_log_ratio_gives_finite_numbers_and_no_gradient_through_the_ratio(
    gap: float, advantage: float, name: str
) -> None:
    policy = torch.full((1, 1), gap, requires_grad=True)
    inputs = (torch.zeros(1, 1), torch.tensor([advantage]), torch.ones(1, 1) > 0)
    loss, _ = policy_loss(
        policy, *inputs, **NAMED_LOSSES[name], kl_beta=0.1, reference_logprobs=torch.zeros(1, 1), max_length=1
    )
    loss.backward()
    assert math.isfinite(loss.item()) and policy.grad is not None and math.isfinite(policy.grad.item())
    if name != "cispo":
        assert policy.grad.item() == pytest.approx(0.0 if gap > 0 else 0.1, abs=0.1)


def test_sixteen_bit_log_probs_are_handled_in_float32() -> None:
    policy, behaviour, advantages, mask, _ = random_inputs(4)
    halves = (policy.bfloat16(), behaviour.float(), advantages.float(), mask)
    loss, _ = policy_loss(*halves, **NAMED_LOSSES["grpo"])
    exact, _ = policy_loss(halves[0].double(), halves[1].double(), halves[2].double(), mask, **NAMED_LOSSES["grpo"])
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), abs=1e-6)


def test_the_inputs_are_not_written_to() -> None:
    tensors = random_inputs(5)
    copies = [tensor.clone() for tensor in tensors]
    policy_loss(*tensors[:4], **NAMED_LOSSES["gspo"], kl_beta=0.1, reference_logprobs=tensors[4])
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(tensors, copies, strict=True))


def test_zero_advantage_has_exactly_no_gradient_under_every_bound() -> None:
    for clip in ("ppo", "cispo", "none"):
        policy, behaviour, advantages, mask, _ = random_inputs(6)
        policy.requires_grad_()
        policy_loss(policy, behaviour, 0 * advantages, mask, clip=clip, clip_low=0.2, clip_high=0.2)[0].backward()
        assert policy.grad is not None and policy.grad.abs().max() == 0


ONE = torch.zeros(1, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip_low": 0.2}, "clip_high = None"),
        ({"clip_low": -0.1, "clip_high": 0.2}, "clip_low = -0.1"),
        ({"clip": "none", "aggregate": "constant"}, "max_length = None"),
        ({"clip": "none", "kl_beta": 0.1}, "kl_beta = 0.1"),
        ({"clip": "none", "kl_beta": -0.1}, "kl_beta = -0.1"),
        ({"clip": "clips"}, "loss.clip = 'clips' is unknown"),
        ({"clip": "none", "ratio": "sequences"}, "Did you mean 'sequence'"),
        ({"clip": "none", "aggregate": "mean"}, "loss.aggregate = 'mean'"),
        ({"clip": "none", "reference_logprobs": torch.zeros(2, 1)}, "reference_logprobs has shape"),
    ],
)
def test_options_that_cannot_work_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        policy_loss(ONE, ONE, ONE[0], ONE == 0, **options)


def test_shapes_that_do_not_fit_are_refused() -> None:
    for advantages, mask in [
        (torch.zeros(2), ONE == 0),
        (torch.zeros(1, 2), ONE == 0),
        (ONE[0], ONE[0] == 0),
        (ONE[0], ONE),
    ]:
        with pytest.raises(UsageError, match=r"shape|dtype"):
            policy_loss(ONE, ONE, advantages, mask, clip="none")


@pytest.mark.parametrize("name", sorted(NAMED_LOSSES))
def test_an_advantage_per_token_weighs_each_token_and_one_value_per_row_gives_the_same_bits(name: str) -> None:
    options = {**NAMED_LOSSES[name], "max_length": 10}
    policy, behaviour, advantages, mask, _ = random_inputs(5)
    whole, stats = policy_loss(policy, behaviour, advantages, mask, **options)
    per_token = torch.where(mask, advantages[:, None], math.nan)  # outside the mask anything may stand
    again, same_stats = policy_loss(policy, behaviour, per_token, mask, **options)
    assert whole.item() == again.item()
    assert {name: value.tolist() for name, value in stats.items()} == {
        name: value.tolist() for name, value in same_stats.items()
    }


def test_tokens_of_one_row_may_have_advantages_of_both_signs() -> None:
    per_token = torch.tensor([[1.0, -1.0], [0.5, 7.0]], dtype=torch.float64)
    # ratios 2, 1/2 and 2 without bounds: -(2 * 1 + 0.5 * -1 + 2 * 0.5), over (2 rows * 10)
    loss, _ = policy_loss(POLICY, BEHAVIOUR, per_token, MASK, **NAMED_LOSSES["rloo"], max_length=10)
    assert loss.item() == pytest.approx(-2.5 / 20, abs=1e-12)
    with pytest.raises(UsageError, match=r"advantages have shape \(2, 1\) .* want \[B\] or \[B, T\]"):
        policy_loss(POLICY, BEHAVIOUR, per_token[:, :1], MASK, **NAMED_LOSSES["grpo"])


@pytest.mark.parametrize("clip", ["ppo", "cispo"])
def test_a_ratio_exactly_at_its_bound_is_not_clipped(clip: Any) -> None:
    """The policy that sampled has the ratio 1, which is both bounds here."""
    loss, stats = policy_loss(
        *(POLICY, POLICY, ADVANTAGES, MASK),
        ratio="token",
        clip=clip,
        clip_low=0.0,
        clip_high=0.0,
        aggregate="token_mean",
    )
    assert stats["clipped"].item() == 0
    # ppo: (-1 - 1 + 1) / 3 tokens; cispo: (-ln 1/2 - ln 1/4 + ln 1/2) / 3 tokens
    assert loss.item() == pytest.approx({"ppo": -1 / 3, "cispo": math.log(4) / 3}[clip], abs=1e-12)


@pytest.mark.parametrize("counts", [{}, {"num_sequences": 1, "num_tokens": 1}])
@pytest.mark.parametrize("aggregate", ["token_mean", "sequence_mean"])
def test_the_mean_over_one_token_is_that_tokens_loss(counts: dict[str, int], aggregate: Any) -> None:
    loss, _ = policy_loss(
        *(POLICY[:1], BEHAVIOUR[:1], ADVANTAGES[:1], torch.tensor([[True, False]])),
        ratio="token",
        clip="none",
        aggregate=aggregate,
        **counts,
    )
    assert loss.item() == pytest.approx(-2.0, abs=1e-12)  # the ratio 2, the advantage 1


def test_no_token_counts_as_clipped_where_the_advantage_is_zero() -> None:
    """Ratios 2, 1/2 and 2 lie outside the bounds, and a row without advantage has no gradient to lose."""
    _, stats = policy_loss(POLICY, BEHAVIOUR, 0 * ADVANTAGES, MASK, **NAMED_LOSSES["grpo"])
    assert stats["clipped"].item() == 0
