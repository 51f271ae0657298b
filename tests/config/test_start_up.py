"""The command line answers before anything heavy is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

COMMANDS = [
    "demo",
    "train",
    "config",
    "compare",
    "plan",
    "eval",
    "report",
    "pretrain",
    "check-reward",
    "check-template",
    "doctor",
]
HEAVY = ("torch", "transformers", "numpy", "matplotlib", "safetensors")
LOADED = f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]), file=sys.stderr)"


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, timeout=300
    )


def test_help_of_every_command_needs_nothing_heavy() -> None:
    code = f"""
import contextlib, io, json, sys
from podsrl.cli.main import main
pages = {{}}
for command in sys.argv[1:]:
    sys.argv = ["pods", command, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as page:
        try:
            main()
        except SystemExit as stop:
            pages[command] = (stop.code, page.getvalue())
print(json.dumps(pages))
{LOADED}
"""
    done = python(code, *COMMANDS)
    assert json.loads(done.stderr) == []
    pages = json.loads(done.stdout)
    assert list(pages) == COMMANDS
    for command, (exit_code, page) in pages.items():
        assert exit_code == 0 and f"Usage: pods {command}" in page
        assert "Examples" in page


def test_options_are_listed_without_anything_heavy() -> None:
    code = f"""
import json, sys
from podsrl.cli.main import main
for words in (["config"], ["config", "optim"], ["config", "memory"], ["config", "--resolved", "pods"], ["--version"]):
    sys.argv = ["pods", *words]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code
{LOADED}
"""
    done = python(code)
    assert (done.returncode, json.loads(done.stderr)) == (0, [])
    assert "rollouts.num_rollouts = 64" in done.stdout and "podsrl " in done.stdout


def test_pods_help_names_every_command_and_takes_less_than_half_of_an_import_of_torch() -> None:
    def run(*command: str | Path) -> tuple[str, float]:
        before = os.times()
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        after = os.times()
        return done.stdout, after.children_user + after.children_system - before.children_user - before.children_system

    shown, seconds = run(Path(sys.executable).with_name("pods"), "--help")
    assert all(f" {command} " in shown for command in COMMANDS)
    assert seconds < run(sys.executable, "-c", "import torch")[1] / 2


def test_bad_flags_are_told_in_one_line_with_exit_code_2_before_anything_heavy_loads() -> None:
    cases = [
        (["train", "pods", "--select.num_kep=4"], "Did you mean 'select.num_kept'?"),
        (["train", "pods", "--select.m", "4"], "Did you mean 'select.num_kept'"),
        (["train", "pods", "--dry-run", "--memory", "24"], "--memory 24"),
    ]
    code = f"""
import json, sys
from podsrl.cli.main import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["pods", *words]
    try:
        main()
    except SystemExit as stop:
        print(stop.code)
{LOADED}
"""
    done = python(code, json.dumps([words for words, _ in cases]))
    *messages, loaded = done.stderr.strip().splitlines()
    assert (done.stdout.split(), json.loads(loaded)) == (["2"] * len(cases), [])
    for message, (_, wanted) in zip(messages, cases, strict=True):
        assert message.startswith("error: ") and wanted in message
