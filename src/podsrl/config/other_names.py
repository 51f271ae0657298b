"""What the PODS paper, other trainers and earlier versions call the options of this package; for unknown keys and docs.

The names stand in `other_names.toml`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class OtherName:
    """What another library, the paper or an earlier version calls an option."""

    origin: str
    theirs: str
    """With a "*" it stands for every name of that form that has no entry of its own."""
    ours: str
    """Dotted key of `RunConfig`, or a flag such as "--out"; empty: there is none here."""
    difference: str
    """How its values differ from ours, where they do; why there is none."""

    def __str__(self) -> str:
        return f"{self.origin}: {self.theirs}" + (f"; {self.difference}" if self.difference else "")


@cache
def other_names() -> tuple[OtherName, ...]:
    """All of them, in the order of our options; those without one come last."""
    text = (resources.files("podsrl.config") / "other_names.toml").read_text(encoding="utf-8")
    options = tomllib.loads(text)
    entries = [("", {**names, "differs": reason}) for reason, names in options.pop("none").items()]
    entries = [(ours, names) for ours, own in options.items() for names in own] + entries
    return tuple(
        OtherName(origin, theirs, ours, names.get("differs", ""))
        for ours, names in entries
        for origin in names
        if origin != "differs"
        for theirs in names[origin].split()
    )


def find_other_names(key: str) -> list[OtherName]:
    """Entries of a key that is a name of the paper, another trainer or an earlier version; its last parts are enough.

    Several libraries may call different things so. An entry of the longest end counts, and a form such as "vllm.*" only
    where no entry has that name.

    Example:
        >>> [other.ours for other in find_other_names("actor_rollout_ref.rollout.n")]
        ['rollouts.num_rollouts']
        >>> [other.ours for other in find_other_names("train_batch_size")]
        ['rollouts.num_prompts', 'optim.num_minibatches']
    """
    parts = key.replace("-", "_").split(".")
    for end in (".".join(parts[start:]) for start in range(len(parts))):
        if found := [other for other in other_names() if other.theirs == end]:
            return found
        if found := [other for other in other_names() if "*" in other.theirs and fnmatchcase(end, other.theirs)]:
            return found
    return []


def find_last_parts(word: str) -> list[OtherName]:
    """Entries whose names end with a word, as "n_gpus_per_node" stands for "trainer.n_gpus_per_node"."""
    return [other for other in other_names() if other.theirs.rpartition(".")[2] == word.replace("-", "_")]


def answer_of(others: Sequence[OtherName]) -> str:
    """What to say to someone who used such a name: our options, or why there is none."""
    options: dict[str, list[str]] = {}
    for other in others:
        if other.ours:
            options.setdefault(other.ours, []).append(str(other))
    if options:
        cures = [f"{ours!r} ({', '.join(says)})" for ours, says in options.items()]
        return f"Did you mean {' or '.join(cures)}?"
    return f"It has no option here ({others[0].origin}: {others[0].theirs}), because {others[0].difference}."


def nearest_other_name(word: str, known: Collection[str] | None = None) -> str:
    """What to say of a word that another library calls nearly so; empty where nothing is near.

    Args:
        word: an unknown key or a part of it.
        known: keys of ours that may be offered; None: all.

    Example:
        >>> nearest_other_name("num_generation")
        " Did you mean 'rollouts.num_rollouts' (TRL: num_generations)?"
    """
    offered = [other for other in other_names() if other.ours and (known is None or other.ours in known)]
    names = [other.theirs for other in offered if "*" not in other.theirs]
    names += [name.rpartition(".")[2] for name in names]
    for end in (word, word.rpartition(".")[2]):
        if close := get_close_matches(end.replace("-", "_"), names, n=1, cutoff=0.8):
            return f" {answer_of(find_other_names(close[0]) or find_last_parts(close[0]))}"
    return ""
