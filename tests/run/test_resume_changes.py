"""A resume notices what changed beside its checkpoint: what the run reads, the logs. Going on is possible, never in
silence."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from podsrl.config.load import load_config
from podsrl.errors import UsageError
from podsrl.lib.logs import read_lines
from podsrl.policy import model_folder
from podsrl.run import session
from podsrl.run.step.trainer import Trainer
from runs import config_of, newest

SIZES = ("rollouts.num_prompts=1", "rollouts.num_rollouts=4", "select.num_kept=2", "rollouts.max_new_tokens=4")


def rows(start: int, count: int) -> str:
    numbers = range(start, start + count)
    return "".join(json.dumps({"question": f"What is {n} + 1?\n", "answer": str(n + 1)}) + "\n" for n in numbers)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "own.jsonl"
    path.write_text(rows(10, 12))
    return path


@pytest.fixture
def run(tmp_path: Path, data: Path) -> Path:
    """A run of two steps: nine questions to train on, three held out."""
    task = ("task.name=jsonl", f"task.path={data}", "task.num_eval=3")
    config = config_of(*SIZES, *task, "checkpoint.every_seconds=0", "stop.steps=2")
    session.start(config, tmp_path / "run", on_record=lambda record: None, say=lambda text: None)
    return tmp_path / "run"


def resume(run: Path, steps: int, **allowed: bool) -> list[str]:
    """What was said."""
    said: list[str] = []
    session.resume(run, [f"stop.steps={steps}"], on_record=lambda record: None, say=said.append, **allowed)
    return said


def notes(run: Path) -> list[dict[str, Any]]:
    return [line for line in read_lines(run / "metrics.jsonl") if "note" in line]


def steps(run: Path) -> list[int]:
    return [line["step"] for line in read_lines(run / "metrics.jsonl") if "loss" in line]


def files(run: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_rows_that_were_added_are_noticed_before_weights_load_and_nothing_is_written(
    run: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.write_text(data.read_text() + rows(50, 5))
    before = files(run)
    with monkeypatch.context() as patch:
        patch.setattr("podsrl.run.step.trainer.load_policy", lambda *_, **__: pytest.fail("weights were loaded"))
        with pytest.raises(UsageError) as caught:
            resume(run, 3)
    text = str(caught.value)
    assert "step-00000002: what the run reads changed since then: training 9 -> 14 questions (digests of ids " in text
    assert "held-out 3 -> 3 questions (digests of ids " in text
    assert text.endswith(f"--resume {run} --allow-changes")
    assert files(run) == before


def test_going_on_with_other_data_is_said_and_stands_in_the_log_once(run: Path, data: Path) -> None:
    data.write_text(data.read_text() + rows(50, 5))
    said = resume(run, 3, allow_changes=True)
    [note] = notes(run)
    assert note["step"] == 2 and note["note"].startswith("what the run reads changed: training 9 -> 14 questions")
    assert f"warning: {note['note']}" in said
    assert not any("changed" in text for text in resume(run, 4)) and notes(run) == [note] and steps(run) == [1, 2, 3, 4]


def test_a_changed_answer_is_noticed_by_the_trainer_itself(run: Path, data: Path) -> None:
    data.write_text(data.read_text().replace('"answer": "11"', '"answer": "12"'))
    checkpoint = newest(run / "checkpoints")
    trainer = Trainer(load_config(run / "config.toml"))
    with pytest.raises(UsageError, match=r"(9 -> 9|3 -> 3) questions \(digests of answers \w{8} -> \w{8}\)"):
        trainer.load(checkpoint)
    trainer.load(checkpoint, allow_changes=True)
    assert trainer.progress.step == 2


def test_what_is_allowed_but_did_not_happen_is_said(run: Path) -> None:
    said = resume(run, 3, allow_changes=True)
    assert "--allow-changes has no effect: nothing changed" in said
    assert notes(run) == []


REWARD = "def closeness(task, completion):\n    return float(len(completion) < {most})\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    shutil.copytree(model_folder("builtin:arithmetic"), folder)
    return folder


def edit_template(model: Path, own: Path) -> None:
    described = json.loads((model / "tokenizer_config.json").read_text())
    described["chat_template"] = "{% for message in messages %}Q: {{ message['content'] }}\n{% endfor %}A: "
    (model / "tokenizer_config.json").write_text(json.dumps(described))


def edit_tokenizer(model: Path, own: Path) -> None:
    tree = json.loads((model / "tokenizer.json").read_text())
    vocabulary = tree["model"]["vocab"]
    vocabulary["3"], vocabulary["4"] = vocabulary["4"], vocabulary["3"]
    (model / "tokenizer.json").write_text(json.dumps(tree))


def edit_weights(model: Path, own: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    name = min(tensors)
    save_file({**tensors, name: tensors[name] * 1.01}, model / "model.safetensors", metadata={"format": "pt"})


def edit_end_token(model: Path, own: Path) -> None:
    described = json.loads((model / "generation_config.json").read_text())
    (model / "generation_config.json").write_text(json.dumps({**described, "eos_token_id": [1, 2]}))


def edit_column(model: Path, own: Path) -> None:
    file = own.with_suffix(".jsonl")
    file.write_text(file.read_text().replace('"level": 15', '"level": 16'))


def edit_reward(model: Path, own: Path) -> None:
    own.write_text(REWARD.format(most=9))


EDITS = {
    edit_template: "chat template",
    edit_tokenizer: "tokenizer",
    edit_weights: "weights of model.path",
    edit_end_token: "config of model.path",
    edit_column: "(digests of columns",
    edit_reward: "text of {own}:closeness",
}


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_all_that_a_run_reads_is_in_its_checkpoints(
    edit: Callable[[Path, Path], None], tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / f"{edit.__name__}_reward.py"  # a module of its own for each test: Python imports a name once
    own.write_text(REWARD.format(most=5))
    lines = [{"question": f"What is {n} + 1?\n", "answer": str(n + 1), "level": n} for n in range(10, 22)]
    own.with_suffix(".jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    config = config_of(
        *SIZES,
        *("task.name=jsonl", f"task.path={own.with_suffix('.jsonl')}", "task.num_eval=3", f"model.path={model}"),
        *(f'task.rewards={{"correct" = 1.0, "{own.stem}:closeness" = 0.5}}', "stop.steps=1"),
    )
    session.start(config, tmp_path / "run", on_record=lambda record: None, say=lambda text: None)
    edit(model, own)
    before = files(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr("podsrl.run.step.trainer.load_policy", lambda *_, **__: pytest.fail("weights were loaded"))
        with pytest.raises(UsageError) as caught:
            resume(tmp_path / "run", 2)
    what = EDITS[edit].format(own=own.stem)
    [change] = re.findall(r"changed since then: (.*)\. Restore it", str(caught.value))
    assert what in change and change.count("->") == 1 + (what.startswith("(")), change
    assert files(tmp_path / "run") == before
    resume(tmp_path / "run", 2, allow_changes=True)
    [note] = notes(tmp_path / "run")
    assert what in note["note"] and steps(tmp_path / "run") == [1, 2]


def test_a_log_that_was_cut_is_noticed_before_anything_is_written(run: Path) -> None:
    log = run / "metrics.jsonl"
    size = log.stat().st_size
    log.write_bytes(log.read_bytes()[:-30])
    before = files(run)
    with pytest.raises(UsageError) as caught:
        resume(run, 3)
    assert f"{log} has {size - 30:,} bytes, and had {size:,}" in str(caught.value)
    assert files(run) == before
