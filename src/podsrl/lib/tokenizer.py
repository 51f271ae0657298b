"""What this package needs of a tokenizer of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Tokenizer(Protocol):
    """A tokenizer with an end and a padding token."""

    eos_token_id: int
    pad_token_id: int
    chat_template: Any

    def __call__(self, text: list[str], *, add_special_tokens: bool = True) -> Any: ...
    def decode(self, token_ids: Any, *, skip_special_tokens: bool = False) -> str: ...
    def batch_decode(self, sequences: Any, *, skip_special_tokens: bool = False) -> list[str]: ...
    def get_vocab(self) -> dict[str, int]: ...
    def save_pretrained(self, save_directory: Any) -> Sequence[str]: ...
