"""Tools in the prompt: by the templates of real models, and what cannot be shown is named."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from test_special_tokens import CHATML, chat, wrapped
from transformers.utils import get_json_schema

import kitchen
from podsrl.errors import UsageError
from podsrl.policy import prompt_ids, replies_ids, with_tools

TOOLS = {"price": kitchen.price, "weigh": kitchen.weigh}
TRL = find_spec("trl")
READ = ["qwen2_5", "qwen3", "qwen3_5_think", "llama3_1"]


def real(name: str) -> Any:
    if TRL is None or TRL.origin is None:
        pytest.skip("trl, which has the templates of real models, is not installed")
    made = wrapped("byte_level", (Path(TRL.origin).parent / "chat_templates" / f"{name}.jinja").read_text())
    made.bos_token = "<s>"
    return made


@pytest.mark.parametrize("name", READ)
def test_a_prompt_is_what_transformers_makes_of_the_same_tools(name: str) -> None:
    tokenizer, tools = real(name), [get_json_schema(kitchen.price), get_json_schema(kitchen.weigh)]
    shown = with_tools(tokenizer, TOOLS)
    task = chat("48?")
    own = tokenizer.apply_chat_template([*task.prompt], tools=tools, tokenize=False, add_generation_prompt=True)
    assert prompt_ids(shown, task) == tuple(tokenizer(own, add_special_tokens=False)["input_ids"])
    assert prompt_ids(tokenizer, task) != prompt_ids(shown, task)  # the tokenizer itself shows none


@pytest.mark.parametrize("name", READ)
def test_results_are_what_the_template_writes_behind_the_turn(name: str) -> None:
    shown = with_tools(real(name), TOOLS)
    results = [{"role": "tool", "content": text} for text in ("0.5", "1.0")]
    messages = [{"role": "user", "content": "48?"}, {"role": "assistant", "content": "TURN"}, *results]
    whole = shown.apply_chat_template(messages, tools=shown.shown_tools, tokenize=False, add_generation_prompt=True)
    [ids] = replies_ids(shown, [results], [True])
    assert ids == tuple(shown(whole.rpartition("TURN")[2], add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize(
    ("template", "tools", "match"),
    [
        (CHATML, TOOLS, "shows no tools, so task.tools is no use: use a model that was trained"),
        (None, TOOLS, "refuses task.tools: .*use a model that was trained"),
        (kitchen.TEMPLATE.replace("tool_call>", "call>"), TOOLS, "writes a tool call as '<call>{.*cannot read; wanted"),
        (kitchen.TEMPLATE, {"untyped": kitchen.untyped}, "'untyped' cannot be shown.*wanted a type for each parameter"),
        (kitchen.TEMPLATE, {"undescribed": kitchen.undescribed}, "'undescribed' cannot be shown.*under \"Args:\""),
    ],
)
def test_what_cannot_be_shown_or_read_is_named(template: str | None, tools: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        with_tools(wrapped("byte_level", template), tools)
