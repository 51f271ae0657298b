"""Where the command line prints: results on stdout, everything else on stderr."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from rich.console import Console

output = Console()
errors = Console(stderr=True)


def new_folder(name: str) -> Path:
    """runs/NAME-DATE-TIME, which no earlier run has."""
    return Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
