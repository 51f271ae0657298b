"""Where no name server knows the hub, its clients are told so once instead of trying every file for half a minute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from podsrl.config.schema import ModelConfig, TaskConfig
from podsrl.run.before.offline import skip_unreachable_hub, wants_hub

LOCAL, REMOTE = ModelConfig(), ModelConfig(path="someone/some-model")


@pytest.fixture
def unknown_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A hub under a name that is reserved for names without an address."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.invalid")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield


@pytest.mark.usefixtures("unknown_hub")
def test_a_hub_without_an_address_is_not_asked() -> None:
    skip_unreachable_hub(REMOTE)
    assert constants.is_offline_mode()


@pytest.mark.usefixtures("unknown_hub")
def test_once_it_has_an_address_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_unreachable_hub(REMOTE)
    monkeypatch.setattr(constants, "ENDPOINT", "http://localhost:1")
    skip_unreachable_hub(REMOTE)
    assert not constants.is_offline_mode()


@pytest.mark.usefixtures("unknown_hub")
@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "https_proxy"])
def test_what_the_user_said_about_the_network_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "http://proxy:1")
    skip_unreachable_hub(REMOTE)
    assert not constants.is_offline_mode()


def test_files_here_need_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PODS_DATA", raising=False)
    here = str(tmp_path)
    assert wants_hub(REMOTE, TaskConfig())
    assert not wants_hub(ModelConfig(path=here))
    assert not wants_hub(LOCAL, TaskConfig(name="jsonl", path="nowhere.jsonl"))
    assert not wants_hub(LOCAL, TaskConfig(name="my_tasks:doubles"))
    assert wants_hub(LOCAL, TaskConfig(name="gsm8k"))
    assert not wants_hub(LOCAL, TaskConfig(name="gsm8k", path=here))
    assert wants_hub(LOCAL, TaskConfig(name="hub", path="someone/some-set"))
    monkeypatch.setenv("PODS_DATA", here)
    assert not wants_hub(LOCAL, TaskConfig(name="gsm8k"))
