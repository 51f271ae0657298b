"""One line that says what a figure was measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def hardware_line() -> str:
    """Processor, usable cores, memory, accelerator, Python, torch and its threads."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    threads = torch.get_num_threads()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{_processor_name()}, {cores} core{'' if cores == 1 else 's'}, {gib:.0f} GiB, {gpu}, "
        f"Python {platform.python_version()}, "
        f"torch {torch.__version__.split('+')[0]} ({threads} thread{'s' if threads > 1 else ''})"
    )


def _processor_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
