import json
import os
import re
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from podsrl.config.load import load_config
from podsrl.errors import UsageError
from podsrl.run.before.prepare import Prepared, prepare
from podsrl.run.before.prompt_lengths import fit_prompts
from podsrl.tasks import load_tasks
from podsrl.tools.pretrain import character_tokenizer

TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
WITHOUT_SYSTEM = TEMPLATE.replace("%}<{{ message.role", "if message.role != 'system' %}<{{ message.role", 1)


@pytest.fixture
def chat_tokenizer() -> Any:
    tokenizer = character_tokenizer()
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@pytest.fixture
def gsm8k(tmp_path: Path) -> Path:
    """Questions of 4, 8, 12 ... characters: five to train on, three held out."""
    for side, numbers in (("train", range(1, 6)), ("test", range(6, 9))):
        rows = [{"question": "abc?" * number, "answer": f"so\n#### {number}"} for number in numbers]
        (tmp_path / f"{side}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


UNTAGGED = "task.rewards={math_correct = 1.0}"


def parts_of(tokenizer: Any, *flags: str, is_trained: bool = True) -> Prepared:
    flags = ("rollouts.num_prompts=2", *flags)  # fewer than the questions, which are few here
    return prepare(load_config("pods", [f"--{flag}" for flag in flags]), tokenizer, is_trained=is_trained)


def test_a_script_that_trains_when_it_is_imported_for_its_reward_is_told_of_the_main_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
from podsrl.config.load import load_config
from podsrl.run.step.trainer import Trainer

def even(task, text):
    return float(len(text) % 2 == 0)

Trainer(load_config("pods", ['--task.rewards={"unguarded:even" = 1.0}']))
"""
    (tmp_path / "unguarded.py").write_text(script)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"^task.rewards = 'unguarded:even' .*`if __name__ == .*unguarded.py, line 8"):
        parts_of(character_tokenizer(), 'task.rewards={"unguarded:even" = 1.0}')
    assert "unguarded" not in sys.modules


def test_the_rewards_are_the_task_sets_own_by_default(chat_tokenizer: Any, gsm8k: Path) -> None:
    plain = parts_of(chat_tokenizer, "task.digits=1", "task.num_eval=9")
    assert (dict(plain.rewards), plain.correct, plain.format) == ({"correct": 1.0, "format": 0.1}, "correct", "format")
    math = parts_of(chat_tokenizer, "task.name=gsm8k", f"task.path={gsm8k}", "task.num_eval=0")
    assert dict(math.rewards) == {"math_correct": 1.0, "answer_format": 0.2}
    assert (math.correct, math.format) == ("math_correct", "answer_format")
    math.close()


def test_the_config_goes_before_the_task_set(tokenizer: Any) -> None:
    flags = ("task.digits=1", "task.num_eval=9", "task.rewards={format = 2.0}", "task.format=correct")
    parts = parts_of(tokenizer, *flags)
    assert (dict(parts.rewards), parts.correct, parts.format) == ({"format": 2.0}, "correct", "correct")


def test_own_rewards_want_the_form_of_the_task_set_only_where_they_name_it(tokenizer: Any) -> None:
    size = ("task.digits=1", "task.num_eval=9")
    for rewards, form in (("{math_correct = 1.0}", None), ("{correct = 1.0, format = 0.5}", "format")):
        with closing(parts_of(tokenizer, *size, f"task.rewards={rewards}")) as parts:
            assert parts.format == form


@pytest.mark.parametrize("name", ["micro", "continuous+ljf"])
def test_an_unknown_scheduler_is_named_by_its_option(tokenizer: Any, name: str) -> None:
    with pytest.raises(UsageError, match=rf"rollouts\.scheduler = '{re.escape(name)}'"):
        parts_of(tokenizer, f"rollouts.scheduler={name}")


@pytest.mark.parametrize(
    ("limit", "train", "held_out", "longest"),
    [(50, [0, 1, 2, 3, 4], [0, 1, 2], 50), (49, [0, 1, 2, 3, 4], [0, 1], 46), (42, [0, 1, 2, 3, 4], [0], 42)],
)
def test_questions_over_the_limit_are_left_out(
    chat_tokenizer: Any, gsm8k: Path, limit: int, train: list[int], held_out: list[int], longest: int
) -> None:
    fitted = fit_prompts(load_tasks("gsm8k", path=str(gsm8k), num_eval=0), chat_tokenizer, limit)
    assert [task.id for task in fitted.tasks.train] == [f"gsm8k/train/{place}" for place in train]
    assert [task.id for task in fitted.tasks.eval] == [f"gsm8k/test/{place}" for place in held_out]
    assert (fitted.num_dropped_train, fitted.num_dropped_eval) == (5 - len(train), 3 - len(held_out))
    assert fitted.longest_prompt == longest


def test_what_is_left_out_is_counted_and_shown(chat_tokenizer: Any, tmp_path: Path) -> None:
    for side, lengths in (("train", (1, 2, 30, 31, 32, 3)), ("test", (5, 31, 6))):
        rows = [{"question": side[1] * length, "answer": "#### 1"} for length in lengths]
        (tmp_path / f"{side}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    flags = ("task.name=gsm8k", f"task.path={tmp_path}", "task.num_eval=0", "rollouts.max_prompt_tokens=48")
    parts = parts_of(chat_tokenizer, UNTAGGED, *flags)
    assert parts.longest_prompt == 30 + len("<user>\n<assistant>") == 48
    assert (len(parts.tasks.train), len(parts.tasks.eval)) == (4, 2)
    assert (parts.num_dropped_train, parts.num_dropped_eval) == (2, 1)
    assert parts.warnings == (
        "2 of 6 training questions have prompts of more than 48 tokens and are left out",
        "1 of 3 held-out questions has a prompt of more than 48 tokens and is left out",
    )
    parts.close()


def test_a_limit_under_which_nothing_fits_is_refused(chat_tokenizer: Any, gsm8k: Path) -> None:
    tasks = load_tasks("gsm8k", path=str(gsm8k), num_eval=0)
    message = "= 41: all 3 held-out questions have longer prompts .the shortest has 42 tokens.: raise the limit"
    with pytest.raises(UsageError, match=message):
        fit_prompts(tasks, chat_tokenizer, 41)


def test_a_large_set_made_on_demand_is_sampled_and_a_long_prompt_refused(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podsrl.run.before.prompt_lengths.MAX_CHECKED_PROMPTS", 100)
    tasks = load_tasks("arithmetic", digits=2, num_eval=4)
    fitted = fit_prompts(tasks, tokenizer, len("What is 10 + 10?\n"))
    assert (fitted.tasks.train is tasks.train, fitted.longest_prompt) == (True, 17)
    with pytest.raises(UsageError, match=r"prompt of task '10\+10' has 17 tokens, wanted 1 \.\. .* = 16"):
        fit_prompts(tasks, OneTokenForFour(tokenizer), 16)


class OneTokenForFour:
    """Tokenises the few held-out questions as one token each, so that only the training side is over a limit."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __call__(self, texts: list[str], **options: Any) -> Any:
        return {"input_ids": [[0]] * len(texts)} if len(texts) == 4 else self._tokenizer(texts, **options)

    def __len__(self) -> int:
        return len(self._tokenizer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def test_notes_on_the_data_become_warnings(chat_tokenizer: Any, gsm8k: Path) -> None:
    (gsm8k / "train.jsonl").write_text(
        (gsm8k / "train.jsonl").read_text() + "\n" + (gsm8k / "test.jsonl").read_text().splitlines()[0]
    )
    parts = parts_of(chat_tokenizer, UNTAGGED, "task.name=gsm8k", f"task.path={gsm8k}", "task.num_eval=1")
    assert parts.warnings == ("1 of 6 training questions is also in the test split and is left out of training",)
    parts.close()


def test_whole_solutions_as_answers_are_told(tokenizer: Any, tmp_path: Path) -> None:
    rows = [{"question": f"{n} + 1", "answer": f"so\n#### {n + 1}" if n < 3 else f"{n + 1}"} for n in range(5)]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    flags = ("task.name=jsonl", f"task.path={tmp_path / 'own.jsonl'}", "task.num_eval=1")
    [warning] = parts_of(tokenizer, *flags).warnings
    assert warning.startswith("3 reference answers hold '####'") and "so nothing is correct" in warning
    assert parts_of(tokenizer, *flags, "task.correct=format").warnings == ()


def test_references_that_are_no_answers_are_told_above_a_twentieth(tokenizer: Any, tmp_path: Path) -> None:
    none = ["N/A", "see figure 3", "-", "?", "None"]
    for num_none, is_told in ((5, True), (2, False)):
        answers = [*none[:num_none], *map(str, range(40 - num_none))]
        rows = [{"question": f"{n} + 1", "answer": answer} for n, answer in enumerate(answers)]
        (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
        warnings = parts_of(tokenizer, "task.name=jsonl", f"task.path={tmp_path / 'own.jsonl'}").warnings
        assert len(warnings) == is_told and all("5 of 40 reference answers" in line for line in warnings)


def test_an_accuracy_by_what_is_no_reward_of_the_run_gets_a_warning(tokenizer: Any, tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text("\n".join(json.dumps({"question": f"{n}?", "answer": n}) for n in range(5)))
    flags = ("task.name=jsonl", f"task.path={tmp_path / 'own.jsonl'}", "task.rewards={format = 1.0}")
    [warning] = parts_of(tokenizer, *flags).warnings
    assert "set task.correct to what decides, one of 'format'" in warning and "or 'correct' if" in warning
    for more in ("task.correct=format", "task.correct=correct"):
        assert parts_of(tokenizer, *flags, more).warnings == ()


def test_a_chat_template_that_drops_the_system_prompt_is_refused(chat_tokenizer: Any, gsm8k: Path) -> None:
    chat_tokenizer.chat_template = WITHOUT_SYSTEM
    flags = ("task.name=gsm8k", f"task.path={gsm8k}", "task.num_eval=0")
    parts_of(chat_tokenizer, *flags).close()
    with pytest.raises(UsageError, match="drops the system prompt"):
        parts_of(chat_tokenizer, *flags, "task.system_prompt=pods_single_gpu")


def test_a_set_for_evaluation_only_is_evaluated_but_not_trained_on(chat_tokenizer: Any, gsm8k: Path) -> None:
    (gsm8k / "train.jsonl").unlink()
    flags = ("task.name=gsm8k", f"task.path={gsm8k}", "task.num_eval=2")
    with pytest.raises(UsageError, match=r"task.name = 'gsm8k': .* no training questions.*set task.path to a folder"):
        parts_of(chat_tokenizer, *flags)
    parts = parts_of(chat_tokenizer, *flags, is_trained=False)
    assert (len(parts.tasks.train), len(parts.tasks.eval)) == (0, 2)
    parts.close()


def test_all_of_gsm8k_is_prepared_in_seconds(chat_tokenizer: Any) -> None:
    if "PODS_DATA" not in os.environ:
        pytest.skip("PODS_DATA is not set: a folder with gsm8k/ as JSON lines")
    chat_tokenizer.model_max_length = 1 << 20
    parts = parts_of(chat_tokenizer, "task.name=gsm8k", "task.num_eval=0", "rollouts.max_prompt_tokens=512")
    assert len(parts.tasks.train) + parts.num_dropped_train == 7473
    assert len(parts.tasks.eval) + parts.num_dropped_eval == 1319
    assert parts.num_dropped_train > 0
    assert 500 < parts.longest_prompt <= 512
    parts.close()


def four_of_eight(rewards: torch.Tensor, num_kept: int, *, generator: torch.Generator | None = None) -> torch.Tensor:
    assert (rewards.shape[1], num_kept) == (8, 4)
    return torch.arange(4).expand(len(rewards), 4)


def test_a_rule_is_tried_on_chunks_where_groups_are_cut(tokenizer: Any) -> None:
    sizes = ("rollouts.num_rollouts=16", "select.num_kept=8", "select.num_chunks=2")
    parts_of(tokenizer, *sizes, f"select.rule={__name__}:four_of_eight")
