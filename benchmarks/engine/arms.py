"""The engines that `python -m benchmarks engine` measures; a function of (model, workload, setting) makes each.

An arm takes a seed, generates the whole workload, and returns the length of every completion, its stop token included,
with the time that took. All arms sample from the same model object at temperature 1 without filters. Ours also returns
log-probabilities, and so does vLLM where it is installed; transformers' two engines do not, which makes them faster.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

from benchmarks.models import Workload
from benchmarks.timing import Clock, Taken
from podsrl.generate import Engine, Request, Sampling
from podsrl.generate.engine.forward.choose import Name


@dataclass(frozen=True, slots=True)
class Made:
    """One run of an arm."""

    lengths: list[int]
    """Tokens of each completion, its stop token included."""
    taken: Taken

    @property
    def tokens_per_second(self) -> float:
        return sum(self.lengths) / self.taken.seconds

    @property
    def tokens_per_cpu_second(self) -> float:
        return sum(self.lengths) / self.taken.cpu_seconds


Arm = Callable[[int], Made]
"""Seed -> completions. Arms may be called in any order, but not at the same time."""
_CPU_PAGES = {"page_size": 32, "num_blocks": 1024}
"""Key-value memory of transformers' continuous batching on a CPU: 32,768 tokens, more than it ever uses here, and
faster than twice or four times as many. Its default takes gigabytes."""


def hf_generate(model: Any, work: Workload, batch: int) -> Arm:
    """Hugging Face `generate` on left-padded batches of `batch` rows, one after the other."""
    rows = [prompt for prompt in work.prompts for _ in range(work.num_rollouts)]
    batches = [_left_padded(rows[i : i + batch], model.device) for i in range(0, len(rows), batch)]
    config = _generation_config(work, num_return_sequences=1)

    def lengths(seed: int) -> list[int]:
        torch.manual_seed(seed)
        made: list[int] = []
        for ids, mask in batches:
            found = model.generate(ids, attention_mask=mask, generation_config=config)
            made += completion_lengths(found[:, ids.shape[1] :].tolist(), work)
        return made

    return _timed(lengths)


def continuous_batching(model: Any, work: Workload, max_batch_tokens: int | None) -> Arm:
    """transformers' continuous batching; `num_return_sequences` makes it read each prompt once.

    Opening and closing its manager takes half a second and is not timed, since a long run would do it once.

    `max_batch_tokens`, the tokens per step, matters most on a CPU; None lets transformers choose.
    """
    config = _generation_config(work, num_return_sequences=work.num_rollouts)
    pages: dict[str, Any] = _CPU_PAGES if model.device.type == "cpu" else {}

    def arm(seed: int) -> Made:
        logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)  # it warns about psutil at every call
        settings = ContinuousBatchingConfig(max_batch_tokens=max_batch_tokens, seed=seed, **pages)
        opened = model.continuous_batching_context_manager(
            generation_config=config, continuous_batching_config=settings, block=True, timeout=5
        )
        with torch.no_grad(), opened as manager:
            clock = Clock()
            found = _drain(manager, work)
            taken = clock.read()
        return Made(completion_lengths(found, work), taken)

    return arm


def _drain(manager: Any, work: Workload) -> list[list[int]]:
    """Give transformers' manager the whole workload and wait until it is done."""
    manager.add_requests(inputs=[list(prompt) for prompt in work.prompts], max_new_tokens=work.max_new_tokens)
    found: list[list[int]] = []
    while len(found) < work.num_rows:
        output = manager.get_result(timeout=1)
        if output is not None and output.is_finished():
            found.append(list(output.generated_tokens))
        elif output is None and not manager.is_running():
            raise RuntimeError(f"transformers' continuous batching ended after {len(found)} of {work.num_rows}")
    return found


def podsrl_engine(model: Any, work: Workload, num_slots: int | None, forward: Name | None = None) -> Arm:
    """Our engine, built once and used in every round; None: all rows at once, and the forward that it chooses."""
    engine = Engine(model, num_slots=num_slots, forward=forward)

    def lengths(seed: int) -> list[int]:
        return [len(completion.token_ids) for completion in engine.generate(requests(work, seed))]

    return _timed(lengths)


def requests(work: Workload, seed: int) -> list[Request]:
    """A workload as requests; the seed is part of their ids, from which the random numbers derive."""
    sampling = Sampling(max_new_tokens=work.max_new_tokens, stop_token_ids=work.stop_token_ids)
    return [Request(f"{seed}/{i}", prompt, work.num_rollouts, sampling) for i, prompt in enumerate(work.prompts)]


def has_vllm() -> bool:
    """Whether vLLM is installed."""
    return importlib.util.find_spec("vllm") is not None


def new_vllm(model: Any, most_rows: int, most_tokens: int) -> Any:
    """vLLM in this process, on a copy of the weights; it shares a GPU with the other engines.

    `most_rows` completions at a time, of `most_tokens` each, with their prompt. Its newer runner draws all rollouts by
    one kernel, the older one those with a seed one by one.
    """
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # its engine in this process, on this thread setting
    os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "1")
    vllm = importlib.import_module("vllm")
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        kind = str(model.dtype).removeprefix("torch.")
        own = {"gpu_memory_utilization": 0.4} if model.device.type == "cuda" else {}
        return vllm.LLM(
            model=folder,
            skip_tokenizer_init=True,
            dtype=kind,
            max_num_seqs=most_rows,
            max_model_len=most_tokens,
            **own,
        )


def vllm_engine(llm: Any, work: Workload) -> Arm:
    """vLLM with a seed per completion and the log-probability of each sampled token, as a trainer asks for them."""
    vllm = importlib.import_module("vllm")
    prompts = [{"prompt_token_ids": list(prompt)} for prompt in work.prompts]

    def lengths(seed: int) -> list[int]:
        sampling = vllm.SamplingParams(
            n=work.num_rollouts,
            temperature=1.0,
            max_tokens=work.max_new_tokens,
            stop_token_ids=list(work.stop_token_ids),
            detokenize=False,
            logprobs=0,
            seed=seed,
        )
        found = llm.generate(prompts, sampling, use_tqdm=False)
        return completion_lengths([list(one.token_ids) for output in found for one in output.outputs], work)

    return _timed(lengths)


def _timed(lengths: Callable[[int], list[int]]) -> Arm:
    def arm(seed: int) -> Made:
        clock = Clock()
        made = lengths(seed)
        return Made(made, clock.read())

    return arm


def _generation_config(work: Workload, num_return_sequences: int) -> GenerationConfig:
    return GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=work.max_new_tokens,
        eos_token_id=list(work.stop_token_ids) or None,
        pad_token_id=0,
        num_return_sequences=num_return_sequences,
    )


def _left_padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=device)
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
    return ids, mask


def completion_lengths(completions: Iterable[list[int]], work: Workload) -> list[int]:
    """Tokens of each completion up to and including its first stop token; the rest is padding."""
    stops = set(work.stop_token_ids)
    return [next((i + 1 for i, token in enumerate(ids) if token in stops), len(ids)) for ids in completions]
