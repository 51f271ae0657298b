import warnings

import pytest
import torch
from tiny import make_model, make_rows
from torch import Tensor, nn

from podsrl.errors import UsageError
from podsrl.update import Batch
from podsrl.update.logprobs import head_path, token_logprobs


def plain_logprobs(model: nn.Module, batch: Batch, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Row by row, without padding, from all logits."""
    logprobs, entropy = torch.zeros(batch.input_ids.shape).double(), torch.zeros(batch.input_ids.shape).double()
    for i, length in enumerate(batch.attention_mask.sum(-1).tolist()):
        ids = batch.input_ids[i, :length]
        table = torch.log_softmax(model(input_ids=ids[None]).logits[0].double() / temperature, -1)
        for t in range(1, length):
            if batch.target_mask[i, t]:
                logprobs[i, t] = table[t - 1, ids[t]]
                entropy[i, t] = -(table[t - 1].exp() * table[t - 1]).sum().detach()
    return logprobs, entropy


def masks(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    return batch.input_ids, batch.attention_mask, batch.target_mask


@pytest.mark.filterwarnings("ignore:.*all logits")
@pytest.mark.parametrize("kind", ["qwen2", "llama", "gemma2"])
@pytest.mark.parametrize("chunk_tokens", [1, 7, 10_000])
def test_chunked_log_probs_equal_the_model_s_own_in_value_and_gradient(kind: str, chunk_tokens: int) -> None:
    model, batch = make_model(kind), make_rows(5)
    weights = torch.randn(batch.input_ids.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    results = []
    for compute in (
        lambda: token_logprobs(model, *masks(batch), temperature=0.7, chunk_tokens=chunk_tokens),
        lambda: plain_logprobs(model, batch, 0.7),
    ):
        logprobs, entropy = compute()
        (logprobs * weights).sum().backward()
        gradients = [p.grad for p in model.parameters()]
        model.zero_grad(set_to_none=True)
        results.append((logprobs.detach(), entropy, gradients))
    (ours, our_entropy, our_gradients), (plain, plain_entropy, plain_gradients) = results
    torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12)
    torch.testing.assert_close(our_entropy, plain_entropy, rtol=0, atol=1e-12)
    for a, b in zip(our_gradients, plain_gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
    assert sum(float(g.abs().sum()) for g in our_gradients) > 0.1
    assert not our_entropy.requires_grad


def test_the_numbers_of_a_model_with_known_logits_are_those_worked_out_by_hand() -> None:
    class Fixed(nn.Module):  # the logits of every place are 0 but for word 1, which has ln 3: p = 3/6, entropy by hand
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Parameter(torch.tensor([0.0, 3.0, 1.0, 1.0]).clamp(min=1).log())

        def forward(self, input_ids: Tensor, use_cache: bool) -> object:
            class Output:
                logits = self.words.expand(*input_ids.shape, 4)

            return Output()

    ids = torch.tensor([[0, 1, 2]])
    with pytest.warns(UserWarning, match="all logits"):
        logprobs, entropy = token_logprobs(Fixed(), ids, ids >= 0, torch.tensor([[False, True, True]]))
    assert logprobs.tolist()[0] == pytest.approx([0.0, -0.693147, -1.791759], abs=1e-6)
    # 1/2 ln 2 + 3 * 1/6 ln 6
    assert entropy.tolist()[0] == pytest.approx([0.0, 1.242453, 1.242453], abs=1e-6)


def test_no_more_than_chunk_tokens_rows_of_logits_exist_at_once() -> None:
    model, batch = make_model(), make_rows(8)
    head_path(model)
    calls: list[int] = []
    model.lm_head.register_forward_hook(lambda module, inputs, output: calls.append(output.shape[:-1].numel()))
    logprobs, _ = token_logprobs(model, *masks(batch), chunk_tokens=6)
    count = int(batch.target_mask.sum())
    assert max(calls) == 6 and sum(calls) == count and len(calls) == -(-count // 6)
    logprobs.sum().backward()
    assert sum(calls) == 2 * count  # made again, chunk by chunk, in the backward pass


def test_padding_never_leaks_into_a_row() -> None:
    model, batch = make_model(), make_rows(6)
    expected, _ = token_logprobs(model, *masks(batch))
    other = torch.where(batch.attention_mask, batch.input_ids, 9)
    changed, _ = token_logprobs(model, other, batch.attention_mask, batch.target_mask)
    assert torch.equal(changed, expected)
    wider = [nn.functional.pad(t, (0, 5)) for t in masks(batch)]
    padded, _ = token_logprobs(model, *wider)
    torch.testing.assert_close(padded[:, :-5], expected, rtol=0, atol=1e-13)


def test_models_of_sixteen_bits_give_float32() -> None:
    batch = make_rows(4)
    exact, _ = token_logprobs(make_model(), *masks(batch))
    for dtype in (torch.bfloat16, torch.float16):
        logprobs, entropy = token_logprobs(make_model(dtype=dtype), *masks(batch), chunk_tokens=5)
        assert logprobs.dtype == entropy.dtype == torch.float32
        torch.testing.assert_close(logprobs.double(), exact, rtol=0.1, atol=0.2)


def test_an_excluded_word_does_not_make_the_entropy_nan() -> None:
    model, batch = make_model(), make_rows(3)
    head = nn.Linear(8, 11).double()
    head.bias.data[0] = -torch.inf
    model.lm_head = head
    logprobs, entropy = token_logprobs(model, *masks(batch))
    assert torch.isfinite(entropy).all() and torch.isfinite(logprobs).all()
    assert (entropy[batch.target_mask] > 0).all()


def test_no_target_gives_zeros_without_running_the_model() -> None:
    model = make_model()
    head_path(model)
    model.model.forward = None
    ids = torch.ones(2, 3, dtype=torch.int64)
    logprobs, entropy = token_logprobs(model, ids, ids > 0, ids < 0)
    assert torch.equal(logprobs, torch.zeros(2, 3).double()) and torch.equal(entropy, logprobs)


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_an_ordinary_model_takes_the_chunked_path_without_a_warning(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert head_path(make_model(kind)).name == "chunked"


def test_a_soft_cap_is_seen_even_where_the_logits_are_too_small_to_bend() -> None:
    model = make_model("gemma2")
    with torch.no_grad():
        model.lm_head.weight.mul_(1e-6)
    with pytest.warns(UserWarning, match="Gemma2ForCausalLM: all logits are held at once"):
        path = head_path(model)
    assert path.name == "full" and "cap" in path.reason
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once a model
        assert head_path(model) == path


def test_a_change_of_the_states_before_the_head_is_seen() -> None:
    model = make_model()
    model.lm_head.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 0.5,))
    with pytest.warns(UserWarning, match="changes the decoder's states"):
        assert head_path(model).name == "full"


def test_the_probe_leaves_modes_hooks_and_random_numbers_as_they_were() -> None:
    model = make_model(dropout=0.5).train()
    model.model.norm.eval()
    before = torch.get_rng_state()
    head_path(model)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training and model.model.layers[0].training and not model.model.norm.training
    assert not model.lm_head._forward_hooks


def test_wrong_inputs_are_refused() -> None:
    model, ids = make_model(), torch.tensor([[1, 2, 3]])
    yes, no = ids > 0, ids < 0
    last = torch.tensor([[False, False, True]])
    for attention, target in [(~last, last), (torch.tensor([[False, True, True]]), last), (yes, ~last), (yes, ids)]:
        with pytest.raises(UsageError, match=r"padded on the right|torch\.bool"):
            token_logprobs(model, ids, attention, target)
    with pytest.raises(UsageError, match="temperature = 0"):
        token_logprobs(model, ids, yes, no, temperature=0)
    with pytest.raises(UsageError, match="chunk_tokens = 0"):
        token_logprobs(model, ids, yes, no, chunk_tokens=0)
