"""The sections of a config as editors know them; `python tests/config/test_sections.py` prints their file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, Unpack, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel

from podsrl import api
from podsrl.config import sections
from podsrl.config.bounds import Names, PathText, parse_bytes
from podsrl.config.load import load_config, section_of
from podsrl.config.schema import CompareConfig, RunConfig

HEAD = '''\
"""The sections of a config as dicts, for editors and type checkers: they mark an option that does not exist.

Made from `config/schema.py` by `python tests/config/test_sections.py > src/podsrl/config/sections.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

Named = str | Callable[..., Any]
"""The name of a function or a class, or the object itself."""
Rewards = Named | Sequence[Named] | Mapping[Any, float]
"""One reward or several, each of weight 1, or each with its weight."""
'''
OTHERWISE = {"rewards": "Rewards", "base": "ArmOptions", "arms": "Mapping[str, ArmOptions]"}
"""What Python takes in another form than a file."""
NAME = "builtins:len"


def file_text() -> str:
    """What `config/sections.py` should hold."""
    fields = {name: type_of(RunConfig, name) for name in RunConfig.model_fields}
    kinds = [kind for field in RunConfig.model_fields.values() if (kind := section_of(field.annotation))]
    task = {"task": fields.pop("task"), "rewards": OTHERWISE["rewards"]}
    return HEAD + "".join(
        [
            *(class_of(name_of(kind), {name: type_of(kind, name) for name in kind.model_fields}) for kind in kinds),
            class_of("Sections", fields),
            class_of("Options", task, "Sections"),
            class_of("ArmOptions", {"extends": "str"}, "Options"),
            class_of("CompareOptions", {name: type_of(CompareConfig, name) for name in CompareConfig.model_fields}),
        ]
    )


def class_of(name: str, keys: dict[str, str], base: str = "TypedDict") -> str:
    return f"\n\nclass {name}({base}, total=False):\n" + "".join(f"    {key}: {kind}\n" for key, kind in keys.items())


def name_of(section: type[BaseModel]) -> str:
    return section.__name__.replace("Config", "Options")


def type_of(model: type[BaseModel], name: str) -> str:
    """The type of an option's value, as Python writes it."""
    field = model.model_fields[name]
    if section := section_of(field.annotation):
        return name_of(section)
    if name in OTHERWISE:
        return OTHERWISE[name]
    text = written(get_type_hints(model, include_extras=True)[name])
    is_reward = any(isinstance(note, Names) and note.table.endswith(":REWARDS") for note in field.metadata)
    if is_reward or '"module:' in (field.description or ""):
        text = re.sub(r"\bstr\b", "Named", text)
        text = f"Named | {text}" if text.startswith("Sequence") else text  # one of them, or "a, b"
    return text


def written(kind: Any) -> str:
    """An annotation of the schema as one of Python."""
    parts = get_args(kind)
    if kind == PathText:
        return "str | Path"
    if get_origin(kind) is Annotated:
        is_size = any(getattr(note, "func", None) is parse_bytes for note in parts[1:])
        return "int | str" if is_size else written(parts[0])
    if get_origin(kind) is Literal:
        return "Literal[" + ", ".join(f'"{choice}"' for choice in parts) + "]"
    if get_origin(kind) is tuple:
        return f"Sequence[{written(parts[0])}]"
    if get_origin(kind) is dict:
        return f"Mapping[{written(parts[0])}, {written(parts[1])}]"
    if parts:
        return " | ".join(written(part) for part in parts if part is not NoneType)
    return str(kind.__name__)


def test_the_sections_are_those_of_the_schema() -> None:
    assert Path(sections.__file__).read_text() == file_text(), "python tests/config/test_sections.py prints it"


@pytest.mark.parametrize(
    ("function", "taken"),
    [
        (load_config, sections.Options),
        (api.train, sections.Options),
        (api.Run.resume, sections.Options),
        (api.evaluate, sections.Sections),
        (api.Run.evaluate, sections.Sections),
    ],
)
def test_what_takes_options_takes_their_sections(function: Callable[..., Any], taken: type) -> None:
    assert get_type_hints(function)["changes"] == Unpack[taken]


def test_a_function_stands_for_its_name_wherever_the_types_say_so() -> None:
    config = load_config(
        task={"name": len, "rewards": [len], "correct": len, "format": len, "environment": len, "tools": [len]},
        systems=len,
        rollouts={"generator": len},
        select={"rule": len},
        loss={"advantage": len},
    )
    task = config.task
    assert {task.name, task.correct, task.format, task.environment, *task.tools, *(task.rewards or ())} == {NAME}
    assert {*config.systems, config.rollouts.generator, config.select.rule, config.loss.advantage} == {NAME}


if __name__ == "__main__":
    print(file_text(), end="")
