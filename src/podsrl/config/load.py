"""Make one checked config of a file and `--section.key=value` flags, and write a config as TOML.

Order: defaults, then the file with what it extends, then flags. An unknown key is an error that names the nearest known
one.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, Unpack, get_args

import tomli_w
from pydantic import BaseModel, ValidationError

from podsrl.config.bounds import check_text
from podsrl.config.elsewhere import without_inherited
from podsrl.config.files import Tree, merge, read_tree, read_written, toml_line
from podsrl.config.other_names import OtherName, answer_of, find_last_parts, find_other_names, nearest_other_name
from podsrl.config.schema import CompareConfig, RunConfig
from podsrl.config.sections import CompareOptions, Options
from podsrl.config.upgrade import old_key
from podsrl.errors import UsageError, nearest, short
from podsrl.lib.options import words_of
from podsrl.lib.user_function import given_name

ConfigT = TypeVar("ConfigT", bound=BaseModel)
_NAMING = ("algorithm", "kind", "method", "name", "type")
"""Words for the option that says which rule, loss, task set or model a section takes."""
MAX_PROBLEMS = 5
"""Most problems that one message names."""


def load_config(
    source: str | Path | Mapping[str, Any] | RunConfig | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    **changes: Unpack[Options],
) -> RunConfig:
    """Read a training config.

    Args:
        source: a TOML file, the name of a recipe of this package (`recipe_names()`), a config or the dict of one, or
            None for the defaults.
        overrides: "section.key=value", with or without leading dashes; values in TOML notation, or bare words. Or a
            dict of sections, as `changes`.
        changes: sections, each with the values of its options: `select={"num_kept": 8}`, and options without a section:
            `seed=1`. A function stands for its name, and `rewards=[f, g]` for `task={"rewards": {f: 1.0, g: 1.0}}`.

    Raises:
        UsageError: the file is missing or no valid TOML, a key is unknown (the message names the nearest), or a value
            is out of range.

    Example:
        >>> load_config("pods", ["--select.num_kept=8"]) == load_config("pods", select={"num_kept": 8})
        True
    """
    _check_names(source, overrides, changes)
    given = as_overrides(overrides) if isinstance(overrides, Mapping) else overrides
    flags = [*given, *as_overrides(changes)]
    tree = apply_overrides(_tree_of(source), flags)
    if isinstance(source, str | Path):
        tree = without_inherited(tree, apply_overrides(read_written(source), flags))
    name = source if isinstance(source, str | Path) else "defaults" if source is None else "given"
    return build(RunConfig, tree, str(name))


def load_comparison(source: str | Path | Mapping[str, Any], **changes: Unpack[CompareOptions]) -> CompareConfig:
    """Read a comparison: a TOML file, a recipe's name, or the dict of one, with changes as of `load_config`.

    Raises:
        UsageError: as of `load_config`; what an arm holds is checked by `podsrl.compare.runs.plan`.

    Example:
        >>> load_comparison("demo", base={"stop": {"seconds": 4}}).base["stop"]
        {'steps': 0, 'seconds': 4}
    """
    _check_names(source, changes)
    tree = read_tree(source) if isinstance(source, str | Path) else _with_tables_of_arms(source)
    name = source if isinstance(source, str | Path) else "given"
    return build(CompareConfig, merge(tree, _with_tables_of_arms(changes)), str(name))


def _with_tables_of_arms(given: Mapping[str, Any]) -> Tree:
    """What is given of a comparison in Python, with the tables of a file in place of the options of its arms."""
    tables = {"base": _as_table(given["base"])} if "base" in given else {}
    arms = given.get("arms")
    if isinstance(arms, Mapping):
        tables["arms"] = {name: _as_table(arm) for name, arm in arms.items()}
    return {**given, **tables}


def _as_table(options: Any) -> Any:
    return apply_overrides({}, as_overrides(options)) if isinstance(options, Mapping) else options


def _tree_of(source: str | Path | Mapping[str, Any] | RunConfig | None) -> Tree:
    if isinstance(source, RunConfig):
        return source.model_dump(mode="json", exclude_none=True)
    if isinstance(source, str | Path):
        return read_tree(source)
    if isinstance(source, Mapping | None):
        return apply_overrides({}, as_overrides(source or {}))
    raise UsageError(f"config {short(source)}: wanted a recipe's name, a TOML file, a config or the dict of one")


def as_overrides(changes: Mapping[str, Any]) -> list[str]:
    """Options given in Python, as `load_config` takes them, as the flags of the command line.

    Raises:
        UsageError: a value that TOML has no form for, an empty section, or several rewards or functions of one name.

    Example:
        >>> as_overrides({"select": {"num_kept": 8}, "seed": 1})
        ['--select.num_kept=8', '--seed=1']
    """
    _check_names(changes)
    flat = [("task.rewards" if key == "rewards" else key, value) for key, value in _flat(RunConfig, changes)]
    given = [(key, _weights(value) if key == "task.rewards" else value) for key, value in flat]
    return [f"--{key}={_to_toml(value, key)}" for key, value in given]


def _check_names(*given: Any) -> None:
    """UsageError: two functions have one name, such as two lambdas, so that the later would stand for both."""
    known: dict[str, tuple[str, Any]] = {}
    for option, function in chain.from_iterable(map(_functions, given)):
        other, first = known.setdefault(name := given_name(function), (option, function))
        if first is not function and first != function:  # a bound method is another object each time
            options = " and ".join(dict.fromkeys((other, option)))
            raise UsageError(
                f"{options} = {name!r}: two functions have this name; give each one of its own, by def or __qualname__"
            )


def _functions(value: Any, option: str = "") -> Iterator[tuple[str, Any]]:
    """All functions in a value, each with the option that has it."""
    if callable(value):
        yield option, value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            inner = option if callable(name) else f"{option}.{name}".removeprefix(".")
            yield from chain(_functions(name, option), _functions(each, inner))
    elif isinstance(value, list | tuple):
        yield from chain.from_iterable(_functions(each, option) for each in value)


def _weights(rewards: Any) -> Any:
    """Name -> weight, of one reward, a list of them or a table; anything else stays as it is."""
    rewards = [rewards] if callable(rewards) or isinstance(rewards, str) else rewards
    if isinstance(rewards, list | tuple):
        pairs = [(each, 1.0) for each in rewards]
    elif isinstance(rewards, Mapping):
        pairs = [*rewards.items()]
    else:
        return rewards
    names = [str(_plain(reward)) for reward, _ in pairs]
    if len({*names}) < len(names):
        raise UsageError(f"rewards = {short(names)}: give each a name of its own")
    return dict(zip(names, (weight for _, weight in pairs), strict=True))


def _flat(model: type[BaseModel], changes: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys of options, and their values."""
    for name, value in changes.items():
        field = model.model_fields.get(name)
        section = section_of(field.annotation) if field is not None else None
        if section is None or not isinstance(value, Mapping):
            yield f"{prefix}{name}", value
        elif value:
            yield from _flat(section, value, f"{prefix}{name}.")
        else:
            raise UsageError(f"{prefix}{name} = {{}}: sets nothing; wanted options of this section, or leave it out")


def _to_toml(value: Any, key: str) -> str:
    try:
        return toml_line(_plain(value))
    except TypeError:
        wanted = "wanted a text, a number, true or false, a list, a dict or a function"
        raise UsageError(f"{key} = {short(value)}: {'leave it out' if value is None else wanted}") from None


def _plain(value: Any) -> Any:
    """The same with names in place of functions, and texts in place of paths."""
    if callable(value):
        return given_name(value)
    if isinstance(value, Mapping):
        return {str(_plain(name)): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


def apply_overrides(tree: Tree, overrides: Sequence[str]) -> Tree:
    """A copy of the tree with each "a.b=value" set. UsageError: a key is given twice, or a section and a key in it."""
    result, seen = merge(tree, {}), set[str]()
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


def build(model: type[ConfigT], tree: Mapping[str, Any], source: str) -> ConfigT:
    """Check a tree against its model. UsageError: one line that names all problems (at most `MAX_PROBLEMS`)."""
    _check_values(tree, source)
    if other := _other_kind(model, tree) or next(filter(None, map(old_key, _option_tables(tree))), None):
        raise UsageError(f"config {source}: {other}")
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        problems = [_explain(model, problem) for problem in error.errors()[:MAX_PROBLEMS]]
        if (rest := error.error_count() - MAX_PROBLEMS) > 0:
            problems.append(f"and {rest} more")
        raise UsageError(f"config {source}: " + "; ".join(problems)) from None


def _option_tables(tree: Mapping[str, Any]) -> list[str]:
    found = tree.get("options")
    return [f"options.{name}" for name in found] if isinstance(found, Mapping) else []


def _check_values(value: Any, source: str, key: str = "") -> None:
    """UsageError: a text that the system or a file of the run cannot hold, or a number in [options] is not finite."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            _check_values(str(name), source, key)
            _check_values(part, source, f"{key}.{name}".removeprefix("."))
    elif isinstance(value, list | tuple):
        for part in value:
            _check_values(part, source, key)
    elif isinstance(value, float) and not math.isfinite(value) and "options" in key.split("."):
        raise UsageError(f"config {source}: {key} = {value}: wanted a finite number")
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
    message = words_of(problem)
    named = None
    if problem["type"] == "model_type":
        others = [cure for cure in all_keys(model) if cure.endswith(f".{key}")]
        named = _naming_option(model, key) or next(iter(others), None)
    hint = f". Did you mean {named!r}?" if named else ""
    if problem["type"] == "value_error" and key not in all_keys(model):  # of a section: it names its keys itself
        return message
    return f"{key} = {short(problem['input'])}: {message}{hint}"


def unknown_key(model: type[BaseModel], key: str) -> str:
    """The message for an unknown key, with the key that was probably meant.

    That is a key of the same name in another section, one that another library or the paper calls so, or the nearest
    key of its section.

    Example:
        >>> unknown_key(RunConfig, "select.m")
        "unknown key 'select.m'. Did you mean 'select.num_kept' (paper: m)?"
    """
    if older := old_key(key):
        return f"unknown key {short(key)}: {older}"
    cure, others = meant_by(model, key)
    if cure is not None:
        return f"unknown key {short(key)}. Did you mean {cure!r}?"
    return f"unknown key {short(key)}. {answer_of(others)}" if others else _nearest_key(model, key.split("."))


def meant_by(model: type[BaseModel], key: str) -> tuple[str | None, list[OtherName]]:
    """What a key means that the model does not have: a key with the same last parts, or names of other libraries.

    The last part may lack the ending of a plural.
    """
    known = all_keys(model)
    parts = key.split(".")

    def fitting(others: list[OtherName]) -> list[OtherName]:
        return [other for other in others if other.ours in known or not other.ours or other.ours.startswith("--")]

    if others := fitting(find_other_names(key)):
        return None, others
    if len(parts) == 2 and parts[1] in _NAMING and (naming := _naming_option(model, parts[0])):
        return naming, []
    ends = [".".join(parts[start:]) for start in range(1, len(parts))]
    last = (parts[-1], f"{parts[-1]}s")
    same = [end for end in ends if end in known] + [cure for cure in known if cure.rpartition(".")[2] in last]
    return (same[0], []) if same else (None, fitting(find_last_parts(key)))


def _naming_option(model: type[BaseModel], section: str) -> str | None:
    """Of a section the option whose free text says what it takes, which is then its first one: "loss.name"."""
    field = model.model_fields.get(section)
    fields = getattr(field and section_of(field.annotation), "model_fields", {})
    return next((f"{section}.{name}" for name, each in [*fields.items()][:1] if each.annotation is str), None)


def _nearest_key(model: type[BaseModel], parts: list[str]) -> str:
    """Name the first unknown part of the key, and the most similar key of its section."""
    section, prefix = model, ""
    for part in parts:
        field = section.model_fields.get(part)
        inner = section_of(field.annotation) if field is not None else None
        if inner is None:
            hint = nearest(part, section.model_fields).replace("mean '", f"mean '{prefix}")
            hint = hint if "Did you mean" in hint else nearest_other_name(".".join(parts), all_keys(model)) or hint
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
