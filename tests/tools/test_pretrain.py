"""The base model: reproducible from a seed, loadable by plain transformers, and those that are shipped."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from transformers import AutoModelForCausalLM, AutoTokenizer

from podsrl.config.files import read_tree
from podsrl.config.load import build
from podsrl.config.pretrain import PretrainConfig
from podsrl.errors import UsageError
from podsrl.policy import model_folder
from podsrl.tools.pretrain import character_tokenizer, pretrain

TINY = PretrainConfig(skill_steps=3, mixture_steps=2, batch_size=8, hidden_size=16, num_layers=1, intermediate_size=16)


def test_the_same_seed_gives_the_same_weights_and_another_seed_does_not(tmp_path: Path) -> None:
    seeds = {"a": 0, "b": 0, "c": 1}
    for name, seed in seeds.items():
        pretrain(TINY.model_copy(update={"seed": seed}), tmp_path / name)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in seeds)
    assert a == b != c


def test_the_file_of_the_mixed_model_gives_the_same_weights_twice_on_the_command_line(
    pods: Any, tmp_path: Path
) -> None:
    made = Path(model_folder("builtin:arithmetic-mixed"), "pretrain.toml")
    for name in "ab":
        code, _, errors = pods("pretrain", name, "--config", str(made), "--skill_steps=6", "--mixture_steps=3")
        assert code == 0, errors
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in "ab")
    assert first == second


def test_training_lowers_the_loss_and_reports_every_step(tmp_path: Path) -> None:
    seen: list[tuple[float, float | None, float]] = []

    def take(done: float, total: float | None, text: str) -> None:
        seen.append((done, total, float(re.findall(r"[0-9.]+", text)[-1])))

    config = TINY.model_copy(update={"skill_steps": 60, "hidden_size": 32, "lr": 3e-2})
    pretrain(config, tmp_path / "model", take)
    assert [step for step, _, _ in seen] == list(range(1, 63)) and {total for _, total, _ in seen} == {62}
    assert seen[-1][2] < seen[0][2] / 1.5


def test_plain_transformers_loads_what_was_saved(tmp_path: Path) -> None:
    folder = pretrain(TINY, tmp_path / "model")
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    text = "What is 47 + 85?\n7+5=12 4+8+1=13 Answer: 132."
    ids = tokenizer(text).input_ids
    assert len(ids) == len(text) and tokenizer.decode(ids) == text
    assert ids == character_tokenizer()(text).input_ids
    assert model(torch.tensor([ids])).logits.shape == (1, len(text), len(tokenizer))


def test_the_shipped_models_are_small_and_two_say_how_they_were_made() -> None:
    demo = read_tree("demo")["base"]["model"]["path"]
    folders = {name: Path(model_folder(name)) for name in ("builtin:arithmetic", "builtin:arithmetic-mixed", demo)}
    for folder in folders.values():
        assert sum(file.stat().st_size for file in folder.iterdir()) < 2_000_000
        assert AutoModelForCausalLM.from_pretrained(folder).num_parameters() < 200_000
    mixed, of_demo = (
        build(PretrainConfig, read_tree(folders[name] / "pretrain.toml"), "of the model")
        for name in ("builtin:arithmetic-mixed", demo)
    )
    assert isinstance(mixed.careful, dict) and mixed.careful[1] > mixed.careful[2] > mixed.careful[3]
    assert of_demo.start == "builtin:arithmetic" and of_demo.skill_steps == 0
    assert isinstance(of_demo.careful, float) and 0 < of_demo.careful < 0.01


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_share_of_careful_texts_is_what_was_asked(share: float) -> None:
    import numpy as np

    from podsrl.tools.pretrain import _text

    rng = np.random.default_rng(0)
    solutions = [_text(2, rng, share)[1] for _ in range(50)]
    assert all(("=" in solution) == (share == 1.0) for solution in solutions)


def test_each_number_of_digits_has_its_own_share_which_is_at_least_half_in_the_first_phase() -> None:
    import numpy as np

    from podsrl.tools.pretrain import _batch

    config = PretrainConfig(digits={1: 0.5, 3: 0.5}, careful={1: 1.0, 3: 0.0}, batch_size=400)
    tokenizer = character_tokenizer()
    for least, low, high in ((0.0, 0.0, 0.0), (0.5, 0.3, 0.7)):
        ids, is_solution = _batch(config, tokenizer, np.random.default_rng(1), least)
        texts = [tokenizer.decode(row[mask]) for row, mask in zip(ids, is_solution, strict=True)]
        lengths = (~is_solution).logical_and(ids != tokenizer.pad_token_id).sum(1)
        easy = ["=" in text for text, length in zip(texts, lengths, strict=True) if length == len("What is 1 + 1?\n")]
        hard = [
            "=" in text for text, length in zip(texts, lengths, strict=True) if length == len("What is 100 + 100?\n")
        ]
        assert len(easy) + len(hard) == 400 and min(len(easy), len(hard)) > 100
        assert all(easy) and low <= sum(hard) / len(hard) <= high


def test_shares_have_to_fit_the_digits() -> None:
    with pytest.raises(ValidationError, match=r"careful has shares for \[1, 2\] digits, but digits = \[2, 3\]"):
        PretrainConfig(careful={1: 0.5, 2: 0.5})


def test_a_start_model_keeps_its_sizes_and_its_tokenizer(tmp_path: Path) -> None:
    start = str(pretrain(TINY, tmp_path / "start"))
    more = TINY.model_copy(update={"start": start, "skill_steps": 0})
    assert AutoModelForCausalLM.from_pretrained(pretrain(more, tmp_path / "more")).num_parameters() > 0
    with pytest.raises(UsageError, match="num_layers = 2"):
        pretrain(more.model_copy(update={"num_layers": 2}), tmp_path / "other")
    grown = AutoTokenizer.from_pretrained(start)
    grown.add_tokens("zz")
    grown.save_pretrained(start)
    with pytest.raises(UsageError, match="tokenizer"):
        pretrain(more, tmp_path / "third")
