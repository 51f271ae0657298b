"""`pods eval`: every kind of model, the same answers as an evaluation in a run, and an end by Ctrl-C."""

from __future__ import annotations

import copy
import json
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import children
from podsrl.config.load import load_config
from podsrl.errors import UsageError
from podsrl.evaluation import target as eval_target
from podsrl.evaluation.evaluator import Evaluator
from podsrl.evaluation.target import find_target
from podsrl.run.evaluate import evaluate
from podsrl.run.session import start
from podsrl.run.step.trainer import Trainer
from podsrl.score.accuracy import accuracy_metrics, accuracy_of
from podsrl.types import Group
from waiting import wait_for

Pods = Callable[..., tuple[int, str, str]]
SIZES = ("rollouts.max_new_tokens=16", "task.num_eval=6", "eval.num_samples=3")


def answers(name: str, *overrides: str, task: str | None = None, num_questions: int = 0) -> list[Group]:
    """In the order of the questions, whatever order they were answered in."""
    target = find_target(name, overrides, task)
    with Evaluator(target.config, adapters=target.adapters, num_questions=num_questions) as evaluator:
        return sorted(evaluator.answers(), key=lambda group: int(group.id.split("/")[1]))


def tokens(groups: list[Group]) -> dict[str, list[tuple[int, ...]]]:
    return {group.id: [rollout.token_ids for rollout in group.rollouts] for group in groups}


def test_a_model_alone_gives_the_answers_that_an_evaluation_in_a_run_gives() -> None:
    trainer = Trainer(load_config("pods", SIZES))
    inside = evaluate(trainer).to_json()
    outside = accuracy_metrics(accuracy_of(answers("pods", *SIZES)))
    assert outside == {
        name: value for name, value in inside.items() if name.startswith("eval/") and name != "eval/examples"
    }


def test_nothing_that_trains_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **named: Any) -> None:
        raise AssertionError("an evaluation made an updater")

    monkeypatch.setattr("podsrl.update.Updater.__init__", refuse)
    assert len(answers("pods", *SIZES)) == 6


def test_fewer_questions_get_the_same_answers_and_are_spread_over_all() -> None:
    whole, part = tokens(answers("pods", *SIZES)), tokens(answers("pods", *SIZES, num_questions=3))
    assert [int(name.split("/")[1]) for name in part] == [0, 2, 4]
    assert part.items() <= whole.items()


def test_the_order_in_which_questions_end_does_not_move_answers_between_them() -> None:
    groups = answers("pods", *SIZES, "rollouts.num_slots=2")
    assert tokens(groups) == tokens(answers("pods", *SIZES))
    for group in groups:
        assert [rollout.index for rollout in group.rollouts] == [0, 1, 2]
        assert all(rollout.group_id == group.id for rollout in group.rollouts)


def test_a_folder_of_adapters_answers_as_the_merged_model_does(tiny_model_folder: Path, tmp_path: Path) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(tiny_model_folder)
    torch.manual_seed(1)
    adapted = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "adapters")
    merged = tmp_path / "merged"
    shutil.copytree(tiny_model_folder, merged)
    adapted.merge_and_unload().save_pretrained(merged)
    of_adapters, of_merged, of_base = (
        tokens(answers(str(folder), *SIZES, task="arithmetic"))
        for folder in (tmp_path / "adapters", merged, tiny_model_folder)
    )
    assert of_adapters == of_merged != of_base


@pytest.mark.parametrize(
    "lora", [(), ("lora.rank=2",), ("lora.rank=2", "model.load_in_4bit=true")], ids=["full", "lora", "lora in 4 bits"]
)
def test_a_run_is_judged_by_its_newest_checkpoint(tmp_path: Path, lora: tuple[str, ...]) -> None:
    if "model.load_in_4bit=true" in lora:
        pytest.importorskip("bitsandbytes")
    sizes = ("rollouts.num_prompts=2", "rollouts.num_rollouts=8", "select.num_kept=4", "stop.steps=2", "optim.lr=0.01")
    lines: list[dict[str, Any]] = []
    config = load_config("pods", (*SIZES, *sizes, *lora, "stop.seconds=0", "eval.every_seconds=0"))
    start(config, tmp_path / "run", on_record=lines.append, say=lambda text: None)
    first, last = (line for line in lines if "eval/accuracy" in line)
    measured = accuracy_metrics(accuracy_of(answers(str(tmp_path / "run"))))
    assert measured == {
        name: value for name, value in last.items() if name.startswith("eval/") and name != "eval/examples"
    }
    assert any(first[name] != measured[name] for name in measured)  # the weights did change


def test_an_evaluation_keeps_nothing_of_a_run_that_only_training_reads(tmp_path: Path) -> None:
    target = find_target("pods", ["rollouts.num_rollouts=32", "optim.lr=0.5", "loss.kl_beta=0.1"])
    plain = find_target("pods", [])
    assert target.config == plain.config
    assert target.config.rollouts.max_new_tokens == load_config("pods").rollouts.max_new_tokens
    assert target.config.rollouts.num_slots == eval_target.NUM_SLOTS


def test_a_recipe_for_any_model_is_evaluated_with_what_this_machine_offers() -> None:
    target = find_target("gsm8k", ["model.path=someone/model-on-the-hub"])
    assert (target.config.model.dtype, target.config.rollouts.generator) == ("float32", "engine")
    assert [note.partition(" = ")[0] for note in target.notes] == ["model.dtype", "rollouts.generator"]


def test_another_task_set_drops_the_options_of_the_configs_own() -> None:
    task = find_target("pods", [], task="gsm8k").config.task
    assert (task.name, task.digits, task.num_eval) == ("gsm8k", 2, 0)  # digits is the default, which gsm8k allows
    assert find_target("pods", ["--task.name=gsm8k"]).config.task == task
    assert find_target("pods", [], task="arithmetic").config.task == load_config("pods").task


@pytest.mark.parametrize("given", [[], ["--task.num_eval=4", "--rollouts.max_prompt_tokens=14"]])
def test_a_run_is_asked_no_question_that_it_was_trained_on(pods: Pods, tmp_path: Path, given: list[str]) -> None:
    rows = "".join(f'{{"question": "What is {i} + 1?", "answer": "{i + 1}"}}\n' for i in range(20))
    (tmp_path / "rows.jsonl").write_text(rows)
    (tmp_path / "held.jsonl").write_text(rows[: rows.index("\n", 200) + 1])
    sizes = ["--rollouts.num_prompts=1", "--rollouts.num_rollouts=2", "--select.num_kept=2", "--stop.steps=1"]
    task = ["--task.name=jsonl", f"--task.path={tmp_path / 'rows.jsonl'}", "--rollouts.max_new_tokens=4"]
    (tmp_path / "empty.toml").write_text("")
    assert pods("train", "empty.toml", "--out", "run", *task, *sizes, *given)[0] == 0
    for others in ([], ["task.reward_workers=1"], ["task.system_prompt=Add."]):
        with pytest.raises(UsageError, match=r"task.num_eval = 5: the run held out 4 questions and was trained on"):
            find_target("run", ["task.num_eval=5", *others])
        assert find_target("run", ["task.num_eval=4", *others]).config.task.num_eval == 4
    assert find_target("run", [f"task.eval_path={tmp_path / 'held.jsonl'}", "task.num_eval=5"]).config.task.eval_path
    assert find_target("run", ["task.num_eval=300"], task="functions").config.task.num_eval == 300
    (tmp_path / "rows.jsonl").write_text(rows + rows.replace("1?", "2?"))
    with pytest.raises(UsageError, match=r"the data changed since then: held-out \d -> \d questions .*--allow-changes"):
        find_target("run", [])
    assert find_target("run", [], allow_changes=True).notes[0].startswith("warning: run/checkpoints/step-00000001: the")
    (tmp_path / "run" / "config.toml").write_text('[task]\nname = "functions"\nnum_eval = 32\n')
    assert find_target("run", ["task.num_eval=47"]).config.task.num_eval == 47


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["builtin:arithmetic"], ["--task gsm8k"]),
        (["pods", "--samples", "3", "--eval.num_samples=4"], ["--eval.num_samples is given twice"]),
        (["pods", "--task", "gsm8k", "--task.name=math"], ["--task gsm8k and --task.name=math", "keep one"]),
        (["pods", "--num-questions", "300"], ["--num-questions 300", "256"]),
        (["pods", "--out", "nowhere/file.jsonl"], ["--out nowhere/file.jsonl", "a folder that is there"]),
        (["pods", "--temperature", "-1"], ["eval.temperature = -1"]),
    ],
)
def test_bad_usage_is_one_line_that_says_what_to_do(arguments: list[str], wanted: list[str], pods: Pods) -> None:
    code, _, errors = pods("eval", *arguments)
    last = errors.strip().splitlines()[-1]
    assert code == 2 and last.startswith("error: ") and all(text in last for text in wanted), last


def test_the_command_writes_every_answer_and_the_same_result_as_json(tmp_path: Path, pods: Pods) -> None:
    out = tmp_path / "answers.jsonl"
    code, printed, _ = pods("eval", "pods", "--samples", "2", "--num-questions", "5", "--out", str(out), "--json")
    lines, result = [json.loads(line) for line in out.read_text().splitlines()], json.loads(printed)
    assert code == 0
    assert len(lines) == result["eval/num_samples"] == 10
    assert result["eval/accuracy"] == sum(line["is_correct"] for line in lines) / 10
    assert result["eval/format"] == sum(line["is_formatted"] for line in lines) / 10
    assert {(line["id"], line["sample"]) for line in lines} == {(line["id"], s) for line in lines for s in (0, 1)}
    assert all(line["prompt"] == f"What is {line['id'].replace('+', ' + ')}?\n" for line in lines)


def test_a_form_is_told_of_only_where_one_is_wanted(pods: Pods) -> None:
    for rewards, is_told in (("{correct = 1.0, format = 0.1}", True), ("{correct = 1.0}", False)):
        code, printed, _ = pods("eval", "pods", "--num-questions", "2", f"--task.rewards={rewards}")
        assert code == 0 and ("wanted form" in printed) == is_told


def test_math_questions_in_chat_are_asked_and_judged_by_a_tiny_model(
    tmp_path: Path, make_model: Callable[..., Any], tokenizer: Any
) -> None:
    for split in ("train", "test"):
        rows = [{"question": f"{split}: what is {i} + 3?", "answer": f"{i} + 3\n#### {i + 3}"} for i in range(4)]
        (tmp_path / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    chatty = copy.deepcopy(tokenizer)
    chatty.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
    make_model("qwen2", max_position_embeddings=4096).save_pretrained(tmp_path / "model")
    chatty.save_pretrained(tmp_path / "model")
    sizes = ("rollouts.max_new_tokens=20", "eval.num_samples=2", f"task.path={tmp_path}")
    groups = answers(str(tmp_path / "model"), *sizes, "task.system_prompt=pods_single_gpu", task="gsm8k")
    assert [group.task.answer for group in groups] == ["3", "4", "5", "6"]
    prompts = [chatty.decode(group.prompt_ids) for group in groups]
    assert all(prompt.startswith("system: ") and prompt.endswith("assistant: ") for prompt in prompts)
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    assert all(rollout.is_valid and not rollout.is_formatted for rollout in rollouts)  # nonsense, but judged
    assert all(set(rollout.parts) == {"math_correct", "answer_format"} for rollout in rollouts)


def test_ctrl_c_shows_what_is_done_so_far_and_exits_with_130(tmp_path: Path) -> None:
    out = tmp_path / "answers.jsonl"
    command = [sys.executable, "-m", "podsrl.cli", "eval", "pods", "--samples", "4", "--out", str(out)]
    slowly = ["--rollouts.num_slots=1", "--task.digits=3", "--task.num_eval=2000"]
    process = children.Popen([*command, *slowly], stdout=children.PIPE, stderr=children.PIPE, text=True)
    wait_for(lambda: process.poll() is not None or (out.exists() and out.read_text().count("\n") >= 8))
    process.send_signal(signal.SIGINT)
    shown, _ = process.communicate(timeout=300)
    num_lines = len(out.read_text().splitlines())
    assert process.returncode == 130
    assert "of 2000 questions" in shown and "accuracy (pass@1)" in shown
    assert num_lines >= 8 and num_lines % 4 == 0  # whole questions


def test_a_generator_of_one_s_own_answers_the_questions(tmp_path: Path, pods: Pods) -> None:
    (tmp_path / "my_generator.py").write_text(
        """
from podsrl.generate import Engine, Generator

class Counted(Generator):
    version = 0
    def __init__(self, engine, log):
        self.engine, self.log = engine, log
    def generate(self, requests):
        wanted = list(requests)
        open(self.log, "w").write(f"{len(wanted)} questions")
        return self.engine.generate(wanted)
    def load_weights(self, named_tensors, version):
        self.engine.load_weights(named_tensors, version)

def counted(setting, *, log: str):
    return Counted(Engine(setting.load_model(), seed=setting.seed), log)
"""
    )
    (tmp_path / "own.toml").write_text(
        """
[rollouts]
generator = "my_generator:counted"
max_new_tokens = 16
[task]
num_eval = 6
[options."my_generator:counted"]
log = "log.txt"
"""
    )
    assert pods("eval", "own.toml", "--json")[0] == 0
    assert (tmp_path / "log.txt").read_text() == "6 questions"
