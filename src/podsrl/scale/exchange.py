"""Exchange groups, so that every process holds all groups of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from podsrl.records import decode, encode
from podsrl.scale.processes import Processes
from podsrl.types import Group, Task


def exchange_groups(tasks: Mapping[str, Task], own: Sequence[Group], processes: Processes) -> list[Group]:
    """All groups on every process: one per task (group id -> task), in their order; log-probs become float32.

    Each group is `own` on exactly one process.
    """
    found = {group.id: group for group in own}
    if not processes.is_alone:
        for rank, data in enumerate(processes.gather_bytes(encode(own))):
            if rank != processes.rank:
                found |= {group.id: group for group in decode(data, lambda name, index: tasks[name])}
    return [found[name] for name in tasks]
