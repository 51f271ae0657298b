"""The process that holds a local Ray cluster: it starts one, says where it is, and leaves nothing of it behind.

Ray itself leaves its log folder, and some of its processes for about a minute, when the process that started it is
killed. This process adopts them all, ends when its parent ends or closes its standard input, and kills and removes
what is below it.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import tempfile
from contextlib import suppress

from podsrl.score.workers.supervisor import adopt_orphans, kill_below

_PARENT_CHECK_SECONDS = 1.0
"""Between two checks that the parent still lives: its children may hold the pipe open."""


def main() -> None:
    """Run a keeper; its arguments are the parent's process id and the options of `ray.init` as JSON.

    It prints one line of JSON: {"address": "HOST:PORT"} or {"error": "…"}.
    """
    parent, options, answers = int(sys.argv[1]), json.loads(sys.argv[2]), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints is no answer
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when its parent does
    adopt_orphans()
    folder = tempfile.mkdtemp(prefix="pods-ray-")
    try:
        print(json.dumps(_start(folder, options)), file=answers, flush=True)
        while os.getppid() == parent:
            if select.select([0], [], [], _PARENT_CHECK_SECONDS)[0]:
                break  # nothing is ever written to it, so it was closed
    finally:
        with suppress(BaseException):
            kill_below(os.getpid())
            with suppress(ChildProcessError):
                while True:  # all of them are killed, and adopted where their own parent ended first
                    os.wait()
        with suppress(BaseException):
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)  # without Ray's own farewell to processes that have ended


def _start(folder: str, options: dict[str, object]) -> dict[str, str]:
    try:
        import ray

        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            _temp_dir=folder,
            **options,
        )
        return {"address": ray.get_runtime_context().gcs_address}
    except BaseException as error:
        return {"error": " ".join(str(error).split()) or repr(error)}


if __name__ == "__main__":
    main()
