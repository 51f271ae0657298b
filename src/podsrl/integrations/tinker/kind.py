"""What a run knows of a service before it begins: its options, what it has no counterpart of, and what trains."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, cast

from podsrl.config.elsewhere import OF_THIS_PROCESS
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.generate.base import Setting
from podsrl.generate.kinds import Kind, Training
from podsrl.integrations.tinker.costs import Prices, step_costs
from podsrl.integrations.tinker.generator import TinkerGenerator
from podsrl.integrations.tinker.service import Service
from podsrl.update import LossSpec, Updater, resolve_algorithm

_NOT_THERE = (
    *("rollouts.temperature", "rollouts.top_p", "rollouts.top_k", "rollouts.min_p", "rollouts.stop_strings"),
    *("loss.kl_beta", "correct"),
)
"""Options that the service's losses know nothing of, or its sampling."""


def make_tinker(
    setting: Setting,
    *,
    base_url: str = "",
    base_model: str = "",
    tokenizer: str = "",
    rank: int = 32,
    timeout_seconds: float = 1800.0,
    price_prompt: float = 0.0,
    price_sampled: float = 0.0,
    price_trained: float = 0.0,
) -> TinkerGenerator:
    """A service of Tinker's API, which samples and trains; the key is in the environment variable TINKER_API_KEY.

    Args:
        base_url: of the service; "": the environment variable TINKER_BASE_URL, else Tinker's own.
        base_model: the service's name of the model; "": `model.path`, of which this process reads the tokenizer and
            config.json.
        tokenizer: folder or hub name of the service's tokenizer; "": what the service says.
        rank: of the adapters that it trains.
        timeout_seconds: longest wait for one answer.
        price_prompt: of a million prompt tokens, in any currency.
        price_sampled: of a million sampled tokens.
        price_trained: of a million trained tokens.
    """
    raise UsageError("rollouts.generator = 'tinker' is made by its kind")


def kind_of(kind: Kind) -> Kind:
    """The kind with all that it does; the options are checked.

    Raises:
        UsageError: an option beyond its range.
    """
    options = dict(kind.options)
    prices = Prices(**{name: options.pop(f"price_{name}", 0.0) for name in ("prompt", "sampled", "trained")})
    of_prices = {f"price_{name}": getattr(prices, name) for name in Prices.__slots__}
    for name, value in {**of_prices, "rank": options.get("rank", 1), "timeout_seconds": 1, **options}.items():
        least = 0 if name.startswith("price_") else 1 if name == "rank" else 1e-3
        if not isinstance(value, str) and not least <= value < 2**31:
            raise UsageError(f"options.tinker.{name} = {value}: wanted a number of at least {least:g}")
    service = Service(**options)

    def check_run(config: RunConfig) -> None:
        check_config(config)
        service.base_model = service.base_model or config.model.path

    training = Training(
        load_policy=partial(_load_policy, service),
        new_updater=partial(_new_updater, service),
        step_metrics=lambda config, result: step_costs(result, prices, config.optim.num_epochs),
    )
    return replace(
        kind,
        factory=partial(_make, service, options.get("timeout_seconds", 1800.0)),
        options={},
        check=service.check,
        check_run=check_run,
        is_beside=True,
        is_watching=False,
        training=training,
    )


def check_config(config: RunConfig) -> None:
    """Check that a run asks for nothing that has no counterpart at a service.

    Raises:
        UsageError: it names every option that it would otherwise ignore.
    """
    default = RunConfig()
    here, there = (
        [key for key in keys if _at(config, key) != _at(default, key)] for keys in (OF_THIS_PROCESS, _NOT_THERE)
    )
    if here:
        raise UsageError(
            f"rollouts.generator = 'tinker' with {_named(config, here)}: these are of a model in this process, and the "
            "service has its own; leave them out, or at their defaults (the adapters' rank is options.tinker.rank)"
        )
    if there:
        raise UsageError(
            f"rollouts.generator = 'tinker' with {_named(config, there)}: Tinker's API has no counterpart that trains "
            "what is sampled; leave them out, or at their defaults"
        )
    loss = resolve_algorithm(**config.loss.model_dump(exclude={"kl_beta"})).loss
    if loss.ratio != "token":
        raise UsageError(
            f"rollouts.generator = 'tinker' with loss.ratio = {loss.ratio!r}: the service's ratios are of single "
            "tokens; set loss.ratio = 'token', or another loss.name"
        )


def _at(config: RunConfig, key: str) -> Any:
    found: Any = config
    for name in key.split("."):
        found = getattr(found, name)
    return found


def _named(config: RunConfig, keys: list[str]) -> str:
    """Options with what they are, and what they are by default."""
    default = RunConfig()
    values = ((key, _at(config, key), _at(default, key)) for key in keys)
    return ", ".join(
        f"[{key}]" if key in ("lora", "correct") else f"{key} = {value!r} (default {usual!r})"
        for key, value, usual in values
    )


def _make(service: Service, timeout_seconds: float, setting: Setting) -> TinkerGenerator:
    service.begin(setting.seed, setting.tokenizer)
    return TinkerGenerator(service, seed=setting.seed, timeout_seconds=timeout_seconds)


def _load_policy(service: Service, config: RunConfig, tokenizer: Any, *, model: Any = None) -> Any:
    """The policy, whose weights are at the service: of `model.path` only the config is read."""
    from podsrl.integrations.tinker.updater import TinkerPolicy
    from podsrl.policy.weights import generation_config, outline

    if model is not None:
        raise UsageError("rollouts.generator = 'tinker' trains at the service, and a Trainer was given a loaded model")
    found = outline(config.model)
    found.generation_config = generation_config(config.model)
    return TinkerPolicy(found, tokenizer, service)


def _new_updater(service: Service, config: RunConfig, loss: LossSpec) -> Updater:
    from podsrl.integrations.tinker.updater import TinkerUpdater

    made = TinkerUpdater(service, config.optim, loss=loss, max_length=config.rollouts.max_new_tokens)
    return cast(Updater, made)
