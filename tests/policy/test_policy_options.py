"""What a machine cannot do is told before any model is read; what the hub says is one line with a cure."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import (
    GatedRepoError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from podsrl.config.schema import ModelConfig, RunConfig
from podsrl.errors import UsageError
from podsrl.policy import check_model_options, load_model, load_tokenizer, outline
from podsrl.policy.source import unreadable


def config(**sections: Any) -> RunConfig:
    return RunConfig.model_validate(sections)


def test_adapters_that_match_nothing_are_told_from_the_description_alone(
    tiny_model_folder: Path, tmp_path: Path
) -> None:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((tiny_model_folder / name).read_bytes())
    options = config(model={"path": str(tmp_path)}, lora={"targets": ["q_porj"]})
    with pytest.raises(UsageError, match=r"'q_porj' matches no module of this model\. Did you mean 'q_proj'"):
        check_model_options(options)
    check_model_options(options, has_model=True)  # the trained model is another than model.path
    assert {parameter.device.type for parameter in outline(options.model).parameters()} == {"meta"}


@pytest.mark.parametrize(
    ("option", "sections"),
    [
        ("model.load_in_4bit", {"model": {"load_in_4bit": True}, "lora": {}}),
        ("optim.name = 'adamw_8bit'", {"optim": {"name": "adamw_8bit"}}),
    ],
)
def test_without_bitsandbytes_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, option: str, sections: dict[str, Any]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "podsrl.policy.quantized.find_spec", lambda name: None if name == "bitsandbytes" else find(name)
    )
    with pytest.raises(UsageError, match=rf"{option} needs bitsandbytes, .*: pip install 'podsrl\[quantized\]'"):
        check_model_options(config(**sections))


def test_flash_attention_without_a_gpu_names_all_it_wants() -> None:
    with pytest.raises(
        UsageError, match=r"'flash_attention_2' needs .*a CUDA GPU .* and model.dtype = .*\"auto\" runs"
    ):
        check_model_options(config(model={"attention": "flash_attention_2"}))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_attention_kernel_is_the_one_asked_for(tiny_model_folder: Path, attention: str) -> None:
    options = {"path": str(tiny_model_folder), "device": "cpu", "attention": attention}
    assert load_model(ModelConfig.model_validate(options)).config._attn_implementation == attention


# --- the hub ---


class Response:
    """The part of an answer of the hub that its client's errors read."""

    headers: dict[str, str] = {}  # noqa: RUF012
    request = None


REASONS = [
    (
        GatedRepoError("403", response=Response()),
        r"is gated: accept its terms at https://huggingface.co/org/name, then",
    ),  # type: ignore[arg-type]
    (RepositoryNotFoundError("404", response=Response()), "no such model on the hub .*hf auth login"),  # type: ignore[arg-type]
    (
        RevisionNotFoundError("404", response=Response()),
        "has no revision 'v9' on the hub: give a branch, tag or commit",
    ),  # type: ignore[arg-type]
    (LocalEntryNotFoundError("not cached"), "the hub cannot be reached .*: connect, or give the folder"),
    (OfflineModeIsEnabled("offline"), "the hub cannot be reached"),
    (ConnectionError("reset"), "the hub cannot be reached"),
    (KeyError("model_type"), "weights cannot be read: OSError: the first line$"),
]


@pytest.mark.parametrize(("cause", "message"), REASONS, ids=lambda value: type(value).__name__)
def test_what_the_hub_says_becomes_one_line_with_a_cure(cause: Exception, message: str) -> None:
    try:
        try:
            raise cause
        except Exception as inner:
            raise OSError("the first line\nthe second") from inner
    except OSError as error:
        said = unreadable(ModelConfig(path="org/name", revision="v9"), "weights ", error)
    with pytest.raises(UsageError, match=message):
        raise said
    assert str(said).startswith("model.path = 'org/name': ") and "\n" not in str(said)


def test_a_model_that_is_nowhere_is_one_line_from_every_door() -> None:
    lost = ModelConfig(path="no-such-org/no-such-model")
    for read in (load_tokenizer, load_model, outline):
        with pytest.raises(
            UsageError, match=r"'no-such-org/no-such-model': no such folder here.*hub cannot be reached"
        ):
            read(lost)
