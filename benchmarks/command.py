"""The options that all benchmarks share, and what is done with a result: print it, save it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from benchmarks.timing import Say, one_thread
from podsrl.cli.progress import bar
from podsrl.lib.machine import hardware_line

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
Result = dict[str, Any]
"""JSON-able. `measure` adds "name" and "hardware"."""


def new_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the benchmark's docstring."""
    return argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def measure(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str],
    run: Callable[[argparse.Namespace, Say], Result],
    table: Callable[[Result], RenderableType | str] | None = None,
    *,
    publish: Callable[[Result], None] | None = None,
    keep_threads: bool = False,
) -> None:
    """Run a benchmark and print its result.

    Args:
        parser: with the benchmark's own options; `--json` and `--save` are added here.
        arguments: of the command line.
        run: from the benchmark's own options and a function that shows progress to a result.
        table: the result for a terminal, rich or plain text; None: always JSON.
        publish: writes whatever else `--save` writes, from the result.
        keep_threads: whether torch keeps its number of threads; otherwise it has one.
    """
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    name = parser.prog.split()[-1]
    file = RESULTS / f"{name.replace('-', '_')}.json"
    parser.add_argument("--save", action="store_true", help=f"also write {file.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    is_json, is_saved = options.json or table is None, options.save
    del options.json, options.save  # what is left says what was measured
    with nullcontext() if keep_threads else one_thread(), bar(name) as show:
        facts = run(options, lambda text: show(0, None, text))
        result = {"name": name, "hardware": hardware_line(), **facts}
    text = json.dumps(result, indent=1, ensure_ascii=False)
    if is_json or table is None:
        print(text)
    elif isinstance(shown := table(result), str):
        print(shown)
    else:
        Console().print(shown)
    if is_saved:
        file.write_text(text + "\n", encoding="utf-8")
        if publish is not None:
            publish(json.loads(text))
