"""The base model of 'steps': reproducible from a seed, loadable by plain transformers, never shown what is held out."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.pretrain_steps import (
    StepsPretraining,
    _backward,
    _rows,
    draw_solution,
    main,
    pretrain_steps,
    read_by_chance,
    word_tokenizer,
)
from podsrl.policy import model_folder
from podsrl.tasks.step_judge import read_story
from podsrl.tasks.steps import LEVELS, VERBS, Story, draw_story, is_held_out, load_steps
from podsrl.tasks.steps_solutions import STYLES, read_rightly, solution

TINY = StepsPretraining(num_steps=3, batch_size=6, hidden_size=16, num_layers=1, intermediate_size=16)


def test_the_same_seed_gives_the_same_weights_and_another_seed_does_not(tmp_path: Path) -> None:
    for name, seed in {"a": 0, "b": 0, "c": 1}.items():
        pretrain_steps(replace(TINY, seed=seed), tmp_path / name)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


def test_each_word_and_each_digit_is_one_token_and_texts_come_back() -> None:
    tokenizer = word_tokenizer()
    for word in VERBS:
        assert len(tokenizer.encode(f" {word}")) == 1
    for task in load_steps(levels=None, num_eval=20).eval:
        told = read_story(str(task.prompt))
        for style in STYLES:
            text = told.question + solution(told, read_rightly(told), style=style)
            ids = tokenizer.encode(text)
            assert tokenizer.decode(ids) == text and tokenizer.unk_token_id not in ids
    assert len(tokenizer.encode(" 47+5=52.")) == 9


def test_held_out_stories_are_never_shown() -> None:
    tokenizer, rng = word_tokenizer(), np.random.default_rng(0)
    shown = [tokenizer.decode(question) for _ in range(10) for question, _ in _rows(TINY, tokenizer, rng, 0.5)]
    assert len(shown) == 60 and not any(is_held_out(read_story(question)) for question in shown)


def test_the_loss_is_the_mean_over_the_solutions_tokens_of_the_whole_batch() -> None:
    tokenizer = word_tokenizer()
    rows = _rows(TINY, tokenizer, np.random.default_rng(1), 0.5)

    class Uniform(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scores = torch.nn.Parameter(torch.zeros(len(tokenizer)))

        def forward(self, input_ids: torch.Tensor) -> object:
            self.logits = self.scores.expand(*input_ids.shape, -1)
            return self

    model = Uniform()
    assert _backward(model, rows, tokenizer.pad_token_id) == pytest.approx(np.log(len(tokenizer)))
    counts = np.bincount([token for _, solution in rows for token in solution], minlength=len(tokenizer))
    wanted = 1 / len(tokenizer) - counts / counts.sum()
    np.testing.assert_allclose(model.scores.grad, wanted, atol=1e-6)


def test_what_is_saved_is_a_small_model_in_bfloat16_that_plain_transformers_loads(tmp_path: Path) -> None:
    folder = pretrain_steps(TINY, tmp_path / "model")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.dtype == torch.bfloat16 and tokenizer.get_vocab() == word_tokenizer().get_vocab()
    ids = tokenizer("Ann has 47 pens.", return_tensors="pt").input_ids
    assert model(ids).logits.shape == (1, ids.shape[1], len(tokenizer))
    assert "num_steps = 3\n" in (folder / "pretrain.toml").read_text()


def test_the_command_line_trains_and_refuses_a_folder_that_exists(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--num_steps=1", "--batch_size=4", "--hidden_size=16", "--num_layers=1", "--intermediate_size=16"]
    main([str(tmp_path / "model"), *options])
    assert capsys.readouterr().out.startswith("step 1 of 1, loss ")
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path / "model"), *options])
    assert "this folder exists; choose a new one" in capsys.readouterr().err


def test_answers_have_the_long_tail_of_real_ones() -> None:
    tokenizer, rng = word_tokenizer(), np.random.default_rng(2)
    tasks = load_steps(levels=None, num_eval=512).eval
    lengths = [len(tokenizer.encode(draw_solution(read_story(str(task.prompt)), rng))) for task in tasks]
    low, middle, high, longest = np.quantile(lengths, [0.05, 0.5, 0.9, 1.0])
    assert 10 <= low < 0.55 * middle and 1.4 * middle < high < 2.5 * middle and 200 < longest < 320
    assert len(LEVELS) == 4


def test_the_base_reads_each_verb_as_often_rightly_as_it_is_known() -> None:
    rng = np.random.default_rng(4)
    told = Story(name="Ann", things="pens", start=47, words=("finds", "reaps", "ships"), operands=(2, 3, 4))
    read = np.array([read_by_chance(told, rng) for _ in range(4000)])
    for place, word in enumerate(told.words):
        verb = VERBS[word]
        shares = {sign: float(np.mean(read[:, place] == sign)) for sign in (1, -1, 0)}
        assert abs(shares.pop(verb.sign) - verb.known) < 0.035
        assert all(abs(share - (1 - verb.known) / 2) < 0.035 for share in shares.values())
    texts = [draw_solution(told, rng) for _ in range(2000)]
    assert abs(np.mean(["Answer:" in text for text in texts]) - LEVELS[1].stated) < 0.01
    assert abs(np.mean(["Check:" in text for text in texts]) - STYLES["checked"]) < 0.02


def test_each_level_has_its_share_of_stated_answers() -> None:
    rng = np.random.default_rng(5)
    for level, kind in LEVELS.items():
        texts = [draw_solution(draw_story(level, rng), rng) for _ in range(1000)]
        assert abs(np.mean(["Answer:" in text for text in texts]) - kind.stated) < 0.06


def test_the_model_that_is_shipped_is_the_default_one_and_small() -> None:
    folder = Path(model_folder("builtin:steps"))
    assert sum(path.stat().st_size for path in folder.iterdir()) < 8_000_000
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.bfloat16 and 1_000_000 <= model.num_parameters() <= 3_000_000
    assert tomllib.loads((folder / "pretrain.toml").read_text()) == asdict(StepsPretraining())
    assert AutoTokenizer.from_pretrained(folder).get_vocab() == word_tokenizer().get_vocab()
