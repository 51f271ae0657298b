"""Which costs a run goes by: those of `[costs]`, or the defaults of its device's kind."""

from __future__ import annotations

from typing import Any

from podsrl.config.schema import DEFAULT_COSTS, CostsConfig, RunConfig
from podsrl.errors import UsageError
from podsrl.policy import choose_device

LARGEST_SPREAD = 0.3
"""Costs that may be further off than this were measured on a busy machine, or too briefly."""


def costs_of(config: RunConfig) -> CostsConfig:
    """The config's, or the defaults.

    Raises:
        UsageError: they were measured with another model.

    Example:
        >>> costs_of(RunConfig()).row_ms
        1.0
    """
    if config.costs is not None:
        if config.costs.model not in ("", config.model.path):
            raise UsageError(
                f"costs.model = {config.costs.model!r}, and model.path = {config.model.path!r}: these costs are of "
                "another model; measure them again (pods plan CONFIG --write FILE), or set costs.model = '' to use "
                "them all the same"
            )
        return config.costs
    kind = config.model.device.partition(":")[0]
    kind = choose_device(config.model).type if kind == "auto" else kind
    return DEFAULT_COSTS["cpu" if kind == "cpu" else "cuda"]


def with_costs(config: RunConfig) -> RunConfig:
    """The config with the costs that its run goes by written down, so that it goes by them on another device too."""
    return config.model_copy(update={"costs": costs_of(config)}) if reads_costs(config) else config


def reads_costs(config: RunConfig) -> bool:
    """Whether what ships decides by them."""
    has_price = config.select.rule == "max_signal" and "overhead" not in config.select.options
    return has_price or "worth" in config.systems


def rule_options(config: RunConfig) -> dict[str, Any]:
    """`select.options`, and of `max_signal` the overhead by the costs in use; each chunk bears its part of it.

    Example:
        >>> rule_options(RunConfig.model_validate({"select": {"rule": "max_signal"}}))
        {'overhead': 12.8}
    """
    select = config.select
    if select.rule != "max_signal":
        return select.options
    return {"overhead": costs_of(config).overhead(config.rollouts.num_rollouts) / select.num_chunks} | select.options


def costs_notes(config: RunConfig) -> list[str]:
    """Which costs are in use, in a line; none where nothing reads them."""
    if not reads_costs(config):
        return []
    costs, n = costs_of(config), config.rollouts.num_rollouts
    return [
        f"costs in use: {costs.group_ms:g} ms per group, {costs.rollout_ms:g} per rollout and {costs.row_ms:g} per row "
        f"of the update, so that a group of {n} costs {costs.overhead(n):.3g} rows before its "
        f"update ({costs.source or '[costs]'})"
    ]


def costs_advice(config: RunConfig) -> list[str]:
    """Costs in use that were measured with too large a spread, and trained rows that another rule has."""
    select, n, found = config.select, config.rollouts.num_rollouts, []
    if config.costs is not None and config.costs.spread > LARGEST_SPREAD and reads_costs(config):
        found.append(
            f"costs.spread = {config.costs.spread:g}: the costs were measured on a busy machine, or too briefly, and "
            "the run goes by them all the same; measure again when it is quiet, or longer (pods plan --measure)"
        )
    is_worth, has_rows = "worth" in config.systems, "rows" in config.options.get("worth", {})
    if is_worth and not has_rows and select.rule != "max_signal":
        found.append(
            "systems = 'worth' reckons with 6 trained rows per mixed group, as with max_signal, and "
            f"select.rule = {select.rule!r} keeps {select.most_kept(n)} of {n}: set options.worth.rows"
        )
    return found
