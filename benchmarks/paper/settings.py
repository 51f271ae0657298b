"""The paper's comparisons from the recipes: both arms of a setting "a" .. "e" as one `CompareConfig`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podsrl.config.files import merge, read_tree
from podsrl.config.load import apply_overrides, build
from podsrl.config.schema import CompareConfig, RunConfig
from podsrl.errors import UsageError, nearest, short
from podsrl.lib.logs import write_atomically
from podsrl.run.saving.state import read_object

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a setting of the paper is compared."""

    baseline: str
    """The arm beside "pods"; the recipes are paper/SETTING-ARM."""
    metric: str
    """What its figure shows: `eval/METRIC`."""


SETTINGS = {
    "a": Setting(baseline="grpo", metric="accuracy"),
    "b": Setting(baseline="grpo", metric="accuracy"),
    "c": Setting(baseline="grpo", metric="accuracy_and_format"),
    "d": Setting(baseline="grpo_ga", metric="accuracy"),
    "e": Setting(baseline="grpo_ga", metric="accuracy"),
}


def comparison_of(name: str, *, num_seeds: int, overrides: Sequence[str] = ()) -> CompareConfig:
    """Both arms of the setting "a" .. "e".

    Args:
        overrides: "section.key=value" changes both arms; "arms.pods.section.key=value" one; "jobs=2" and the like the
            comparison.

    Raises:
        UsageError: another setting, a key in which the arms differ, or a value that does not fit.

    Example:
        >>> comparison_of("a", num_seeds=3).arms["pods"]["rollouts"]
        {'num_rollouts': 64}
    """
    if name not in SETTINGS:
        raise UsageError(f"setting {name!r}: wanted one of the paper's.{nearest(name, SETTINGS)}")
    setting = SETTINGS[name]
    base, pods = (read_tree(f"paper/{name}-{arm}") for arm in (setting.baseline, "pods"))
    changes = difference(base, pods)
    own, shared = _split(overrides, CompareConfig.model_fields)
    base = apply_overrides(base, shared)
    for text in shared:
        _check_is_shared(text, changes, setting.baseline)
    tree: Tree = {
        "baseline": setting.baseline,
        "metric": setting.metric,
        "num_seeds": num_seeds,
        "base": base,
        "arms": {setting.baseline: {}, "pods": changes},
    }
    return build(CompareConfig, apply_overrides(tree, own), f"of setting {name}")


def arm_configs(config: CompareConfig) -> dict[str, RunConfig]:
    """Arm -> its training config, of the first seed."""
    return {
        arm: build(RunConfig, {**merge(config.base, changes), "seed": config.first_seed}, f"of arm {arm!r}")
        for arm, changes in config.arms.items()
    }


def mark(folder: Path, name: str) -> None:
    """Write into the folder which setting it reproduces.

    Raises:
        UsageError: it reproduces another one.
        CheckpointError: what is noted there cannot be read.
    """
    file = folder / "reproduce.json"
    if file.exists() and (held := read_object(file).get("setting")) != name:
        raise UsageError(f"--out {folder}: reproduces setting {short(held)}, not {name!r}; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(file, json.dumps({"setting": name}))


def difference(base: Mapping[str, Any], other: Mapping[str, Any]) -> Tree:
    """What turns the first tree into the second, which has all its keys."""
    changes: Tree = {}
    for key, value in other.items():
        old = base.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            if inner := difference(old, value):
                changes[key] = inner
        elif old != value:
            changes[key] = value
    return changes


def _split(overrides: Sequence[str], own: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Those of the comparison itself, and those of every arm's training config."""
    heads = [text.removeprefix("--").partition("=")[0].partition(".")[0] for text in overrides]
    pairs = list(zip(heads, overrides, strict=True))
    return [text for head, text in pairs if head in own], [text for head, text in pairs if head not in own]


def _check_is_shared(text: str, changes: Mapping[str, Any], baseline: str) -> None:
    """An override of both arms would be lost on the one that has a value of its own."""
    key = text.removeprefix("--").partition("=")[0]
    node: Any = changes
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return
        node = node[part]
    raise UsageError(f"--{key}: the arms differ in it; set --arms.{baseline}.{key}=… or --arms.pods.{key}=…, or both")
