"""`pods plan`."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tomli_w
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from podsrl.cli.console import check_plot, errors, output, print_paragraph, say, split_words
from podsrl.cli.progress import bar
from podsrl.config.files import merge
from podsrl.config.load import apply_overrides, load_config
from podsrl.config.schema import RunConfig
from podsrl.errors import PodsError, UsageError
from podsrl.lib.imports import load
from podsrl.lib.machine import hardware_line
from podsrl.lib.signals import exit_code

if TYPE_CHECKING:
    from podsrl.plan.search import Plan

Json = dict[str, Any]


def plan(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="TOML file, or a recipe's name.")],
    measure: Annotated[float, typer.Option(help="Seconds to measure, without loading.")] = 60.0,
    json: Annotated[bool, typer.Option(help="Print the result as JSON on stdout.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Write the map of n and m to this file (.png, .svg, .pdf).")] = None,
    write: Annotated[
        Path | None, typer.Option(help="Write a new config (.toml): CONFIG with the costs of this machine.")
    ] = None,
) -> None:
    """Suggest how many rollouts to generate (n) and to keep (m), for this model on this machine.

    [bold]Examples[/]

      pods plan pods                                    about a minute
      pods plan my.toml --measure 120 --plot plan.png   longer, with a picture
      pods plan runs/mine/config.toml --json            the config of a run
      pods plan auto --write mine.toml                  then: pods train mine.toml

    The command measures a few real steps without learning anything, and predicts every choice of n and m; pods compare
    measures a suggestion. --write makes a config that holds the measured costs, by which the recipe auto decides.
    """
    name, overrides = split_words(target, context.args)
    if name is None:
        raise UsageError("pods plan wants a CONFIG, e.g. `pods plan pods`")
    if Path(name).is_dir():
        raise UsageError(f"{name} is a folder, and pods plan wants a CONFIG; of a run: pods plan {name}/config.toml")
    check_plot(plot)
    if write is not None and (write.suffix != ".toml" or write.exists() or not write.parent.is_dir()):
        raise UsageError(f"--write {write}: wanted a new file that ends in .toml, in a folder that exists")
    try:
        result = {"hardware": hardware_line(), **measured_plan(load_config(name, overrides), measure).to_json()}
    except KeyboardInterrupt:
        errors.print("interrupted; nothing was written")
        raise typer.Exit(exit_code()) from None
    if plot is not None:
        from podsrl.report.figures.plan import plan_heatmap

        plan_heatmap(result).savefig(plot)
    if json:
        output.print_json(data=result)
    else:
        _show(result)
    if write is not None:
        _write(write, name, overrides, result)


def measured_plan(config: RunConfig, seconds: float) -> Plan:
    """Measure real steps for so many seconds, with a bar, and predict every choice of n and m.

    Raises:
        UsageError: the seconds are not above 0, or as of a run's start.
    """
    if not seconds > 0:
        raise UsageError(f"measure = {seconds:g}: wanted seconds above 0, e.g. 60")
    load("podsrl.plan.probe", "transformers.modeling_utils")
    from podsrl.plan.probe import run_probes, still_trainer
    from podsrl.plan.search import make_plan
    from podsrl.run.before.settle import settle

    config, notes = settle(config)
    for line in notes:
        say(line, errors)
    with bar("measuring") as progress:
        progress(0, None, "loading")
        with still_trainer(config) as trainer:
            measured = run_probes(trainer, config, budget_seconds=seconds, progress=progress)
    return make_plan(measured)


def _write(path: Path, name: str, overrides: list[str], result: Json) -> None:
    """A config that extends the one that was measured, with the flags of the command and the costs.

    PodsError: they are not known.
    """
    if result["costs"] is None:
        raise PodsError(
            f"--write {path}: the costs are not known, since every measured update trained on as many rows (on none "
            "where no group had correct and wrong answers), so nothing was written; measure longer (--measure), or "
            "plan with more rollouts (--rollouts.num_rollouts)"
        )
    base = os.path.relpath(name, path.parent) if Path(name).is_file() else name
    costs = {**result["costs"], "source": f"{result['hardware']}, {date.today()}"}
    tree = {"extends": base} | merge(apply_overrides({}, overrides), {"costs": costs})
    path.write_text(f"# Measured by pods plan {name}.\n{tomli_w.dumps(tree)}")
    say(f"wrote {path}: pods train {path}", errors)


def _show(result: Json) -> None:
    from podsrl.run.before.costs import LARGEST_SPREAD

    spread = result["spread"]
    if is_doubted := spread is not None and spread > LARGEST_SPREAD:
        print_paragraph(
            f"not trusted: repeats of the same measurement differ by ±{spread:.0%}: run it again when the machine is "
            "quiet, or longer (--measure)",
            style="red",
        )
    print_paragraph(_verdict(result) + (" (not trusted, see above)." if is_doubted else "."), style="bold")
    say("  " + " ".join(result["flags"]))
    output.print(_table(result))
    for line in _reading(result):
        print_paragraph(line)
    for text in result["unknown"]:
        say(f"not known: {text}", errors)


def _verdict(result: Json) -> str:
    """What to do, in a sentence without its end: the gain and its range."""
    own, best = result["own"], result["best"]
    pair = f"n = {best['num_rollouts']} and m = {best['num_kept']}"
    if best["progress"] == 0:
        return f"Keep {pair}: no answer taught anything while this was measured, so seconds alone are known"
    if _is_same(own, best):
        return f"Keep {pair}: no choice is better by more than the error of the prediction"
    gain, ends = _relative(best)
    low = best["relative_progress_range"][0]
    certain = "" if low is None or low > 1 else ", which is within the error of the measurement"
    return (
        f"Generate {best['num_rollouts']}, keep {best['num_kept']}: {gain} ({ends}) the config's progress per "
        f"second{certain}"
    )


def _table(result: Json) -> Table:
    """The best m of each n; narrow enough for 80 columns, where no number is cut."""
    table = Table(
        title="predicted milliseconds per step", caption=result["hardware"], box=SIMPLE_HEAD, padding=0, pad_edge=False
    )
    for name in ("n → m", "generate", "update", "step", "signal", "progress", "range"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in _rows(result):
        marks = [name for name in ("own", "best") if _is_same(row, result[name])]
        seconds = row["seconds"]
        table.add_row(
            " ".join([*marks, f"{row['num_rollouts']} → {row['num_kept']}"]),
            *(_milliseconds(seconds[name]) for name in ("generate", "update", "total")),
            f"{row['share']:.2f}",
            *_relative(row),
            style="bold" if "best" in marks else None,
        )
    return table


def _rows(result: Json) -> list[Json]:
    """The best m of each n, and the config's own choice."""
    rows = {(row["num_rollouts"], row["num_kept"]): row for row in (result["own"], result["best"])}
    for size in {row["num_rollouts"] for row in result["candidates"]}:
        of_size = [row for row in result["candidates"] if row["num_rollouts"] == size]
        row = max(of_size, key=lambda row: float(row["progress"]))
        rows[size, row["num_kept"]] = row
    return [row for _, row in sorted(rows.items())]


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f}" if seconds >= 0.1 else f"{1000 * seconds:.1f}"


def _is_same(a: Json, b: Json) -> bool:
    return all(a[name] == b[name] for name in ("num_rollouts", "num_kept"))


def _relative(row: Json) -> tuple[str, str]:
    if row["relative_progress"] is None:
        return "–", "–"
    low, high = row["relative_progress_range"]
    return f"{row['relative_progress']:.2f}×", f"{low:.2f}–{high:.2f}"


def _reading(result: Json) -> list[str]:
    """What the choice rests on, then what tokens and rows cost here."""
    ends = result["noise_range"]
    noise = (
        f"measured; {ends[0]:.2g} to {ends[1]:.2g} by step" if ends else "measured on one step: its spread is not known"
    )
    noise = noise if result["is_noise_measured"] else "assumed"
    lines = [
        f"pass rate {result['pass_rate']:.1%}, spread over questions as Beta with concentration "
        f"{result['concentration']:.3g}; gradient noise κ = {result['noise_ratio']:.2g} ({noise})",
    ]
    if result["spread"] is not None:
        lines.append(f"repeats of a measurement differ from the fit by ±{result['spread']:.0%}")
    if price := result["price"]:
        micros = [1e6 * price[f"{name}_token_seconds"] for name in ("generated", "trained")]
        lines.append(
            f"price: a generated token takes {price['point']:.2g} times as long as a trained one ({micros[0]:.3g} µs "
            f"over {micros[1]:.3g} µs); its column in a comparison: pods compare CONFIG --prices=[{price['point']:.2g}]"
        )
    if costs := result["costs"]:
        group, rollout, row = (f"{costs[f'{name}_ms']:.3g} ms" for name in ("group", "rollout", "row"))
        lines.append(
            f"costs: a group {group}, a rollout {rollout}, a row of the update {row}; pods plan CONFIG --write FILE "
            "makes a config of them"
        )
    return lines
