"""`pods plan`."""

from __future__ import annotations

import os
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import tomli_w
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from podsrl.cli.console import check_plot, errors, output, print_paragraph, say, size_text, split_words
from podsrl.cli.memory import advise_on, parse_memory, print_advice
from podsrl.cli.progress import bar
from podsrl.config.files import merge
from podsrl.config.load import apply_overrides, load_config
from podsrl.config.schema import RunConfig
from podsrl.errors import PodsError, UsageError
from podsrl.lib.callbacks import part_of
from podsrl.lib.imports import load
from podsrl.lib.signals import exit_code

Json = dict[str, Any]
NUM_CHECK_STEPS = (5, 20)
"""Least and greatest number of real steps at the suggestion."""
SHARE_OF_CHECK = 0.2
"""Share of the budget for these steps."""
_KEY = ("num_rollouts", "num_kept", "micro_batch_tokens")


def plan(
    context: typer.Context,
    target: Annotated[str, typer.Argument(help="TOML file, or a recipe's name.")],
    measure: Annotated[float, typer.Option(help="Seconds to measure, without loading.")] = 60.0,
    memory: Annotated[
        str | None, typer.Option(help="Stay under this size, such as 24GiB; default: this machine's memory.")
    ] = None,
    all_of_it: Annotated[
        bool, typer.Option("--all", help="Also show every n, the memory, and the check by stage.")
    ] = False,
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
      pods plan my.toml --memory 24GiB                  for a smaller GPU
      pods plan auto --write mine.toml                  then: pods train mine.toml

    The command measures a few real steps without learning anything, predicts every choice of n, m and the micro-batch,
    and then runs its suggestion, to compare the prediction with a measurement. --write makes a config that holds the
    measured costs, by which the recipe auto decides.
    """
    name, overrides = split_words(target, context.args)
    if name is None:
        raise UsageError("pods plan wants a CONFIG, e.g. `pods plan pods`")
    if Path(name).is_dir():
        raise UsageError(f"{name} is a folder, and pods plan wants a CONFIG; of a run: pods plan {name}/config.toml")
    if not measure > 0:
        raise UsageError(f"--measure {measure:g}: wanted seconds above 0, e.g. --measure 60")
    check_plot(plot)
    if write is not None and (write.suffix != ".toml" or write.exists() or not write.parent.is_dir()):
        raise UsageError(f"--write {write}: wanted a new file that ends in .toml, in a folder that exists")
    bound = None if memory is None else parse_memory(memory)
    try:
        result = _plan(name, overrides, measure, bound)
    except KeyboardInterrupt:
        errors.print("interrupted; nothing was written")
        raise typer.Exit(exit_code()) from None
    if plot is not None:
        from podsrl.report.figures.plan import plan_heatmap

        plan_heatmap(result).savefig(plot)
    if json:
        output.print_json(data=result)
    else:
        _show(result, all_of_it)
        if bound is not None:
            print_advice(result["memory"], ["pods", "train", name, *overrides])
    if write is not None:
        _write(write, name, overrides, result)


def _advice(config: RunConfig, bound: int | None) -> Json:
    """What the estimate says of the config as a whole, under "memory"; nothing without a bound."""
    return {} if bound is None else {"memory": advise_on(config, bound).to_json()}


def _plan(name: str, overrides: list[str], seconds: float, bound: int | None) -> Json:
    config = load_config(name, overrides)

    load("podsrl.plan.probe", "transformers.modeling_utils")
    from podsrl.lib.machine import hardware_line
    from podsrl.plan.probe import run_probes, still_trainer, verify
    from podsrl.plan.result import to_json
    from podsrl.plan.search import make_plan
    from podsrl.run.before.settle import settle

    config, notes = settle(config)
    for line in notes:
        say(line, errors)
    with ExitStack() as stack:
        progress = stack.enter_context(bar("measuring"))
        progress(0, None, "loading")
        trainer = stack.enter_context(still_trainer(config))
        by_check = 1 - SHARE_OF_CHECK
        probing = part_of(progress, 0.0, by_check)
        measured = run_probes(trainer, config, budget_seconds=by_check * seconds, progress=probing)
        found = make_plan(measured, bound)
        least, most = NUM_CHECK_STEPS
        choices = [found.best, found.own] if found.best != found.own else [found.own]
        steps = int(SHARE_OF_CHECK * seconds / sum(choice.seconds.total for choice in choices))
        checking = part_of(progress, by_check, SHARE_OF_CHECK)
        checks = verify(trainer, choices, num_steps=min(most, max(least, steps)), progress=checking)
    return to_json(found, checks, hardware_line()) | _advice(config, bound)


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
    doubts = f"\n# {_warning(result['doubts'])}" if result["doubts"] else ""
    tree = {"extends": base} | merge(apply_overrides({}, overrides), {"costs": costs})
    path.write_text(f"# Measured by pods plan {name}.{doubts}\n{tomli_w.dumps(tree)}")
    say(f"wrote {path}: pods train {path}", errors)


def _show(result: Json, is_all: bool) -> None:
    if result["doubts"]:
        print_paragraph(_warning(result["doubts"]), style="red")
    print_paragraph(_verdict(result), style="bold")
    say("  " + " ".join(result["flags"]))
    shown = _rows(result) if is_all else [row for row in _rows(result) if _marks(row, result)]
    output.print(_table(result, shown))
    for line in _reading(result, is_all):
        print_paragraph(line)
    for name in ("own", "best") if is_all else ():
        if result["checks"][name] is not None:
            print_paragraph(_checked(name, result["checks"][name]))
    for text in result["unknown"]:
        say(f"not known: {text}", errors)
    if not is_all:
        say("every n, memory, and the check by stage: --all")


def _warning(doubts: list[str]) -> str:
    return f"not trusted: {'; '.join(doubts)}: run it again when the machine is quiet, or longer (--measure)"


def _verdict(result: Json) -> str:
    """What to do, in a sentence: the gain, its range, and what the seconds say that both choices took when they ran."""
    own, best = result["own"], result["best"]
    n, m, micro = (best[name] for name in _KEY)
    if best["progress"] == 0:
        verb = "Keep" if _same(own, best) else "Take"
        head = (
            f"{verb} n = {n} and m = {m}: no answer taught anything while this was measured, so seconds alone are known"
        )
    elif _same(own, best):
        head = f"Keep n = {n} and m = {m}: no choice is better by more than the error of the prediction"
    else:
        gain, ends = _relative(best)
        low = best["relative_progress_range"][0]
        certain = "" if low is None or low > 1 else ", which is within the error of the measurement"
        measured = result["measured_relative_progress"]
        as_run = "" if measured is None else f"; {measured:.2f}× with the seconds measured for both"
        is_pair = (n, m) == (own["num_rollouts"], own["num_kept"])
        what = f"Keep n = {n} and m = {m}, with micro-batches of {micro}" if is_pair else f"Generate {n}, keep {m}"
        head = f"{what}: {gain} ({ends}) the config's progress per second{certain}{as_run}"
    return head + (" (not trusted, see above)." if result["doubts"] else ".")


def _table(result: Json, rows: list[Json]) -> Table:
    """Narrow enough for 80 columns, where no number is cut."""
    table = Table(
        title="predicted milliseconds per step", caption=result["hardware"], box=SIMPLE_HEAD, padding=0, pad_edge=False
    )
    for name in ("n → m", "micro-\nbatch", "generate", "update", "step", "as run", "signal", "progress", "range"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        seconds, marks = row["seconds"], _marks(row, result)
        checks = [check for name in marks if (check := result["checks"][name]) is not None]
        table.add_row(
            " ".join([*marks, f"{row['num_rollouts']} → {row['num_kept']}"]),
            f"{row['micro_batch_tokens']}",
            *(_milliseconds(seconds[stage]) for stage in ("generate", "update")),
            _milliseconds(seconds["total"]),  # with scoring, selection and the rest
            _milliseconds(checks[0]["measured"]) if checks else "",
            f"{row['share']:.2f}",
            *_relative(row),
            style="bold" if "best" in marks else None,
        )
    return table


def _marks(row: Json, result: Json) -> list[str]:
    return [name for name in ("own", "best") if _same(row, result[name])]


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f}" if seconds >= 0.1 else f"{1000 * seconds:.1f}"


def _rows(result: Json) -> list[Json]:
    rows: dict[int, Json] = {}
    for row in result["candidates"]:
        old = rows.get(row["num_rollouts"])
        if old is None or row["progress"] > old["progress"]:
            rows[row["num_rollouts"]] = row
    found = [*rows.values()]
    for row in (result["own"], result["best"]):
        if not any(_same(row, other) for other in found):
            found.append(row)
    return sorted(found, key=lambda row: (row["num_rollouts"], row["num_kept"], row["micro_batch_tokens"]))


def _same(a: Json, b: Json) -> bool:
    return all(a[name] == b[name] for name in _KEY)


def _reading(result: Json, is_all: bool) -> list[str]:
    """What the choice rests on; then memory."""
    ends = result["noise_range"]
    noise = (
        f"measured; {ends[0]:.2g} to {ends[1]:.2g} by step" if ends else "measured on one step: its spread is not known"
    )
    noise, best = noise if result["is_noise_measured"] else "assumed", result["best"]
    lines = [
        f"pass rate {result['pass_rate']:.1%}, spread over questions as Beta with concentration "
        f"{result['concentration']:.3g}; gradient noise κ = {result['noise_ratio']:.2g} ({noise})",
    ]
    if result["spread"] is not None:
        lines.append(f"repeats of a measurement differ from the fit by ±{result['spread']:.0%}")
    lines += [_price(result["price"]), *_costs(result["costs"])]
    if not is_all:
        return lines
    if best["update_bytes"] is not None:
        sizes = f"keys and values {size_text(best['kv_bytes'])}, update at most {size_text(best['update_bytes'])}"
        lines.append(f"memory: {sizes}")
    if result["largest_micro_batch_tokens"] is not None:
        largest = result["largest_micro_batch_tokens"]
        lines.append(f"memory holds micro-batches of up to {largest:,} tokens with a tenth to spare")
    return lines


def _price(price: Json | None) -> str:
    """What a generated token costs in trained ones, which is what `pods compare` wants."""
    if price is None:
        return "price of a generated token: not known, since no measured step of the config's own n and m trained"
    ends, point = price["spread"], f"{price['point']:.2g}"
    spread = f"{ends[0]:.2g} to {ends[1]:.2g} by step" if ends else "measured on one step: its spread is not known"
    micros = [1e6 * price[f"{name}_token_seconds"] for name in ("generated", "trained")]
    return (
        f"price: a generated token takes {point} times as long as a trained one ({spread}; {micros[0]:.3g} µs over "
        f"{micros[1]:.3g} µs); its column in a comparison: pods compare CONFIG --prices=[{point}]"
    )


def _costs(costs: Json | None) -> list[str]:
    """What `--write` writes."""
    if costs is None:
        return []
    group, rollout, row = (f"{costs[f'{name}_ms']:.3g} ms" for name in ("group", "rollout", "row"))
    return [
        f"costs: a group {group}, a rollout {rollout}, a row of the update {row}, the least certain within "
        f"±{costs['spread']:.0%}; pods plan CONFIG --write FILE makes a config of them"
    ]


def _checked(name: str, check: Json) -> str:
    stages = ", ".join(f"{stage} {_seconds(a)} / {_seconds(b)}" for stage, (a, b) in check["stages"].items())
    return (
        f"{name}: predicted {_seconds(check['predicted'])}, measured {_seconds(check['measured'])} per step "
        f"(quartiles of {check['num_steps']} steps {_seconds(check['low'])}–{_seconds(check['high'])}), ratio "
        f"{check['ratio']:.2f}; predicted / measured: {stages}"
    )


def _relative(row: Json) -> tuple[str, str]:
    if row["relative_progress"] is None:
        return "–", "–"
    low, high = row["relative_progress_range"]
    return f"{row['relative_progress']:.2f}×", f"{low:.2f}–{high:.2f}"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.1f} ms"
