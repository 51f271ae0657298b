"""BroRL's mass balance: its identity on random policies, the bound of its last term, and what more rollouts change."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch

from benchmarks.mass_balance import NUM_RIGHT, NUM_ROLLOUTS, STEPS, balance, run, table


@pytest.mark.parametrize(("right", "wrong"), [(1.0, -1.0), (1.0, 0.0), (0.3, -2.0)])
def test_three_terms_are_the_change_of_the_right_tokens_probability(right: float, wrong: float) -> None:
    """Against the gradients of torch: of L for the step, and of Q for its effect."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        size, count = int(rng.integers(NUM_RIGHT + 1, 65)), int(rng.integers(1, 65))
        logits = torch.tensor(rng.standard_normal(size) * rng.uniform(0.1, 4), requires_grad=True)
        p = torch.softmax(logits, -1)
        sampled = np.unique(rng.choice(size, count, p=p.detach().numpy()))
        rewards = torch.tensor([right if token < NUM_RIGHT else wrong for token in range(size)], dtype=torch.float64)
        loss = (rewards * p)[sampled].sum() / count
        [step] = torch.autograd.grad(loss, logits, retain_graph=True)
        [effect] = torch.autograd.grad(p[:NUM_RIGHT].sum(), logits)
        is_sampled = np.isin(np.arange(size), sampled)
        terms = balance(p.detach().numpy(), is_sampled, right, wrong)
        assert float((effect * step).sum()) * count == pytest.approx(sum(terms), rel=1e-10, abs=1e-18)
        assert min(terms[:2]) >= 0


def test_the_last_term_is_bounded_by_what_stays_unsampled() -> None:
    """All 10^3 and 11^2 samples: |E[last]| <= max |r| E[U], and E[U] is the sum of p² (1 - p)^N."""
    for size, count, seed in [(10, 3, 0), (10, 3, 1), (11, 2, 2), (9, 4, 3)]:
        logits = np.random.default_rng(seed).standard_normal(size)
        p = np.exp(logits) / np.exp(logits).sum()
        unsampled = last = 0.0
        for tokens in itertools.product(range(size), repeat=count):
            chance, is_sampled = p[list(tokens)].prod(), np.isin(np.arange(size), tokens)
            rest, term = (p[~is_sampled] ** 2).sum(), balance(p, is_sampled)[2]
            assert -rest <= term <= rest
            unsampled, last = unsampled + chance * rest, last + chance * term
        assert unsampled == pytest.approx((p**2 * (1 - p) ** count).sum())
        assert last >= -(p**2 * (1 - p) ** count).sum()


def test_more_rollouts_raise_the_right_tokens_more_often() -> None:
    result = json.loads(json.dumps(run(num_policies=1_000)))
    for spread in {case["spread"] for case in result["cases"]}:
        cases = [case for case in result["cases"] if case["spread"] == spread]
        assert [case["num_rollouts"] for case in cases] == list(NUM_ROLLOUTS)
        for step in STEPS:
            shares = [case[step] for case in cases]
            assert shares == sorted(shares) and shares[0] < 0.98 and shares[-1] > 0.94
    table({**result, "hardware": "this machine"})
