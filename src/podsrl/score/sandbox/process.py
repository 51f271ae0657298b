"""One sandbox: a process under bubblewrap (`bwrap`), or in the weaker mode a plain one with limits alone.

Under bubblewrap it has namespaces of its own for users, mounts, processes, IPC, host name and network; it sees the
system's programs and Python's library, read-only, and an empty folder of limited size; there is no /proc, no /etc, no
home, and no variable of the environment. It dies with the process that started it. Where that is root, it runs as a
user who owns nothing, since Linux does not limit the processes of root.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from podsrl.errors import UsageError

BWRAP, WEAKER, REMOTE = "bwrap", "weaker", "remote"
"""Kinds of sandbox; the remote one is a service's (remote.py). The weaker one keeps a program neither from reading
files nor from the network, and not from other processes of the same user: it is for programs that one would run by
hand."""
FOLDER, PREFIX = "PODSRL_WEAKER_FOLDER", "podsrl-weaker-"
"""Environment variable: where the weaker one makes its folders, by default among the temporary ones; and how they are
called."""
_FOLDER = "/work"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/ld.so.cache", "/nix/store")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_SYSTEM_PYTHON = "/usr/bin/python3"
_FIRST_USER, _NUM_USERS = 61_184, 4_096
"""Ids of users that no distribution gives to anybody; systemd draws from them for services."""
SETTINGS = {"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "HOME": _FOLDER}
"""All of the environment. With one seed of hashes a program gives the same in every run."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may use."""

    seconds: float = 10.0
    """From the start of the sandbox to the last test; as many of CPU time for each process."""
    memory_bytes: int = 512 << 20
    """Address space of each process."""
    processes: int = 16
    """Processes and threads."""
    disk_bytes: int = 16 << 20
    """In all files together (in the weaker mode: in each), which are in memory."""
    output_bytes: int = 1 << 20
    """Printed for each input."""


def options(folder: str | None = None) -> dict[str, Any]:
    """Options of `subprocess.Popen` for a program; of root's, as a user who owns nothing but that folder."""
    found: dict[str, Any] = {"env": SETTINGS | ({} if folder is None else {"HOME": folder}), "cwd": folder or "/"}
    if os.geteuid() == 0:
        user = _FIRST_USER + os.getpid() % _NUM_USERS
        if folder is not None:
            os.chown(folder, user, user)
        found |= {"user": user, "group": user, "extra_groups": []}
    return found


class Sandbox:
    """A process that runs `inside.py` in a role, and can be ended with everything that it started.

    Args:
        descriptors: the role's two ends of sockets (the second may be missing), which the process inherits.
    """

    def __init__(self, role: str, descriptors: Sequence[int], limits: Limits, kind: str) -> None:
        self._folder = None if kind == BWRAP else tempfile.mkdtemp(prefix=PREFIX, dir=os.environ.get(FOLDER) or None)
        first, second = [*descriptors, -1][:2]
        processes = limits.processes if kind == BWRAP else 0  # of a user's processes Linux would count all
        numbers = (first, second, limits.output_bytes, limits.memory_bytes, processes, limits.disk_bytes)
        own = python()
        # -S: the standard library alone, the same on every machine
        inside = [own, "-S", "-s", "-B", "-c", _inside(), role, *map(str, (*numbers, int(limits.seconds) + 1))]
        command = [*bwrap(own, limits.disk_bytes), *inside] if kind == BWRAP else inside
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=descriptors,
            start_new_session=True,
            **options(self._folder),
        )

    def kill(self) -> None:
        """End it, with all that it has started."""
        with suppress(OSError):
            os.killpg(self._popen.pid, signal.SIGKILL)  # the rest of a process namespace dies with its first process
        self._popen.kill()
        self._popen.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def bwrap(python: str, disk_bytes: int) -> list[str]:
    command = [BWRAP, "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
    command += ["--die-with-parent", "--new-session"]
    for path in dict.fromkeys((*_SYSTEM, *_library(python))):
        if os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            command += ["--ro-bind", path, path]
    for path in _DEVICES:
        command += ["--dev-bind-try", path, path]
    # The root is a file system in memory too, without a limit of its own.
    return [*command, "--size", str(disk_bytes), "--tmpfs", _FOLDER, "--remount-ro", "/", "--chdir", _FOLDER]


def _library(python: str) -> list[str]:
    """Where an interpreter and its library are, outside of /usr."""
    prefix = str(Path(python).parent.parent)
    return [] if prefix == "/usr" or prefix.startswith("/usr/") else [prefix]


@cache
def python() -> str:
    """The interpreter that a program gets: this process's own, without its virtual environment.

    As root, one that other users can read. UsageError: there is none.
    """
    own = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    found = [path for path in (own, os.path.realpath(_SYSTEM_PYTHON)) if os.path.exists(path)]
    if os.geteuid() == 0:
        found = [path for path in found if all(each.stat().st_mode & 1 for each in (Path(path), *Path(path).parents))]
    if not found:
        raise UsageError(
            f"code rewards of root run programs as a user who owns nothing, who cannot read {own}: install a Python "
            f"that all can read, such as {_SYSTEM_PYTHON}, or run pods as another user"
        )
    return found[0]


@cache
def _inside() -> str:
    """`inside.py` as the interpreter has compiled it, since to compile it takes a third of a short program's time."""
    source = files("podsrl.score.sandbox").joinpath("inside.py").read_text()
    write = "import marshal, sys; print(marshal.dumps(compile(sys.stdin.read(), 'inside', 'exec', optimize=2)).hex())"
    found = subprocess.run([python(), "-S", "-c", write], input=source, text=True, capture_output=True, check=True)
    return f"import marshal; exec(marshal.loads(bytes.fromhex('{found.stdout.strip()}')))"
