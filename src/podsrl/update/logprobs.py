"""Log-probabilities of chosen tokens without ever holding a [B, T, V] tensor of logits.

For a Hugging Face decoder-only model and right-padded rows: log p(token | tokens before it) and the entropy of that
distribution, at the target positions only. The decoder runs once; the output head then runs over `chunk_tokens`
positions at a time, and again in the backward pass, so one chunk of logits exists at once (2,048 rows of Qwen's
151,936 words are 1.2 GB in float32). On a GPU a plain head's logits go through kernels of our own (`one_pass.py`).

Padding stands to the right of every real token, so causal attention alone keeps it out: no attention mask is handed to
the model, which lets attention take its fastest kernel.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from podsrl.errors import UsageError
from podsrl.lib.torch_model import evaluating
from podsrl.update.transfer import move

CHUNK_TOKENS = 2048
"""Target positions whose logits exist at once, where nothing else is asked for."""


def token_logprobs(
    model: nn.Module,
    input_ids: Tensor,
    attention_mask: Tensor,
    target_mask: Tensor,
    *,
    temperature: float = 1.0,
    chunk_tokens: int = CHUNK_TOKENS,
) -> tuple[Tensor, Tensor]:
    """Natural log-probabilities and entropies of the target tokens.

    Args:
        model: a causal language model of transformers, or a wrapper whose forward returns `.logits`.
        input_ids: [B, T] int64, each row padded on the right; on any device, but a GPU's is waited for.
        attention_mask: [B, T] bool, true for real tokens; only checked, see the module's docstring.
        target_mask: [B, T] bool, the tokens wanted; never in column 0, which has nothing before it.
        temperature: > 0; the logits are divided by it before the softmax.
        chunk_tokens: target positions whose logits exist at once, ≥ 1.

    Returns:
        logprobs [B, T] with gradient, and entropy [B, T] in nats without; 0 outside the targets; on the model's device,
        in float32, or float64 for a float64 model.

    Raises:
        UsageError: padding that is not on the right, a target in column 0 or on padding, an option out of range.

    Example:
        >>> from transformers import Qwen2Config, Qwen2ForCausalLM
        >>> sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
        >>> config = Qwen2Config(num_attention_heads=2, num_key_value_heads=2, **sizes)
        >>> ids = torch.tensor([[1, 2, 3]])
        >>> logprobs, entropy = token_logprobs(Qwen2ForCausalLM(config), ids, ids > 0, ids == 3)
        >>> logprobs.shape, bool(logprobs[0, 2] < 0), entropy[0, 1].item()
        (torch.Size([1, 3]), True, 0.0)
    """
    _check(input_ids, attention_mask, target_mask, temperature, chunk_tokens)
    path = head_path(model)
    targets = target_mask.flatten().nonzero().squeeze(-1)  # [N] positions in the flattened [B * T]
    if len(targets) == 0:
        return no_logprobs(model, input_ids)
    wanted = input_ids.flatten()[targets]
    input_ids, targets, wanted = move((input_ids, targets, wanted), device_of(model))
    states, head = path.run(model, input_ids)
    states = states.flatten(0, 1).index_select(0, targets - 1)  # the state before a token predicts it
    chosen = score_tokens(head, states, wanted, temperature, chunk_tokens)
    return at_targets(chosen, targets, input_ids.shape)


def device_of(model: nn.Module) -> torch.device:
    """Where a model computes."""
    return next(model.parameters()).device


def no_logprobs(model: nn.Module, input_ids: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies of rows without a target: zeros."""
    dtype = exact_dtype(next(model.parameters()).dtype)
    empty = torch.zeros(input_ids.shape, dtype=dtype, device=device_of(model))
    return empty, empty.clone()


def at_targets(chosen: tuple[Tensor, Tensor], targets: Tensor, shape: torch.Size) -> tuple[Tensor, Tensor]:
    """Each [n] laid out as [B, T], with zeros outside the targets [n]."""
    places = (targets // shape[1], targets % shape[1])  # not a view of a flat tensor: sharding hooks warn of views
    logprobs, entropy = (each.new_zeros(shape).index_put(places, each) for each in chosen)
    return logprobs, entropy


def score_tokens(
    head: Callable[[Tensor], Tensor], states: Tensor, tokens: Tensor, temperature: float, chunk_tokens: int
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies [n] of tokens [n] after states [n, ·]; the backward pass makes the logits again."""
    score: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] = partial(_score, head, temperature=temperature)
    is_one_pass, is_one_chunk = why_not_one_pass(head) is None, len(tokens) <= chunk_tokens
    if is_one_pass:
        score = partial(_score_in_one_pass, head, temperature=temperature)
    if is_one_chunk:
        return score(states, tokens)
    if not is_one_pass:
        score = partial(checkpoint, score, use_reentrant=False)
    pairs = zip(torch.split(states, chunk_tokens), torch.split(tokens, chunk_tokens), strict=True)
    chunks = [score(chunk, wanted) for chunk, wanted in pairs]
    logprobs, entropies = zip(*chunks, strict=True)
    return torch.cat(logprobs), torch.cat(entropies)


def _score(
    head: Callable[[Tensor], Tensor], states: Tensor, tokens: Tensor, *, temperature: float
) -> tuple[Tensor, Tensor]:
    table = torch.log_softmax(_softened(head(states), temperature), dim=-1)  # [n, V], the only one that is kept
    with torch.no_grad():  # the clamp keeps 0 * -inf of an excluded word from being NaN
        entropy = -table.exp().mul_(table.clamp_min(-1e30)).sum(-1)
    return table.gather(-1, tokens[:, None]).squeeze(-1), entropy


def _score_in_one_pass(head: Any, states: Tensor, tokens: Tensor, *, temperature: float) -> tuple[Tensor, Tensor]:
    from podsrl.update import one_pass

    return one_pass.score(states, head.weight, tokens, temperature)


def why_not_one_pass(head: Any) -> str | None:
    """What keeps an output head from the kernels of `one_pass.py`; None: nothing. They are tried once per process."""
    if type(head) is not nn.Linear or len(list(head.parameters())) > 1 or hasattr(head.weight, "placements"):
        return "the output head is more than one matrix"
    if any(hooks for name, hooks in vars(head).items() if name.endswith("_hooks")):
        return "the output head has hooks"
    if not head.weight.is_cuda:
        return "the output head is not on a GPU"
    try:
        from podsrl.update import one_pass
    except ImportError:
        return "Triton is not installed"
    return one_pass.why_not(head.weight.device, head.weight.dtype)


def _softened(logits: Tensor, temperature: float) -> Tensor:
    exact = logits.to(exact_dtype(logits.dtype))
    return exact if temperature == 1.0 else exact / temperature


def exact_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which softmax and sums are computed: float32 at least."""
    return torch.float64 if dtype == torch.float64 else torch.float32


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadPath:
    """How a model's logits are made."""

    name: Literal["chunked", "full"]
    """chunked: decoder, then output head chunk by chunk. full: the model's own forward, logits [B, T, V] at once."""
    reason: str
    """What the probe saw."""

    def run(self, model: Any, input_ids: Tensor, **more: Any) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """States [B, T, ·] and the function that turns some of them into logits; `more` goes to the model's forward."""
        if self.name == "chunked":
            output = model.get_decoder()(input_ids=input_ids, use_cache=False, **more)
            return output.last_hidden_state, model.get_output_embeddings()
        return model(input_ids=input_ids, use_cache=False, **more).logits, lambda logits: logits


_PATHS: WeakKeyDictionary[nn.Module, HeadPath] = WeakKeyDictionary()


def head_path(model: nn.Module) -> HeadPath:
    """How `token_logprobs` gets this model's logits, found once per model by a forward pass over four tokens.

    Some models do more than `head(decoder(ids))`: they cap or scale the logits, or scale the states. For those the
    model's own full forward is used, with a warning, because their numbers would be wrong without it.
    """
    if model not in _PATHS:
        path = _probe(model)
        _PATHS[model] = path
        if path.name == "full":
            warnings.warn(f"{type(model).__name__}: all logits are held at once, because {path.reason}", stacklevel=3)
    return _PATHS[model]


def _probe(model: Any) -> HeadPath:
    """Put known, large numbers in the place of the head's output and see whether the model hands them on as they are.

    Comparing logits alone would not do: a cap at ±30 hardly bends the small logits of an untrained model.
    """
    decoder, head = (getattr(model, getter, lambda: None)() for getter in ("get_decoder", "get_output_embeddings"))
    if decoder is None or decoder in (model, head) or not isinstance(head, nn.Module):
        return HeadPath(name="full", reason="it names no decoder and output head")
    seen: list[tuple[Tensor, Tensor]] = []

    def swap(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        known = torch.linspace(-1000, 1000, output.shape[-1], device=output.device).to(output.dtype).expand_as(output)
        seen.append((inputs[0], known))
        return known

    ids = torch.arange(4, device=device_of(model))[None] % model.get_input_embeddings().num_embeddings
    with evaluating(model), torch.no_grad():
        states = decoder(input_ids=ids, use_cache=False).last_hidden_state
        handle = head.register_forward_hook(swap)
        try:
            logits = model(input_ids=ids, use_cache=False).logits
        finally:
            handle.remove()
    return _judge(states, seen, logits)


def _judge(states: Tensor, seen: list[tuple[Tensor, Tensor]], logits: Tensor) -> HeadPath:
    if len(seen) != 1 or seen[0][0].shape != states.shape:
        return HeadPath(name="full", reason="its forward does not call the output head once on the decoder's states")
    given, known = seen[0]
    if given.dtype != states.dtype or (given - states).abs().max() > 1e-3 * states.abs().max():
        return HeadPath(name="full", reason="its forward changes the decoder's states before the output head")
    if not torch.equal(known.to(logits.dtype), logits):
        return HeadPath(name="full", reason="its forward changes the logits after the output head (a cap or a scale)")
    return HeadPath(name="chunked", reason="its logits are the output head of the decoder's states")


def _check(
    input_ids: Tensor, attention_mask: Tensor, target_mask: Tensor, temperature: float, chunk_tokens: int
) -> None:
    if not temperature > 0:
        raise UsageError(f"temperature = {temperature}; want a number > 0")
    if chunk_tokens < 1:
        raise UsageError(f"logprob_chunk_tokens = {chunk_tokens}; want at least 1")
    for name, mask in (("attention_mask", attention_mask), ("target_mask", target_mask)):
        if mask.shape != input_ids.shape or mask.dtype != torch.bool:
            raise UsageError(f"{name} is {mask.dtype} {tuple(mask.shape)}; want torch.bool {tuple(input_ids.shape)}")
    before, after = attention_mask[:, :-1], attention_mask[:, 1:]
    misplaced = (after & ~before).any() | (target_mask & ~attention_mask).any() | target_mask[:, :1].any()
    if misplaced:
        raise UsageError(
            "rows must be padded on the right, and targets be real tokens after the first; found otherwise"
        )
