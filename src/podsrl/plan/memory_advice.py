"""Which options bring a run under a bound of memory, the cheapest first: every figure is an estimate of a real config.

`advise` takes a step of the ladder (`memory_ladder.py`) if it lowers the excess over the bound, at the mildest value
that suffices. Then, from the costliest step back, it undoes each step or makes it milder as far as the others leave
room, so that every step that remains is necessary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from podsrl.config.files import merge
from podsrl.config.load import with_values
from podsrl.config.schema import RunConfig
from podsrl.plan.estimate import Part, estimate, phase_bytes
from podsrl.plan.memory_ladder import LADDER, LAST, values_of
from podsrl.run.before.checks import check_processes
from podsrl.run.before.model_shape import ModelShape


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
    """Changes of which none can be left out, the cheapest first; where nothing is enough, all that help."""
    alone: tuple[MemoryStep, ...]
    """Changes of which each is enough without any other; the estimate is with it alone."""
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
            "alone": [step.to_json() for step in self.alone],
            "peak_bytes": self.peak_bytes,
            "least_bytes": self.least_bytes,
            "is_possible": self.is_possible,
            "flags": list(self.flags),
        }


def advise(
    config: RunConfig, shape: ModelShape, bound_bytes: int, num_processes: int = 1, num_eval: int | None = None
) -> MemoryAdvice:
    """Find the cheapest changes that bring each process of a run under a bound.

    Args:
        num_eval: held-out questions, where the data was read; None: as many as the config lets expect.

    Example:
        >>> from podsrl.run.before.model_shape import read_shape
        >>> advice = advise(RunConfig(), read_shape(RunConfig().model), 64 << 20)
        >>> advice.fits, advice.flags
        (False, ('--optim.micro_batch_tokens=2048', '--rollouts.kv_cache_bytes=48MiB'))
    """
    search = _Search(shape, bound_bytes, num_processes, num_eval)
    changes = search.relax(config, search.climb(config))
    steps = tuple(search.steps(config, changes))
    final = search.changed(config, changes)
    generate, update = search.phases(config)
    return MemoryAdvice(
        bound_bytes=bound_bytes,
        generate_bytes=generate,
        update_bytes=update,
        fits=search.excess(config) == 0,
        steps=steps,
        alone=tuple(search.alone(config)) if steps else (),
        config=final,
        parts=tuple(search.parts(final)),
    )


Changes = Mapping[str, Any]


class _Search:
    def __init__(self, shape: ModelShape, bound: int, num_processes: int, num_eval: int | None) -> None:
        self._shape, self._bound, self._num_processes = shape, bound, num_processes
        self._num_eval = num_eval

    def parts(self, config: RunConfig) -> list[Part]:
        """The estimate, with as many held-out questions as there are."""
        if self._num_eval is not None:
            config = with_values(config, task={"num_eval": self._num_eval})
        return estimate(config, self._shape, self._num_processes)

    def phases(self, config: RunConfig) -> tuple[int, int]:
        return phase_bytes(self.parts(config))

    def _values(self, key: str, config: RunConfig) -> Iterable[Any]:
        return values_of(key, config, self._shape, self._num_processes)

    def excess(self, config: RunConfig) -> int:
        """Bytes above the bound, of both phases: a step may mend one of them while the other is larger."""
        return sum(max(0, size - self._bound) for size in self.phases(config))

    def changed(self, config: RunConfig, changes: Changes) -> RunConfig:
        """Raises ValueError where the changes do not go together."""
        tree = config.model_dump(mode="json", exclude_none=True)
        for key, value in changes.items():
            section, _, name = key.partition(".")
            tree = merge(tree, {section: {name: value}})
        return RunConfig.model_validate(tree)

    def climb(self, config: RunConfig) -> dict[str, Any]:
        """Changes that make the run fit; where nothing does, those that leave least above the bound.

        Shorter completions make room for smaller steps of all other kinds, so the ladder is climbed anew for each.
        """
        changes = self._climb(config, {})
        least = self.excess(self.changed(config, changes))
        for length in self._values(LAST, config) if least else ():
            found = self._climb(config, {LAST: length})
            size = self.excess(self.changed(config, found))
            if size < least:
                least, changes = size, found
            if least == 0:
                break
        return changes

    def _climb(self, config: RunConfig, changes: dict[str, Any]) -> dict[str, Any]:
        """Of each option but the last in turn the mildest value that helps most, until the run fits."""
        least = self.excess(self.changed(config, changes))
        for key in LADDER:
            if least == 0 or key == LAST:
                break
            now = self.changed(config, changes)
            for value in self._values(key, now):
                size = self._excess_with(config, {**changes, key: value})
                if size is not None and size < least:
                    least, changes = size, {**changes, key: value}
        return changes

    def relax(self, config: RunConfig, changes: dict[str, Any]) -> dict[str, Any]:
        """From the costliest back: without it, or milder, where the others are enough."""
        if self.excess(self.changed(config, changes)) > 0:
            return changes
        for key in reversed([key for key in LADDER if key in changes]):
            rest = {other: value for other, value in changes.items() if other != key}
            if self._excess_with(config, rest) == 0:
                changes = rest
                continue
            changes = {**changes, key: self._mildest(config, rest, key, changes[key])}
        return changes

    def _mildest(self, config: RunConfig, rest: Changes, key: str, taken: Any) -> Any:
        """The mildest value that is enough with the other changes; what was taken, where they need it as it is."""
        try:
            values = self._values(key, self.changed(config, rest))
        except ValueError:
            return taken
        return next((value for value in values if self._excess_with(config, {**rest, key: value}) == 0), taken)

    def alone(self, config: RunConfig) -> Iterator[MemoryStep]:
        """Of each option the mildest value that is enough without any other."""
        for key in LADDER:
            for value in self._values(key, config):
                if self._excess_with(config, {key: value}) == 0:
                    yield from self.steps(config, {key: value})
                    break

    def steps(self, config: RunConfig, changes: Changes) -> Iterator[MemoryStep]:
        """The changes in the ladder's order, each with the estimate after it."""
        taken: dict[str, Any] = {}
        for key in [key for key in LADDER if key in changes]:
            taken[key] = changes[key]
            generate, update = self.phases(self.changed(config, taken))
            section, _, name = key.partition(".")
            yield MemoryStep(
                key=key,
                old=getattr(getattr(config, section), name, None),
                new=changes[key],
                cost=LADDER[key],
                generate_bytes=generate,
                update_bytes=update,
            )

    def _excess_with(self, config: RunConfig, changes: Changes) -> int | None:
        """None where a run would not accept these changes."""
        try:
            changed = self.changed(config, changes)
            check_processes(changed, self._num_processes)
        except ValueError:
            return None
        return self.excess(changed)
