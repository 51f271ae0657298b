"""Processes that live as long as a test file and run one function after another, as `pods launch` would start them."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from typing import Any


class Gang:
    """K processes in one gloo group."""

    def __init__(self, num_processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        self._ends, self._members = [], []
        for rank in range(num_processes):
            near, far = context.Pipe()
            member = context.Process(target=_serve, args=(rank, num_processes, port, far))
            member.start()
            self._ends.append(near)
            self._members.append(member)

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call `function(*arguments)` in every process; its results by rank."""
        for end in self._ends:
            end.send((function, arguments))
        answers = [end.recv() if end.poll(300) else (False, "no answer in 300 s") for end in self._ends]
        failures = [answer for is_good, answer in answers if not is_good]
        assert not failures, "\n".join(failures)
        return [answer for _, answer in answers]

    def close(self) -> None:
        for end in self._ends:
            end.close()
        for member in self._members:
            member.join(300)
            member.kill()


def _serve(rank: int, num_processes: int, port: int, end: Any) -> None:
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": num_processes, "LOCAL_WORLD_SIZE": num_processes}
    os.environ |= {name: str(value) for name, value in places.items()}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    from podsrl.lib.imports import TRAINING, load

    load(*TRAINING)
    import torch

    import looked_at
    from podsrl.run.before import prompt_lengths

    torch.set_num_threads(1)
    prompt_lengths._look_at = looked_at.once(prompt_lengths._look_at)
    while True:
        try:
            function, arguments = end.recv()
        except EOFError:
            return
        try:
            end.send((True, function(*arguments)))
        except BaseException:
            end.send((False, f"process {rank}: {traceback.format_exc()}"))
