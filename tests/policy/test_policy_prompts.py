"""Prompts become the same tokens alone and by the thousand, and a system prompt that would be lost is told."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.policy import check_chat_template, prompt_ids, prompts_ids
from podsrl.types import Task

CHAT = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<a>{% endif %}"
)
NO_SYSTEM = "{% for m in messages %}{% if m['role'] != 'system' %}{{ m['content'] }}{% endif %}{% endfor %}"
REFUSES = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{{ messages[0]['content'] }}"
)
QUESTION = {"role": "user", "content": "7+5"}
SYSTEM = {"role": "system", "content": " Add.\n"}


def task(prompt: Any, id: str = "7+5") -> Task:
    return Task(id=id, prompt=prompt, answer="12")


def with_template(tokenizer: Any, template: str | None) -> Any:
    changed = copy.deepcopy(tokenizer)
    changed.chat_template = template
    return changed


def test_a_text_prompt_is_one_token_a_character_here(tokenizer: Any) -> None:
    ids = prompt_ids(tokenizer, task("7+5="))
    assert [tokenizer.decode([i]) for i in ids] == ["7", "+", "5", "="]


def test_chat_messages_go_through_the_template_with_the_opening_of_the_answer(tokenizer: Any) -> None:
    messages = ({"role": "s", "content": "Add."}, {"role": "u", "content": "7+5"})
    assert prompt_ids(with_template(tokenizer, CHAT), task(messages)) == tuple(tokenizer.encode("<s>Add.<u>7+5<a>"))


def test_many_prompts_of_both_kinds_keep_their_order_and_equal_each_alone(tokenizer: Any) -> None:
    chatty = with_template(tokenizer, CHAT)
    tasks = [task(prompt) for i in range(20) for prompt in (f"{i}+1=", ({"role": "u", "content": f"{i}"},))]
    assert prompts_ids(chatty, tasks) == [prompt_ids(chatty, one) for one in tasks]
    assert chatty.decode(prompts_ids(chatty, tasks)[3]) == "<u>1<a>"


def test_a_token_that_a_tokenizer_puts_before_texts_is_not_put_before_rendered_chats(tokenizer: Any) -> None:
    from tokenizers.processors import TemplateProcessing

    opening = with_template(tokenizer, CHAT)
    opening.backend_tokenizer.post_processor = TemplateProcessing(single="<eos> $A", special_tokens=[("<eos>", 1)])
    assert prompt_ids(opening, task("7"))[0] == 1
    assert prompt_ids(opening, task((QUESTION,))) == tuple(tokenizer.encode("<user>7+5<a>"))


def test_chat_messages_without_a_template_name_the_task_and_the_cure(tokenizer: Any) -> None:
    for ask in (prompt_ids, check_chat_template):
        with pytest.raises(UsageError, match=r"'7\+5' is asked in chat messages, but .* no chat template: use a model"):
            ask(tokenizer, task((QUESTION,)))


def test_an_empty_prompt_is_refused_by_name(tokenizer: Any) -> None:
    with pytest.raises(UsageError, match="prompt of task 'second' has 0 tokens"):
        prompts_ids(tokenizer, [task("1"), task("", id="second")])


def test_a_template_that_shows_the_system_prompt_passes_and_so_does_plain_text(tokenizer: Any) -> None:
    check_chat_template(with_template(tokenizer, CHAT), task((SYSTEM, QUESTION)))
    trimmed = CHAT.replace("m['content']", "m['content'] | trim")
    check_chat_template(with_template(tokenizer, trimmed), task((SYSTEM, QUESTION)))
    check_chat_template(tokenizer, task("7+5="))


def test_a_template_that_drops_the_system_prompt_is_refused(tokenizer: Any) -> None:
    with pytest.raises(UsageError, match=r"drops the system prompt, .* leave out task.system_prompt"):
        check_chat_template(with_template(tokenizer, NO_SYSTEM), task((SYSTEM, QUESTION)))
    check_chat_template(with_template(tokenizer, NO_SYSTEM), task((QUESTION,)))


def test_a_template_that_refuses_a_system_prompt_is_quoted_in_one_line(tokenizer: Any) -> None:
    refusing = with_template(tokenizer, REFUSES)
    with pytest.raises(UsageError, match=r"refuses task '7\+5' \(roles system, user\): .*System role not") as caught:
        prompt_ids(refusing, task((SYSTEM, QUESTION)))
    assert "\n" not in str(caught.value)
    assert prompt_ids(refusing, task((QUESTION,))) == tuple(tokenizer.encode("7+5"))
