"""Flags as people type them: `--section.key=value`, `--section.key value`, and `--section.key` for true.

Each config flag and its value become one word, so that their order among a command's own options and its one positional
word does not matter.

A value after a space is any word that neither begins with two dashes nor is an option of the command itself. Numbers
below 0 are values; a text that begins with dashes needs the equals sign ("--task.system_prompt=--brief"). A boolean
option takes the next word only if it says true or false.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from typer.core import TyperCommand

from podsrl.config.load import all_keys, unknown_key
from podsrl.config.options import SCHEMAS, find_field, is_switch
from podsrl.config.other_names import find_last_parts, find_other_names
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError

TRUTHS = ("true", "false", "yes", "no", "on", "off", "1", "0")
"""Words that an option takes as true or false, in any case."""
OWN_ARGUMENTS: dict[str, Any] = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Config flags are left alone and handed over as extra arguments."""


def join_flags(words: Sequence[str], own: Mapping[str, bool], schemas: Sequence[type[BaseModel]]) -> list[str]:
    """Put each config flag and its value into one word, "--key=value"; all words stay in their order.

    Args:
        words: of the command line, after the command's name.
        own: options of the command itself, with their dashes -> whether a value follows.
        schemas: config models whose keys may be set; a key of any of them is one.

    Raises:
        UsageError: a flag without a value, or one that neither the command nor the config has.

    Example:
        >>> join_flags(["--optim.lr", "1e-5", "pods", "--model.load_in_4bit", "-o", "x"], {"-o": True}, [RunConfig])
        ['--optim.lr=1e-5', 'pods', '--model.load_in_4bit=true', '-o', 'x']
    """
    joined: list[str] = []
    rest = [*words]
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*joined, word, *rest]
        name, sign, _ = word.partition("=")
        if name in own:
            joined += [word, *rest[:1]] if own[name] and not sign else [word]
            rest = rest[1:] if own[name] and not sign else rest
        elif word.startswith("--") and not sign:
            following = rest[0] if rest and not _is_flag(rest[0], own) else None
            value, is_taken = _value_of(name, following, own, schemas)
            joined.append(f"{name}={value}")
            rest = rest[1:] if is_taken else rest
        else:
            joined.append(word)
    return joined


def _is_flag(word: str, own: Mapping[str, bool]) -> bool:
    return word.startswith("--") or word.partition("=")[0] in own


def _value_of(
    name: str, following: str | None, own: Mapping[str, bool], schemas: Sequence[type[BaseModel]]
) -> tuple[str, bool]:
    """The value of a flag that stands alone, and whether the next word is it."""
    key = name.removeprefix("--")
    fields = [field for schema in schemas if (field := find_field(schema, key)) is not None]
    if not fields:
        raise UsageError(_unknown(name, own, schemas))
    if is_switch(fields[0]):
        is_taken = following is not None and following.lower() in TRUTHS
        return (str(following) if is_taken else "true"), is_taken
    if following is None:
        raise UsageError(
            f"{name}: wanted a value, as {name}=VALUE or {name} VALUE; one that begins with -- needs the ="
        )
    return following, True


def _unknown(name: str, own: Mapping[str, bool], schemas: Sequence[type[BaseModel]]) -> str:
    """What another library calls so goes before an option of the command that is spelt alike, and that before the
    config's keys, unless the flag has a section."""
    key, schema = name.removeprefix("--"), schemas[0]
    hint = "" if "." in name or find_other_names(key) or find_last_parts(key) else _spelt_alike(name, own, schema)
    if hint:
        return f"{name}: no such option. Did you mean '{hint}'?"
    if name == "--dry-run":
        return "--dry-run: only pods train has it; with --processes K it plans for several processes"
    if SCHEMAS["compare"] in schemas and (inner := re.fullmatch(r"(?:base|arms\.[^.]+)\.(.+)", key)):
        key, schema = inner[1], RunConfig
    return f"{name}: {unknown_key(schema, key)}"


def _spelt_alike(name: str, own: Mapping[str, bool], schema: type[BaseModel]) -> str | None:
    """The command's option, or the last part of a config's key, that is nearest; None where none is near."""
    keys = {f"--{key.rpartition('.')[2]}": f"--{key}" for key in all_keys(schema)}
    close = difflib.get_close_matches(name, [*own, *keys], n=1, cutoff=0.75)
    return keys.get(close[0], close[0]) if close else None


class ConfigCommand(TyperCommand):
    """A command whose further flags are config values."""

    schemas: tuple[type[BaseModel], ...] = (RunConfig,)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {
            name: not (getattr(option, "is_flag", False) or getattr(option, "count", False))
            for option in self.get_params(ctx)
            if option.param_type_name == "option"
            for name in (*option.opts, *option.secondary_opts)
        }
        return super().parse_args(ctx, join_flags(args, own, self.schemas))


class CompareCommand(ConfigCommand):
    """Its flags are those of a comparison."""

    schemas = (SCHEMAS["compare"],)


class PretrainCommand(ConfigCommand):
    """Its flags are those of pretraining."""

    schemas = (SCHEMAS["pretrain"],)
