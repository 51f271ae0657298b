"""Models and tokenizers are checked where they are named: each message says which path, what is wrong, and the cure."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from policies import edit
from safetensors.torch import load_file, save_file

from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError
from podsrl.policy import load_model, load_tokenizer, model_folder, quiet_bars

# --- sound folders ---


def test_a_model_folder_loads_in_the_wanted_format_on_the_cpu(tiny_model_folder: Path) -> None:
    for dtype in ("float32", "bfloat16"):
        model = load_model(ModelConfig(path=str(tiny_model_folder), dtype=dtype, device="cpu"))
        assert {parameter.dtype for parameter in model.parameters()} == {getattr(torch, dtype)}
        assert model.device == torch.device("cpu")
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()


def test_a_tokenizer_knows_its_end_and_its_padding(tiny_model_folder: Path) -> None:
    tokenizer = load_tokenizer(ModelConfig(path=str(tiny_model_folder)))
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<eos>", "<pad>")
    assert tokenizer.decode(tokenizer.encode("1 + 2 =\n")) == "1 + 2 =\n"


def test_without_a_padding_token_the_end_token_pads(folder: Path) -> None:
    edit(folder / "tokenizer_config.json", lambda content: content.update(pad_token=None))
    assert load_tokenizer(ModelConfig(path=str(folder))).pad_token_id == 1


# --- folders that are none ---


@pytest.mark.parametrize("path", ["./nowhere", "/nowhere/model", "runs/a/model"])
def test_a_path_that_is_no_folder_is_not_looked_for_on_the_hub(path: str) -> None:
    with pytest.raises(UsageError, match=f"model.path = '{path}': no such folder"):
        load_tokenizer(ModelConfig(path=path))


def test_the_builtin_model_is_a_folder_of_this_package_and_other_paths_stay_as_they_are() -> None:
    assert (Path(model_folder("builtin:arithmetic")) / "config.json").is_file()
    assert model_folder("Qwen/Qwen2.5-3B") == "Qwen/Qwen2.5-3B"


def test_weights_without_a_place_in_the_model_are_named(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"model.extra.weight": torch.zeros(2)}, folder / "model.safetensors", {"format": "pt"})
    with pytest.warns(UserWarning, match=r"1 of its weights have no place in the model .* \(model.extra.weight …\)"):
        load_model(ModelConfig(path=str(folder)))


def test_the_library_says_nothing_of_its_own(folder: Path) -> None:
    edit(folder / "config.json", lambda content: content.update(intermediate_size=48))
    said: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = said.append  # type: ignore[method-assign]  # the shortest way to listen
    logging.getLogger("transformers").addHandler(handler)
    try:
        with pytest.raises(UsageError):
            load_model(ModelConfig(path=str(folder)))
    finally:
        logging.getLogger("transformers").removeHandler(handler)
    assert said == []


@pytest.mark.parametrize("device", ["gpu", "meta", "cpu:x", "cuda:-1", "CPU", ""])
def test_an_unknown_device_is_refused_before_the_weights_are_read(device: str) -> None:
    with pytest.raises(UsageError, match=f"model.device = '{device}': wanted auto, cpu, cuda or cuda:N"):
        load_model(ModelConfig(path="/nowhere", device=device))


def test_a_cuda_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for count, device in [(0, "cuda"), (0, "cuda:0"), (2, "cuda:2"), (2, "cuda:200"), (1, "cuda:999999999999")]:
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        with pytest.raises(UsageError, match=f"model.device = '{device}': torch sees {count} CUDA devices here"):
            load_model(ModelConfig(path="/nowhere", device=device))


# --- what is shown ---


@pytest.mark.parametrize("is_enabled", [True, False])
def test_loading_bars_are_silenced_inside_and_are_as_before_afterwards(is_enabled: bool) -> None:
    from transformers.utils import logging

    before = logging.is_progress_bar_enabled()
    try:
        logging.enable_progress_bar() if is_enabled else logging.disable_progress_bar()
        with quiet_bars():
            assert not logging.is_progress_bar_enabled()
        assert logging.is_progress_bar_enabled() is is_enabled
        with pytest.raises(ZeroDivisionError), quiet_bars():
            _ = 1 / 0
        assert logging.is_progress_bar_enabled() is is_enabled
    finally:
        logging.enable_progress_bar() if before else logging.disable_progress_bar()
