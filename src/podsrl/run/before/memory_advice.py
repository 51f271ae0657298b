"""Which options bring a run under a bound of memory: taken in the order of what they cost, until the run fits.

Each option of the `LADDER` that lowers the excess over the bound is taken, at the mildest value that suffices or else
the strongest. Every figure is the estimate of a real config. Fewer kept rollouts are no step: the update holds one
micro-batch of them at a time, so that with the first step taken they lower nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from podsrl.config.files import merge
from podsrl.config.schema import RunConfig
from podsrl.run.before.checks import check_processes
from podsrl.run.before.estimate import Part, can_share, estimate, kv_bytes_per_token, phase_bytes
from podsrl.run.before.model_shape import ModelShape
from podsrl.run.before.sizes import work

MIB = 1 << 20
LEAST_CHUNK_TOKENS = 128
"""Of `optim.logprob_chunk_tokens`: the head's product is slow with fewer rows."""
LEAST_NEW_TOKENS = 32
"""Of `rollouts.max_new_tokens`: no answer with its reasoning is shorter."""
LEAST_RANK = 8
ADAPTER_RANK = 64
"""The schema's default, and the paper's."""
_LITTLE_TIME = "nothing in the result; a little time"
LADDER = {
    "optim.micro_batch_tokens": _LITTLE_TIME,
    "optim.logprob_chunk_tokens": _LITTLE_TIME,
    "rollouts.kv_cache_bytes": "nothing in the result; fewer rollouts run at once",
    "scale.strategy": "nothing in the result; time to exchange what is shared out",
    "model.gradient_checkpointing": "nothing in the result; about a third more time in the update",
    "optim.name": "precision of the optimizer's moments; needs bitsandbytes and a GPU",
    "model.dtype": "precision of weights and activations",
    "lora.rank": "adapters of this rank are trained instead; they want an optim.lr of their own",
    "model.load_in_4bit": "precision of the frozen weights; needs bitsandbytes and a GPU",
    "rollouts.max_new_tokens": "longer answers are cut, so other things are learned",
}
"""Option -> what changing it costs, in words; from what costs least to what costs most."""
LAST = "rollouts.max_new_tokens"
FREE = ("optim.micro_batch_tokens", "optim.logprob_chunk_tokens", "rollouts.kv_cache_bytes")
"""Those that change nothing in the result, and little in the time: a run takes them by itself (`fit`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStep:
    """One option to change, and the estimate with it and all steps before it."""

    key: str
    old: Any
    new: Any
    cost: str
    """What it costs, in words."""
    generate_bytes: int
    """Held while generating."""
    update_bytes: int
    """Held in the update."""

    @property
    def flag(self) -> str:
        """To paste behind a command."""
        value = str(self.new).lower() if isinstance(self.new, bool) else self.new
        return f"--{self.key}={value}"

    @property
    def peak_bytes(self) -> int:
        return max(self.generate_bytes, self.update_bytes)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `--json`."""
        return {**asdict(self), "flag": self.flag, "peak_bytes": self.peak_bytes}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAdvice:
    """Whether a run fits, and what makes it fit; bytes of one process."""

    bound_bytes: int
    generate_bytes: int
    """Held by the config as it is, while generating."""
    update_bytes: int
    """Likewise in the update."""
    fits: bool
    """The config as it is."""
    steps: tuple[MemoryStep, ...]
    """Changes in the order of what they cost; where nothing is enough, all that help."""
    config: RunConfig
    """With all steps taken."""
    parts: tuple[Part, ...]
    """Of that config."""

    @property
    def peak_bytes(self) -> int:
        """Peak of the config as it is."""
        return max(self.generate_bytes, self.update_bytes)

    @property
    def least_bytes(self) -> int:
        """With all steps taken."""
        return self.steps[-1].peak_bytes if self.steps else self.peak_bytes

    @property
    def is_possible(self) -> bool:
        """The run fits with the steps."""
        return self.least_bytes <= self.bound_bytes

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(step.flag for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `--json`; of the last config its parts only."""
        found = {name: value for name, value in asdict(self).items() if name != "config"}
        return {
            **found,
            "steps": [step.to_json() for step in self.steps],
            "peak_bytes": self.peak_bytes,
            "least_bytes": self.least_bytes,
            "is_possible": self.is_possible,
            "flags": list(self.flags),
        }


def advise(
    config: RunConfig,
    shape: ModelShape,
    bound_bytes: int,
    num_processes: int = 1,
    keys: Collection[str] = tuple(LADDER),
) -> MemoryAdvice:
    """Find the cheapest changes that bring each process of a run under a bound.

    Args:
        keys: options of the `LADDER` that may change.

    Example:
        >>> from podsrl.run.before.model_shape import read_shape
        >>> advice = advise(RunConfig(), read_shape(RunConfig().model), 64 << 20)
        >>> advice.fits, advice.flags
        (False, ('--optim.micro_batch_tokens=576', '--rollouts.kv_cache_bytes=48MiB'))
    """
    search = _Search(shape, bound_bytes, num_processes, keys)
    changes = search.climb(config)
    final = with_changes(config, changes, num_processes)
    generate, update = search.phases(config)
    return MemoryAdvice(
        bound_bytes=bound_bytes,
        generate_bytes=generate,
        update_bytes=update,
        fits=search.excess(config) == 0,
        steps=tuple(search.steps(config, changes)),
        config=final,
        parts=tuple(search.parts(final)),
    )


Changes = Mapping[str, Any]


class _Search:
    def __init__(self, shape: ModelShape, bound: int, num_processes: int, keys: Collection[str]) -> None:
        self._shape, self._bound, self._num_processes = shape, bound, num_processes
        self._keys = [key for key in LADDER if key in keys]

    def parts(self, config: RunConfig) -> list[Part]:
        return estimate(config, self._shape, self._num_processes)

    def phases(self, config: RunConfig) -> tuple[int, int]:
        return phase_bytes(self.parts(config))

    def excess(self, config: RunConfig) -> int:
        """Bytes above the bound, of both phases: a step may mend one of them while the other is larger."""
        return sum(max(0, size - self._bound) for size in self.phases(config))

    def climb(self, config: RunConfig) -> dict[str, Any]:
        """Changes that make the run fit; where nothing does, those that leave least above the bound.

        Shorter completions make room for smaller steps of all other kinds, so the ladder is climbed anew for each.
        """
        lengths = values_of(LAST, config, self._shape, self._num_processes) if LAST in self._keys else ()
        least, changes = self._climb(config, {})
        for length in lengths if least else ():
            found = self._climb(config, {LAST: length})
            if found[0] < least:
                least, changes = found
            if least == 0:
                break
        return changes

    def _climb(self, config: RunConfig, changes: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Of each option but the last in turn the mildest value that helps most, until the run fits; what is left."""
        now = with_changes(config, changes, self._num_processes)
        least = self.excess(now)
        for key in self._keys:
            for value in values_of(key, now, self._shape, self._num_processes) if least and key != LAST else ():
                try:
                    then = with_changes(config, {**changes, key: value}, self._num_processes)
                except ValueError:
                    continue
                if (size := self.excess(then)) < least:
                    least, changes, now = size, {**changes, key: value}, then
        return least, changes

    def steps(self, config: RunConfig, changes: Changes) -> Iterator[MemoryStep]:
        """The changes in the ladder's order, each with the estimate after it."""
        taken: dict[str, Any] = {}
        for key in [key for key in LADDER if key in changes]:
            taken[key] = changes[key]
            generate, update = self.phases(with_changes(config, taken, self._num_processes))
            section, _, name = key.partition(".")
            yield MemoryStep(
                key=key,
                old=getattr(getattr(config, section), name, None),
                new=changes[key],
                cost=LADDER[key],
                generate_bytes=generate,
                update_bytes=update,
            )


def with_changes(config: RunConfig, changes: Changes, num_processes: int = 1) -> RunConfig:
    """The config with other values (key -> value).

    ValueError: they do not go together, or so many processes do not allow them.
    """
    tree = config.model_dump(mode="json", exclude_none=True)
    for key, value in changes.items():
        section, _, name = key.partition(".")
        tree = merge(tree, {section: {name: value}})
    found = RunConfig.model_validate(tree)
    check_processes(found, num_processes)
    return found


def values_of(key: str, config: RunConfig, shape: ModelShape, num_processes: int) -> Iterable[Any]:
    """Values of an option that lower memory, from the mildest to the strongest; none at its end, or where idle."""
    optim, model, lora = config.optim, config.model, config.lora
    todo = work(config, num_processes, can_share=can_share(config, shape))
    match key:
        case "optim.micro_batch_tokens":
            return _halves(todo.micro_batch_tokens, todo.row_tokens)
        case "optim.logprob_chunk_tokens":
            return _halves(min(optim.logprob_chunk_tokens, todo.target_tokens), LEAST_CHUNK_TOKENS)
        case "rollouts.kv_cache_bytes":
            return _kv_sizes(config, shape, num_processes)
        case "scale.strategy":
            order = ("ddp", "zero2", "fsdp2")
            return order[order.index(config.scale.strategy) + 1 :] if num_processes > 1 else ()
        case "model.gradient_checkpointing":
            return () if model.gradient_checkpointing else (True,)
        case "optim.name":
            return () if optim.name == "adamw_8bit" else ("adamw_8bit",)
        case "model.dtype":
            return ("bfloat16",) if model.dtype == "float32" else ()
        case "lora.rank":
            return (ADAPTER_RANK,) if lora is None else _halves(lora.rank, LEAST_RANK)
        case "model.load_in_4bit":
            return (True,) if lora is not None and not model.load_in_4bit else ()
    return _halves(config.rollouts.max_new_tokens, LEAST_NEW_TOKENS)


def _halves(start: int, least: int) -> Iterator[int]:
    """Smaller numbers by a factor of two, down to the least itself."""
    size = start // 2
    while size > least:
        yield size
        size //= 2
    if least < start:
        yield least


def _kv_sizes(config: RunConfig, shape: ModelShape, num_processes: int) -> Iterator[str]:
    """Powers of two, one and a half of them, and what one row takes; in MiB, under what is held now."""
    held = next((p.num_bytes for p in estimate(config, shape, num_processes) if p.name == "key-values"), 0)
    least = -(-work(config, num_processes).row_tokens * kv_bytes_per_token(config, shape) // MIB)
    sizes = {least, *(1 << exponent for exponent in range(40)), *(3 << exponent for exponent in range(40))}
    for mebibytes in sorted(sizes, reverse=True):
        if least <= mebibytes < held / MIB:
            yield f"{mebibytes // 1024}GiB" if mebibytes % 1024 == 0 else f"{mebibytes}MiB"
