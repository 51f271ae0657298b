"""`pods doctor`: of this machine, or of a server that should hold the weights of a trainer."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from podsrl.cli.console import AsJson, output, print_paragraph, say
from podsrl.cli.progress import bar
from podsrl.config.bounds import TRACKERS
from podsrl.config.files import recipe_names
from podsrl.errors import UsageError

if TYPE_CHECKING:
    from podsrl.tools.check_weights import WeightsCheck

WRONG, UNDECIDED = 1, 3
"""Exit codes. 0: the server holds the weights; 2: it could not be asked."""


class ServerDtype(StrEnum):
    """What a server may compute in."""

    bfloat16 = "bfloat16"
    float16 = "float16"


def doctor(
    all_of_it: Annotated[
        bool, typer.Option("--all", help="Also the rule of matrix products, recipes, task sets and rewards.")
    ] = False,
    sync: Annotated[
        str | None, typer.Option(metavar="URL", help="Check the weights of the server at this address.")
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(
            help="With --sync: a model folder or hub name, or a folder of PEFT adapters. The first is what the server "
            "should hold; more are what it may hold instead, such as the step before."
        ),
    ] = None,
    model: Annotated[
        str, typer.Option(help="With --sync: the server's name of the model or adapter; default: its first.")
    ] = "",
    key_from: Annotated[
        str, typer.Option(metavar="VARIABLE", help="With --sync: environment variable that holds the server's key.")
    ] = "",
    dtype: Annotated[
        ServerDtype, typer.Option(help="With --sync: what the server computes in.")
    ] = ServerDtype.bfloat16,
    device: Annotated[str, typer.Option(help="With --sync: where the folders' log-probs are computed.")] = "cpu",
    num_tokens: Annotated[int, typer.Option(min=4, max=1024, help="With --sync: tokens of each of 32 answers.")] = 32,
    json: AsJson = False,
) -> None:
    """Show what this machine offers; with --sync, say whether a server holds the weights that a trainer gave it.

    [bold]Examples[/]

      pods doctor           versions, devices and memory
      pods doctor --all     also the recipes, task sets and rewards by name
      pods doctor --sync http://127.0.0.1:8000 --weights step-10 --weights step-9

    If you report a fault, add what this command prints.

    With --sync, a running server (vLLM, SGLang, trl vllm-serve or verl's) answers fixed prompts, and its log-probs are
    compared with those of the folders. The exit code is 0 if it holds the first weights, 1 if it holds others, 2 if it
    could not be asked, and 3 if the folders differ by less than shows.
    """
    if sync is None:
        given = {"--weights": weights, "--model": model, "--key-from": key_from, "--json": json}
        if names := [name for name, value in given.items() if value]:
            raise UsageError(f"{' and '.join(names)}: read with --sync only")
        _show_machine(all_of_it)
        return
    if not weights:
        raise UsageError("--sync wants --weights FOLDER, the weights that the server should hold")
    if all_of_it:
        raise UsageError("--all: of this machine; leave it out with --sync")
    _check_server(sync, weights, model, key_from, dtype, device, num_tokens, json)


def _show_machine(is_all: bool) -> None:
    from importlib.metadata import version

    import torch

    from podsrl.lib.machine import configure_threads, hardware_line
    from podsrl.lib.matmul import choose
    from podsrl.run.before.checks import is_installed
    from podsrl.run.before.matmul import describe_matmul
    from podsrl.score import REWARDS
    from podsrl.tasks import TASKS

    small = configure_threads(0, 0)
    on = "on a GPU" if torch.cuda.is_available() else "small models, since there is no GPU"
    print_paragraph(f"podsrl {version('podsrl')} can train here: {on}.", style="bold")
    say(f"machine     {hardware_line()}")

    def offered(name: str, extra: str) -> str:
        return name if is_installed(name) else f"{name} (pip install 'podsrl[{extra}]')"

    say(f"generators  engine, vLLM servers, {', '.join(offered(name, name) for name in ('vllm', 'ray'))}")
    say(f"trackers    {', '.join(offered(name, 'trackers') for name in TRACKERS)}")
    if not is_all:
        say("threads, matrix products, recipes, task sets and rewards: --all")
        return
    say(f"threads     a small model trains on {small}; transformers {version('transformers')}")
    say(f"products    of float32 matrices: {describe_matmul('auto', choose())}")
    say(f"recipes     {', '.join(recipe_names())}")
    say(f"task sets   {', '.join(TASKS)}")
    say(f"rewards     {', '.join(REWARDS)}")


def _check_server(
    url: str,
    weights: list[str],
    model: str,
    key_from: str,
    dtype: ServerDtype,
    device: str,
    num_tokens: int,
    json: bool,
) -> None:
    from podsrl.config.schema import ModelConfig
    from podsrl.policy import load_tokenizer, outline
    from podsrl.tools.check_weights import check_weights
    from podsrl.tools.served import ask_server

    with bar("checking the weights") as progress:
        progress(0, None, "reading the tokenizer")
        configs = [ModelConfig(path=path, device=device) for path in weights]
        tokenizer, *_ = [load_tokenizer(config) for config in configs]  # of each: a wrong name is told before all else
        vocabulary = outline(configs[0]).get_input_embeddings().weight.shape[0]
        served = ask_server(
            url,
            tokenizer,
            vocabulary=vocabulary,
            model=model,
            key_from=key_from,
            num_tokens=num_tokens,
            progress=progress,
        )
        found = check_weights(served.answers, weights, device=device, dtype=dtype.value, progress=progress)
    if json:
        names = {"url": url, "model": served.model, "models": served.models, "dtype": dtype.value}
        output.print_json(data={**names, **asdict(found)})
    else:
        _print(found, url, weights[0], served.model, served.models, dtype.value)
    if found.verdict != "right":
        raise typer.Exit(UNDECIDED if found.verdict == "undecided" else WRONG)


def _print(found: WeightsCheck, url: str, own: str, model: str, models: tuple[str, ...], dtype: str) -> None:
    others = [name for name in models if name != model]
    by_name = f"ask for the adapter by its name (--model {others[0]})" if others else "load it, or merge it"
    close = ", ".join(each.name for each in found.positions if not each.is_told_apart)
    alone = ", or weights that differ by less than rounding; --weights again, with the step before, tells them apart"
    said = {
        "right": f"The server at {url} holds {own}{'' if found.positions else alone}.",
        "other": f"The server at {url} holds {found.nearest}, and not {own}. What to do: look whether the trainer "
        "sends its weights after each step, and whether the server's answers wait for them.",
        "no adapter": f"The server at {url} holds {found.nearest} without the adapter in {own}. What to do: {by_name}.",
        "unknown": f"The server at {url} holds none of these weights; {found.nearest} is nearest. What to do: add the "
        "folders that it may hold (--weights again). A server that computes in 8 bits or fewer differs as well.",
        "undecided": f"The server at {url} holds {own}, or weights that differ by less than shows: {close}. What to "
        "do: a larger --num-tokens, or folders that lie further apart.",
    }
    print_paragraph(said[found.verdict], style="bold")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for place, head in enumerate(("difference of log-probs, nats", "mean", "largest", "within rounding", "place")):
        table.add_column(head, justify="left" if place == 0 else "right", overflow="fold")
    places = {each.name: f"{each.position:.2f} ± {each.error:.2g}" for each in found.positions}
    for each in found.distances:
        table.add_row(
            each.name, f"{each.mean:.2g}", f"{each.largest:.2g}", f"{each.share_within:.0%}", places.get(each.name, "0")
        )
    table.add_row(f"(rounding in {dtype})", f"{found.rounding:.2g}", "", "", "")
    say("")
    output.print(table, highlight=False, markup=False)
    say(f"\n{found.num_tokens:,} tokens of model {model}")
    if found.positions:
        print_paragraph(
            f"place: where the server's log-probs are on the way from {own} (0) to the other weights (1), with its "
            "error"
        )
