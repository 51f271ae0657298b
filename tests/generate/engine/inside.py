"""What the engine holds, by name, for tests that look for leaks: the one place that reads its private parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from podsrl.generate import Engine


def inside(engine: Engine) -> dict[str, Any]:
    """Counts of what is held now; of the batch only while there are unfinished rollouts.

    `num_tokens` has the tokens made of every unfinished rollout, by (group's id, index). `has_empty_rows`: rollouts
    were taken out since the rows were last regrouped. `lost_places`: those of the store of tokens that are neither free
    nor in use, or both.
    """
    stepper, account = engine._stepper, engine._kv_memory.account
    num_tokens = {sequence.key: len(sequence.history) for sequence in engine._everyone}
    always = {"num_tokens": num_tokens, "held_bytes": account.held, "peak_bytes": account.peak}
    if stepper is None:
        return {**always, "is_open": False}
    rows, queue, cache = stepper.rows, stepper.queue, stepper.cache
    num_tokens |= {sequence.key: n for sequence, n in zip(rows.sequences, rows.num_new.tolist(), strict=True)}
    used = np.bincount([*rows._free, *rows._places.tolist()], minlength=len(rows._tokens))
    return {
        **always,
        "is_open": True,
        "running": len(rows),
        "rows": rows.num_rows,
        "waiting": len(queue),
        "scheduler_waiting": stepper.scheduler.num_pending,
        "has_empty_rows": stepper.has_empty_rows,
        "waiting_for_prompt": queue._num_starters.total(),
        "cached_prompts": len(cache.prompts),
        "cached_bytes": cache.num_bytes,
        "pool_bytes": rows.pool.num_bytes,
        "most_rows": rows.pool.max_rows,
        "lost_places": int(np.abs(used - 1).sum()),
    }


class CheckedEngine(Engine):
    """An engine that looks, whenever its last rollout has ended, whether something is left of them."""

    def _close(self) -> None:
        found = inside(self)
        names = ("running", "waiting", "scheduler_waiting", "waiting_for_prompt", "cached_prompts", "cached_bytes")
        assert {name: found[name] for name in names} == dict.fromkeys(names, 0)
        assert found["lost_places"] == 0 and (found["rows"] == 0 or found["has_empty_rows"])
        super()._close()
