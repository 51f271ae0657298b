"""A run's folder on disk.

    config.toml      the resolved config: what the run read, and what a resume reads
    metrics.jsonl    one object per step, and one per evaluation
    groups.jsonl     whole groups of some steps, for the report
    checkpoints/     step-00000012/ …  (run/saving/checkpoint.py)
    starts.jsonl     command, time, commit and machine of each start and resume (run/starts.py)
    finished.json    how it ended; absent while there is more to do

The two logs of steps are only ever appended to, or cut back to where a checkpoint was.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from podsrl.config.bounds import check_path, check_text
from podsrl.errors import PodsError, UsageError, short
from podsrl.lib.logs import append_line, parse_line, write_atomically


class FolderGone(PodsError):
    """The run's folder is not where it was when the run began."""


@contextmanager
def refusing(what: str, cure: str) -> Iterator[None]:
    """Around the use of a path that the user gave: what the system refuses is a UsageError in one line."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{what}: {error.strerror or error}; {cure}") from None
    except ValueError as error:
        if isinstance(error, PodsError):
            raise
        raise UsageError(f"{what}: {error}; {cure}") from None


class RunFolder:
    """Paths of a run, and its append-only logs."""

    LOGS = ("metrics.jsonl", "groups.jsonl")
    STARTS = "starts.jsonl"
    LOCK = ".lock"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.checkpoints = path / "checkpoints"
        self.finished = path / "finished.json"

    def check_is_free(self) -> None:
        """Raise UsageError where a run is here already, or the path leads to or through a file, or can be none."""
        with refusing(f"--out {short(str(self.path))}", "choose another folder"):
            check_text(check_path(str(self.path)))
            if self.config.exists():
                cure = f"go on with --resume {self.path}, or choose another --out"
                raise UsageError(f"{self.path}: holds a run already; {cure}")
            for part in (self.path, *self.path.parents):
                if part.is_file():
                    raise UsageError(f"--out {self.path}: {part} is a file, wanted a folder")
            self.check_files()
            nearest = next(part for part in (self.path, *self.path.absolute().parents) if part.exists())
            if not os.access(nearest, os.W_OK):
                raise UsageError(f"--out {self.path}: {nearest} cannot be written to; choose another folder")

    def check_files(self) -> None:
        """See that what a run writes to, and cuts back, are files of its folder alone.

        Raises:
            UsageError: one is a link, which may lead to any file of the user's, or a pipe, which a reader would wait
                for. `checkpoints` may be a link: they may lie on another disk.
        """
        own = (self.config, self.finished, *(self.path / name for name in (self.LOCK, self.STARTS, *self.LOGS)))
        for file in (*own, *self.path.glob("logs/rank-*.log")):
            if file.is_symlink():
                raise UsageError(f"{file}: is a link, and a run writes to files of its own: put the file in its place")
            if file.exists() and not file.is_file():
                raise UsageError(f"{file}: is no file: remove it")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder, which is made where it is missing; the operating system lets go of it when the process ends.

        Raises:
            UsageError: another process is writing to it.
        """
        with refusing(f"{self.path}: cannot be written to", "make it writable, or choose another folder"):
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / self.LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"{self.path}: another process is training in it; wait for it, or stop it") from None
            yield
        finally:
            os.close(descriptor)

    def is_locked(self) -> bool | None:
        """Whether a process of this machine trains here; None where the system does not say.

        It is read from the system's list: trying the lock could stop a run that starts in this moment. The list's
        numbers of devices are not compared, since btrfs gives a file another one.
        """
        try:
            inode = os.stat(self.path / self.LOCK).st_ino
            held = Path("/proc/locks").read_text()
        except FileNotFoundError:
            return False if Path("/proc/locks").exists() else None
        except OSError:
            return None
        return f":{inode} " in held

    def create(self, config_text: str) -> None:
        """Start a new run in the folder that this process holds. UsageError: another run began in it meanwhile."""
        self.check_is_free()
        with refusing(f"--out {self.path}: cannot be written to", "choose another folder"):
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            write_atomically(self.config, config_text)

    def check_is_there(self) -> None:
        """Raise FolderGone where the folder was moved or removed since the run began."""
        if not self.config.is_file():
            raise FolderGone(
                f"{self.path}: the run's folder (its config.toml) was moved or removed while it was training; what was "
                "trained since its last checkpoint is lost. Where the folder still is, go on with --resume"
            )

    def append(self, log: str, record: Mapping[str, Any]) -> None:
        """Add one line, flushed to the operating system so that a killed process loses nothing it wrote."""
        self.check_is_there()
        append_line(self.path / log, record)

    def log_sizes(self) -> dict[str, int]:
        """Bytes of each log, after forcing them to disk: a checkpoint remembers them."""
        self.check_is_there()
        sizes = {}
        for log in self.LOGS:
            path = self.path / log
            if path.exists():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            sizes[log] = path.stat().st_size if path.exists() else 0
        return sizes

    def check_logs(self, sizes: Mapping[str, int], step: int) -> None:
        """See that the logs hold what the checkpoint of a step remembers: whole lines, of steps up to its own.

        Args:
            sizes: bytes of each log at that time.

        Raises:
            UsageError: one was cut or changed since.
        """
        for log in self.LOGS:
            if reason := _loss(self.path / log, sizes[log], step):
                raise UsageError(
                    f"{reason}, which the checkpoint of step {step} remembers: restore the file, or start a new run"
                )

    def rewind(self, config_text: str, sizes: Mapping[str, int]) -> None:
        """Cut the logs back to their sizes at a checkpoint; the steps after it are made again, with the same numbers.

        Args:
            config_text: of the run as it goes on.
            sizes: bytes of each log; none where the run starts over.
        """
        self.finished.unlink(missing_ok=True)  # before the logs are cut: a run that is cut is not finished
        for log in self.LOGS:
            path, size = self.path / log, sizes.get(log, 0)
            if path.exists() and path.stat().st_size > size:
                os.truncate(path, size)
        write_atomically(self.config, config_text)


def _loss(log: Path, size: int, step: int) -> str | None:
    """Why the first `size` bytes of a log, which may be gone, are no whole lines of steps up to `step`."""
    held = log.stat().st_size if log.exists() else 0
    if held < size:
        return f"{log} has {held:,} bytes, and had {size:,}"
    if size == 0:
        return None
    with log.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(size - file.tell()), b""), start=1):
            value = parse_line(line) if line.endswith(b"\n") else None
            if value is None or value.get("step", 0) > step:
                return f"line {number} of {log} is broken, or of a step after {step}"
    return None


def wanted_run(path: Path) -> str:
    """What to give instead of `path`, with the newest runs in it or beside it."""
    folder = path if path.is_dir() else path.parent
    found = [file for name in ("config.toml", "compare.toml") for file in folder.glob(f"*/{name}")]
    newest = [str(file.parent) for file in sorted(found, key=lambda file: file.stat().st_mtime)[-3:]]
    hint = f", such as {', '.join(reversed(newest))}" if newest else ""
    return f"give the folder of a run (`pods train`) or of `pods compare`{hint}"
