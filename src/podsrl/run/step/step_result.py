"""Everything one training step did: what metrics, logs, displays, the planner and benchmarks read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from podsrl.run.step.collected import Load
from podsrl.run.step.counters import Progress
from podsrl.run.step.learn import UpdateResult
from podsrl.types import Group, Rollout, Sample, Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """One step. With several processes it is the same on all of them, but for the seconds by stage."""

    progress: Progress
    """With this step counted."""
    groups: tuple[Group, ...]
    """P groups that were trained on, or could have been; they may differ in size."""
    num_recalled: int = 0
    """How many of them, the last ones, are of earlier steps (`recall`)."""
    left_out: tuple[Group, ...] = ()
    """Groups that the budget kept out of the training."""
    probes: tuple[Group, ...] = ()
    """Groups that only the budget looked at."""
    selections: tuple[Selection, ...]
    """One per group of `groups`, in the same order."""
    samples: tuple[Sample, ...]
    """What was kept, with its advantage: in the order of the groups and of `Selection.kept`."""
    trained_version: int
    """Of the weights before the update."""
    update: UpdateResult
    """Of the last epoch."""
    lr: float
    """Learning rate of the last optimizer step that changed the weights; before the first, that of the first."""
    num_skipped_updates: int
    """Optimizer steps of the whole run that were given up because the gradient was not finite."""
    weights_digest: str
    """Of the weights that the generator samples from in the next step."""
    load: Load
    seconds: Mapping[str, float]
    """By stage, of this process."""
    total_seconds: float
    """The whole step, on the clock of process 0."""
    overlapped_seconds: float | None = None
    """That generation went on beside earlier stages, at most; None where a step generates, then trains."""

    @property
    def fresh(self) -> tuple[Group, ...]:
        """Those of `groups` that this step generated."""
        return self.groups[: len(self.groups) - self.num_recalled]

    @property
    def is_empty(self) -> bool:
        """Whether nothing was kept, so nothing was trained on."""
        return not any(selection.kept for selection in self.selections)

    def pools(self) -> Iterator[tuple[list[Rollout], list[Rollout]]]:
        """All rollouts, and the kept ones, of each pool among which rollouts were chosen and compared.

        A pool is a group, or one of its chunks where `select.num_chunks` cuts it.
        """
        for group, selection in zip(self.groups, self.selections, strict=True):
            kept = set(selection.kept)
            for pool in selection.chunks or (range(len(group.rollouts)),):
                yield [group.rollouts[i] for i in pool], [group.rollouts[i] for i in pool if i in kept]


def samples_by_group(selections: Sequence[Selection], samples: Sequence[Sample]) -> Iterator[list[Sample]]:
    """The samples that belong to each selection, in the order of `kept`."""
    rest = iter(samples)
    return (list(islice(rest, len(selection.kept))) for selection in selections)
