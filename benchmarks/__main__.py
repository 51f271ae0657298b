"""The command `python -m benchmarks`: lists the benchmarks, or runs one."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from benchmarks import BENCHMARKS, COMMANDS
from podsrl.errors import PodsError, UsageError, nearest
from podsrl.lib.machine import set_waiting_policy
from podsrl.lib.parent import end_with_parent
from podsrl.lib.signals import leave_on_signal

USAGE = "usage: python -m benchmarks NAME [options]      (NAME --help: its options, with examples)"
MODULES = BENCHMARKS | COMMANDS


def main(arguments: Sequence[str]) -> int:
    """List the benchmarks or run one; returns the exit code."""
    name, *rest = arguments or ["--help"]
    if name in ("--help", "-h"):
        width = max(map(len, MODULES))
        listed = ([f"  {each:{width}}  {first_line(each)}" for each in names] for names in (BENCHMARKS, COMMANDS))
        print("\n".join([USAGE, *(line for lines in listed for line in ("", *lines))]))
        return 0
    name = name.replace("_", "-")  # as its module may be called
    try:
        if name not in MODULES:
            raise UsageError(
                f"benchmark {name!r}: no such benchmark, wanted one of {', '.join(MODULES)}.{nearest(name, MODULES)}"
            )
        set_waiting_policy()  # before torch is imported
        module: Any = import_module(f"benchmarks.{MODULES[name]}")
        module.main(rest)
    except PodsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except typer.Exit as ended:  # of a command of `pods`, which has said why
        return ended.exit_code
    return 0


def first_line(name: str) -> str:
    """What a benchmark measures: the first line of its docstring, read without importing torch."""
    path = Path(__file__).parent.joinpath(*MODULES[name].split(".")).with_suffix(".py")
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


if __name__ == "__main__":
    end_with_parent()
    leave_on_signal()
    sys.exit(main(sys.argv[1:]))
