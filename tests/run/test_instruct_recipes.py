"""The recipes for any instruct model, with a tiny chat model: dry run, three steps, resume."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podsrl.config.load import changed_keys, load_config
from podsrl.run.before.advice import form_advice
from podsrl.run.before.data import load_task_set
from podsrl.tools.pretrain import character_tokenizer

Pods = Callable[..., tuple[int, str, str]]
TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SMALL = (
    "--rollouts.max_prompt_tokens=900",  # of characters
    "--rollouts.max_new_tokens=8",
    "--rollouts.num_prompts=2",
    "--rollouts.num_rollouts=4",
    "--select.num_kept=2",
    "--lora.rank=4",
    "--task.num_eval=2",
    "--task.reward_workers=1",
    "--plain",
)


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory: pytest.TempPathFactory, make_model: Callable[..., Any]) -> Path:
    """A tiny Qwen2 with a chat template."""
    folder = tmp_path_factory.mktemp("models") / "chat"
    make_model("qwen2", max_position_embeddings=2048, tie_word_embeddings=True).save_pretrained(folder)
    tokenizer = character_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight questions to train on and four held out, of each set, laid out as the folder in PODS_DATA."""
    for side, numbers in (("train", range(2, 10)), ("test", range(10, 14))):
        rows = {
            "gsm8k": [{"question": f"{n} eggs and one?", "answer": f"So {n + 1}.\n#### {n + 1}"} for n in numbers],
            "math": [{"problem": f"${n} + 1$?", "solution": f"$\\boxed{{{n + 1}}}$"} for n in numbers],
        }
        for name, lines in rows.items():
            (tmp_path / "data" / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / "data" / name / f"{side}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    monkeypatch.setenv("PODS_DATA", str(tmp_path / "data"))
    return tmp_path


def test_three_steps_and_a_resume_keep_what_was_chosen(pods: Pods, data: Path, chat_model: Path) -> None:
    model = f"--model.path={chat_model}"
    code, _, errors = pods("train", "gsm8k", model, *SMALL, "--stop.steps=2", "--out", "run")
    assert code == 0, errors
    assert "model.dtype = 'auto' is 'float32' here" in errors
    assert "rollouts.generator = 'auto' is 'engine' here" in errors
    config = load_config(data / "run" / "config.toml")
    assert (config.model.dtype, config.rollouts.generator) == ("float32", "engine")
    code, _, errors = pods("train", "--resume", "run", "--stop.steps=3", "--plain")
    assert code == 0 and "'auto'" not in errors, errors
    lines = [json.loads(line) for line in (data / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3]
    assert [line["step"] for line in lines if "eval/accuracy" in line] == [0, 2, 3]


def test_a_dry_run_says_how_long_and_what_was_chosen(
    pods: Pods, data: Path, chat_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podsrl.cli.dry_run.MOST_SECONDS", 60.0)
    code, printed, errors = pods("train", "gsm8k", f"--model.path={chat_model}", *SMALL, "--dry-run")
    assert code == 0 and printed.startswith("Ready to train; "), errors
    lines = {line[:8].strip(): line[9:] for line in printed.splitlines()}
    assert lines["time"].startswith("500 steps of ") and " and 11 evaluations of " in lines["time"]
    assert "(measured on a step" in lines["time"] and "LoRA r = 4" in lines["trained"]
    assert "rollouts.generator = 'auto' is 'engine' here" in lines["chosen"]


def test_code_is_trained_on_small_functions_and_on_rows_as_those_of_mbpp(
    pods: Pods, data: Path, chat_model: Path
) -> None:
    flags = (f"--model.path={chat_model}", *SMALL, "--task.correct=weaker_code_share")
    flags += ("--task.rewards={weaker_code_share = 1.0}",)
    code, _, errors = pods("train", "code", *flags, "--stop.steps=1", "--out", "run")
    assert code == 0, errors
    lines = [json.loads(line) for line in (data / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["rewards/weaker_code_share/mean"] for line in lines if "loss" in line] == [0.0]
    row = {"text": "Write a function f.", "code": "def f(): return 1", "test_list": ["assert f() == 1"]}
    (data / "mbpp.jsonl").write_text("".join(json.dumps(row | {"text": f"{n}"}) + "\n" for n in range(4)))
    columns = ("--task.name=jsonl", f"--task.path={data / 'mbpp.jsonl'}", "--task.prompt_column=text")
    code, printed, errors = pods("train", "code", *flags, *columns, "--task.answer_column=code", "--dry-run")
    assert code == 0 and "reward 1 (weaker_code_share 1), correct" in printed, errors


@pytest.mark.parametrize("name", ["gsm8k", "math"])
def test_the_system_prompt_tells_of_the_tags_and_without_it_a_warning_does(data: Path, name: str) -> None:
    task = load_config(name, ["task.num_eval=2"]).task
    told = load_task_set(task)
    assert form_advice(told, told.rewards) == []
    [line] = form_advice(load_task_set(task.model_copy(update={"system_prompt": None})), told.rewards)
    assert line.startswith("answer_format pays for <think> </think> <answer> </answer>, ")


def test_own_questions_are_asked_as_those_of_the_recipe(data: Path) -> None:
    rows = [json.dumps({"question": f"{n} eggs and one?", "answer": str(n + 1)}) for n in range(9)]
    (data / "own.jsonl").write_text("\n".join(rows))
    flags = ["task.name=jsonl", f"task.path={data / 'own.jsonl'}", "task.num_eval=2"]
    own, recipe = load_config("gsm8k", flags).task, load_config("gsm8k", ["task.num_eval=2"]).task
    asked = [load_task_set(task).eval[0].prompt for task in (own, recipe)]
    assert [[message["role"] for message in prompt] for prompt in asked] == [["system", "user"]] * 2  # type: ignore[index]
    assert asked[0][0] == asked[1][0] and own.rewards == load_task_set(recipe).rewards
    assert own.correct in (own.rewards or {}) and own.format in (own.rewards or {})


def test_math_is_gsm8k_with_other_questions_and_longer_answers() -> None:
    trees = [load_config(name).model_dump(mode="json") for name in ("gsm8k", "math")]
    assert changed_keys(*trees) == [
        "rollouts.max_new_tokens (512 -> 1024)",
        "task.name (gsm8k -> math)",
        "task.num_eval (512 -> 0)",
    ]
