"""What is killed: small runs, each with another way through a step, all of which must end in the same bits."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_ANY = {
    "threads": "1",
    "stop.seconds": "0",
    "stop.steps": "10",
    "eval.every_seconds": "0",
    "eval.every_steps": "4",
    "eval.num_samples": "1",
    "record.groups_every_steps": "3",
    "checkpoint.every_seconds": "0",
    "checkpoint.every_steps": "2",
    "rollouts.max_new_tokens": "24",
    "task.digits": "1",
    "task.num_eval": "6",
}
_SMALL = {
    **_ANY,
    "model.path": "builtin:arithmetic-mixed",  # right often, but not always: rewards differ in most groups
    "rollouts.num_prompts": "2",
    "rollouts.num_rollouts": "6",
    "select.num_kept": "4",
}
MIXED = {**_ANY, "rollouts.num_prompts": "4", "rollouts.num_rollouts": "6", "select.num_kept": "6"}
"""For the recipes of systems, whose rounds, sizes and memories differ."""
SWARM = "a swarm's folder"
"""It gets a folder in which there are files of another run, and one that cannot be read."""
SCHEDULES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "one round, random choice, 2 epochs": ("pods", {**_SMALL, "select.rule": "random", "optim.num_epochs": "2"}),
    "4 slots, preempted": ("pods", {**_SMALL, "rollouts.num_slots": "4", "rollouts.scheduler": "dynamic"}),
    "4 slots, cosine rate": (
        "pods",
        {
            **_SMALL,
            "rollouts.num_slots": "4",
            "optim.schedule": "cosine",
            "optim.schedule_steps": "10",
        },
    ),
    "adapters, KL penalty": (
        "pods",
        {**_SMALL, "lora.rank": "4", "lora.dropout": "0.1", "loss.kl_beta": "0.01", "optim.num_epochs": "2"},
    ),
    "DAPO": ("systems/dapo", MIXED),
    "DARS + PODS": ("systems/dars_pods", {**MIXED, "select.num_kept": "4", "options.dars.most": "12"}),
    "XRPO": ("systems/xrpo", MIXED),
    "GDRO": ("systems/gdro_rollouts", MIXED),
    "DPS": ("systems/dps", {**MIXED, "options.dps.candidates": "6"}),
    "DOTS": ("systems/dots", {**MIXED, "options.dots.num_references": "4"}),
    "sGPO": ("systems/sgpo", {**MIXED, "options.sgpo.num_probes": "3"}),
    "ARRoL": ("systems/arrol", {**MIXED, "options.arrol.at": "2", "options.arrol.warm_steps": "2"}),
    "LATR": ("systems/latr", {**MIXED, "options.latr.until": "4", "options.latr.look": "[2]"}),
    "ECHO": ("systems/echo", {**MIXED, "options.echo.unsure": "0.99", "options.echo.spike": "2"}),
    "TRACE": ("systems/trace", {**MIXED, "options.trace.at": "[2, 4]"}),
    "an average of weights": (
        "pods",
        {**_SMALL, "optim.num_minibatches": "2", "correct.proximal": "average", "correct.weight": "mask"},
    ),
    "groups that wait": ("systems/april", {**MIXED, "order.ahead": "1.0", "rollouts.num_slots": "9"}),
    "two steps ahead, put off": (
        "pods",
        {**_SMALL, "order.ahead": "2", "order.rest": "put_off", "rollouts.num_slots": "6", "systems": "dapo"},
    ),
    "two steps ahead, run": (
        "pods",
        {**_SMALL, "order.ahead": "2", "order.rest": "run", "rollouts.num_slots": "6", "optim.num_epochs": "2"},
    ),
    "a buffer of pilots": (
        "systems/pilot_commit",
        {**MIXED, "options.pilot_commit.pilots": "3", "optim.num_minibatches": "2"},
    ),
    SWARM: ("systems/ftis", {**MIXED, "optim.num_minibatches": "2", "options.sapo.num": "3"}),
    "groups that close": (
        "pods",
        {
            **_SMALL,
            "task.rewards": "{correct = 1.0}",
            "rollouts.num_rollouts": "12",
            "select.num_kept": "2",
            "systems": "certain,random",
            "options.certain.first": "2",
            "options.random.at": "3",
            "options.random.share": "0.2",
            "rollouts.num_slots": "6",
            "rollouts.scheduler": "continuous+breadth",
        },
    ),
    "answers of several turns": ("columns", {**_SMALL, "task.digits": "2", "rollouts.max_new_tokens": "32"}),
    "one step ahead, in a child process": (
        "pods",
        {**_SMALL, "order.ahead": "1", "scale.generators": "1", "optim.num_epochs": "2"},
    ),
}
"""Name -> recipe, and what replaces its options."""
AHEAD = "one step ahead, in a child process"
"""Each of its starts imports everything in the child, so it gets few kills."""


def words_of(name: str, replaced: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """The words behind `pods` that start a schedule, without --out."""
    recipe, options = SCHEDULES[name]
    return ["train", recipe, "--plain", *(f"--{key}={value}" for key, value in {**options, **replaced}.items())]
