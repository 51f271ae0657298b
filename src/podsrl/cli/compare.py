"""`pods demo` and `pods compare`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from podsrl.cli.console import errors, new_folder, output

Json = dict[str, Any]
QUICK = ("--num_seeds=1", "--base.stop.seconds=4", "--base.eval.every_seconds=2", "--base.task.num_eval=64")


def demo(
    context: typer.Context,
    quick: Annotated[
        bool, typer.Option(help="A few seconds an arm: shows that everything works, not who wins.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the comparison; default: runs/demo-DATE-TIME.")] = None,
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
    _compare("demo", context.args if not quick else [*QUICK, *context.args], out or new_folder("demo"), json)


def compare(
    context: typer.Context,
    config: Annotated[str, typer.Argument(help="TOML file with a CompareConfig, or a recipe's name.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder; one that holds this comparison already is gone on with.")
    ] = None,
    json: Annotated[bool, typer.Option(help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Run arms on paired seeds for equal training time, and measure speed-ups with intervals.

    [bold]Examples[/]

      pods compare demo --num_seeds=5 --jobs=2

      pods compare my-arms.toml --base.stop.seconds=120 --out runs/mine
    """
    _compare(config, context.args, out or new_folder(Path(config).stem), json)


def _compare(source: str, overrides: Sequence[str], folder: Path, as_json: bool) -> None:
    from podsrl.config.load import apply_overrides, build, read_tree
    from podsrl.config.schema import CompareConfig

    config = build(CompareConfig, apply_overrides(read_tree(source), overrides), source)

    from podsrl.run import compare as comparison

    members = comparison.plan(config, folder)
    comparison.open_folder(config, folder)
    with _Display(members) as tick:
        is_complete = comparison.run_all(members, config.jobs, tick)
    if not is_complete:
        errors.print(f"interrupted; the runs have saved themselves. Go on with the same command and --out {folder}")
        raise typer.Exit(130)
    result = comparison.measure(config, members, folder)

    from podsrl.report.html import write_report

    report = write_report([folder], folder / "report.html")
    if as_json:
        output.print_json(data=result)
    else:
        _print_result(result)
    errors.print(f"pictures and every recorded rollout: {report}", soft_wrap=True)


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
            speedup_text(result["speedup"][arm], len(steps)),
        )
    output.print(table)
    output.print(
        f"Speed-up: time of {result['baseline']} to {result['fraction']:.0%} of its own best mean accuracy, "
        f"over the arm's time to the same.\nMeasured on {result['hardware']}.",
        soft_wrap=True,
    )


def speedup_text(speedup: Json, num_seeds: int) -> str:
    """ "1.83× (1.60–2.05)"; without an interval for one seed."""
    if speedup["point"] is None:
        return "not reached"
    interval = f" ({speedup['low']:.2f}–{speedup['high']:.2f})" if num_seeds > 1 else ""
    return f"{speedup['point']:.2f}×{interval}"


class _Display:
    """One live line a run that is under way, and one bar for all; plain lines without a terminal."""

    def __init__(self, members: Sequence[Any]) -> None:
        from podsrl.cli.progress import new_progress

        self._members = members
        self._progress = new_progress()
        self._tasks: dict[Any, Any] = {}
        self._shown: dict[Any, int] = {}

    def __enter__(self) -> Callable[[], None]:
        if errors.is_terminal:
            self._total = self._progress.add_task(
                "all runs", total=sum(m.config.stop.seconds for m in self._members), text=""
            )
            self._progress.start()
        return self._tick

    def __exit__(self, *_: object) -> None:
        if errors.is_terminal:
            self._progress.stop()

    def _tick(self) -> None:
        from podsrl.run.compare import read_log

        done = 0.0
        for member in self._members:
            if member in self._tasks and self._tasks[member] is None:
                done += member.config.stop.seconds
                continue
            log = read_log(member.path)
            if log:
                done += self._show(member, log)
        if errors.is_terminal:
            self._progress.update(self._total, completed=done)

    def _show(self, member: Any, log: list[Json]) -> float:
        seconds, limit = float(log[-1]["seconds/train_elapsed"]), float(member.config.stop.seconds)
        accuracies = [line["eval/accuracy"] for line in log if "eval/accuracy" in line]
        steps = [line for line in log if "seconds/total" in line]
        text = f"accuracy {accuracies[-1]:6.1%}" if accuracies else ""
        if steps:
            last = steps[-1]
            text += f"  {last['tokens/generated'] / last['length/all'] / last['seconds/total']:,.0f} rollouts/s"
        if errors.is_terminal:
            task = self._tasks.get(member) or self._progress.add_task(member.path.name, total=limit, text=text)
            self._tasks[member] = task
            self._progress.update(task, completed=min(seconds, limit), text=text)
        elif len(accuracies) > self._shown.get(member, 0):
            self._shown[member] = len(accuracies)
            errors.print(f"{member.path.name}: {seconds:5.1f} of {limit:g} s  {text}", highlight=False)
        if member.is_finished:
            self._tasks[member] = None
        return min(seconds, limit)
