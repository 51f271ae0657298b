"""Tools: what the model reads of each call, in this process and in workers, whatever the functions do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.score import Environment, Reply, Tools, find_tools
from podsrl.score.base import Fault
from podsrl.types import Task

TASK = Task(id="a", prompt="?", answer="12")
ALL = ["kitchen:price", "kitchen:weigh", "kitchen:oven"]


def call(name: str, **values: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': values})}</tool_call>"


def test_a_turn_without_a_call_ends_the_rollout() -> None:
    assert Tools(ALL)(TASK, [call("price", fruit="fig"), "It costs 0.5."]) is None


@pytest.mark.parametrize(
    ("turn", "read", "is_good"),
    [
        (call("price", fruit="fig"), "0.5", True),
        (call("price", fruit="kiwi", count="4"), "1.0", True),
        (call("weigh", grams=[300, 700], unit="kg"), '{"total": 1.0, "unit": "kg"}', True),
        ("<tool_call><function=weigh><parameter=grams>[1, 2]</parameter>", '{"total": 3.0, "unit": "g"}', True),
        (call("oven", program="ü"), "ü<|im_end|><eos>", True),
        (call("mix"), "Error: there is no tool 'mix'; there are: price, weigh, oven", False),
        ("<tool_call>fig</tool_call>", "Error: this tool call is no JSON; wanted {", False),
        (call("price"), "Error: fruit: Missing required argument", False),
        (call("price", fruit="fig", colour="red"), "Error: colour: Unexpected keyword argument", False),
        (
            call("price", fruit=["fig"], count="x"),
            "Error: fruit: Input should be a valid string; count: Input should",
            False,
        ),
        (call("weigh", grams=[1], unit="t"), "Error: unit: Input should be 'g' or 'kg'", False),
        (call("price", fruit="plum"), "Error: KeyError: 'plum'", False),
        (call("oven", program="burn"), "Error: ValueError: it is on fire", False),
        (call("oven", program="deep"), "Error: RecursionError: maximum recursion depth exceeded", False),
    ],
)
def test_the_model_reads_a_result_or_one_line(turn: str, read: str, is_good: bool) -> None:
    reply = Tools(ALL)(TASK, [turn])
    assert reply is not None and reply.calls == (is_good,)
    assert reply.texts == (read,) if is_good else reply.texts[0].startswith(read) and "\n" not in reply.texts[0]


def test_calls_of_one_turn_are_answered_in_order_each_by_a_message_of_a_tool() -> None:
    reply = Tools(ALL)(TASK, [call("price", fruit="fig") + call("mix") + call("price", fruit="kiwi")])
    assert reply is not None and reply.calls == (True, False, True)
    assert [message["content"][:10] for message in reply.messages] == ["0.5", "Error: the", "0.25"]
    assert {message["role"] for message in reply.messages} == {"tool"}


def test_of_a_thousand_calls_the_first_are_run_and_a_line_says_so() -> None:
    reply = Tools(ALL)(TASK, [call("price", fruit="fig") * 1000])
    assert reply is not None and reply.calls == (True,) * 32 + (False,)
    assert reply.texts[:32] == ("0.5",) * 32 and reply.texts[32].startswith("Error: of 1,000 tool calls")
    reply = Tools(ALL)(TASK, [call("price", fruit="fig") * 32])
    assert reply is not None and reply.calls == (True,) * 32


def test_a_call_in_a_thought_is_not_run() -> None:
    assert Tools(ALL)(TASK, [f"<think>{call('oven', program='burn')}</think>It is 7."]) is None


def test_in_workers_what_ends_badly_is_a_fault_of_its_own() -> None:
    tools = Environment(tools=ALL, workers=1, timeout_seconds=1)
    programs = ["bake", "hang", "die", "exit", "greedy", "flood", "half", "bake", "draw", "draw"]
    jobs = [tools.ask(TASK, [call("oven", program=program)]) for program in programs]
    replies = [tools.reply(job) for job in jobs]
    tools.close()
    assert replies[0] == replies[7] == Reply(("bake<|im_end|><eos>",), (True,))
    assert replies[8] == replies[9] != replies[0]
    name = "tool 'kitchen:price, kitchen:weigh, kitchen:oven'"
    reasons = [reply.reason.removeprefix(name) for reply in replies if isinstance(reply, Fault)]
    assert [reason.split(":")[0] for reason in reasons] == [
        " took longer than 1 s and was stopped",
        "",
        " raised SystemExit",
        " raised MemoryError",
        " returned 10,485,760 characters, more than 1,048,576",
        " returned half of a surrogate pair, not a text",
    ]
    assert reasons[1] == ": its worker died (exit code 7)"


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (["kitchen:spoon"], "task.tools: 'kitchen:spoon'.*no 'spoon'"),
        (["price"], "task.tools: 'price'"),
        (["kitchen:price", "kitchen:price"], "one is called 'price'"),
        (["kitchen:os"], "wanted functions with a type for each parameter"),
    ],
)
def test_what_is_no_tool_is_named(names: list[str], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        find_tools(names)
