"""A table of names imports what a name stands for when it is asked for, and not before."""

from __future__ import annotations

import pytest

from podsrl.errors import UsageError
from podsrl.lib.resolve import Table, resolve


def test_a_table_knows_its_names_without_importing_anything() -> None:
    table: Table[object] = Table({"here": "math:tau", "gone": "podsrl.no_such_module:thing"})
    assert list(table) == ["here", "gone"] and len(table) == 2
    assert "gone" in table and "there" not in table
    assert table["here"] == pytest.approx(6.283185307)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        table["gone"]
    assert table.get("there") is None


def test_a_name_that_no_table_has_is_answered_with_the_nearest() -> None:
    table: Table[object] = Table({"square_root": "math:sqrt"})
    assert resolve("square_root", table, option="an.option", kind="function", wanted="f(x)")(9) == 3  # type: ignore[operator]
    with pytest.raises(UsageError, match=r"an.option = 'square_rot' is no function. Did you mean 'square_root'\?"):
        resolve("square_rot", table, option="an.option", kind="function", wanted="f(x)")
