"""Tool calls are found in a turn as a template writes them; what is none says why."""

from __future__ import annotations

import pytest

from podsrl.lib.tool_calls import calls_in

NO_JSON, NO_CALL = "this tool call is no JSON; wanted {", "this is no tool call; wanted {"
NO_OBJECT = "the arguments of this tool call are no object; wanted {"


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("It is 7.", []),
        ('The object {"name": "f", "arguments": {}} is no call of Llama\'s: it does not begin the turn.', []),
        ('{"names": {}}', []),
        (
            '<tool_call>\n{"name": "f", "arguments": {"a": [1, {"b": null}]}}\n</tool_call>',
            [("f", {"a": [1, {"b": None}]})],
        ),
        ('I <tool_call>{"name":"f","arguments":{}}</tool_call>\n<tool_call>{"name":"g"}', [("f", {}), ("g", {})]),
        (' {"name": "f", "parameters": {"a": "}"}}', [("f", {"a": "}"})]),
        ('{"type": "function", "name": "f", "parameters": {}}; and so on', [("f", {})]),
        ("<tool_call><function=f>\n<parameter=a>\n1\n</parameter>\n</function></tool_call>", [("f", {"a": "1"})]),
        (
            "<tool_call>\n<function=f><parameter=a>[1, 2]</parameter><parameter=b>[1</parameter>",
            [("f", {"a": [1, 2], "b": "[1"})],
        ),
        ("<tool_call>f(1)</tool_call>", [NO_JSON]),
        ("<tool_call></tool_call><tool_call>", [NO_JSON, NO_JSON]),
        ('{"name": "f", "parameters": {', [NO_JSON]),
        ("<tool_call>" + "[" * 100_000, [NO_JSON]),
        ('<tool_call>{"name": "f", "arguments": "{\\"a\\": [1]}"}</tool_call>', [("f", {"a": [1]})]),
        ('{"name": "f", "parameters": " "}', [("f", {})]),
        ('<tool_call>{"name": "f", "arguments": "a = 1"}</tool_call>', [NO_OBJECT]),
        ('<tool_call>{"name": "f", "arguments": "[1]"}</tool_call>', [NO_OBJECT]),
        ('<tool_call>{"name": "f", "arguments": null}</tool_call>', [NO_OBJECT]),
        ('<think><tool_call>{"name": "f"}</tool_call></think>7', []),
        ('<think>a</think>{"name": "f"}', [("f", {})]),
        ('<think>a</think><tool_call>{"name": "f"}</tool_call><think><tool_call>{"name": "g"}', [("f", {})]),
        ('I call <tool_call>{"name": "f"}</tool_call> </think> <tool_call>{"name": "g"}</tool_call>', [("g", {})]),
        (
            '<tool_call>{"name": "f", "arguments": {"a": "<think>"}}</tool_call><tool_call>{"name": "g"}</tool_call>',
            [("f", {"a": "<think>"}), ("g", {})],
        ),
        (
            '<tool_call>{"name": "f", "arguments": {"a": "1 </think> 2"}}</tool_call>',
            [("f", {"a": "1 </think> 2"})],
        ),
        ("<think>" * 100_000 + "<tool_call>" * 100_000, []),
        ('<tool_call>[{"name": "f"}]</tool_call><tool_call>{"name": 7}</tool_call>', [NO_CALL, NO_CALL]),
    ],
)
def test_the_calls_of_a_turn(text: str, calls: list[object]) -> None:
    found = [each if isinstance(each, tuple) else each[: each.index("{") + 1] for each in calls_in(text)]
    assert found == calls
