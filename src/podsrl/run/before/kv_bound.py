"""The bound on the generator's key-value memory where a config gives none.

On a CPU there is none, since a run that would not fit has been given one (`fit`). On CUDA it is a share of what the
device has free when the engine is made, less what the update will hold from its first step on: the optimizer's numbers
and a reference model. What the update needs while it runs does not count, since it does not generate at the same time.
"""

from __future__ import annotations

from typing import Any

import torch

from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.lib.devices import default_bound


def kv_bound(config: RunConfig, device: torch.device, later_bytes: int = 0) -> int | None:
    """Bytes of keys and values that the engine may hold: `rollouts.kv_cache_bytes` where given; None: no bound.

    Args:
        device: of the engine's model.
        later_bytes: of `update_bytes`, where the same device will train.

    Raises:
        UsageError: the update will leave nothing.
    """
    if config.rollouts.kv_cache_bytes or device.type != "cuda":
        return config.rollouts.kv_cache_bytes or None
    bound = default_bound(device, later_bytes)
    if bound <= 0:
        free, _ = torch.cuda.mem_get_info(device)
        raise UsageError(
            f"{device} has {free:,} bytes free, and the optimizer and the reference model will take {later_bytes:,}: "
            "nothing is left for keys and values; use lora.rank, optim.name = 'adamw_8bit' or a smaller model"
        )
    return bound


def update_bytes(config: RunConfig, model: Any, num_processes: int, *, has_copy: bool = False) -> int:
    """What the update will hold from its first step on, beside the weights and adapters that are there.

    `num_processes` share the optimizer's numbers under zero2 and fsdp2. With `has_copy` the generator's own copy of the
    weights counts too.
    """
    own = [p for p in model.parameters() if p.requires_grad]
    trained, masters = (sum(p.numel() for p in own if p.dtype.itemsize < most) for most in (9, 4))
    weights: int = sum(p.nbytes for p in model.parameters())
    moments = 2 if config.optim.name == "adamw_8bit" else 8
    shares = num_processes if config.scale.strategy != "ddp" else 1
    has_reference = config.loss.kl_beta > 0 and config.lora is None
    has_average = config.correct.proximal == "average"
    states: int = trained * (moments + 4 * has_average) + 4 * masters
    return states // shares + weights * (has_reference + has_copy)
