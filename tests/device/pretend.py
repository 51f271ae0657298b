"""A CUDA device that is not there, for a CPU build of torch: after `start()`, device "cuda" is one.

Its tensors are plain torch tensors on cuda:0 whose memory is the host's and whose operators the CPU computes
(`pretend.cpp`). It refuses what a GPU refuses: tensors of two devices in one operator, generators of the CPU,
`.numpy()`, operators without a CUDA kernel. Fresh memory holds NaN. `Watch` counts where the host waits for the device.
It cannot show what depends on the GPU's own kernels: their choice, rounding, order, speed, streams and memory limits.

As a command it builds the library.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

SOURCE = Path(__file__).with_name("pretend.cpp")
BUILDS = Path(__file__).parents[2] / "build" / "device"
FLAGS = ("-O1", "-std=c++20", "-fPIC", "-shared", "-w")
LISTENER = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
COMPOSITE = "CompositeExplicitAutograd", "CompositeImplicitAutograd", "CompositeExplicitAutogradNonFunctional"

_library: ctypes.CDLL | None = None


# --- building ---


def why_not() -> str | None:
    """What keeps the device from being built on this machine; None: nothing."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return f"it is made for Linux on x86-64, this is {sys.platform} on {platform.machine()}"
    if [path for name in ("cuda", "hip", "xpu") for path in _torch().glob(f"lib/libtorch_{name}.so")]:
        return "torch is not a CPU build"
    if not (_torch() / "include" / "torch" / "library.h").exists():
        return "torch came without its headers"
    return None if shutil.which("g++") else "there is no g++"


def build() -> Path:
    """The library for this torch and this source, built where it was not: once, however many processes ask."""
    text = f"{version('torch')} {FLAGS}".encode() + SOURCE.read_bytes()
    library = BUILDS / f"pretend-{hashlib.sha256(text).hexdigest()[:16]}.so"
    BUILDS.mkdir(parents=True, exist_ok=True)
    with (BUILDS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            print(f"building the pretended device with g++: {library.name} (half a minute, once)", flush=True)
            _compile(library)
    return library


def _compile(library: Path) -> None:
    unfinished, libraries = library.with_suffix(".part"), _torch() / "lib"
    links = [f"-L{libraries}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{libraries}"]
    command = ["g++", *FLAGS, f"-I{_torch() / 'include'}", SOURCE, "-o", unfinished, *links]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"g++ could not build {SOURCE} for torch {version('torch')}:\n{done.stderr[:4000]}")
    unfinished.rename(library)


def _torch() -> Path:
    """Torch's folder, without importing it."""
    found = importlib.util.find_spec("torch")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


# --- starting ---


def start() -> None:
    """Put the device into this process. Before torch is imported: it looks for CUDA's hooks only then."""
    global _library
    if "torch" in sys.modules:
        raise RuntimeError("start the pretended device before torch is imported")
    library = ctypes.CDLL(str(build()), mode=ctypes.RTLD_GLOBAL)
    library.pretend_allow.argtypes = ctypes.c_char_p, ctypes.c_bool
    library.pretend_live_bytes.restype = library.pretend_peak_bytes.restype = ctypes.c_int64
    for name, takes_host_scalars in _operators().items():
        library.pretend_allow(name.encode(), takes_host_scalars)
    _library = library
    sys.modules["bitsandbytes"] = None  # type: ignore[assignment]  # absent: it brings CUDA kernels of its own
    _patch_python(library)


def _operators() -> dict[str, bool]:
    """Each operator with a CUDA kernel -> whether it takes tensors of no dimension from the CPU; from torch's table."""
    found = importlib.util.find_spec("torchgen")
    assert found is not None and found.origin is not None
    table = Path(found.origin).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    operators, delegates = dict[str, bool](), dict[str, str]()
    for entry in table.read_text().split("\n- func: ")[1:]:
        keys = {
            key.strip() for keys in re.findall(r"^    ([A-Z][\w, ]*): ", entry, re.MULTILINE) for key in keys.split(",")
        }
        fields = dict(re.findall(r"^  (\w+): ?([\w., ]*)", entry, re.MULTILINE))
        name = entry.partition("(")[0]
        if "structured_delegate" in fields:
            delegates[f"aten::{name}"] = f"aten::{fields['structured_delegate']}"
        elif not keys or "ufunc_inner_loop" in fields or keys & {"CUDA", *COMPOSITE}:
            for each in (name, *fields.get("autogen", name).split(", ")):
                operators[f"aten::{each}"] = fields.get("device_check", "").startswith("NoCheck")
    return operators | {name: operators[other] for name, other in delegates.items() if other in operators}


def _patch_python(library: ctypes.CDLL) -> None:
    """What `torch.cuda` says and does in Python; and the copy of a bare storage, which a CPU build cannot place."""
    import torch

    memory = 80 << 30
    properties = SimpleNamespace(name="a pretended GPU", total_memory=memory, major=9, minor=0)
    values: dict[str, Callable[..., Any]] = {
        "_lazy_init": lambda: None,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda including_emulation=True: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "_exchange_device": lambda device: 0,
        "_maybe_exchange_device": lambda device: 0,
        "get_device_name": lambda device=None: properties.name,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: (9, 0),
        "manual_seed_all": lambda seed: None,
        "get_rng_state": lambda device=None: torch.get_rng_state(),  # without a generator, the CPU's draws
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "empty_cache": lambda: None,
        "synchronize": lambda device=None: Watch.hear(b"cuda.synchronize"),
        "mem_get_info": lambda device=None: (memory - library.pretend_live_bytes(), memory),
        "max_memory_allocated": lambda device=None: library.pretend_peak_bytes(),
        "reset_peak_memory_stats": lambda device=None: library.pretend_reset_peak(),
    }
    for name, value in values.items():
        setattr(torch.cuda, name, value)

    def clone(storage: Any) -> Any:
        return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).clone().untyped_storage()

    torch.UntypedStorage.clone = clone  # type: ignore[method-assign]


# --- counting ---


class Watch:
    """Counts where the host waits for the device while it is entered: `waits` by line, `num_waits`.

    A copy from pageable memory waits unless it is `non_blocking`; a copy to the host always does.

    Example:
        >>> with Watch() as watch:                                              # doctest: +SKIP
        ...     torch.ones(3, device="cuda").tolist()
        >>> watch.num_waits                                                     # doctest: +SKIP
        1
    """

    _current: Watch | None = None

    def __init__(self) -> None:
        self.waits: Counter[str] = Counter()
        """Source line and operator -> how often."""

    @property
    def num_waits(self) -> int:
        return self.waits.total()

    def __enter__(self) -> Watch:
        assert _library is not None and Watch._current is None
        Watch._current = self
        self._listener = LISTENER(Watch.hear)
        _library.pretend_listen(self._listener)
        return self

    def __exit__(self, *_: object) -> None:
        assert _library is not None
        _library.pretend_listen(LISTENER())
        Watch._current = None

    @staticmethod
    def hear(operator: bytes) -> None:
        """Note one wait."""
        if Watch._current is not None:
            Watch._current.waits[f"{_line()} {operator.decode().removeprefix('aten::')}"] += 1


def _line() -> str:
    """The innermost line of podsrl that runs now; none in the threads of autograd."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        _, found, name = frame.f_code.co_filename.rpartition("/podsrl/")
        if found:
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return "outside"


if __name__ == "__main__":
    reason = why_not()
    print(f"no pretended device: {reason}" if reason else f"the pretended device: {build()}")
