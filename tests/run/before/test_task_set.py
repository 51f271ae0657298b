"""The task set that a config names: every option reaches it, and nothing heavy is loaded for it."""

from __future__ import annotations

import subprocess
import sys
from inspect import signature

from podsrl.config.schema import TaskConfig
from podsrl.run.before.data import OF_REWARDS, load_task_set
from podsrl.tasks import load_tasks


def test_each_option_says_either_what_is_asked_or_how_it_is_judged() -> None:
    asked = {name for name in signature(load_tasks).parameters if name not in ("seed", "own")}
    assert asked | OF_REWARDS == set(TaskConfig.model_fields) and not asked & OF_REWARDS


def test_the_options_reach_the_loader() -> None:
    found = load_task_set(TaskConfig(name="arithmetic", digits=1, num_eval=3, system_prompt="Add.", chat=True))
    assert len(found.eval) == 3
    assert next(message["content"] for message in found.eval[0].prompt if isinstance(message, dict)) == "Add."
    assert found.eval == load_task_set(TaskConfig(digits=1, num_eval=3, system_prompt="Add.", chat=True)).eval


def test_no_torch_is_loaded() -> None:
    code = "import sys, podsrl.run.before.data; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
