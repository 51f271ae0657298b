"""What `[order]` means for a run, in a line: what is under way, how old groups get, and whether the run is exact."""

from __future__ import annotations

from podsrl.config.schema import RunConfig
from podsrl.generate import resolve_generator


def order_notes(config: RunConfig, *, talks: bool) -> tuple[str, ...]:
    """A line for a run with groups of later steps under way; of one without there is nothing to say.

    Args:
        talks: an environment answers the model's turns.

    Example:
        >>> from podsrl.config.load import load_config
        >>> [note] = order_notes(load_config("systems/areal"), talks=False)
        >>> note.rpartition("; ")[2]
        "this run is not reproducible: with order.rest = 'run' clocks decide at which token new weights come"
    """
    order, num_prompts, age = config.order, config.rollouts.num_prompts, config.order.largest_age
    if not order.is_ahead:
        return ()
    if order.take == "first":
        says = [f"{order.num_groups(num_prompts):,} groups are under way, and a step takes the first {num_prompts:,}"]
    else:
        says = [f"{order.ahead:g} further step{'s are' if order.ahead > 1 else ' is'} under way beside each"]
    updates = config.optim.num_updates
    says.append(
        "no bound on the ages of groups (order.most_age)"
        if age is None
        else f"a group is at most {age} step{'s' if age > 1 else ''} old, {age * updates} weight "
        f"update{'s' if age * updates > 1 else ''} (optim.num_epochs × optim.num_minibatches a step)"
    )
    if unsure := _unsure(config, talks=talks):
        says.append(f"this run is not reproducible: {unsure}")
    return ("; ".join(says),)


def _unsure(config: RunConfig, *, talks: bool) -> str:
    """What clocks decide; empty where a resumed run is the same bit for bit."""
    order = config.order
    is_beside = resolve_generator(config.rollouts.generator, config.options).is_beside or config.scale.generators
    if order.rest == "run":
        clocks = "clocks decide at which token new weights come"
        stops = "each checkpoint stops what runs, which goes on behind keys and values of the newest weights"
        return f"with order.rest = 'run' {clocks if is_beside or talks else stops}"
    if order.rest == "finish" or not (is_beside or talks):
        return ""
    whose = "generators that work beside the trainer" if is_beside else "an environment"
    what = "which groups are whole first, and where the others stop" if order.take == "first" else "where rollouts stop"
    return f"the clocks of {whose} decide {what}"
