"""Read TOML files and `--section.key=value` flags into one checked config, and write a config as TOML.

Order: defaults, then files, then flags. An unknown key is an error that names the nearest known key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar, get_args

import tomli_w
from pydantic import BaseModel, ValidationError

from podsrl.config.bounds import check_text
from podsrl.config.other_names import find_other_name
from podsrl.config.schema import CompareConfig, RunConfig
from podsrl.errors import UsageError, nearest, short

ConfigT = TypeVar("ConfigT", bound=BaseModel)
Tree = dict[str, Any]
MAX_FILE_BYTES = 16 << 20
"""Largest size of a config file; a larger file is something else."""
MAX_PROBLEMS = 5
"""Most problems that one message names."""


def load_config(source: str | Path | None = None, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a training config.

    Args:
        source: a TOML file, the name of a recipe of this package (`recipe_names()`), or None for the defaults.
        overrides: "section.key=value", with or without leading dashes; values in TOML notation, or bare words.

    Raises:
        UsageError: the file is missing or no valid TOML, a key is unknown (the message names the nearest), or a value
            is out of range.

    Example:
        >>> load_config(None, ["--select.num_kept=8"]).select.num_kept
        8
    """
    tree = read_tree(source) if source is not None else {}
    return build(RunConfig, apply_overrides(tree, overrides), str(source or "defaults"))


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


def read_tree(source: str | Path) -> Tree:
    """A TOML file, or a recipe by its name, as nested dicts.

    A key `extends` names another one that it changes: a recipe, or a file beside it.
    """
    tree, seen = read_own_tree(source), [str(source)]
    while extends := tree.pop("extends", None):
        base = _base_of(extends, seen)
        tree = merge(read_own_tree(base), tree)
    return tree


def read_own_tree(source: str | Path) -> Tree:
    """As `read_tree`, without what it extends, which stands under `extends`."""
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
    """What a config says that it extends. UsageError, which begins with `where`: that is no text."""
    if not isinstance(extends, str):
        raise UsageError(f"{where}: extends = {short(extends)}; wanted a recipe's name, or a file")
    return extends


def _base_of(extends: Any, seen: list[str]) -> str:
    """What a config extends, put on the list of those that were read."""
    source = seen[-1]
    check_extends(extends, f"config {source}")
    beside = Path(source).parent / extends
    base = str(beside) if Path(source).is_file() and beside.is_file() else extends
    if base in seen:
        raise UsageError(f"config {source}: extends = {extends!r}, which extends it; remove one of the two")
    seen.append(base)
    return base


def _what_is_missing(path: Path) -> str:
    """Why there is no config with this name, and what was probably meant."""
    if (path / "config.toml").is_file():
        return f"this is a run's folder; go on with the run by --resume {path}, or name its config {path}/config.toml"
    with_suffix = path.parent / f"{path.name}.toml"
    if with_suffix.is_file():
        return f"no such file, and no such recipe. Did you mean '{with_suffix}'?"
    return f"no such file, and no such recipe.{nearest(str(path), recipe_names())}"


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


def apply_overrides(tree: Tree, overrides: Sequence[str]) -> Tree:
    """A copy of the tree with each "a.b=value" set. UsageError: a key is given twice, or a section and a key in it."""
    result, seen = _copy(tree), set[str]()
    for text in overrides:
        key, sign, value = text.removeprefix("--").partition("=")
        if not sign or not key:
            raise UsageError(f"override {text!r}: wanted --section.key=value, e.g. --select.num_kept=8")
        if key in seen:
            raise UsageError(f"override --{key} is given twice: keep one")
        for other in seen:
            if f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}."):
                raise UsageError(f"overrides --{other} and --{key} set the same values: keep one")
        seen.add(key)
        _set(result, key.split("."), _parse_value(value), text)
    return result


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Tree:
    """Merge nested dicts; values of the second replace those of the first."""
    result = _copy(base)
    for key, value in changes.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def build(model: type[ConfigT], tree: Mapping[str, Any], source: str) -> ConfigT:
    """Check a tree against its model. UsageError: one line that names all problems (at most `MAX_PROBLEMS`)."""
    _check_texts(tree, source)
    if other := _other_kind(model, tree):
        raise UsageError(f"config {source}: {other}")
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        problems = [_explain(model, problem) for problem in error.errors()[:MAX_PROBLEMS]]
        if (rest := error.error_count() - MAX_PROBLEMS) > 0:
            problems.append(f"and {rest} more")
        raise UsageError(f"config {source}: " + "; ".join(problems)) from None


def _check_texts(value: Any, source: str, key: str = "") -> None:
    """UsageError: some text in the tree cannot be held by the system or a file of the run."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            _check_texts(str(name), source, key)
            _check_texts(part, source, f"{key}.{name}".removeprefix("."))
    elif isinstance(value, list | tuple):
        for part in value:
            _check_texts(part, source, key)
    elif isinstance(value, str):
        try:
            check_text(value)
        except ValueError as error:
            raise UsageError(f"config {source}: {key} = {short(value)}: {error}") from None


def dump(config: BaseModel) -> str:
    """The resolved config as TOML; reading it gives an equal config."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def with_values(config: RunConfig, **sections: Mapping[str, Any]) -> RunConfig:
    """A copy with other values (section -> option -> value), which are not validated."""
    changed = {name: getattr(config, name).model_copy(update=values) for name, values in sections.items()}
    return config.model_copy(update=changed)


def changed_keys(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Dotted keys whose values differ, as "key (old -> new)"."""
    lines: list[str] = []
    for key in sorted({*old, *new}):
        a, b = old.get(key), new.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            lines += changed_keys(a, b, f"{prefix}{key}.")
        elif a != b:
            lines.append(f"{prefix}{key} ({a} -> {b})")
    return lines


_WANTED = {
    "tuple_type": "wanted a list, in square brackets",
    "dict_type": "wanted a table of names and values, such as '{name = 1.0}'",
    "model_type": "wanted a section: set one of its keys, as --section.key=value",
}
"""Kind of problem -> message, instead of pydantic's words for programmers."""


def _other_kind(model: type[BaseModel], tree: Mapping[str, Any]) -> str | None:
    """If the tree is another kind of config, one sentence that says so, instead of one problem per key."""
    if model is not CompareConfig and "arms" in tree:
        return "this is a comparison, not a training run: use pods compare"
    is_without_arms = model is CompareConfig and not {"arms", "base"} & tree.keys()
    if is_without_arms and RunConfig.model_fields.keys() & tree.keys():
        return "this is a training run, not a comparison of arms (pods compare --help shows one): use pods train"
    return None


def _explain(model: type[BaseModel], problem: Any) -> str:
    location = [str(part) for part in problem["loc"]]
    key = ".".join(location)
    if problem["type"] == "extra_forbidden":
        return unknown_key(model, _whole_key(location, problem["input"]))
    if problem["type"] == "missing" and isinstance(problem["input"], Mapping):  # the rest of its section
        return f"{key} has to be set"
    message = _WANTED.get(problem["type"], str(problem["msg"]).removeprefix("Value error, "))
    named = [cure for cure in all_keys(model) if cure.endswith(f".{key}")] if problem["type"] == "model_type" else []
    hint = f". Did you mean {named[0]!r}?" if named else ""
    return f"{key} = {short(problem['input'])}: {message}{hint}" if key else message


def unknown_key(model: type[BaseModel], key: str) -> str:
    """The message for an unknown key, with the key that was probably meant.

    That is a key of the same name in another section, one that another library or the paper calls so, or the nearest
    key of its section.

    Example:
        >>> unknown_key(RunConfig, "select.m")
        "unknown key 'select.m'. Did you mean 'select.num_kept' (paper: m)?"
    """
    known = all_keys(model)
    parts = key.split(".")
    for end in (".".join(parts[start:]) for start in range(1, len(parts))):
        if end in known:
            return f"unknown key {short(key)}. Did you mean {end!r}?"
    other = find_other_name(key)
    if other is not None and (other.ours in known or other.ours.startswith("--")):
        difference = f"; {other.difference}" if other.difference else ""
        return f"unknown key {short(key)}. Did you mean {other.ours!r} ({other.origin}: {other.theirs}{difference})?"
    for cure in known:
        if cure.rpartition(".")[2] == parts[-1]:
            return f"unknown key {short(key)}. Did you mean {cure!r}?"
    return _nearest_key(model, parts)


def _nearest_key(model: type[BaseModel], parts: list[str]) -> str:
    """Name the first unknown part of the key, and the most similar key of its section."""
    section, prefix = model, ""
    for part in parts:
        field = section.model_fields.get(part)
        inner = section_of(field.annotation) if field is not None else None
        if inner is None:
            hint = nearest(part, section.model_fields).replace("mean '", f"mean '{prefix}")
            return f"unknown key {short(prefix + part)}.{hint}"
        section, prefix = inner, f"{prefix}{part}."
    return f"unknown key {short('.'.join(parts))}."


def _whole_key(location: list[str], given: Any) -> str:
    """The dotted key down to the first value; the checker names only the section if that is unknown."""
    keys = [*location]
    while isinstance(given, Mapping) and given:
        first = next(iter(given))
        keys.append(str(first))
        given = given[first]
    return ".".join(keys)


def all_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Every dotted key of a config model."""
    keys: list[str] = []
    for name, field in model.model_fields.items():
        kind = section_of(field.annotation)
        if kind is not None:
            keys += all_keys(kind, f"{prefix}{name}.")
        else:
            keys.append(f"{prefix}{name}")
    return keys


def section_of(kind: Any) -> type[BaseModel] | None:
    """The section that a field holds, optional or not; None for a plain value."""
    kinds = [kind, *get_args(kind)]
    return next((each for each in kinds if isinstance(each, type) and issubclass(each, BaseModel)), None)


def _parse_value(text: str) -> Any:
    """Parse a value in TOML notation; anything else is a plain string, so that a command line needs no quotes."""
    try:
        tree = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # also a number of thousands of digits, or as many brackets
        return text
    return tree["value"] if len(tree) == 1 else text  # a line break would begin another key


def _set(tree: Tree, keys: list[str], value: Any, text: str) -> None:
    for key in keys[:-1]:
        child = tree.setdefault(key, {})
        if not isinstance(child, dict):
            raise UsageError(f"override {text!r}: {key!r} is a value, not a section")
        tree = child
    tree[keys[-1]] = value


def _copy(tree: Mapping[str, Any]) -> Tree:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in tree.items()}
