"""docs/systems.md: what the recipes say of the systems. docs/systems-measured.md: what the comparison measured."""

from __future__ import annotations

import re
from collections.abc import Callable

from benchmarks.figures.markdown import by_its_page, table
from benchmarks.files import ROOT, Files
from podsrl.compare.systems import GROUPS, TROUBLES, System, read_system, system_names

READING = """\
Accuracy is that of the last evaluation ({held_out} held-out prompts, {samples} answers to each). All have the learning
rate of GRPO, {lr:g}, and a short run counts in full what a system spends at its start, so take no small difference for
a ranking.
"""


def reading(files: Files) -> str:
    """What the columns mean and what the comparison leaves open, with the numbers of its recipe."""
    from podsrl.compare.runs import plan
    from podsrl.config.files import read_tree
    from podsrl.config.load import build
    from podsrl.config.schema import CompareConfig
    from podsrl.tasks.arithmetic import load_arithmetic

    config = build(CompareConfig, read_tree("systems"), "systems")
    base = plan(config, ROOT)[0].config
    held_out = len(load_arithmetic(digits=base.task.digits, num_eval=base.task.num_eval).eval)
    return READING.format(held_out=held_out, samples=base.eval.num_samples, lr=base.optim.lr)


def troubles(files: Files) -> str:
    """What to type, by what troubles a reader."""
    rows = [[trouble.what, ", ".join(f"`{name}`" for name in trouble.systems), trouble.besides] for trouble in TROUBLES]
    return table(["your trouble", "try", "what also may help"], rows, num_left=3)


def listed(files: Files) -> str:
    """A table per group: a row per system, with a link to its paper."""
    found = [read_system(name) for name in system_names()]
    head = ["system", "idea", "use it when", "it costs", "we saw"]
    parts = []
    for group, what in GROUPS.items():
        rows = [_row(system) for system in found if system.about.group == group]
        parts.append(f"### {group.capitalize()}\n\n{what.capitalize()}.\n\n{table(head, rows, num_left=5)}")
    return "\n\n".join(parts)


def _row(system: System) -> list[str]:
    about, name = system.about, f"`{system.name}`"
    numbers = re.findall(r"\d{4}\.\d{5}", about.source)
    linked = f"[{name}](https://arxiv.org/abs/{numbers[0]})" if numbers else name
    return [linked, about.idea, about.when, about.cost, "–" if about.seen == "no clear difference" else about.seen]


PARTS: dict[str, Callable[..., str]] = {
    "systems-measured": by_its_page("systems", "benchmarks.systems:markdown"),
    "systems-reading": reading,
    "systems-list": listed,
    "systems-troubles": troubles,
}
