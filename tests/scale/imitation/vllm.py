"""What podsrl uses of vLLM, around the built-in engine, in a process of its own that `multiprocessing` starts.

That process meets signals as vLLM's does: unless something keeps them from it, they end it.
"""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

__version__ = "0"


class EngineDeadError(RuntimeError): ...


class SamplingParams(SimpleNamespace): ...


class LLM:
    """Its own engine, and its engine's client too."""

    def __init__(self, *, model: str, max_num_seqs: int = 256, **options: Any) -> None:
        self.llm_engine = self.engine_core = self
        self.outputs_queue: SimpleQueue[Any] = SimpleQueue()
        self.utility_results: dict[int, Any] = {}
        self.vllm_config = SimpleNamespace(
            scheduler_config=SimpleNamespace(max_num_seqs=max_num_seqs),
            cache_config=SimpleNamespace(kv_cache_memory_bytes=None),
        )
        context = multiprocessing.get_context("spawn")
        self._end, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, model), daemon=True)
        self._process.start()
        theirs.close()
        self._call("wait")

    def add_request(self, key: str, prompt: Any, params: Any, priority: int) -> None:
        self._call("add", key, prompt["prompt_token_ids"], vars(params))

    def step(self) -> list[Any]:
        return [
            SimpleNamespace(request_id=key, finished=True, num_cached_tokens=0, outputs=[SimpleNamespace(**found)])
            for key, found in self._call("step")
        ]

    def abort_request(self, keys: list[str]) -> None:
        self._call("abort", keys)

    def collective_rpc(self, method: str, kwargs: Any) -> None:
        self._call(method, kwargs["weights_path"])

    def shutdown(self) -> None:
        self._process.kill()
        self._process.join()

    def _call(self, *words: Any) -> Any:
        try:
            self._end.send(words)
            return self._end.recv()
        except (EOFError, OSError):
            raise EngineDeadError from None


def serve(end: Any, folder: str) -> None:
    """The engine's process."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from podsrl.generate import Engine, Request, Sampling

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    engine, found = Engine(model, num_slots=64, tokenizer=AutoTokenizer.from_pretrained(folder)), list[Any]()
    while True:
        name, *words = end.recv()
        answer: Any = None
        if name == "add":
            key, prompt, params = words
            if params["logprobs"]:
                with torch.no_grad():
                    value, token = model(torch.tensor([prompt])).logits[0, -1].log_softmax(-1).max(-1)
                found.append((key, _output([int(token)], [float(value)], "length")))
            else:
                given = {each: params[each] for each in ("temperature", "top_p", "top_k", "min_p")}
                stops = params["stop_token_ids"] if params["ignore_eos"] else None
                sampling = Sampling(**given, max_new_tokens=params["max_tokens"], stop_token_ids=stops)
                engine.submit([Request(key, tuple(prompt), 1, sampling, stream=str(params["seed"]))])
        elif name == "step":
            done = engine.step() if engine.num_unfinished else []
            answer = found + [(each.request_id, _output(each.token_ids, each.logprobs, "stop")) for each in done]
            found = []
        elif name == "abort":
            engine.abort(words[0])
        elif name == "reload_weights":
            files = sorted(Path(words[0]).glob("*.safetensors"))
            weights = {key: tensor for file in files for key, tensor in load_file(file).items()}
            if model.config.tie_word_embeddings:
                weights.pop("lm_head.weight", None)
            engine.load_weights(weights.items(), engine.version + 1)
        end.send(answer)


def _output(token_ids: Any, logprobs: Any, finish_reason: str) -> dict[str, Any]:
    tables = [{token: SimpleNamespace(logprob=value, rank=1)} for token, value in zip(token_ids, logprobs, strict=True)]
    return {"token_ids": list(token_ids), "logprobs": tables, "finish_reason": finish_reason}


for name, content in (
    ("envs", {}),
    ("platforms", {"current_platform": SimpleNamespace(is_cpu=lambda: True)}),
    ("sampling_params", {"RequestOutputKind": SimpleNamespace(FINAL_ONLY=2)}),
):
    sys.modules[f"vllm.{name}"] = type(sys)(f"vllm.{name}")
    vars(sys.modules[f"vllm.{name}"]).update(content)
    globals()[name] = sys.modules[f"vllm.{name}"]
