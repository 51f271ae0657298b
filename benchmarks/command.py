"""The options that all benchmarks share, and what is done with a result: print it, save it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from benchmarks import files
from benchmarks.figures import shown
from benchmarks.files import ROOT as ROOT
from benchmarks.files import Result
from benchmarks.paired import Finished
from benchmarks.timing import Say, one_thread
from podsrl.cli.progress import bar
from podsrl.errors import UsageError
from podsrl.lib.machine import hardware_line


def new_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the benchmark's docstring."""
    return argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def new_gpu_parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """The same for a benchmark of a GPU, which is in its result where there is one, and may go on in a folder."""
    import torch

    parser = new_parser(name, doc)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=["cuda", "cpu"], default=device)
    parser.add_argument("--out", type=Path, help="folder of what is finished, in which another call goes on")
    return parser


def parts_of(options: argparse.Namespace) -> Callable[[str, Callable[[], Result]], Result]:
    """A function of a part's name and of what measures it: it gives what `options.out` has of it, or measures it.

    What was measured with other options or on other hardware does not count.
    """
    finished = Finished(options.out and options.out / "finished.jsonl")
    circumstances = {**vars(options), "out": hardware_line()}
    return lambda name, make: finished.once(f"{name} {json.dumps(circumstances)}", make)


def measure(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str],
    run: Callable[[argparse.Namespace, Say], Result],
    table: Callable[[Result], str] | None = None,
    *,
    publish: Callable[[Result], None] | None = None,
    keep_threads: bool = False,
) -> None:
    """Run a benchmark and print its result.

    Args:
        parser: with the benchmark's own options; `--json` and `--save` are added here.
        arguments: of the command line.
        run: from the benchmark's own options and a function that shows progress to a result.
        table: the result for a terminal; None: its figures and its table as on the pages, or JSON if it has neither.
        publish: writes whatever else `--save` writes, from the result.
        keep_threads: whether torch keeps its number of threads; otherwise it has one.

    Raises:
        UsageError: `--save` with `--quick`, or where git names no commit.
    """
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    name = parser.prog.split()[-1]
    parser.add_argument("--save", action="store_true", help=f"also write {os.path.relpath(files.path_of(name), ROOT)}")
    options = parser.parse_args(arguments)
    is_json, is_saved = options.json, options.save
    del options.json, options.save  # what is left says what was measured
    if is_saved and getattr(options, "quick", False):
        raise UsageError("--save with --quick: wanted the whole measurement; leave one out")
    if is_saved and files.commit() is None:
        raise UsageError(
            "--save: git names no commit of this folder, and a result names its own; wanted a clone, or its commit in "
            f"the environment variable {files.COMMIT}"
        )
    with nullcontext() if keep_threads else one_thread(), bar(name) as show:
        start, before = time.monotonic(), files.stamp(name, vars(options))
        facts = run(options, lambda text: show(0, None, text))
        after = {"load_after": round(os.getloadavg()[0], 2), "minutes": round((time.monotonic() - start) / 60, 2)}
        result: Result = {**before, **after, **facts}
    text = files.text_of(result)
    if is_saved:
        path = files.write(result)
        if publish is not None:
            publish(json.loads(text))
        print(f"Wrote {path}. `python -m benchmarks pages` writes it into the docs.", file=sys.stderr)
    print(text.rstrip() if is_json else (table or shown)(json.loads(text)) or text.rstrip())
