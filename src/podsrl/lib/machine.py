"""The machine: usable cores and torch's threads, memory and how much of it was in use, and a line for the hardware.

The number of threads is chosen on purpose: torch's own default can be ten times slower on a busy machine. OpenMP's
threads spin while they wait, and two spinning threads on a core that another process needs stall each other.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from podsrl.lib.below import below

if TYPE_CHECKING:
    import torch

SMALL_MODEL_PARAMETERS = 10_000_000
"""Below this, one thread is as fast as several: its matrix products are too small to share out."""
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_waiting_policy() -> None:
    """Let waiting OpenMP threads sleep instead of spin, unless the user chose; call it before torch is imported."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def configure_threads(threads: int, num_parameters: int, num_processes: int = 1) -> str:
    """Set torch's threads, and say in words what was set.

    0 threads chooses one for a small model, and for a large one the process's share of the usable cores.
    """
    import torch

    cores = num_cores()
    chosen = threads or (1 if num_parameters < SMALL_MODEL_PARAMETERS else max(1, cores // num_processes))
    torch.set_num_threads(chosen)
    policy = os.environ.get("OMP_WAIT_POLICY", "the library's own")
    each = f" in each of {num_processes} processes" if num_processes > 1 else ""
    return f"{chosen} of {cores} CPU threads{each}, OpenMP waiting policy {policy}"


def host_bytes() -> int:
    """The machine's memory, or what the container or job may use where that is less."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *cgroup_limits(Path("/"))])


def available_bytes() -> int:
    """Memory that the machine can give, caches not counted as used; 0 where the system does not say."""
    return _kilobytes(Path("/proc/meminfo"), "MemAvailable") or 0


def resident_bytes(pid: int) -> int:
    """Memory that a process and those below it hold; 0 where the system does not say."""
    return sum(_kilobytes(Path(f"/proc/{each}/status"), "VmRSS") or 0 for each in (pid, *below(pid)))


def total_bytes(device: torch.device) -> int:
    """Memory of the device; on a CPU `host_bytes`."""
    if device.type != "cuda":
        return host_bytes()
    import torch

    return int(torch.cuda.get_device_properties(device).total_memory)


def start_peak(device: torch.device) -> None:
    """Forget the peak so far."""
    if device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        _RESET.write_text("5")  # Linux: the resident peak starts again at what is resident now


def peak_bytes(device: torch.device) -> int | None:
    """Most memory in use since `start_peak`: the device's on CUDA, the process's resident one on Linux, else None."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.max_memory_allocated(device))
    return _kilobytes(_STATUS, "VmHWM")


def cgroup_limits(root: Path) -> list[int]:
    """The memory limits of this process's Linux control groups (version 1 or 2), innermost first, in bytes."""
    texts = [_text(file / name) for file, name in _cgroups(root)]
    return [int(text) for text in texts if text.isdigit()]  # "max" where there is none


def _cgroups(root: Path) -> Iterator[tuple[Path, str]]:
    """Folders of the groups that this process is in, up to the mount's own, and the file that holds a limit.

    A container may see its own group as the mount's root while the path names it from outside.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        mount, name = ("memory", "memory.limit_in_bytes") if controllers else ("", "memory.max")
        inner = PurePosixPath(path.lstrip("/"))
        for group in (inner, *inner.parents):
            yield root / "sys/fs/cgroup" / mount / group, name


def hardware_line() -> str:
    """Processor, usable cores, memory, accelerator, Python, torch and its threads: what a figure was measured on."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    processor = processor_facts().get("model name") or platform.processor() or platform.machine()
    cores, threads = num_cores(), torch.get_num_threads()
    return (
        f"{processor}, {cores} core{'' if cores == 1 else 's'}, {host_bytes() / 2**30:.0f} GiB, {gpu}, "
        f"Python {platform.python_version()}, "
        f"torch {torch.__version__.split('+')[0]} ({threads} thread{'s' if threads > 1 else ''})"
    )


def processor_facts() -> dict[str, str]:
    """What Linux says about the first processor ("model name", "cpu family" …); empty elsewhere."""
    lines = _text(Path("/proc/cpuinfo")).partition("\n\n")[0].splitlines()
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _kilobytes(path: Path, name: str) -> int | None:
    """In bytes, what the system says in kB; None where it does not."""
    lines = _text(path).splitlines()
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
