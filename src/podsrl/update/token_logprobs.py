"""The forward of the update: from rows to the log-probabilities of their completions.

It is a module, so that a library that shards weights or gathers gradients can hook it: every parameter that the update
uses is reached through it. It decides how rows lie in a micro-batch: padded, packed one behind the other, or packed
with each group's prompt once (`packed/layout.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

from torch import Tensor, nn

from podsrl.errors import UsageError
from podsrl.lib.matmul import fast_linears, has_fast_linear
from podsrl.lib.torch_model import batch_limit, text_config
from podsrl.update.batch import Batch
from podsrl.update.fused import find_parts, replaced
from podsrl.update.logprobs import (
    CHUNK_TOKENS,
    HeadPath,
    at_targets,
    device_of,
    head_path,
    no_logprobs,
    score_tokens,
    token_logprobs,
    why_not_one_pass,
)
from podsrl.update.micro_batches import Rows, num_forwarded
from podsrl.update.packed.build import lay_out
from podsrl.update.packed.gather import gather_rows
from podsrl.update.packed.layout import Layout
from podsrl.update.packed.probe import packed_attention, run_packed, why_not_packed
from podsrl.update.transfer import CPU, move

Choice = Literal["auto", "on", "off"]
SHARE_FROM = 0.9
"""Prompts are shared where that leaves at most this share of the tokens: attention in two parts costs a few percent."""


class TokenLogprobs(nn.Module):
    """Log-probabilities of completions under one model, and how rows lie in its micro-batches.

    Args:
        model: a causal language model of transformers, or a wrapper whose forward returns `.logits`. It is tried on a
            few tokens here, so weights are sharded afterwards.
        temperature, chunk_tokens: see `token_logprobs`.
        packing, prefix_sharing: see `podsrl.config.schema.OptimConfig`.

    Raises:
        UsageError: "on" for a model that cannot, or for sharing without packing; at a call, rows so long that their
            log-probs would depend on the micro-batch they are in (`batch_limit`).

    Example:
        >>> from transformers import Qwen2Config, Qwen2ForCausalLM
        >>> sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
        >>> config = Qwen2Config(num_attention_heads=2, num_key_value_heads=2, **sizes)
        >>> TokenLogprobs(Qwen2ForCausalLM(config)).layout
        'packed rows, prompts shared where that saves tokens'
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        temperature: float = 1.0,
        chunk_tokens: int = CHUNK_TOKENS,
        packing: Choice = "auto",
        prefix_sharing: Choice = "auto",
    ) -> None:
        super().__init__()
        self.model = model
        self._dtype = next(model.parameters()).dtype
        self.temperature, self.chunk_tokens = temperature, chunk_tokens
        self.packing, self.prefix_sharing = packing, prefix_sharing
        self._limit = batch_limit(text_config(model))
        self.head_path: HeadPath = head_path(model)
        self.is_packed, self.layout = _choose(model, packing, prefix_sharing)
        if device_of(model).type == "cuda":
            self.layout += f"; {_scoring(model, self.head_path)}"
        self._parts = find_parts(model) if device_of(model).type == "cuda" and self.is_packed else []
        self._is_fast = self.is_packed and has_fast_linear(model)
        self._is_active = False

    def forward(self, rows: Batch, kind: Rows | None = None) -> tuple[Tensor, Tensor]:
        """Natural log-probs and entropies of the completions' tokens.

        Args:
            rows: on any device, best on the CPU: nothing is waited for then; rows of one group are neighbours.
            kind: the rows' layout; by default what `kind` returns.

        Returns:
            [B, T] each, on the model's device, with gradient and without; 0 outside the completions. A backward pass
            that repeats the forward (gradient checkpointing) has to run within `active`.
        """
        if self._limit is not None and rows.input_ids.shape[1] > self._limit.tokens:
            raise UsageError(
                f"a row has {rows.input_ids.shape[1]} tokens, which exceeds {self._limit.name}: train on shorter rows"
            )
        rows = rows.to(CPU)
        kind = kind or self.kind(rows)
        if kind == "padded":
            masks = rows.attention_mask, rows.target_mask
            return token_logprobs(
                self.model, rows.input_ids, *masks, temperature=self.temperature, chunk_tokens=self.chunk_tokens
            )
        if not rows.target_mask.any():
            return no_logprobs(self.model, rows.input_ids)
        layout, tokens, targets, wanted = self._laid_out(rows, kind)
        with self.active():
            states, head = run_packed(self.head_path, self.model, tokens, layout)
            states = gather_rows(states[0], layout.predicts)
            found = score_tokens(head, states, wanted, self.temperature, self.chunk_tokens)
        logprobs, entropy = (each[: len(targets)] for each in found)
        return at_targets((logprobs, entropy), targets, rows.input_ids.shape)

    def _laid_out(self, rows: Batch, kind: Rows) -> tuple[Layout, Tensor, Tensor, Tensor]:
        """On the model's device: layout, tokens [N], places of the targets in the flattened rows, and their tokens."""
        tokens, targets = rows.input_ids.flatten(), rows.target_mask.flatten().nonzero().squeeze(-1)
        layout = lay_out(rows, shared=kind == "shared", round_up=self._is_fast)
        wanted = nn.functional.pad(tokens[targets], (0, len(layout.predicts) - len(targets)))
        device = device_of(self.model)
        layout, tokens, targets, wanted = move((layout, tokens[layout.source], targets, wanted), device)
        return layout.with_masks(self._dtype), tokens, targets, wanted

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within it the model attends by layout and computes its products with the faster library."""
        if self._is_active or not self.is_packed:
            yield
            return
        self._is_active = True
        try:
            faster = fast_linears(self.model) if self._is_fast else nullcontext()
            with packed_attention(self.model), replaced(self._parts), faster:
                yield
        finally:
            self._is_active = False

    def of(self, model: nn.Module) -> TokenLogprobs:
        """The same forward of another model."""
        return TokenLogprobs(
            model,
            temperature=self.temperature,
            chunk_tokens=self.chunk_tokens,
            packing=self.packing,
            prefix_sharing=self.prefix_sharing,
        )

    def kind(self, rows: Batch) -> Rows:
        """The best layout for these rows."""
        if not self.is_packed:
            return "padded"
        if self.prefix_sharing == "off" or not rows.num_sequences:
            return "packed"
        if self.prefix_sharing == "on":
            return "shared"
        is_less = num_forwarded(rows, shared=True) <= SHARE_FROM * num_forwarded(rows, shared=False)
        return "shared" if is_less else "packed"


def _scoring(model: Any, path: HeadPath) -> str:
    """How a GPU computes log-probs from the output head, and why."""
    reason = why_not_one_pass(model.get_output_embeddings()) if path.name == "chunked" else path.reason
    return "log-probs in one pass" if reason is None else f"log-probs by torch's operators, because {reason}"


def _choose(model: nn.Module, packing: Choice, prefix_sharing: Choice) -> tuple[bool, str]:
    """Whether rows are packed, and one line on their layout and its reason."""
    if packing == "off":
        if prefix_sharing == "on":
            raise UsageError("optim.prefix_sharing = 'on' with optim.packing = 'off'; set packing to 'auto' or 'on'")
        return False, "padded rows, as optim.packing = 'off' asks"
    reason = why_not_packed(model)
    if reason is None:
        shared = {"auto": ", prompts shared where that saves tokens", "on": ", prompts shared", "off": ""}
        return True, f"packed rows{shared[prefix_sharing]}"
    name = type(model).__name__
    for option, choice in (("packing", packing), ("prefix_sharing", prefix_sharing)):
        if choice == "on":
            raise UsageError(
                f"optim.{option} = 'on', but {name} cannot forward packed rows: {reason}; set it to 'auto'"
            )
    warnings.warn(f"{name}: rows are padded, because {reason}", stacklevel=4)
    return False, f"padded rows, because {reason}"
