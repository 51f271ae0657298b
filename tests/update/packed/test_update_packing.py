"""Packed and shared rows against the model's own forward, row by row: the same log-probs and the same gradients."""

import copy
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, MistralConfig, MistralForCausalLM

from loops import each
from made import sample
from podsrl.config.schema import OptimConfig
from podsrl.errors import UsageError
from podsrl.lib.matmul import SMALL, fast_linears, has_fast_linear, is_available, use
from podsrl.update import ALGORITHMS, Batch, TokenLogprobs, Updater, make_batch
from podsrl.update.micro_batches import micro_batches, num_forwarded
from podsrl.update.packed.attention import NAME
from podsrl.update.packed.build import lay_out
from podsrl.update.packed.probe import why_not_packed
from small_models import in_float64

FAMILIES = ("qwen2", "qwen3", "llama")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
WORDS = 23


def new_model(family: str, dtype: torch.dtype = torch.float64, **changes: Any) -> Any:
    sizes = {
        "vocab_size": WORDS,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,
        "pad_token_id": 0,
    }
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **{**sizes, **changes})).eval()
    return in_float64(model) if dtype == torch.float64 else model.to(dtype)


def batch_of(groups: list[tuple[int, list[int]]], draw: random.Random) -> Batch:
    """[(tokens of a prompt, tokens of its completions)] -> random rows with random advantages."""
    rows = []
    for prompt_length, lengths in groups:
        prompt = [draw.randrange(WORDS) for _ in range(prompt_length)]
        for length in lengths:
            logprobs = tuple(-3 * draw.random() for _ in range(length))
            rows.append((prompt, [draw.randrange(WORDS) for _ in range(length)], logprobs))
    samples = [
        sample(prompt, tokens, draw.uniform(0.5, 2) * draw.choice([-1, 1]), logprobs=logprobs)
        for prompt, tokens, logprobs in rows
    ]
    return make_batch(samples, pad_token_id=0)


def random_batch(seed: int) -> Batch:
    """1 to 4 groups of 1 to 5 rows; prompts of 1 to 12 tokens, completions of 0 to 9, not all of 0."""
    draw = random.Random(seed)
    groups = [
        (draw.randint(1, 12), [draw.choice([0, 1, 1, 2, 3, 5, 9]) for _ in range(draw.randint(1, 5))])
        for _ in range(draw.randint(1, 4))
    ]
    groups[0][1][0] = 4
    return batch_of(groups, draw)


def weights_of(batch: Batch, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(batch.input_ids.shape, generator=generator, dtype=torch.float64).to(dtype)


def gradients(model: nn.Module) -> dict[str, Tensor]:
    found = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def plain(model: nn.Module, batch: Batch, temperature: float = 1.0) -> tuple[Tensor, dict[str, Tensor]]:
    """Log-probs, and gradients of their weighted sum: a row at a time, without padding, from all logits."""
    dtype = next(model.parameters()).dtype
    weights = weights_of(batch, dtype)
    logprobs = torch.zeros(batch.input_ids.shape, dtype=dtype)
    for i, length in enumerate(batch.attention_mask.sum(-1).tolist()):
        ids, mask = batch.input_ids[i, :length], batch.target_mask[i, 1:length]
        table = torch.log_softmax(model(input_ids=ids[None]).logits[0, :-1] / temperature, -1)
        found = table.gather(-1, ids[1:, None]).squeeze(-1) * mask
        logprobs[i, 1:length] = found.detach()
        (found * weights[i, 1:length]).sum().backward()
    return logprobs, gradients(model)


def ours(forward: TokenLogprobs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    with forward.active():
        logprobs, _ = forward(batch)
        (logprobs * weights_of(batch, logprobs.dtype)).sum().backward()
    return logprobs.detach(), gradients(forward.model)


def assert_equal(a: tuple[Tensor, dict[str, Tensor]], b: tuple[Tensor, dict[str, Tensor]]) -> None:
    """Largest difference by the tensor's largest value; a gradient that cancels to next to nothing, by the others'."""
    tolerance = TOLERANCE[a[0].dtype]
    assert set(a[1]) == set(b[1]) and a[1]
    largest = max(float(gradient.abs().max()) for gradient in b[1].values())
    assert largest > 0.1
    for name, x, y in [("logprobs", a[0], b[0]), *((name, a[1][name], b[1][name]) for name in a[1])]:
        scale = max(float(y.abs().max()), 0.01 * largest)
        assert float((x - y).abs().max()) <= tolerance * scale, name


LAYOUTS = {
    "padded": {"packing": "off"},
    "packed": {"packing": "on", "prefix_sharing": "off"},
    "shared": {"packing": "on", "prefix_sharing": "on"},
    "auto": {},
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("family", FAMILIES)
@each("seed", range(60), few=3)
def test_every_layout_has_the_log_probs_and_gradients_of_single_rows(
    family: str, dtype: torch.dtype, seed: int
) -> None:
    model, batch = new_model(family, dtype), random_batch(seed)
    expected = plain(model, batch, 0.8)
    for options in LAYOUTS.values():
        forward = TokenLogprobs(model, temperature=0.8, chunk_tokens=3 if seed % 2 else 1000, **options)
        assert_equal(ours(forward, batch), expected)


def test_given_tokens_are_read_in_every_layout_and_are_no_targets() -> None:
    model = new_model("qwen2")
    for seed in range(3):
        batch = random_batch(seed)
        given = batch.target_mask & (weights_of(batch, torch.float64) > 0.3)
        batch = replace(batch, target_mask=batch.target_mask & ~given, given_mask=given)
        expected = plain(model, batch, 0.8)
        for options in LAYOUTS.values():
            assert_equal(ours(TokenLogprobs(model, temperature=0.8, **options), batch), expected)


def lora(model: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model, LoraConfig(r=3, lora_alpha=6, target_modules="all-linear", init_lora_weights=False))
    return model.to(torch.float64).eval()


@pytest.mark.parametrize("layout", ["packed", "shared"])
@pytest.mark.parametrize("family", FAMILIES)
def test_lora_and_gradient_checkpointing_change_no_gradient(family: str, layout: str) -> None:
    model = lora(new_model(family))
    batch = random_batch(3)
    expected = plain(model, batch)
    assert all("lora_" in name for name in expected[1])
    assert_equal(ours(TokenLogprobs(model, **LAYOUTS[layout]), batch), expected)
    calls: list[int] = []
    layer = model.get_decoder().layers[0].mlp
    layer.register_forward_pre_hook(lambda *_: calls.append(1))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    assert_equal(ours(TokenLogprobs(model, **LAYOUTS[layout]), batch), expected)
    model.eval()
    assert len(calls) == 2  # in the forward, and again in the backward


@pytest.mark.parametrize("layout", ["packed", "shared"])
def test_a_gradient_does_not_depend_on_the_cut(layout: str) -> None:
    model = new_model("qwen2")
    batch = batch_of([(7, [3, 9, 2, 5, 5]), (1, [4]), (4, [1, 1, 8]), (7, [6, 6])], random.Random(5))
    found, counts = [], set()
    for micro_batch_tokens in (1, 12, 25, 40, 1000):
        updater = Updater(
            model,
            OptimConfig(lr=0.1, micro_batch_tokens=micro_batch_tokens, **LAYOUTS[layout]),
            loss=ALGORITHMS["dapo"].loss,
        )
        stats = updater.forward_backward(batch)
        assert stats.num_micro_batches == updater.num_micro_batches(batch)
        counts.add(stats.num_micro_batches)
        found.append((torch.tensor(stats.loss, dtype=torch.float64), gradients(model)))
    assert len(counts) == 5 and {1, 11} <= counts
    for other in found[1:]:
        assert_equal(other, found[0])


def test_unequal_prompts_and_long_segments_are_cut_into_blocks_that_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, batch = new_model("llama"), batch_of([(7, [9, 9, 2]), (3, [9, 8, 1]), (12, [4, 4])], random.Random(1))
    expected = ours(TokenLogprobs(model, **LAYOUTS["shared"]), batch)
    blocks = len(lay_out(batch, shared=True).blocks)
    monkeypatch.setattr("podsrl.update.packed.build.MASK_ELEMENTS", 1)
    monkeypatch.setattr("podsrl.update.packed.build.MIN_ROWS", 1)
    layout = lay_out(batch, shared=True)
    assert len(layout.blocks) > blocks and not any(block.keeps_mask for block in layout.blocks)
    assert_equal(ours(TokenLogprobs(model, **LAYOUTS["shared"]), batch), expected)


def test_the_places_of_a_small_batch_are_those_worked_out_by_hand() -> None:
    batch = make_batch([sample((5, 6), row) for row in [(7, 8), (9, 2, 3)]], pad_token_id=0)
    flat = batch.input_ids.flatten()
    shared, packed = lay_out(batch, shared=True), lay_out(batch, shared=False)
    assert flat[shared.source].tolist() == [5, 6, 7, 9, 2]
    assert shared.positions.tolist() == [0, 1, 2, 2, 3]
    assert shared.predicts.tolist() == [1, 2, 1, 3, 4]
    assert flat[packed.source].tolist() == [5, 6, 7, 5, 6, 9, 2]
    assert packed.positions.tolist() == [0, 1, 2, 0, 1, 2, 3]
    assert packed.predicts.tolist() == [1, 2, 4, 5, 6]
    assert (num_forwarded(batch, shared=True), num_forwarded(batch, shared=False)) == (5, 7)


def test_fillers_change_nothing() -> None:
    model, batch = new_model("qwen2"), random_batch(4)
    forward = TokenLogprobs(model, **LAYOUTS["shared"])
    expected = ours(forward, batch)
    forward._is_fast = True
    assert len(lay_out(batch, shared=True, round_up=True).source) % 32 == 0
    assert_equal(ours(forward, batch), expected)


def test_attention_that_torch_differentiates_has_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = new_model("qwen3"), random_batch(2)
    expected = [ours(TokenLogprobs(model, **LAYOUTS[layout]), batch) for layout in ("packed", "shared")]
    monkeypatch.setattr("podsrl.update.packed.attention._cpu_flash", None)
    for layout, wanted in zip(("packed", "shared"), expected, strict=True):
        assert_equal(ours(TokenLogprobs(model, **LAYOUTS[layout]), batch), wanted)


@pytest.mark.parametrize("budget", [1, 9, 14, 30, 500])
def test_shared_pieces_hold_every_row_once_and_keep_groups_whole_where_they_fit(budget: int) -> None:
    for seed in range(20):
        batch = random_batch(seed)
        pieces = micro_batches(batch, budget, "shared")
        rows = [row for piece in pieces for row in zip(piece.group.tolist(), piece.advantages.tolist(), strict=True)]
        assert sorted(rows) == sorted(zip(batch.group.tolist(), batch.advantages.tolist(), strict=True))
        for piece in pieces:
            assert piece.num_sequences == 1 or num_forwarded(piece, shared=True) <= budget
        for group in set(batch.group.tolist()):
            if num_forwarded(batch.rows(batch.group == group), shared=True) <= budget:
                assert sum(group in piece.group for piece in pieces) == 1


def test_packed_pieces_take_the_longest_rows_first_and_stay_within_the_budget() -> None:
    batch = batch_of([(3, [2, 9]), (5, [1, 3, 3])], random.Random(0))  # 4, 11, 5, 7 and 7 tokens but the last
    pieces = micro_batches(batch, 12, "packed")
    sizes = [(piece.attention_mask.sum(-1) - 1).tolist() for piece in pieces]
    assert sizes == [[11], [7], [7, 5], [4]]


def test_auto_shares_prompts_only_where_that_saves_tokens() -> None:
    forward = TokenLogprobs(new_model("qwen2"))
    assert forward.layout == "packed rows, prompts shared where that saves tokens"
    kinds = {}
    for name, groups in {"alone": [(9, [2]), (4, [3])], "little": [(2, [11, 11])], "much": [(9, [2, 3])]}.items():
        kinds[name] = forward.kind(batch_of(groups, random.Random(0)))  # 22 of 24 tokens are left of "little"
    assert kinds == {"alone": "packed", "little": "packed", "much": "shared"}


def test_a_model_that_takes_its_own_full_forward_can_be_packed_too() -> None:
    model, batch = new_model("llama"), random_batch(7)
    model.lm_head.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 0.5,))
    with pytest.warns(UserWarning, match="all logits are held at once"):
        forward = TokenLogprobs(model, **LAYOUTS["shared"])
    assert (forward.head_path.name, forward.is_packed) == ("full", True)
    assert_equal(ours(forward, batch), plain(model, batch))


def sliding() -> Any:
    sizes = {"vocab_size": WORDS, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    config = MistralConfig(**sizes, num_attention_heads=2, num_key_value_heads=1, sliding_window=4096, pad_token_id=0)
    return in_float64(MistralForCausalLM(config)).eval()


def test_a_window_longer_than_any_probe_is_seen_and_rows_are_padded() -> None:
    model, batch = sliding(), random_batch(1)
    with pytest.warns(UserWarning, match="MistralForCausalLM: rows are padded, because .*sliding"):
        forward = TokenLogprobs(model)
    assert forward.layout.startswith("padded rows, because") and not forward.is_packed
    assert_equal(ours(forward, batch), plain(model, batch))
    for option in ("packing", "prefix_sharing"):
        with pytest.raises(UsageError, match=f"optim.{option} = 'on', but MistralForCausalLM"):
            TokenLogprobs(model, **{option: "on"})


def test_a_model_that_mixes_tokens_outside_attention_is_seen() -> None:
    model = new_model("llama")
    mlp = model.model.layers[0].mlp
    mlp.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 0.1 * inputs[0].roll(1, 1),))
    assert why_not_packed(model) == "its forward gives other numbers for them"


def test_a_model_that_does_not_take_the_layout_is_seen() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = new_model("llama")

        def get_input_embeddings(self) -> nn.Module:
            return self.inner.get_input_embeddings()

        def forward(self, input_ids: Tensor, use_cache: bool) -> Any:
            return self.inner(input_ids=input_ids, use_cache=use_cache)

    with pytest.warns(UserWarning, match="rows are padded, because its forward fails on them"):
        assert not TokenLogprobs(Fixed()).is_packed


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: not enough memory"),
    ],
    ids=["out of memory", "device", "no memory"],
)
def test_an_error_of_the_device_is_no_reason_to_pad(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr("podsrl.update.packed.probe.run_packed", fail)
    with pytest.raises(type(error), match=re.escape(str(error))):
        TokenLogprobs(new_model("llama"))


def test_sharing_without_packing_is_a_contradiction() -> None:
    with pytest.raises(UsageError, match=r"prefix_sharing = 'on' with optim.packing = 'off'"):
        TokenLogprobs(new_model("llama"), packing="off", prefix_sharing="on")


def test_the_model_is_as_before_after_a_forward_and_after_a_failure() -> None:
    model = new_model("qwen2", torch.float32)
    before = model.config._attn_implementation
    forward = TokenLogprobs(model)
    forward(random_batch(0))
    assert model.config._attn_implementation == before != NAME
    with pytest.raises(RuntimeError, match="stop"), forward.active():
        assert model.config._attn_implementation == NAME
        assert "forward" in vars(model.lm_head)
        raise RuntimeError("stop")
    assert model.config._attn_implementation == before
    assert not any("forward" in vars(module) for module in model.modules() if isinstance(module, nn.Linear))


def test_attention_dropout_still_acts_in_packed_rows() -> None:
    model = new_model("qwen2", attention_dropout=0.5)
    forward, batch = TokenLogprobs(model), random_batch(0)
    model.train()
    first, second = forward(batch)[0], forward(batch)[0]
    assert not torch.equal(first, second)
    model.eval()
    assert torch.equal(forward(batch)[0], forward(batch)[0])


def test_missing_micro_batches_run_and_add_exactly_nothing() -> None:
    model, batch = new_model("qwen2"), random_batch(5)
    updater = Updater(model, OptimConfig(lr=0.1), loss=ALGORITHMS["grpo"].loss)
    stats = updater.forward_backward(batch)
    expected = gradients(model)
    calls: list[int] = []
    model.model.register_forward_hook(lambda *_: calls.append(1))
    again = updater.forward_backward(batch, min_micro_batches=4)
    assert again == stats and len(calls) == 4
    found = gradients(model)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    empty = batch.rows(torch.zeros(batch.num_sequences, dtype=torch.bool))
    nothing = updater.forward_backward(empty, num_sequences=3, num_tokens=9, min_micro_batches=2)
    assert (nothing.num_micro_batches, nothing.loss, len(calls)) == (0, 0.0, 6)
    assert all(not gradient.any() for gradient in gradients(model).values())


def test_a_reference_can_be_a_context_around_the_model_itself() -> None:
    model, batch = lora(new_model("qwen2")), random_batch(6)
    base = copy.deepcopy(model).unload()
    loss = ALGORITHMS["grpo"].loss
    results = []
    references: list[dict[str, Any]] = [{"reference": base}, {"reference_context": lambda: entered(model)}]
    for reference in references:
        updater = Updater(model, OptimConfig(lr=0.1), loss=loss, kl_beta=0.3, **reference)
        stats = updater.forward_backward(batch)
        results.append((torch.tensor(stats.loss, dtype=torch.float64), gradients(model)))
        assert stats.kl is not None and stats.kl > 1e-3
    assert_equal(*results)


@contextmanager
def entered(model: Any) -> Iterator[nn.Module]:
    with model.disable_adapter():
        yield model


def test_both_libraries_agree_on_linear_layers() -> None:
    use("onednn")
    torch.manual_seed(0)
    for size, bias in [((64, 96), True), ((96, 64), False)]:
        layer = nn.Linear(*size, bias=bias)
        x = torch.randn(2, 200, size[0], requires_grad=True)
        above = torch.randn(2, 200, size[1])
        results, has_onednn = [], has_fast_linear(layer)
        for fast in (False, True):
            with fast_linears(layer) if fast else nullcontext():
                result = layer(x)
                assert (type(result.grad_fn).__name__ == "OnednnLinearBackward") == (fast and has_onednn)
                wanted = [x, *layer.parameters()]
                results.append([result, *torch.autograd.grad(result, wanted, above)])
        for a, b in zip(*results, strict=True):
            assert float((a - b).detach().abs().max()) <= 2e-6 * float(a.detach().abs().max())
    assert "forward" not in vars(layer) and not has_fast_linear(nn.Linear(4, 4).double())


def test_a_small_product_is_torchs() -> None:
    layer, rows = nn.Linear(100, 100), SMALL // 10_000
    use("onednn")
    for x, is_onednn in ((torch.randn(rows, 100), is_available()), (torch.randn(rows - 1, 100), False)):
        with fast_linears(layer):
            assert (type(layer(x).grad_fn).__name__ == "OnednnLinearBackward") == is_onednn
