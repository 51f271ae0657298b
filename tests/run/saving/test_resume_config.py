"""The config of a checkpoint against the config of the run that loads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podsrl.config.load import load_config
from podsrl.errors import UsageError
from podsrl.run.saving.changes import check_config, forbidden_changes, rounding_notes
from podsrl.run.saving.checkpoint import Checkpoint


def stored(*overrides: str) -> dict[str, Any]:
    return load_config("pods", overrides).model_dump(mode="json")


def made_with(config: dict[str, Any], device: str = "cpu") -> Checkpoint:
    return Checkpoint(path=Path("run/step-1"), state={"config": config, "device": device})


def check(config: dict[str, Any], *overrides: str) -> None:
    check_config(made_with(config), load_config("pods", overrides))


def test_options_of_a_step_may_not_change_and_those_around_it_may() -> None:
    check(stored())
    longer, guided = "rollouts.max_prompt_tokens=600", "systems=small_budgets:HalfShown"
    check(stored(), "stop.steps=9", "checkpoint.keep=7", "record.num_groups=2", longer)
    with pytest.raises(UsageError, match=r"another config: optim\.lr \(0\.0003 -> 0\.5\), select\.rule"):
        check(stored(), "optim.lr=0.5", "select.rule=random", longer)
    for before, after in (((longer,), ()), ((guided,), (guided, longer))):
        with pytest.raises(UsageError, match=r"another config: rollouts\.max_prompt_tokens"):
            check(stored(*before), *after)


GROWING = {"systems": "small_parts:Growing", "options": '{"small_parts:Growing" = {most = 2}}'}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"systems": "small_parts:Twice", "options": "{}"},
            r"systems \(.*small_parts:Growing.* -> .*small_parts:Twice",
        ),
        ({"systems": "small_parts:Growing,dapo"}, r"systems \(.*small_parts:Growing.* -> .*small_parts:Growing.*dapo"),
        ({"options": '{"small_parts:Growing" = {most = 3}}'}, r"options.small_parts:Growing.most \(2 -> 3\)"),
        ({"options": "{}"}, "options"),
    ],
)
def test_another_system_or_option_of_one_is_named(change: dict[str, str], message: str) -> None:
    before, after = ([f"{key}={value}" for key, value in each.items()] for each in (GROWING, GROWING | change))
    with pytest.raises(UsageError, match=rf"was made with another config: .*{message}"):
        check(stored(*before), *after)


@pytest.mark.parametrize(
    ("now", "device", "named"),
    [
        ((), "cpu", []),
        ((), "cuda", ["'cuda'"]),
        (("scale.generators=1",), "cpu", []),
        (("scale.generators=2",), "cpu", ["scale.generators = 0"]),
        (("optim.micro_batch_tokens=99",), "cpu", ["optim.micro_batch_tokens"]),
    ],
)
def test_what_rounds_otherwise_is_a_warning(now: tuple[str, ...], device: str, named: list[str]) -> None:
    notes = rounding_notes(made_with(stored()), load_config("pods", now), device)
    assert len(notes) == len(named) and all(text in note for text, note in zip(named, notes, strict=True))


@pytest.mark.parametrize(
    ("before", "after", "is_allowed"),
    [
        ("vllm+http://a:1", "vllm+http://b:2,http://c:3", True),
        ("vllm+http://a:1", "vllm", False),
        ("engine", "vllm+http://a:1", False),
    ],
)
def test_servers_may_move(before: str, after: str, is_allowed: bool) -> None:
    new = stored(f"rollouts.generator={after}", "options.vllm.retry_seconds=3.0")
    assert (not forbidden_changes(stored(f"rollouts.generator={before}"), new)) == is_allowed
