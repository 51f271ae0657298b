"""Prompts as text for people: in logs and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def prompt_text(prompt: str | Sequence[Mapping[str, str]]) -> str:
    """A prompt as one text: chat messages as "role: content", one per line.

    Example:
        >>> prompt_text([{"role": "user", "content": "1+2="}, {"role": "assistant", "content": "3"}])
        'user: 1+2=\\nassistant: 3'
    """
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{message['role']}: {message['content']}" for message in prompt)
