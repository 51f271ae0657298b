"""Prompt-GDRO: Panaganti et al. 2026, "Group Distributionally Robust Optimization-Driven RL for LLM Reasoning", arXiv
2601.19280.

Advantages of the difficulty bins (`systems/bins.py`) in which the model fails count more. After every step

    S(b) ← (1 - β) S(b) + β · mean loss of b          ω(b) = exp(η · clip(S(b), -C, C))

and the advantages of a group in bin b are multiplied by min(ω(b), ω_max). That is the paper's ω. Its released code
multiplies by the weight that the adversary plays, q(b) = (1 - γ) ω(b) / Σω + γ / B, which is below 1 and shrinks every
advantage: γ chooses it (0.01 there). What is ours: the loss of a bin is 1 minus the share of right rollouts of its
groups, each group counted once. The policy loss is 0 in every bin where a step is on-policy, so it says nothing of
difficulty; right and wrong lie in [0, 1] whatever the rewards' scale, so that η means the same for every task. S(b)
begins with the first loss of b, as in the released code, and stays while b has no groups; a bin that had none so far
has S = 0. A group's bin counts the group's own result, so that the first pass over a training set has bins too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from podsrl.systems.bins import EDGES, Count, DifficultyBins, Edges, Hysteresis
from podsrl.types import Group, Selection

Floats: TypeAlias = NDArray[np.float64]


class BinWeights:
    """Advantages count more in the difficulty bins in which the model fails.

    Args:
        beta, eta, clip: β, η, C.
        largest: ω_max.
        gamma: γ: normalise the weights, with this share of equal ones (q); None: take them as they are (ω).
        edges: between difficulty bins: ascending values of pass@k, between 0 and 1.
        k: of pass@k.
        window: groups per question that count, the last ones.
        hysteresis: how far beyond an edge of its bin a question must be to leave it.
    """

    def __init__(
        self,
        *,
        beta: Annotated[float, Field(gt=0, le=1)] = 0.12,
        eta: Annotated[float, Field(ge=0, le=10)] = 0.65,
        clip: Annotated[float, Field(gt=0, le=10)] = 5.0,
        largest: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 15.0,
        gamma: Annotated[float, Field(ge=0, le=1)] | None = None,
        edges: Edges = EDGES,
        k: Count = 4,
        window: Count = 50,
        hysteresis: Hysteresis = 0.03,
    ) -> None:
        self.beta, self.eta, self.clip, self.largest = beta, eta, clip, largest
        self.gamma, self._bins = gamma, DifficultyBins("options.gdro_prompts", edges, k, window, hysteresis)
        self._scores = np.full(self._bins.num_bins, np.nan)  # S; NaN: no group so far

    def shape(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """The advantages, times the weight of each group's bin."""
        weights = np.minimum(self.omega() if self.gamma is None else self.shares(self.gamma), self.largest)
        bins = [self._bins.bin_with(group) for group in groups]
        return [a if b is None else a * float(weights[b]) for a, b in zip(advantages, bins, strict=True)]

    def learn(self, groups: Sequence[Group]) -> None:
        """Move S by the groups of a step, and count them into the bins."""
        losses: dict[int, list[float]] = {}
        for group in groups:
            b, own = self._bins.bin_with(group), group.outcomes
            if b is not None and own:
                losses.setdefault(b, []).append(1 - sum(own) / len(own))
        for b, of_bin in losses.items():
            loss, old = math.fsum(of_bin) / len(of_bin), self._scores[b]
            self._scores[b] = loss if np.isnan(old) else (1 - self.beta) * old + self.beta * loss
        self._bins.learn(groups)

    def omega(self) -> Floats:
        """[B] ω of each bin."""
        return np.asarray(np.exp(self.eta * np.clip(np.nan_to_num(self._scores), -self.clip, self.clip)))

    def shares(self, gamma: float) -> Floats:
        """[B] q of each bin; they sum to 1."""
        omega = self.omega()
        return np.asarray((1 - gamma) * omega / omega.sum() + gamma / len(omega))

    def state(self) -> dict[str, Any]:
        """S [B], NaN where there is none, and the bins."""
        return {"scores": self._scores, **self._bins.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._scores = np.array(state["scores"])
        self._bins.restore(state)
