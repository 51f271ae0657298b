"""The generators by name: `rollouts.generator` -> what makes one. Each is imported when it is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError, short
from podsrl.generate.base import Generator, Setting
from podsrl.generate.vllm.make import check_heads, check_options_of_vllm, check_run
from podsrl.lib.options import check_options
from podsrl.lib.resolve import Table, resolve
from podsrl.lib.user_function import calling

if TYPE_CHECKING:
    from podsrl.generate.engine.engine import Engine

Factory = Callable[..., Generator]
"""`make(setting, *, option=…) -> Generator`."""
GENERATORS: Table[Factory] = Table(
    {
        "engine": "podsrl.generate.kinds:new_engine",
        "vllm": "podsrl.generate.vllm.make:make_vllm",
        "tinker": "podsrl.integrations.tinker.kind:make_tinker",
    }
)
"""Name of a generator, as in `rollouts.generator` -> what makes it."""
_MEMBERS = ("version", "abort", "load_weights", "describe", "close")
"""What a run uses of every generator, beside `submit` and `poll`, or `generate`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How a generator's service trains the weights that it samples from, in place of this process."""

    load_policy: Callable[..., Any]
    """In place of `podsrl.policy.load_policy`."""
    new_updater: Callable[..., Any]
    """(config, loss) -> what a learner calls of a `podsrl.update.Updater`."""
    step_metrics: Callable[[RunConfig, Any], Mapping[str, float]]
    """(config, what a step did) -> further metrics of it."""


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
    check_run: Callable[[RunConfig], None] = lambda config: None
    """Raises UsageError where a run's config asks for what it has no counterpart of. It reads no file."""
    check_heads: Callable[[int], None] | None = None
    """Raises UsageError where it cannot run a model with attention heads of so many numbers."""
    is_beside: bool = False
    """It has the ability "beside": it generates while the caller does something else."""
    is_watching: bool = True
    """It may have the ability "watch"; of a user's own only what it makes tells."""
    has_own_weights: bool = False
    """It holds a copy of the weights on the device of the trainer's, and its process's one torch.distributed group."""
    members: tuple[Kind, ...] = ()
    """Kinds whose generators work as one, such as servers."""
    new_store: Callable[[Setting], Any] | None = None
    """Makes what holds the weights for all members."""
    training: Training | None = None
    """None: this process trains."""

    @property
    def own(self) -> str:
        """The option, where it names a function of the user's own; else empty."""
        return self.option if ":" in self.options_name else ""

    def make(self, setting: Setting) -> Generator:
        """UsageError: it cannot be made so."""
        with self.calling():
            made = self.factory(setting, **self.options)
        if lacks := _lacking(made):
            raise UsageError(
                f"{self.option} returned {short(made)}, which has no {', '.join(lacks)}; wanted a generator: a class "
                "that inherits from podsrl.generate.Generator has defaults for most of it"
            )
        return made

    def calling(self) -> AbstractContextManager[None]:
        """Surrounds calls of the generator: what a user's own raises becomes one line."""
        return calling(self.own) if self.own else nullcontext()


def _lacking(made: object) -> list[str]:
    """What a generator lacks; `generate` of the base class needs the other two."""
    lacks = [name for name in ("submit", "poll") if getattr(type(made), name, None) in (None, getattr(Generator, name))]
    if len(lacks) == 2:
        has_own = hasattr(made, "generate") and getattr(type(made), "generate", None) is not Generator.generate
        lacks = [] if has_own else ["submit and poll, or generate"]
    return [name for name in _MEMBERS if not hasattr(made, name)] + lacks


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
    if name.startswith("vllm+"):
        return _servers(name, options.get("vllm", {}))
    factory = resolve(
        name,
        GENERATORS,
        option="rollouts.generator",
        kind="generator",
        wanted="a function f(setting, *, option=…) that makes a generator",
    )
    checked = check_options(factory, options.get(name, {}), where=f"options.{name}", given=("setting",))
    kind = Kind(option=f"rollouts.generator = {name!r}", options_name=name, factory=factory, options=checked)
    if name == "tinker":
        completed: Kind = import_module(factory.__module__).kind_of(kind)  # it stands above this package
        return completed
    if name != "vllm":
        return kind
    return replace(
        kind,
        check=partial(check_options_of_vllm, **checked),
        check_run=check_run,
        check_heads=check_heads,
        is_watching=False,
        has_own_weights=True,
    )


def _servers(name: str, options: Mapping[str, Any]) -> Kind:
    """vLLM servers that run already: "vllm+http://HOST:PORT", several addresses separated by commas."""
    from podsrl.generate.vllm.checks import check_address
    from podsrl.generate.vllm.handover import FolderStore
    from podsrl.generate.vllm.link import check_url
    from podsrl.generate.vllm.server import VLLMServer

    urls = [check_url(url) for url in name.removeprefix("vllm+").split(",")]
    if len(set(urls)) < len(urls):
        raise UsageError(f"rollouts.generator = {name!r} names an address twice; wanted each server once")
    checked = check_options(VLLMServer, options, where="options.vllm", given=("setting", "url"))

    def check() -> None:
        for url in urls:
            check_address(url, **checked)

    whole = Kind(
        option=f"rollouts.generator = {name!r}",
        options_name="vllm",
        factory=VLLMServer,
        options={**checked, "url": urls[0]},
        check=check,
        check_run=check_run,
        is_beside=True,
        is_watching=False,
    )
    new_store = partial(FolderStore, **checked)
    members = [replace(whole, options={**checked, "url": url}, new_store=new_store) for url in urls]
    return replace(whole, members=tuple(members))


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
