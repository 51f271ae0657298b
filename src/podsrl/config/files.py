"""Read config files and recipes as nested dicts, with what they extend."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import takewhile
from pathlib import Path
from typing import Any

import tomli_w

from podsrl.config.bounds import check_path, check_text
from podsrl.errors import UsageError, nearest, short

Tree = dict[str, Any]
MAX_FILE_BYTES = 16 << 20
"""Largest size of a config file; a larger file is something else."""


def recipe_names() -> list[str]:
    """Names of the configs that come with this package; those in a folder are "folder/name"."""
    return sorted(_recipes(resources.files("podsrl.config") / "recipes"))


def _recipes(folder: Traversable, prefix: str = "") -> dict[str, Traversable]:
    """All recipes below a folder, by name."""
    found: dict[str, Traversable] = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            found |= _recipes(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".toml"):
            found[prefix + entry.name.removesuffix(".toml")] = entry
    return found


def recipe_idea(name: str) -> str:
    """The first sentence of the comment that a recipe begins with.

    Example:
        >>> recipe_idea("pods")
        "PODS on the demo's task: 64 rollouts per question, trained on the 16 whose rewards vary most."
    """
    lines = _recipes(resources.files("podsrl.config") / "recipes")[name].read_text(encoding="utf-8").splitlines()
    words = [line.removeprefix("# ") for line in takewhile(lambda line: re.match(r"# \S", line), lines)]
    sentence, *_ = re.split(r"(?<=\.) ", " ".join(words), maxsplit=1)
    return sentence.rstrip(":") + ("" if sentence.endswith(".") else ".")


def read_tree(source: str | Path) -> Tree:
    """A TOML file, or a recipe by its name, as nested dicts.

    A key `extends` names another one that it changes: a recipe, or a file beside it.
    """
    return _merged(_chain(source).values())


def read_written(source: str | Path) -> Tree:
    """As `read_tree`, without what recipes set: what somebody wrote into files of their own."""
    return _merged(tree for name, tree in _chain(source).items() if Path(name).is_file())


def read_changes(source: str | Path) -> Tree:
    """As `read_tree`, without the last one, which extends nothing: what is left are changes to it.

    Of a file that extends nothing, all of it.
    """
    chain = [*_chain(source).values()]
    return _merged(chain[:-1] or chain)


def _merged(chain: Iterable[Tree]) -> Tree:
    tree: Tree = {}
    for each in reversed([*chain]):
        tree = merge(tree, each)
    return tree


def _chain(source: str | Path) -> dict[str, Tree]:
    """Name -> a file, what it extends, what that one extends, and so on, each without the key `extends`."""
    last = str(source)
    chain = {last: _read_own(source)}
    while "extends" in chain[last]:
        base = _base_of(chain[last].pop("extends"), [*chain])
        try:
            chain[base] = _read_own(base)
        except UsageError as error:
            raise UsageError(f"{error} ({last} extends it)") from None
        last = base
    return chain


def _read_own(source: str | Path) -> Tree:
    content = _read_file(Path(source))
    if content is None and (recipe := _recipes(resources.files("podsrl.config") / "recipes").get(str(source))):
        content = recipe.read_bytes()
    if content is None:
        raise UsageError(f"config {source!s}: {_what_is_missing(Path(source))}")
    try:
        return tomllib.loads(content.decode())
    except RecursionError:
        raise UsageError(f"config {source!s}: not valid TOML: brackets are nested too deeply") from None
    except ValueError as error:  # not TOML, not UTF-8, or a number of thousands of digits
        cure = "; a file of questions goes under task.path of a config" if Path(source).suffix == ".jsonl" else ""
        raise UsageError(f"config {source!s}: not valid TOML: {error}{cure}") from None


def check_extends(extends: Any, where: str) -> str:
    """What a config says that it extends. UsageError, which begins with `where`: that is no text, or can be no path."""
    if not isinstance(extends, str) or not extends:
        raise UsageError(f"{where}: extends = {short(extends)}; wanted a recipe's name, or a file")
    try:
        return check_text(check_path(extends))
    except ValueError as error:
        raise UsageError(f"{where}: extends = {short(extends)}: {error}; wanted a recipe's name, or a file") from None


def _base_of(extends: Any, seen: list[str]) -> str:
    """What the last config of those that were read extends."""
    source = seen[-1]
    check_extends(extends, f"config {source}")
    beside = Path(source).parent / extends
    base = str(beside.resolve()) if Path(source).is_file() and beside.is_file() else extends
    if base in seen or base == str(Path(seen[0]).resolve()):
        raise UsageError(f"config {source}: extends = {extends!r}, which extends it; remove one of the two")
    return base


def _what_is_missing(path: Path) -> str:
    """Why there is no config with this name, and what was probably meant."""
    if (path / "config.toml").is_file():
        return f"this is a run's folder; go on with the run by --resume {path}, or name its config {path}/config.toml"
    with_suffix = path.parent / f"{path.name}.toml"
    if with_suffix.is_file():
        return f"no such file, and no such recipe. Did you mean '{with_suffix}'?"
    beside = [str(found) for found in path.parent.glob("*.toml")] if path.parent.is_dir() else []
    hint = nearest(str(path), [*recipe_names(), *beside])
    if "Did you mean" not in hint:  # a folder's recipes are too many to name
        hint = nearest(str(path), dict.fromkeys(re.sub("/.*", "/…", name) for name in recipe_names()))
    return f"no such file, and no such recipe.{hint}"


def _read_file(path: Path) -> bytes | None:
    """The content of a file; None if there is no file. UsageError: it cannot be read, or is too large for a config."""
    try:
        if path.is_dir() or not path.exists():
            return None
        if not path.is_file():
            raise UsageError(f"config {path}: wanted a file")
        if (size := path.stat().st_size) > MAX_FILE_BYTES:
            raise UsageError(f"config {path}: {size:,} bytes, and no config is larger than {MAX_FILE_BYTES:,}")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"config {path}: cannot be read: {error.strerror}") from None


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Tree:
    """Merge nested dicts; values of the second replace those of the first."""
    result = _copy(base)
    for key, value in changes.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def _copy(tree: Mapping[str, Any]) -> Tree:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in tree.items()}


def toml_line(value: Any) -> str:
    """A value in one line of TOML.

    Raises:
        TypeError: TOML has no form for it.

    Example:
        >>> print(toml_line("a"), toml_line((0.9, 0.99)), toml_line({"b": 1.0}), toml_line(True))
        "a" [0.9, 0.99] { b = 1.0 } true
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_line, value))}]"
    if isinstance(value, Mapping):
        names = (tomli_w.dumps({str(name): 0}).removesuffix(" = 0\n") for name in value)
        pairs = (f"{name} = {toml_line(part)}" for name, part in zip(names, value.values(), strict=True))
        return f"{{ {', '.join(pairs)} }}" if value else "{}"
    return tomli_w.dumps({"value": value}).partition(" = ")[2].strip()
