"""Records made by hand: what a test is about is given, and the rest is plain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from podsrl.types import Completion, Group, Rollout, Sample, Selection, Task


def completion(token_ids: Sequence[int] = (7,), **changes: Any) -> Completion:
    """Each token has the log-prob -1, where none are given."""
    ids = tuple(token_ids)
    plain = {"request_id": "q", "index": 0, "token_ids": ids, "logprobs": (-1.0,) * len(ids)}
    return Completion(**(plain | {"finish_reason": "stop", "version": 0} | changes))


def rollout(reward: float = 0.0, length: int = 1, **changes: Any) -> Rollout:
    """Right where its reward is 1; `changes` are of the rollout, or of its completion of so many tokens."""
    of_completion = {name: changes.pop(name) for name in tuple(changes) if name in Completion.__dataclass_fields__}
    done = completion((7,) * length, **of_completion)
    return Rollout(
        **({"completion": done, "text": "", "reward": reward, "parts": {}, "is_correct": reward == 1} | changes)
    )


def group(name: str, *rollouts: Rollout, **changes: Any) -> Group:
    plain = {"id": name, "task": Task(id=name, prompt="?", answer="!"), "prompt_ids": (5,), "rollouts": rollouts}
    return Group(**(plain | changes))


def group_of(name: str, *rewards: float, lengths: Sequence[int] | None = None, **changes: Any) -> Group:
    """Rollouts with these rewards, and completions of these lengths, or of one token."""
    sizes = lengths or (1,) * len(rewards)
    rollouts = (rollout(*pair, index=i) for i, pair in enumerate(zip(rewards, sizes, strict=True)))
    return group(name, *rollouts, **changes)


def selection(of: Group, kept: Sequence[int], **changes: Any) -> Selection:
    dropped: Any = {i: "not_selected" for i in range(len(of.rollouts)) if i not in kept}
    return Selection(**({"group_id": of.id, "kept": tuple(kept), "dropped": dropped} | changes))


def sample(prompt: Sequence[int], token_ids: Sequence[int], advantage: Any = 1.0, **changes: Any) -> Sample:
    """`changes` are of its completion."""
    done = completion(token_ids, **changes)
    return Sample(group_id=done.request_id, prompt_ids=tuple(prompt), completion=done, advantage=advantage)
