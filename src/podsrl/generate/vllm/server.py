"""A vLLM server that runs already, as a generator: rollouts over HTTP, weights by a folder that both sides see."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, nullcontext
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

import torch

from podsrl.errors import LostGenerator, PodsError, UnavailableError, UsageError, short
from podsrl.generate.base import EngineStats, Generator, Request, Setting
from podsrl.generate.vllm.checks import (
    check_model,
    check_server,
    is_abort,
    read_choice,
    server_command,
    vocabulary_size,
    weights_name,
)
from podsrl.generate.vllm.handover import DEFAULT_FOLDER, RUN, FolderStore, ServerLock, WeightFolder
from podsrl.generate.vllm.link import Link, Refused, Unreachable
from podsrl.generate.vllm.order import Priorities
from podsrl.generate.vllm.sampling import (
    check_requests,
    drawn_prompt,
    new_cache_salt,
    new_completion,
    num_drawn,
    rollout_options,
)
from podsrl.generate.vllm.workers import Job, Workers
from podsrl.lib.watch import Key, Watch
from podsrl.types import Rollout

MAX_OPEN = 256
"""Requests at once where `rollouts.num_slots` does not say."""
NUM_TRIES = 4
"""Of a request that a server answers with an error of its own while it is there."""
ABORT_SECONDS = 10.0
"""How long `abort` asks for the same rollouts again: a server may not have read their requests yet."""


class VLLMServer(Generator):
    """Generates on one server, whose weights are this run's alone: a member of a pool, whose store is a `FolderStore`.

    One that does not answer any more, or does not hold the weights that it was given since it has restarted, is lost.
    The pool makes it anew: the server is checked again and gets the newest weights.

    Args:
        setting: of the run.
        url: "http://HOST:PORT".
        folder: a folder that the server sees under the same path; it holds one copy of the weights.
        retry_seconds: how long a lost server may be away before the run ends, above 0.
        timeout_seconds: longest time that a server may take for one rollout, from the request to the last byte of the
            answer, with its time in the server's queue.
        key_from: environment variable that holds the server's API key; "": none.

    Raises:
        UnavailableError: nothing answers there.
        UsageError: the server was started in another way than a run needs, has another model, or is another run's.
    """

    abilities = frozenset({"join", "start", "abort_rollouts", "partial", "load", "beside", "proof"})

    def __init__(
        self,
        setting: Setting,
        *,
        url: str,
        folder: str = DEFAULT_FOLDER,
        retry_seconds: float = 300.0,
        timeout_seconds: float = 1800.0,
        key_from: str = "",
    ) -> None:
        self.version = 0
        self.on_event: Callable[[], None] = lambda: None
        """Called from any thread when `poll` has something new."""
        self._setting, self._folder = setting, folder
        self._seed, self._retry_seconds, self._timeout_seconds = setting.seed, retry_seconds, timeout_seconds
        self._vocabulary = vocabulary_size(setting)
        self._num_slots = setting.num_slots or MAX_OPEN
        self._priorities = Priorities(setting.scheduler)
        self._stats, self._names = EngineStats(), count()
        self._salt, self._num_failures = new_cache_salt(), 0
        self._label = ""  # the weights' name on the server
        self._loading = threading.Lock()  # held while the server's weights and their name change
        self._jobs: dict[Key, Job] = {}  # those that `poll` has not given yet
        self._results: SimpleQueue[tuple[Job, Rollout | BaseException]] = SimpleQueue()
        self._link = Link(url, key_from=key_from, timeout_seconds=timeout_seconds)
        self._workers = Workers(self._complete, self._tell, self._num_slots)
        self._lock: ServerLock | None = None
        try:
            self.facts = check_server(self._link)
            self._label = self.facts.weights
            check_model(self._link, self.facts, setting)
            self._lock = ServerLock(folder, url)
            with closing(WeightFolder(folder)) as empty:
                self._check_folder(empty.write(()))
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The server's address."""
        return self._link.url

    @property
    def stats(self) -> EngineStats:
        """Counts of completions that were read; `slots_used` are requests that were open at once."""
        self._stats.slots_used = max(self._stats.slots_used, self._workers.most_running)
        return self._stats

    @stats.setter
    def stats(self, stats: EngineStats) -> None:
        self._stats, self._workers.most_running = stats, 0

    @property
    def num_unfinished(self) -> int:  # type: ignore[override]
        """Rollouts that were submitted and not given by `poll`."""
        return len(self._jobs)

    def submit(self, requests: Iterable[Request], *, watch: Watch | None = None) -> None:
        """Ask for these, as soon as fewer than `rollouts.num_slots` requests are open.

        Raises:
            UsageError: a request that the server cannot answer.
            LostGenerator: nothing runs, and the server does not answer any more, or has restarted.
        """
        wanted = list(requests)
        self._check(wanted, running=self._jobs, watch=watch)
        if not self._jobs:
            self._check_weights()
        priorities = self._priorities.of(wanted)
        jobs = [Job(each, index, priorities[each.id, index]) for each in wanted for index in each.indices]
        self._jobs |= {job.key: job for job in jobs}
        self._workers.submit(jobs)

    def poll(self, seconds: float | None = None) -> Sequence[Rollout]:
        """Wait until a rollout has ended.

        Raises:
            LostGenerator: the server does not answer any more, or has restarted.
            PodsError: it answers with an error, or with what is no completion.
        """
        found: list[Rollout] = []
        while self._jobs:
            try:
                job, result = self._results.get(timeout=0 if found else seconds)
            except Empty:
                break
            if self._jobs.get(job.key) is not job:  # it was given up with what was lost
                continue
            if isinstance(result, BaseException):
                given_up = set(self._jobs.values())
                self._jobs.clear()
                self._abort(given_up.__contains__)
                raise result
            del self._jobs[job.key]
            num_read = len(drawn_prompt(job.request, job.index))
            if num_tokens := len(job.request.prompt_ids) + len(result.token_ids) - num_read:
                self._stats.tokens += num_tokens
                self._stats.forwarded += num_tokens
                self._stats.prompt_tokens += num_read
            found.append(result)
        return found

    def abort(self, ids: Iterable[str | Key]) -> None:
        wanted = set(ids)
        if wanted:
            self._abort(lambda job: job.request.id in wanted or job.key in wanted)

    def load_weights(self, named_tensors: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Sample from these weights from now on.

        What runs goes on behind the keys and values that it has. No answer says which of its tokens the new weights
        made, so all are stamped with the version under which the server was asked.

        Raises:
            LostGenerator: the server does not answer any more, or takes no weights.
            PodsError: the weights cannot be written.
        """
        with closing(FolderStore(self._setting, folder=self._folder)) as store:
            store.put(named_tensors, version)
            store.give(self)

    def load_folder(self, folder: str, version: int) -> None:
        """As `load_weights`, from a folder of safetensors files."""
        with self._loading:
            self._label = f"podsrl-{RUN}-{version}-{next(self._names)}"
            try:
                self._link.ask("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": folder}})
                self._link.ask("/update_weight_version", {"new_version": self._label}, timeout_seconds=60)
            except (Unreachable, Refused) as error:
                raise self._lost(error, is_final=isinstance(error, Refused)) from error
            self.version, self._salt = version, new_cache_salt()

    def describe(self, requests: Sequence[Request]) -> str:
        self._check(requests)
        return f"vLLM {self.facts.version} server at {self.url}, {self._num_slots} requests at once"

    def first_logprob(self, prompt_ids: Sequence[int]) -> tuple[int, float]:
        body = self._body(Request("first", tuple(prompt_ids)), 0, 0)
        body |= {"temperature": 1.0, "max_tokens": 1, "logprobs": 1, "return_tokens_as_token_ids": True}
        self._check_weights()
        answer = self._ask(lambda: body)
        try:
            found = answer["choices"][0]["logprobs"]["top_logprobs"][0]
            text, value = max(found.items(), key=lambda item: item[1])
            return int(text.removeprefix("token_id:")), float(value)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise PodsError(f"the server at {self.url} gives no log-prob of a prompt: {short(answer)}") from error

    def close(self) -> None:
        """Abort what runs and give the server back."""
        if self._lock is not None:
            self._abort(lambda job: True, seconds=1.0)
        self._workers.close()
        self._link.close()
        if self._lock is not None:
            self._lock.close()

    # --- rollouts ---

    def _check(self, requests: Sequence[Request], **running: Any) -> None:
        cure = f"start the server at {self.url} with a larger --max-model-len"
        check_requests(requests, self.facts.max_model_len, cure, **running)

    def _tell(self, job: Job, result: Rollout | BaseException) -> None:
        self._results.put((job, result))
        self.on_event()

    def _complete(self, job: Job) -> Rollout:
        request, index = job.request, job.index

        def body() -> dict[str, Any]:
            with self._loading:
                job.name, job.version = f"podsrl-{RUN}-{next(self._names)}", self.version
                return self._body(request, index, job.priority) | {"request_id": job.name}

        answer = self._ask(body, job)
        if answer is None:
            return new_completion(request, index, (), (), None, self.version)
        try:
            found = read_choice(answer, num_drawn(request, index), self._vocabulary)
        except ValueError as error:
            raise PodsError(
                f"the server at {self.url} answers rollout {index} of {request.id!r} with {error}; see its log"
            ) from error
        return new_completion(request, index, *found, job.version)

    def _ask(self, new_body: Callable[[], dict[str, Any]], job: Job | None = None) -> Any:
        """Ask `/v1/completions` until an answer comes whole from the newest weights; None: the job is aborted.

        A server that is still there, with the run's weights, is asked again.
        """
        num_tries, since = 0, time.monotonic()

        def is_aborted() -> bool:
            return job is not None and job.is_aborted

        while True:
            num_failures, body = self._num_failures, new_body()
            try:
                if is_aborted():
                    return None
                answer = self._link.ask("/v1/completions", body) or {}
                if is_abort(answer) and not is_aborted():
                    raise Unreachable(f"{self.url} has aborted a rollout, as a server that is told to end does")
                if num_failures != self._num_failures:  # it may have restarted, and this be of older weights
                    self._check_weights(Unreachable("another request has failed"))
                return answer
            except (Unreachable, Refused) as error:
                num_tries += 1
                self._num_failures += 1
                if isinstance(error, Refused) and (error.status != 500 or num_tries >= NUM_TRIES):
                    raise PodsError(f"the server at {self.url} answers a request with {error}") from error
                if is_aborted():
                    return None
                if num_tries >= NUM_TRIES and time.monotonic() - since > self._retry_seconds:
                    raise self._lost(error) from error
                time.sleep(0.1 * num_tries)
                self._check_weights(error)
            finally:
                if job is not None:
                    job.name = ""

    def _body(self, request: Request, index: int, priority: int) -> dict[str, Any]:
        """Of `/v1/completions`. What it leaves out would be taken from the model's generation config."""
        return {
            "model": self.facts.model,
            "prompt": drawn_prompt(request, index),
            "priority": priority,
            "cache_salt": self._salt,
            "return_token_ids": True,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            **rollout_options(request, index, self._seed),
        }

    def _check_weights(self, failure: Exception | None = None) -> None:
        """Ask the server for the name of its weights.

        Raises:
            LostGenerator: it does not answer, or has restarted.
            PodsError: another run has given it weights.
        """
        for waiting in (nullcontext(), self._loading):  # its weights may just have changed
            with waiting:
                try:
                    label = weights_name(self._link)
                except (Unreachable, Refused) as error:
                    raise self._lost(failure or error) from error
                if label == self._label:
                    return
        if label.startswith("podsrl-") and not label.startswith(f"podsrl-{RUN}-"):
            raise PodsError(
                f"another run has given its weights to the server at {self.url}; one server has the weights of one "
                "run: start a second server"
            )
        raise self._lost("it has restarted")

    def _check_folder(self, empty: str) -> None:
        """Let the server load a folder with a file without tensors, which changes nothing: it has to see it.

        Raises:
            UsageError: it does not.
            UnavailableError: it does not answer any more.
        """
        kwargs = {"weights_path": empty, "is_checkpoint_format": False}
        try:
            self._link.ask("/collective_rpc", {"method": "reload_weights", "kwargs": kwargs})
        except Refused as error:
            raise UsageError(
                f"options.vllm.folder: the server at {self.url} cannot read what this run writes there ({error}); "
                "wanted a folder that both see under the same path, as the same user"
            ) from error
        except Unreachable as error:
            raise UnavailableError(f"the server at {self.url} does not answer any more ({error})") from error

    def _lost(self, why: object, *, is_final: bool = False) -> LostGenerator:
        command = server_command(self.url, self._setting.folder, self.facts.max_model_len)
        return LostGenerator(
            f"the vLLM server at {self.url} is lost after options.vllm.retry_seconds = {self._retry_seconds:g}: {why}; "
            f"start it again, then resume the run: {command}",
            is_final=is_final,
            retry_seconds=self._retry_seconds,
        )

    def _abort(self, wanted: Callable[[Job], bool], seconds: float = ABORT_SECONDS) -> None:
        """End jobs; returns when none of them runs any more, or after so many seconds."""
        waited, running = self._workers.abort(wanted)
        for job in waited:
            self._tell(job, new_completion(job.request, job.index, (), (), None, self.version))
        deadline = time.monotonic() + seconds
        while names := [f"cmpl-{job.name}-0" for job in running if job.name and not job.is_done]:
            try:
                self._link.ask("/abort_requests", {"request_ids": names}, timeout_seconds=seconds)  # [] would abort all
            except (Unreachable, Refused):
                return  # they end when the server answers again
            if self._workers.wait(lambda: all(job.is_done for job in running), 0.1) or time.monotonic() > deadline:
                return
