"""Which library computes a run's float32 products: process 0 chooses for all, and a resume keeps the choice.

The two libraries round differently, so only the same choice gives the same numbers.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch import nn

from podsrl.config.load import changed_keys
from podsrl.lib.matmul import NEVER, Choice, choose, is_available, rule_path, use
from podsrl.scale.processes import Processes


def settle_matmul(option: str, model: nn.Module, processes: Processes) -> Choice | None:
    """Choose as `option` (`model.matmul`) says, and use the choice from now on; all processes call this.

    None where the model has no float32 weights on a CPU, so that there is nothing to choose. Torch's threads are set.
    """
    if not any(weight.is_cpu and weight.dtype == torch.float32 for weight in model.parameters()):
        return None
    own = choose(option).to_json() if processes.is_main else None
    choice = Choice.of_json(processes.broadcast(own))
    assert choice is not None
    use(choice.rule)
    return choice


def describe_matmul(option: str, choice: Choice | None) -> str:
    """In one line, which library computes a run's float32 products on the CPU, and what decided that."""
    if choice is None:
        ignored = "" if option == "auto" else f"; model.matmul = {option!r} has no effect"
        return f"by PyTorch, since no weight is float32 on a CPU{ignored}"
    if not is_available():
        return "by PyTorch, since there is no choice of libraries on this processor (it is not an x86)"
    libraries = "by MKL" if choice.rule == NEVER else "large ones by oneDNN, small ones by MKL"
    return f"{libraries} ({'the faster one on this machine' if option == 'auto' else f'model.matmul = {option!r}'})"


def describe_here() -> str:
    """In one line, what "auto" means on this machine with torch's threads as they are, and which file keeps that."""
    choice = choose()
    if not is_available():
        return describe_matmul("auto", choice)
    with suppress(RuntimeError):
        if (path := rule_path(choice.machine)).exists():
            return f"{choice.rule}, as measured here; to measure again, delete {path}"
    return f"{choice.rule}, as measured here"


def restore_matmul(own: Choice | None, stored: Any) -> tuple[Choice | None, list[str]]:
    """Go back from `own`, chosen at start, to a checkpoint's choice where it was made on a machine like this one.

    Returns:
        The choice that holds now, and warnings: one where it is not the checkpoint's.
    """
    before = Choice.of_json(stored)
    if own is None:
        return None, []
    if before is not None and before.machine == own.machine:
        use(before.rule)
        return before, []
    changes = changed_keys(before.machine, own.machine) if before else ["no choice is stored"]
    return own, [
        f"the library of float32 products was chosen anew ({', '.join(changes)}): from here on numbers may differ in "
        "their last bits from those of a run that was not stopped"
    ]
