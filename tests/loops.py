"""Many values in one test: a case of its own for each would cost more to collect and report than to run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

Test = Callable[..., None]


def each(names: str | Sequence[str], values: Iterable[Any], *, few: int | None = None) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, but one case calls the test with all values; a failure says with which.

    The test is skipped if it is skipped with all of them.

    Fixtures are made once for all of them. With `few` there are two cases, one with the first so many values and one
    with all: the first is fast and the second need not be.

    Example:
        >>> @each("seed", range(3))
        ... def test_a_square_is_not_negative(seed): assert seed * seed >= 0
    """
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [_row(value, len(wanted)) for value in values]
    assert rows, f"{names} have no values"
    limit = f"num_of_{'_'.join(wanted)}"

    def decorate(test: Test) -> Test:
        def call_each(*args: Any, **kwargs: Any) -> None:
            chosen, skipped = rows[: kwargs.pop(limit, None)], []
            for row in chosen:
                named = dict(zip(wanted, row, strict=True))
                try:
                    test(*args, **kwargs, **named)
                except pytest.skip.Exception as reason:  # it is skipped with this value alone
                    skipped.append(reason)
                except BaseException as error:
                    error.add_note(f"with {named}")
                    raise
            if len(skipped) == len(chosen):
                raise skipped[0]

        functools.update_wrapper(call_each, test)
        del call_each.__wrapped__
        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in wanted]
        if few is not None:
            others.append(inspect.Parameter(limit, inspect.Parameter.KEYWORD_ONLY))
        call_each.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        if few is None:
            return call_each
        return pytest.mark.parametrize(limit, [few, len(rows)], ids=["few", "all"])(call_each)

    return decorate


def _row(value: Any, num_names: int) -> tuple[Any, ...]:
    """The values of one call, also those of a `pytest.param`; a mark would be for all calls, so it is refused."""
    if isinstance(value, ParameterSet):
        assert not value.marks, f"{value} has marks: use pytest.mark.parametrize"
        return tuple(value.values)
    return tuple(value) if num_names > 1 else (value,)
