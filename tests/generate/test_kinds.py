"""What a function of one's own makes is looked at: what it lacks of a generator is named."""

from __future__ import annotations

from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.generate import Generator, Setting, resolve_generator


class Bare:
    version = 0

    def abort(self, ids: Any) -> None: ...

    def load_weights(self, named_tensors: Any, version: int) -> None: ...

    def describe(self, requests: Any) -> str:
        return "bare"

    def close(self) -> None: ...


class Given(Bare):
    def generate(self, requests: Any) -> Any: ...


class Half(Bare):
    def submit(self, requests: Any, *, watch: Any = None) -> None: ...


class Whole(Half):
    def poll(self, seconds: float | None = None) -> Any: ...


class Idle(Generator):
    version = 0


class HalfOfBase(Generator):
    version = 0

    def submit(self, requests: Any, *, watch: Any = None) -> None: ...


class GivenOfBase(Generator):
    version = 0

    def generate(self, requests: Any, *, watch: Any = None) -> Any: ...


def nothing(setting: Setting) -> None: ...


def make(setting: Setting, *, kind: str) -> Any:
    return {each.__name__: each for each in (Bare, Given, Half, Whole, Idle, HalfOfBase, GivenOfBase)}[kind]()


def made(function: str, **options: str) -> Any:
    name = f"{__name__}:{function}"
    return resolve_generator(name, {name: options}).make(Setting(load_model=lambda: None, folder=""))


@pytest.mark.parametrize(
    ("kind", "lacks"),
    [
        ("Bare", "submit and poll, or generate"),
        ("Half", "poll"),
        ("Idle", "submit and poll, or generate"),
        ("HalfOfBase", "poll"),
    ],
)
def test_what_a_generator_lacks_is_named(kind: str, lacks: str) -> None:
    with pytest.raises(UsageError, match=f"make' returned .*, which has no {lacks}; wanted a generator"):
        made("make", kind=kind)


@pytest.mark.parametrize("kind", ["Given", "Whole", "GivenOfBase"])
def test_a_generator_has_submit_and_poll_or_generate(kind: str) -> None:
    assert type(made("make", kind=kind)).__name__ == kind


def test_what_is_no_generator_is_an_error() -> None:
    with pytest.raises(UsageError, match="nothing' returned None, which has no version, abort, load_weights, describe"):
        made("nothing")
