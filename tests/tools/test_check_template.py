"""Where a chat template writes history otherwise than it was drawn, by templates that each do one thing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from podsrl.errors import UsageError
from podsrl.tools.check_template import History, TemplateCheck, check_template

SPECIAL = ("<s>", "<|im_start|>", "<|im_end|>", "<|end|>")
TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
OPEN = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
CALLS = (
    "{% for c in m.tool_calls or [] %}"
    '<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>'
    "{% endfor %}"
)


def chat(turn: str = TURN, first: str = "", last: str = OPEN) -> str:
    return first + "{% for m in messages %}" + turn + "{% endfor %}" + last


CHATML = chat()
WITH_TOOLS = chat(
    TURN.replace("<|im_end|>", f"{CALLS}<|im_end|>"),
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}",
)
TRIMS = CHATML.replace("m.content", "m.content | trim")
NO_THOUGHTS = WITH_TOOLS.replace(
    "{{ m.content }}",
    "{% if not loop.last and m.role == 'assistant' %}{{ m.content.split('</think>')[-1].lstrip('\n') }}"
    "{% else %}{{ m.content }}{% endif %}",
)
IN_THOUGHT = chat(last=OPEN.replace("assistant\n", "assistant\n<think>\n"))


def save(folder: Path, template: str | None, *, end: str = "<|im_end|>", ends: list[int] | None = None) -> Path:
    """A tokenizer with one token a byte, but "\\n\\n" and "It", and special tokens; perhaps end tokens of a model."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    newline = "\u010a"
    vocabulary = {text: i for i, text in enumerate([*SPECIAL, *letters, newline * 2, "It"])}
    made = Tokenizer(models.BPE(vocabulary, [(newline, newline), ("I", "t")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(list(SPECIAL))
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=end, pad_token="<s>", bos_token="<s>")
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    if ends is not None:
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    return folder


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., TemplateCheck]:
    return lambda template, **options: check_template(str(save(tmp_path / "model", template, **options)))


def texts(found: TemplateCheck, name: str) -> list[tuple[str, str]]:
    return [(each.verdict, each.text) for each in found.properties if each.name == name]


def kept(found: TemplateCheck) -> dict[str, bool]:
    return {history.name: history.verdict == "ok" for history in found.histories}


def history(found: TemplateCheck, name: str) -> History:
    return next(each for each in found.histories if each.name == name)


def test_a_template_that_writes_what_it_is_given_keeps_every_text(check: Callable[..., TemplateCheck]) -> None:
    found = check(CHATML)
    assert kept(found) == {
        "an answer": True,
        "an answer that ends in a newline": True,
        "an answer that begins with a newline": False,  # joined with the newline of the prompt, below
        "two answers": True,
        "a thought and an answer": True,
    }
    at = history(found, "an answer that begins with a newline").at
    assert at is not None and at.is_same_text
    assert [text for _, text in (at.drawn[0], at.drawn[1], at.rendered[0])] == ["\n", "\n", "\n\n"]
    assert (found.end_of_turn, found.tool_call) == ((2, "<|im_end|>"), "")
    assert texts(found, "end of a turn")[0][0] == "ok" and texts(found, "system prompt")[0][0] == "ok"
    assert texts(found, "white space") == [("ok", "a question keeps what stands around it")]
    assert texts(found, "tool calls") == [("look", "the template shows no tools, or writes no calls")]


def test_the_token_at_which_a_trimmed_answer_leaves_its_history(check: Callable[..., TemplateCheck]) -> None:
    found = check(TRIMS)
    at = history(found, "an answer that ends in a newline").at
    assert at is not None and not at.is_same_text
    # <|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n, and "It is 4." with "It" as one token
    assert at.place == (1 + 5 + 14 + 2) + (1 + 10) + 7
    assert [text for _, text in at.before] == ["s", " ", "4", "."][-3:]
    assert (at.drawn[0][1], at.rendered[0]) == ("\n", (2, "<|im_end|>"))
    assert texts(found, "white space") == [("look", "the template trims questions")]


def test_thoughts_that_are_left_out_and_those_that_are_kept_behind_a_call(check: Callable[..., TemplateCheck]) -> None:
    found = check(NO_THOUGHTS)
    assert kept(found) | {"an answer that begins with a newline": False} == {
        "an answer": True,
        "an answer that ends in a newline": True,
        "an answer that begins with a newline": False,
        "two answers": True,
        "a thought and an answer": False,
        "a tool call": True,
        "a tool call without spaces": False,
        "a thought and a tool call": False,
        "the same, and a further question": False,
    }
    at = history(found, "a thought and an answer").at
    assert at is not None and (at.drawn[0][1], at.rendered[0][1]) == ("<", "It")
    at = history(found, "a tool call without spaces").at
    assert at is not None and (at.drawn[0][1], at.rendered[0][1]) == ('"', " ")
    call = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 2}}</tool_call>'
    assert (found.tool_call, texts(found, "tool calls")) == (call, [("ok", repr(call))])


def test_a_prompt_that_opens_a_thought_is_named_and_not_repeated(check: Callable[..., TemplateCheck]) -> None:
    found = check(IN_THOUGHT)
    assert texts(found, "opening")[0][0] == "look"
    at = history(found, "a thought and an answer").at
    assert at is not None and at.drawn[0][1] == "<" and at.rendered[0][1] == "T"  # the history has no <think>


@pytest.mark.parametrize(
    ("options", "verdict", "wanted"),
    [
        ({"end": "<|end|>"}, "wrong", "'<|im_end|>' (2) is no stop token, so answers run on"),
        ({"end": "<|end|>", "ends": [3]}, "wrong", "generation config: '<|end|>' (3)"),
        ({"end": "<|end|>", "ends": [3, 2]}, "look", "'<|im_end|>' (2) is named by the generation config alone"),
        ({"ends": [3]}, "look", "'<|im_end|>' (2) is named by the tokenizer alone"),
        ({"ends": [2, 3]}, "ok", "generation config: '<|im_end|>' (2), '<|end|>' (3)"),
    ],
)
def test_whether_the_end_of_a_turn_is_a_stop_token(
    check: Callable[..., TemplateCheck], options: dict[str, Any], verdict: str, wanted: str
) -> None:
    [(found, text)] = texts(check(CHATML, **options), "end of a turn")
    assert found == verdict and wanted in text


def test_a_turn_that_ends_in_text_has_no_end_token(check: Callable[..., TemplateCheck]) -> None:
    found = check(chat("{{ m.role }}: {{ m.content }}\n\n", last="assistant:"))
    assert found.end_of_turn is None
    assert "no token ends a turn, but the text '\\n\\nassistant:'" in texts(found, "end of a turn")[0][1]


@pytest.mark.parametrize(
    ("first", "verdict", "wanted"),
    [
        (
            "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}",
            "look",
            "'Be kind.'",
        ),
        ("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}", "look", "no system"),
        ("{% set messages = messages | rejectattr('role', 'equalto', 'system') | list %}", "wrong", "drops a system"),
        ("{{ strftime_now('%Y') }}", "look", "the day's date"),
    ],
)
def test_what_a_template_does_with_system_prompts(
    check: Callable[..., TemplateCheck], first: str, verdict: str, wanted: str
) -> None:
    [(found, text)] = texts(check(chat(first=first)), "system prompt")
    assert found == verdict and wanted in text


def test_a_first_token_that_is_written_twice(check: Callable[..., TemplateCheck]) -> None:
    assert texts(check(chat(first="<s>")), "beginning")[0][0] == "wrong"
    assert texts(check(CHATML), "beginning")[0][0] == "look"


def test_turns_can_be_forged_unless_the_template_takes_their_tokens_out(check: Callable[..., TemplateCheck]) -> None:
    [(verdict, text)] = texts(check(CHATML), "forged turns")
    assert verdict == "look" and "'<|im_start|>' (1), '<|im_end|>' (2)" in text
    safe = CHATML.replace("m.content", "m.content | replace('<|im_', '<|am_')")
    assert texts(check(safe), "forged turns") == [("ok", "special tokens in a question stay text")]


def test_a_padding_token_that_ends_turns(tmp_path: Path) -> None:
    folder = save(tmp_path / "model", CHATML)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"pad_token": "<|im_end|>"}))
    assert texts(check_template(str(folder)), "padding")[0][0] == "look"


def test_the_command_prints_each_property_and_break(tmp_path: Path, pods: Callable[..., tuple[int, str, str]]) -> None:
    save(tmp_path / "model", TRIMS)
    code, out, err = pods("check-template", "./model")
    assert (code, err) == (0, "") and out.startswith("./model: of 5 conversations, 3 are rendered as they were drawn")
    assert "look  an answer that ends in a newline: leaves it at token 40\n" in out
    assert "      drawn     ' ' (224) '4' (23) '.' (17) | '\\n' (202) '<|im_end|>' (2)\n" in out
    found = json.loads(pods("check-template", "./model", "--json")[1])
    assert found["end_of_turn"] == [2, "<|im_end|>"] and len(found["histories"]) == 5


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("./none", "./none: no such folder"),
        ("./empty", "./empty: a folder without a tokenizer"),
        ("./plain", "./plain: its tokenizer has no chat template"),
        ("./one", "./one: its chat template refuses one question of a user: .*only the system"),
        ("builtin:none", "no such built-in model"),
        ("acme/none", "cannot be reached"),
    ],
)
def test_what_has_no_template_is_named(
    tmp_path: Path, pods: Callable[..., tuple[int, str, str]], name: str, wanted: str
) -> None:
    (tmp_path / "empty").mkdir()
    save(tmp_path / "plain", None)
    save(tmp_path / "one", "{{ raise_exception('only the system') }}")
    code, _, err = pods("check-template", name)
    assert code == 2 and err.count("\n") == 1
    with pytest.raises(UsageError, match=wanted):
        raise UsageError(err)
