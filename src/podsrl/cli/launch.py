"""`pods launch`: a run of several processes on this machine."""

from __future__ import annotations

import signal
import sys
from contextlib import AbstractContextManager, closing, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from podsrl.cli.console import RunOut, errors, say, split_words
from podsrl.cli.progress import waiting
from podsrl.cli.train import ALLOW_DATA_CHANGE, ALLOW_LOST_LINES, allowed_changes, run_folder
from podsrl.config.load import load_config
from podsrl.errors import UsageError, printable
from podsrl.lib.imports import load
from podsrl.scale.launch import INTERRUPTED, End

if TYPE_CHECKING:
    from podsrl.scale.nodes import Nodes


def launch(
    context: typer.Context,
    config: Annotated[
        str | None, typer.Argument(help="TOML file, or a recipe's name (pods doctor --all lists them).")
    ] = None,
    processes: Annotated[
        int,
        typer.Option(help="Number of processes of this machine; each takes a GPU, or a share of the cores."),
    ] = 0,
    nodes: Annotated[int, typer.Option(min=1, help="Number of machines; the command is started on each.")] = 1,
    node_rank: Annotated[
        int | None, typer.Option(help="With --nodes: the number of this machine, from 0. Node 0 writes the run.")
    ] = None,
    rendezvous: Annotated[
        str | None, typer.Option(help="With --nodes: HOST:PORT, an address of node 0 that every node reaches.")
    ] = None,
    join_seconds: Annotated[
        float, typer.Option(min=1.0, max=86400.0, help="With --nodes: how long to wait for the other machines.")
    ] = 600.0,
    out: RunOut = None,
    resume: Annotated[Path | None, typer.Option(help="Resume the run in this folder.")] = None,
    allow_data_change: Annotated[bool, typer.Option("--allow-data-change", help=ALLOW_DATA_CHANGE)] = False,
    allow_lost_lines: Annotated[bool, typer.Option("--allow-lost-lines", help=ALLOW_LOST_LINES)] = False,
    plain: Annotated[bool, typer.Option(help="Print plain lines instead of a live display.")] = False,
) -> None:
    """Train with several processes, on one machine or several: the same numbers as with one, up to rounding.

    Each process generates, scores and trains its share of a step's questions. Any value of the config can be set as
    --section.key=value; scale.strategy says what the processes hold: ddp, zero2 or fsdp2. A run may be resumed with
    another number of processes, or by pods train.

    [bold]Examples[/]

      pods launch --processes 2 pods               PODS on the demo's task
      pods launch --processes 8 my.toml --scale.strategy=fsdp2     sharded weights
      pods launch --processes 4 --resume runs/mine resume with four

    [bold]Two machines[/], of which the first has the address 10.0.0.1; --node-rank 1 on the second

      pods launch my.toml --processes 8 --nodes 2 --node-rank 0 \\
        --rendezvous 10.0.0.1:29500
    """
    config, overrides = split_words(config, context.args)
    if processes < 1:
        got = f"--processes {processes}: " if processes else ""
        raise UsageError(f"{got}pods launch wants --processes K, at least 1, e.g. `pods launch --processes 2 pods`")
    folder = run_folder("pods launch --processes 2 pods", config, resume, out)
    allowed = allowed_changes(resume, data_change=allow_data_change, lost_lines=allow_lost_lines)
    flags = {**allowed, "plain": plain}
    options = [f"--{name.replace('_', '-')}" for name, is_given in flags.items() if is_given]

    with _meet(config, overrides, folder, (nodes, node_rank, rendezvous, join_seconds)) as others:
        if others is not None and resume is None and out is None:
            folder = Path(others.folder)
        _check(config, overrides, folder, processes, others)
        what = ["--resume", str(folder)] if resume else [str(config), "--out", str(folder)]
        command = [sys.executable, "-P", "-m", "podsrl.cli", "train", *what, *options, *overrides]

        from podsrl.scale.launch import launch as run

        end = run(command, processes, folder / "logs", others)
    _show(end)
    if end.code:
        raise typer.Exit(end.code if end.code > 0 else 1)


def _meet(
    config: str | None,
    overrides: list[str],
    folder: Path,
    nodes: tuple[int, int | None, str | None, float],
) -> AbstractContextManager[Nodes | None]:
    """This node among the others; nothing where the run is on this machine alone.

    Raises:
        UsageError: options that do not go together; the config, which is read before other nodes are waited for.
    """
    num_nodes, rank, rendezvous, seconds = nodes
    if num_nodes == 1:
        if rank is not None or rendezvous is not None:
            raise UsageError("--node-rank and --rendezvous are of a run on several machines: add --nodes N")
        return nullcontext()
    if config is not None:
        load_config(config, overrides)
    from podsrl.scale.nodes import Nodes
    from podsrl.scale.rendezvous import find_place

    return Nodes(find_place(num_nodes, rank, rendezvous, seconds), str(folder), lambda line: say(line, errors))


def _check(config: str | None, overrides: list[str], folder: Path, num_processes: int, nodes: Nodes | None) -> None:
    """Check all that can be checked before weights are read, so that a mistake is reported once and early."""
    load("podsrl.run.session")
    from podsrl.run.before.checks import check_processes
    from podsrl.run.before.data_digest import describe_data
    from podsrl.run.before.prepare import prepare
    from podsrl.run.saving.folder import RunFolder
    from podsrl.run.session import read_resumed_config
    from podsrl.scale.processes import uses_gpus

    if config is not None:
        options = load_config(config, overrides)
        RunFolder(folder).check_is_free()
    else:
        if nodes is not None and not RunFolder(folder).config.is_file():
            raise UsageError(
                f"--resume {folder}: no run is there on this machine, and every machine reads the config and the "
                "checkpoint: keep the run on a file system that they share, or copy the folder from node 0"
            )
        options = read_resumed_config(folder, overrides)
    check_processes(options, num_processes, is_one_machine=nodes is None)
    is_on_gpu = (num_processes > 1 or nodes is not None) and uses_gpus(options.model.device, num_processes)
    with waiting("checking the config and its data"), closing(prepare(options)) as parts:
        data = describe_data(parts.tasks) if nodes is not None else {}
    if nodes is not None:
        versions = {name: version(name) for name in ("podsrl", "torch", "transformers")}
        given = {"resumes": config is None, "uses GPUs": is_on_gpu}
        nodes.agree(
            num_processes, {"versions": versions, **given, "data": data, "config": options.model_dump(mode="json")}
        )
        check_processes(options, nodes.num_processes)


def _show(end: End) -> None:
    """Say which process failed, and where its log is."""
    if end.code in INTERRUPTED and end.rank > 0:
        lines = [end.last_line]
    elif end.node:
        who = f"process {end.rank} on {end.node}: {_reason(end)}" if end.rank >= 0 else f"{end.node}: {end.last_line}"
        where = f"its log is {end.log}" if end.log else "the terminal there says more"
        lines = [who, f"the processes of this node were stopped; {where}"]
    elif end.log is not None:
        lines = [f"process {end.rank}: {_reason(end)}", f"the other processes were stopped; its log is {end.log}"]
    else:
        lines = [f"process 0: {_reason(end)}"] if end.code < 0 else []
    for line in lines:
        errors.print(line, markup=False, soft_wrap=True)


def _reason(end: End) -> str:
    if end.code >= 0:
        return printable(end.last_line) or f"ended with exit code {end.code}"
    name = signal.Signals(-end.code).name
    hint = "; the system does that when memory runs out" if -end.code == signal.SIGKILL else ""
    return f"killed by {name}{hint}"
