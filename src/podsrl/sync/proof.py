"""Proof that weights arrived where their tensors cannot be looked at: a log-prob under them, computed on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from podsrl.lib.torch_model import evaluating
from podsrl.sync.in_process import SyncError

TOLERANCE = {torch.float64: 0.01, torch.float32: 0.01, torch.float16: 0.05, torch.bfloat16: 0.25}
"""Largest difference of the two log-probs by the weights' dtype: kernels sum in another order. Logits of size 20 are
rounded by up to 0.06 in bfloat16, and so are the states before them."""
NUM_TOKENS = 8
"""Of the prompt."""


class ProvesWeights(Protocol):
    """The part of a generator that the proof needs; see `Generator`."""

    def first_logprob(self, prompt_ids: Sequence[int]) -> tuple[int, float]: ...


def prove_arrival(generator: ProvesWeights, model: Any) -> float:
    """Compare the likeliest token's log-prob after a fixed prompt with the trained model's own.

    It finds weights that did not come, or came to the wrong place. It cannot find a step that changed the log-prob by
    less than `TOLERANCE`; several such steps add up.

    Args:
        generator: with the ability "proof", just after a sync.
        model: the trained one, whole, of transformers or PEFT.

    Returns:
        The difference, ≥ 0.

    Raises:
        SyncError: it is larger than `TOLERANCE`, or no number.
    """
    prompt = proof_prompt(model.get_input_embeddings().weight.shape[0])
    token, found = generator.first_logprob(prompt)
    ids = torch.tensor([prompt], device=model.get_input_embeddings().weight.device)
    with evaluating(model), torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[0, -1]
    wanted = float(logits.double().log_softmax(-1)[token])
    gap, tolerance = abs(found - wanted), TOLERANCE[model.dtype]
    if not gap <= tolerance:  # NaN is no proof
        raise SyncError(
            f"after a sync {type(generator).__name__} gives token {token} the log-prob {found:.6g} after the prompt "
            f"{list(prompt)}, and the trained model {wanted:.6g}: a gap of {gap:.3g}, wanted at most {tolerance:g}; the "
            "new weights have not arrived, or it computes another model"
        )
    return gap


def proof_prompt(num_words: int) -> tuple[int, ...]:
    """Tokens spread over the vocabulary.

    Example:
        >>> proof_prompt(160)
        (10, 30, 50, 70, 90, 110, 130, 150)
    """
    return tuple((2 * i + 1) * num_words // (2 * NUM_TOKENS) for i in range(NUM_TOKENS))
