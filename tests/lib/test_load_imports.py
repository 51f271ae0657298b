"""Imports while the garbage collector waits, in processes of their own: this one's collector stays as it is."""

from __future__ import annotations

import subprocess
import sys

START = """
import gc, sys
from podsrl.lib.imports import load
seen = []
gc.callbacks.append(lambda phase, info: seen.append(phase))
"""


def shown(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", START + program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_nothing_is_collected_meanwhile_and_what_exists_then_never_is() -> None:
    program = """
before = gc.get_freeze_count()
load("podsrl.cli.main")
print(len(seen), before, gc.get_freeze_count() > 10_000, gc.isenabled(), "podsrl.cli.main" in sys.modules)
frozen = gc.get_freeze_count()
gc.collect()
load("podsrl.cli.main", "sys")
print(len(seen), gc.get_freeze_count() <= frozen)
"""
    assert shown(program) == ["0", "0", "True", "True", "True", "2", "True"]


def test_an_import_that_fails_leaves_the_collector_at_work() -> None:
    program = """
try:
    load("json.decoder", "no_such_module")
except ModuleNotFoundError as error:
    print(error.name, gc.isenabled())
"""
    assert shown(program) == ["no_such_module", "True"]


def test_a_collector_that_is_off_stays_off() -> None:
    assert shown("gc.disable(); load('json.decoder'); print(gc.isenabled(), gc.get_freeze_count())") == ["False", "0"]
