"""The update at a service: the verbs of `podsrl.update.Updater`, and a policy whose weights are elsewhere."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from podsrl.config.schema import OptimConfig
from podsrl.errors import CheckpointError, UsageError
from podsrl.integrations.tinker.datums import loss_name, to_logprobs, to_rows, token_shares
from podsrl.integrations.tinker.service import Service
from podsrl.policy.policy import Full, Policy, Tokenizer, Write, as_it_is, copy_into
from podsrl.update import Batch, LossSpec, UpdateStats, policy_loss
from podsrl.update.correct import PLAIN, Correction
from podsrl.update.optimizer import rate_factor

STATE = "service.json"
"""In a checkpoint's model folder: where the service keeps the weights."""
_MEASURED = ("loss", "entropy", "clip_fraction", "limited_fraction", "logprob_gap", "ratio_max")
"""Of `UpdateStats`: NaN of what a service does not say, as of the entropy."""


class TinkerPolicy(Policy):
    """A model of which this process has the outline alone: a service has its adapters.

    Args:
        model: the outline, on torch's meta device.
        tokenizer: of the model.
        service: has the weights.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, service: Service) -> None:
        super().__init__(model, tokenizer)
        self._service = service

    @property
    def description(self) -> str:
        return f"adapters of rank {self._service.rank} are trained at {self._service.url}"

    def sampled_weights(self, full: Full = as_it_is) -> Iterator[tuple[str, Tensor]]:
        """None here."""
        return iter(())

    def weights(self) -> dict[str, Tensor]:
        """None here."""
        return {}

    def save(self, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
        """Let the service keep its state under the checkpoint's name, and write where."""
        name = folder.parent.name.removeprefix(".").removesuffix(".tmp")
        state = {"path": self._service.save(f"podsrl-{name}"), "base_model": self._service.base_model}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / STATE).write_text(json.dumps(state, indent=1))
        self.tokenizer.save_pretrained(folder)

    def load(self, folder: Path, write: Write = copy_into) -> None:
        """Go on from what a checkpoint names.

        Raises:
            CheckpointError: it names nothing.
            LostGenerator: the service does not have it any more.
        """
        try:
            path = json.loads((folder / STATE).read_text())["path"]
        except (OSError, ValueError, KeyError, TypeError):
            raise CheckpointError(f"{folder / STATE} does not say where the service keeps the weights") from None
        self._service.load(path)


class Steps:
    """Counts of the optimizer at the service, as `podsrl.update.Optimizer` has them."""

    def __init__(self, options: OptimConfig) -> None:
        self._options = options
        self.num_steps = 0
        self.num_skipped_steps = 0
        """The service does not say."""

    @property
    def lr(self) -> float:
        """Learning rate of the last step; before the first, that of the first."""
        options = self._options
        return options.lr * rate_factor(max(1, self.num_steps), options.warmup_steps, options.schedule_steps)


class TinkerUpdater:
    """Sends kept rollouts to a service; as `podsrl.update.Updater`, of which it has the verbs that a learner calls.

    Args:
        service: trains.
        options: of AdamW; what is about this process's memory is not read.
        loss: with a ratio per token.
        max_length: token limit of a completion.
    """

    correction: Correction = PLAIN

    def __init__(self, service: Service, options: OptimConfig, *, loss: LossSpec, max_length: int) -> None:
        self._service, self._options, self._loss, self._max_length = service, options, loss, max_length
        self._name, self._bounds = loss_name(loss)
        self.optimizer = Steps(options)
        self._has_gradients = False

    @property
    def layout(self) -> str:
        """What computes the update, in one line."""
        return f"loss {self._name!r} of {self._service.url}"

    def forward_backward(self, batch: Batch, **of_processes: Any) -> UpdateStats:
        """Add the gradient of the loss over a batch. Rows whose gradient is 0 are not sent, and count as rows.

        The statistics are those of the log-probs that the service gives; NaN of what it does not say, as of the
        entropy.
        """
        if batch.bounds is not None:
            raise UsageError("rollouts.generator = 'tinker' has one bound for all rows: leave out what bounds each row")
        sent = batch.rows(batch.target_mask.any(-1) & batch.has_advantage())
        stats = UpdateStats(num_sequences=batch.num_sequences, num_tokens=batch.num_tokens)
        if not sent.num_sequences:
            return stats
        counts = {"rows": batch.num_sequences, "tokens": batch.num_tokens}
        shares = token_shares(sent, self._loss, max_length=self._max_length, **counts)
        found = self._service.forward_backward(to_rows(sent, shares), self._name, self._bounds)
        self._has_gradients = True
        measured: dict[str, Any] = dict.fromkeys(_MEASURED, math.nan)
        if len(found) == sent.num_sequences:
            measured |= self._measured(to_logprobs(found, sent), sent, batch)
        return replace(
            stats,
            num_trained_rows=sent.num_sequences,
            num_trained_tokens=sent.num_tokens,
            num_micro_batches=1,
            **measured,
        )

    @torch.no_grad()
    def _measured(self, logprobs: Tensor, sent: Batch, batch: Batch) -> dict[str, Any]:
        """The loss and how far the policy has moved, by the service's log-probs."""
        loss, of_tokens = policy_loss(
            logprobs,
            sent.behaviour_logprobs,
            sent.advantages,
            sent.target_mask,
            num_sequences=batch.num_sequences,
            num_tokens=batch.num_tokens,
            row_weights=sent.row_weights,
            max_length=self._max_length,
            **self._loss.arguments(),
        )
        clipped = float(of_tokens["clipped"]) / sent.num_tokens
        return {
            "loss": float(loss),
            "clip_fraction": clipped,
            "limited_fraction": clipped,
            "logprob_gap": float(of_tokens["logprob_gap"]) / sent.num_tokens,
            "ratio_max": float(of_tokens["ratio_max"]),
        }

    def with_baseline(self, batch: Batch) -> Batch:
        """As it is."""
        return batch

    def optim_step(self, stats: UpdateStats | None = None) -> float:
        """One step of AdamW at the service; nothing without gradients. Returns their norm, if the service says it."""
        if not self._has_gradients:
            return 0.0
        options, number = self._options, self.optimizer.num_steps + 1
        metrics = self._service.optim_step(
            learning_rate=options.lr * rate_factor(number, options.warmup_steps, options.schedule_steps),
            beta1=options.betas[0],
            beta2=options.betas[1],
            eps=options.eps,
            weight_decay=options.weight_decay,
            grad_clip_norm=options.max_grad_norm,
        )
        self._has_gradients, self.optimizer.num_steps = False, number
        return next((value for name, value in metrics.items() if "grad_norm" in name), math.nan)

    def end_update(self, stats: UpdateStats) -> None:
        """Nothing is left to do."""

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, int]]:
        """Counts; the service keeps the moments with the weights."""
        return {}, {"num_steps": self.optimizer.num_steps, "num_skipped_steps": 0}

    def load_state_dict(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, int]) -> None:
        """Take over what `state_dict` gave."""
        self.optimizer.num_steps, self._has_gradients = numbers["num_steps"], False

    def peak_bytes(self) -> int | None:
        """None: no GPU of this machine."""
        return None
