"""`pods demo` and `pods compare`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from podsrl.cli.console import errors, new_folder, output, split_words
from podsrl.errors import UsageError
from podsrl.lib.signals import exit_code

if TYPE_CHECKING:
    from podsrl.config.schema import CompareConfig

Json = dict[str, Any]
QUICK = ("num_seeds=1", "base.stop.seconds=4", "base.eval.every_seconds=2", "base.task.num_eval=64")


def demo(
    context: typer.Context,
    quick: Annotated[
        bool, typer.Option(help="A few seconds an arm: shows that everything works, not who wins.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the comparison; default: runs/demo-DATE-TIME.")
    ] = None,
    json: Annotated[bool, typer.Option(help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Watch three ways of training against each other, on a laptop, with no download.

    A tiny language model learns to add. GRPO trains on 16 rollouts a question; GRPO with gradient accumulation
    generates and trains on 64; PODS generates 64 and trains on the 16 whose rewards vary most. Same seconds for each.

    [bold]Examples[/]

      pods demo

      pods demo --quick

      pods demo --num_seeds=5 --base.stop.seconds=60     longer, with intervals over seeds
    """
    given = {text.removeprefix("--").split("=")[0] for text in context.args}
    shortened = [text for text in QUICK if quick and text.split("=")[0] not in given]
    _compare("demo", [*shortened, *context.args], out or new_folder("demo"), json)


def compare(
    context: typer.Context,
    config: Annotated[str, typer.Argument(help="TOML file with a CompareConfig, or a recipe's name.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder; one that holds this comparison already is gone on with.")
    ] = None,
    json: Annotated[bool, typer.Option(help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Run arms on paired seeds for equal training time, and measure speed-ups with intervals.

    [bold]Examples[/]

      pods compare demo --num_seeds=5 --jobs=2

      pods compare my-arms.toml --base.stop.seconds=120 --out runs/mine
    """
    name, overrides = split_words(config, context.args)
    if name is None:
        raise UsageError("pods compare wants a CONFIG, e.g. `pods compare demo`")
    _compare(name, overrides, out or new_folder(Path(name).stem), json)


def _compare(source: str, overrides: Sequence[str], folder: Path, as_json: bool) -> None:
    from podsrl.config.load import apply_overrides, build, read_tree
    from podsrl.config.schema import CompareConfig

    config = build(CompareConfig, apply_overrides(read_tree(source), overrides), source)
    result = run_comparison(config, folder)

    from podsrl.report.html import write_report

    report = write_report([folder], folder / "report.html")
    if as_json:
        output.print_json(data=result)
    else:
        _print_result(result)
    errors.print(f"pictures and every recorded rollout: {report}", markup=False, soft_wrap=True)


def run_comparison(config: CompareConfig, folder: Path, num_processes: int = 1) -> Json:
    """Check every arm, run what is not finished yet with a live display, and measure.

    Args:
        config: what to compare.
        folder: new, or of the same comparison, which then goes on.
        num_processes: that share each run.

    Returns:
        What `compare.json` holds.

    Raises:
        UsageError, RunFailed: as `podsrl.run.compare`. Ctrl-C ends the command after a hint.
    """
    from podsrl.run import compare as comparison
    from podsrl.run.measure import measure
    from podsrl.run.prepare import prepare

    members = comparison.plan(config, folder)
    for member in members[: len(config.arms)]:
        prepare(member.config).close()  # every arm, before minutes go into the first
    comparison.open_folder(config, folder)
    with _Display(members) as tick:
        is_complete = comparison.run_all(members, config.jobs, tick, num_processes)
    if not is_complete:
        errors.print(
            f"interrupted; the runs have saved themselves. Go on with the same command and --out {folder}",
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(exit_code())
    return measure(config, members, folder)


def _print_result(result: Json) -> None:
    from rich.table import Table

    seconds = result["seconds"]
    table = Table(
        title=f"{seconds:g} training seconds an arm, {len(next(iter(result['arms'].values()))['seeds'])} seed(s)"
    )
    for column in (
        "arm",
        "n → m",
        "steps",
        "final accuracy",
        "seconds a step",
        f"speed-up over {result['baseline']} (95 %)",
    ):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for arm, facts in result["arms"].items():
        steps = result["steps"][arm]
        table.add_row(
            arm,
            f"{facts['num_rollouts']} → {facts['num_kept']}",
            f"{sum(steps) / len(steps):.0f}",
            f"{result['mean_accuracy'][arm][-1]:.1%}",
            f"{sum(result['stage_seconds'][arm].values()):.2f}",
            speedup_text(result["speedup"][arm]),
        )
    output.print(table)
    output.print(
        f"Speed-up: time of {result['baseline']} to {result['fraction']:.0%} of its own best mean accuracy, "
        f"over the arm's time to the same.\nIn brackets: its 95 % interval over seeds.\n"
        f"Measured on {result['hardware']}.",
        soft_wrap=True,
    )


def speedup_text(speedup: Json) -> str:
    """ "1.83× (1.60–2.05)"; "(0–∞)" for one seed."""
    from podsrl.run.interval import SpeedupInterval

    found = SpeedupInterval.from_json(speedup)
    if found.point is None or found.share_unreached == 0:
        return found.text
    return f"{found.text}, not reached in {found.share_unreached:.0%} of resamples"


class _Display:
    """One live line a run, and one bar for all; plain lines without a terminal. Logs are read only where they grow."""

    def __init__(self, members: Sequence[Any]) -> None:
        from podsrl.cli.progress import new_progress
        from podsrl.run.folder import LogTail

        self._members = members
        self._tails = {member: LogTail(member.path / "metrics.jsonl") for member in members}
        self._seconds = dict.fromkeys(members, 0.0)
        self._accuracy = dict.fromkeys(members, "")
        self._speed = dict.fromkeys(members, "")
        self._tasks: dict[Any, Any] = {}
        self._progress = new_progress() if errors.is_terminal else None

    def __enter__(self) -> Callable[[], None]:
        if self._progress:
            total = sum(member.config.stop.seconds for member in self._members)
            self._total = self._progress.add_task("all runs", total=total, text="")
            self._progress.start()
        return self._tick

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.stop()

    def _tick(self) -> None:
        for member in self._members:
            lines = self._tails[member].new_lines()
            if lines:
                self._take(member, lines)
        if self._progress:
            self._progress.update(self._total, completed=sum(self._seconds.values()))

    def _take(self, member: Any, lines: Sequence[Json]) -> None:
        limit = float(member.config.stop.seconds)
        self._seconds[member] = min(limit, float(lines[-1]["seconds/train_elapsed"]))
        evaluations = [line["eval/accuracy"] for line in lines if "eval/accuracy" in line]
        if evaluations:
            self._accuracy[member] = f"accuracy {evaluations[-1]:6.1%}"
        steps = [line["seconds/total"] for line in lines if "seconds/total" in line]
        if steps:
            a_step = member.config.rollouts.num_prompts * member.config.rollouts.num_rollouts
            self._speed[member] = f"{a_step * len(steps) / sum(steps):,.0f} rollouts/s"
        text = f"{self._accuracy[member]}  {self._speed[member]}"
        if self._progress:
            if member not in self._tasks:
                self._tasks[member] = self._progress.add_task(member.path.name, total=limit, text=text)
            self._progress.update(self._tasks[member], completed=self._seconds[member], text=text)
        elif evaluations:
            errors.print(f"{member.path.name}: {self._seconds[member]:5.1f} of {limit:g} s  {text}", highlight=False)
