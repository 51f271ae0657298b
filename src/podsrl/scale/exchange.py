"""Exchange open groups, so that every process holds all groups of a step."""

from __future__ import annotations

from collections.abc import Sequence

from podsrl.records import decode_open, encode_open
from podsrl.scale.processes import Processes
from podsrl.types import Open


def exchange(opens: Sequence[Open], own: Sequence[Open], processes: Processes) -> list[Open]:
    """All of `own` on every process, in the order of `opens` (the same on every process); log-probs become float32.

    Each group of `opens` is in `own` on exactly one process.
    """
    tasks, found = {each.group.id: each.group.task for each in opens}, {each.group.id: each for each in own}
    if not processes.is_alone:
        for rank, data in enumerate(processes.gather_bytes(encode_open(own))):
            if rank != processes.rank:
                found |= {each.group.id: each for each in decode_open(data, lambda name, index: tasks[name])}
    return [found[name] for name in tasks]
