"""Tool calls in what a model wrote, in three forms that chat templates teach.

<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>                        Qwen's, any number in any text
<tool_call><function=add><parameter=a>1</parameter></function></tool_call>           that of Qwen from 3.5 on, likewise
{"name": "add", "parameters": {"a": 1}}                                              Llama's, at the turn's beginning

The arguments may be an object, or its JSON as a text, as OpenAI writes them. What stands in a thought is no call.
"""

from __future__ import annotations

import json
import re
from typing import Any

Call = tuple[str, dict[str, Any]]
"""A tool's name and its arguments."""
_MARKED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_THOUGHT = re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)|(<think>.*?(?:</think>|\Z))", re.DOTALL)
"""A thought, as its group, or a call, whose arguments may hold such tags."""
_BARE = re.compile(r'\s*\{\s*"(?:name|type)"\s*:')
_FUNCTION = re.compile(r"<function=([^>\s]+)>(.*)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_WANTED = 'wanted {"name": TOOL, "arguments": {NAME: VALUE}}'


def calls_in(text: str) -> list[Call | str]:
    """The tool calls of a model's turn, in order; in place of one that cannot be read, why.

    Example:
        >>> calls_in('I add. <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call><tool_call>add 1</tool_call>')
        [('add', {'a': 1}), 'this tool call is no JSON; wanted {"name": TOOL, "arguments": {NAME: VALUE}}']
        >>> calls_in('{"name": "now"}'), calls_in("It is noon.")
        ([('now', {})], [])
        >>> calls_in('<think>{"name": "add"}, or </think>{"name": "now"}')
        [('now', {})]
    """
    begun, closed, behind = text.partition("</think>")
    is_argument = begun.count("<tool_call>") > begun.count("</tool_call>")
    if closed and "<think>" not in begun and not is_argument:  # the prompt's last words opened the thought
        text = behind
    text = _THOUGHT.sub(lambda found: "" if found[1] else found[0], text)
    if marked := _MARKED.findall(text):
        return [_call(body) for body in marked]
    return [_call(text)] if _BARE.match(text) else []


def _call(body: str) -> Call | str:
    if tagged := _FUNCTION.match(body.strip()):
        return tagged[1], {name: _value(text) for name, text in _PARAMETER.findall(tagged[2])}
    try:
        found, _ = json.JSONDecoder().raw_decode(body.strip())
    except (ValueError, RecursionError):
        return f"this tool call is no JSON; {_WANTED}"
    if not isinstance(found, dict) or not isinstance(name := found.get("name"), str):
        return f"this is no tool call; {_WANTED}"
    values = found.get("arguments", found.get("parameters", {}))
    if isinstance(values, str):
        values = _value(values.strip() or "{}")
    return (name, values) if isinstance(values, dict) else f"the arguments of this tool call are no object; {_WANTED}"


def _value(text: str) -> Any:
    """A list or an object from JSON; any other text as it is, because the tool's own types say what it means."""
    try:
        return json.loads(text) if text[:1] in ("[", "{") else text
    except (ValueError, RecursionError):
        return text
