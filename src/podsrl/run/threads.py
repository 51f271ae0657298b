"""How many CPU threads torch uses. Chosen on purpose: torch's own default can be ten times slower on a busy machine.

OpenMP's threads spin while they wait, and two spinning threads on a core that another process needs stall each other.
`set_waiting_policy` must run before torch is imported; the command line does it first of all.
"""

from __future__ import annotations

import os

SMALL_MODEL_PARAMETERS = 10_000_000
"""Below this, one thread is as fast as several: its matrix products are too small to share out."""


def set_waiting_policy() -> None:
    """Let waiting OpenMP threads sleep instead of spin, unless the user said otherwise."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def configure_threads(threads: int, num_parameters: int, num_processes: int = 1) -> str:
    """Set torch's threads and say what was set.

    Args:
        threads: wanted number a process; 0 chooses one for a small model, and for a large one its share of the usable
            cores.
        num_parameters: of the model.
        num_processes: of the run on this machine, which share its cores.
    """
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    chosen = threads or (1 if num_parameters < SMALL_MODEL_PARAMETERS else max(1, cores // num_processes))
    torch.set_num_threads(chosen)
    policy = os.environ.get("OMP_WAIT_POLICY", "the library's own")
    each = f" in each of {num_processes} processes" if num_processes > 1 else ""
    return f"{chosen} of {cores} CPU threads{each}, OpenMP waiting policy {policy}"
