"""Both decode steps and prefill against the plain forward of the model over each whole row."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from podsrl.errors import UsageError
from podsrl.generate.engine.forward.base import Forward, Step
from podsrl.generate.engine.forward.choose import choose_forward
from podsrl.generate.engine.forward.fast import FastForward, rms_norm, why_not_fast
from podsrl.generate.engine.forward.model import ModelForward
from podsrl.generate.engine.forward.prefill import read_layout, read_prompts
from podsrl.generate.engine.kv_pool import KVPool
from podsrl.lib import matmul
from podsrl.lib.matmul import Linear, is_available, use

ROWS = [tuple(range(3, 3 + n)) for n in (9, 4, 12, 9)] + [(50, 7, 7, 98, 20, 3, 64, 5)]
"""Rows of different lengths; the third is the longest."""
STEPS = 3
"""The last tokens of every row are decoded one by one."""
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}


def reference(model: Any, tokens: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Logits [V] and the head's input [D] after the last token, without a cache."""
    with torch.no_grad():
        hidden = model.get_decoder()(torch.tensor([tokens]), use_cache=False).last_hidden_state[0, -1]
        return model(torch.tensor([tokens]), use_cache=False).logits[0, -1], hidden


def decode(forward: Forward, model: Any, rows: Sequence[Sequence[int]]) -> None:
    """Read all but the last tokens, decode these, and compare every step."""
    pool = KVPool(forward.layout)
    pool.reserve(len(rows), max(map(len, rows)))
    forward.read([row[:-STEPS] for row in rows], pool, range(len(rows)))
    for step in range(STEPS):
        places = [len(row) - STEPS + step for row in rows]
        tokens = torch.tensor([row[place] for row, place in zip(rows, places, strict=True)])
        is_even = len(set(places)) == 1
        positions = torch.tensor(places)
        output = forward(Step(tokens, positions, max(places) + 1, is_even, want_hidden=True), pool)
        assert output.hidden is not None
        for i, (row, place) in enumerate(zip(rows, places, strict=True)):
            logits, hidden = reference(model, row[: place + 1])
            torch.testing.assert_close(output.logits[i], logits, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(output.hidden[i], hidden, atol=1e-5, rtol=1e-5)


@pytest.fixture(params=["model", "fast"])
def forward_of(request: pytest.FixtureRequest) -> Callable[[Any], Forward]:
    return lambda model: choose_forward(model, request.param)


def test_rows_of_different_lengths_get_the_models_own_logits(
    forward_of: Callable[[Any], Forward], tiny_model: Any
) -> None:
    decode(forward_of(tiny_model), tiny_model, ROWS)


def test_rows_of_one_length_need_no_mask(forward_of: Callable[[Any], Forward], tiny_model: Any) -> None:
    decode(forward_of(tiny_model), tiny_model, [ROWS[0], ROWS[3][::-1]])


def test_eager_attention_gets_a_mask_it_can_add(make_model: Callable[..., Any]) -> None:
    model = make_model("qwen3", attn_implementation="eager")
    decode(choose_forward(model, "model"), model, ROWS)


def test_an_attention_that_takes_no_such_mask_runs_as_sdpa_and_is_set_again(make_model: Callable[..., Any]) -> None:
    model = make_model("qwen2", attn_implementation="flex_attention")
    seen = set()
    model.lm_head.register_forward_hook(lambda *_: seen.add(model.config._attn_implementation))
    forward = choose_forward(model, "model")
    pool = KVPool(forward.layout)
    pool.reserve(2, 16)
    forward.read([(4,), (5,)], pool, range(2))
    logits = forward(Step(torch.tensor([7, 8]), torch.tensor([1, 1]), 2), pool).logits
    assert seen == {"sdpa"} and model.config._attn_implementation == "flex_attention"
    torch.testing.assert_close(logits[1], reference(make_model("qwen2"), (5, 8))[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rope", [YARN, LLAMA3], ids=["yarn", "llama3"])
def test_scaled_rotary_positions_are_the_models_own(make_model: Callable[..., Any], rope: dict[str, Any]) -> None:
    model = make_model("llama", rope_parameters=rope)
    decode(choose_forward(model, "fast"), model, ROWS)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {"attention_bias": True, "mlp_bias": True}),
        ("qwen3", {"attention_bias": True, "num_key_value_heads": 4}),
        ("qwen2", {"tie_word_embeddings": True, "num_key_value_heads": 1}),
    ],
)
def test_biases_tied_embeddings_and_other_numbers_of_heads(
    make_model: Callable[..., Any], family: str, changes: dict[str, Any]
) -> None:
    model = make_model(family, **changes)
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            torch.nn.init.normal_(parameter, mean=0.5)
    decode(choose_forward(model, "fast"), model, ROWS)


@pytest.fixture
def onednn_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Let products of any size run in oneDNN; collects the shapes of the results."""
    if not is_available():
        pytest.skip("no oneDNN for this processor")
    calls: list[tuple[int, ...]] = []
    onednn = matmul.onednn

    def counted(*args: Any) -> Tensor:
        result: Tensor = onednn(*args)
        calls.append(tuple(result.shape))
        return result

    use("onednn")
    monkeypatch.setattr(matmul, "SMALL", 1)
    monkeypatch.setattr(matmul, "onednn", counted)
    return calls


def test_large_products_run_in_onednn_and_agree(
    onednn_calls: list[tuple[int, ...]], make_model: Callable[..., Any]
) -> None:
    model = make_model("qwen2")
    forward = choose_forward(model, "fast")
    onednn_calls.clear()
    decode(forward, model, ROWS)
    assert len(onednn_calls) == STEPS * (2 * 7 + 1)


@torch.inference_mode()
def test_a_linear_map_is_torchs_where_the_rule_says_so(
    onednn_calls: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, tall = torch.nn.Linear(1000, 1000), torch.randn(33, 1000)
    use("mkl")
    assert torch.equal(Linear(module)(tall), module(tall)) and not onednn_calls
    use("onednn")
    monkeypatch.setattr(matmul, "SMALL", 33_000_000)
    assert torch.equal(Linear(module)(tall[:32]), module(tall[:32])) and not onednn_calls
    Linear(module)(tall)
    assert onednn_calls == [(33, 1000)]


def test_without_onednn_a_linear_map_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podsrl.lib.matmul.is_available", lambda: False)
    monkeypatch.delattr(matmul, "onednn")
    use("onednn")
    module = torch.nn.Linear(1000, 1000)
    x = torch.randn(3, 1000)
    assert torch.equal(Linear(module)(x), module(x))


def step_of_training(model: Any) -> None:
    before = reference(model, ROWS[0])[0]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.tensor([ROWS[0]])).logits.logsumexp(-1).sum().backward()
    optimizer.step()
    assert (reference(model, ROWS[0])[0] - before).abs().max() > 0.01


def test_weights_changed_in_place_count_at_once(
    forward_of: Callable[[Any], Forward], make_model: Callable[..., Any]
) -> None:
    model = make_model("qwen3", tie_word_embeddings=True)
    forward = forward_of(model)
    decode(forward, model, ROWS)
    step_of_training(model)
    decode(forward, model, ROWS)


def test_weights_put_in_place_of_others_count_after_a_refresh(make_model: Callable[..., Any]) -> None:
    model = make_model("qwen2")
    forward = choose_forward(model, "fast")
    model.load_state_dict({name: 0.5 * x for name, x in copy.deepcopy(model.state_dict()).items()}, assign=True)
    forward.refresh()
    decode(forward, model, ROWS)


def test_a_shorter_row_is_unmoved_by_what_another_left_behind_it(
    forward_of: Callable[[Any], Forward], qwen2: Any
) -> None:
    forward = forward_of(qwen2)
    pool = KVPool(forward.layout)
    pool.reserve(2, 16)
    for tensor in (*pool.keys, *pool.values):
        tensor.fill_(1e4)
    forward.read([(5, 6), (7,)], pool, range(2))
    logits = forward(Step(torch.tensor([9, 8]), torch.tensor([2, 1]), 3), pool).logits
    torch.testing.assert_close(logits[1], reference(qwen2, (7, 8))[0], atol=1e-5, rtol=1e-5)


def test_rows_beyond_the_batch_are_not_written(forward_of: Callable[[Any], Forward], qwen2: Any) -> None:
    forward = forward_of(qwen2)
    pool = KVPool(forward.layout)
    pool.reserve(4, 16)
    forward(Step(torch.tensor([9, 8]), torch.tensor([2, 0]), 3), pool)
    assert all(tensor[2:].abs().sum() == 0 for tensor in (*pool.keys, *pool.values))
    assert all(tensor[0, :, 2].abs().sum() > 0 for tensor in (*pool.keys, *pool.values))


def test_zones_change_no_result(forward_of: Callable[[Any], Forward], tiny_model: Any) -> None:
    rows = sorted(ROWS, key=len, reverse=True)
    forward = forward_of(tiny_model)
    pool = KVPool(forward.layout)
    pool.reserve(len(rows), 16)
    forward.read([row[:-1] for row in rows], pool, range(len(rows)))
    tokens = torch.tensor([row[-1] for row in rows])
    positions = torch.tensor([len(row) - 1 for row in rows])
    for zones in [((1, 12), (4, 9)), ((3, 12), (1, 8), (1, 4))]:
        logits = forward(Step(tokens, positions, 12, zones=zones), pool).logits
        for i, row in enumerate(rows):
            torch.testing.assert_close(logits[i], reference(tiny_model, row)[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("batch_tokens", [1, 20, 8192])
def test_prefill_gives_each_prompts_own_logits_in_its_order(tiny_model: Any, batch_tokens: int) -> None:
    pool = KVPool(read_layout(tiny_model))
    pool.reserve(len(ROWS), 12)
    read = read_prompts(tiny_model, ROWS, pool, range(len(ROWS)), batch_tokens=batch_tokens)
    for i, row in enumerate(ROWS):
        logits, hidden = reference(tiny_model, row)
        torch.testing.assert_close(read.logits[i], logits, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(read.hidden[i], hidden, atol=1e-5, rtol=1e-5)


def test_prefill_reads_no_more_tokens_at_once_than_allowed(qwen2: Any) -> None:
    pool, sizes = KVPool(ModelForward(qwen2).layout), list[tuple[int, ...]]()
    pool.reserve(len(ROWS), 12)
    handle = qwen2.register_forward_pre_hook(
        lambda _, args, kwargs: sizes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    read_prompts(qwen2, ROWS, pool, range(len(ROWS)), batch_tokens=18)
    handle.remove()
    assert sizes == [(1, 12), (2, 9), (2, 8)]


@pytest.mark.parametrize(
    ("family", "changes", "reason"),
    [
        ("gpt2", {}, "GPT2LMHeadModel is none of"),
        ("qwen2", {"hidden_act": "gelu"}, "activation is 'gelu'"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 1}, "full attention"),
        ("llama", {"rope_parameters": DYNAMIC}, "'dynamic' depend"),
    ],
)
def test_what_the_fast_step_does_not_cover_runs_by_the_models_forward(
    make_model: Callable[..., Any], family: str, changes: dict[str, Any], reason: str
) -> None:
    if family == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel

        torch.manual_seed(0)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64)).eval()
    else:
        model = make_model(family, **changes)
    assert reason in str(why_not_fast(model))
    forward = choose_forward(model)
    assert forward.name == "model"
    with pytest.raises(UsageError, match="forward = 'fast' does not cover"):
        choose_forward(model, "fast")
    if family != "gpt2":
        decode(forward, model, ROWS)


def test_changed_modules_keep_a_model_from_the_fast_step(make_model: Callable[..., Any]) -> None:
    def reason(change: Callable[[Any], Any]) -> str:
        model = make_model("qwen2")
        change(model)
        return str(why_not_fast(model))

    def exchange(model: Any) -> None:
        class Adapted(torch.nn.Linear):
            pass

        model.model.layers[1].mlp.up_proj = Adapted(32, 64, bias=False)

    assert reason(lambda model: None) == "None"
    assert "up_proj is a Adapted" in reason(exchange)
    assert "q_proj has a hook" in reason(
        lambda model: model.model.layers[0].self_attn.q_proj.register_forward_hook(lambda *_: None)
    )
    assert "norm has a hook" in reason(lambda model: setattr(model.model.norm, "forward", lambda x: x))
    assert "bfloat16 on a CPU" in reason(lambda model: model.bfloat16())
    assert "different types" in reason(lambda model: model.model.norm.double())


def test_a_head_of_another_class_or_with_a_hook_is_called_as_the_module_that_it_is(
    make_model: Callable[..., Any],
) -> None:
    class Doubled(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    model, calls = make_model("qwen2"), []
    head = Doubled(model.lm_head.in_features, model.lm_head.out_features, bias=False)
    head.weight = model.lm_head.weight
    model.lm_head = head
    forward = choose_forward(model)
    assert forward.name == "fast"
    decode(forward, model, ROWS)
    model.lm_head.register_forward_hook(lambda *_: calls.append(1))
    forward.refresh()
    decode(forward, model, ROWS)
    assert len(calls) > STEPS


def test_a_model_altered_after_the_choice_is_told_at_the_next_refresh(make_model: Callable[..., Any]) -> None:
    model = make_model("qwen2")
    forward = choose_forward(model)
    model.model.norm.register_forward_hook(lambda *_: None)
    with pytest.raises(UsageError, match=r"does not cover this model: its model.norm has a hook"):
        forward.refresh()


def test_the_usual_families_run_fast_and_an_unknown_name_is_refused(tiny_model: Any) -> None:
    assert isinstance(choose_forward(tiny_model), FastForward)
    with pytest.raises(UsageError, match="forward = 'quick'"):
        choose_forward(tiny_model, "quick")  # type: ignore[arg-type]  # the point of the test


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float16, 2**-9), (torch.bfloat16, 2**-6), (torch.float32, 1e-5)]
)
def test_the_norm_of_large_numbers_does_not_overflow(dtype: torch.dtype, tolerance: float) -> None:
    """Numbers around 1,000: in float16 the sum of their squares, and even their mean square, is infinite."""
    x = (torch.randn(5, 64, generator=torch.Generator().manual_seed(0)) * 1000).to(dtype)
    weight = torch.linspace(0.5, 2, 64).to(dtype)
    exact = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()
    found = rms_norm(x, weight, torch.tensor(1e-6))
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, rtol=tolerance, atol=tolerance / 100)
