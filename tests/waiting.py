"""Other processes, as Linux's /proc shows them, and waiting for what they do.

There is one limit for all tests: it costs time only where something hangs, so it is long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

SECONDS = 300.0


def wait_for(is_so: Callable[[], object], what: str = "", seconds: float = SECONDS) -> None:
    """Return when it is so; fail where it is not in time."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what or is_so}"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not, nor does one that ends just now."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def words_of(pid: int) -> list[str]:
    """Its command line; nothing for one that has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    return []


def variables_of(pid: int) -> dict[str, str]:
    """Its environment when it was started; nothing for one that has ended."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        return dict(pair.partition("=")[::2] for pair in text.split("\0"))
    return {}


def processes() -> Iterator[int]:
    """Process ids of all that run."""
    yield from (
        int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and is_alive(int(entry.name))
    )
