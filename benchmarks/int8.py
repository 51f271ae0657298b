"""Decode steps whose products have 8-bit weights, beside float32 and Hugging Face generate: seconds, log-prob gap.

    python -m benchmarks int8            SmolLM2-135M, ten minutes on one core
    python -m benchmarks int8 --quick    the demo's model

It is no option of the engine; docs/engine.md says why. Weights have a scale per output, activations 7 bits and a scale
per row, so that a row does not depend on its companions (dynamic quantisation as in torch has one scale for all rows).
Prompts are read in float32. The gap is between the log-probs of the tokens as they were drawn and those of the float32
model; the sample size is the effective one of the ratios of whole completions. Needs the model (pods models).
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from benchmarks import command
from benchmarks.figures.markdown import table
from benchmarks.files import Result
from benchmarks.timing import Clock, Say, ratios, spread, spread_text, take_turns
from podsrl.generate import Engine, Request, Sampling
from podsrl.generate.engine.forward import fast
from podsrl.lib.matmul import Linear
from podsrl.policy import model_folder
from podsrl.types import Completion

LEVELS = 63
"""Of an activation on each side of 0: with 127 the products' 16-bit sums overflow on processors without VNNI."""
FLOAT32, INT8, HF = "float32", "int8", "HF generate"
KEPT: dict[str, tuple[str, ...]] = {
    "all products": (),
    "all but `down_proj`": ("down_proj",),
    "all but `down_proj` and the head": ("down_proj", "lm_head"),
}
"""What is rounded -> ends of the names of linear layers that stay float32."""


class Int8Linear:
    """x [R, in] -> [R, out] with 8-bit weights; each row has a scale of its own."""

    def __init__(self, module: Any) -> None:
        weight = module.weight.detach()
        scales = weight.abs().amax(1).clamp_min(1e-8) / 127
        zeros = torch.zeros(len(weight), dtype=torch.long)
        rounded = torch.quantize_per_channel(weight, scales.double(), zeros, 0, torch.qint8)
        self._packed, self._bias = torch.ops.quantized.linear_prepack(rounded, None), module.bias

    def __call__(self, x: Tensor) -> Tensor:
        top = torch.linalg.vector_norm(x, float("inf"), dim=-1, keepdim=True)
        multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
        result: Tensor = multiply(x / top, 1 / LEVELS, LEVELS + 1, self._packed).mul_(top)
        return result if self._bias is None else result.add_(self._bias)


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("int8", __doc__)
    parser.add_argument("--quick", action="store_true", help="the demo's model")
    command.measure(parser, arguments, run)


def run(options: argparse.Namespace, say: Say = lambda text: None) -> dict[str, Any]:
    """Measure the gaps, then the seconds. UsageError: the model is not fetched."""
    folder = model_folder("builtin:arithmetic" if options.quick else "package:smollm2-135m")
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompts = _prompts(AutoTokenizer.from_pretrained(folder))
    Engine(model, forward="fast")  # its check of the decode step is not for rounded products
    gaps = {}
    for name, kept in KEPT.items():
        say(f"gap, {name}")
        with int8_products(model, kept):
            completions = generate(model, prompts[:4], 4, 16)
        gaps[name] = gap(model, prompts[:4], completions)
    say("the same rows among fewer")
    with int8_products(model):
        many, few = (generate(model, prompts[:number], 4, 16) for number in (2, 1))
    equal = [one.token_ids == other.token_ids for one, other in zip(few, many[: len(few)], strict=True)]
    seconds = {str(rows): step_seconds(model, prompts, rows, 2 if options.quick else 3, say) for rows in (64, 16)}
    return {"gaps": gaps, "rows_equal_among_fewer": [sum(equal), len(equal)], "step_seconds": seconds}


@contextmanager
def int8_products(model: Any, kept: Sequence[str] = (), made: dict[Any, Any] | None = None) -> Iterator[None]:
    """Within it the hand-written decode step rounds its products, but for layers whose names end so.

    `made` keeps the rounded layers, for weights that do not change.
    """
    names = {module: name for name, module in model.named_modules()}
    made = {} if made is None else made

    def choose(module: Any) -> Callable[[Tensor], Tensor]:
        if module not in made:
            made[module] = (Linear if names[module].endswith(tuple(kept)) and kept else Int8Linear)(module)
        found: Callable[[Tensor], Tensor] = made[module]
        return found

    vars(fast)["Linear"] = choose
    try:
        yield
    finally:
        vars(fast)["Linear"] = Linear


def generate(model: Any, prompts: Sequence[Sequence[int]], num_rollouts: int, tokens: int) -> list[Completion]:
    """Completions of so many tokens each, in the order of prompts and indices."""
    sampling = Sampling(max_new_tokens=tokens, stop_token_ids=())
    requests = [Request(f"{i:03d}", tuple(ids), num_rollouts, sampling) for i, ids in enumerate(prompts)]
    done = Engine(model, forward="fast").generate(requests)
    return sorted(done, key=lambda each: (each.request_id, each.index))


@torch.inference_mode()
def gap(model: Any, prompts: Sequence[Sequence[int]], completions: Sequence[Completion]) -> dict[str, float]:
    """How far log-probs are from the model's own, and the effective sample size of the ratios as a share of rows."""
    rows = []
    for done in completions:
        prompt = prompts[int(done.request_id)]
        states = model.model(torch.tensor([[*prompt, *done.token_ids]])).last_hidden_state[0, len(prompt) - 1 : -1]
        found = torch.log_softmax(model.lm_head(states), -1).gather(1, torch.tensor(done.token_ids)[:, None])[:, 0]
        rows.append(found - torch.tensor(done.logprobs))
    gaps = torch.stack(rows).double()
    weights = gaps.sum(1).exp()
    return {
        "mean": float(gaps.abs().mean()),
        "max": float(gaps.abs().max()),
        "share_above_0.05": float((gaps.abs() > 0.05).double().mean()),
        "sample_size": float(weights.sum() ** 2 / (weights**2).sum() / len(weights)),
    }


def step_seconds(
    model: Any, prompts: Sequence[Sequence[int]], rows: int, rounds: int, say: Say, *, steps: int = 5
) -> dict[str, Any]:
    """CPU seconds of a decode step of so many rows, behind prompts of four tokens, by the difference of two calls."""
    short, made = [(*prompt[-3:], prompts.index(prompt) + 5) for prompt in prompts[:rows]], dict[Any, Any]()

    def ours(tokens: int) -> None:
        generate(model, short, 1, tokens)

    def rounded(tokens: int) -> None:
        with int8_products(model, made=made):
            generate(model, short, 1, tokens)

    def theirs(tokens: int) -> None:
        sizes = {"max_new_tokens": tokens, "min_new_tokens": tokens}
        config = GenerationConfig(do_sample=True, top_k=0, pad_token_id=0, **sizes)
        ids = torch.tensor(short)
        model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)

    def arm(generator: Callable[[int], None]) -> Callable[[int], float]:
        def call(number: int) -> float:
            taken = []
            for tokens in (1, 1 + steps):
                clock = Clock()
                generator(tokens)
                taken.append(clock.read().cpu_seconds)
            return (taken[1] - taken[0]) / steps

        return call

    rounded(1)
    arms = {FLOAT32: arm(ours), INT8: arm(rounded), HF: arm(theirs)}
    found = take_turns(arms, rounds, lambda text: say(f"{rows} rows, {text}"))
    speedups = {name: ratios(found[HF], found[name]) for name in (FLOAT32, INT8)}
    return {"seconds": {name: spread(values) for name, values in found.items()}, "times_as_fast_as_hf": speedups}


def _prompts(tokenizer: Any) -> list[tuple[int, ...]]:
    """64 sums of two-digit numbers."""
    draw = random.Random(0)
    texts = (f"What is {draw.randint(10, 99)} + {draw.randint(10, 99)}?\n" for _ in range(64))
    if tokenizer.chat_template is None:
        return [tuple(tokenizer(text).input_ids) for text in texts]
    chats = [[{"role": "user", "content": text}] for text in texts]
    return [tuple(tokenizer.apply_chat_template(chat, add_generation_prompt=True).input_ids) for chat in chats]


def page(result: Result) -> str:
    """The tables of docs/engine.md."""
    seconds = [
        (f"{rows} rows", *(spread_text(found["seconds"][name]) for name in (HF, FLOAT32, INT8)))
        for rows, found in result["step_seconds"].items()
    ]
    gaps = [
        (f"8 bits: {name}", *(f"{found[key]:.2f}" for key in ("mean", "max", "share_above_0.05", "sample_size")))
        for name, found in result["gaps"].items()
    ]
    head = ("log-prob gap", "mean", "largest", "share above 0.05", "effective sample size, of 1")
    return f"{table(('CPU s of a decode step', HF, FLOAT32, INT8), seconds)}\n\n{table(head, gaps)}"
