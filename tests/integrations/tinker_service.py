"""A small service of Tinker's API, for tests: it trains all weights of a small real model, and samples from it.

Its loss and its optimizer are written here from torch alone; the engine draws the samples. Requests of a model are done
in the order of their numbers, and one that comes again is not done again, as services promise.
"""

from __future__ import annotations

import copy
import json
import queue
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import torch
from tinker.proto import tinker_public_pb2 as wire
from transformers import AutoModelForCausalLM

from podsrl.generate import Engine, Request, Sampling

KEY = "tml-a-key-of-tests"
NAME = "tiny/model"
Fault = Callable[[str, int], Any]
"""(route, how often it was asked, from 1) -> a status to answer, "drop" (done, and no answer), "dead" or None."""


@dataclass
class Model:
    """What one training client trains."""

    module: Any
    optimizer: torch.optim.AdamW
    next_number: int = 1
    waiting: dict[int, Callable[[], Any]] = field(default_factory=dict)


class Service:
    """The service's state, and the thread that works.

    Args:
        folder: of the model.
        tokenizer: what it says that its tokenizer is; "": the folder.
        fault: what goes wrong.
    """

    def __init__(self, folder: str, *, tokenizer: str = "", fault: Fault = lambda route, number: None) -> None:
        self.folder, self.tokenizer, self.fault = folder, tokenizer or folder, fault
        self.counts: Counter[str] = Counter()
        self.models: dict[str, Model] = {}
        self.saved: dict[str, Any] = {}
        self.samplers: dict[str, Any] = {}
        self.results: dict[str, Any] = {}
        self.trained_rows = 0
        self._base = AutoModelForCausalLM.from_pretrained(folder).eval()
        self._events: dict[str, threading.Event] = {}
        self._jobs: queue.Queue[Callable[[], None]] = queue.Queue()
        self._lock = threading.Lock()
        self._sessions = 0
        threading.Thread(target=self._work, daemon=True).start()

    # --- what is asked ---

    def answer(self, route: str, body: Any) -> Any:
        """The answer to a request, as JSON; long work gives a future."""
        known = {
            "healthz": lambda: {"status": "ok"},
            "client/config": lambda: {"use_pyqwest_transport": False},
            "client/dynamic_config": lambda: {},
            "create_session": self._create_session,
            "get_server_capabilities": lambda: {"supported_models": [{"model_name": NAME}]},
            "get_info": lambda: self._info(body["model_id"]),
            "create_model": lambda: self._create(body),
            "forward_backward": lambda: self._ordered(body.model_id, body.seq_id, lambda m: self._backward(m, body)),
            "optim_step": lambda: self._of(body, lambda m: self._optim_step(m, body["adam_params"])),
            "save_weights": lambda: self._of(body, lambda m: self._save(m, body)),
            "load_weights": lambda: self._load(body),
            "save_weights_for_sampler": lambda: self._of(body, lambda m: self._new_sampler(m, body)),
            "asample": lambda: self._sample(body),
        }
        return known[route]() if route in known else {}

    def result(self, name: str, seconds: float) -> Any:
        return self.results.get(name) if self._events[name].wait(seconds) else None

    def _create_session(self) -> Any:
        self._sessions += 1
        return {"session_id": f"session-{id(self)}-{self._sessions}"}

    def _info(self, model_id: str) -> Any:
        return {"model_id": model_id, "model_data": {"model_name": NAME, "tokenizer_id": self.tokenizer}}

    def _create(self, body: Any) -> Any:
        name = f"{body['session_id']}:train:{body['model_seq_id']}"
        return self._later(name, lambda: self._made(name, self._base.state_dict(), None))

    def _load(self, body: Any) -> Any:
        name, path = f"{body['session_id']}:train:{body['model_seq_id']}", body["path"]

        def load() -> Any:
            if path not in self.saved:
                return {"error": f"no weights at {path}", "category": "user"}
            return {**self._made(name, *self.saved[path]), "type": "load_weights", "path": path}

        return self._later(name, load)

    def _made(self, name: str, weights: Any, moments: Any) -> Any:
        module = copy.deepcopy(self._base)
        module.load_state_dict(weights)
        self.models[name] = Model(module, torch.optim.AdamW(module.parameters()))
        if moments is not None:
            self.models[name].optimizer.load_state_dict(copy.deepcopy(moments))
        return {"model_id": name, "type": "create_model"}

    def _sample(self, body: Any) -> Any:
        name, n = f"{body['sampling_session_id']}/{body['seq_id']}", body["num_samples"]
        params = body["sampling_params"]
        ids = [token for chunk in body["prompt"]["chunks"] for token in chunk["tokens"]]
        sampling = Sampling(
            temperature=params["temperature"],
            top_p=params["top_p"],
            top_k=max(0, params["top_k"]),
            max_new_tokens=params["max_tokens"],
            stop_token_ids=tuple(params["stop"]),
        )
        sampler, request = self.samplers[body["sampling_session_id"]], Request(str(params["seed"]), ids, n, sampling)
        future = self._later(name, lambda: self._draw(sampler, request))
        return {**future, "sample_sequence_ids": [f"{name}/{i}" for i in range(n)]}

    def _of(self, body: Any, work: Callable[[Model], Any]) -> Any:
        return self._ordered(body["model_id"], body["seq_id"], work)

    def _ordered(self, model_id: str, number: int, work: Callable[[Model], Any]) -> Any:
        """Work on a model, after all that has smaller numbers; once, however often it is asked."""
        name = f"{model_id}#{number}"
        with self._lock:
            if name not in self._events:
                self._events[name] = threading.Event()
                model = self.models[model_id]
                model.waiting[number] = lambda: self._finish(name, lambda: work(model))
                while model.next_number in model.waiting:
                    self._jobs.put(model.waiting.pop(model.next_number))
                    model.next_number += 1
        return {"request_id": name, "model_id": model_id}

    def _later(self, name: str, work: Callable[[], Any]) -> Any:
        with self._lock:
            if name not in self._events:
                self._events[name] = threading.Event()
                self._jobs.put(lambda: self._finish(name, work))
        return {"request_id": name}

    # --- what is done, by one thread ---

    def _work(self) -> None:
        while True:
            self._jobs.get()()

    def _draw(self, sampler: Any, request: Request) -> bytes:
        """The completions of one request: beside others, the last bits of log-probs would depend on when these come."""
        found = wire.SampleResponse()
        for done in sorted(Engine(sampler, seed=0).generate([request]), key=lambda each: each.index):
            found.sequences.add(
                stop_reason=wire.STOP_REASON_STOP if done.finish_reason == "stop" else wire.STOP_REASON_LENGTH,
                tokens=np.array(done.token_ids, np.int32).tobytes(),
                logprobs=np.array(done.logprobs, np.float32).tobytes(),
            )
        return bytes(found.SerializeToString())

    def _finish(self, name: str, work: Callable[[], Any]) -> None:
        try:
            self.results[name] = work()
        except Exception as error:  # a fault of this service; its thread goes on
            self.results[name] = {"error": repr(error), "category": "server"}
        self._events[name].set()

    def _backward(self, model: Model, body: Any) -> bytes:
        found = wire.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
        record = found.loss_fn_outputs.add(num_datums=len(body.data))
        self.trained_rows += len(body.data)
        bounds = {name: value.number for name, value in body.loss_fn_config_v2.items()}
        per_row = []
        for datum in body.data:
            ids = np.concatenate([np.frombuffer(chunk.encoded_text.tokens, np.int32) for chunk in datum.model_input])
            inputs = {name: _tensor(value) for name, value in datum.loss_fn_inputs.items()}
            logits = model.module(torch.tensor(ids[None].astype(np.int64))).logits[0]
            logprobs = logits.log_softmax(-1).gather(-1, inputs["target_tokens"][:, None])[:, 0]
            loss = token_losses(body.loss_fn, logprobs, inputs["logprobs"], inputs["advantages"], bounds).sum()
            loss.backward()
            per_row.append(logprobs.detach().numpy())
        record.fields["logprobs"].CopyFrom(
            wire.BatchedTensor(
                dtype=wire.DTYPE_FLOAT32,
                data=np.concatenate(per_row).astype(np.float32).tobytes(),
                offsets=np.cumsum([0, *(4 * len(row) for row in per_row)], dtype=np.int64).tobytes(),
            )
        )
        return bytes(found.SerializeToString())

    def _optim_step(self, model: Model, params: Any) -> Any:
        for group in model.optimizer.param_groups:
            group["lr"], group["betas"] = params["learning_rate"], (params["beta1"], params["beta2"])
            group["eps"], group["weight_decay"] = params["eps"], params["weight_decay"]
        most = params["grad_clip_norm"] or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(model.module.parameters(), most)
        model.optimizer.step()
        model.optimizer.zero_grad()
        return {"metrics": {"grad_norm:mean": float(norm)}}

    def _save(self, model: Model, body: Any) -> Any:
        path = f"tinker://{body['model_id']}/weights/{body['path']}"
        self.saved[path] = copy.deepcopy((model.module.state_dict(), model.optimizer.state_dict()))
        return {"path": path, "type": "save_weights"}

    def _new_sampler(self, model: Model, body: Any) -> Any:
        name = f"{body['model_id']}:sample:{body['seq_id']}"
        self.samplers[name] = copy.deepcopy(model.module).eval()
        return {"sampling_session_id": name, "type": "save_weights_for_sampler"}


def token_losses(
    name: str, logprobs: torch.Tensor, drawn: torch.Tensor, advantages: torch.Tensor, bounds: dict[str, float]
) -> torch.Tensor:
    """The losses of the API's documentation."""
    ratios = (logprobs - drawn).exp()
    if name == "importance_sampling":
        return -ratios * advantages
    bounded = ratios.clamp(bounds["clip_low_threshold"], bounds["clip_high_threshold"])
    if name == "cispo":
        return -bounded.detach() * logprobs * advantages
    assert name == "ppo"
    return -torch.minimum(ratios * advantages, bounded * advantages)


def _tensor(value: Any) -> torch.Tensor:
    kind = np.int64 if value.dtype == wire.DTYPE_INT64 else np.float32
    return torch.tensor(np.frombuffer(value.dense, kind).copy())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: Service

    def do_GET(self) -> None:
        self._do(b"")

    def do_POST(self) -> None:
        self._do(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def log_message(self, format: str, *args: Any) -> None:
        """No line per request."""

    def _do(self, content: bytes) -> None:
        route, service = self.path.removeprefix("/api/v1/"), self.service
        service.counts[route] += 1
        fault = service.fault(route, service.counts[route])
        if fault == "dead":
            self.close_connection = True
            return
        if isinstance(fault, int):
            self._send(fault, json.dumps({"detail": f"status {fault}"}).encode())
            return
        if route != "healthz" and self.headers.get("X-API-Key") != KEY:
            self._send(401, b'{"detail": "no such key"}')
            return
        if route == "retrieve_future":
            self._send_result(json.loads(content)["request_id"])
            return
        is_wire = self.headers.get("Content-Type", "") == "application/x-protobuf"
        body = wire.ForwardBackwardRequest.FromString(content) if is_wire else json.loads(content or b"{}")
        answer = service.answer(route, body)
        if fault == "drop":
            service.result(answer["request_id"], 20.0)
            self.close_connection = True
            return
        self._send(200, json.dumps(answer).encode())

    def _send_result(self, name: str) -> None:
        found = self.service.result(name, 20.0)
        if found is None:
            found = {"type": "try_again", "request_id": name, "queue_state": "active"}
        if isinstance(found, bytes):
            self._send(200, found, "application/x-protobuf")
        else:
            self._send(200, json.dumps(found).encode())

    def _send(self, status: int, content: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serving(service: Service, port: int = 0) -> Iterator[str]:
    """Let it answer on this machine; gives its address."""
    handler = type("Handler", (_Handler,), {"service": service})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    with serving(Service(sys.argv[1]), int(sys.argv[2])) as address:
        print(address, flush=True)
        threading.Event().wait()
