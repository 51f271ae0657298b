"""What a part does and which options it takes, from its factory's signature and docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PartOption:
    """A keyword-only parameter of a factory."""

    name: str
    default: Any
    """None where it has to be set, too."""
    meaning: str
    """From the docstring's "Args:"; empty where it says nothing."""


def part_options(factory: Callable[..., Any]) -> list[PartOption]:
    """The options of a part, in the order of its signature.

    Example:
        >>> def harder(*, most: int = 32):
        ...     '''More rollouts of hard questions.
        ...
        ...     Args:
        ...         most: of one question,
        ...             in all rounds.
        ...     '''
        >>> part_options(harder)
        [PartOption(name='most', default=32, meaning='of one question, in all rounds.')]
    """
    meanings = _meanings(_docstring(factory))
    parameters = inspect.signature(factory).parameters.values()
    return [
        PartOption(each.name, None if each.default is each.empty else each.default, meanings.get(each.name, ""))
        for each in parameters
        if each.kind is each.KEYWORD_ONLY
    ]


def part_summary(factory: Callable[..., Any]) -> str:
    """The first paragraph of a part's docstring, as one line."""
    return " ".join(_docstring(factory).partition("\n\n")[0].split())


def _docstring(factory: Callable[..., Any]) -> str:
    own = inspect.getdoc(factory) or ""
    if not inspect.isclass(factory):
        return own
    init = inspect.getdoc(factory.__init__) or "" if "__init__" in vars(factory) else ""
    return f"{own}\n\n{init}"


def _meanings(text: str) -> dict[str, str]:
    """Parameter -> its lines under "Args:"."""
    found: dict[str, str] = {}
    for block in re.findall(r"^Args:\n((?:[ \t]+.*\n?|\n)+)", text, re.MULTILINE):
        entries = re.split(r"^ {4}(?=\w+(?:, \w+)*:)", block, flags=re.MULTILINE)
        for names, _, meaning in (entry.partition(":") for entry in entries if ":" in entry):
            found |= dict.fromkeys((name.strip() for name in names.split(",")), " ".join(meaning.split()))
    return found
