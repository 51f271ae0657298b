"""An older config in today's words: `systems`, not `[budget]`, `[steer]`, `[replay]`, `loss.shape` and `loss.bound`.

There each decision was an option, and its value the name of a part. Today a part makes all of its decisions, and a
system is one part or several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from podsrl.config.bounds import parse_names
from podsrl.config.files import Tree, check_extends, merge, read_tree
from podsrl.errors import UsageError, nearest, short
from podsrl.lib.moments import SYSTEMS

_BOUND, _SHAPE, _FIRST = "loss.bound", "loss.shape", "steer.first"
_KEYS = (
    *(f"budget.{name}" for name in ("enough", "questions", "rollouts", "guide", "keep")),
    *("steer.close", "steer.prune", "steer.branch"),
    *("replay.groups", "replay.wait", "replay.repair"),
    *(_BOUND, _SHAPE),
)
"""Options whose value was the name of a part; of `loss.shape` a list of them, in order."""
_SECTIONS = ("budget", "steer", "replay")
_NOTHING = ("one_round", "stream", "equal", "none", "all", "never", "nothing", "same")
"""Names of parts that decide what a run without systems does."""
_PARTS = {
    "certain": ("control.close:Certain", "steer.close"),
    "until_mixed": ("control.close:UntilMixed", "steer.close"),
    "random": ("control.steer:Random", "steer.prune"),
    "mixed": ("systems.dapo:DynamicSampling", "budget.enough budget.keep"),
    "dynamics": ("systems.dps:Dynamics", "budget.questions"),
    "harder": ("systems.dars:Harder", "budget.rollouts"),
    "difficulty": ("systems.dots:Difficulty", "budget.questions budget.rollouts"),
    "profile": ("systems.sgpo:Profile", "budget.questions budget.rollouts"),
    "bandit": ("systems.gdro_rollouts:Bandit", "budget.rollouts"),
    "confidence": ("systems.xrpo:Confidence", "budget.rollouts"),
    "worth": ("systems.worth:Worth", "budget.rollouts"),
    "seek": ("systems.reinforce_ada:Seek", "budget.rollouts"),
    "varied": ("systems.vigor:Varied", "budget.rollouts"),
    "neyman": ("systems.duet:Neyman", "budget.rollouts"),
    "hints": ("systems.adhint:Hints", "budget.rollouts"),
    "examples": ("systems.xrpo:Examples", "budget.guide"),
    "nudge": ("systems.nudgerl:Nudge", "budget.guide"),
    "quality": ("systems.arrol:Quality", "steer.prune"),
    "states": ("systems.poise:States", "steer.prune"),
    "ambiguous": ("systems.latr:Ambiguous", "budget.rollouts steer.prune steer.branch"),
    "anchors": ("systems.gigpo:Anchors", "loss.shape"),
    "bins": ("systems.gdro_prompts:BinWeights", "loss.shape"),
    "confident": ("systems.echo:Confident", "steer.prune steer.branch loss.shape loss.bound"),
    "contexts": ("systems.nudgerl:Contexts", "loss.shape"),
    "contrast": ("systems.trace:Contrast", "budget.rollouts steer.prune loss.shape"),
    "pilot": ("systems.pilot_commit:Pilot", "budget.enough budget.rollouts budget.keep replay.wait"),
    "fifo": ("systems.dots_rr:Fifo", "replay.groups"),
    "swarm": ("systems.sapo:Swarm", "replay.groups"),
    "scope": ("systems.scope:Scope", "replay.repair"),
    "halves": ("systems.adhint:Halves", "loss.shape"),
    "novelty": ("systems.xrpo:Novelty", "loss.shape"),
    "pool_mean": ("systems.reinforce_ada:PoolMean", "loss.shape"),
    "posterior": ("systems.aero:Posterior", "loss.shape"),
    "probe": ("systems.poise:Probe", "loss.shape"),
    "votes": ("systems.echo:Votes", "loss.shape"),
}
"""Name of a part -> its class, and the options whose decisions the class makes."""
_MIXED = "podsrl.systems.dapo:Mixed"
"""The class of "mixed" that decides `budget.keep` alone."""
_PLACES = {name: f"podsrl.{place}" for name, (place, _) in _PARTS.items()}
_DECIDES = {_PLACES[name]: tuple(keys.split()) for name, (_, keys) in _PARTS.items()} | {_MIXED: ("budget.keep",)}
"""Class -> those options."""
_OLD = {place: name for name, place in _PLACES.items()} | {_MIXED: "mixed"}
Decided = dict[str, list[str]]
"""Option -> what decides it: "module:Class" each."""


def old_key(key: str) -> str | None:
    """What to say of a key that older configs have, alone or behind "base." or "arms.NAME."; None of any other.

    Example:
        >>> old_key("budget.rollouts")
        'budget.rollouts is written systems = [...] now: pods config --upgrade FILE writes it'
        >>> old_key("options.harder")
        '[options.harder] is [options.dars] now: pods config --upgrade FILE writes it'
    """
    words = key.split(".")
    ends = [".".join(words[start:]) for start in range(len(words))]
    if found := [end for end in ends if end in (*_KEYS, _FIRST, *_SECTIONS)]:
        return f"{found[0]} is written systems = [...] now: pods config --upgrade FILE writes it"
    section, _, name = ends[-2].partition(".") if len(ends) > 1 else ("", "", "")
    if section != "options" or name not in _PARTS or name in SYSTEMS:
        return None
    systems = [system for system, places in SYSTEMS.items() if _PLACES[name] in places]
    return f"[options.{name}] is [options.{' or '.join(systems)}] now: pods config --upgrade FILE writes it"


def upgraded(tree: Mapping[str, Any], folder: Path = Path()) -> Tree:
    """A config in today's words; one that is already is given back equal.

    Args:
        tree: of a run or a comparison, with its `extends`.
        folder: of the file, from which `extends` may name others.

    Raises:
        UsageError: a part of which there is none, or decisions that no system makes alone.

    Example:
        >>> upgraded({"budget": {"rollouts": "harder", "keep": "mixed"}, "options": {"harder": {"most": 32}}})
        {'systems': ['dars', 'mixed'], 'options': {'dars': {'most': 32}}}
    """
    if not {"base", "arms"} & tree.keys():
        return _of_run(tree, (), folder)[0]
    under = _extended(tree, folder)
    _, systems = _of_run(under.get("base", {}), (), folder)
    base, systems = _of_run(tree.get("base", {}), systems, folder)
    arms = {}
    for name, changes in tree.get("arms", {}).items():
        _, before = _of_run(under.get("arms", {}).get(name, {}), systems, folder)
        arms[name], _ = _of_run(changes, before, folder)
    new = {"base": base, "arms": arms}
    return {key: new.get(key, value) for key, value in tree.items()}


def _extended(tree: Mapping[str, Any], folder: Path) -> Tree:
    """What a tree extends; empty where it extends nothing."""
    if "extends" not in tree:
        return {}
    extends = check_extends(tree["extends"], "--upgrade")
    beside = folder / extends
    return read_tree(beside if beside.is_file() else extends)


def _of_run(tree: Mapping[str, Any], systems: Sequence[str], folder: Path) -> tuple[Tree, Sequence[str]]:
    """The tree in today's words, and all systems of its run.

    Args:
        systems: of what the tree changes, besides what it extends.
    """
    if under := _extended(tree, folder):
        _, systems = _of_run(under, systems, folder)
    new = merge(tree, {})
    named, first = _taken(new)
    own = _names(new["systems"], "systems") if "systems" in new else systems
    decided, others = _decided(own)
    for key, names in named.items():
        decided[key] = [_place(key, name) for name in names if name not in _NOTHING]
    _check_whole(decided)
    shapes = decided[_SHAPE]
    places = [place for key in _KEYS for place in decided[key] if key == _SHAPE or place not in shapes]
    found = _systems([*others, *places], shapes) if named else list(own)
    _rename(new, found)
    for close in decided["steer.close"] if first is not None else ():
        new.setdefault("options", {}).setdefault(_name_of(close, found), {})["first"] = first
    head = {"extends": tree["extends"]} if "extends" in tree else {}
    if "systems" in new or found != list(systems):
        head["systems"] = found
    return {**head, **{key: value for key, value in new.items() if key not in head}}, found


def _taken(tree: Tree) -> tuple[dict[str, list[str]], Any]:
    """What a tree's old options name, and `steer.first`: they are taken out, with the sections that are then empty."""
    found = {}
    for key in (*_KEYS, _FIRST):
        section, _, option = key.partition(".")
        if isinstance(own := tree.get(section), dict) and option in own:
            found[key] = own.pop(option)
    for section in (*_SECTIONS, "loss"):
        if tree.get(section) == {}:
            del tree[section]
    first = found.pop(_FIRST, None)
    return {key: _names(value, key) for key, value in found.items()}, first


def _names(value: Any, key: str) -> list[str]:
    try:
        names = parse_names(value) if isinstance(value, str | list | tuple) else None
    except ValueError as error:
        raise UsageError(f"{key} = {short(value)}: {error}") from None
    if names is None or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{key} = {short(value)}: wanted names")
    return list(names)


def _decided(systems: Sequence[str]) -> tuple[Decided, list[str]]:
    """What systems decide, and those of which it is not known."""
    decided: Decided = {key: [] for key in _KEYS}
    places = [place for name in systems for place in SYSTEMS.get(name, (name,))]
    for place in places:
        for key in _DECIDES.get(place, ()):
            decided[key].append(place)
    return decided, [place for place in places if place not in _DECIDES]


def _place(key: str, name: str) -> str:
    """The class of a part, or of one's own."""
    if ":" in name:
        return name
    if name not in _PARTS or key not in _PARTS[name][1].split():
        known = [each for each, (_, keys) in _PARTS.items() if key in keys.split()]
        raise UsageError(f"{key} = {name!r}: there was no such part.{nearest(name, known)}")
    return _PLACES[name]


def _check_whole(decided: Decided) -> None:
    """See that each class makes all of its decisions. UsageError: one does not."""
    asks = _PLACES["mixed"]
    if decided["budget.keep"] in ([asks], [_MIXED]):
        decided["budget.keep"] = [asks if asks in decided["budget.enough"] else _MIXED]
    for place, keys in _DECIDES.items():
        used = [key for key in keys if place in decided[key]]
        missing = [key for key in keys if key not in used and key != _BOUND]
        if used and missing:
            raise UsageError(
                f"{' and '.join(used)} = {_OLD[place]!r} without {' and '.join(missing)}: {place} decides them all; "
                "set them, or write a system of your own (docs/write-a-system.md)"
            )


def _systems(places: Sequence[str], shapes: Sequence[str]) -> list[str]:
    """Names of the systems that have these classes, and no others; a class alone of a larger system is its own name.

    Args:
        shapes: classes among them in the order in which they are called.
    """
    left, found = list(dict.fromkeys(places)), list[str]()
    while left:
        name = next((name for name, own in SYSTEMS.items() if left[0] in own and {*own} <= {*left}), left[0])
        left = [place for place in left if place not in SYSTEMS.get(name, (name,))]
        found.append(name)
    called = [place for name in found for place in SYSTEMS.get(name, (name,)) if place in shapes]
    return found if called == list(shapes) else [_alone(place) for place in dict.fromkeys(places)]


def _alone(place: str) -> str:
    return next((name for name, own in SYSTEMS.items() if own == (place,)), place)


def _name_of(place: str, systems: Sequence[str]) -> str:
    """The system among these that has a class; the class where none has."""
    return next((name for name in systems if place in SYSTEMS.get(name, (name,))), place)


def _rename(tree: Tree, systems: Sequence[str]) -> None:
    """Let a tree's tables of options have the names of the systems that have the parts."""
    names = {_OLD[place]: name for name in systems for place in SYSTEMS.get(name, (name,)) if place in _OLD}
    if isinstance(options := tree.get("options"), dict):
        tree["options"] = {}
        for name, own in options.items():
            tree["options"] = merge(tree["options"], {str(names.get(name, name)): own})
