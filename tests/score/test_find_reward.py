import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from podsrl.errors import UsageError
from podsrl.score import REWARDS
from podsrl.score.rewards import find_reward
from podsrl.score.rewards.stated import correct


def test_known_rewards_are_found_by_name() -> None:
    arithmetic, single_gpu = {"correct", "format"}, {"any_correct", "think_format", "tag_count"}
    assert set(REWARDS) == arithmetic | {"math_correct", "answer_format"} | single_gpu | {
        "boxed_correct",
        "strict_format",
        "tag_share",
    }
    assert find_reward("correct", option="task.rewards") is correct


def test_ones_own_rewards_are_found_by_module_and_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_rewards")
    module.half, module.inner = (lambda task, text: 0.5), SimpleNamespace(whole=correct)
    monkeypatch.setitem(sys.modules, "own_rewards", module)
    assert find_reward("own_rewards:half", option="task.rewards") is module.half
    assert find_reward("own_rewards:inner.whole", option="task.rewards") is correct


def test_an_unknown_name_is_refused_with_the_nearest_one_and_its_option() -> None:
    with pytest.raises(UsageError, match=r"task.correct = 'corect' is no reward. Did you mean 'correct'\?"):
        find_reward("corect", option="task.correct")
    with pytest.raises(
        UsageError,
        match=r"task.rewards = 'zzz' is no reward. Known: answer_format, .*boxed_correct, .*'module:function'",
    ):
        find_reward("zzz", option="task.rewards")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_module_x:f", "ModuleNotFoundError: No module named 'no_such_module_x'"),
        ("math:no_such_function", "no 'no_such_function' in 'math'"),
        ("math:", "no '' in 'math'"),
        (":f", "ValueError"),
        ("broken_rewards:f", "ZeroDivisionError: division by zero"),
    ],
)
def test_an_import_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str) -> None:
    (tmp_path / "broken_rewards.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=f"task.rewards = '{name}' cannot be imported: {reason}"):
        find_reward(name, option="task.rewards")
