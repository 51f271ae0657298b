"""AdamW as the trainer uses it: gradient clipping, warm-up, steps that are skipped when the gradient is not finite.

Weights of 16 bits get a float32 copy that the optimizer works on; without it a step smaller than half their last bit (a
relative change of 1/512 in bfloat16, so nearly every step at a learning rate of 1e-6) would be rounded away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from podsrl.errors import CheckpointError, UsageError

_MOMENTS = {"step", "exp_avg", "exp_avg_sq"}


class Optimizer:
    """AdamW over the parameters of a model that require a gradient.

    Args:
        model: its trainable parameters are stepped in place; weights loaded into it later are not seen where they have
            16 bits, unless `load_state_dict` follows.
        lr: learning rate after warm-up, > 0.
        betas: decay of the first and second moment, in [0, 1).
        eps: added to the root of the second moment.
        weight_decay: decoupled; of matrices only, not of biases and norms.
        max_grad_norm: a larger global gradient norm is scaled down to it, > 0.
        warmup_steps: the first w steps use lr · 1/(w+1), lr · 2/(w+1) …; ≥ 0.

    Raises:
        UsageError: a model without a trainable parameter.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        max_grad_norm: float,
        warmup_steps: int,
    ) -> None:
        self._lr, self._max_grad_norm, self._warmup_steps = lr, max_grad_norm, warmup_steps
        weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        if not weights:
            raise UsageError("the model has no parameter that requires a gradient; unfreeze some, or add adapters")
        self._masters = {name: _master(weight) for name, weight in weights.items()}
        self._pairs_16_bit = {
            name: (weight, self._masters[name]) for name, weight in weights.items() if _has_16_bits(weight)
        }
        matrices = [master for master in self._masters.values() if master.ndim >= 2]
        vectors = [master for master in self._masters.values() if master.ndim < 2]
        groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        # fused: for a small model three times as fast as foreach, on a CPU too; elementwise, so repeatable bit for bit
        self._adamw = torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=lr, betas=betas, eps=eps, fused=True
        )
        self.num_steps = 0
        """Steps that changed the weights."""
        self.num_skipped_steps = 0
        """Steps given up because the gradient was not finite."""

    @torch.no_grad()
    def step(self) -> float:
        """Apply the gradients and clear them.

        Returns:
            The global norm before clipping. Without any gradient: 0, and neither weights nor moments nor warm-up move.
            With a norm that is not finite: that norm; the gradients are dropped, `num_skipped_steps` grows, and nothing
            else moves.
        """
        gradients = self._take_gradients()
        if not gradients:
            return 0.0
        total = torch.nn.utils.get_total_norm(gradients)
        norm = float(total)
        if math.isfinite(norm):
            if norm > self._max_grad_norm:
                torch.nn.utils.clip_grads_with_norm_(self._masters.values(), self._max_grad_norm, total)
            self._apply()
        else:
            self.num_skipped_steps += 1
        for master in self._masters.values():
            master.grad = None
        return norm

    def _take_gradients(self) -> list[Tensor]:
        """All gradients, after those of 16-bit weights have moved to their masters."""
        for weight, master in self._pairs_16_bit.values():
            if weight.grad is not None:
                master.grad, weight.grad = weight.grad.to(master.dtype), None
        return [master.grad for master in self._masters.values() if master.grad is not None]

    def _apply(self) -> None:
        self.num_steps += 1
        for group in self._adamw.param_groups:
            group["lr"] = self._lr * min(1.0, self.num_steps / (self._warmup_steps + 1))
        self._adamw.step()
        for weight, master in self._pairs_16_bit.values():
            weight.copy_(master)

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, int]]:
        """What an exact continuation needs besides the weights.

        Returns:
            Tensors by "kind/parameter name" (kinds: step, exp_avg, exp_avg_sq, and master for weights of 16 bits) that
            later steps change in place, and plain counts.
        """
        tensors = {
            f"{kind}/{name}": value
            for name, master in self._masters.items()
            for kind, value in self._adamw.state.get(master, {}).items()
        }
        tensors |= {f"master/{name}": master.detach() for name, (_, master) in self._pairs_16_bit.items()}
        return tensors, {"num_steps": self.num_steps, "num_skipped_steps": self.num_skipped_steps}

    @torch.no_grad()
    def load_state_dict(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, int]) -> None:
        """Take over what `state_dict` gave; the weights are loaded apart.

        Raises:
            CheckpointError: a tensor that is missing, left over or of another shape, or a missing count. Nothing has
                changed then.
        """
        if missing := {"num_steps", "num_skipped_steps"} - set(numbers):
            raise CheckpointError(f"the optimizer state lacks {sorted(missing)}; use another checkpoint")
        kinds = _by_parameter(tensors)
        for name, found in kinds.items():
            self._check_state(name, found)
        if lost := set(self._pairs_16_bit) - {name for name, found in kinds.items() if "master" in found}:
            raise CheckpointError(f"the optimizer state lacks master/{min(lost)}; use another checkpoint")
        self._adamw.state.clear()
        for name, found in kinds.items():
            master = self._masters[name]
            for kind in _MOMENTS & set(found):
                dtype = torch.float32 if kind == "step" else master.dtype
                self._adamw.state[master][kind] = found[kind].detach().to(master.device, dtype, copy=True)
            if "master" in found:
                master.copy_(found["master"])
        self.num_steps, self.num_skipped_steps = numbers["num_steps"], numbers["num_skipped_steps"]

    def _check_state(self, name: str, found: Mapping[str, Tensor]) -> None:
        """One parameter: all moments or none, a master only where it has 16 bits, nothing else, and the same shape."""
        if name not in self._masters:
            raise CheckpointError(f"the optimizer state is of another model: this one has no trainable {name!r}")
        allowed = _MOMENTS | ({"master"} if name in self._pairs_16_bit else set())
        moments = _MOMENTS & set(found)
        if set(found) - allowed or moments not in (set(), _MOMENTS):
            raise CheckpointError(f"the optimizer state of {name!r} holds {sorted(found)}; want {sorted(allowed)}")
        shape = self._masters[name].shape
        if any(value.shape != shape for kind, value in found.items() if kind != "step"):
            raise CheckpointError(f"the optimizer state of {name!r} has another shape than {tuple(shape)}")


def _by_parameter(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    kinds: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        kind, _, name = key.partition("/")
        kinds.setdefault(name, {})[kind] = value
    return kinds


def _has_16_bits(weight: Tensor) -> bool:
    return weight.dtype.itemsize < 4


def _master(weight: nn.Parameter) -> Tensor:
    return weight.detach().to(torch.float32).requires_grad_() if _has_16_bits(weight) else weight
