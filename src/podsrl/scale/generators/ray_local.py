"""A Ray cluster of this machine that a run starts, and of which it leaves nothing.

Ray itself leaves its log folder, and some of its processes for about a minute, when the process that started it is
killed. So the cluster is started by a child, its keeper, which adopts all of these processes. The keeper ends when its
parent ends or closes the pipe to it; then it kills what is below it, and removes the folder. When the keeper itself is
killed, Ray's processes end with it, and the parent removes the folder.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import IO

from podsrl.errors import UsageError
from podsrl.lib.below import adopt_orphans, kill_below
from podsrl.lib.parent import outside_the_run
from podsrl.scale.generators.ray_cluster import START_SECONDS, Need
from podsrl.scale.generators.ray_join import ENVIRONMENT, Address, check_package, token_variables

_PARENT_CHECK_SECONDS = 1.0
"""Between two checks that the parent still lives: its children may hold the pipe open."""


class LocalCluster:
    """A Ray cluster of this machine, in processes below one that ends with this one and leaves nothing behind.

    Args:
        need: what each actor takes.
        num_actors: of the whole run, on this machine.
        store_bytes: of the object store, in shared memory.
        num_gpus: that actors may use.
        visible_gpus: these, as CUDA_VISIBLE_DEVICES names them.

    Raises:
        UsageError: it does not start; the message says why.
    """

    def __init__(
        self, need: Need, num_actors: int, store_bytes: int, *, num_gpus: int = 0, visible_gpus: str = ""
    ) -> None:
        check_package()
        token = secrets.token_hex(32)  # without one, every user of the machine could run code in the cluster
        options = {
            "num_cpus": need.num_cpus * num_actors,
            "num_gpus": num_gpus,
            "object_store_memory": store_bytes,
        }
        environment = outside_the_run() | ENVIRONMENT | token_variables(token) | {"CUDA_VISIBLE_DEVICES": visible_gpus}
        start = "from podsrl.scale.generators.ray_local import main; main()"
        path = f"import sys; sys.path[:] = {[*map(str, sys.path)]!r}; {start}"
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the cluster
        self.folder = tempfile.mkdtemp(prefix="pods-ray-")
        self._keeper = subprocess.Popen(
            [sys.executable, "-P", "-c", path, str(os.getpid()), self.folder, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            start_new_session=True,  # Ctrl-C in the terminal is for this process alone
        )
        try:
            self.address = Address(self._answer()["address"], token)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End every process of the cluster, and remove its files."""
        assert self._keeper.stdin is not None and self._keeper.stdout is not None
        with suppress(OSError):
            self._keeper.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(START_SECONDS)
        self._keeper.stdout.close()
        self._errors.close()
        self.clear()

    def clear(self) -> None:
        """Remove what a keeper that was killed has left."""
        if self._keeper.poll() is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def keeper_pid(self) -> int:
        """Process id of the keeper; all processes of the cluster are below it, in its session."""
        return self._keeper.pid

    def _answer(self) -> dict[str, str]:
        stdout = self._keeper.stdout
        assert stdout is not None
        is_ready = select.select([stdout], [], [], START_SECONDS)[0]
        answer = json.loads(stdout.readline() or "{}") if is_ready else {}
        if "address" in answer:
            return dict(answer)
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
        silence = "the process that starts it was killed" if is_ready else f"no answer within {START_SECONDS:g} s"
        reason = answer.get("error") or (last[0] if is_ready and last else silence)
        raise UsageError(f"scale.ray = 'local': Ray could not start a cluster here: {reason}")


# --- in the keeper ---


def main() -> None:
    """Run a keeper; its arguments are the parent's process id, the cluster's folder, and options of `ray.init` as JSON.

    It prints one line of JSON: {"address": "HOST:PORT"} or {"error": "…"}.
    """
    parent, folder, options = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints is no answer
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when its parent does
    adopt_orphans()
    try:
        print(json.dumps(_start(folder, options)), file=answers, flush=True)
        while os.getppid() == parent and _is_whole():
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


def _is_whole() -> bool:
    """Whether the processes live without which no other one of the cluster can work."""
    from ray._private.worker import _global_node

    return _global_node is None or not {"gcs_server", "raylet"} & {name for name, _ in _global_node.dead_processes()}


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
