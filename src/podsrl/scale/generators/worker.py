"""What lives elsewhere: a generator on a model of its own.

`Worker` knows nothing of the process it lives in (`child.py`). Its model is built from the model's config, without
reading weights: they come by `load_weights`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import torch
from torch import nn

from podsrl.config.schema import ModelConfig
from podsrl.control import Steering
from podsrl.errors import UsageError
from podsrl.generate import (
    EngineStats,
    Generator,
    Request,
    Setting,
    Verbs,
    Watch,
    abilities_of,
    resolve_generator,
    verbs_of,
)
from podsrl.lib.devices import avoid_cudnn_attention, default_bound
from podsrl.lib.machine import configure_threads
from podsrl.lib.matmul import use
from podsrl.lib.watch import Key
from podsrl.policy import load_tokenizer
from podsrl.scale.generators.model import check_carried, new_model
from podsrl.scale.generators.weights import Table, tensors_in
from podsrl.sync.digest import Samples, weights_digest
from podsrl.sync.in_process import sync_weights
from podsrl.types import Rollout

_LIVE = ("load_model", "tokenizer")
"""Fields of a setting that the worker makes itself."""
_POLL_SECONDS = 0.02
"""For which a generator that works by itself may keep messages waiting."""


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
        self._verbs: Verbs = verbs_of(self._generator)
        self._watch: Watch | None = None
        self.counts()

    @property
    def num_unfinished(self) -> int:
        """Of the generator."""
        return self._verbs.num_unfinished

    def facts(self) -> dict[str, Any]:
        """What the generator can do, as JSON."""
        return {"abilities": sorted(abilities_of(self._generator))}

    def submit(self, requests: list[Request], watch: bytes | None = None) -> None:
        """Start these.

        Args:
            requests: what is wanted.
            watch: from `packed`, whose parts are made now; empty: that of what runs; None: none.

        Raises:
            UsageError: a part of the watch cannot be made here; or as of the generator.
        """
        if watch != b"":
            self._watch = None if watch is None else Steering.unpack(watch)
        self._verbs.submit(requests, watch=self._watch)

    def poll(self) -> Sequence[Rollout]:
        """What has ended with one more token of every rollout; nothing is unfinished after an error of a user's own."""
        try:
            found = self._verbs.poll(_POLL_SECONDS)
        except BaseException:
            self._verbs = verbs_of(self._generator)
            raise
        if self._blueprint.is_sharing_gpu and not self.num_unfinished:
            torch.cuda.empty_cache()
        return found

    def abort(self, ids: Iterable[str | Key]) -> None:
        self._verbs.abort(ids)

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
        """Since the last call: "stats" and "peak_kv_bytes"."""
        found = {"stats": asdict(self._generator.stats), "peak_kv_bytes": self._generator.peak_kv_bytes}
        self._generator.stats, self._generator.peak_kv_bytes = EngineStats(), 0
        return found

    def describe(self, requests: Sequence[Request]) -> str:
        return self._generator.describe(requests)

    def first_logprob(self, prompt_ids: Sequence[int]) -> tuple[int, float]:
        return self._generator.first_logprob(prompt_ids)

    def close(self) -> None:
        self._generator.close()

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


def packed(watch: Watch) -> bytes:
    """A watch as bytes, for `Worker.submit`.

    Raises:
        UsageError: its parts have no names by which another process could make them, or a state that cannot be sent.
    """
    if not isinstance(watch, Steering):
        raise UsageError(
            f"a {type(watch).__name__} cannot watch a generator in another process: wanted a podsrl.control.Steering, "
            "whose parts have names"
        )
    return watch.pack()


def check_submit(
    requests: Iterable[Request], running: Collection[Key], watch: Watch | None, own_watch: Watch | None
) -> set[Key]:
    """The rollouts of these requests, beside those that run, which have the watch `own_watch`.

    Raises:
        UsageError: one of them runs already, or is asked for twice; or it would have another watch.
    """
    if running and watch is not own_watch:
        raise UsageError(f"submit with another watch than that of the {len(running)} rollouts that run: give the same")
    keys = set[Key]()
    for request in requests:
        for key in ((request.id, index) for index in request.indices):
            if key in running or key in keys:
                raise UsageError(f"rollout {key[1]} of {key[0]!r} is unfinished or asked for twice: give other indices")
            keys.add(key)
    return keys


def check_load(generator: Generator) -> None:
    """UsageError: rollouts run, and the generator lacks the ability "load"."""
    if generator.num_unfinished and "load" not in generator.abilities:
        raise UsageError(
            f"load_weights: {generator.num_unfinished} rollouts are unfinished, and the generator lacks the ability "
            "'load'; poll until none is"
        )


def _parameters(model: nn.Module) -> list[list[Any]]:
    named = model.named_parameters()
    return [[name, str(weight.dtype).removeprefix("torch."), list(weight.shape)] for name, weight in named]


def _vocabulary(tokenizer: Any) -> str:
    content = json.dumps(sorted(tokenizer.get_vocab().items()))
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
