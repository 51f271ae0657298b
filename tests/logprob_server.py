"""A server that answers several prompts in one request of `/v1/completions`, with log-probs, as vLLM and SGLang do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from engine_server import Answer, EngineServer


class LogprobServer(EngineServer):
    """Each token by a whole forward pass of the model, in the model's own number format."""

    form = "ids"
    """How drawn tokens are named: "ids", "token_id" (older vLLM) or "texts" (older SGLang)."""

    def do_v1_completions(self, body: Any) -> Answer:
        draw = torch.Generator().manual_seed(body["seed"])
        choices = [self._choice(index, text, body, draw) for index, text in enumerate(body["prompt"])]
        num_read = sum(len(self.tokenizer(text)["input_ids"]) for text in body["prompt"])
        return 200, {"choices": choices[::-1], "usage": {"prompt_tokens": num_read}}

    def _choice(self, index: int, text: str, body: Any, draw: torch.Generator) -> dict[str, Any]:
        prompt = self.tokenizer(text)["input_ids"]
        ids, logprobs = list(prompt), []
        for _ in range(body["max_tokens"]):
            with torch.no_grad():
                table = self.model(torch.tensor([ids])).logits[0, -1].float().log_softmax(-1)
            is_greedy = body["temperature"] == 0
            token = int(table.argmax() if is_greedy else torch.multinomial(table.exp(), 1, generator=draw))
            ids.append(token)
            logprobs.append(float(table[token]))
        drawn = ids[len(prompt) :]
        by_id = self.form == "token_id"
        tokens = [f"token_id:{token}" if by_id else self.tokenizer.decode([token]) for token in drawn]
        choice = {"index": index, "logprobs": {"tokens": tokens, "token_logprobs": logprobs}}
        return choice | ({"token_ids": drawn, "prompt_token_ids": prompt} if self.form == "ids" else {})


@contextmanager
def logprob_server(model: Any, tokenizer: Any, form: str = "ids", **options: Any) -> Iterator[LogprobServer]:
    """A server that is gone afterwards."""
    server = LogprobServer(model, tokenizer, Path("policy"), **options)
    server.form = form
    try:
        yield server
    finally:
        server.die()
