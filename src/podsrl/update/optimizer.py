"""AdamW as the trainer uses it: gradient clipping, a schedule, steps that are skipped when the gradient is not finite.

Weights of 16 bits get a float32 copy that the optimizer works on; without it a step smaller than half their last bit (a
relative change of 1/512 in bfloat16, so nearly every step at a learning rate of 1e-6) would be rounded away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from podsrl.config.schema import OptimConfig
from podsrl.errors import CheckpointError, UsageError
from podsrl.update.adamw import ADAMS
from podsrl.update.float32_sums import has_16_bits


class Optimizer:
    """AdamW over the parameters of a model that require a gradient.

    Args:
        model: its trainable parameters are stepped in place; weights loaded into it later are not seen where they have
            16 bits, unless `load_state_dict` follows.
        options: see `podsrl.config.schema.OptimConfig`. The weight decay is decoupled, and of matrices only, not of
            biases and norms. Of w warm-up steps the first use lr · 1/(w+1), lr · 2/(w+1) …

    Raises:
        UsageError: a model without a trainable parameter; "adamw_8bit" without bitsandbytes, or on sharded weights.
    """

    def __init__(self, model: nn.Module, options: OptimConfig) -> None:
        self._options = options
        weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        if not weights:
            raise UsageError("the model has no parameter that requires a gradient; unfreeze some, or add adapters")
        self._masters = {name: _master(weight) for name, weight in weights.items()}
        self._pairs_16_bit = {
            name: (weight, self._masters[name]) for name, weight in weights.items() if has_16_bits(weight)
        }
        matrices = [master for master in self._masters.values() if master.ndim >= 2]
        vectors = [master for master in self._masters.values() if master.ndim < 2]
        groups = [{"params": matrices, "weight_decay": options.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        self._kind = ADAMS[options.name]
        groups = [group for group in groups if group["params"]]
        self._adamw = self._kind.new(groups, options.lr, options.betas, options.eps)
        self.num_steps = 0
        """Steps that changed the weights."""
        self.num_skipped_steps = 0
        """Steps given up because the gradient was not finite."""
        self._rate = 1.0

    @torch.no_grad()
    def step(self, rate: float = 1.0) -> float:
        """Apply the gradients and clear them.

        Args:
            rate: factor on the learning rate, above 0.

        Returns:
            The global norm before clipping. Without any gradient: 0, and neither weights nor moments nor warm-up move.
            With a norm that is not finite: that norm; the gradients are dropped, `num_skipped_steps` grows, and nothing
            else moves.
        """
        self._rate = rate
        gradients = self._take_gradients()
        if not gradients:
            return 0.0
        total = torch.nn.utils.get_total_norm(gradients)
        # A DTensor has this method; its module imports slowly, so it is not asked for by its class.
        norm = float(total.full_tensor() if hasattr(total, "full_tensor") else total)
        if math.isfinite(norm):
            if norm > self._options.max_grad_norm:
                torch.nn.utils.clip_grads_with_norm_(self._masters.values(), self._options.max_grad_norm, total)
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
            group["lr"] = self.lr
        self._adamw.step()
        for weight, master in self._pairs_16_bit.values():
            weight.copy_(master)

    @property
    def lr(self) -> float:
        """The learning rate of the last step that changed the weights, times the factor that the last step got; before
        the first, that of the first."""
        options, step = self._options, max(1, self.num_steps)
        return options.lr * rate_factor(step, options.warmup_steps, options.schedule_steps) * self._rate

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, int]]:
        """What an exact continuation needs besides the weights.

        Returns:
            Tensors by "kind/parameter name" (kinds: those of the optimizer's layout, and master for weights of 16 bits)
            that later steps change in place, and plain counts. For example, a weight "up" of 16 bits gives step/up,
            exp_avg/up, exp_avg_sq/up and master/up with "adamw".
        """
        tensors: dict[str, Tensor] = {}
        for name, master in self._masters.items():
            state = self._adamw.state.get(master)
            if not state:  # never stepped: it had no gradient yet
                continue
            for kind, (_, dtype) in self._kind.layout(master).items():
                value = state[kind]
                tensors[f"{kind}/{name}"] = value if isinstance(value, Tensor) else torch.tensor(value, dtype=dtype)
        for name, (_, master) in self._pairs_16_bit.items():
            tensors[f"master/{name}"] = master.detach()
        return tensors, {"num_steps": self.num_steps, "num_skipped_steps": self.num_skipped_steps}

    @torch.no_grad()
    def load_state_dict(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, int]) -> None:
        """Take over what `state_dict` gave; the weights are loaded apart.

        Raises:
            CheckpointError: a tensor that is missing, left over or of another shape or type, or a missing count.
                Nothing has changed then.
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
            self._remember(self._masters[name], found)
        self.num_steps, self.num_skipped_steps = numbers["num_steps"], numbers["num_skipped_steps"]

    def _check_state(self, name: str, found: Mapping[str, Tensor]) -> None:
        """One parameter: all moments or none, a master only where it has 16 bits, nothing else, and the same shapes."""
        if name not in self._masters:
            raise CheckpointError(f"the optimizer state is of another model: this one has no trainable {name!r}")
        master = self._masters[name]
        layout = self._kind.layout(master)
        shapes = {kind: shape for kind, (shape, _) in layout.items()}
        moments = set(found) & set(shapes)
        allowed = shapes | ({"master": tuple(master.shape)} if name in self._pairs_16_bit else {})
        if set(found) - set(allowed) or moments not in (set(), set(shapes)):
            raise CheckpointError(f"the optimizer state of {name!r} holds {sorted(found)}; want {sorted(allowed)}")
        for kind, value in found.items():
            if tuple(value.shape) != allowed[kind]:
                raise CheckpointError(
                    f"{kind} of {name!r} in the optimizer state has another shape than {allowed[kind]}"
                )
            if kind in layout and value.dtype != layout[kind][1]:
                raise CheckpointError(f"{kind} of {name!r} in the optimizer state is {value.dtype}: {layout[kind][1]}")

    def _remember(self, master: Tensor, found: Mapping[str, Tensor]) -> None:
        layout = self._kind.layout(master)
        kinds = {k: found[k].detach().to(master.device, layout[k][1], copy=True) for k in layout if k in found}
        if kinds:
            self._kind.remember(self._adamw, master, kinds)
        if "master" in found:
            master.copy_(found["master"])


def rate_factor(step: int, warmup_steps: int, schedule_steps: int) -> float:
    """The factor in [0, 1] on the learning rate in a step, counted from 1.

    The first w warm-up steps get 1/(w+1), 2/(w+1) …, step w+1 gets 1. Then the rate is constant where `schedule_steps`
    is 0; else it falls along half a cosine (Loshchilov & Hutter 2017, equation 5, without restarts), is 0 after so many
    steps, and stays there.

    Example:
        >>> [round(rate_factor(s, warmup_steps=1, schedule_steps=3), 3) for s in (1, 2, 3, 4, 9)]
        [0.5, 1.0, 0.5, 0.0, 0.0]
    """
    if step <= warmup_steps:
        return step / (warmup_steps + 1)
    share = (step - 1 - warmup_steps) / (schedule_steps - warmup_steps) if schedule_steps else 0.0
    return 0.5 * (1.0 + math.cos(math.pi * min(1.0, share)))


def _by_parameter(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    kinds: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        kind, _, name = key.partition("/")
        kinds.setdefault(name, {})[kind] = value
    return kinds


def _master(weight: nn.Parameter) -> Tensor:
    return weight.detach().to(torch.float32).requires_grad_() if has_16_bits(weight) else weight
