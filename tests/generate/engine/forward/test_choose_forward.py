"""What is refused when an engine is made, or when rows would get too long: models that it would sample from wrongly."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from benchmarks.families.judge import small_model
from podsrl.errors import UsageError
from podsrl.generate import Engine, Request, Sampling
from podsrl.generate.engine import limits as limits_module
from podsrl.generate.engine.forward import choose as choose_module
from podsrl.generate.engine.forward.choose import choose_forward

FAR = 0.01
"""Nats: a wrong distribution is at least this far off; float32 rounding stays a thousand times below."""
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [8.0] * 4,
    "original_max_position_embeddings": 16,
}


def worst_gap(engine: Engine, lengths: Sequence[int]) -> float:
    """Largest difference of a sampled token's log-probability from a forward of its whole row alone."""
    prompts = {str(n): tuple(3 + (5 * i + n) % 90 for i in range(n)) for n in lengths}
    requests = [
        Request(name, prompt, 1, Sampling(max_new_tokens=4, stop_token_ids=())) for name, prompt in prompts.items()
    ]
    gaps = []
    for done in engine.generate(requests):
        row = (*prompts[done.group_id], *done.token_ids)
        with torch.no_grad():
            table = engine.model(torch.tensor([row]), use_cache=False).logits[0].log_softmax(-1)
        own = table[range(len(row) - 5, len(row) - 1), list(done.token_ids)]
        gaps.append(float((own - torch.tensor(done.logprobs)).abs().max()))
    return max(gaps)


@pytest.mark.parametrize("family", ["roformer", "bart", "roberta"])
def test_a_model_that_counts_positions_by_itself_is_refused_because_it_would_be_wrong(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model(family)
    with pytest.raises(UsageError, match=r"decode step on rows of different lengths is not its plain forward") as told:
        Engine(model)
    assert type(model).__name__ in str(told.value) and "docs/families.md" in str(told.value)
    assert "\n" not in str(told.value)
    monkeypatch.setattr(choose_module, "checked", lambda _model, _name, make: make())
    assert worst_gap(Engine(model), (3, 9, 14)) > FAR


@pytest.mark.parametrize("family", ["bloom", "falcon, alibi", "openai-gpt"])
def test_a_model_whose_decode_step_fails_is_refused_at_once_in_one_line(family: str) -> None:
    with pytest.raises(UsageError, match=r"its forward fails at a decode step of rows of different lengths \(") as told:
        Engine(small_model(family))
    assert "\n" not in str(told.value)


def test_a_local_window_bounds_prompt_and_completion_because_beyond_it_the_engine_would_be_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(small_model("gpt_neo"))  # its window is 16
    assert worst_gap(engine, (3, 8, 12)) < 1e-4
    with pytest.raises(UsageError, match=r"13 prompt tokens \+ max_new_tokens = 4, .*local attention's window of 16"):
        worst_gap(engine, (3, 13))
    monkeypatch.setattr(limits_module, "row_limit", lambda _: None)
    assert worst_gap(engine, (3, 20, 30)) > FAR


def test_longrope_rows_stay_within_the_original_window_because_beyond_it_all_frequencies_change(
    make_model: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(make_model("llama", rope_parameters=copy.deepcopy(LONGROPE)))
    assert worst_gap(engine, (3, 12)) < 1e-4
    with pytest.raises(UsageError, match=r"exceeds the 16 tokens from which its rotary positions \(longrope\) change"):
        worst_gap(engine, (3, 13))
    monkeypatch.setattr(limits_module, "row_limit", lambda _: None)
    assert worst_gap(engine, (3, 13)) > FAR


@pytest.mark.parametrize("family", ["qwen2", "llama", "gpt2", "opt", "mpt", "gpt_oss"])
def test_other_models_are_taken_and_sampled_rightly(family: str) -> None:
    assert worst_gap(Engine(small_model(family)), (3, 9, 12)) < 1e-4


def test_sixteen_bits_are_no_reason_to_refuse() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        for family in ("qwen2", "mixtral"):
            assert choose_forward(small_model(family).to(dtype)).name == "model"
        with pytest.raises(UsageError, match="is not its plain forward"):
            choose_forward(small_model("roformer").to(dtype))


def test_a_model_is_tried_once(make_model: Callable[..., Any]) -> None:
    model, calls = make_model("qwen2"), []
    model.register_forward_hook(lambda *_: calls.append(1))
    Engine(model, forward="model")
    first = len(calls)
    Engine(model, forward="model")
    assert first == 6 and len(calls) == first + 1  # then only one token, to learn what a layer keeps


def test_broken_weights_are_told_by_the_rollouts_and_not_here(make_model: Callable[..., Any]) -> None:
    model = make_model("qwen2")
    with torch.no_grad():
        model.model.norm.weight.fill_(torch.nan)
    (done,) = Engine(model).generate([Request("a", (5, 7), 1, Sampling(max_new_tokens=3, stop_token_ids=()))])
    assert (done.status, done.invalid_reason) == ("failed", "the model's logits were no numbers")


def test_what_a_device_raises_is_not_taken_for_the_models_fault(make_model: Callable[..., Any]) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("no memory left")

    model = make_model("qwen2")
    model.register_forward_hook(full)
    with pytest.raises(torch.OutOfMemoryError, match="no memory left"):
        Engine(model)


def test_a_very_short_window_shortens_the_trial(make_model: Callable[..., Any]) -> None:
    assert choose_forward(make_model("qwen2", max_position_embeddings=4)).name == "fast"
    sliding = {"use_sliding_window": True, "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}
    assert choose_forward(make_model("qwen2", **sliding)).name == "model"


def test_training_mode_and_gradient_checkpointing_do_not_keep_an_engine_from_being_made(
    make_model: Callable[..., Any],
) -> None:
    model = make_model("qwen2").train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.model.layers[0].eval()
    before = [module.training for module in model.modules()]
    engine = Engine(model, forward="model")
    assert [module.training for module in model.modules()] == before
    list(engine.generate([Request("a", (5, 7), 2, Sampling(max_new_tokens=3, stop_token_ids=()))]))
    assert [module.training for module in model.modules()] == before
    engine.submit([Request("b", (5, 7), 1, Sampling(max_new_tokens=1))])
    assert len(engine.poll()) == 1
    assert [module.training for module in model.modules()] == before


def test_a_precision_that_torch_cannot_name_counts_as_rounded(
    make_model: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> str:
        raise RuntimeError("a mix of the legacy and the new settings")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", fails)
    assert choose_forward(make_model("qwen2")).name == "fast"
