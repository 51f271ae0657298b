"""A Ray cluster of this machine that a run starts, and of which it leaves nothing.

Ray itself leaves its log folder, and some of its processes for about a minute, when the process that started it is
killed. So the cluster is started by a child, its keeper, which adopts all of these processes. The keeper ends when its
parent ends or closes the channel to it; then it kills what is below it, and removes the folder. When the keeper itself
is killed, Ray's processes end with it, and the parent removes the folder.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
import weakref
from contextlib import suppress
from typing import IO, Any

from podsrl.errors import UsageError
from podsrl.lib.below import kill_below
from podsrl.lib.channel import Channel
from podsrl.lib.child import Child, Lost, last_line
from podsrl.lib.parent import outside_the_run
from podsrl.scale.generators.ray_cluster import START_SECONDS, Need
from podsrl.scale.generators.ray_join import ENVIRONMENT, Address, check_package, token_variables

_PARENT_CHECK_SECONDS = 1.0
"""Between two checks that the parent still lives: its children may hold the channel open."""


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
        printed = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the cluster
        self.folder = tempfile.mkdtemp(prefix="pods-ray-")
        self._keeper = Child(
            "podsrl.scale.generators.ray_local:keep", os.getpid(), self.folder, options,
            variables=environment, output=printed, ends_itself=True,
        )  # fmt: skip
        self.close = weakref.finalize(self, _end, self._keeper, printed, self.folder, os.getpid())
        """Ends every process of the cluster, and removes its files; also with this object, at the latest."""
        try:
            answer = self._keeper.ask(seconds=START_SECONDS).head
            error = answer.get("error")
        except Lost as lost:
            error = last_line(printed) or str(lost)
        except BaseException:
            self.close()
            raise
        if error:
            self.close()
            raise UsageError(f"scale.ray = 'local': Ray could not start a cluster here: {error}")
        self.address = Address(answer["address"], token)

    @property
    def keeper_pid(self) -> int:
        """Process id of the keeper; all processes of the cluster are below it, in its session."""
        return self._keeper.pid


def _end(keeper: Child, printed: IO[bytes], folder: str, owner: int) -> None:
    if os.getpid() != owner:  # a child that was forked
        return
    keeper.channel.close()
    keeper.wait(START_SECONDS)
    keeper.kill()
    printed.close()
    shutil.rmtree(folder, ignore_errors=True)


# --- in the keeper ---


def keep(channel: Channel, parent: int, folder: str, options: dict[str, Any]) -> None:
    """Hold a cluster until the channel is closed, or the parent has ended; answer with its address, or an error.

    Args:
        folder: of the cluster.
        options: of `ray.init`.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when its parent does
    try:
        channel.receive()
        channel.send(_start(folder, options))
        while os.getppid() == parent and _is_whole():
            with suppress(TimeoutError):
                channel.receive(_PARENT_CHECK_SECONDS)
                break  # nothing more is ever sent, so it was closed
    finally:
        with suppress(BaseException):
            kill_below(os.getpid())
            with suppress(ChildProcessError):
                while True:  # all of them are killed, and adopted where their own parent ended first
                    os.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _is_whole() -> bool:
    """Whether the processes live without which no other one of the cluster can work."""
    from ray._private.worker import _global_node

    return _global_node is None or not {"gcs_server", "raylet"} & {name for name, _ in _global_node.dead_processes()}


def _start(folder: str, options: dict[str, Any]) -> dict[str, str]:
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
