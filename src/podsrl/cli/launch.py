"""`pods launch`: a run of several processes on this machine."""

from __future__ import annotations

import signal
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from podsrl.cli.console import AllowChanges, ConfigName, Plain, Resume, RunOut, errors, split_words
from podsrl.cli.progress import waiting
from podsrl.cli.train import run_folder
from podsrl.config.load import load_config
from podsrl.errors import UsageError, printable
from podsrl.lib.child import how_it_ended
from podsrl.lib.imports import load
from podsrl.scale.launch import INTERRUPTED, End


def launch(
    context: typer.Context,
    config: ConfigName = None,
    processes: Annotated[
        int,
        typer.Option(help="Number of processes of this machine; each takes a GPU, or a share of the cores."),
    ] = 0,
    out: RunOut = None,
    resume: Resume = None,
    allow_changes: AllowChanges = False,
    plain: Plain = False,
) -> None:
    """Train with several processes on this machine: the same numbers as with one, up to rounding.

    [bold]Examples[/]

      pods launch --processes 2 pods                 PODS, on small sums
      pods launch --processes 8 my.toml --scale.strategy=fsdp2   sharded weights
      pods launch --processes 4 --resume runs/mine   resume with four processes

    Each process generates, scores and trains on its share of a step's questions. Every option of the config is also a
    flag, --section.key=value; scale.strategy says what the processes hold: ddp, zero2 or fsdp2. You may resume a run
    with another number of processes, or with pods train.

    [bold]Two machines[/], of which the first has the address 10.0.0.1. On the second, write --node-rank 1.

      torchrun --nnodes 2 --node-rank 0 --nproc-per-node 8 \\
        --master-addr 10.0.0.1 --master-port 29500 \\
        -m podsrl.cli train my.toml --out runs/mine
    """
    config, overrides = split_words(config, context.args)
    if processes < 1:
        got = f"--processes {processes}: " if processes else ""
        raise UsageError(f"{got}pods launch wants --processes K, at least 1, e.g. `pods launch --processes 2 pods`")
    folder = run_folder("pods launch --processes 2 pods", config, resume, out, allow_changes=allow_changes)
    flags = {"allow_changes": allow_changes, "plain": plain}
    options = [f"--{name.replace('_', '-')}" for name, is_given in flags.items() if is_given]

    _check(config, overrides, folder, processes)
    what = ["--resume", str(folder)] if resume else [str(config), "--out", str(folder)]
    command = [sys.executable, "-P", "-m", "podsrl.cli", "train", *what, *options, *overrides]

    from podsrl.scale.launch import launch as run

    end = run(command, processes, folder / "logs")
    _show(end)
    if end.code:
        raise typer.Exit(end.code if end.code > 0 else 1)


def _check(config: str | None, overrides: list[str], folder: Path, num_processes: int) -> None:
    """Check all that can be checked before weights are read, so that a mistake is reported once and early."""
    load("podsrl.run.session")
    from podsrl.run.before.checks import check_processes
    from podsrl.run.before.prepare import prepare
    from podsrl.run.saving.folder import RunFolder
    from podsrl.run.session import read_resumed_config
    from podsrl.scale.processes import uses_gpus

    if config is not None:
        options = load_config(config, overrides)
        RunFolder(folder).check_is_free()
    else:
        options = read_resumed_config(folder, overrides)
    check_processes(options, num_processes)
    if num_processes > 1:
        uses_gpus(options.model.device, num_processes)
    with waiting("checking the config and its data"), closing(prepare(options)):
        pass


def _show(end: End) -> None:
    """Say which process failed, and where its log is."""
    if end.code in INTERRUPTED and end.rank > 0:
        lines = [end.last_line]
    elif end.log is not None:
        lines = [f"process {end.rank}: {_reason(end)}", f"the other processes were stopped; its log is {end.log}"]
    else:
        lines = [f"process 0: {_reason(end)}"] if end.code < 0 else []
    for line in lines:
        errors.print(line, markup=False, soft_wrap=True)


def _reason(end: End) -> str:
    if end.code >= 0:
        return printable(end.last_line) or f"ended with exit code {end.code}"
    hint = "; the system does that when memory runs out" if -end.code == signal.SIGKILL else ""
    return how_it_ended(end.code) + hint
