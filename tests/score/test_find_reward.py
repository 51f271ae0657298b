import sys
from types import ModuleType, SimpleNamespace

import pytest

from podsrl.errors import UsageError
from podsrl.score.rewards import find_reward
from podsrl.score.rewards.stated import correct


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
