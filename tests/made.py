"""Records made by hand: what a test is about is given, and the rest is plain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from podsrl.types import Group, Rollout, Sample, Selection, Task


def completion(token_ids: Sequence[int] = (7,), **changes: Any) -> Rollout:
    """One that is not judged; each token has the log-prob -1, where none are given."""
    ids = tuple(token_ids)
    plain = {"group_id": "q", "index": 0, "token_ids": ids, "logprobs": (-1.0,) * len(ids)}
    return Rollout(**(plain | {"finish_reason": "stop", "version": 0} | changes))


def ended(word: str) -> Any:
    """The fields of one that ended so: "stop", "length", "open", "pruned" or "failed"."""
    is_done = word in ("stop", "length")
    return {"status": "done" if is_done else word, "finish_reason": word if is_done else None}


def end_of(done: Rollout) -> str:
    """The word that `ended` takes."""
    return done.finish_reason or done.status


def rollout(reward: float = 0.0, length: int = 1, **changes: Any) -> Rollout:
    """One of so many tokens that is judged: right where its reward is 1."""
    return completion((7,) * length, **({"reward": reward, "is_correct": reward == 1} | changes))


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
    return Sample(group_id=done.group_id, prompt_ids=tuple(prompt), rollout=done, advantage=advantage)
