"""List the options of a config model for people: type, default and meaning of each, read from the schema.

A model becomes `Chapter`s of `OptionEntry`s, and a config becomes TOML with the meanings as comments.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import tomli_w
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from podsrl.config.bounds import Names
from podsrl.config.files import toml_line
from podsrl.config.load import section_of
from podsrl.config.other_names import other_names
from podsrl.config.pretrain import PretrainConfig
from podsrl.config.schema import CompareConfig, RunConfig
from podsrl.lib.options import part_summary
from podsrl.lib.resolve import load

SCHEMAS: dict[str, type[BaseModel]] = {"train": RunConfig, "compare": CompareConfig, "pretrain": PretrainConfig}
"""Command -> model of its TOML file."""
_OWN_WORDS = {"parse_bytes": "a number of bytes, or text such as 512MiB", "parse_words": "a list of texts, or a,b,c"}
"""Name of the function that parses a value -> what it takes."""
_BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
_KINDS = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "text"}
_PLURALS = {"integer": "whole numbers", "number": "numbers", "boolean": "truth values", "string": "texts"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionEntry:
    """One option in the list."""

    key: str
    """Dotted, as in a flag."""
    takes: str
    """Type, range or choices, in words."""
    default: str
    """The default in TOML notation, or words where there is none."""
    value: Any
    """The default as a value; None where nothing is set."""
    meaning: str
    table: str
    """Where the table of its known names stands: "podsrl.select:RULES"; empty: it has none."""

    @property
    def known(self) -> Mapping[str, Any]:
        """Each name that the option may have, and what it stands for; this imports the table's stage."""
        found: Mapping[str, Any] = load(self.table) if self.table else {}
        return found

    def summary(self, name: str) -> str:
        """What a known name stands for: the first paragraph about each function or class, empty where it is neither."""
        known = self.known[name]
        found = [load(place) for place in known] if isinstance(known, tuple) else [known]
        return " ".join(part_summary(each) for each in found if callable(each))

    @property
    def other_names(self) -> str:
        """What others call the option: "TRL: num_generations; verl: rollout.n"; empty if there is no other name."""
        known = [f"{other.origin}: {other.theirs}" for other in other_names() if other.ours == self.key]
        return "; ".join(known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """A section of the tree; the options at its root form one without a name."""

    name: str
    meaning: str
    options: tuple[OptionEntry, ...]


def chapters_of(model: type[BaseModel]) -> list[Chapter]:
    """All sections with their options, in the order of the schema.

    Example:
        >>> [chapter.name for chapter in chapters_of(RunConfig)][:4]
        ['', 'model', 'lora', 'task']
    """
    sections = {name: kind for name, field in model.model_fields.items() if (kind := section_of(field.annotation))}
    plain = [name for name in model.model_fields if name not in sections]
    chapters = [Chapter(name="", meaning=_doc(model), options=tuple(_entries(model, "", plain)))]
    for name, kind in sections.items():
        own = model.model_fields[name].default
        note = " Not there by default; setting one of its options makes it." if own is None else ""
        options = tuple(_entries(kind, f"{name}.", kind.model_fields, own))
        chapters.append(Chapter(name=name, meaning=_doc(kind) + note, options=options))
    return chapters


def _doc(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split())


def _entries(
    model: type[BaseModel], prefix: str, names: Mapping[str, Any] | list[str], own: BaseModel | None = None
) -> Iterator[OptionEntry]:
    properties = model.model_json_schema()["properties"]
    for name in names:
        field = model.model_fields[name]
        yield OptionEntry(
            key=f"{prefix}{name}",
            takes=_takes(field, properties[name]),
            default=_default(name, field, own),
            value=None if field.is_required() else getattr(own, name, field.default),
            meaning=" ".join((field.description or "").split()),
            table=next((note.table for note in field.metadata if isinstance(note, Names)), ""),
        )


def _default(name: str, field: FieldInfo, own: BaseModel | None) -> str:
    """The default in words; it may differ between a section without this option and an absent section."""
    if field.is_required():
        return "none: it has to be set"
    text, without = toml_value(field.default), toml_value(getattr(own, name, field.default))
    return text if without == text else f"{without}, or {text} where another option of the section is set"


def _takes(field: FieldInfo, schema: Mapping[str, Any]) -> str:
    readers = [getattr(getattr(note, "func", None), "__name__", None) for note in field.metadata]
    for reader, words in _OWN_WORDS.items():
        if reader in readers:
            return words
    return takes_of(schema)


def takes_of(schema: Mapping[str, Any]) -> str:
    """A JSON schema in words.

    Example:
        >>> takes_of({"type": "integer", "minimum": 1}), takes_of({"enum": ["ppo", "none"]})
        ('a whole number, at least 1', '"ppo" or "none"')
    """
    if "anyOf" in schema:
        return " or ".join(takes_of(part) for part in schema["anyOf"] if part.get("type") != "null")
    if "const" in schema:
        return toml_value(schema["const"])
    if "enum" in schema:
        *first, last = (toml_value(choice) for choice in schema["enum"])
        return f"{', '.join(first)} or {last}"
    kind = str(schema.get("type"))
    if kind == "array":
        return _list_of(schema)
    if kind == "object":
        values = schema.get("additionalProperties")
        kinds = _PLURALS.get(str(values.get("type")), "tables") if isinstance(values, dict) else ""
        return f"a table of names and {kinds}" if kinds else "a table"
    bounds = [f"{words} {_number(schema[name])}" for name, words in _BOUNDS.items() if name in schema]
    return ", ".join([_KINDS.get(kind, "a value"), *bounds])


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}" if value < 1 << 40 else f"2^{value.bit_length() - 1}"
    return f"{value:g}"


def _list_of(schema: Mapping[str, Any]) -> str:
    if "prefixItems" in schema:
        parts = schema["prefixItems"]
        return f"a list of {len(parts)}: each {takes_of(parts[0])}"
    return f"a list of {_PLURALS.get(str(schema['items'].get('type')), 'values')}"


def toml_value(value: Any) -> str:
    """A value in one line of TOML; "not set" for None, which TOML cannot express."""
    return "not set" if value is None else toml_line(value)


def find_field(model: type[BaseModel], key: str) -> FieldInfo | None:
    """The field that a dotted key sets, also inside a table with free names; None if there is no such key.

    A comparison's `base` and each of its `arms` hold keys of `RunConfig`.

    Example:
        >>> find_field(CompareConfig, "arms.pods.optim.lr").annotation, find_field(RunConfig, "select.m")
        (<class 'float'>, None)
    """
    first, _, rest = key.partition(".")
    field = model.model_fields.get(first)
    if field is None or not rest:
        return field
    if model is CompareConfig and first in ("base", "arms"):
        inner = rest if first == "base" else rest.partition(".")[2]
        return find_field(RunConfig, inner) if inner else field
    section = section_of(field.annotation)
    return find_field(section, rest) if section is not None else field


def is_switch(field: FieldInfo) -> bool:
    """Whether the option takes true or false."""
    return bool in (field.annotation, *get_args(field.annotation))


def find_options(model: type[BaseModel], text: str) -> list[OptionEntry]:
    """Options with every word of a text in their name, meaning, choices or other names; matches in the name first.

    Example:
        >>> [option.key for option in find_options(RunConfig, "learning rate")][0]
        'optim.lr'
    """
    words = text.lower().replace("_", " ").split()
    found: list[tuple[bool, OptionEntry]] = []
    for option in (option for chapter in chapters_of(model) for option in chapter.options):
        name = option.key.lower().replace("_", " ")
        everything = f"{name} {option.meaning} {option.takes} {option.other_names}".lower().replace("_", " ")
        if all(word in everything for word in words):
            found.append((not all(word in name for word in words), option))
    return [option for _, option in sorted(found, key=lambda pair: pair[0])]


def commented_toml(config: BaseModel) -> str:
    """All options of a config with their values and meanings; reading the text gives an equal config.

    Options that are not set appear as comments, because TOML cannot express them.
    """
    values = config.model_dump(mode="json")
    tables: list[str] = []
    lines: list[str] = []
    for chapter in chapters_of(type(config)):
        if chapter.name:
            is_absent = values[chapter.name] is None
            note = " Without the comment signs these are its defaults:" if is_absent else ""
            lines += ["", *_comment(chapter.meaning + note), f"{'# ' * is_absent}[{chapter.name}]"]
            held = values[chapter.name]
        else:
            is_absent, held = False, values
        for option in chapter.options:
            name = option.key.rpartition(".")[2]
            if isinstance(held, Mapping) and _is_deep(held[name]):
                tables += ["", *_comment(option.meaning), tomli_w.dumps({name: held[name]}).rstrip()]
                continue
            lines += _comment(option.meaning if option.takes == "text" else f"{option.meaning} ({option.takes})")
            if is_absent or held is None:
                lines.append(f"# {name} = {option.default}")
            else:
                text = toml_value(held[name])
                lines.append(f"{name} = {text}" if held[name] is not None else f"# {name} is not set")
    return "\n".join([*lines, *tables]).lstrip("\n") + "\n"


def _is_deep(value: Any) -> bool:
    """Whether a value is a table of tables, which does not fit in one line."""
    return isinstance(value, Mapping) and any(isinstance(part, Mapping) for part in value.values())


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, 98)]
