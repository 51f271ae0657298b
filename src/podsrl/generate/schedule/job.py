"""One rollout as a scheduler sees it: lengths only, no tokens, no tensors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False, weakref_slot=True)
class Job:
    """One rollout to be generated. Two jobs are equal only if they are the same object.

    Example:
        >>> job = Job("a", 0, prompt_length=10, max_new_tokens=64, order=0, num_tokens=3, predicted=20.0)
        >>> job.row_length, job.remaining
        (13, 17.0)
    """

    request_id: str
    """Of the group: the request's `stream`, which is its id unless it joins another request's group."""
    index: int
    """Which of the group's rollouts, from 0."""
    prompt_length: int
    """Tokens, at least 1."""
    max_new_tokens: int
    order: int
    """Arrival number, unique; kept when the job is paused and comes back."""
    num_tokens: int = 0
    """New tokens made so far; whoever runs the job keeps it current."""
    predicted: float | None = None
    """Predicted total of new tokens; the scheduler's own to fill."""

    @property
    def row_length(self) -> int:
        """Tokens of KV memory that the next step needs for this job's row."""
        return self.prompt_length + self.num_tokens

    @property
    def remaining(self) -> float:
        """New tokens expected still to come, at least 1; the token limit where nothing is predicted."""
        total = self.max_new_tokens if self.predicted is None else min(self.predicted, self.max_new_tokens)
        return max(1.0, total - self.num_tokens)
