"""Options of a function that an option names: a table of the config, checked against the function's own parameters.

What a part does, and what each of its options means, is read from the signature and the docstring of what makes it.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from podsrl.errors import UsageError, nearest, short

_WANTED = {
    "tuple_type": "wanted a list, in square brackets",
    "dict_type": "wanted a table of names and values, such as '{{\"{name}\" = 1.0}}'",
    "model_type": "wanted a section: set one of its keys, as --section.key=value",
    "greater_than_equal": "wanted at least {ge}",
    "greater_than": "wanted more than {gt}",
    "less_than_equal": "wanted at most {le}",
    "less_than": "wanted less than {lt}",
    "finite_number": "wanted a finite number",
    "too_short": "wanted a list of at least {min_length}",
}
"""Kind of problem -> message, instead of pydantic's words for programmers; the bound, or the given name, in braces."""
_BY_KEYWORD = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def check_options(
    function: Callable[..., Any],
    options: Mapping[str, Any],
    *,
    where: str,
    given: Collection[str] = (),
    keyword_only: bool = True,
) -> dict[str, Any]:
    """Check options by name and type against the parameters that a function declares, and convert them.

    A parameter's annotation says its type: a whole number may stand for a float, a list for a tuple, and nothing else
    is converted. Without an annotation the type of the default counts. A function that takes `**options` of any name
    gets what it is given. What is left out is not in the result: the function's default holds.

    Args:
        function: a known one, or one of the user's own. Its keyword-only parameters are its options.
        options: name -> value, as a TOML table holds them.
        where: the table's full name, for messages, for example "select.options".
        given: parameters that the caller itself passes, such as "generator": they are no options.
        keyword_only: False: positional parameters are options too.

    Raises:
        UsageError: an option that the function does not take (the message says the nearest), a value of another type, a
            required option that is not set, or a function whose parameters Python does not know.

    Example:
        >>> def rule(groups, num_kept, *, below: float = 0.25, generator=None): ...
        >>> check_options(rule, {"below": 1}, where="select.options", given=("generator",))
        {'below': 1.0}
        >>> check_options(rule, {"belw": 1}, where="select.options", given=("generator",))
        Traceback (most recent call last):
        podsrl.errors.UsageError: select.options.belw = 1: there is no such option. Did you mean 'below'?
    """
    parameters = parameters_of(function, where=where)
    takes_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    kinds = _BY_KEYWORD[:1] if keyword_only else _BY_KEYWORD
    known = {name: each for name, each in parameters.items() if each.kind in kinds and name not in given}
    for name, value in options.items():
        if name not in known and (not takes_any or name in parameters or name in given):
            hint = nearest(name, known) if known else " It takes no options."
            raise UsageError(f"{where}.{name} = {short(value)}: there is no such option.{hint}")
    for name, parameter in known.items():
        if parameter.default is parameter.empty and name not in options:
            raise UsageError(f"{where}.{name} is not set, and has no default: set it")
    return {
        name: _checked(known[name], value, f"{where}.{name} = {short(value)}") if name in known else value
        for name, value in options.items()
    }


def parameters_of(function: Callable[..., Any], *, where: str) -> Mapping[str, Parameter]:
    """A function's parameters, with annotations that are no texts where Python can read them.

    UsageError, which begins with `where`: Python does not know them, as of some functions that are written in C.
    """
    try:
        try:
            return inspect.signature(function, eval_str=True).parameters
        except ValueError:
            raise
        except Exception:  # an annotation may name what is imported for type checkers only
            return inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: {error}; wanted a function written in Python") from error


def _checked(parameter: Parameter, value: Any, where: str) -> Any:
    adapter = _adapter(parameter)
    if adapter is None:
        return value
    try:
        return adapter.validate_json(json.dumps(value))
    except TypeError:
        raise UsageError(f"{where}: wanted a number, a text, true or false, or a list or table of them") from None
    except ValidationError as error:
        problem = error.errors()[0]
        place = "".join(f"[{part!r}]" for part in problem["loc"] if part not in ("int", "float"))  # members of a union
        raise UsageError(f"{where}: {f'at {place}: ' if place else ''}{words_of(problem)}") from None


def words_of(problem: Any) -> str:
    """What pydantic found wrong with a value, in the words of our own errors.

    Example:
        >>> words_of({"type": "greater_than", "msg": "Input should be greater than 0", "input": -1, "ctx": {"gt": 0}})
        'wanted more than 0'
    """
    given = problem["input"]
    if problem["type"] == "literal_error":
        wanted = problem["ctx"]["expected"]
        hint = nearest(str(given), re.findall("'([^']*)'", wanted))
        return f"wanted {wanted}{f'.{hint}' if 'Did you mean' in hint else ''}"
    if not (wanted := _WANTED.get(problem["type"])):
        return str(problem["msg"]).removeprefix("Value error, ")
    name = given if isinstance(given, str) and 0 < len(given) <= 60 and given.isprintable() else "name"
    return wanted.format(name=name, **problem.get("ctx", {}))


def _adapter(parameter: Parameter) -> TypeAdapter[Any] | None:
    """What checks a parameter's value; None: it says nothing that can be checked."""
    kind = parameter.annotation
    if kind is parameter.empty:
        default = parameter.default
        kind = None if default is parameter.empty or default is None else type(default)
        kind = float | int if kind is int else kind
    if kind is None or isinstance(kind, str):
        return None
    try:
        return TypeAdapter(kind, config=ConfigDict(strict=True))
    except PydanticUserError:  # a model or a class with a check of its own
        return None


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
