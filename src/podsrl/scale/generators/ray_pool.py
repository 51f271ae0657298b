"""The Ray actors of a process as one generator, and the cluster that holds them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from podsrl.scale.generators.pool import Pool
from podsrl.scale.generators.ray import ObjectStore, RayGenerator
from podsrl.scale.generators.ray_cluster import Need, describe_nodes, num_nodes, reserve
from podsrl.scale.generators.ray_join import Address, join, leave, lives
from podsrl.scale.generators.ray_local import LocalCluster
from podsrl.scale.generators.worker import Blueprint


class RayPool(Pool):
    """A pool of `RayGenerator`s, spread over the nodes of a cluster.

    Args:
        blueprint: of each worker; its paths and its device are those of this process.
        num: actors of this process.
        need: what each takes of a node.
        cluster: where they run. It is joined here, and left by `close`.
        local: the cluster, where this process has started it.
        is_shared: other processes use `local` too, so it ends with this process instead of with the pool.
        timeout_seconds: of every wait for an actor that has started.

    Raises:
        UsageError: the cluster cannot be joined, or has no room.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        num: int,
        need: Need,
        cluster: Address,
        *,
        timeout_seconds: float,
        local: LocalCluster | None = None,
        is_shared: bool = False,
    ) -> None:
        self._local, self._is_shared, self._group, self._is_joined = local, is_shared, None, False
        try:
            join(cluster)
            self._is_joined = True
            self._group = reserve(cluster.host_port, num, need)
            plan = _for_nodes(blueprint, -(-num // num_nodes(need)))
            make = partial(RayGenerator, plan, self._group, need=need, timeout_seconds=timeout_seconds)
            factories = [partial(make, index) for index in range(num)]
            what = f"{num} Ray actor{'s' * (num > 1)} on {describe_nodes()}"
        except BaseException:
            self._leave()
            raise
        super().__init__(factories, ObjectStore(), what=what)

    def close(self) -> None:
        """End the actors, give their places back and leave the cluster."""
        super().close()
        self._leave()

    def _leave(self) -> None:
        if self._group is not None and lives():
            from ray.util.placement_group import remove_placement_group

            with suppress(Exception):  # the cluster may be gone
                remove_placement_group(self._group)
        if self._is_joined:
            leave()
        if self._local is not None and not self._is_shared:
            self._local.close()
            self._local = None
        self._group, self._is_joined = None, False


def _for_nodes(blueprint: Blueprint, num_workers_here: int) -> Blueprint:
    """The blueprint as an actor needs it: it starts in another folder, on another machine, and sees one GPU if any."""
    model: dict[str, Any] = dict(blueprint.model)
    if Path(model["path"]).exists():
        model["path"] = str(Path(model["path"]).resolve())
    device = "cuda" if blueprint.setting["device"].startswith("cuda") else blueprint.setting["device"]
    return replace(
        blueprint, model=model, setting=blueprint.setting | {"device": device}, num_workers_here=num_workers_here
    )
