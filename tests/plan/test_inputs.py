"""What a dry run finds without weights, and what it refuses: what a run refuses, in the same words."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podsrl.cli.dry_run import input_lines
from podsrl.config.load import load_config
from podsrl.errors import UnavailableError, UsageError
from podsrl.plan.inputs import check_inputs, pace_advice
from podsrl.policy import load_model, load_tokenizer
from podsrl.run.before.prepare import prepare

Pods = Callable[..., tuple[int, str, str]]
CONFIG = """
[task]
name = "jsonl"
path = "rows.jsonl"

[rollouts]
num_prompts = 2
num_rollouts = 4
max_new_tokens = 16
max_prompt_tokens = 20

[select]
num_kept = 2
"""


def write_rows(path: Path, numbers: range, **columns: Any) -> None:
    rows = [{"question": f"What is {n} + 1?\n", "answer": str(n + 1), **columns} for n in numbers]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.fixture
def folder(tmp_path: Path, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's: a config, a data set of 20 questions, a model to spoil, and some rewards."""
    (tmp_path / "mine.toml").write_text(CONFIG)
    write_rows(tmp_path / "rows.jsonl", range(10, 30))
    shutil.copytree(tiny_model_folder, tmp_path / "model")
    (tmp_path / "trial_rewards.py").write_text(
        "def right(task, text): return float(task.answer in text)\n"
        "def texts(task, text): return 'very good'\n"
        "def always_zero(task, text): return 0.0\n"
        "def short_list(prompts, completions, **columns): return [1.0]\n"
        "def not_on_empty(task, text): return 0.5 / (0 if 'know' in text else 1)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def spoil(folder: Path, how: str) -> None:
    rows, model = folder / "rows.jsonl", folder / "model"
    if how == "no file":
        rows.unlink()
    elif how == "empty":
        rows.write_text("\n")
    elif how == "broken":
        rows.write_text(rows.read_text() + "{oops\n")
    elif how == "long":
        rows.write_text(rows.read_text().replace("What", "What, my dear friend,"))
    elif how == "no tokenizer":
        (model / "tokenizer.json").unlink()
    elif how == "no weights":
        (model / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("how", "option", "wanted"),
    [
        ("no file", "", "task.path = 'rows.jsonl': no such file"),
        ("empty", "", "rows.jsonl: no rows"),
        ("broken", "", "rows.jsonl:21: not JSON"),
        ("long", "", "rollouts.max_prompt_tokens = 20"),
        ("", "task.prompt_column=q", "no column 'q'"),
        ("", "task.num_eval=20", "task.num_eval = 20"),
        ("", "task.correct=trial_rewards:texts", "not a number"),
        ("", "task.correct=trial_rewards:short_list", "a list of 1"),
        ("", "task.correct=trial_rewards:lost", "trial_rewards:lost"),
        ("", "select.rule=no_such_module_x:rule", "no_such_module_x"),
        ("", "loss.name=grop", "Did you mean 'grpo'?"),
        ("", "rollouts.scheduler=continous", "Did you mean 'continuous'?"),
        ("", "task.chat=true", "no chat template"),
        ("", "rollouts.max_new_tokens=250", "rollouts.max_new_tokens"),
        ("", "rollouts.kv_cache_bytes=1000", "kv_cache_bytes = 1,000"),
        ("no tokenizer", "model.path=model", "a model without a tokenizer"),
        ("no weights", "model.path=model", "no *.safetensors weights"),
    ],
)
def test_a_dry_run_refuses_what_a_run_refuses(pods: Pods, folder: Path, how: str, option: str, wanted: str) -> None:
    spoil(folder, how)
    options = [f"--{option}"] if option else []
    code, _, dry = pods("train", "mine.toml", "--dry-run", *options)
    assert code == 2 and wanted in dry
    code, _, wet = pods("train", "mine.toml", "--out", str(folder / "run"), *options)
    assert code == 2 and wanted in wet and not (folder / "run").exists()
    if "kv_cache_bytes" not in option:  # whose request has another name
        assert dry.splitlines()[-1] == wet.splitlines()[-1]


def test_a_set_without_training_questions_is_refused(folder: Path) -> None:
    (folder / "sets").mkdir()
    (folder / "sets" / "test.jsonl").write_text('{"question": "2?", "answer": "#### 2"}\n')
    with pytest.raises(UsageError, match=r"task.name = 'gsm8k'.*no training questions"):
        check_inputs(load_config(None, ["task.name=gsm8k", f"task.path={folder / 'sets'}", "task.chat=false"]))


def test_a_dry_run_reads_no_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The headers of the files are all that is left, and yet everything is found; a run then cannot load them."""
    file = folder / "model" / "model.safetensors"
    content = file.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    file.write_bytes(content[:header] + bytes([255]) * (len(content) - header))  # as float32: not a number
    config = load_config("mine.toml", ["model.path=model"])
    assert all(parameter.isnan().all() for parameter in load_model(config.model).parameters())

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a dry run loaded weights")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", refuse)
    assert check_inputs(config).num_train == 16


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ("cut off", "model.path = 'model': weights cannot be read"),
        ("one of two", "model.path = 'model': .*cannot be read: .*model-00002-of-00002.safetensors"),
    ],
)
def test_weight_files_that_are_not_whole_are_refused(folder: Path, how: str, wanted: str) -> None:
    file = folder / "model" / "model.safetensors"
    if how == "cut off":
        file.write_bytes(file.read_bytes()[:-1000])
    else:
        index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
        (folder / "model" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UsageError, match=wanted):
        check_inputs(load_config("mine.toml", ["model.path=model"]))


def test_what_was_found_is_what_a_run_has(folder: Path) -> None:
    write_rows(folder / "rows.jsonl", range(95, 105))  # five of 15 characters, five of 16: with the line's end
    config = load_config("mine.toml", ["rollouts.max_prompt_tokens=16", "task.num_eval=4"])
    found, parts = check_inputs(config), prepare(config)
    parts.close()
    assert found.prompts is not None and (found.prompts.longest, found.prompts.is_chat) == (16, False)
    assert not found.prompts.has_template
    assert (found.prompts.num_dropped_train, found.prompts.num_dropped_eval) == (
        parts.num_dropped_train,
        parts.num_dropped_eval,
    )
    assert parts.num_dropped_train + parts.num_dropped_eval == 5
    assert (found.num_train, found.num_eval) == (len(parts.tasks.train), len(parts.tasks.eval))
    assert (found.split, found.schedule) == parts.notes[1:]
    assert found.warnings == parts.warnings
    first = parts.tasks.train[0]
    assert (found.prompts.first, found.prompts.first_tokens) == (first.prompt, len(str(first.prompt)))
    assert found.not_checked == ()


def test_what_ends_an_answer_is_shown_as_text(pods: Pods, folder: Path) -> None:
    """The tokenizer's end token, what the model's generation config adds ("7" here), and the config's texts."""
    tokenizer = load_tokenizer(load_config("mine.toml", ["model.path=model"]).model)
    end, seven = tokenizer.eos_token, tokenizer.convert_tokens_to_ids("7")
    (folder / "model" / "generation_config.json").write_text(json.dumps({"eos_token_id": [seven]}))
    words = ("train", "mine.toml", "--model.path=model", '--rollouts.stop_strings=["9"]', "--stop.steps=1")
    for code, printed, errors in (pods(*words, "--dry-run"), pods(*words, "--out", "run")):
        [line] = [line for line in (printed + errors).splitlines() if "an answer ends at" in line]
        assert code == 0 and all(text in line for text in (repr(end), "'7'", "the text '9'"))


def test_rewards_are_tried_on_a_right_answer_and_on_none(folder: Path) -> None:
    rewards = 'task.rewards={"trial_rewards:right" = 2.0, "trial_rewards:not_on_empty" = 1.0}'
    found = check_inputs(load_config("mine.toml", [rewards, "task.correct=trial_rewards:right"]))
    right, empty = found.trials
    assert (right.reward, right.is_correct, right.invalid_reason) == (2.5, True, None)
    assert right.parts == {"trial_rewards:right": 1.0, "trial_rewards:not_on_empty": 0.5}
    assert (empty.reward, empty.is_correct) == (None, False) and empty.parts["trial_rewards:not_on_empty"] is None
    assert "not_on_empty" in str(empty.invalid_reason)
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["trials"][1]["reward"] is None


@pytest.mark.parametrize(
    ("reward", "correct", "said"),
    [
        ("always_zero", "always_zero", ["the same, 0"]),
        ("always_zero", "right", ["the same, 0, though one of them is correct"]),
        ("right", "right", []),
    ],
)
def test_rewards_that_tell_nothing_apart_are_a_warning(
    folder: Path, reward: str, correct: str, said: list[str]
) -> None:
    flags = [f'task.rewards={{"trial_rewards:{reward}" = 1.0}}', f"task.correct=trial_rewards:{correct}"]
    warnings = [one for one in check_inputs(load_config("mine.toml", flags)).warnings if "the same" in one]
    assert len(warnings) == len(said) and all(text in one for text, one in zip(said, warnings, strict=True))


def test_what_this_machine_cannot_have_is_listed_and_the_rest_checked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise UnavailableError("optim.name = 'adamw_8bit' needs a GPU")

    monkeypatch.setattr("podsrl.policy.load.check_adam_8bit", refuse)
    config = load_config("mine.toml", ["optim.name=adamw_8bit"])
    with pytest.raises(UnavailableError, match="needs a GPU"):
        prepare(config)
    found = check_inputs(config)
    [missing] = found.not_checked
    assert missing.why == "optim.name = 'adamw_8bit' needs a GPU" and (found.num_train, found.num_eval) == (16, 4)
    with pytest.raises(UsageError, match="no column 'q'"):
        check_inputs(load_config("mine.toml", ["optim.name=adamw_8bit", "task.prompt_column=q"]))


def test_without_the_hub_what_is_here_is_checked(pods: Pods, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PODS_DATA", raising=False)
    words = ["train", "paper/a", "--dry-run", "--model.path=model", "--rollouts.max_new_tokens=16", "--lora.rank=16"]
    assert pods(*words)[1].startswith("Not ready on this machine, ")
    code, printed, errors = pods(*words, "--all")
    assert code == 0 and "not checked: the questions" in errors and "task.name = 'gsm8k'" in errors
    assert "peak" in printed and "tokens   " in printed
    code, printed, errors = pods("train", "mine.toml", "--dry-run", "--model.path=someone/their-model")
    assert code == 2 and "model.path = 'someone/their-model'" in errors and "the hub cannot be reached" in errors
    assert "16 to train on, 4 held out" in printed  # the data was checked all the same
    code, _, errors = pods("train", "mine.toml", "--dry-run", "--model.path=someone/x", "--task.prompt_column=q")
    assert code == 2 and "no column 'q'" in errors


def test_a_folder_with_a_run_in_it_is_refused(pods: Pods, folder: Path) -> None:
    code, _, errors = pods("train", "mine.toml", "--out", "run", "--stop.steps=1")
    assert code == 0, errors
    code, _, errors = pods("train", "mine.toml", "--out", "run", "--dry-run")
    assert code == 2 and "run" in errors


def test_plain_prompts_of_a_tokenizer_with_a_chat_template_are_reported(folder: Path) -> None:
    (folder / "model" / "chat_template.jinja").write_text(
        "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    )
    for chat, is_named in (("", True), ("task.chat=true", False)):
        found = check_inputs(load_config("mine.toml", ["model.path=model", *filter(None, [chat])]))
        [line] = [line for line in input_lines(found) if line.startswith("prompts")]
        assert ("task.chat" in line) is is_named


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("def f(task, text): return 1 / 0", "(reward 'failing_rewards:f' raised ZeroDivisionError: "),
        ("def f(task, text): return None", "(reward 'failing_rewards:f' returned None): they must return a number"),
        ("def f(task, text): return 1.0 / len(text)", ""),
    ],
)
def test_rewards_that_fail_on_everything_are_worth_a_word(folder: Path, function: str, said: str) -> None:
    (folder / "failing_rewards.py").write_text(function + "\n")
    flags = ["--task.rewards={'failing_rewards:f' = 1.0}", "--task.correct=failing_rewards:f"]
    found = check_inputs(load_config("mine.toml", flags))
    told = [warning for warning in found.warnings if "both test answers" in warning]
    assert len(told) == bool(said) and all(said in warning for warning in told)


def test_slow_rewards_and_repeated_questions_are_worth_a_word(folder: Path) -> None:
    config = load_config("mine.toml", ["rollouts.num_prompts=8", "rollouts.num_rollouts=64", "task.reward_workers=4"])
    assert pace_advice(config, 0.9) == []
    [slow] = pace_advice(config, 3.0)
    assert "3.0 s" in slow and "512" in slow and f"{3.0 * 512 / 4 / 60:.1f} min" in slow
    found = check_inputs(load_config("mine.toml", ["rollouts.num_prompts=17"]))  # of 20 questions 4 are held out
    assert any("17" in warning and "16 questions" in warning for warning in found.warnings)


def test_a_dry_run_of_auto_says_which_costs_it_would_go_by() -> None:
    [line] = [line for line in input_lines(check_inputs(load_config("auto"))) if line.startswith("costs")]
    assert line.startswith("costs    9.6 ms per group, 0.05 per rollout and 1 per row") and "default" in line
