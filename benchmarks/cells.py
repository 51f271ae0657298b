"""One run on sums: what identifies it, and its config."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from benchmarks.bases import base_model
from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig

SIGNAL = ('select.rule="max_signal"',)
"""Further options of an arm; the others likewise."""
AUTO = (*SIGNAL, 'systems="worth"')
DEAR = (*AUTO, "costs.group_ms=0.1", "costs.rollout_ms=1.0", "costs.row_ms=1.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run: from which model, with which sizes of a step, rate and seed."""

    start: str
    """A start accuracy of `bases.STARTS`, or a model."""
    num_rollouts: int
    """n, per question."""
    num_kept: int
    """m; n: all are trained on."""
    rate: float
    seed: int
    digits: int = 2
    """Of each addend."""
    kl: float = 0.0
    """Weight of the KL penalty."""
    more: tuple[str, ...] = ()
    """Further options."""

    @property
    def arm(self) -> str:
        """Its name.

        Example:
            >>> Cell(start="4%", num_rollouts=64, num_kept=16, rate=3e-4, seed=0).arm
            'PODS 64 → 16'
        """
        n, m = self.num_rollouts, self.num_kept
        return " ".join([f"GRPO {n}" if n == m else f"PODS {n} → {m}", *self.more])

    @property
    def title(self) -> str:
        """It in words."""
        penalty = f"KL {self.kl:g}, " if self.kl else ""
        return f"{self.arm} from {self.start}, {penalty}{self.digits} digits, rate {self.rate:g}, seed {self.seed}"

    def at(self, rate: float) -> Self:
        """The same at another rate."""
        return replace(self, rate=rate)

    @property
    def key(self) -> str:
        """The same for equal cells, in this process and in others."""
        return json.dumps(asdict(self), sort_keys=True)

    def config(self) -> RunConfig:
        """The recipe `pods` with what the cell changes, on one thread of the CPU."""
        sums = {"model.path": base_model(self.start), "task.digits": self.digits, "task.num_eval": 256}
        return self.changed("pods", {**sums, "loss.kl_beta": self.kl})

    def changed(self, source: str, more: Mapping[str, Any]) -> RunConfig:
        """A recipe or file with its sizes, rate, seed and further options, on one thread of the CPU."""
        values = {
            "seed": self.seed,
            "threads": 1,
            "model.device": "cpu",
            "rollouts.num_rollouts": self.num_rollouts,
            "select.rule": "keep_all" if self.num_kept == self.num_rollouts else "max_variance",
            "select.num_kept": self.num_kept,
            "optim.lr": self.rate,
            **more,
        }
        changed = {text.partition("=")[0] for text in self.more}
        own = [f"{key}={json.dumps(value)}" for key, value in values.items() if key not in changed]
        return load_config(source, [*own, *self.more])


def name_of(own: Cell, arms: Mapping[str, tuple[int, int, tuple[str, ...]]]) -> str:
    """The name of a cell's arm, of arms by name: n, m and further options."""
    return next(name for name, arm in arms.items() if arm == (own.num_rollouts, own.num_kept, own.more))
