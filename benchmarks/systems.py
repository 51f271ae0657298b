"""All systems against each other (`pods compare systems`); `--save` also writes docs/systems.md and `pods systems`.

    python -m benchmarks systems                  5 paired seeds of each system, about half an hour on two idle cores
    python -m benchmarks systems --quick          one seed of a few seconds
    python -m benchmarks systems --out FOLDER     goes on in a folder, or measures what is finished there

The comparison is the recipe `systems`; its report is FOLDER/report.html.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks import command
from benchmarks.timing import Say
from podsrl.cli.systems import short_source
from podsrl.compare.costs import COSTS, EARLY_ROLLOUTS
from podsrl.compare.systems import MEASURED, System, measured, read_system, saving_text, system_names
from podsrl.errors import UsageError

PAGE = command.ROOT / "docs" / "systems.md"
IN_PACKAGE = command.ROOT / "src" / "podsrl" / "compare" / MEASURED
QUICK = ("num_seeds=1", "base.stop.seconds=3", "base.eval.every_seconds=1")
LEFT_OUT = ("grid_seconds", "mean_accuracy", "speedup", "stage_seconds")
"""Of what a comparison writes, what is not saved: the curves, and what the costs say too."""
NOT_MEASURED = "Not measured yet: `python -m benchmarks systems --save` puts the table here.\n"
READING = """\
`python -m benchmarks systems --save` makes the comparison. It writes the table above, its JSON in
`benchmarks/results/`, and what `pods systems` shows.

- **Accuracy** is the mean over the seeds of the last evaluation: {held_out} held-out questions, {samples} sampled
  answers to each.
- **Saved** compares costs at one accuracy, {percent:g} % of the best that `{baseline}` reaches: what `{baseline}`
  spends until then, over what the system spends. 2× is half the cost; below 1 the system spends more. In brackets
  stands the 95 % interval over paired seeds ([how](comparing.md#what-is-measured)); one that contains 1 does not tell
  the system from `{baseline}`. "Not reached" means that the system's mean curve stays below that accuracy.
- **Rollouts** are all that were generated and judged: those trained on, those of groups that were left out, and
  probes.
- **No signal** is the share of the groups trained on whose kept rewards are all equal. **All wrong** is the share of
  all groups but probes without a right answer; **all wrong early** is that share in the first {early:,} rollouts of
  each run. **Mixed per 100** is the number of groups with right and wrong answers per 100 rollouts.

Before you trust it for a model of your own:

- **It is one toy task**: sums of numbers with {digits} digits, and a model small enough for a CPU. On another task or
  model the order may differ.
- **All systems have one learning rate**, {lr:g}: that of the recipe `mixed`, which is plain GRPO. It is not each
  system's own best.
- **Runs are short**: {seconds:g} training seconds. What a system spends at the start, such as sGPO's probes, counts
  in full, and what pays off only in long runs does not show.
- **{num_seeds} paired seeds and {answers} answers per evaluation** are few. Read the intervals, and take no small
  difference in accuracy for a ranking.
- **Seconds are those of a CPU**, where generation and update share the same cores. On a GPU the same savings in
  rollouts, tokens or steps are other savings in seconds.
- **A recipe is not its paper**: [each system](#the-systems) says what differs.

To compare on a model and questions of your own, give `pods compare systems` the flags `--base.model.path`,
`--base.task.name=jsonl`, `--base.task.path`, `--base.optim.lr`, `--base.rollouts.max_new_tokens` and
`--base.stop.seconds`.
"""


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("systems", __doc__)
    parser.add_argument("--quick", action="store_true", help="one seed of a few seconds")
    parser.add_argument("--out", type=Path, help="folder of the comparison; default: runs/systems-DATE-TIME")
    if {"--quick", "--save"} <= {*arguments}:
        raise UsageError("--save with --quick: wanted the whole comparison; leave one out")
    command.measure(parser, arguments, run, table, publish=publish, keep_threads=True)


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Run the comparison, or what is left of it, and draw its report."""
    from podsrl.cli.compare import run_comparison
    from podsrl.cli.console import new_folder
    from podsrl.config.files import read_tree
    from podsrl.config.load import apply_overrides, build
    from podsrl.config.schema import CompareConfig
    from podsrl.report.html import write_report

    folder = options.out or new_folder("systems")
    config = build(CompareConfig, apply_overrides(read_tree("systems"), QUICK if options.quick else ()), "systems")
    result = run_comparison(config, folder)
    write_report([folder], folder / "report.html")
    return summary(result)


def summary(result: Mapping[str, Any]) -> dict[str, Any]:
    """What is saved of `compare.json`."""
    kept = {key: value for key, value in result.items() if key not in LEFT_OUT}
    arms = {arm: {key: value for key, value in own.items() if key != "runs"} for arm, own in result["arms"].items()}
    last = {arm: means[-1] for arm, means in result["mean_accuracy"].items()}
    num_seeds = len(result["arms"][result["baseline"]]["seeds"])
    return {**kept, "arms": arms, "num_seeds": num_seeds, "last_accuracy": last}


def table(result: dict[str, Any]) -> Table:
    """Accuracy, savings and signal of every arm."""
    head, *rows = _rows(result)
    shown = Table(title=_setting(result))
    for column in head:
        shown.add_column(column, justify="left" if column == "system" else "right")
    for row in rows:
        shown.add_row(*row)
    return shown


def publish(result: dict[str, Any]) -> None:
    """Write the result where `pods systems` reads it, and the page."""
    IN_PACKAGE.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_page()


def write_page() -> None:
    """Write what of docs/systems.md comes from the recipes and from the committed result."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def filled(text: str) -> str:
    """The page with each part between its marks made anew.

    Example:
        >>> filled("<!-- measured: begin -->\\nold\\n<!-- measured: end -->\\n").count("old")
        0
    """
    found = [read_system(name) for name in system_names()]
    result = measured()
    parts = {
        "list": "".join(_list(found)),
        "measured": NOT_MEASURED if result is None else "".join(_measured(result)),
        "reading": _reading(),
        "systems": "".join(map(_section, found)),
    }
    for name, part in parts.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
        if begin in text:
            before, _, rest = text.partition(begin)
            text = f"{before}{begin}\n{part}\n{end}{rest.partition(end)[2]}"
    return text


def _list(found: Sequence[System]) -> list[str]:
    rows = [f"| [`{each.name}`](#{each.name}) | {_cell(each.about.idea)} | {_source(each)} |\n" for each in found]
    return ["| system | idea | source |\n|---|---|---|\n", *rows]


def _source(system: System) -> str:
    text = short_source(system.about.source)
    return f"[{text}](https://arxiv.org/abs/{text.removeprefix('arXiv ')})" if text.startswith("arXiv ") else text


def _reading() -> str:
    """What the columns mean and what the comparison leaves open, with the numbers of its recipe."""
    from podsrl.compare.runs import plan
    from podsrl.config.files import read_tree
    from podsrl.config.load import build
    from podsrl.config.schema import CompareConfig
    from podsrl.tasks.arithmetic import load_arithmetic

    config = build(CompareConfig, read_tree("systems"), "systems")
    base = plan(config, PAGE.parent)[0].config
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


def _section(system: System) -> str:
    """A system's heading, what `[about]` says, and its parts."""
    about = system.about
    settings = ", ".join(f"`{key} = {value}`" for key, value in system.changes.items())
    options = [
        f"`{name}.{key} = {value}`" for name, own in sorted(system.options.items()) for key, value in own.items()
    ]
    lines = [
        f"### {system.name}\n\n**{about.name}**: {_sentence(about.idea)}\n\n",
        f"- Source: {_sentence(about.source)}\n",
        f"- Different here, or ours where the source is silent: {_sentence(about.differs)}\n",
        f"- Sets {settings}" + (f"; options {', '.join(options)}" if options else "") + ".\n\n",
    ]
    return "".join(lines)


def _measured(result: Mapping[str, Any]) -> list[str]:
    head, *rows = _rows(result)
    lines = [f"{_setting(result)}.\n\n", f"| {' | '.join(head)} |\n", "|---|" + "--:|" * (len(head) - 1) + "\n"]
    return [*lines, *(f"| {' | '.join(row)} |\n" for row in rows)]


def _rows(result: Mapping[str, Any]) -> list[list[str]]:
    """The head and a row per arm, as texts."""
    costs = [cost for cost in COSTS if cost in result["costs"]]
    saved = [f"{cost} saved" for cost in costs]
    head = ["system", "accuracy", *saved, "no signal", "all wrong", "all wrong early", "mixed per 100"]
    rows = [head]
    for arm, last in result["last_accuracy"].items():
        signal = result["signal"][arm]
        names = ("zero_signal", "all_wrong", "all_wrong_early")
        shares = ["–" if signal[name] is None else f"{signal[name]:.0%}" for name in names]
        mixed = signal["mixed_per_100"]
        is_baseline = arm == result["baseline"]
        savings = ["1" if is_baseline else saving_text(result, arm, cost) for cost in costs]
        rows.append([arm, f"{last:.1%}", *savings, *shares, "–" if mixed is None else f"{mixed:.1f}"])
    return rows


def _setting(result: Mapping[str, Any]) -> str:
    return (
        f"{result['num_seeds']} paired seeds of {result['seconds']:g} training seconds, {result['jobs']} at a time; "
        f"savings to {result['fraction']:.0%} of the best accuracy of `{result['baseline']}`; {result['hardware']}"
    )


def _sentence(text: str) -> str:
    """On one line, with a full stop, and as Markdown without surprises; n and arXiv stay as they are."""
    return _cell(" ".join(text.split())).removesuffix(".") + "."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
