"""A chat template is a program of the model's: where it fails, a line says so and why."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.policy import prompt_ids, prompts_ids, render
from podsrl.types import Task

SAYS = "{{ messages[0]['content'] }}"


def chat(content: str, id: str = "a") -> Task:
    return Task(id=id, prompt=({"role": "user", "content": content},), answer="1")


@pytest.fixture
def with_template(tokenizer: Any) -> Any:
    def build(template: Any) -> Any:
        changed = copy.deepcopy(tokenizer)
        changed.chat_template = template
        return changed

    return build


REFUSED = {
    "calls itself": "{% macro m(x) %}{{ m(x) }}{{ m(x) }}{% endmacro %}{{ m(1) }}",
    "does not parse": "{% for %}",
    "is no text": "{{ messages.append(1) }}",
    "reaches out": "{{ messages.__class__.__mro__[1].__subclasses__() }}",
    "says why": "{{ raise_exception('no system role') }}",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_template_that_fails_is_one_line(with_template: Any, name: str) -> None:
    refused = with_template(REFUSED[name])
    with pytest.raises(UsageError, match=r"the chat template of the model's tokenizer refuses task 't0'") as caught:
        prompts_ids(refused, [chat(f"{i}+1", id=f"t{i}") for i in range(3)])
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1500


def test_the_conversation_that_fails_is_named(with_template: Any) -> None:
    ours = with_template("{% if '77' in messages[0]['content'] %}{{ raise_exception('77') }}{% endif %}" + SAYS)
    with pytest.raises(UsageError, match="refuses task 't77'"):
        prompts_ids(ours, [chat(f"{i}+1", id=f"t{i}") for i in range(100)])


TEMPLATES = (
    "{% for m in messages %}{{ loop.index }}{{ m.role }}{{ m['content'] | trim }}{{ eos_token }}{% endfor %}",
    "{%- for m in messages %}\n  {{- m | tojson }}\n{%- if loop.last %}{% break %}{% endif %}{% endfor %}\n\n",
    "{% generation %}{{ messages[0].content }}{% endgeneration %}{{ 'A:' if add_generation_prompt }}",
    "{% set n = namespace(x=0) %}{% for m in messages %}{% set n.x = n.x + 1 %}{% endfor %}{{ n.x }}{{ tools }}",
    "é中{{ messages[-1]['content'] | upper }}\\u00e9",
)


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_text_is_what_the_tokenizer_renders_itself(with_template: Any, template: str) -> None:
    chats = [[{"role": "user", "content": f" {i} é中😀\n"}, {"role": "b", "content": "x" * i}] for i in range(300)]
    ours = with_template(template)
    wanted = [ours.apply_chat_template(one, add_generation_prompt=True, tokenize=False) for one in chats]
    assert render.render(ours, chats) == wanted


def test_of_several_templates_the_default_renders(with_template: Any) -> None:
    ours = with_template({"default": SAYS, "tool_use": "no"})
    assert render.render(ours, [[{"role": "user", "content": "7"}]]) == ["7"]
    with pytest.raises(UsageError, match="refuses task 'a'"):
        prompt_ids(with_template({"rag": SAYS}), chat("1"))


def test_a_tokenizer_of_a_class_with_a_way_of_its_own_renders_itself(tokenizer: Any) -> None:
    class Own(type(tokenizer)):  # type: ignore[misc]
        def apply_chat_template(self, conversation: Any, **options: Any) -> str:
            return f"{conversation[0]['content']}!"

    own = Own(vocab=tokenizer.get_vocab(), merges=[], unk_token="<unk>", eos_token="<eos>", pad_token="<pad>")
    own.chat_template = SAYS
    assert render.render(own, [[{"role": "user", "content": "7"}]]) == ["7!"]


def test_long_conversations_are_rendered_too(with_template: Any) -> None:
    long = "x" * (5 << 20)
    assert render.render(with_template(SAYS), [[{"role": "user", "content": long}]] * 3) == [long] * 3
