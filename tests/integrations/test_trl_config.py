"""The options of PODS in TRL, the rollouts that a rule chooses, and a TRL that is not there, too new or broken."""

from __future__ import annotations

import itertools
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import children
from loops import each

pytest.importorskip("trl")

from transformers import HfArgumentParser

from podsrl.errors import UsageError
from podsrl.integrations.trl import PODSConfig
from podsrl.integrations.trl.trainer import choose
from podsrl.select import RULES, max_variance, resolve_rule

pytestmark = pytest.mark.slow  # its import takes longer than the tests

SOURCE = Path(__file__).parents[2] / "src"


def with_an_option(rewards: torch.Tensor, num_kept: int, *, first: int = 0, generator: Any = None) -> torch.Tensor:
    """A rule of a user's own: the rollouts from number `first` on."""
    return torch.arange(first, first + num_kept).repeat(len(rewards), 1)


def of_groups(groups: Any, num_kept: int, *, generator: Any = None) -> list[list[int]]:
    return [[0, 1] for _ in groups]


def config(**options: Any) -> PODSConfig:
    sizes = {"per_device_train_batch_size": 16, "num_generations": 16, **options}
    return PODSConfig(output_dir="unused", use_cpu=True, bf16=False, report_to=[], **sizes)


def test_everything_is_kept_unless_a_number_is_given() -> None:
    assert config().num_kept == 16
    assert config(num_kept=4).num_kept == 4


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_of_podsrl_that_keeps_a_number_works(rule: str) -> None:
    if rule == "keep_all":
        assert config(rule=rule).num_kept == 16
        with pytest.raises(UsageError, match="keep_all"):
            config(rule=rule, num_kept=4)
    else:
        assert config(rule=rule, num_kept=4).new_rule() is RULES[rule]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_kept": 17}, r"num_kept = 17; .*num_generations = 16"),
        ({"num_kept": 1}, r"num_kept = 1; "),
        ({"num_kept": 4.0}, r"num_kept = 4\.0; "),
        ({"num_kept": True}, r"num_kept = True; "),
        ({"num_kept": 4, "rule": "max_varianse"}, r"^rule = 'max_varianse' .*max_variance"),
        ({"num_kept": 4, "rule": "test_trl_config:none"}, r"^rule = 'test_trl_config:none'.* no 'none'"),
        ({"num_kept": 4, "rule": "test_trl_config:of_groups"}, r"rule = .*groups.*rewards"),
        (
            {"num_kept": 4, "rule": "test_trl_config:with_an_option", "rule_options": {"frst": 1}},
            r"^rule_options\.frst = 1.*'first'",
        ),
        ({"num_kept": 4, "rule": "test_trl_config:with_an_option", "rule_options": {"first": 14}}, r"with_an_option"),
        ({"num_kept": 4, "rule_options": {"first": 1}}, r"^rule_options\.first = 1"),
        (
            {"num_kept": 3, "per_device_train_batch_size": 4, "generation_batch_size": 8, "num_generations": 8},
            r"num_kept = 3 .*steps_per_generation = 2",
        ),
    ],
)
def test_what_cannot_be_is_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        config(**options)
    assert "\n" not in str(caught.value) and isinstance(caught.value, ValueError)


def test_a_group_lies_in_one_process_unless_all_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PODSConfig, "world_size", 2)
    halves = {"per_device_train_batch_size": 8, "num_generations": 16}
    with pytest.raises(UsageError, match=r"8 rollouts per process; .*num_generations = 16"):
        config(**halves, num_kept=4)
    assert config(**halves).num_kept == 16


def test_the_options_of_a_rule_reach_it_from_the_command_line_too() -> None:
    arguments = (
        "--output_dir x --use_cpu --bf16 False --report_to none --num_kept 3 --rule test_trl_config:with_an_option"
    )
    [parsed] = HfArgumentParser(PODSConfig).parse_args_into_dataclasses(
        [*arguments.split(), "--rule_options", '{"first": 2}']
    )
    kept, _ = choose(torch.rand(2, 8).double(), 3, parsed.new_rule(), torch.Generator())
    assert kept.tolist() == [[2, 3, 4], [2, 3, 4]]


@each("seed", range(30))
def test_the_choice_is_the_brute_force_one(seed: int) -> None:
    source = torch.Generator().manual_seed(seed)
    rewards = torch.randint(0, 5, (6, 8), generator=source).double() / 4
    rewards[torch.rand(6, 8, generator=source) < seed / 40] = torch.nan
    num_kept = 2 + seed % 7
    kept, _ = choose(rewards, num_kept, max_variance, torch.Generator())
    for group, rows in zip(rewards.tolist(), kept.tolist(), strict=True):
        valid = [i for i in range(8) if group[i] == group[i]]
        others = [i for i in range(8) if i not in valid]
        assert rows == sorted(set(rows)) and len(rows) == num_kept
        if len(valid) <= num_kept:
            assert rows == sorted(valid + others[: num_kept - len(valid)])
            continue
        assert set(rows) <= set(valid)
        largest = max(variance([group[i] for i in found]) for found in itertools.combinations(valid, num_kept))
        assert variance([group[i] for i in rows]) == pytest.approx(largest)


def variance(values: list[float]) -> float:
    return sum((value - sum(values) / len(values)) ** 2 for value in values) / len(values)


def test_random_choices_of_groups_with_rewards_missing_follow_the_generator() -> None:
    rewards = torch.rand(4, 8).double()
    rewards[1, 3] = torch.nan
    rule = resolve_rule("random")
    first, again, other = (choose(rewards, 3, rule, torch.Generator().manual_seed(seed))[0] for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert 3 not in first[1]


@pytest.mark.parametrize(
    ("version", "code", "message"),
    [
        (None, "", "TRL is not installed; .*pip install 'podsrl\\[trl\\]'"),
        ("2.0.1", "", "TRL 2.0.1 is installed; wanted 1.0 or newer, below 2: pip install"),
        ("0.29.0", "", "TRL 0.29.0 is installed"),
        ("2.0rc1", "", "TRL 2.0rc1 is installed"),
        (
            "1.16.0",
            "raise RuntimeError('trackio is broken')",
            "TRL 1.16.0 cannot be imported: RuntimeError: trackio is",
        ),
    ],
)
def test_a_trl_that_cannot_be_used_is_one_line(version: str | None, code: str, message: str, tmp_path: Path) -> None:
    """The packages of this Python stay, but for TRL's own."""
    if version is not None:
        (tmp_path / f"trl-{version}.dist-info").mkdir()
        (tmp_path / f"trl-{version}.dist-info" / "METADATA").write_text(f"Name: trl\nVersion: {version}\n")
        (tmp_path / "trl.py").write_text(code)
    hide = "import importlib.metadata as m\nm.distribution = lambda name: m.Distribution.from_name(name + '-absent')"
    program = f"{hide if version is None else ''}\nimport podsrl.integrations.trl"
    paths = os.pathsep.join([str(tmp_path), str(SOURCE)])
    done = children.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
    )
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert re.search(f"UsageError: {message}", lines[-1]), lines[-3:]
