"""4-bit weights (bitsandbytes, an optional extra): checks of what they need, and their dequantised matrices.

Source: NF4 and adapters on a quantised base, Dettmers et al. 2023 (QLoRA).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from podsrl.errors import UnavailableError
from podsrl.policy.source import first_line, quiet_log


def quiet_import() -> AbstractContextManager[None]:
    """Silence bitsandbytes' hint, on some CPUs, at a faster kernel to download; PEFT imports bitsandbytes too."""
    return quiet_log("bitsandbytes.backends.cpu.ops")


def require_bitsandbytes(option: str) -> Any:
    """Import bitsandbytes. UnavailableError: it is not installed or cannot be imported."""
    if find_spec("bitsandbytes") is None:
        raise UnavailableError(f"{option} needs bitsandbytes, which is not installed: pip install 'podsrl[quantized]'")
    try:
        with quiet_import():
            import bitsandbytes
    except Exception as error:  # it loads native libraries, which fail in their own ways
        raise UnavailableError(f"{option}: bitsandbytes is installed but does not load: {first_line(error)}") from None
    return bitsandbytes


def check_4bit(device: torch.device) -> None:
    """Run a small layer on the device. UnavailableError: the package is missing, or has no 4-bit kernels for it."""
    bnb = require_bitsandbytes("model.load_in_4bit")
    try:
        layer = bnb.nn.Linear4bit(64, 64, bias=False, compute_dtype=torch.float32, quant_type="nf4").to(device)
        inputs = torch.ones(1, 64, device=device, requires_grad=True)
        layer(inputs).sum().backward()
    except Exception as error:
        raise _cannot_run("model.load_in_4bit", device, error) from None


def check_adam_8bit(device: torch.device) -> None:
    """Take a small step on the device. UnavailableError: the package is missing, or has no 8-bit Adam for it."""
    bnb = require_bitsandbytes("optim.name = 'adamw_8bit'")
    weight = nn.Parameter(torch.zeros(64, 64, device=device))
    weight.grad = torch.ones_like(weight)
    try:
        bnb.optim.AdamW8bit([weight]).step()
    except Exception as error:
        raise _cannot_run("optim.name = 'adamw_8bit'", device, error) from None


def quantisation(dtype: torch.dtype) -> Any:
    """The quantisation config for transformers: NF4, products in `dtype`."""
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)


def keep_layout(model: nn.Module) -> None:
    """Keep bitsandbytes from rearranging weights for some CPUs in evaluation mode: every sync reads them again."""
    for module in model.modules():
        if is_4bit(module):
            setattr(module, "support_avx512bf16_for_cpu", False)  # noqa: B010  (an attribute that nn.Module does not know)


def is_4bit(module: nn.Module) -> bool:
    """Whether it is a linear layer with 4-bit weights."""
    own = dict(module.named_parameters(recurse=False))  # a layer with an adapter also answers to .weight
    return type(own.get("weight")).__name__ == "Params4bit"


def dequantised(module: Any) -> Tensor:
    """The whole matrix [out, in], in the type of the layer's products."""
    import bitsandbytes

    weight = module.weight
    whole: Tensor = bitsandbytes.functional.dequantize_4bit(weight.data, weight.quant_state)
    return whole


def _cannot_run(option: str, device: torch.device, error: Exception) -> UnavailableError:
    return UnavailableError(
        f"{option}: bitsandbytes cannot run it on {device} here ({first_line(error)}): use a CUDA GPU, a newer "
        "bitsandbytes, or leave the option out"
    )
