"""The learner: samples become new weights, and the generator gets them. It knows no tasks and no rewards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from torch import Tensor

from podsrl.generate import Generator, abilities_of
from podsrl.lib.balance import longest_first
from podsrl.policy import Policy
from podsrl.scale.gradients import sum_gradients
from podsrl.scale.processes import Processes
from podsrl.scale.shard import collect, whole
from podsrl.scale.update import forward_backward, pass_stats, with_start
from podsrl.sync import prove_arrival, sync_weights
from podsrl.types import Sample
from podsrl.update import Batch, Updater, UpdateStats, group_weights, make_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """What the last pass of an update did; zeros in a step without samples."""

    stats: UpdateStats = field(default_factory=UpdateStats)
    grad_norm: float = 0.0
    """Before clipping; the mean over the pass's optimizer steps."""


class Learner:
    """Trains the policy.

    Args:
        policy: its weights change.
        updater: of the policy's model.
        processes: that share the run; each trains on a share of the samples.
        is_sharded: the processes hold the weights in pieces.
        has_penalty: a KL penalty gives rows of advantage 0 a gradient too.
        num_epochs: passes over each batch, ≥ 1.
        num_minibatches: optimizer steps of each pass, ≥ 1.
        pad_token_id: fills the ends of rows.
    """

    def __init__(
        self,
        policy: Policy,
        updater: Updater,
        processes: Processes,
        *,
        is_sharded: bool,
        has_penalty: bool,
        num_epochs: int,
        num_minibatches: int,
        pad_token_id: int,
    ) -> None:
        self.policy, self.updater = policy, updater
        self._processes, self._is_sharded, self._has_penalty = processes, is_sharded, has_penalty
        self._num_epochs, self._num_minibatches, self._pad_token_id = num_epochs, num_minibatches, pad_token_id

    @property
    def version(self) -> int:
        """Optimizer steps that have changed the weights."""
        return self.updater.optimizer.num_steps

    @property
    def num_skipped_updates(self) -> int:
        """Optimizer steps given up because the gradient was not finite."""
        return self.updater.optimizer.num_skipped_steps

    def make_batch(self, samples: Sequence[Sample]) -> Batch | None:
        """This process's share of the samples as tensors on the CPU, where they stay until their micro-batch's turn.

        Args:
            samples: the same on every process; those of a chunk stay on one process together.

        Returns:
            Rows in the order of the mini-batches and in each of the samples, none where the other processes have them
            all; None without any sample.
        """
        if not samples:
            return None
        own = [
            (part[place], weight, number)
            for number, part in enumerate(_dealt(samples, self._num_minibatches))
            for place, weight in self._own(part)
        ]
        rows, weights, numbers = zip(*own, strict=True) if own else ((), (), ())
        return make_batch(rows, pad_token_id=self._pad_token_id, row_weights=weights, minibatches=numbers)

    def update(self, batch: Batch | None) -> UpdateResult:
        """`num_epochs` passes over one batch of all processes; without a batch nothing happens."""
        if batch is None:
            return UpdateResult()
        if self.updater.correction.reads_start(self._num_epochs * self._num_minibatches):
            batch = with_start(self.updater, batch, self._processes, is_sharded=self._is_sharded)
        for _ in range(self._num_epochs):
            steps = [self._step(part) for part in self._minibatches(batch)]
        stats, norms = zip(*steps, strict=True)
        whole = pass_stats(stats)
        self.updater.end_update(whole)
        return UpdateResult(stats=whole, grad_norm=sum(norms) / len(norms))

    def _step(self, batch: Batch) -> tuple[UpdateStats, float]:
        """One optimizer step, with the gradient norm before clipping."""
        stats = self.forward_backward(batch)
        return stats, self.optim_step(stats)

    def forward_backward(self, batch: Batch) -> UpdateStats:
        """Add the gradient of the whole step's loss; stats of all processes' batches."""
        batch = self.updater.with_baseline(batch)
        return forward_backward(self.updater, batch, self._processes, is_sharded=self._is_sharded)

    def optim_step(self, stats: UpdateStats | None = None) -> float:
        """One optimizer step after `forward_backward`, which gave the stats; the gradient norm before clipping."""
        if not self._is_sharded:  # else the backward pass has summed already
            sum_gradients(self.policy.model, self._processes)
        return self.updater.optim_step(stats)

    def publish(self, generator: Generator) -> str:
        """Let the generator sample from the weights as they are now; returns their digest.

        SyncError: it does not hold them. Where it can only prove that by a log-prob, sharded weights are not checked:
        no process has a whole model to compare with.
        """
        weights = self.policy.sampled_weights(whole) if self._is_sharded else self.policy.sampled_weights()
        digest = sync_weights(weights, generator, self.version)
        if "proof" in abilities_of(generator) and not self._is_sharded:
            prove_arrival(generator, self.policy.model)
        return digest

    def state(self) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, int]]:
        """Weights, optimizer tensors and optimizer counts. Every process calls it; process 0 gets whole tensors."""
        tensors, numbers = self.updater.state_dict()
        weights = self.policy.weights()
        if self._is_sharded:
            tensors, weights = collect(tensors, self._processes), collect(weights, self._processes)
        return weights, tensors, numbers

    def _minibatches(self, batch: Batch) -> Iterator[Batch]:
        """Every process has as many; some may have no rows."""
        if self._num_minibatches == 1:
            yield batch
            return
        for number in range(self._num_minibatches):
            yield batch.rows(batch.minibatch == number)

    def _own(self, samples: Sequence[Sample]) -> list[tuple[int, float]]:
        """Places of this process's samples, with their weights: whole chunks, so that every process has about as many
        tokens that go through the model."""
        places, weights = range(len(samples)), group_weights(samples)
        if self._processes.is_alone:
            return list(enumerate(weights))
        pieces = [list(piece) for _, piece in groupby(places, key=lambda i: (samples[i].group_id, samples[i].chunk))]
        costs = [self._cost([samples[i] for i in piece]) for piece in pieces]
        shares = longest_first(costs, self._processes.num_processes)
        return [(i, weights[i]) for piece in sorted(shares[self._processes.rank]) for i in pieces[piece]]

    def _cost(self, samples: Sequence[Sample]) -> int:
        """Tokens to train on: none where no row has a gradient."""
        if not self._has_penalty and not any(sample.has_advantage for sample in samples):
            return 0
        return sum(len(sample.prompt_ids) + len(sample.rollout.token_ids) for sample in samples)


def _dealt(samples: Sequence[Sample], count: int) -> list[list[Sample]]:
    """The samples of each mini-batch: whole groups, dealt out in turn; in each in the order of the samples."""
    numbers = {group_id: number for number, group_id in enumerate(dict.fromkeys(s.group_id for s in samples))}
    parts: list[list[Sample]] = [[] for _ in range(count)]
    for sample in samples:
        parts[numbers[sample.group_id] % count].append(sample)
    return parts
