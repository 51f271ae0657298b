"""Forward and backward over a batch, then one optimizer step.

The gradient does not depend on how the batch is cut into micro-batches, because every piece divides by the rows and
tokens of the whole step.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from podsrl.config.schema import OptimConfig
from podsrl.errors import UsageError
from podsrl.lib.devices import avoid_cudnn_attention
from podsrl.lib.torch_model import evaluating, own_modes
from podsrl.update.average import KIND, Average
from podsrl.update.batch import Batch, empty_piece
from podsrl.update.correct import PLAIN, Correction, check_baseline, least_variance, rate_of
from podsrl.update.float32_sums import float32_sums
from podsrl.update.loss import LossSpec, check_loss, policy_loss
from podsrl.update.micro_batches import Rows, cuts, micro_batches
from podsrl.update.optimizer import Optimizer
from podsrl.update.token_logprobs import TokenLogprobs
from podsrl.update.transfer import CPU

ReferenceContext: TypeAlias = Callable[[], AbstractContextManager[nn.Module]]
"""Returns a context in which there is a model with the reference's weights, perhaps the trained one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStats:
    """One `forward_backward`. Means are over the tokens that went through the model; 0 where there was none."""

    loss: float = 0.0
    entropy: float = 0.0
    """Nats per token."""
    kl: float | None = None
    """k3 estimate of KL(policy || reference), nats per token; None without a reference."""
    clip_fraction: float = 0.0
    """Share of tokens where the bound acts."""
    logprob_gap: float = 0.0
    """Mean |log-prob now - log-prob when sampled|: how far the policy has moved, or trainer and generator differ."""
    ratio_max: float = 0.0
    """Largest importance ratio, to the proximal policy."""
    capped_fraction: float | None = None
    """Share of tokens whose weight the cap of the correction lowers; None without weights."""
    limited_fraction: float = 0.0
    """Share of tokens where the bound acts or the cap lowers, those of both once."""
    dropped_fraction: float | None = None
    """Share of tokens that the correction took the gradient of; None where it takes none."""
    log_weights: float | None = None
    """Logarithms of the sums over rows of their whole ratios to the behaviour policy, and of the squares of these; None
    where the rate is constant."""
    log_squares: float | None = None
    num_sequences: int = 0
    """Rows of the batch."""
    num_tokens: int = 0
    """Completion tokens of the batch."""
    num_trained_rows: int = 0
    """Rows that went through the model."""
    num_trained_tokens: int = 0
    """Completion tokens that went through the model."""
    num_micro_batches: int = 0


class Updater:
    """Turns batches into weight updates.

    Args:
        model: trained in place; its device and dtype are kept. Dropout that it has is active in the update, and was not
            when its rollouts were sampled, so ratios differ from 1 from the first step on: set it to 0 first, as a
            `Trainer` does (`podsrl.policy.dropout.turn_off_dropout(model)`).
        options: see `podsrl.config.schema.OptimConfig`.
        loss: a point in the space of losses, such as `ALGORITHMS["grpo"].loss`.
        correction: for tokens that other weights drew; by default none.
        kl_beta: weight of the KL penalty to the reference, ≥ 0.
        reference: the frozen model of the penalty; by default a copy of `model` as it is now. On resuming, pass the
            starting model: a copy would be of the trained one.
        reference_context: instead of `reference`, a function that returns a context in which there is one, such as
            the trained model with its adapters off. It is entered once per micro-batch.
        temperature: softmax temperature, the one the rollouts were sampled with.
        max_length: token limit of a completion; needed by a loss with aggregate = "constant".
        forward: the forward of `model`, already made (and perhaps sharded), which then decides about temperature,
            chunks, packing and sharing; by default a new one.

    Raises:
        UsageError: a loss for which `policy_loss` raises one, a reference without kl_beta, or a model with weights in
            float16, frozen or not: gradients that pass through it are rounded away.

    Example:
        >>> from transformers import Qwen2Config, Qwen2ForCausalLM
        >>> from podsrl.config.schema import OptimConfig
        >>> from podsrl.types import Rollout, Sample
        >>> from podsrl.update import ALGORITHMS, make_batch
        >>> sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
        >>> model = Qwen2ForCausalLM(Qwen2Config(num_attention_heads=2, num_key_value_heads=2, **sizes))
        >>> updater = Updater(model, OptimConfig(lr=1e-3), loss=ALGORITHMS["grpo"].loss)
        >>> done = Rollout(
        ...     group_id="a", index=0, token_ids=(3, 4), logprobs=(-2.0, -2.0), finish_reason="stop", version=0
        ... )
        >>> sample = Sample(group_id="a", prompt_ids=(1, 2), rollout=done, advantage=1.0)
        >>> stats = updater.forward_backward(make_batch([sample], pad_token_id=0))
        >>> stats.num_trained_tokens, updater.optim_step() > 0
        (2, True)
    """

    def __init__(
        self,
        model: nn.Module,
        options: OptimConfig,
        *,
        loss: LossSpec,
        correction: Correction = PLAIN,
        kl_beta: float = 0.0,
        reference: nn.Module | None = None,
        reference_context: ReferenceContext | None = None,
        temperature: float = 1.0,
        max_length: int | None = None,
        forward: TokenLogprobs | None = None,
    ) -> None:
        check_loss(loss, kl_beta=kl_beta, max_length=max_length)
        check_baseline(correction.baseline, clip=loss.clip, kl_beta=kl_beta)
        _check_dtype(model)
        self.model = model
        self._forward = forward or TokenLogprobs(
            model,
            temperature=temperature,
            chunk_tokens=options.logprob_chunk_tokens,
            packing=options.packing,
            prefix_sharing=options.prefix_sharing,
        )
        self._reference = _reference_forward(self._forward, kl_beta, reference, reference_context)
        self._loss = {**loss.arguments(), "kl_beta": kl_beta, "max_length": max_length}
        self.correction = correction
        self.average = Average(model, correction.window) if correction.has_average else None
        self._micro_batch_tokens = options.micro_batch_tokens
        self._device = next(model.parameters()).device
        self._dtype = torch.promote_types(next(model.parameters()).dtype, torch.float32)
        avoid_cudnn_attention(self._device)
        self.optimizer = Optimizer(model, options)

    @property
    def layout(self) -> str:
        """How rows lie in a micro-batch, and why, in one line."""
        return self._forward.layout

    def num_micro_batches(self, batch: Batch) -> int:
        """Forwards and backwards that `forward_backward` takes for this batch."""
        return len(self._pieces(batch)[1])

    def forward_backward(
        self,
        batch: Batch,
        *,
        num_sequences: float | None = None,
        num_tokens: float | None = None,
        min_micro_batches: int = 0,
    ) -> UpdateStats:
        """Add the gradient of the loss over `batch` to the model's gradients.

        Rows whose gradient is exactly 0 do not run: those without a completion token and, without a KL penalty, those
        of advantage 0. They still count as rows and tokens of the step. Dropout is active during this call only, and
        draws from torch's global generator.

        Args:
            batch: on any device, best on the CPU: each micro-batch moves to the model's device before its forward.
            num_sequences: rows of the whole optimizer step, where several calls or processes share it (default: those
                of `batch`).
            num_tokens: completion tokens of the whole optimizer step, likewise.
            min_micro_batches: least number of forwards and backwards; those without rows add a gradient of exactly 0.
                Processes that share weights must all run the same number.

        Returns:
            What happened. Where no row has a gradient, nothing ran and `num_trained_rows` is 0.
        """
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        kind, pieces = self._pieces(batch)
        rows = batch.num_sequences if num_sequences is None else num_sequences
        tokens = batch.num_tokens if num_tokens is None else num_tokens
        adds_up = max(len(pieces), min_micro_batches) > 1
        with _training(self.model), self._forward.active(), float32_sums(self.model) if adds_up else nullcontext():
            parts = [self._micro_step(piece, kind, rows, tokens) for piece in pieces]
            for _ in range(min_micro_batches - len(pieces)):
                self._empty_step(kind)
        return _summary(batch, pieces, parts, self._reference is not None, self.correction)

    @torch.no_grad()
    def with_start(self, batch: Batch, *, min_micro_batches: int = 0) -> Batch:
        """The batch with its tokens' log-probs under the weights as they are, or under their average, for a correction
        around them.

        It runs the rows that have a gradient, without dropout; the other rows get zeros.

        Args:
            batch: all that the step's update trains on.
            min_micro_batches: as in `forward_backward`.
        """
        rows, kind = self._with_gradient(batch.to(CPU))
        found = torch.zeros(batch.input_ids.shape, dtype=self._dtype)
        places = rows.nonzero().squeeze(-1)
        own = batch.to(CPU).rows(rows)
        pieces = cuts(own, self._micro_batch_tokens, kind)
        averaged = self.average.applied() if self.average is not None else nullcontext()
        with averaged, evaluating(self.model), self._forward.active():
            for index in pieces:
                logprobs = self._forward(own.rows(index), kind)[0].to(CPU)
                found[places[index], : logprobs.shape[1]] = logprobs
            for _ in range(min_micro_batches - len(pieces)):
                self._forward(empty_piece(), kind)
        return replace(batch, start_logprobs=found.to(batch.input_ids.device))

    def with_baseline(self, batch: Batch) -> Batch:
        """The batch with the advantages that `correction.baseline` makes of its own.

        It runs the rows of the prompts with an advantage one by one, without dropout, and changes no gradient.

        Args:
            batch: all rows of each of its prompts.

        Raises:
            UsageError: it has advantages per token.
        """
        if self.correction.baseline == "none":
            return batch
        own = batch.to(CPU)
        if own.advantages.ndim == 2:
            raise UsageError(
                "correct.baseline = 'off_policy' is for one advantage per row, and these are per token: leave out what "
                "gives each token its own, such as a shape of systems"
            )
        norms = torch.zeros(own.num_sequences, dtype=torch.float64)
        taught = torch.isin(own.group, own.group[own.has_advantage()])
        weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        kept = [weight.grad for weight in weights]
        unit, kind = replace(own, advantages=torch.ones_like(own.advantages)), self._forward.kind(own)
        with evaluating(self.model), self._forward.active():
            for row in (taught & own.target_mask.any(-1)).nonzero().flatten().tolist():
                for weight in weights:
                    weight.grad = None
                self._micro_step(unit.rows(torch.tensor([row])), kind, own.num_sequences, own.num_tokens)
                norms[row] = get_total_norm([weight.grad for weight in weights if weight.grad is not None]).double()
        for weight, grad in zip(weights, kept, strict=True):
            weight.grad = grad
        advantages = least_variance(own.advantages, norms, own.group)
        return replace(batch, advantages=advantages.to(batch.advantages.device))

    def optim_step(self, stats: UpdateStats | None = None) -> float:
        """Apply the gradients; see `Optimizer.step` for what it returns, and when it changes nothing.

        Args:
            stats: of all that the gradients were made of; a correction with `rate = "effective"` reads them.

        Raises:
            UsageError: it reads them, and there are none.
        """
        before, rate = self.optimizer.num_steps, 1.0
        if self.correction.rate == "effective":
            if stats is None:
                raise UsageError("correct.rate = 'effective': wanted optim_step(stats), with those of forward_backward")
            if stats.log_weights is not None and stats.log_squares is not None:
                rate = rate_of(stats.log_weights, stats.log_squares, stats.num_trained_rows)
        norm = self.optimizer.step(rate)
        if self.average is not None and self.optimizer.num_steps > before:
            self.average.add()
        return norm

    def end_update(self, stats: UpdateStats) -> None:
        """After the last optimizer step of an update: begin a new average if too few tokens kept their gradient."""
        survived = 1 - stats.limited_fraction
        if self.average is not None and stats.num_trained_tokens and survived < self.correction.reset:
            self.average.reset()

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, int]]:
        """What an exact continuation needs besides the weights: of the optimizer, and of an average."""
        tensors, numbers = self.optimizer.state_dict()
        more, counts = self.average.state_dict() if self.average is not None else ({}, {})
        return tensors | more, numbers | counts

    def load_state_dict(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, int]) -> None:
        """Take over what `state_dict` gave; errors as of `Optimizer` and `Average`."""
        own = {name: value for name, value in tensors.items() if name.startswith(f"{KIND}/")}
        if self.average is not None:
            self.average.load_state_dict(own, numbers)
        self.optimizer.load_state_dict({name: tensors[name] for name in tensors.keys() - own.keys()}, numbers)

    def peak_bytes(self) -> int | None:
        """Peak GPU memory in bytes since the last `forward_backward` began; None on a CPU."""
        return torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else None

    def _pieces(self, batch: Batch) -> tuple[Rows, list[Batch]]:
        """How rows lie, and the micro-batches."""
        batch = batch.to(CPU)
        rows, kind = self._with_gradient(batch)
        return kind, micro_batches(batch if rows.all() else batch.rows(rows), self._micro_batch_tokens, kind)

    def _with_gradient(self, batch: Batch) -> tuple[Tensor, Rows]:
        """[B] bool, the rows that go through the model, and how they lie."""
        has_gradient = batch.target_mask.any(-1)
        if self._reference is None:
            has_gradient &= batch.has_advantage()
        return has_gradient, self._forward.kind(batch if has_gradient.all() else batch.rows(has_gradient))

    def _micro_step(self, piece: Batch, kind: Rows, rows: float, tokens: float) -> Tensor:
        """Add one micro-batch's gradient. Returns its `_FIGURES`, still on the device: the host does not wait."""
        reference = self._reference_logprobs(piece, kind)
        logprobs, entropy = self._forward(piece, kind)
        piece = piece.to(self._device)
        proximal = self.correction.proximal_of(logprobs, piece)
        found = self.correction.weights_of(logprobs, proximal, piece)
        log_weights, log_squares = self.correction.row_sums(logprobs, piece)
        loss, stats = policy_loss(
            logprobs,
            piece.behaviour_logprobs,
            piece.advantages,
            piece.target_mask,
            reference_logprobs=reference,
            num_sequences=rows,
            num_tokens=tokens,
            row_weights=piece.row_weights,
            proximal_logprobs=proximal,
            token_weights=found.weights,
            row_bounds=piece.bounds,
            **self._loss,
        )
        torch.autograd.backward(loss)
        figures: dict[str, Any] = {"loss": loss.detach(), "entropy": entropy.sum(), **stats}
        figures |= {"capped": found.is_capped.sum(), "dropped": found.num_dropped}
        figures |= {"limited": (found.is_capped | stats["is_clipped"]).sum()}
        figures |= {"log_weights": log_weights, "log_squares": log_squares}
        return torch.stack([figures[name] for name in _FIGURES])

    def _empty_step(self, kind: Rows) -> None:
        """The same calls as a micro-batch's, over two tokens, with a gradient of exactly 0."""
        piece = empty_piece()
        self._reference_logprobs(piece, kind)
        logprobs, _ = self._forward(piece, kind)
        torch.autograd.backward(logprobs.sum() * 0.0)

    def _reference_logprobs(self, piece: Batch, kind: Rows) -> Tensor | None:
        if self._reference is None:
            return None
        with self._reference() as forward, torch.no_grad():
            logprobs: Tensor = forward(piece, kind if forward.is_packed else "padded")[0]
        return logprobs


_FIGURES = (
    *("loss", "entropy", "clipped", "kl", "logprob_gap", "ratio_max"),
    *("capped", "limited", "dropped", "log_weights", "log_squares"),
)
"""What each micro-batch leaves on the device."""
_LOG_SUMS = ("log_weights", "log_squares")


def _summary(
    batch: Batch, pieces: list[Batch], parts: list[Tensor], has_reference: bool, correction: Correction
) -> UpdateStats:
    """What happened, by one copy from the device."""
    trained_tokens = sum(piece.num_tokens for piece in pieces)
    columns = torch.stack(parts).cpu().unbind(1) if parts else [torch.zeros(1)] * len(_FIGURES)
    values = dict(zip(_FIGURES, columns, strict=True))

    def total(name: str) -> float:
        return float(sum(values[name].unbind()))

    def mean(name: str) -> float:
        return total(name) / max(trained_tokens, 1)

    return UpdateStats(
        loss=total("loss"),
        entropy=mean("entropy"),
        kl=mean("kl") if has_reference else None,
        clip_fraction=mean("clipped"),
        logprob_gap=mean("logprob_gap"),
        ratio_max=float(values["ratio_max"].max()),
        capped_fraction=mean("capped") if correction.weight != "none" else None,
        limited_fraction=mean("limited"),
        dropped_fraction=mean("dropped") if correction.drop != "none" else None,
        **{name: float(values[name].logsumexp(0)) for name in _LOG_SUMS if parts and correction.rate != "constant"},
        num_sequences=batch.num_sequences,
        num_tokens=batch.num_tokens,
        num_trained_rows=sum(piece.num_sequences for piece in pieces),
        num_trained_tokens=trained_tokens,
        num_micro_batches=len(pieces),
    )


def _check_dtype(model: nn.Module) -> None:
    half = next((name for name, weight in model.named_parameters() if weight.dtype == torch.float16), None)
    if half is not None:
        raise UsageError(
            f"{half} is float16, in which a step's gradients are rounded away under 6e-8: load the model in bfloat16 "
            "or float32"
        )


def _reference_forward(
    forward: TokenLogprobs, kl_beta: float, model: nn.Module | None, context: ReferenceContext | None
) -> Callable[[], AbstractContextManager[TokenLogprobs]] | None:
    """What gives the reference's forward, for the time of one micro-batch; None without a penalty."""
    if model is not None and context is not None:
        raise UsageError("reference and reference_context are both given; pass one of them")
    if model is forward.model:
        raise UsageError(
            "the reference is the trained model itself; pass a second copy, or leave it out to have one made"
        )
    if kl_beta == 0:
        if model is not None or context is not None:
            raise UsageError("a reference model has no effect with kl_beta = 0; leave it out, or set kl_beta > 0")
        return None
    if context is not None:
        return partial(_entered, forward, context)
    model = copy.deepcopy(forward.model) if model is None else model
    frozen = forward.of(model.eval().requires_grad_(False))
    return lambda: nullcontext(frozen)


@contextmanager
def _entered(forward: TokenLogprobs, reference: ReferenceContext) -> Iterator[TokenLogprobs]:
    """The forward of the model that a context gives: most often the trained one, which then leaves dropout out."""
    with reference() as model, evaluating(model):
        yield forward if model is forward.model else forward.of(model)


@contextmanager
def _training(model: nn.Module) -> Iterator[None]:
    """Training mode, and back to each module's own afterwards; a model that is in it keeps the modules it froze."""
    if model.training:
        yield
        return
    with own_modes(model):
        model.train()
        yield
