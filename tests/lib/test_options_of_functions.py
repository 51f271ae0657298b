"""Options of functions that a config names: by name and type, against the signature."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from podsrl.errors import UsageError
from podsrl.lib.options import check_options


def rule(
    groups: Any,
    num_kept: int,
    *,
    below: float = 0.25,
    order: Literal["long", "short"] = "long",
    weights: tuple[float, ...] = (),
    depth: int | None = None,
    share: Annotated[float, Field(gt=0, le=1)] = 1.0,
    generator: object = None,
) -> None: ...


def check(options: dict[str, Any], function: Callable[..., Any] = rule) -> dict[str, Any]:
    return check_options(function, options, where="select.options", given=("generator",))


def test_what_is_given_comes_back_in_the_parameter_s_type_and_nothing_else() -> None:
    checked = check({"below": 1, "weights": [1, 2.5], "depth": 3})
    assert checked == {"below": 1.0, "weights": (1.0, 2.5), "depth": 3}
    assert [type(value) for value in checked.values()] == [float, tuple, int]
    assert check({}) == {}
    assert check({"depth": None, "order": "short"}) == {"depth": None, "order": "short"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"belw": 0.3}, r"select\.options\.belw = 0\.3.*'below'"),
        ({"generator": 1}, r"select\.options\.generator = 1"),
        ({"num_kept": 3}, r"select\.options\.num_kept = 3"),
        ({"below": "0.3"}, r"select\.options\.below = '0\.3'.*number"),
        ({"below": True}, r"select\.options\.below = True.*number"),
        ({"depth": 2.5}, r"select\.options\.depth = 2\.5.*integer"),
        ({"order": "wide"}, r"select\.options\.order = 'wide'.*'long' or 'short'"),
        ({"weights": [1, "x"]}, r"select\.options\.weights = .*\[1\].*number"),
        ({"share": 0}, r"select\.options\.share = 0.*wanted more than 0"),
        ({"below": {1, 2}}, r"select\.options\.below = \{1, 2\}"),
    ],
)
def test_a_wrong_name_or_type_is_one_line_that_names_the_option(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named) as raised:
        check(options)
    assert "\n" not in str(raised.value)


def test_a_required_option_has_to_be_set() -> None:
    def demanding(*, depth: int) -> None: ...

    with pytest.raises(UsageError, match=r"select\.options\.depth is not set"):
        check({}, demanding)
    assert check({"depth": 2}, demanding) == {"depth": 2}


def test_a_default_tells_the_type_where_there_is_no_annotation() -> None:
    def plain(*, below=0.25, depth=3, name="a", on=False, other=None): ...  # type: ignore[no-untyped-def]

    assert check({"below": 1, "depth": 2.5, "name": "b", "on": True, "other": [1]}, plain) == {
        "below": 1.0,
        "depth": 2.5,
        "name": "b",
        "on": True,
        "other": [1],
    }
    for options in ({"below": "x"}, {"depth": "x"}, {"name": 1}, {"on": 1}):
        with pytest.raises(UsageError, match=rf"select\.options\.{next(iter(options))} = "):
            check(options, plain)


def test_a_function_of_any_options_gets_all_but_those_of_the_caller() -> None:
    def free(rewards: Any, *, below: float = 0.25, **options: Any) -> None: ...

    assert check({"below": 1, "colour": "red"}, free) == {"below": 1.0, "colour": "red"}
    for name in ("rewards", "generator"):
        with pytest.raises(UsageError, match=name):
            check({name: 1}, free)


def test_annotations_that_cannot_be_read_or_checked_leave_the_names() -> None:
    def unread(*, kind: "NoSuchType" = None, place: Path = Path()) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert check({"kind": 3}, unread) == {"kind": 3}
    with pytest.raises(UsageError, match=r"select\.options\.knd = 3.*'kind'"):
        check({"knd": 3}, unread)


def test_objects_and_partial_functions_have_options_too() -> None:
    class Rule:
        def __call__(self, groups: Any, *, below: float = 0.0) -> None: ...

    assert check({"below": 1}, Rule()) == {"below": 1.0}
    assert check({"below": 1}, partial(rule, num_kept=3)) == {"below": 1.0}


def test_a_function_without_a_known_signature_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"select\.options: .*signature"):
        check({}, getattr)


def test_positional_parameters_are_options_on_demand() -> None:
    def load(path: str, num_eval: int = 3) -> None: ...

    assert check_options(load, {"path": "a"}, where="task", keyword_only=False) == {"path": "a"}
    with pytest.raises(UsageError, match=r"task\.path is not set"):
        check_options(load, {}, where="task", keyword_only=False)
    with pytest.raises(UsageError, match=r"task\.path = 'a'"):
        check_options(load, {"path": "a"}, where="task")


def test_numbers_of_any_size_pass() -> None:
    assert check({"below": math.inf}) == {"below": math.inf}
    assert check({"depth": 2**70}) == {"depth": 2**70}
