"""docs/systems.md: what the recipes say of the systems, and what the comparison of all measured."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.figures.markdown import per_processor
from benchmarks.figures.markdown import table as markdown_table
from benchmarks.files import ROOT, Files, Result
from podsrl.compare.costs import EARLY_ROLLOUTS
from podsrl.compare.systems import System, read_system, system_names

READING = """\
- **Accuracy** is the mean over the seeds of the last evaluation: {held_out} held-out questions, {samples} sampled
  answers to each.
- **Needed** compares costs at one accuracy, {percent:g} % of the best that `{baseline}` reaches: what the system
  spends until then, over what `{baseline}` spends; below 1 the system spends less. In brackets stands the 95 % interval
  over paired seeds ([how](comparing.md#what-is-measured)); one that contains 1 does not tell the system from
  `{baseline}`. "Not reached" means that the system's mean curve stays below that accuracy.
- **Rollouts** are all that were generated and judged, those of groups that were left out and probes too.
- **No signal** is the share of the groups trained on whose kept rewards are all equal. **All wrong** is the share of
  all groups but probes without a right answer; **all wrong early** is that share in the first {early:,} rollouts of
  each run. **Mixed per 100** is the number of groups with right and wrong answers per 100 rollouts.

Before you trust it for a model of your own:

- **It is one toy task**: sums of numbers with {digits} digits, and a model small enough for a CPU.
- **All systems have one learning rate**, {lr:g}: that of the recipe `mixed`, which is plain GRPO. It is not each
  system's own best.
- **Runs are short**: {seconds:g} training seconds. What a system spends at the start, such as sGPO's probes, counts
  in full, and what pays off only in long runs does not show.
- **{num_seeds} paired seeds and {answers} answers per evaluation** are few. Read the intervals, and take no small
  difference in accuracy for a ranking.
- **Seconds are those of a CPU**, where generation and update share the same cores.
- **A recipe is not its paper**: [each system](#the-systems) says what differs.
"""


def listed(files: Files) -> str:
    """All systems with their ideas."""
    found = [read_system(name) for name in system_names()]
    rows = [f"| [`{each.name}`](#{each.name}) | {_cell(each.about.idea)} |\n" for each in found]
    return "".join(["| system | idea |\n|---|---|\n", *rows])


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


def sections(files: Files) -> str:
    """A section per system."""
    return "".join(_section(read_system(name)) for name in system_names())


def _section(system: System) -> str:
    """A system's heading, what `[about]` says, and its parts."""
    about = system.about
    settings = ", ".join(f"`{key} = {value}`" for key, value in system.changes.items())
    options = [
        f"`{name}.{key} = {value}`" for name, own in sorted(system.options.items()) for key, value in own.items()
    ]
    lines = [
        f"### {system.name}\n\n**{about.name}**, {_sentence(about.source)}\n\n",
        f"- Different here: {_sentence(about.differs)}\n",
        f"- Sets {settings}" + (f"; options {', '.join(options)}" if options else "") + ".\n\n",
    ]
    return "".join(lines)


def measured(files: Files) -> str:
    """A row per system: accuracy, costs with intervals, and the signal of its groups."""
    from benchmarks.systems import rows_of, setting_of

    def text(result: Result) -> str:
        head, *rows = rows_of(result)
        return f"{setting_of(result)}.\n\n{markdown_table(head, rows)}"

    return per_processor(files("systems"), text)


def _sentence(text: str) -> str:
    """On one line, with a full stop, and as Markdown without surprises; n and arXiv stay as they are."""
    return _cell(" ".join(text.split())).removesuffix(".") + "."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


PARTS: dict[str, Callable[..., str]] = {
    "systems-list": listed,
    "systems-measured": measured,
    "systems-reading": reading,
    "systems-sections": sections,
}
