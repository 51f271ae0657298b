"""Whether programs can be run on this machine, and if not, what to install or allow."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache

from podsrl.errors import UsageError, one_line
from podsrl.score.sandbox.process import BWRAP, REMOTE, bwrap, options, python
from podsrl.score.sandbox.verdicts import ProgramTests, run_tests

_PROBE_SECONDS = 30.0
_WHAT = "code rewards run programs under bubblewrap"
_OR = "or name the reward 'weaker_code_tests', which runs them with limits alone, for programs that you trust"


def require(kind: str) -> None:
    """Check that programs can be run in this kind of sandbox. UsageError: they cannot."""
    if kind == REMOTE:
        if run_tests("print(input())", ProgramTests(pairs=(("1", "1"),)), kind=REMOTE) != [True]:
            raise UsageError("the sandbox service runs no Python: wanted SandboxFusion with Python 3.9 or newer")
        return
    python()
    if kind == BWRAP and (problem := _problem()):
        raise UsageError(problem)


@cache
def _problem() -> str:
    """Why bubblewrap cannot be used here; "" where it can."""
    if sys.platform != "linux":
        return f"{_WHAT}, which is for Linux: use a Linux machine, {_OR}"
    if shutil.which(BWRAP) is None:
        return (
            f"{_WHAT}, and there is no `bwrap` in the PATH: install it (apt-get install bubblewrap, dnf install "
            f"bubblewrap), {_OR}"
        )
    if said := _said():
        return (
            f"{_WHAT}, which cannot work here ({one_line(said, 200)}): it needs version 0.8 and user namespaces "
            "(sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0, "
            f"user.max_user_namespaces above 0; in Docker --security-opt seccomp=unconfined), {_OR}"
        )
    if run_tests("print(input())", ProgramTests(pairs=(("1", "1"),))) != [True]:
        return (
            f"{_WHAT}, and one that prints its input failed there: wanted Linux 5.14 or newer, which counts the "
            f"processes of a sandbox alone, {_OR}"
        )
    return ""


def _said() -> str:
    """What bubblewrap says where it cannot start Python."""
    command = [*bwrap(python(), 1 << 20), python(), "-S", "-c", ""]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PROBE_SECONDS, **options())
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return done.stderr.decode(errors="replace") or f"exit code {done.returncode}" if done.returncode else ""
