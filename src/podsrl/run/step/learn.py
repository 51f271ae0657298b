"""The learner: samples become new weights, and the generator gets them. It knows no tasks and no rewards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from torch import Tensor

from podsrl.generate import Generator, abilities_of
from podsrl.lib.balance import longest_first
from podsrl.policy import Policy
from podsrl.scale.gradients import sum_gradients
from podsrl.scale.processes import Processes
from podsrl.scale.shard import collect, whole
from podsrl.scale.update import forward_backward
from podsrl.sync import prove_arrival, sync_weights
from podsrl.types import Sample
from podsrl.update import Batch, Updater, UpdateStats, group_weights, make_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """What the last epoch of an update did; zeros in a step without samples."""

    stats: UpdateStats = field(default_factory=UpdateStats)
    grad_norm: float = 0.0
    """Before clipping."""


class Learner:
    """Trains the policy.

    Args:
        policy: its weights change.
        updater: of the policy's model.
        processes: that share the run; each trains on a share of the samples.
        is_sharded: the processes hold the weights in pieces.
        has_penalty: a KL penalty gives rows of advantage 0 a gradient too.
        num_epochs: optimizer steps on each batch, ≥ 1.
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
        pad_token_id: int,
    ) -> None:
        self.policy, self.updater = policy, updater
        self._processes, self._is_sharded, self._has_penalty = processes, is_sharded, has_penalty
        self._num_epochs, self._pad_token_id = num_epochs, pad_token_id

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
            Rows in the order of the samples, none where the other processes have them all; None without any sample.
        """
        if not samples:
            return None
        own, weights = self._own(samples), group_weights(samples)
        return make_batch(
            [samples[place] for place in own],
            pad_token_id=self._pad_token_id,
            row_weights=[weights[place] for place in own],
        )

    def update(self, batch: Batch | None) -> UpdateResult:
        """`num_epochs` optimizer steps on one batch of all processes; without a batch nothing happens."""
        if batch is None:
            return UpdateResult()
        for _ in range(self._num_epochs):
            stats = self.forward_backward(batch)
            grad_norm = self.optim_step()
        return UpdateResult(stats=stats, grad_norm=grad_norm)

    def forward_backward(self, batch: Batch) -> UpdateStats:
        """Add the gradient of the whole step's loss; stats of all processes' batches."""
        return forward_backward(self.updater, batch, self._processes, is_sharded=self._is_sharded)

    def optim_step(self) -> float:
        """One optimizer step; returns the gradient norm before clipping."""
        if not self._is_sharded:  # else the backward pass has summed already
            sum_gradients(self.policy.model, self._processes)
        return self.updater.optim_step()

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
        tensors, numbers = self.updater.optimizer.state_dict()
        weights = self.policy.weights()
        if self._is_sharded:
            tensors, weights = collect(tensors, self._processes), collect(weights, self._processes)
        return weights, tensors, numbers

    def _own(self, samples: Sequence[Sample]) -> list[int]:
        """Places of this process's samples: whole chunks, so that every process has about as many tokens that go
        through the model."""
        places = range(len(samples))
        if self._processes.is_alone:
            return list(places)
        pieces = [list(piece) for _, piece in groupby(places, key=lambda i: (samples[i].group_id, samples[i].chunk))]
        costs = [self._cost([samples[i] for i in piece]) for piece in pieces]
        shares = longest_first(costs, self._processes.num_processes, spread_ties=True)
        return [i for piece in sorted(shares[self._processes.rank]) for i in pieces[piece]]

    def _cost(self, samples: Sequence[Sample]) -> int:
        """Tokens to train on: none where no row has a gradient."""
        if not self._has_penalty and not any(sample.has_advantage for sample in samples):
            return 0
        return sum(len(sample.prompt_ids) + len(sample.completion.token_ids) for sample in samples)
