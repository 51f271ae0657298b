"""The tests that need a GPU: how many passed, and which did not.

    python -m benchmarks gpu-tests                  those marked `gpu`
    python -m benchmarks gpu-tests --quick          those of selection alone
    python -m benchmarks gpu-tests --out FOLDER     goes on in a folder: what has passed there is not run again

Pytest runs them in a process of their own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.files import ROOT
from benchmarks.gpu.outcomes import FILE
from benchmarks.paired import Finished
from benchmarks.timing import Say
from podsrl.errors import PodsError

FOLDERS = ("tests/device", "tests/select")


def main(arguments: Sequence[str]) -> None:
    parser = command.new_gpu_parser("gpu-tests", __doc__)
    parser.add_argument("--quick", action="store_true", help="the tests of selection alone")
    command.measure(parser, arguments, run, table, keep_threads=True)


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Run them in a process of their own, which prints to this one's error output.

    Raises:
        PodsError: pytest cannot run, or a test failed.
    """
    with tempfile.TemporaryDirectory() as temporary:
        file = (options.out or Path(temporary)).absolute() / "tests.jsonl"
        folders = FOLDERS[1:] if options.quick else FOLDERS
        words = [
            "-m",
            "pytest",
            "-p",
            "benchmarks.gpu.outcomes",
            "-p",
            "no:cacheprovider",
            "-rs",
            "-m",
            "gpu",
            *folders,
        ]
        environment = {**os.environ, "PODS_TEST_DEVICE": "gpu", FILE: str(file)}
        say("pytest")
        code = subprocess.call([sys.executable, *words], cwd=ROOT, env=environment, stdout=sys.stderr)
        found = Finished(file).records
    if code not in (0, 5) or not found:  # 5: none is left
        failed = [test for test, each in found.items() if each["outcome"] == "failed"]
        raise PodsError(f"{', '.join(failed) or 'pytest'} failed with exit code {code}; its output says why")
    counts = Counter(each["outcome"] for each in found.values())
    skipped = {test: each["why"] for test, each in found.items() if each["outcome"] == "skipped"}
    return {
        **{outcome: counts[outcome] for outcome in ("passed", "skipped")},
        "test_seconds": sum(each["seconds"] for each in found.values()),
        "why_skipped": dict(Counter(skipped.values())),
    }


def table(result: dict[str, Any]) -> str:
    """How many passed, and why others were skipped."""
    whys = "; ".join(f"{number}: {why}" for why, number in result["why_skipped"].items())
    skipped = f", {result['skipped']} were skipped ({whys})" if result["skipped"] else ""
    return f"{result['passed']} tests passed in {result['test_seconds']:.1f} s{skipped}"
