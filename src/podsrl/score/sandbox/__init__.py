"""Runs programs that nobody has read, within limits, and compares what they give with what their tests want.

check.py    whether that can be done on this machine
process.py  one sandbox: a process under bubblewrap, or in the weaker mode a plain one
inside.py   what runs in it, given to Python as text: beside the program, or beside its tests
remote.py   the same roles on a service, SandboxFusion, one program per request
verdicts.py runs a program on its tests: `run_tests`
"""

from __future__ import annotations

from podsrl.score.sandbox.check import require
from podsrl.score.sandbox.process import BWRAP, REMOTE, WEAKER, Limits
from podsrl.score.sandbox.verdicts import ProgramTests, run_tests

__all__ = ["BWRAP", "REMOTE", "WEAKER", "Limits", "ProgramTests", "require", "run_tests"]
