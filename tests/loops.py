"""Many values in one test: a case of its own for each would cost more to collect and report than to run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

Test = Callable[..., None]


def each(names: str | Sequence[str], values: Iterable[Any], *, few: int | None = None) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, but one case calls the test with all values; a failure says with which.

    Fixtures are made once for all of them. With `few` there are two cases, one with the first so many values and one
    with all: the first is fast and the second need not be.

    Example:
        >>> @each("seed", range(3))
        ... def test_a_square_is_not_negative(seed): assert seed * seed >= 0
    """
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [tuple(getattr(value, "values", value)) if len(wanted) > 1 else (_plain(value),) for value in values]
    assert rows, f"{names} have no values"

    def decorate(test: Test) -> Test:
        def call_each(*args: Any, num_values: int = len(rows), **kwargs: Any) -> None:
            for row in rows[:num_values]:
                try:
                    test(*args, **kwargs, **dict(zip(wanted, row, strict=True)))
                except BaseException as error:
                    error.add_note(f"with {dict(zip(wanted, row, strict=True))}")
                    raise

        functools.update_wrapper(call_each, test)
        del call_each.__wrapped__
        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in wanted]
        if few is not None:
            others.append(inspect.Parameter("num_values", inspect.Parameter.KEYWORD_ONLY))
        call_each.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        if few is None:
            return call_each
        return pytest.mark.parametrize("num_values", [few, len(rows)], ids=["few", "all"])(call_each)

    return decorate


def _plain(value: Any) -> Any:
    return value.values[0] if type(value).__name__ == "ParameterSet" else value
