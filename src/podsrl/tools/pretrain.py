"""Make the small base model that the demo starts from: `pods pretrain OUT`.

Reinforcement learning finds the good strategy among those that a model already has. A model whose right and wrong
answers differ only in digits has none to find, and rewards only add noise to weak circuits. So the base model is
taught a mixture: rarely it works digit by digit and is right, mostly it guesses at once and is wrong. Training with
verifiable rewards then lifts the rare strategy, as it does in real models.

The result is a folder in Hugging Face layout that `AutoModelForCausalLM` and `AutoTokenizer` load.
"""

from __future__ import annotations

import math
import string
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

from podsrl.config.load import dump
from podsrl.config.pretrain import PretrainConfig
from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError
from podsrl.lib.callbacks import Progress, no_progress
from podsrl.lib.machine import configure_threads
from podsrl.policy import load_model, load_tokenizer, quiet_bars
from podsrl.tasks.arithmetic import addition_task, careful_solution, careless_solution, split_pairs

SPECIAL_TOKENS = ("<pad>", "<eos>", "<unk>")
SIZES = {
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
}
"""Option -> its name in a Qwen2 config."""
WINDOW = 256
"""Positions the model is configured for."""


def character_tokenizer() -> Qwen2Tokenizer:
    """One token per character: letters, digits, punctuation, space and newline; a byte-level BPE without merges."""
    space_and_newline = "\u0120\u010a"  # as byte-level BPE writes them
    characters = space_and_newline + string.digits + string.ascii_letters + string.punctuation
    return Qwen2Tokenizer(
        vocab={token: i for i, token in enumerate((*SPECIAL_TOKENS, *characters))},
        merges=[],
        unk_token="<unk>",
        eos_token="<eos>",
        pad_token="<pad>",
        model_max_length=WINDOW,
    )


def pretrain(config: PretrainConfig, out: Path, progress: Progress = no_progress) -> Path:
    """Train from random weights and save to the folder `out`, which appears when all is done."""
    configure_threads(config.threads, 0)
    tokenizer = character_tokenizer()
    unfinished = out.with_name(f".{out.name}.tmp")
    unfinished.mkdir(parents=True, exist_ok=True)  # now, so that a folder that cannot be written costs no minutes
    model = _new_model(config, tokenizer) if config.start is None else _start_model(config, config.start, tokenizer)
    rng = np.random.default_rng([config.seed, 0])
    total = config.skill_steps + config.mixture_steps
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, betas=(0.9, 0.99), weight_decay=0.01, fused=True)
    for step in range(total):
        in_mixture = step >= config.skill_steps
        least = 0.0 if in_mixture else 0.5
        for group in optimizer.param_groups:
            group["lr"] = _learning_rate(config, step)
        loss = _text_loss(model, *_batch(config, tokenizer, rng, least))
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        progress(step + 1, total, f"step {step + 1:,} of {total:,}, loss {loss.item():.3f} nats per token")
    with quiet_bars():
        model.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    (unfinished / "pretrain.toml").write_text(dump(config))
    return unfinished.rename(out)


def _new_model(config: PretrainConfig, tokenizer: Qwen2Tokenizer) -> Any:
    torch.manual_seed(config.seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            **{name: getattr(config, option) for option, name in SIZES.items()},
            max_position_embeddings=WINDOW,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )


def _start_model(config: PretrainConfig, path: str, tokenizer: Qwen2Tokenizer) -> Any:
    """A model to go on from; its tokens must be those that the texts are written in, and its sizes stay its own."""
    start = ModelConfig(path=path, device="cpu")
    if load_tokenizer(start).get_vocab() != tokenizer.get_vocab():
        raise UsageError(
            f"start = {path!r}: its tokenizer is not the character tokenizer; use a model made by pods pretrain"
        )
    model = load_model(start)
    for option, name in SIZES.items():
        wanted, has = getattr(config, option), getattr(model.config, name)
        if wanted not in (has, PretrainConfig.model_fields[option].default):
            raise UsageError(f"{option} = {wanted}, but start = {path!r} has {has} and keeps it: leave {option} out")
    return model


def _learning_rate(config: PretrainConfig, step: int) -> float:
    if step >= config.skill_steps:
        return config.lr / 10
    warmup = 100
    cosine = 0.5 * (1 + math.cos(math.pi * step / config.skill_steps))
    return config.lr * min(1.0, (step + 1) / warmup) * (0.05 + 0.95 * cosine)


def _batch(
    config: PretrainConfig, tokenizer: Qwen2Tokenizer, rng: np.random.Generator, least: float
) -> tuple[Tensor, Tensor]:
    """A batch of texts -> ids [B, T] padded on the right, and which of them are the solution's [B, T] bool.

    `least`: share of careful solutions where the config has a smaller one.
    """
    shares = np.array(list(config.digits.values()))
    digits = rng.choice(list(config.digits), size=config.batch_size, p=shares / shares.sum())
    texts = [_text(d, rng, max(least, config.careful_share(d))) for d in digits.tolist()]
    ids = [[*tokenizer.encode(prompt + solution), tokenizer.eos_token_id] for prompt, solution in texts]
    length = max(map(len, ids))
    padded = torch.tensor([row + [tokenizer.pad_token_id] * (length - len(row)) for row in ids])
    starts = torch.tensor([len(prompt) for prompt, _ in texts])[:, None]  # one token per character
    ends = torch.tensor([len(row) for row in ids])[:, None]
    columns = torch.arange(length)[None, :]
    return padded, (columns >= starts) & (columns < ends)


def _text(digits: int, rng: np.random.Generator, careful: float) -> tuple[str, str]:
    """A random question outside the held-out set, and a solution by one of the two strategies."""
    pairs, _ = split_pairs(digits)
    a, b = pairs[rng.integers(len(pairs))].tolist()
    solution = careful_solution(a, b) if rng.random() < careful else careless_solution(a, b, rng)
    return str(addition_task(a, b).prompt), solution


def _text_loss(model: Any, ids: Tensor, is_solution: Tensor) -> Tensor:
    logits = model(input_ids=ids).logits[:, :-1]
    targets = ids[:, 1:].masked_fill(~is_solution[:, 1:], -100)
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
