"""Bounds and formats of single options, with their reasons; `config/schema.py` says which option has which.

Upper bounds lie far above any real training run: they are the limits of file names, arrays and timers. A typing error
is thus reported at once, and not when memory has run out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from podsrl.errors import nearest, short

MAX_COUNT = 2**24
"""Largest size of an array or list: prompts, tokens of a row, rows of a step."""
MAX_STEPS = 10**8 - 1
"""Largest number of steps: names of checkpoints have eight digits."""
MAX_STEP_TOKENS = 2**36
"""Most tokens of all rollouts of one step, which are in memory at once: 2^36 tokens of 8 bytes are 512 GiB."""
MAX_SECONDS = 1e9
"""Thirty years; the timers of the system end at a few hundred."""
MAX_PATH_BYTES, MAX_NAME_BYTES = 4095, 255
"""Linux's limits for a path and for each name in it."""
MAX_FLOAT = 1e30
"""Largest number of an option: float32 holds it and its products with ordinary numbers."""

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
NonNegativeCount = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Tokens = Annotated[int, Field(ge=1, le=2**31 - 1)]
Steps = Annotated[int, Field(ge=0, le=MAX_STEPS)]
Seconds = Annotated[float, Field(ge=0.0, le=MAX_SECONDS)]
PositiveSeconds = Annotated[float, Field(gt=0.0, le=MAX_SECONDS)]
Probability = Annotated[float, Field(gt=0.0, le=1.0)]
NonNegative = Annotated[float, Field(ge=0.0, le=MAX_FLOAT)]
Positive = Annotated[float, Field(gt=0.0, le=MAX_FLOAT)]
Temperature = Annotated[float, Field(ge=1e-4, le=1e4)]
"""Logits are divided by it in float32, which does not hold larger quotients."""


@dataclass(frozen=True, slots=True)
class Names:
    """Says of an option that its values are names: those of a table, or others, such as "module:function"."""

    table: str
    """Where the table stands: "podsrl.select:RULES"."""


def check_text(value: str) -> str:
    """ValueError: the system or a file cannot hold the text."""
    if "\0" in value:
        raise ValueError("holds the character NUL, which no path, name or question has")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("is not UTF-8")
    return value


def check_path(value: str) -> str:
    """ValueError: the path is longer than the system allows."""
    longest = max(len(name.encode()) for name in value.split("/"))
    if longest > MAX_NAME_BYTES or len(value.encode()) > MAX_PATH_BYTES:
        raise ValueError(f"too long for a path: at most {MAX_PATH_BYTES} bytes, {MAX_NAME_BYTES} between two slashes")
    return value


def check_kept(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """ValueError: neither a number of rollouts nor a share."""
    try:
        return handler(value)
    except ValidationError:
        most = f"wanted a whole number 2 .. {MAX_COUNT:,}, or a share of each group, above 0 and below 1"
        raise ValueError(most) from None


NumKept = Annotated[
    Annotated[int, Field(ge=2, le=MAX_COUNT)] | Annotated[float, Field(gt=0, lt=1)], WrapValidator(check_kept)
]


def kept_of(num_kept: float, size: int) -> int:
    """m of a group or chunk of `size` rollouts: a whole `num_kept`, or that share of them, rounded, at least 2.

    Halves are rounded to the even number, as by Python's `round`.

    Example:
        >>> kept_of(16, 64), kept_of(0.25, 64), kept_of(0.25, 6), kept_of(0.25, 4)
        (16, 16, 2, 2)
    """
    return max(2, round(num_kept * size)) if isinstance(num_kept, float) else num_kept


PathText = Annotated[str, AfterValidator(check_path)]


def parse_words(value: Any) -> Any:
    """ "a, b" -> ("a", "b"); other types are left to the field's own check. ValueError: an empty name."""
    words = tuple(word.strip() for word in value.split(",")) if isinstance(value, str) else value
    if isinstance(words, tuple | list) and ("" in words or not words):
        raise ValueError("wanted at least one name, and no empty ones")
    return words


TRACKERS = ("wandb", "tensorboard", "trackio", "mlflow")
"""Names of the trackers, which are also those of their packages."""


def parse_names(value: Any) -> Any:
    """ "a, b" -> ("a", "b"), and "" -> (). ValueError: a name twice."""
    names = () if value == "" else parse_words(value) if value else value
    for name in names if isinstance(names, tuple | list) else ():
        if names.count(name) > 1:
            raise ValueError(f"names {name} twice; leave one out")
    return names


def parse_trackers(value: Any) -> Any:
    """ "a, b" -> ("a", "b"), and "" -> (). ValueError: no tracker is called so, or one is named twice."""
    names = parse_names(value)
    for name in names if isinstance(names, tuple | list) else ():
        if name not in TRACKERS:
            raise ValueError(f"no tracker is called {short(name)}.{nearest(str(name), TRACKERS)}")
    return names


def parse_bytes(value: Any) -> Any:
    """ "512MiB" -> 536870912; numbers are left to the field's own check. ValueError: the text is no size."""
    units = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
    if not isinstance(value, str) or value.isdecimal():
        return value
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,18})?)\s*([A-Za-z]+)", value)
    if match is None or match[2] not in units:
        raise ValueError(f"wanted a number of bytes, or a number and one of {', '.join(units)}, such as 512MiB")
    return int(float(match[1]) * units[match[2]])


_DIGITS = {"1", "2", "3"}


def parse_digits(value: Any) -> Any:
    """Leaves 2 and [1, 2, 3] as they are. ValueError: another number of digits, none, or one named twice."""
    numbers = [str(number) for number in (value if isinstance(value, list | tuple) else [value])]
    if not numbers or not {*numbers} <= _DIGITS or len({*numbers}) < len(numbers):
        raise ValueError("wanted 1, 2 or 3, or a list of some of them, each once, such as [1, 2, 3]")
    return value


Digits = Annotated[int, Field(ge=1, le=3)]
OneOrSeveralDigits = Annotated[Digits | tuple[Digits, ...], BeforeValidator(parse_digits)]


def parse_shares(value: Any) -> Any:
    """Leaves 0.3 and {1 = 0.9, 2 = 0.3} as they are. ValueError: a share outside 0 .. 1, or other digits."""
    shares = value if isinstance(value, Mapping) else {1: value}
    are_digits = {*map(str, shares)} <= _DIGITS
    if not are_digits or not all(type(share) in (int, float) and 0 <= share <= 1 for share in shares.values()):
        raise ValueError("wanted a share from 0 to 1, or one per number of digits, such as '{1 = 0.9, 2 = 0.3}'")
    return value


Share = Annotated[float, Field(ge=0.0, le=1.0)]
OneOrSeveralShares = Annotated[Share | dict[Digits, Share], BeforeValidator(parse_shares)]
