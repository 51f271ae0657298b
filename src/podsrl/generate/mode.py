"""A model's mode while it generates: dropout and its like are off, and afterwards every module is as it was."""

from __future__ import annotations

from typing import Any


def set_eval(model: Any) -> list[Any]:
    """Put the model in eval mode.

    Args:
        model: a torch module. One that is in eval mode itself is taken to be so as a whole.

    Returns:
        The modules that were in train mode, for `set_train`.
    """
    if not model.training:
        return []
    modules = [module for module in model.modules() if module.training]
    model.eval()
    return modules


def set_train(modules: list[Any]) -> None:
    """Put back in train mode what `set_eval` found in it; what somebody froze in eval mode stays there."""
    for module in modules:
        module.training = True
