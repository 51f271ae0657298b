"""What lives elsewhere: a generator on a model of its own.

`Worker` knows nothing of the process it lives in (`child.py`). Its model is built from the model's config, without
reading weights: they come by `load_weights`.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import torch
from torch import nn

from podsrl.config.schema import ModelConfig
from podsrl.control import Steering
from podsrl.errors import UsageError
from podsrl.generate import (
    Engine,
    EngineStats,
    Generator,
    Request,
    Setting,
    Watch,
    abilities_of,
    begin,
    resolve_generator,
)
from podsrl.generate.vllm.generator import VLLM
from podsrl.lib.devices import avoid_cudnn_attention, default_bound
from podsrl.lib.machine import configure_threads
from podsrl.lib.matmul import use
from podsrl.policy import load_tokenizer
from podsrl.records import encode_completions
from podsrl.scale.generators.model import check_carried, new_model
from podsrl.scale.generators.weights import Table, tensors_in
from podsrl.sync.digest import Samples, weights_digest
from podsrl.sync.in_process import sync_weights
from podsrl.types import Completion

Ids = Iterable[str | tuple[str, int]]
_LIVE = ("load_model", "tokenizer")
"""Fields of a setting that the worker makes itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """What a worker is made from: plain values throughout."""

    generator: str
    """`rollouts.generator`."""
    options: dict[str, Any]
    """`[options.NAME]` of it."""
    setting: dict[str, Any]
    """Fields of `Setting`, without those that a worker makes itself."""
    model: dict[str, Any]
    """The section `[model]`, for tokenizer and code."""
    description: dict[str, Any]
    """The model's own config, as transformers writes it, and its attention kernel."""
    parameters: list[list[Any]]
    """Name, dtype and shape of every weight."""
    buffers: str
    """`weights_digest` of the tensors that are no weights, which the worker computes anew."""
    vocabulary: str
    """Digest of the tokenizer's tokens."""
    threads: int
    """The config's, 0: as `configure_threads` chooses."""
    num_workers_here: int
    """Workers that share this machine's cores."""
    is_sharing_gpu: bool = False
    """The update has the same GPU: memory is given back after each call."""

    @staticmethod
    def of(
        model: Any,
        tokenizer: Any,
        setting: Setting,
        *,
        generator: str,
        options: Mapping[str, Any],
        config: ModelConfig,
        threads: int,
        num_workers_here: int,
        is_sharing_gpu: bool = False,
    ) -> Blueprint:
        """The blueprint of a worker that samples from this model, as `setting` says.

        Raises:
            UsageError: the model has saved tensors that are no weights: a worker could not follow them.
        """
        check_carried(model)
        plain = {name: getattr(setting, name) for name in Setting.__dataclass_fields__ if name not in _LIVE}
        description = json.loads(model.config.to_json_string(use_diff=False))
        description["_attn_implementation"] = model.config._attn_implementation
        return Blueprint(
            generator=generator,
            options=dict(options),
            setting=plain,
            model=config.model_dump(mode="json"),
            description=description,
            parameters=_parameters(model),
            buffers=weights_digest(model.named_buffers()),
            vocabulary=_vocabulary(tokenizer),
            threads=threads,
            num_workers_here=num_workers_here,
            is_sharing_gpu=is_sharing_gpu,
        )


class Worker:
    """A generator in a process of its own.

    Args:
        blueprint: says all that there is to know.

    Raises:
        UsageError: the generator cannot be made; the model cannot be built from its config alone; the tokenizer of
            `model.path` is another than the run's.
    """

    def __init__(self, blueprint: Blueprint) -> None:
        self._blueprint = blueprint
        setting, self._config = blueprint.setting, ModelConfig(**blueprint.model)
        self._device = torch.device(setting["device"])
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)
        avoid_cudnn_attention(self._device)
        sizes = {name: prod(shape) for name, _, shape in blueprint.parameters}
        configure_threads(blueprint.threads, sum(sizes.values()), blueprint.num_workers_here)
        if self._device.type == "cuda" and setting["kv_cache_bytes"] is None:
            weight_bytes = sum(sizes[name] * getattr(torch, dtype).itemsize for name, dtype, _ in blueprint.parameters)
            setting = setting | {"kv_cache_bytes": default_bound(self._device, weight_bytes)}
        tokenizer = load_tokenizer(self._config)
        if _vocabulary(tokenizer) != blueprint.vocabulary:
            raise UsageError(
                f"scale.generators: the run's tokenizer is another than that of model.path = {self._config.path!r}, "
                "which generators in processes of their own read: give a folder that holds both model and tokenizer"
            )
        kind = resolve_generator(blueprint.generator, {blueprint.generator: blueprint.options})
        self._generator: Generator = kind.make(Setting(**setting, load_model=self._build, tokenizer=tokenizer))
        self._aborted: deque[tuple[int, list[Any]]] = deque()

    def facts(self) -> dict[str, Any]:
        """What the generator can do, as JSON."""
        return {"abilities": sorted(abilities_of(self._generator))}

    def generate(self, requests: list[Request], call: int = 0, watch: bytes = b"") -> Iterator[bytes]:
        """Yield completions (`decode_completions`), those that finish together in one piece.

        Args:
            requests: what is wanted.
            call: its number, larger than those of the calls before it: what `abort` was told of those is dropped.
            watch: from `packed`; its parts are made for this call.

        Raises:
            UsageError: a part of the watch cannot be made here.
        """
        self._generator.stats, self._generator.peak_kv_bytes = EngineStats(), 0
        try:
            for found in self._found(requests, Steering.unpack(watch) if watch else None):
                if found:
                    yield encode_completions(found)
                while self._aborted and self._aborted[0][0] <= call:
                    of_call, ids = self._aborted.popleft()
                    if of_call == call:
                        self._generator.abort(ids)
        finally:
            if self._blueprint.is_sharing_gpu:
                torch.cuda.empty_cache()

    def abort(self, ids: Ids, call: int = 0) -> None:
        """As `Generator.abort`, from any thread, also before the call of `generate` with this number begins."""
        self._aborted.append((call, [each if isinstance(each, str) else (each[0], each[1]) for each in ids]))

    def load_weights(self, table: Table, data: Any) -> str:
        """Sample from these weights from now on.

        Args:
            table: of `data`.
            data: the tensors' bytes: bytes, a mapping, or an array of uint8. They are copied.

        Returns:
            `weights_digest` of what arrived.

        Raises:
            SyncError: the generator does not hold, bit for bit, what arrived.
        """
        use(table["matmul"])
        named = dict(tensors_in(table, data))
        sync_weights(iter(named.items()), self._generator, table["version"])
        return Samples(named.items()).digest()

    def counts(self) -> dict[str, Any]:
        """Of the last call of `generate`: "stats" and "peak_kv_bytes"."""
        return {"stats": asdict(self._generator.stats), "peak_kv_bytes": self._generator.peak_kv_bytes}

    def describe(self, requests: Sequence[Request]) -> str:
        return self._generator.describe(requests)

    def first_logprob(self, prompt_ids: Sequence[int]) -> tuple[int, float]:
        return self._generator.first_logprob(prompt_ids)

    def close(self) -> None:
        self._generator.close()

    def _found(self, requests: list[Request], watch: Watch | None) -> Iterator[list[Completion]]:
        """What finishes, and, from a generator that works in steps, control after each of them."""
        if not isinstance(self._generator, (Engine, VLLM)):
            yield from ([completion] for completion in begin(self._generator, requests, watch))
            return
        try:
            self._generator.submit(requests)
            while self._generator.num_unfinished:
                yield self._generator.step(watch)
        finally:
            if self._generator.num_unfinished:  # the call has ended early: nothing of it may come with the next one
                self._generator.abort([request.id for request in requests])
                self._generator.step()

    def _build(self) -> Any:
        """The module, with random weights."""
        blueprint = self._blueprint
        model = new_model(blueprint.description, self._config, self._device, blueprint.setting["dtype"])
        cure = "generators in processes of their own build the model from its config: use scale.generators = 0"
        check_carried(model)
        found, wanted = _parameters(model), blueprint.parameters
        if found != wanted:
            name = next(one[0] for one in [*found, *wanted] if one not in found or one not in wanted)
            raise UsageError(f"scale.generators: the weight {name} is not as the run's model has it; {cure}")
        if weights_digest(model.named_buffers()) != blueprint.buffers:
            raise UsageError(f"scale.generators: buffers of {type(model).__name__} are not those of the run; {cure}")
        return model


def packed(watch: Watch | None) -> bytes:
    """A watch as bytes, for `Worker.generate`; empty for none.

    Raises:
        UsageError: its parts have no names by which another process could make them, or a state that cannot be sent.
    """
    if watch is None:
        return b""
    if not isinstance(watch, Steering):
        raise UsageError(
            f"a {type(watch).__name__} cannot watch a generator in another process: wanted a podsrl.control.Steering, "
            "whose parts have names"
        )
    return watch.pack()


def _parameters(model: nn.Module) -> list[list[Any]]:
    named = model.named_parameters()
    return [[name, str(weight.dtype).removeprefix("torch."), list(weight.shape)] for name, weight in named]


def _vocabulary(tokenizer: Any) -> str:
    content = json.dumps(sorted(tokenizer.get_vocab().items()))
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
