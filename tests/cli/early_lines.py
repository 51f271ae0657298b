"""The command line with every line of progress printed at once, so that no command need be long to print one."""

from __future__ import annotations

import sys

_PROGRAM = """
from podsrl.cli import progress
progress.FIRST_LINE_SECONDS = progress.LINE_SECONDS = 0.0
from podsrl.cli.__main__ import main
main()
"""
EARLY = [sys.executable, "-c", _PROGRAM]
