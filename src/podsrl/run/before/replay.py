"""Whether groups of earlier steps and of other runs can be trained on, and what they take of the memory."""

from __future__ import annotations

from podsrl.config.schema import BudgetConfig, RunConfig
from podsrl.control import RECALL, WAIT
from podsrl.errors import UsageError
from podsrl.generate import Kind
from podsrl.lib.machine import host_bytes
from podsrl.lib.slots import GO_ON, Slots
from podsrl.run.before.sizes import at_most
from podsrl.score import Scorer

_TOKEN_BYTES = 72
"""Of a token of a completion: a number and a log-prob as Python objects (28 rounded up, and 24), and two pointers."""


def check_unfinished(config: RunConfig, kind: Kind, scorer: Scorer | None, *, has_turns: bool) -> None:
    """Groups that wait for the next step go with the other options.

    Args:
        kind: makes the generator; one of your own tells its abilities later.
        scorer: judges; None: not known.
        has_turns: an environment answers the model's turns.

    Raises:
        UsageError: with one that does not.
    """
    if config.replay.wait != "nothing":
        for other, got, plain in (
            ("steps.name", config.steps.name, "sync"),
            ("steer.close", config.steer.close, "never"),
            ("steer.branch", config.steer.branch, "never"),
            ("replay.unfinished", config.replay.unfinished, "drop"),
            ("replay.repair", config.replay.repair, "never"),
        ):
            if got != plain:
                raise UsageError(
                    f"replay.wait = {config.replay.wait!r} with {other} = {got!r}: when a step ends, a group has to "
                    f"have what was asked; set {other} = {plain!r}, or replay.wait = 'nothing'"
                )
    if config.replay.unfinished == "drop":
        return
    budget, steer, default = config.budget, config.steer, BudgetConfig()
    why = "the groups that wait are asked once, whole"
    for option, value, wanted, reason in (
        ("steps.name", config.steps.name, "sync", "a step that ends early has nothing beside it"),
        ("budget.enough", budget.enough, default.enough, why),
        ("budget.rollouts", budget.rollouts, default.rollouts, why),
        ("steer.close", steer.close, "never", "either would end rollouts of the other"),
        ("steer.prune", steer.prune, "never", "either would end rollouts of the other"),
        ("steer.branch", steer.branch, "never", "a fork would wait without its source"),
        ("scale.generators", config.scale.generators, 0, "which groups are whole first would be up to their clocks"),
    ):
        if value != wanted:
            raise UsageError(
                f"replay.unfinished = 'keep' with {option} = {value!r}: {reason}; set {option} = {wanted!r}, or "
                "replay.unfinished = 'drop'"
            )
    if scorer is not None and scorer.batches:
        raise UsageError(
            f"replay.unfinished = 'keep' judges a group piece by piece, and the reward function {scorer.batches[0]!r} "
            "takes a batch of completions: write it as f(task, completion), or set replay.unfinished = 'drop'"
        )
    if has_turns:
        raise UsageError(
            "replay.unfinished = 'keep' with a task whose environment answers: a rollout would wait between two turns; "
            "set replay.unfinished = 'drop'"
        )
    if not kind.is_watching and ":" not in kind.options_name:
        raise UsageError(
            f"replay.unfinished = 'keep' stops rollouts and goes on with their tokens, and rollouts.generator = "
            f"{config.rollouts.generator!r} does not keep them: set rollouts.generator = 'engine'"
        )


def needs(config: RunConfig) -> list[tuple[str, str]]:
    """What groups that wait want of a generator: (option, ability)."""
    is_kept = config.replay.unfinished == "keep"
    return [("replay.unfinished = 'keep'", ability) for ability in (*GO_ON, "partial") if is_kept]


def check_replay(config: RunConfig, slots: Slots, num_processes: int) -> None:
    """UsageError: several processes would train on different groups, by what each sees when."""
    if num_processes > 1 and config.replay.unfinished == "keep":
        raise UsageError(
            f"replay.unfinished = 'keep' with {num_processes} processes: which groups are whole first would be up to "
            "their clocks; start one process, or set replay.unfinished = 'drop'"
        )
    [recall] = slots[RECALL.option]
    if num_processes > 1 and getattr(recall.part, "reads_others", False):
        raise UsageError(
            f"{recall.option} reads what other runs write meanwhile, and this run has {num_processes} processes, which "
            "would not see the same: start it with one process, or leave it out"
        )


def replay_notes(config: RunConfig, slots: Slots) -> tuple[str, ...]:
    """A line for a part of `replay.groups` that tells by `most_groups` how many it keeps, and for groups that wait.

    Raises:
        UsageError: so many do not fit into the memory of this machine.
    """
    [recall] = slots[RECALL.option]
    waiting = config.replay.num_groups(config.rollouts.num_prompts) - config.rollouts.num_prompts
    [wait] = slots[WAIT.option]
    kept = [(filled.option, getattr(filled.part, "most_groups", 0)) for filled in (recall, wait)]
    kept.append(("replay.unfinished = 'keep'", waiting))
    return tuple(_note(option, most, config, slots) for option, most in kept if most)


def _note(option: str, most_groups: int, config: RunConfig, slots: Slots) -> str:
    rollouts = at_most(config, slots).rollouts
    needed, there = most_groups * rollouts.num_rollouts * rollouts.max_new_tokens * _TOKEN_BYTES, host_bytes()
    takes = (
        f"{option} keeps at most {most_groups:,} × {rollouts.num_rollouts} rollouts with up to "
        f"{rollouts.max_new_tokens} tokens each, which take up to {needed:,} bytes"
    )
    if needed > there:
        raise UsageError(f"{takes}, and this machine has {there:,}: let it keep fewer groups")
    return takes
