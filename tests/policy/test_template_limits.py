"""A chat template is a program of the model's: whatever it does, its rendering ends, with a line that says so."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.lib.channel import Channel
from podsrl.policy import check_chat_template, prompt_ids, prompts_ids, render
from podsrl.types import Task
from waiting import wait_for

SAYS = "{{ messages[0]['content'] }}"
LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


def chat(content: str, id: str = "a") -> Task:
    return Task(id=id, prompt=({"role": "user", "content": content},), answer="1")


@pytest.fixture
def with_template(tokenizer: Any) -> Any:
    def build(template: Any) -> Any:
        changed = copy.deepcopy(tokenizer)
        changed.chat_template = template
        return changed

    return build


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A limit of a second, for a process that starts now."""
    render._renderer.close()
    monkeypatch.setattr(render, "MAX_SECONDS", 1)
    yield
    render._renderer.close()


HOSTILE = {
    "loops": LOOP,
    "computes when compiled": "{{ 9 ** (9 ** 9) }}",
    "computes": "{% set n = messages | length + 8 %}{{ n ** (n ** n) }}",
    "loops for one prompt only": "{% if '77' in messages[0]['content'] %}" + LOOP + "{% endif %}" + SAYS,
    "takes its time": "{% for i in range(3000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}" + SAYS,
    "calls itself": "{% macro m(x) %}{{ m(x) }}{{ m(x) }}{% endmacro %}{{ m(1) }}",
    "one long text": "{{ messages[0]['content'] * 10 ** 10 }}",
    "a text that doubles": "{% set n = namespace(x=1) %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "a long list": "{{ ([0] * 10 ** 10) | length }}",
    "much output": "{% set x = 'ab' * 10 ** 6 %}{% for i in range(90) %}{{ x }}{% endfor %}",
    "wide": "{{ '%1000000000000d' | format(1) }}",
    "does not parse": "{% for %}",
    "is no text": "{{ messages.append(1) }}",
    "reaches out": "{{ messages.__class__.__mro__[1].__subclasses__() }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_one_line(with_template: Any, soon: None, name: str) -> None:
    hostile = with_template(HOSTILE[name])
    with pytest.raises(UsageError, match=r"the chat template of the model's tokenizer refuses task '\w+'") as caught:
        prompts_ids(hostile, [chat(f"{i}+1", id=f"t{i}") for i in range(100)])
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1500


def test_the_limit_is_named(with_template: Any, soon: None) -> None:
    with pytest.raises(UsageError, match="more than 1 seconds of CPU time"):
        check_chat_template(with_template(LOOP), chat("1"))
    with pytest.raises(UsageError, match="more memory than it may have"):
        check_chat_template(with_template("{{ 'a' * 10 ** 10 }}"), chat("1"))
    assert prompt_ids(with_template(SAYS), chat("1")) == tuple(with_template(SAYS).encode("1")), "and others go on"


def test_a_template_in_a_thread_is_limited_too(with_template: Any, soon: None) -> None:
    said: list[str] = []

    def ask() -> None:
        with pytest.raises(UsageError) as caught:
            prompt_ids(with_template(LOOP), chat("1"))
        said.append(str(caught.value))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 2 and all("CPU time" in line for line in said)


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


def test_a_process_that_was_killed_is_replaced(with_template: Any) -> None:
    ours = with_template(SAYS)
    prompt_ids(ours, chat("1"))
    child = render._renderer._child
    assert child is not None
    os.kill(child.pid, 9)
    wait_for(lambda: child.code is not None)
    assert prompt_ids(ours, chat("2")) == tuple(ours.encode("2"))


def test_an_interrupt_leaves_no_answer_for_the_next_prompt(with_template: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = with_template(SAYS)

    def interrupted(self: Channel, seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Channel, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prompt_ids(ours, chat("1"))
    assert prompt_ids(ours, chat("2")) == tuple(ours.encode("2"))
