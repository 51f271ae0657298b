"""Make the base model of the task set 'steps' from random weights: `python -m benchmarks.pretrain_steps OUT`.

It reads stories, none of them held out, with solutions that understand each verb rightly as often as `Verb.known` says.
So it learns to add, to go from sentence to sentence and to end in an answer; and about a verb it learns to be as unsure
as its texts. The weights are a function of the seed and of the processor's arithmetic. The folder that is shipped holds
them in bfloat16.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from podsrl.errors import UsageError
from podsrl.lib.callbacks import Progress, no_progress
from podsrl.lib.machine import configure_threads
from podsrl.policy import quiet_bars
from podsrl.tasks.steps import LEVELS, VERBS, Story, draw_story, is_held_out, level_of
from podsrl.tasks.steps_solutions import STYLES, read_rightly, solution

SPECIAL_TOKENS = ("<pad>", "<eos>", "<unk>")
WINDOW = 512
"""Positions the model is configured for."""
_CHUNKS = 4
"""A batch goes through the model in so many parts of texts of about the same length, so that little is padded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsPretraining:
    """How the model is made; these are the values of the one that is shipped."""

    seed: int = 0
    threads: int = 1
    num_steps: int = 3000
    batch_size: int = 32
    lr: float = 3e-3
    """Highest learning rate; it rises over 50 steps and falls along a half cosine to a fiftieth."""
    hidden_size: int = 160
    num_layers: int = 4
    num_heads: int = 4
    num_kv_heads: int = 2
    intermediate_size: int = 480
    short_first: float = 0.3
    """Share of the steps in which short stories are more common."""
    exact_first: float = 0.6
    """Share of the steps in which all verbs are read rightly: what a text says of a verb teaches where it is read."""


def word_tokenizer() -> Qwen2Tokenizer:
    """One token per word of the stories and per digit: a byte-level BPE that merges until nothing is left to merge."""
    made_of = {"unk_token": "<unk>", "eos_token": "<eos>", "pad_token": "<pad>", "model_max_length": WINDOW}
    plain = Qwen2Tokenizer(vocab={token: i for i, token in enumerate(SPECIAL_TOKENS)}, merges=[], **made_of)
    learner = Tokenizer(BPE())
    learner.pre_tokenizer = plain.backend_tokenizer.pre_tokenizer
    learner.train_from_iterator(_texts(), BpeTrainer(special_tokens=[*SPECIAL_TOKENS], show_progress=False))
    learned = json.loads(learner.to_str())["model"]
    return Qwen2Tokenizer(vocab=learned["vocab"], merges=[tuple(pair) for pair in learned["merges"]], **made_of)


def _texts() -> list[str]:
    """Texts that hold every word of the task set in every place where it can stand."""
    rng, texts = np.random.Generator(np.random.PCG64(0)), []
    for level in [*LEVELS] * 200:
        story = draw_story(level, rng)
        for style, is_stated in itertools.product(STYLES, (True, False)):
            texts.append(story.question + solution(story, read_rightly(story), style=style, is_stated=is_stated))
    return texts


def pretrain_steps(config: StepsPretraining, out: Path, progress: Progress = no_progress) -> Path:
    """Train from random weights and save to the folder `out`, which appears when all is done. UsageError: it exists."""
    if out.exists():
        raise UsageError(f"{out}: this folder exists; choose a new one")
    configure_threads(config.threads, 0)
    tokenizer = word_tokenizer()
    unfinished = out.with_name(f".{out.name}.tmp")
    unfinished.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(config.seed)
    model: Any = Qwen2ForCausalLM(_shape(config, tokenizer))
    rng = np.random.Generator(np.random.PCG64([config.seed, 0]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    for step in range(config.num_steps):
        for group in optimizer.param_groups:
            group["lr"] = _learning_rate(config, step)
        rows = _rows(config, tokenizer, rng, step / config.num_steps)
        loss = _backward(model, rows, tokenizer.pad_token_id)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        progress(step + 1, config.num_steps, f"step {step + 1:,} of {config.num_steps:,}, loss {loss:.3f} per token")
    with quiet_bars():
        model.to(torch.bfloat16).save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    lines = [f"{name} = {value!r}" for name, value in asdict(config).items()]
    (unfinished / "pretrain.toml").write_text("\n".join([*lines, ""]))
    return unfinished.rename(out)


def _shape(config: StepsPretraining, tokenizer: Qwen2Tokenizer) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        max_position_embeddings=WINDOW,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )


def _learning_rate(config: StepsPretraining, step: int) -> float:
    cosine = 0.5 * (1 + math.cos(math.pi * step / config.num_steps))
    return config.lr * min(1.0, (step + 1) / 50) * (0.02 + 0.98 * cosine)


def _rows(
    config: StepsPretraining, tokenizer: Qwen2Tokenizer, rng: np.random.Generator, done: float
) -> list[tuple[list[int], list[int]]]:
    """Token ids of the questions and solutions of a batch, the shortest texts first."""
    weights = np.array([4.0, 3, 2, 1] if done < config.short_first else [1.0, 1, 1, 1])
    levels = rng.choice(list(LEVELS), size=config.batch_size, p=weights / weights.sum()).tolist()
    stories = [_draw_for_training(level, rng) for level in levels]
    texts = [draw_solution(story, rng, is_exact=done < config.exact_first) for story in stories]
    rows = [
        (tokenizer.encode(story.question), [*tokenizer.encode(text), tokenizer.eos_token_id])
        for story, text in zip(stories, texts, strict=True)
    ]
    return sorted(rows, key=lambda row: len(row[0]) + len(row[1]))


def _draw_for_training(level: int, rng: np.random.Generator) -> Story:
    while is_held_out(story := draw_story(level, rng)):
        pass
    return story


def _backward(model: Any, rows: Sequence[tuple[list[int], list[int]]], pad: int) -> float:
    """Add the gradient of the mean loss of the solutions' tokens; returns that loss."""
    num_tokens = sum(len(answer) for _, answer in rows)
    size, loss = math.ceil(len(rows) / _CHUNKS), 0.0
    for start in range(0, len(rows), size):
        ids, targets = _padded(rows[start : start + size], pad)
        logits = model(input_ids=ids).logits[:, :-1]
        part = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten(), reduction="sum")
        torch.autograd.backward(part / num_tokens)
        loss += part.item() / num_tokens
    return loss


def _padded(rows: Sequence[tuple[list[int], list[int]]], pad: int) -> tuple[Tensor, Tensor]:
    """Token ids and targets [B, T], padded on the right; targets are -100 outside the solutions."""
    length = max(len(question) + len(answer) for question, answer in rows)
    ids, targets = torch.full((len(rows), length), pad), torch.full((len(rows), length), -100)
    for place, (question, answer) in enumerate(rows):
        end = len(question) + len(answer)
        ids[place, :end] = torch.tensor(question + answer)
        targets[place, len(question) : end] = torch.tensor(answer)
    return ids, targets


def draw_solution(story: Story, rng: np.random.Generator, *, is_exact: bool = False) -> str:
    """A pretraining text: verbs read by chance or all rightly, in a style and a form that are drawn apart from that."""
    style = str(rng.choice(list(STYLES), p=list(STYLES.values())))
    is_stated = bool(rng.random() < LEVELS[level_of(story)].stated)
    signs = read_rightly(story) if is_exact else read_by_chance(story, rng)
    return solution(story, signs, style=style, is_stated=is_stated)


def read_by_chance(story: Story, rng: np.random.Generator) -> tuple[int, ...]:
    """Meanings of a story's verbs in a pretraining text: each by itself is right as often as `Verb.known` says."""
    signs = []
    for word in story.words:
        wrong = [sign for sign in (1, -1, 0) if sign != VERBS[word].sign]
        signs.append(VERBS[word].sign if rng.random() < VERBS[word].known else wrong[int(rng.integers(2))])
    return tuple(signs)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and pretrain."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pretrain_steps", description=__doc__)
    parser.add_argument("out", type=Path, help="folder to write the model to")
    for name, value in asdict(StepsPretraining()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    given = vars(parser.parse_args(arguments))
    out = given.pop("out")
    try:
        pretrain_steps(StepsPretraining(**given), out, lambda done, total, text: print(text, flush=True))
    except UsageError as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()
