"""Which costs a run goes by: those of `[costs]`, or the defaults of its device's kind."""

from __future__ import annotations

from podsrl.config.schema import DEFAULT_COSTS, CostsConfig, RunConfig
from podsrl.policy import choose_device

LARGEST_SPREAD = 0.3
"""Costs that may be further off than this were measured on a busy machine, or too briefly."""


def costs_of(config: RunConfig) -> CostsConfig:
    """The config's, or the defaults.

    Example:
        >>> costs_of(RunConfig()).row_ms
        1.0
    """
    if config.costs is not None:
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
    return has_price or config.budget.rollouts == "worth"


def costs_notes(config: RunConfig) -> list[str]:
    """Which costs are in use, in a line; none where nothing reads them."""
    if not reads_costs(config):
        return []
    costs, n = costs_of(config), config.rollouts.num_rollouts
    return [
        f"costs in use: {costs.group_ms:g} ms per group, {costs.rollout_ms:g} per rollout and {costs.row_ms:g} per row "
        f"of the update, so that a group of {n} costs {costs.overhead(n):.3g} rows before it "
        f"({costs.source or '[costs]'})"
    ]


def costs_advice(config: RunConfig) -> list[str]:
    """Costs that were measured with too large a spread."""
    if config.costs is None or config.costs.spread <= LARGEST_SPREAD:
        return []
    return [
        f"costs.spread = {config.costs.spread:g}: the costs were measured on a busy machine, or too briefly, and the "
        "run goes by them all the same; measure again when it is quiet, or longer (pods plan --measure)"
    ]
