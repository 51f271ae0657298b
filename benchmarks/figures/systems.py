"""docs/systems.md: what the recipes say of the systems, and what the comparison of all measured."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.figures.markdown import by_its_page
from benchmarks.files import ROOT, Files
from podsrl.compare.costs import EARLY_ROLLOUTS
from podsrl.compare.systems import System, read_system, system_names

READING = """\
- **Accuracy** is the mean over the seeds of the last evaluation: {held_out} held-out questions, {samples} sampled
  answers to each.
- **Needed** is what the system spends until it has {percent:g} % of the best accuracy of `{baseline}`, over what
  `{baseline}` spends until then, with the 95 % interval over paired seeds ([how](comparing.md#what-is-measured)); one
  that contains 1 does not tell the two apart. Rollouts are all that were generated and judged, probes too.
- **No signal** is the share of the groups trained on whose kept rewards are all equal; **all wrong** that of all
  groups but probes without a right answer, **early** in the first {early:,} rollouts of each run; **mixed per 100** the
  number of groups with right and wrong answers per 100 rollouts.

Before you trust it for a model of your own: it is one toy task (sums of numbers with {digits} digits) on a CPU, where
generation and update share the cores. All systems have the learning rate of plain GRPO, {lr:g}, not each its own best.
Runs of {seconds:g} training seconds count what a system spends at the start in full, and show nothing that pays off
later. {num_seeds} paired seeds with {answers} answers per evaluation are few: take no small difference for a ranking.
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
    return READING.format(
        held_out=held_out,
        early=EARLY_ROLLOUTS,
        samples=base.eval.num_samples,
        answers=held_out * base.eval.num_samples,
        percent=100 * config.fraction,
        baseline=config.baseline,
        digits=" or ".join(map(str, base.task.digits))
        if isinstance(base.task.digits, tuple | list)
        else base.task.digits,
        lr=base.optim.lr,
        seconds=base.stop.seconds,
        num_seeds=config.num_seeds,
    )


def listed(files: Files) -> str:
    """A line per system, with a link to its recipe."""
    return "\n".join(_line(read_system(name)) for name in system_names())


def _line(system: System) -> str:
    about, recipe = system.about, f"../src/podsrl/config/recipes/systems/{system.name}.toml"
    return f"- [`{system.name}`]({recipe}), {about.name}: {_sentence(about.idea)} {_sentence(about.source)}"


def _sentence(text: str) -> str:
    """On one line, with a full stop, and as Markdown without surprises; n and arXiv stay as they are."""
    return _cell(" ".join(text.split())).removesuffix(".") + "."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


PARTS: dict[str, Callable[..., str]] = {
    "systems-measured": by_its_page("systems", "benchmarks.systems:markdown"),
    "systems-reading": reading,
    "systems-list": listed,
}
