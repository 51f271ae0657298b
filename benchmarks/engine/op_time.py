"""An engine's time by kind of operation: how much of it is matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

KINDS = {
    "matmul": (
        "aten::mm",
        "aten::addmm",
        "aten::bmm",
        "aten::baddbmm",
        "aten::addmv",
        "aten::mv",
        "mkldnn::_linear_pointwise",
    ),
    "attention": (
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::scaled_dot_product_attention",
    ),
}
"""Kind -> operations. A fused attention multiplies matrices too, but is counted apart."""
NUM_OTHERS = 6


def op_shares(function: Callable[[], object]) -> dict[str, Any]:
    """Run a function under torch's profiler, which slows small operations more than large ones.

    The result has "matmul", "attention" and "other" in [0, 1] of all operations' own CPU time, and the largest others.

    Example:
        >>> a = torch.rand(512, 512)
        >>> op_shares(lambda: a @ a)["matmul"] > 0.5
        True
    """
    with profile(activities=[ProfilerActivity.CPU]) as profiler, torch.inference_mode():
        function()
    events = [event for event in profiler.key_averages() if event.key.startswith(("aten::", "mkldnn::"))]
    times = {event.key: event.self_cpu_time_total for event in events}
    total = sum(times.values())
    shares = {kind: sum(times.get(name, 0.0) for name in names) / total for kind, names in KINDS.items()}
    known = {name for names in KINDS.values() for name in names}
    others = sorted((name for name in times if name not in known), key=lambda name: -times[name])
    return {
        **shares,
        "other": 1 - sum(shares.values()),
        "largest_others": {name.removeprefix("aten::"): times[name] / total for name in others[:NUM_OTHERS]},
    }
