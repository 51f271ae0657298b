"""The systems that come with the package: recipes of the folder `systems`, and what a comparison of them has measured.

Each is a recipe that says in `[about]` what it is, and beside that what it changes, most of them by `systems`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from podsrl.compare.interval import SpeedupInterval
from podsrl.config.files import read_changes, recipe_names
from podsrl.config.load import load_config
from podsrl.config.schema import AboutConfig, RunConfig
from podsrl.errors import UsageError, nearest

FOLDER = "systems/"
MEASURED = "systems.json"
"""What the comparison `systems` gave, beside this module; `python -m benchmarks systems --save` writes it."""
_SECTIONS = ("systems", "loss", "select", "rollouts", "optim")
"""What a recipe sets, in reading order; the rest follows."""
GROUPS: Mapping[str, str] = {
    "baseline": "what the others are compared with",
    "allocate": "which prompts are asked, and how many rollouts each gets",
    "hint": "answers that get help where they are nearly all wrong",
    "prune": "rollouts that end early, or that no update sees",
    "reuse": "rollouts of earlier steps, or of other runs",
    "correct": "tokens that other weights have drawn",
    "weigh": "other advantages for the same rollouts",
}
"""`about.group` -> what its systems decide, in the order of lists."""
_ABOUT = re.compile(r"^\[about\]\n.*?(?=^\[|\Z)", re.MULTILINE | re.DOTALL)
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trouble:
    """What troubles a reader, and what to start with."""

    what: str
    systems: tuple[str, ...]
    """The first is the one to try first."""
    besides: str
    """What may help without a system."""
    verdict: str = ""
    """That of `pods diagnose` on a run with this trouble, if it sees it."""


TROUBLES = (
    Trouble(
        "nearly all answers are wrong",
        ("reinforce_ada", "dars"),
        "easier prompts; more rollouts each, which the recipe auto decides",
        "starved",
    ),
    Trouble("the same, and you have worked solutions", ("adhint", "seele", "scope"), ""),
    Trouble("nearly all answers are right", ("dapo", "dots"), "harder prompts", "solved"),
    Trouble("generation is too slow", ("april", "areal", "arrol"), "another generator, such as vLLM"),
    Trouble("the update is too slow, or does not fit", ("pods", "aero"), "the recipe auto, which chooses n and m"),
    Trouble("training is unstable", ("vcpo", "ppo_ewma"), "first a lower optim.lr; fewer steps ahead"),
    Trouble("answers are too long", ("april", "duet"), "a reward that pays for short answers", "over-long"),
    Trouble("answers have several turns", ("gigpo",), "rewards for turns"),
    Trouble("there are no labels", ("echo",), "labels for some held-out prompts, to see a fall"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A system, as its recipe describes it."""

    name: str
    """Of its recipe, without the folder."""
    about: AboutConfig
    changes: Mapping[str, Any]
    """Dotted key -> value of all that the recipe changes in the one for its task, besides `[about]` and `[options]`."""
    options: Mapping[str, Mapping[str, Any]]
    """Name -> the options that the recipe sets."""
    config: RunConfig
    """The whole config, with what the recipe extends."""
    toml: str
    """The recipe's text without `[about]`."""

    @property
    def recipe(self) -> str:
        """What `pods train` calls it."""
        return FOLDER + self.name

    @property
    def flags(self) -> tuple[str, ...]:
        """Its choices and numbers, such as "systems=dars,mixed" and "select.num_kept=8"."""
        return tuple(f"{key}={_text(value)}" for key, value in self.changes.items())

    @property
    def line(self) -> str:
        """The same in a line."""
        return ", ".join(self.flags)


def system_names() -> list[str]:
    """Names of all systems, the plain ones first."""
    names = [name.removeprefix(FOLDER) for name in recipe_names() if name.startswith(FOLDER)]
    plain = ("grpo", "grpo_ga", "pods")
    return [*(name for name in plain if name in names), *(name for name in names if name not in plain)]


def read_system(name: str) -> System:
    """One system, by its name or its recipe's.

    Raises:
        UsageError: no recipe has the name.

    Example:
        >>> read_system("pods").line
        'select.rule=max_variance, select.num_kept=8, rollouts.num_rollouts=32'
    """
    known, name = system_names(), name.removeprefix(FOLDER)
    if name not in known:
        raise UsageError(f"system {name!r}: no such system.{nearest(name, known)}")
    tree = read_changes(FOLDER + name)
    config = load_config(FOLDER + name)
    file = resources.files("podsrl.config").joinpath("recipes", "systems", f"{name}.toml")
    return System(
        name=name,
        about=config.about,
        changes={
            f"{section}.{key}".removesuffix("."): value
            for section in (*_SECTIONS, *sorted(tree.keys() - {*_SECTIONS, "about", "options"}))
            for key, value in _entries(tree.get(section, {}))
        },
        options=config.options,
        config=config,
        toml=_ABOUT.sub("", file.read_text(encoding="utf-8")),
    )


def measured() -> Json | None:
    """The committed result of the comparison `systems`; None before it was made."""
    file = resources.files("podsrl.compare").joinpath(MEASURED)
    found: Json | None = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    return found


def needed(result: Json, arm: str, cost: str = "rollouts") -> SpeedupInterval | None:
    """An arm's cost to the target over the baseline's; None where it was not measured.

    Example:
        >>> entry = {"saving": {"point": 2.0, "low": 1.6, "high": 2.5, "share_unreached": 0.0}}
        >>> needed({"costs": {"rollouts": {"dars": entry}}}, "dars").text
        '0.50× (0.40–0.62)'
    """
    entry = result["costs"].get(cost, {}).get(arm)
    return None if entry is None else SpeedupInterval.from_json(entry["saving"]).inverse


def _entries(section: Any) -> list[tuple[str, Any]]:
    return list(section.items()) if isinstance(section, Mapping) else [("", section)]


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
