"""A run's generators in processes of their own: which GPUs they take, what is refused, and that no number changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from podsrl.errors import UsageError
from podsrl.run.step.generators import own_gpus
from podsrl.scale.processes import Processes
from runs import flags, numbers

SIZES = (
    *("rollouts.num_prompts=3", "rollouts.max_new_tokens=24", "task.num_eval=20"),
    *("eval.every_steps=2", "model.device=cpu"),
)


def gpus(monkeypatch: pytest.MonkeyPatch, count: int, rank: int, num_here: int, num: int, device: str) -> list[int]:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    return own_gpus(torch.device(device), Processes(rank, num_here, num_here=num_here), num)


def test_generators_take_the_gpus_that_do_not_train(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpus(monkeypatch, 8, 0, 1, 2, "cuda") == [1, 2]
    assert gpus(monkeypatch, 3, 0, 1, 2, "cuda:1") == [0, 2]
    assert gpus(monkeypatch, 6, 1, 2, 2, "cuda:1") == [4, 5]
    assert gpus(monkeypatch, 1, 0, 1, 2, "cuda") == [0, 0]  # the only one is shared
    assert gpus(monkeypatch, 4, 0, 1, 2, "cpu") == []
    with pytest.raises(UsageError, match=r"scale\.generators.*torch sees 3"):
        gpus(monkeypatch, 3, 0, 2, 1, "cuda:0")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--scale.ray=local"], "scale.ray = 'local'"),
        (["--scale.generators=1", "--rollouts.generator=nosuch"], "nosuch"),
        (["--scale.generators=4"], "rollouts.num_prompts = 3"),
        (["--scale.generators=1", "--scale.ray=ray://127.0.0.1:10001"], "HOST:PORT"),
        (["--rollouts.generator=vllm+http://127.0.0.1"], "HOST:PORT"),
        (["--rollouts.generator=vllm+http://127.0.0.1:8000,"], "HOST:PORT"),
        (["--options.vllm.max_model_len=8"], "rollouts.generator = 'engine'"),
        (["--order.ahead=1"], "scale.generators = 1"),
    ],
)
def test_what_does_not_go_together_is_one_line(pods: Any, options: list[str], named: str) -> None:
    code, _, err = pods("train", "pods", *flags(*SIZES), *options, "--out=run")
    assert code == 2 and named in err and "Traceback" not in err and not Path("run").exists()


@pytest.mark.parametrize("option", ["seed=1", "lora.rank=2", "model.dtype=bfloat16", 'rollouts.stop_strings=["1"]'])
def test_one_generator_elsewhere_changes_no_number(pods: Any, option: str) -> None:
    for num in (0, 1):
        options = flags(*SIZES, "stop.steps=2", option, f"scale.generators={num}")
        code, _, err = pods("train", "pods", *options, f"--out=run-{num}")
        assert code == 0, err
    assert numbers(Path("run-1")) == numbers(Path("run-0"))


def test_a_resume_may_change_their_number_and_warns(pods: Any) -> None:
    pods("train", "pods", *flags(*SIZES, "stop.steps=2"), "--out=plain")
    code, _, err = pods("train", "--resume=plain", "--stop.steps=4", "--scale.generators=1")
    assert code == 0 and "last bits" not in err, err
    pods("train", "pods", *flags(*SIZES), "--out=whole")
    assert numbers(Path("plain"))[-2:] == numbers(Path("whole"))[-2:]
    code, _, err = pods("train", "--resume=plain", "--stop.steps=5", "--scale.generators=2")
    assert code == 0 and "scale.generators = 1, now it is 2" in err, err
