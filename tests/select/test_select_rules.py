"""The table of rules, and how a name becomes a function."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest
import torch

from made import group, rollout
from podsrl.errors import UsageError
from podsrl.select import RULES, SelectionRule, resolve_rule, select_groups, try_rule
from podsrl.select.groups import call_rule


def test_every_known_name_gives_its_function() -> None:
    assert {name: resolve_rule(name) for name in RULES} == RULES
    assert set(RULES) == {
        "max_variance",
        "max_reward",
        "both_ends",
        "random",
        "percentile",
        "keep_all",
        "max_signal",
        "drop_surplus",
    }
    assert all(getattr(rule, "__name__", None) == name for name, rule in RULES.items())


def test_a_function_of_ones_own_is_found_by_module_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_rules.py").write_text(
        "def first(rewards, num_kept, *, generator=None):\n"
        "    return rewards.new_tensor(range(num_kept)).long().expand(len(rewards), -1)\n"
        "best = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert call_rule(cast(SelectionRule, resolve_rule("my_rules:first")), torch.zeros(2, 4), 2).tolist() == [
        [0, 1],
        [0, 1],
    ]
    with pytest.raises(UsageError, match=r"no 'frist' in 'my_rules'. Did you mean 'first'\?"):
        resolve_rule("my_rules:frist")
    with pytest.raises(UsageError, match="'my_rules:best' has the type int; wanted a function"):
        resolve_rule("my_rules:best")


def near(
    rewards: torch.Tensor,
    num_kept: int,
    *,
    generator: torch.Generator | None = None,
    target: float,
    names: tuple[str, ...] = (),
    last: bool = False,
) -> torch.Tensor:
    """The rewards nearest to a target."""
    return (rewards - target).abs().argsort(dim=-1, stable=True, descending=last)[:, :num_kept]


def test_a_rule_is_called_with_its_options() -> None:
    rule = resolve_rule(f"{__name__}:near", {"target": 0.5, "names": ["a"]})
    rewards = torch.tensor([[0.0, 0.4, 1.0, 0.7]], dtype=torch.float64)
    assert call_rule(cast(SelectionRule, rule), rewards, 2).tolist() == [[1, 3]]
    try_rule(rule, 4, 2)
    last = resolve_rule(f"{__name__}:near", {"target": 0, "last": True})
    assert call_rule(cast(SelectionRule, last), rewards, 2).tolist() == [[2, 3]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": 0.5, "lost": True}, r"select.options.lost = True: there is no such .* Did you mean 'last'\?"),
        ({"target": 0.5, "generator": 1}, "select.options.generator = 1: there is no such option"),
        ({"target": 0.5, "num_kept": 1}, "select.options.num_kept = 1: there is no such option"),
        ({"target": "0.5"}, "select.options.target = '0.5': .* number"),
        ({"target": 0.5, "last": 1}, "select.options.last = 1: .* boolean"),
        ({"target": 0.5, "names": [1]}, r"select.options.names = \[1\]: at .*: .* string"),
        ({}, "select.options.target is not set, and has no default"),
    ],
)
def test_options_are_checked_against_the_rules_parameters(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve_rule(f"{__name__}:near", options)


def unannotated(rewards, num_kept, *, generator=None, k=3, anything=None):  # type: ignore[no-untyped-def]
    return rewards.argsort(-1)[:, :num_kept]


def test_without_an_annotation_an_option_has_the_type_of_its_default() -> None:
    name = f"{__name__}:unannotated"
    resolve_rule(name, {"k": 4, "anything": ["at all"]})
    with pytest.raises(UsageError, match=r"select.options.k = '4': .* number"):
        resolve_rule(name, {"k": "4"})


def test_a_rule_without_options_says_so() -> None:
    with pytest.raises(UsageError, match=r"select.options.k = 1: there is no such option. It takes no"):
        resolve_rule("max_variance", {"k": 1})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("max_varience", r"Did you mean 'max_variance'\?"),
        ("zzz", "Known: both_ends, drop_surplus, keep_all, max_reward, max_signal, max_variance, percentile, random."),
        ("no_such_module_here:rule", "ModuleNotFoundError: No module named 'no_such_module_here'"),
        (":rule", "select.rule = ':rule' cannot be imported: ValueError: Empty module name"),
        ("math:", "no '' in 'math'"),
    ],
)
def test_an_unknown_name_says_what_was_meant(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve_rule(name)


def test_the_examples_in_the_documentation_are_true(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "selection.md").read_text()
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(block, names)
    assert eval("lowest", names)(torch.tensor([[3.0, 1.0, 2.0]]), 2).tolist() == [[1, 2]]
    module = ModuleType("page_rules")
    vars(module).update(names)
    monkeypatch.setitem(sys.modules, "page_rules", module)
    rule = resolve_rule("page_rules:uncertain", {"share": 0.25})
    try_rule(rule, 8, 4)
    logprobs = [(-1.0,), (-3.0, -1.0), (-0.5, -0.5), (-4.0,), (-0.1,), (-0.2,), (-0.3,), (-0.4,)]
    rollouts = (rollout(length=len(own), logprobs=own, is_correct=i == 4) for i, own in enumerate(logprobs))
    one = group("q", *rollouts)
    assert select_groups([one], rule, 4)[0].kept == (1, 3, 4)
