"""A process that has imported everything, and forks a child for each command: starting one costs no import.

It reads a request per line, {"words": [...], "output": file}, forks, answers with the child's process id,
and, when the child has ended, with its exit code (negative: the signal). A training of one step, in the folder that is
its argument, warms it up. It has one thread when it forks, and ends with its parent.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

from podsrl.cli import main as cli
from podsrl.lib.parent import end_with, end_with_parent


def main() -> None:
    """Serve until the standard input is closed."""
    end_with_parent()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 1)
    _command([*sys.argv[2:], "--out", sys.argv[1]])
    until = time.monotonic() + 10
    while (num_threads := len(os.listdir("/proc/self/task"))) != 1 and time.monotonic() < until:
        time.sleep(0.01)  # the system removes a thread a moment after it was joined
    if num_threads != 1:
        sys.exit(f"the process that forks has {num_threads} threads, wanted 1")
    answers.write("ready\n")
    for line in sys.stdin:
        pid = _fork(json.loads(line))
        answers.write(f"{pid}\n")
        _, status = os.waitpid(pid, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")


def _fork(request: dict[str, Any]) -> int:
    parent = os.getpid()
    if pid := os.fork():
        return pid
    code = 1
    try:
        end_with(parent)
        os.setpgid(0, 0)
        file = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        for descriptor in (1, 2):
            os.dup2(file, descriptor)
        code = _command(request["words"])
    finally:
        os._exit(code)


def _command(words: list[str]) -> int:
    """`pods` with these words, in this process; its exit code."""
    sys.argv = ["pods", *words]
    try:
        cli.main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


if __name__ == "__main__":
    main()
