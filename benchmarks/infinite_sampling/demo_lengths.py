"""Lengths of the rollouts of `builtin:arithmetic`, each with what a length predictor sees after its first tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.infinite_sampling.lengths import Recorded
from podsrl.generate import Engine, Request, Sampling
from podsrl.types import Completion

PROBE_AT = 2
"""Tokens after which the features are taken: the model's two ways of answering differ from the first token on."""


def record_demo(questions: Sequence[int], num_rollouts: int) -> list[Recorded]:
    """Sample `builtin:arithmetic` on some held-out questions of the recipe `pods`: rollouts, question by question."""
    from podsrl.config.schema import ModelConfig
    from podsrl.policy import load_model, load_tokenizer, prompt_ids
    from podsrl.tasks.arithmetic import load_arithmetic

    config = ModelConfig(path="builtin:arithmetic")
    tokenizer, model = load_tokenizer(config), load_model(config)
    tasks = load_arithmetic(digits=2, num_eval=max(questions) + 1).eval
    sampling = Sampling(max_new_tokens=48, stop_token_ids=(tokenizer.eos_token_id,))
    requests = [Request(tasks[i].id, prompt_ids(tokenizer, tasks[i]), num_rollouts, sampling) for i in questions]
    completions = sorted(Engine(model, seed=0).generate(requests), key=lambda c: (c.request_id, c.index))
    prompts = {request.id: request.prompt_ids for request in requests}
    features = _prefix_features(model, prompts, completions)
    return [
        Recorded(c.request_id, len(prompts[c.request_id]), len(c.token_ids), features[_prefix(prompts, c)])
        for c in completions
    ]


def _prefix(prompts: dict[str, tuple[int, ...]], completion: Completion) -> tuple[int, ...]:
    return prompts[completion.request_id] + completion.token_ids[:PROBE_AT]


@torch.inference_mode()
def _prefix_features(
    model: Any, prompts: dict[str, tuple[int, ...]], completions: Sequence[Completion]
) -> dict[tuple[int, ...], tuple[float, ...]]:
    """Prompt and first tokens -> hidden state, mean log-prob so far and entropy of the newest token's distribution."""
    features: dict[tuple[int, ...], tuple[float, ...]] = {}
    for completion in completions:
        prefix = _prefix(prompts, completion)
        if prefix in features:
            continue
        output = model(input_ids=torch.tensor([prefix], device=model.device), output_hidden_states=True)
        before = torch.log_softmax(output.logits[0, -1 - PROBE_AT : -1], dim=-1)  # [k, V] each new token's distribution
        drawn = before.gather(1, torch.tensor(prefix[-PROBE_AT:], device=model.device)[:, None])
        entropy = torch.special.entr(before[-1].exp()).sum()
        hidden = output.hidden_states[-1][0, -2]
        features[prefix] = tuple(torch.cat([hidden, drawn.mean()[None], entropy[None]]).tolist())
    return features
