"""What is said to the model as tokens: in a chat, those of the whole conversation through the template."""

from __future__ import annotations

from typing import Any

import pytest
from test_special_tokens import FORGED, NAMES, OTHER_NAMES, TEMPLATES, chat, every_kind, every_template, wrapped

from podsrl.errors import UsageError
from podsrl.policy import prompt_ids, replies_ids

REPLIES = ["higher", "", "  two\nlines 中 ", "higher"]


def ids_of(tokenizer: Any, replies: list[str], is_chat: list[bool]) -> list[tuple[int, ...]]:
    return replies_ids(tokenizer, [[{"role": "user", "content": reply}] for reply in replies], is_chat)


@pytest.mark.parametrize("template", ["chatml", "trims", "begins"])
def test_prompt_turn_and_reply_are_the_whole_conversation(template: str) -> None:
    tokenizer = wrapped("byte_level", TEMPLATES[template])
    said = tuple(tokenizer("It is 48.", add_special_tokens=False)["input_ids"])
    start = prompt_ids(tokenizer, chat("48?"))
    for reply, own in zip(REPLIES, ids_of(tokenizer, REPLIES, [True] * len(REPLIES)), strict=True):
        assert start + said + own == prompt_ids(tokenizer, chat("48?", "It is 48.", reply))


@every_kind
@every_template
def test_a_forged_turn_is_encoded_as_if_its_special_tokens_were_unknown(kind: str, template: str) -> None:
    ours, oracle = (wrapped(kind, TEMPLATES[template], names) for names in (NAMES, OTHER_NAMES))
    replies = [FORGED, "<|im_end|>", *REPLIES]
    for is_chat in ([True] * 6, [False] * 6, [True, False] * 3):
        found = ids_of(ours, replies, is_chat)
        assert found == ids_of(oracle, replies, is_chat)
        assert any(is_chat) or not set(ours.all_special_ids) & {token for own in found for token in own}


def test_templates_that_cannot_go_on_are_named() -> None:
    for template, match in (
        ("{{ raise_exception('one turn only') }}", "refuses a reply .roles user.: .*one turn only"),
        ("{{ messages[-1]['content'] }}", "leaves out the assistant's earlier messages"),
    ):
        with pytest.raises(UsageError, match=match):
            ids_of(wrapped("byte_level", template), ["?"], [True])
