"""Whether a server holds the weights that it should: its log-probs beside those that a folder of weights gives.

Two programs never give the same log-probs: in bfloat16 each rounds at its own places. How large that is depends on the
model and on the tokens, so it is measured: the weights score the server's tokens in float32, and once more with all
that goes into or out of a module rounded to the server's number format. The distance of the two is what rounding makes.
(A processor without instructions for bfloat16 takes five times as long to compute in it.) The weights themselves are
rounded to that format in both, as a trainer rounds them when it sends them: that moves the log-probs of all tokens
together, and would look like a part of a step.

What is smaller than rounding shows between two folders all the same. If the server holds the weights A, its log-probs
are A's plus rounding; if it holds B, they are B's plus rounding. Least squares over all tokens says where on the way
from A to B they are: near 0 or near 1. Its error is the standard error over answers, and how far our own rounding alone
would move it, since rounding pulls many tokens the same way.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from podsrl.config.schema import ModelConfig
from podsrl.lib.callbacks import Progress, no_progress
from podsrl.lib.machine import configure_threads
from podsrl.policy import load_model
from podsrl.policy.adapter_folder import base_of
from podsrl.tools.served import Answer
from podsrl.update.logprobs import token_logprobs

Verdict = Literal["right", "other", "no adapter", "unknown", "undecided"]
MOST_ROUNDINGS = 2.0
"""A server's mean difference is at most so many times that of our own rounding.

Rounding at as many places gives 1 in the mean. Differences of independent roundings add by their squares, so 2 is a
server that rounds four times as often as the same model of transformers does.
"""
SURE = 3.0
"""So many times its error the server has to be away from the middle between two weights."""
_ROWS = 8
"""Scored at once."""


@dataclass(frozen=True, slots=True)
class Distance:
    """How far a server's log-probs are from those of one folder of weights, in nats."""

    name: str
    mean: float
    largest: float
    share_within: float
    """Of the tokens, those that differ by at most three times the root mean square of our own rounding."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where the server is on the way from the weights that it should hold (0) to others (1)."""

    name: str
    """Of the others."""
    position: float
    error: float
    """Its standard error over answers, and how far our own rounding alone moves it, added by squares: much of rounding
    is shared by many answers. Infinite where the two weights give the same log-probs."""

    @property
    def is_told_apart(self) -> bool:
        """Whether it is clear to which of the two the server is nearer."""
        return abs(self.position - 0.5) >= SURE * self.error


@dataclass(frozen=True, slots=True)
class WeightsCheck:
    """What was found."""

    verdict: Verdict
    """right: the server holds the first weights. other, no adapter: it holds `nearest`. unknown: none of these.
    undecided: it holds the first, or others that differ from them by less than shows."""
    nearest: str
    num_tokens: int
    rounding: float
    """Mean absolute difference that the server's number format makes in the log-probs of the first weights."""
    distances: tuple[Distance, ...]
    """Of all weights; the first is that of the weights that the server should hold."""
    positions: tuple[Position, ...]
    """Of all weights but the first."""


def check_weights(
    answers: Sequence[Answer],
    paths: Sequence[str],
    *,
    device: str = "cpu",
    dtype: Literal["bfloat16", "float16"] = "bfloat16",
    progress: Progress = no_progress,
) -> WeightsCheck:
    """Compare a server's answers with the log-probs that these weights give.

    Args:
        answers: of `ask_server`.
        paths: of models, as `model.path`; the first is what the server should hold. Of a folder of adapters the base
            is compared too.
        dtype: what the server computes in.

    Raises:
        UsageError: weights cannot be read.
    """
    configs, format = _candidates(paths, device), getattr(torch, dtype)
    names, bases = [name for name, _, _ in configs], [is_base for _, _, is_base in configs]
    scores: list[Tensor] = []
    total = len(configs) + 1
    for place, (name, config, _) in enumerate(configs):
        progress(len(scores), total, f"{name} scores the tokens in float32")
        model = load_model(config).eval()
        configure_threads(0, model.num_parameters())
        if base_of(config) is None:  # what adapters add to a weight may be less than its last bit, and is kept whole
            round_weights(model, format)
        scores.append(score_answers(model, answers))
        if place == 0:
            progress(len(scores), total, f"{name} scores the tokens, rounded to {dtype}")
            round_between_modules(model, format)
            scores.append(score_answers(model, answers))
        del model
        gc.collect()
    rounded = scores.pop(1)
    server = torch.tensor([value for answer in answers for value in answer.logprobs], dtype=torch.float64)
    lengths = [len(answer.token_ids) for answer in answers]
    return judge(server, lengths, dict(zip(names, scores, strict=True)), rounded, bases)


def judge(
    server: Tensor, lengths: Sequence[int], scores: dict[str, Tensor], rounded: Tensor, are_bases: Sequence[bool]
) -> WeightsCheck:
    """The verdict, of log-probs [N] of the same tokens, answer by answer.

    Args:
        server: the server's.
        lengths: tokens of each answer.
        scores: name of weights -> theirs; the first are those that the server should hold.
        rounded: those of the first weights in the server's number format.
        are_bases: of each of `scores`, whether they are the first ones without their adapter.

    Example:
        >>> new = torch.arange(64.0).double().sin() - 2
        >>> old, noise = new + 0.1 * torch.arange(64).cos(), 0.01 * torch.arange(64).mul(7).cos()
        >>> found = judge(old + noise, [16] * 4, {"new": new, "old": old}, new + noise, [False, False])
        >>> found.verdict, found.nearest, round(found.positions[0].position, 1)
        ('other', 'old', 1.0)
    """
    names, (own, *others) = list(scores), scores.values()
    rounding = (rounded - own).abs()
    within = 3 * float(rounding.square().mean().sqrt())
    distances = []
    for name, values in scores.items():
        gaps = (server - values).abs()
        distances.append(Distance(name, float(gaps.mean()), float(gaps.max()), float((gaps <= within).double().mean())))
    positions = []
    for name, values in zip(names[1:], others, strict=True):
        position, error = _position(server - own, values - own, lengths)
        pull, _ = _position(rounded - own, values - own, lengths)
        positions.append(Position(name, position, math.hypot(error, pull)))
    squares = [float((server - values).square().sum()) for values in scores.values()]
    nearest = min(range(len(names)), key=squares.__getitem__)  # the first of equals
    compared = positions if nearest == 0 else [positions[nearest - 1]]
    if distances[nearest].mean > MOST_ROUNDINGS * float(rounding.mean()):
        verdict: Verdict = "unknown"
    elif not all(each.is_told_apart for each in compared):
        verdict = "undecided"
    else:
        verdict = "right" if nearest == 0 else "no adapter" if are_bases[nearest] else "other"
    return WeightsCheck(
        verdict, names[nearest], len(server), float(rounding.mean()), tuple(distances), tuple(positions)
    )


def score_answers(model: Any, answers: Sequence[Answer]) -> Tensor:
    """Log-probs [N] of the answers' tokens under a model, answer by answer, in float64."""
    found = []
    for start in range(0, len(answers), _ROWS):
        rows = answers[start : start + _ROWS]
        length = max(len(row.prompt_ids) + len(row.token_ids) for row in rows)
        ids, real, wanted = (
            torch.zeros(len(rows), length, dtype=kind) for kind in (torch.int64, torch.bool, torch.bool)
        )
        for place, row in enumerate(rows):
            begin, end = len(row.prompt_ids), len(row.prompt_ids) + len(row.token_ids)
            ids[place, :end] = torch.tensor(row.prompt_ids + row.token_ids)
            real[place, :end], wanted[place, begin:end] = True, True
        with torch.no_grad():
            logprobs, _ = token_logprobs(model, ids, real, wanted, chunk_tokens=256)
        found.append(logprobs.cpu()[wanted].double())
    return torch.cat(found)


def round_weights(model: Any, dtype: torch.dtype) -> None:
    """Make all weights numbers of another format, and leave them in their own."""
    for weight in model.parameters():
        weight.data = _rounded(weight.data, dtype)


def round_between_modules(model: Any, dtype: torch.dtype) -> None:
    """Let a float32 model compute about as it would in another format: what goes into or out of a module is rounded.

    Within a module sums stay in float32, as in a GPU's matrix products.
    """

    def before(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return _rounded(args, dtype), {name: _rounded(value, dtype) for name, value in kwargs.items()}

    def after(module: Any, args: Any, output: Any) -> Any:
        return _rounded(output, dtype)

    for module in model.modules():
        module.register_forward_pre_hook(before, with_kwargs=True)
        module.register_forward_hook(after)


def _rounded(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype).to(value.dtype) if value.is_floating_point() else value
    return tuple(_rounded(each, dtype) for each in value) if type(value) is tuple else value


def _candidates(paths: Sequence[str], device: str) -> list[tuple[str, ModelConfig, bool]]:
    """Name, config, and whether it is the base of the first; every model once."""
    found: dict[str, tuple[ModelConfig, bool]] = {}
    for place, path in enumerate(paths):
        config = ModelConfig(path=path, device=device)
        found.setdefault(path, (config, False))
        if (base := base_of(config)) is not None:
            found.setdefault(base.path, (base, place == 0))
    return [(name, config, is_base) for name, (config, is_base) in found.items()]


def _position(gaps: Tensor, way: Tensor, lengths: Sequence[int]) -> tuple[float, float]:
    """Least squares of the gaps [N] on the way [N], with its standard error: tokens of one answer hang together."""
    whole = float(way.square().sum())
    if whole == 0.0:
        return 0.0, math.inf
    position = float((way * gaps).sum()) / whole
    ends = [0, *torch.tensor(lengths).cumsum(0).tolist()]
    pulls = way * (gaps - position * way)
    sums = [float(pulls[start:end].sum()) for start, end in pairwise(ends)]
    num = len(sums)
    spread = math.sqrt(sum(value**2 for value in sums) * num / max(num - 1, 1))
    return position, spread / whole if num > 1 else math.inf
