"""What a run and its dry run say of a config before they begin."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from podsrl.config.files import recipe_names
from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig, TaskConfig
from podsrl.run.before import advice
from podsrl.run.before.advice import eval_note, form_advice, rate_advice, split_note
from podsrl.run.before.model_shape import read_shape
from podsrl.tasks import load_tasks

MODEL = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8, "vocab_size": 9000}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The description of a Qwen2 of over 100 million weights, without them."""
    from transformers import Qwen2Config

    folder = tmp_path_factory.mktemp("large")
    Qwen2Config(**MODEL).save_pretrained(folder)
    return str(folder)


def advised(path: str, **sections: Any) -> list[str]:
    return rate_advice(RunConfig.model_validate({"model": {"path": path}, **sections}))


def test_a_rate_for_small_models_is_told_on_a_large_one(large: str) -> None:
    size = read_shape(RunConfig.model_validate({"model": {"path": large}}).model).num_weights
    assert advice.LARGE_MODEL < size < 1e9
    [line] = advised(large)
    assert "optim.lr = 0.0003" in line and f"{size / 1e6:.0f} million" in line and "2e-05" in line
    assert advised(large, optim={"lr": 2e-5}) == []
    assert len(advised(large, optim={"lr": 2.1e-5})) == 1


def test_adapters_take_higher_rates(large: str) -> None:
    [line] = advised(large, lora={}, optim={"lr": 6e-4})
    assert "adapters" in line and "0.0005" in line
    assert advised(large, lora={}, optim={"lr": 5e-4}) == advised(large, lora={}) == []


def test_small_models_take_any_rate(tiny_model_folder: Path) -> None:
    assert advised(str(tiny_model_folder), optim={"lr": 0.1}) == []


@pytest.mark.parametrize("name", [name for name in recipe_names() if re.match("paper/.(-|$)", name)])
def test_no_recipe_of_the_paper_is_warned_of(name: str, large: str) -> None:
    assert rate_advice(load_config(name, [f"model.path={large}"])) == []


def test_when_a_run_is_evaluated_and_ends() -> None:
    assert eval_note(RunConfig()).startswith("no evaluation between start and end (eval.every_steps and")
    assert eval_note(RunConfig()).endswith("stops after 100 steps")
    config = load_config("pods", ["eval.every_steps=20", "stop.steps=1000"])
    assert eval_note(config) == (
        "evaluation at start and end, and every 20 steps and every 5 s of training; "
        "stops after 1,000 steps or 60 s of training"
    )


def test_rewards_for_tags_want_a_prompt_that_tells_of_them() -> None:
    tags = {"math_correct": 1.0, "answer_format": 0.1}
    asked = load_tasks("arithmetic", digits=1, num_eval=4, chat=True)
    [line] = form_advice(asked, tags)
    assert "answer_format" in line and "task.system_prompt" in line
    told = load_tasks("arithmetic", digits=1, num_eval=4, chat=True, system_prompt="pods_single_gpu")
    assert form_advice(told, tags) == []


def test_the_mark_of_a_stated_answer_is_told_to_a_chat_model() -> None:
    plain = {"correct": 1.0, "format": 0.1}
    chat = load_tasks("arithmetic", digits=1, num_eval=4, chat=True)
    [line] = form_advice(chat, plain)
    assert line.startswith("correct, format pay for Answer:, ")
    text = load_tasks("arithmetic", digits=1, num_eval=4)
    told = load_tasks("arithmetic", digits=1, num_eval=4, chat=True, system_prompt="End with `Answer: ` and a number.")
    assert form_advice(text, plain) == form_advice(told, plain) == []


def test_only_the_marks_that_the_prompt_lacks_are_named() -> None:
    asked = load_tasks("arithmetic", digits=1, num_eval=4, chat=True, system_prompt="Write <answer>7</answer>.")
    [line] = form_advice(asked, {"tag_count": 1.0, "boxed_correct": 1.0})
    assert line.startswith("tag_count pays for <think> </think>, ")


def test_the_split_names_the_option_that_decided_it() -> None:
    tasks = load_tasks("arithmetic", digits=1, num_eval=4)
    assert split_note(TaskConfig(), tasks) == "76 questions: 72 to train on, 4 held out (task.num_eval)"
    assert split_note(TaskConfig(eval_path="x.jsonl"), tasks).endswith("(task.eval_path)")
    assert split_note(TaskConfig(eval_split="test"), tasks).endswith("(task.eval_split)")
