"""One batch of rows, from prefill to the last finished row. All rows stand at the same length; finished ones leave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from podsrl.generate.cache import new_prompt_cache, rows_from_prompts
from podsrl.generate.random import uniforms
from podsrl.generate.request import Request, Sampling
from podsrl.generate.sampler import sample
from podsrl.types import FinishReason

Finished = tuple["Row", list[int], list[float], FinishReason]


@dataclass(frozen=True, slots=True)
class Row:
    """One completion to be made."""

    request: Request
    index: int


class Wave:
    """State of a batch of L live rows. `order[i]` is the row (of B) that stands at place i of the batch."""

    def __init__(self, model: Any, rows: Sequence[Row], sampling: Sampling, seed: int) -> None:
        self.rows = rows
        self._model = model
        self._sampling = sampling
        device = model.device
        ids = [row.request.id for row in rows]
        draws = uniforms(seed, ids, [row.index for row in rows], sampling.max_new_tokens)
        self._uniforms = torch.from_numpy(draws).to(device)  # [B, T]
        self._tokens = torch.zeros(len(rows), sampling.max_new_tokens, dtype=torch.int64, device=device)  # [B, T]
        self._logprobs = torch.zeros(len(rows), sampling.max_new_tokens, dtype=torch.float32, device=device)  # [B, T]
        self._order = torch.arange(len(rows), device=device)  # [L]
        self._stops = torch.tensor(sampling.stop_token_ids, dtype=torch.int64, device=device)
        self._num_steps = 0
        self._prefill(device)

    @property
    def num_live(self) -> int:
        return len(self._order)

    @property
    def num_bytes(self) -> int:
        """Bytes of keys and values now held."""
        return sum(layer.num_bytes for layer in self._cache.layers)

    def step(self, aborted: set[str]) -> Iterator[Finished]:
        """Sample one token for every live row, let the finished leave, and run the model on the rest."""
        with torch.inference_mode():
            done, reasons = self._sample_step(aborted)
            finished = self._take_finished(done, reasons)
            if finished:
                self._compact(done)
            if self.num_live > 0:
                self._forward()
        return iter(finished)

    def _prefill(self, device: torch.device) -> None:
        prompts = {row.request.prompt_ids: None for row in self.rows}
        place = {prompt: i for i, prompt in enumerate(prompts)}
        length = max(map(len, prompts))
        total = length + self._sampling.max_new_tokens
        pads = [length - len(prompt) for prompt in prompts]
        ids = torch.tensor([[0] * pad + list(p) for pad, p in zip(pads, prompts, strict=True)], device=device)
        pad = torch.tensor(pads, device=device)[:, None]
        positions = torch.arange(length, device=device)[None, :] - pad
        prompt_of_row = torch.tensor([place[row.request.prompt_ids] for row in self.rows], device=device)
        with torch.inference_mode():
            cache = new_prompt_cache(self._model, total)
            mask = positions >= 0 if any(pads) else None
            output = self._model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions.clamp(min=0),
                past_key_values=cache,
                logits_to_keep=1,
            )
            self._logits = output.logits[:, -1].index_select(0, prompt_of_row)  # [L, V]
            self._cache = rows_from_prompts(cache, prompt_of_row, total)
            self._last = torch.zeros(len(self.rows), dtype=torch.int64, device=device)  # [L] newest tokens
            self._positions = (length - 1 - pad).index_select(0, prompt_of_row)  # [L, 1] of the newest token
            self._mask = self._key_mask(pad[prompt_of_row], total) if any(pads) else None

    def _key_mask(self, pad: Tensor, total: int) -> Tensor:
        """True where a key is no padding: [L, 1, 1, total] for sdpa, [L, total] for any other attention.

        A mask of four dimensions goes to the attention as it is, which saves laying one out every step, but only sdpa
        reads booleans: eager attention would add them to the scores.
        """
        mask = torch.arange(total, device=pad.device)[None, :] >= pad
        is_sdpa = self._model.config.get_text_config()._attn_implementation == "sdpa"
        return mask[:, None, None, :] if is_sdpa else mask

    def _sample_step(self, aborted: set[str]) -> tuple[Tensor, Tensor]:
        """Sample and store a token a live row -> done [L] bool, reasons [L] (index into `_REASONS`)."""
        t = self._num_steps
        tokens, logprobs = sample(self._logits, self._uniforms[self._order, t], self._sampling)
        self._tokens[self._order, t] = tokens
        self._logprobs[self._order, t] = logprobs
        self._last = tokens
        self._num_steps += 1
        reasons = torch.zeros_like(tokens)
        if self._num_steps == self._sampling.max_new_tokens:
            reasons.fill_(_LENGTH)
        if len(self._stops) > 0:
            reasons.masked_fill_(torch.isin(tokens, self._stops), _STOP)
        reasons.masked_fill_(logprobs.isnan(), _INVALID)
        if aborted:
            ids = [self.rows[i].request.id in aborted for i in self._order.tolist()]
            reasons.masked_fill_(torch.tensor(ids, device=tokens.device) & (reasons == 0), _ABORTED)
        return reasons > 0, reasons

    def _take_finished(self, done: Tensor, reasons: Tensor) -> list[Finished]:
        rows = self._order[done]
        if len(rows) == 0:
            return []
        tokens = self._tokens[rows, : self._num_steps].tolist()
        logprobs = self._logprobs[rows, : self._num_steps].tolist()
        finished: list[Finished] = []
        for i, token_ids, values, reason in zip(rows.tolist(), tokens, logprobs, reasons[done].tolist(), strict=True):
            # the token drawn from broken logits is no token of the policy's
            end = -1 if reason == _INVALID else None
            finished.append((self.rows[i], token_ids[:end], values[:end], _REASONS[reason]))
        return finished

    def _compact(self, done: Tensor) -> None:
        """Live rows beyond the new end move into the holes before it."""
        num_live = int((~done).sum())
        holes = done[:num_live].nonzero()[:, 0]
        movers = (~done[num_live:]).nonzero()[:, 0] + num_live
        for layer in self._cache.layers:
            layer.move_rows(movers, holes, num_live)
        for name in ("_order", "_last", "_positions", "_mask"):
            value = getattr(self, name)
            if value is not None:
                value[holes] = value[movers]
                setattr(self, name, value[:num_live])

    def _forward(self) -> None:
        length = self._cache.get_seq_length() + 1
        self._positions = self._positions + 1
        mask = None if self._mask is None else self._mask[..., :length]
        output = self._model(
            input_ids=self._last[:, None],
            attention_mask=mask,
            position_ids=self._positions,
            past_key_values=self._cache,
        )
        self._logits = output.logits[:, -1]


_STOP, _LENGTH, _INVALID, _ABORTED = 1, 2, 3, 4
_REASONS: dict[int, FinishReason] = {_STOP: "stop", _LENGTH: "length", _INVALID: "invalid", _ABORTED: "aborted"}
