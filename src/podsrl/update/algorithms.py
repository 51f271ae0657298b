"""Published algorithms: each is an advantage and a point in the space of losses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from podsrl.errors import UsageError, nearest
from podsrl.update.advantage import resolve_advantage
from podsrl.update.loss import LossSpec, check_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """How rewards become a gradient.

    Example:
        >>> ALGORITHMS["rloo"].advantage, ALGORITHMS["rloo"].loss.clip
        ('leave_one_out', 'none')
    """

    advantage: str
    """A key of `podsrl.update.ADVANTAGES`, or "module:function"."""
    loss: LossSpec


_PPO = LossSpec(ratio="token", clip="ppo", clip_low=0.2, clip_high=0.2, aggregate="sequence_mean")

ALGORITHMS: dict[str, Algorithm] = {
    # DeepSeekMath, arXiv 2402.03300, eq. 3, with PPO's usual bounds.
    "grpo": Algorithm(advantage="std", loss=_PPO),
    # arXiv 2503.20783: every token has the same weight, whatever the length of its row.
    "dr_grpo": Algorithm(advantage="none", loss=replace(_PPO, aggregate="constant")),
    # arXiv 2503.14476: clip-higher and a token-level mean; its dynamic sampling is no part of the loss.
    "dapo": Algorithm(advantage="std", loss=replace(_PPO, clip_high=0.28, aggregate="token_mean")),
    # arXiv 2507.18071: the ratio of a sequence moves little, hence the narrow bounds.
    "gspo": Algorithm(advantage="std", loss=replace(_PPO, ratio="sequence", clip_low=3e-4, clip_high=4e-4)),
    # MiniMax-M1, arXiv 2506.13585, eq. 4: no lower bound. The upper bound of 5 is from ScaleRL, arXiv 2510.13786.
    "cispo": Algorithm(
        advantage="std", loss=LossSpec(ratio="token", clip="cispo", clip_low=1.0, clip_high=4.0, aggregate="token_mean")
    ),
    # arXiv 2402.14740: REINFORCE on whole sequences, no bound; max_length only scales the learning rate.
    "rloo": Algorithm(advantage="leave_one_out", loss=LossSpec(ratio="token", clip="none", aggregate="constant")),
    # arXiv 2501.03262: PPO's bounds, token-level mean.
    "reinforce_pp_baseline": Algorithm(advantage="batch_std", loss=replace(_PPO, aggregate="token_mean")),
    # arXiv 2601.22582 generates G + 1 rollouts and trains on G: the median rollout, the pivot, is left out. Here the
    # pivot is a kept row whose advantage is exactly 0, so keep G + 1 of them. Without a KL penalty the pivot costs no
    # forward pass and gives no gradient; it still counts as a row, which scales the loss by G / (G + 1).
    "mc_grpo": Algorithm(advantage="median_mad", loss=_PPO),
}
"""Name -> what `loss.name` stands for. A KL penalty is a choice apart (`loss.kl_beta`), 0 unless asked for."""

NAMED_LOSSES: dict[str, dict[str, Any]] = {name: algorithm.loss.arguments() for name, algorithm in ALGORITHMS.items()}
"""Name -> keyword arguments of `policy_loss`."""


def resolve_algorithm(name: str, *, advantage: str | None = None, **choices: Any) -> Algorithm:
    """A named algorithm with some of its choices replaced.

    Args:
        choices: fields of `LossSpec`; None keeps the algorithm's own value, as for `advantage`.

    Raises:
        UsageError: an unknown name or choice, an advantage that cannot be found, bounds for a loss that has none, or
            no bounds for a loss that needs them.

    Example:
        >>> resolve_algorithm("rloo", aggregate="token_mean")
        Algorithm(advantage='leave_one_out', loss=LossSpec(ratio='token', clip='none', aggregate='token_mean', \
clip_low=None, clip_high=None))
    """
    if name not in ALGORITHMS:
        raise UsageError(f"loss.name = {name!r} is unknown.{nearest(name, ALGORITHMS)}")
    algorithm = ALGORITHMS[name]
    given = {choice: value for choice, value in choices.items() if value is not None}
    loss = replace(algorithm.loss, **given)
    if loss.clip == "none":
        for bound in ("clip_low", "clip_high"):
            if bound in given:
                raise UsageError(
                    f"loss.{bound} has no effect with clip = 'none'; leave it out, or set loss.clip to 'ppo' or 'cispo'"
                )
        loss = replace(loss, clip_low=None, clip_high=None)
    check_loss(loss, max_length=1)
    if advantage is not None:
        resolve_advantage(advantage)
    return Algorithm(advantage=advantage or algorithm.advantage, loss=loss)
