"""Measured rules in the user's cache folder: one small JSON file per machine and setting.

The file is `podsrl/matmul-DIGEST.json` in XDG_CACHE_HOME or ~/.cache. If several processes measure at the same time,
the first to write decides for all. A folder that cannot be written and a damaged file are no errors: the measured rule
then holds for one process.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch

from podsrl.lib.machine import processor_facts
from podsrl.lib.matmul.rule import Rule, rule_from

_SCHEME = "1"
"""Increased when the shapes or the rule's meaning change: older files are then ignored."""
_SETTINGS = ("ATEN_", "DNNL_", "MKL_", "ONEDNN_")
"""Beginnings of the environment variables that choose instructions or kernels."""


def machine() -> dict[str, str]:
    """All that the measurement depends on."""
    libraries = (line.strip(" -") for line in torch.__config__.show().splitlines())
    return {
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "libraries": "; ".join(line for line in libraries if "Math Kernel Library" in line or "MKL-DNN" in line),
        "threads": str(torch.get_num_threads()),
        "environment": " ".join(f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(_SETTINGS)),
        "scheme": _SCHEME,
    }


def processor() -> str:
    """The processor's name, with family and model where the system reports them."""
    found = processor_facts()
    if not found:
        return platform.processor() or platform.machine()
    numbers = [f"{name} {found[name]}" for name in ("cpu family", "model", "stepping") if name in found]
    return " ".join([found.get("model name", platform.machine()), *numbers])


def digest_of(machine: Mapping[str, str]) -> str:
    """A short name for a machine and its setting."""
    return hashlib.sha256(json.dumps(dict(machine), sort_keys=True).encode()).hexdigest()[:16]


def path_of(machine: Mapping[str, str]) -> Path:
    """The file of a machine's rule, there or not. RuntimeError: the user has no home folder."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "podsrl" / f"matmul-{digest_of(machine)}.json"


def read(machine: Mapping[str, str]) -> Rule | None:
    """The rule that was measured on this machine; None if there is no usable one."""
    try:
        stored = json.loads(path_of(machine).read_text())
    except (OSError, RuntimeError, ValueError):
        return None
    return rule_from(stored.get("rule")) if isinstance(stored, dict) and stored.get("machine") == machine else None


def write(machine: Mapping[str, str], rule: Rule) -> Rule:
    """Store a rule. Returns it, or the one that another process stored first."""
    try:
        path = path_of(machine)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            new = Path(folder) / path.name
            new.write_text(json.dumps({"machine": dict(machine), "rule": rule.to_json()}, indent=1))
            try:
                os.link(new, path)  # whole or not at all, and never over another
            except OSError:  # another was first; or it is damaged, or the file system has no links
                if (first := read(machine)) is not None:
                    return first
                new.replace(path)
    except (OSError, RuntimeError):
        pass
    return rule
