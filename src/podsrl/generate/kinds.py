"""The generators by name: `rollouts.generator` -> what makes one. Each is imported when it is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from podsrl.generate.base import Generator, Setting
from podsrl.lib.options import check_options
from podsrl.lib.resolve import resolve
from podsrl.lib.user_function import calling

if TYPE_CHECKING:
    from podsrl.generate.engine.engine import Engine

Factory = Callable[..., Generator]
"""`make(setting, *, option=…) -> Generator`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A generator that can be made, and what can be checked of it before any weights are read."""

    option: str
    """For messages: "rollouts.generator = 'vllm'"."""
    options_name: str
    """Its table is `[options.NAME]`."""
    factory: Factory
    options: Mapping[str, Any] = field(default_factory=dict)
    check: Callable[[], None] = lambda: None
    """Raises UsageError where the machine lacks what it needs, or a server does not answer."""
    is_beside: bool = False
    """It has the ability "beside": it generates while the caller does something else."""

    def make(self, setting: Setting) -> Generator:
        """UsageError: it cannot be made so."""
        with calling(self.option) if ":" in self.options_name else nullcontext():
            return self.factory(setting, **self.options)


def resolve_generator(name: str, options: Mapping[str, Mapping[str, Any]]) -> Kind:
    """The generator that `rollouts.generator` names.

    Args:
        name: a known name, an address, or "module:function".
        options: name of a part -> its options, as in the config.

    Raises:
        UsageError: no such name or option.

    Example:
        >>> resolve_generator("engine", {}).is_beside
        False
    """
    head = name.partition("+")[0] if name.startswith("vllm+") else name
    table = {"engine": new_engine}
    factory = resolve(
        head,
        table,
        option="rollouts.generator",
        kind="generator",
        wanted="a function f(setting, *, option=…) that makes a generator",
    )
    checked = check_options(factory, options.get(head, {}), where=f"options.{head}", given=("setting",))
    return Kind(option=f"rollouts.generator = {name!r}", options_name=head, factory=factory, options=checked)


def new_engine(setting: Setting) -> Engine:
    """The built-in generator, on the model that the setting loads."""
    from podsrl.generate.engine.engine import Engine

    return Engine(
        setting.load_model(),
        num_slots=setting.num_slots,
        kv_cache_bytes=setting.kv_cache_bytes,
        scheduler=setting.scheduler,
        seed=setting.seed,
        tokenizer=setting.tokenizer,
    )
