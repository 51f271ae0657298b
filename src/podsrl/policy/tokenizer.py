"""The tokenizer of a model, checked before the weights are read."""

from __future__ import annotations

from typing import Any

from transformers import AutoConfig, AutoTokenizer

from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError
from podsrl.policy.adapter_folder import base_of, naming_base
from podsrl.policy.hub import reading
from podsrl.policy.own_code import code_options
from podsrl.policy.source import check_folder, has_tokenizer, model_folder, quiet_bars


def load_tokenizer(config: ModelConfig) -> Any:
    """The tokenizer of a model, with an end and a padding token.

    Args:
        config: names the model; a folder of adapters has its own tokenizer, or its base model's.

    Raises:
        UsageError: the folder does not exist, holds no model or no tokenizer; the hub has no such model or cannot be
            reached; the tokenizer names no end token, or has tokens beyond the model's.
    """
    base = base_of(config) or config
    own = config if base is config or has_tokenizer(model_folder(config.path)) else base
    with naming_base(config):
        check_folder(model_folder(base.path), base.path)
    options = code_options(base)
    with naming_base(config), reading(base), quiet_bars():
        model_config = AutoConfig.from_pretrained(model_folder(base.path), revision=base.revision, **options)
    with reading(own), quiet_bars():
        tokenizer = AutoTokenizer.from_pretrained(model_folder(own.path), revision=own.revision, **options)
        vocabulary = model_config.get_text_config().vocab_size
    if tokenizer.eos_token_id is None:
        raise UsageError(f"model.path = {config.path!r}: its tokenizer names no eos_token, so no answer would end")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    check_vocabulary(tokenizer, vocabulary, config.path)
    return tokenizer


def check_vocabulary(tokenizer: Any, num_rows: int, path: str) -> None:
    """See that every token of the tokenizer exists in the model.

    Args:
        tokenizer: with an end and a padding token.
        num_rows: rows of the model's embedding.
        path: for the message.

    Raises:
        UsageError: a token, named in the message, whose number is `num_rows` or more.
    """
    token, number = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    for kind in ("pad_token", "eos_token"):
        if getattr(tokenizer, f"{kind}_id") >= num_rows:
            token, number = getattr(tokenizer, kind), getattr(tokenizer, f"{kind}_id")
    if number >= num_rows:
        raise UsageError(
            f"model.path = {path!r}: its tokenizer does not match: {token!r} is token {number}, but the model has "
            f"{num_rows} tokens; save the tokenizer that belongs to the model beside it"
        )
