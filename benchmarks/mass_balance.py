"""How often one step raises the probability of the right tokens, by the number of rollouts (BroRL's argument).

    python -m benchmarks mass-balance            20,000 random policies, a few seconds
    python -m benchmarks mass-balance --quick    2,000 of them

A policy is one softmax over V tokens, of which some are right. A step samples N tokens and follows the gradient of
L = 1/N · sum of r_i p_i over the sampled tokens i, with learning rate η, on the logits. BroRL (Hu et al. 2025, arXiv
2510.01180) shows that the probability Q of the right tokens then changes, to first order in η, by η/N times

    (R_right - S) (1 - Q) A + (S - R_wrong) Q B + S (Q U_wrong - (1 - Q) U_right)

with S = sum of r_i p_i over the sampled tokens, and sums of p_i² over the sampled right (A), the sampled wrong (B) and
the unsampled tokens (U). Only the last term can be negative, and the unsampled mass shrinks: E[U] = sum of
p_i² (1 - p_i)^N.

The table counts the policies for which Q rises: with this step on the distinct sampled tokens, and with that of
REINFORCE with the group's mean as baseline, which counts a token as often as it was sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import command
from benchmarks.figures.markdown import table as markdown_table
from podsrl.lib.seeds import derive

Floats = NDArray[np.float64]
NUM_TOKENS, NUM_RIGHT = 64, 8
SPREADS = (1.0, 3.0)
"""Standard deviations of the random logits."""
NUM_ROLLOUTS = (4, 16, 64, 512)


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("mass-balance", __doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the policies")
    command.measure(parser, arguments, lambda options, say: run(2_000 if options.quick else 20_000), table)


def run(num_policies: int, seed: int = 0) -> dict[str, Any]:
    """Share of random policies for which the right tokens gain, for each step, spread and number of rollouts."""
    cases = []
    for spread in SPREADS:
        for count in NUM_ROLLOUTS:
            rng = np.random.default_rng(derive(seed, "mass balance", f"{spread} {count}"))
            logits = spread * rng.standard_normal((num_policies, NUM_TOKENS))
            p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
            counts = rng.multinomial(count, p)
            shares = {name: float((change(p, step(p, counts)) > 0).mean()) for name, step in STEPS.items()}
            cases.append({"spread": spread, "num_rollouts": count, **shares})
    return {"num_tokens": NUM_TOKENS, "num_right": NUM_RIGHT, "num_policies": num_policies, "cases": cases}


def table(result: dict[str, Any]) -> str:
    """One row per case: the policies for which a step raises the right tokens' probability."""
    rows = [
        [f"{case['spread']:g}", str(case["num_rollouts"]), *(f"{100 * case[name]:.1f}%" for name in STEPS)]
        for case in result["cases"]
    ]
    return f"{markdown_table(('spread of logits', 'rollouts', *STEPS), rows, num_left=0)}\n\n{result['hardware']}"


def balance(p: Floats, is_sampled: NDArray[np.bool_], right: float = 1.0, wrong: float = -1.0) -> tuple[float, ...]:
    """The three terms of the change of Q, without the factor η/N.

    Args:
        p: [V] probabilities; the first `NUM_RIGHT` tokens are right.
        is_sampled: [V].
        right, wrong: rewards of right and wrong tokens.
    """
    is_right = np.arange(len(p)) < NUM_RIGHT
    q = p[is_right].sum()
    a, b = ((p[is_sampled & side] ** 2).sum() for side in (is_right, ~is_right))
    of_right, of_wrong = ((p[~is_sampled & side] ** 2).sum() for side in (is_right, ~is_right))
    s = right * p[is_sampled & is_right].sum() + wrong * p[is_sampled & ~is_right].sum()
    return (right - s) * (1 - q) * a, (s - wrong) * q * b, s * (q * of_wrong - (1 - q) * of_right)


def change(p: Floats, logits: Floats) -> Floats:
    """[...] first-order change of Q by a change of the logits [..., V]."""
    gained = p * (logits - (p * logits).sum(-1, keepdims=True))
    of_right: Floats = gained[..., :NUM_RIGHT].sum(-1)
    return of_right


def _rewards(p: Floats) -> Floats:
    return np.where(np.arange(p.shape[-1]) < NUM_RIGHT, 1.0, -1.0)


def _follow(p: Floats, weights: Floats) -> Floats:
    """The sum of weights_i times the gradient of log p_i, by the logits."""
    found: Floats = weights - p * weights.sum(-1, keepdims=True)
    return found


def _distinct(p: Floats, counts: NDArray[np.int64]) -> Floats:
    """The step of the theorem."""
    return _follow(p, (counts > 0) * _rewards(p) * p)


def _centred(p: Floats, counts: NDArray[np.int64]) -> Floats:
    """REINFORCE with the mean reward of the rollouts as baseline."""
    r, total = _rewards(p), counts.sum(-1, keepdims=True)
    return _follow(p, counts * (r - (counts * r).sum(-1, keepdims=True) / total) / total)


STEPS: dict[str, Callable[[Floats, NDArray[np.int64]], Floats]] = {"distinct": _distinct, "centred": _centred}
"""Name -> (p, how often each token was sampled) -> change of the logits, both [..., V]."""
