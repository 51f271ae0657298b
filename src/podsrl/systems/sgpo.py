"""sGPO: profile the training set once, then ask what can teach, in groups of its size, from easy to hard.

Sudalairaj et al. (2026), "sGPO: Trading Inference FLOPs for Training Efficiency in RLVR", arXiv 2606.08854. The first
step asks every question `num_probes` times, as probes. With p̂, the share of right answers:

    p̂ > `drop_above`   the question is solved, and is not asked again
    p̂ = 0              unsolved: a share `unsolved_share` of every phase's questions, with the phase's group size
    otherwise          group size 1 / p̂, rounded up to a power of two, at least 2 and at most `largest`

A phase holds the questions of one group size; phases follow each other from the smallest size to the largest. The
profile is never made again.

What is ours, because the source is silent: the rounding; that a large set is sampled (`most_profiled`), and only the
sample is trained on; the order of the questions within a phase, which is that of the data stream; and what "each to
convergence" means: a phase ends when the accuracy of its groups, as a mean over the last `window` steps, is not above
that of the `window` steps before by more than `rise`. The last phase does not end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from podsrl.control.base import View
from podsrl.errors import UsageError
from podsrl.types import Ask, Group

Sizes = Mapping[int, int]
"""Question -> its group size; 0: unsolved. Questions that are dropped are left out."""


class Profile:
    """A profile of the training set decides which questions are asked, when, and in groups of which size.

    Args:
        num_probes: rollouts per question of the profile, at least 2.
        drop_above: highest p̂ that is trained on, 0 to 1.
        unsolved_share: of the questions of a phase, at least 0 and under 1.
        largest: group size, a power of two, at least 2.
        most_profiled: questions profiled; of a larger training set a random sample is profiled.
        window, rise: when a phase has converged.
    """

    def __init__(
        self,
        *,
        num_probes: Annotated[int, Field(ge=2)] = 8,
        drop_above: Annotated[float, Field(ge=0, le=1)] = 0.75,
        unsolved_share: Annotated[float, Field(ge=0, lt=1)] = 0.1,
        largest: Literal[2, 4, 8, 16, 32, 64, 128] = 8,
        most_profiled: Annotated[int, Field(ge=1)] = 20_000,
        window: Annotated[int, Field(ge=1)] = 10,
        rise: Annotated[float, Field(ge=-1, le=1)] = 0.0,
    ) -> None:
        self.num_probes, self.drop_above, self.unsolved_share = num_probes, drop_above, unsolved_share
        self.largest, self.most_profiled, self.window, self.rise = largest, most_profiled, window, rise
        self._sizes: dict[int, int] = {}
        self._phase = 0
        self._asked = 0  # questions of the phase so far
        self._accuracy: list[float] = []  # of the phase's groups, per step

    def questions(self, view: View, count: int) -> Sequence[int]:
        """The next ones of the phase, in the order of the data stream."""
        if not self._sizes and view.round == 0:
            return [0] * count if view.step == 0 else view.stream.draw(count)  # the former in place of the probes
        sizes = self._known(view)
        done = self._asked + sum(group.is_trained for group in view.groups)
        is_unsolved = [_is_unsolved(done + j, self.unsolved_share) for j in range(count)]
        phase, has_unsolved = self._phase_size(sizes), 0 in sizes.values()
        wanted = [0 if unsolved and has_unsolved else phase for unsolved in is_unsolved]
        return _drawn(view, sizes, wanted)

    def rollouts(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        """The probes in the first round of the run; then groups of the phase's size."""
        if not self._sizes and view.round == 0 and view.step > 0:  # a step ahead, begun before the probes were judged
            return asks
        if not self._sizes and view.round == 0:
            return [Ask(index=i, num_rollouts=self.num_probes, is_trained=False) for i in self._profiled(view)]
        if not self._sizes and view.round == 1 and not asks:
            asks = [Ask(index=i, num_rollouts=1) for i in self.questions(view, view.num_prompts)]
        sizes = self._known(view)
        size = self._phase_size(sizes)
        return [ask if ask.joins else replace(ask, num_rollouts=size) for ask in asks]

    def learn(self, groups: Sequence[Group]) -> None:
        """Keep the profile, and see whether the phase has converged."""
        if not self._sizes:
            self._sizes = self._found(groups)
        size = self._phase_size(self._sizes)
        trained = [group for group in groups if group.is_trained]
        of_phase = [group for group in trained if group.index is not None and self._sizes.get(group.index) == size]
        own = [is_right for group in of_phase for is_right in group.outcomes]
        self._asked += len(trained)
        if own:
            self._accuracy = [*self._accuracy, sum(own) / len(own)][-2 * self.window :]
        is_last = size == max(self._sizes.values())
        if not is_last and self._has_converged():
            self._phase, self._asked, self._accuracy = self._phase + 1, 0, []

    def state(self) -> dict[str, Any]:
        """The profile as two arrays, and where its phases are."""
        return {
            "question": np.array(list(self._sizes), dtype=np.int64),
            "size": np.array(list(self._sizes.values()), dtype=np.int64),
            "phase": self._phase,
            "asked": self._asked,
            "accuracy": np.array(self._accuracy),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._sizes = dict(zip(state["question"].tolist(), state["size"].tolist(), strict=True))
        self._phase, self._asked = int(state["phase"]), int(state["asked"])
        self._accuracy = state["accuracy"].tolist()

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        """The round of probes may hold `most_profiled` groups; a group is a probe, or one of at most `largest`."""
        return max(num_prompts, self.most_profiled), max(self.num_probes, self.largest)

    def size_of(self, num_right: int, num_rollouts: int) -> int | None:
        """The group size for p̂ = num_right / num_rollouts; 0: unsolved; None: it is dropped.

        Example:
            >>> [Profile().size_of(k, 8) for k in range(9)]
            [0, 8, 4, 4, 2, 2, 2, None, None]
        """
        if num_right == 0:
            return 0
        if num_right / num_rollouts > self.drop_above:
            return None
        size = 2
        while size < self.largest and size * num_right < num_rollouts:
            size *= 2
        return size

    def _profiled(self, view: View) -> list[int]:
        if view.num_train <= self.most_profiled:
            return list(range(view.num_train))
        return sorted(view.rng("profile").choice(view.num_train, self.most_profiled, replace=False).tolist())

    def _found(self, groups: Sequence[Group]) -> dict[int, int]:
        """What the probes among the groups say."""
        sizes = {}
        for group in groups:
            if not group.is_trained and group.index is not None and (own := group.outcomes):
                size = self.size_of(sum(own), len(own))
                if size is not None:
                    sizes[group.index] = size
        return sizes

    def _known(self, view: View) -> Sizes:
        """The profile, from what was learned or from the probes of this step."""
        sizes = self._sizes or self._found(view.groups)
        if any(sizes.values()):
            return sizes
        num_unsolved, num_profiled = len(sizes), sum(not group.is_trained for group in view.groups)
        raise UsageError(
            f"options.sgpo.drop_above = {self.drop_above} leaves no question of {num_profiled:,}: "
            f"{num_profiled - num_unsolved:,} were right more often in {self.num_probes} probes, {num_unsolved:,} "
            "never: raise it, or choose harder or easier questions"
        )

    def _phase_size(self, sizes: Sizes) -> int:
        return sorted(set(sizes.values()) - {0})[self._phase]

    def _has_converged(self) -> bool:
        if len(self._accuracy) < 2 * self.window:
            return False
        before, last = np.mean(self._accuracy[: self.window]), np.mean(self._accuracy[self.window :])
        return bool(last <= before + self.rise)


def _is_unsolved(place: int, share: float) -> bool:
    """Whether the question at a place of a phase is an unsolved one: of the first j there are floor(j · share)."""
    return int((place + 1) * share + 1e-9) > int(place * share + 1e-9)


def _drawn(view: View, sizes: Sizes, wanted: Sequence[int]) -> list[int]:
    """The next questions of the stream with these sizes, in this order; those that come too early are passed over."""
    waiting: dict[int, list[int]] = {size: [] for size in wanted}
    num_missing = {size: wanted.count(size) for size in waiting}
    while least := sum(num_missing.values()):
        for index in view.stream.draw(least):
            size = sizes.get(index, -1)
            if num_missing.get(size):
                waiting[size].append(index)
                num_missing[size] -= 1
    turns = {size: iter(found) for size, found in waiting.items()}
    return [next(turns[size]) for size in wanted]
