"""A server with the routes of vLLM's around the built-in engine: what a client of vLLM meets, without vLLM.

It runs in threads of the test's process, can end and come back under the same address, and can answer wrongly.
"""

from __future__ import annotations

import copy
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from contract import (
    LONG,
    LONG_PROMPT,
    MAX_GAP,
    GeneratorContract,
    Models,
    begin_with_short,
    behind_old_keys,
    drain,
    largest_gap,
    num_tries,
    tables_of,
    temporary,
)
from safetensors.torch import load_file

from podsrl.errors import UsageError
from podsrl.generate import Engine, Generator, Request, Sampling
from podsrl.types import Rollout

Answer = tuple[int, Any]
"""Status, and JSON or bytes."""


class EngineServer:
    """Serves copies of a model, at most `num_slots` rollouts at once, until `die`; `start` brings it back as it was.

    Args:
        model: what a newly started server generates with.
        folder: of the model; the server's name for it.
        is_developer, has_priorities, is_processed, is_on_cpu, is_chunked: how vLLM was started.
        has_labels: it has names for weights, as releases from 0.32 on: podsrl wants them.
        key: that requests have to name.
        alter: (path, body, answer) -> answer, for wrong ones.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        folder: Path,
        *,
        max_model_len: int = 256,
        num_slots: int = 64,
        is_developer: bool = True,
        has_priorities: bool = True,
        is_processed: bool = True,
        has_labels: bool = True,
        is_on_cpu: bool = False,
        is_chunked: bool = False,
        key: str = "",
        alter: Callable[[str, Any, Answer], Answer] = lambda path, body, answer: answer,
    ) -> None:
        self.model, self.tokenizer, self.folder, self.max_model_len = model, tokenizer, folder, max_model_len
        self.num_slots, self.key, self.alter = num_slots, key, alter
        self.is_developer, self.has_priorities, self.is_processed = is_developer, has_priorities, is_processed
        self.has_labels, self.is_on_cpu, self.is_chunked = has_labels, is_on_cpu, is_chunked
        self.cuts: list[int] = []
        """How many bytes of a rollout's answer are sent before the connection ends, for each of the next."""
        self.port = 0
        self.asked: list[tuple[str, Any]] = []
        """Path and body of every request, in order."""
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def bodies(self, path: str) -> list[Any]:
        return [body for asked, body in self.asked if asked == path]

    def start(self) -> None:
        """With the first weights, under the same port as before."""
        model = copy.deepcopy(self.model).double()  # which rollouts meet in a batch is left to chance, and rounds
        self.engine = Engine(model, num_slots=self.num_slots, tokenizer=self.tokenizer)
        self.label, self.is_running = "default", True
        self._found: dict[str, Rollout] = {}
        self._names: dict[str, str] = {}
        self._step = threading.Condition()
        self._http = _Http(("127.0.0.1", self.port), self)
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        threading.Thread(target=self._generate, daemon=True).start()

    def die(self) -> None:
        """As by SIGKILL: open connections are reset, and new ones refused."""
        with self._step:
            self.is_running = False
            self._step.notify_all()
        self._http.shutdown()
        self._http.end()

    def _serves(self, engine: Engine) -> bool:
        """Whether it has not ended since this engine was made."""
        return self.is_running and self.engine is engine

    # --- the routes ---

    def answer(self, path: str, body: Any) -> Answer:
        self.asked.append((path, body))
        route = path.partition("?")[0]
        if route in _DEVELOPER and not self.is_developer:
            return 404, {"detail": "Not Found"}
        if route in ("/weight_info", "/update_weight_version") and not self.has_labels:
            return 404, {"detail": "Not Found"}
        method = getattr(self, "do_" + route.strip("/").replace("/", "_"), None)
        return (404, {"detail": "Not Found"}) if method is None else method(body)

    def do_health(self, body: Any) -> Answer:
        return 200, b""

    def do_version(self, body: Any) -> Answer:
        return 200, {"version": "0.0"}

    def do_v1_models(self, body: Any) -> Answer:
        return 200, {"data": [{"id": str(self.folder), "max_model_len": self.max_model_len}]}

    def do_server_info(self, body: Any) -> Answer:
        scheduler = {"enable_chunked_prefill": self.is_chunked}
        device = "cpu" if self.is_on_cpu else "cuda"
        return 200, {"vllm_config": {"device_config": {"device": device}, "scheduler_config": scheduler}}

    def do_tokenize(self, body: Any) -> Answer:
        return 200, {"tokens": self.tokenizer.encode(body["prompt"], add_special_tokens=body["add_special_tokens"])}

    def do_weight_info(self, body: Any) -> Answer:
        return 200, {"weight_version": self.label}

    def do_update_weight_version(self, body: Any) -> Answer:
        self.label = body["new_version"]
        return 200, {"success": True}

    def do_abort_requests(self, body: Any) -> Answer:
        with self._step:
            ids = [self._names[name] for name in body["request_ids"] or self._names if name in self._names]
            self.engine.abort(ids)
            self._step.notify_all()
        return 200, {"aborted": len(ids)}

    def do_collective_rpc(self, body: Any) -> Answer:
        if body["method"] == "check_health":
            return 200, {"results": [None]}
        assert body["method"] == "reload_weights"
        folder = Path(body["kwargs"]["weights_path"])
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            return 500, {"error": {"message": f"Repo id must be in the form 'repo_name': '{folder}'"}}
        weights = {name: tensor for file in files for name, tensor in load_file(file).items()}
        if self.model.config.tie_word_embeddings:
            weights.pop("lm_head.weight", None)  # comes under both of its names
        with self._step:
            try:
                self.engine.load_weights(weights.items(), self.engine.version + 1)
            except UsageError as error:
                return 500, {"error": {"message": str(error)}}
        return 200, {"results": [None]}

    def do_v1_completions(self, body: Any) -> Answer:
        if body["priority"] and not self.has_priorities:
            return 400, {"error": {"message": "Got priority 1 but Priority scheduling is not enabled."}}
        sampling = Sampling(
            temperature=body["temperature"],
            top_k=body["top_k"],
            top_p=body.get("top_p", 1.0),
            min_p=body.get("min_p", 0.0),
            max_new_tokens=body["max_tokens"],
            stop_token_ids=tuple(body.get("stop_token_ids", ())) if body.get("ignore_eos") else None,
            stop_strings=tuple(body.get("stop", ())),
        )
        name = f"cmpl-{body.get('request_id', id(body))}-0"
        request = Request(f"{body.get('seed', name)}", tuple(body["prompt"]), 1, sampling)
        engine, step, names, done = self.engine, self._step, self._names, self._found
        with step:
            try:
                engine.submit([request])
            except UsageError as error:
                return 400, {"error": {"message": str(error)}}
            names[name] = request.id
            step.notify_all()
            step.wait_for(lambda: request.id in done or not self._serves(engine))
            found = done.pop(request.id, None)
            del names[name]
        if found is None:
            raise ConnectionAbortedError
        logprobs = [value - (not self.is_processed) for value in found.logprobs]
        tops = self._tops(request, found) if body["logprobs"] else None
        return 200, {
            "choices": [
                {
                    "token_ids": list(found.token_ids),
                    "logprobs": {"token_logprobs": logprobs, "top_logprobs": tops},
                    "finish_reason": "abort" if found.is_open else found.finish_reason,
                }
            ]
        }

    def _tops(self, request: Request, found: Rollout) -> list[dict[str, float]]:
        with torch.no_grad(), self._step:
            table = self.engine.model(torch.tensor([request.prompt_ids])).logits[0, -1].log_softmax(-1)
        value, token = table.max(-1)
        return [{f"token_id:{int(token)}": float(value), f"token_id:{found.token_ids[0]}": found.logprobs[0]}]

    def _generate(self) -> None:
        engine, step, found = self.engine, self._step, self._found
        while True:
            with step:
                step.wait_for(lambda: engine.num_unfinished > 0 or not self._serves(engine))
                if not self._serves(engine):
                    return
                done = engine.poll()
                found |= {each.group_id: each for each in done}
                if done:
                    step.notify_all()
            time.sleep(0.001)  # for those who want the lock


_DEVELOPER = ("/collective_rpc", "/abort_requests", "/weight_info", "/update_weight_version", "/server_info")


class _Http(ThreadingHTTPServer):
    daemon_threads = block_on_close = True
    allow_reuse_address = True
    request_queue_size = 512

    def __init__(self, address: tuple[str, int], server: EngineServer) -> None:
        self.owner, self._sockets = server, set[socket.socket]()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._sockets.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._sockets.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None: ...

    def end(self) -> None:
        self.socket.close()
        for each in list(self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 5  # as uvicorn's for idle connections
    server: _Http

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: Any) -> None:
        owner = self.server.owner
        if owner.key and self.path.startswith("/v1") and self.headers["Authorization"] != f"Bearer {owner.key}":
            status, content = 401, {"error": "Unauthorized"}
        else:
            status, content = owner.answer(self.path, body)
        status, content = owner.alter(self.path, body, (status, content))
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        is_cut = bool(owner.cuts) and isinstance(body, dict) and "request_id" in body
        self.wfile.write(data[: owner.cuts.pop(0)] if is_cut else data)
        self.close_connection |= is_cut

    def log_message(self, *args: Any) -> None: ...


class ServerContract(GeneratorContract):
    """A server does not say which token new weights made first: log-probs do."""

    def test_rollouts_that_run_draw_from_new_weights_behind_the_keys_and_values_of_the_old(
        self, generator: Generator, models: Models, needs: Callable[[str], None]
    ) -> None:
        long, before = Request("long", LONG_PROMPT[:20], 4, LONG), generator.version
        for _ in range(num_tries(generator)):
            begin_with_short(generator, long)
            generator.load_weights(temporary(models.second), before + 1)
            try:
                found = list(drain(generator).values())
            finally:
                generator.load_weights(temporary(models.first), before)
            assert {(done.version, done.versions) for done in found} == {(before, ())}
            if all(largest_gap(models.first, long.prompt_ids, done, LONG) > MAX_GAP for done in found):
                break  # none had ended before the new weights came
        for done in found:
            logprobs = torch.tensor(done.logprobs, dtype=torch.float64)
            old = tables_of(models.first, long.prompt_ids, done.token_ids, LONG)
            gaps = (old.gather(1, torch.tensor(done.token_ids)[:, None])[:, 0] - logprobs).abs()
            place = int((gaps > MAX_GAP).nonzero()[0])
            twin = behind_old_keys(models.first, models.second, long.prompt_ids, done.token_ids, place)
            assert 0 < place < 200 and (twin - logprobs).abs().max() < MAX_GAP


@contextmanager
def serving(*args: Any, **options: Any) -> Iterator[EngineServer]:
    """An `EngineServer` that is gone afterwards."""
    server = EngineServer(*args, **options)
    try:
        yield server
    finally:
        if server.is_running:
            server.die()
