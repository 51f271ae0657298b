"""Where a service trains: what is about a model in this process says nothing there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podsrl.config.files import Tree, merge

SERVICES = ("tinker",)
"""Values of `rollouts.generator` with which a service trains."""
OF_THIS_PROCESS = (
    *("lora", "model.dtype", "model.device", "model.attention", "model.matmul", "model.dropout"),
    *("model.gradient_checkpointing", "model.load_in_4bit"),
    *("rollouts.num_slots", "rollouts.kv_cache_bytes", "rollouts.scheduler"),
    *("optim.name", "optim.micro_batch_tokens", "optim.packing", "optim.prefix_sharing", "optim.logprob_chunk_tokens"),
    *("scale.strategy", "scale.generators", "scale.ray"),
)
"""Options, and the section, that a service decides. It refuses them, so that nobody waits for their effect."""


def without_inherited(tree: Tree, written: Mapping[str, Any]) -> Tree:
    """The tree; where a service trains, without what it decides, except for what somebody wrote.

    Args:
        written: the part of the tree that is of their files and flags, and no recipe's.

    Example:
        >>> recipe = {"rollouts": {"generator": "tinker"}, "optim": {"lr": 1e-5, "micro_batch_tokens": 3072}}
        >>> without_inherited(recipe, {})["optim"]
        {'lr': 1e-05}
        >>> without_inherited(recipe, {"optim": {"micro_batch_tokens": 3072}}) == recipe
        True
    """
    if _at(tree, "rollouts.generator") not in SERVICES:
        return tree
    found = merge(tree, {})
    for key in OF_THIS_PROCESS:
        section, _, name = key.rpartition(".")
        if _at(found, key) is not None and _at(written, key) is None:
            del (found[section] if section else found)[name]
    return found


def _at(tree: Mapping[str, Any], key: str) -> Any:
    found: Any = tree
    for name in key.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
