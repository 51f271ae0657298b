"""The data sets of the package reasoning-gym: which can be used, and how one is made with options and a level.

A question is a function of (data set, options, level, seed, place), and so a worker process makes the one that it
judges again: what a verifier reads of it need not be sent. What was read for that, and for what its verifiers do with
a text, is release `VERSION`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from podsrl.errors import UnavailableError, UsageError, nearest, short
from podsrl.lib.user_function import FAILURES, calling, reason_of

if TYPE_CHECKING:
    from reasoning_gym.coaching import BaseCurriculum
    from reasoning_gym.dataset import ProceduralDataset

VERSION = "0.1.25"
MOST_QUESTIONS = 1_000_000
"""Of a data set at a level, on either side."""
_EVALUATES = "its verifier runs what the model wrote as Python code"
_DIFFERS = "its questions differ from process to process, because their order comes from a Python set"
_MIXTURE = "it is a mixture: name its members in options.reasoning_gym.datasets"
REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("binary_matrix", "n_queens", "spiral_matrix", "string_insertion"), _EVALUATES),
    **dict.fromkeys(("countdown", "puzzle24"), _EVALUATES),
    **dict.fromkeys(("intermediate_integration", "polynomial_multiplication", "simple_integration"), _EVALUATES),
    **dict.fromkeys(("codeio", "isomorphic_strings", "knight_swap", "ransom_note", "word_ladder"), _DIFFERS),
    "composite": _MIXTURE,
}
"""Name of a data set that is not used -> why."""
_OPTION = "options.reasoning_gym"
_OURS = ("seed", "size")
"""Options of every data set that are set here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A data set with options, at a level of its curriculum.

    Example:
        >>> Source(name="leg_counting", level=2).title, Source(name="leg_counting").title
        ('leg_counting@2', 'leg_counting')
    """

    name: str
    config: str = "{}"
    """Its options, as a JSON object."""
    level: int | None = None
    """Of its curriculum, from 0; None: without one."""

    @property
    def title(self) -> str:
        """The name in ids and messages."""
        return self.name if self.level is None else f"{self.name}@{self.level}"


def check_installed() -> None:
    """UnavailableError: the package is not there, or of another release."""
    wanted = f"task.name = 'reasoning_gym' wants the package reasoning-gym {VERSION}"
    try:
        found = version("reasoning-gym")
        if found == VERSION:
            import reasoning_gym  # noqa: F401

            return
    except PackageNotFoundError:
        found = "none"
    except ImportError as error:
        found = reason_of(error)
    cure = "pip install 'podsrl[reasoning]'"
    raise UnavailableError(f"{wanted}, whose verifiers were read for what they do with a text; found {found}: {cure}")


def names() -> list[str]:
    """All data sets that can be used, in order."""
    from reasoning_gym.factory import DATASETS

    return sorted(set(DATASETS) - set(REFUSED))


def check_name(name: str) -> None:
    """UsageError: there is no such data set, or it is not used."""
    from reasoning_gym.factory import DATASETS

    where = f"{_OPTION}.datasets = {name!r}"
    if because := REFUSED.get(name):
        raise UsageError(f"{where}: {because}; choose another (pods tasks lists them)")
    if name not in DATASETS:
        raise UsageError(f"{where}: reasoning-gym has no such data set.{_near(name)}")


def _near(name: str) -> str:
    hint = nearest(name, names())
    return hint if "Did you mean" in hint else " pods tasks lists them."


def options_of(name: str) -> dict[str, str]:
    """The options of a data set, with their defaults as text."""
    from reasoning_gym.factory import DATASETS

    default = DATASETS[name][1]()
    return {each.name: short(getattr(default, each.name)) for each in fields(default) if each.name not in _OURS}


def most_level(name: str) -> int | None:
    """The highest level of a data set's curriculum; None: it has no curriculum."""
    curriculum = _curriculum(name)
    return None if curriculum is None else max(len(each.levels) for each in curriculum.attributes.values()) - 1


def check_config(name: str, config: Mapping[str, Any], levels: tuple[int, ...]) -> None:
    """UsageError: the data set has no such option or level, or both decide the same."""
    known = options_of(name)
    where = f"{_OPTION}.config.{name}"
    for option, value in config.items():
        if option not in known:
            cure = " options.reasoning_gym.size is the number of questions." if option in _OURS else ""
            raise UsageError(
                f"{where}.{option} = {short(value)}: there is no such option.{cure or nearest(option, known)}"
            )
    most = most_level(name)
    for level in levels:
        if most is None:
            raise UsageError(f"{_OPTION}.difficulty = {level}: the data set {name!r} has no curriculum: leave it out")
        if not 0 <= level <= most:
            raise UsageError(f"{_OPTION}.difficulty = {level}: the levels of {name!r} are 0 .. {most}")
    if levels and (both := [option for option in config if option in _of_level(name, levels[0])]):
        raise UsageError(f"{where}.{both[0]} is also set by {_OPTION}.difficulty: leave one of them out")


@lru_cache(maxsize=64)
def made(source: Source, seed: int, size: int) -> ProceduralDataset:
    """The data set, whose question i < `size` is a function of the arguments and i. UsageError: it refuses its options.

    In all but those that make their questions at once, `size` does not matter.
    """
    from reasoning_gym import create_dataset

    config = json.loads(source.config)
    level = {} if source.level is None else _of_level(source.name, source.level)
    try:
        with redirect_stdout(sys.stderr):
            return create_dataset(source.name, **{**config, **level}, seed=seed, size=size)
    except FAILURES as error:
        shown = {**config, **level}
        raise UsageError(
            f"{_OPTION}.config.{source.name} = {short(shown)}: the data set refuses this"
            f"{'' if source.level is None else f' (level {source.level})'}: {str(error) or reason_of(error)}"
        ) from error


@lru_cache(maxsize=4096)
def entry_of(source: Source, seed: int, size: int, place: int) -> dict[str, Any]:
    """Question `place`, with all that its verifier reads. The same object for the same arguments: do not change it.

    What a data set prints is no part of a command's result.
    """
    with redirect_stdout(sys.stderr), calling(f"reasoning-gym's data set '{source.title}', question {place}"):
        entry: dict[str, Any] = made(source, seed, size)[place]
    return entry


def _curriculum(name: str) -> BaseCurriculum | None:
    from reasoning_gym.factory import create_curriculum, has_curriculum

    return create_curriculum(name) if has_curriculum(name) else None


def _of_level(name: str, level: int) -> dict[str, Any]:
    """The options that a level sets. A range has the level's own part of the scale alone, without the easier ones."""
    from reasoning_gym.coaching.base_curriculum import DefaultCurriculumContext, RangeAttributeMode

    curriculum = _curriculum(name)
    assert curriculum is not None
    curriculum.set_global_level(level)
    context = DefaultCurriculumContext(mode=RangeAttributeMode.UPPER_BOUND)
    found = curriculum.generate_configuration(context=context)
    names = {"field_name", "lower_field_name", "upper_field_name"}
    decided = [getattr(each, name, None) for each in curriculum.attributes.values() for name in sorted(names)]
    return {option: getattr(found, option) for option in decided if option}
