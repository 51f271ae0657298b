"""Rewards for the form `<think> … </think> <answer> … </answer>`, as the PODS paper's two settings use them.

Single GPU: `think_format` and `tag_count`. Several GPUs, where each tag stands on a line of its own: `strict_format`
and `tag_share`. None looks at what the tags hold. White space around the whole text never counts.
"""

from __future__ import annotations

import re

from podsrl.types import Task

TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_TAGS_ON_LINES = ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>")
_NO_TAG = r"[^<]*(?:<(?!/?(?:think|answer)>)[^<]*)*"
_BLOCK = re.compile(rf"<think>{_NO_TAG}</think>[ \n]?<answer>{_NO_TAG}</answer>")
_LINES = re.compile(rf"<think>\n{_NO_TAG}\n</think>\n<answer>\n{_NO_TAG}\n</answer>")
_COST_OF_A_CHARACTER = 0.01


def think_format(task: Task, completion: str) -> float:
    """Say how nearly the text is one `<think>…</think><answer>…</answer>` and nothing else.

    Returns:
        1 for the block alone (one space or line break may stand between its halves), 0.01 less for each character
        outside it, at least 0; 0 without a block. A tag inside a half spoils it.

    Source: PODS (arXiv:2504.13818), single-GPU settings.

    Example:
        >>> task = Task(id="1+2", prompt="1+2=", answer="3")
        >>> think_format(task, "<think>1+2</think> <answer>3</answer> Done"), think_format(task, "3")
        (0.95, 0.0)
    """
    text = completion.strip()
    block = _BLOCK.search(text)
    if block is None:
        return 0.0
    num_extra = len(text) - (block.end() - block.start())
    return max(0.0, 1.0 - _COST_OF_A_CHARACTER * num_extra)


def tag_count(task: Task, completion: str) -> float:
    """Give a quarter for each of the four tags that occurs exactly once, wherever it stands.

    Returns:
        0, 0.25, 0.5, 0.75 or 1.

    Source: PODS (arXiv:2504.13818), single-GPU settings.

    Example:
        >>> tag_count(Task(id="1+2", prompt="1+2=", answer="3"), "<think>1+2 <answer>3</answer><answer>4")
        0.5
    """
    return sum(completion.count(tag) == 1 for tag in TAGS) / len(TAGS)


def strict_format(task: Task, completion: str) -> float:
    """Say whether the text is the block with each of its four tags on a line of its own, and nothing else.

    Returns:
        1.0 or 0.0.

    Source: PODS (arXiv:2504.13818), multi-GPU settings.

    Example:
        >>> text = "<think>\\n1+2\\n</think>\\n<answer>\\n3\\n</answer>"
        >>> task = Task(id="1+2", prompt="1+2=", answer="3")
        >>> strict_format(task, text), strict_format(task, text.replace("\\n", " "))
        (1.0, 0.0)
    """
    return 1.0 if _LINES.fullmatch(completion.strip()) else 0.0


def tag_share(task: Task, completion: str) -> float:
    """Give a quarter for each of the four tags that occurs, with its line breaks, exactly once.

    Returns:
        0, 0.25, 0.5, 0.75 or 1.

    Source: PODS (arXiv:2504.13818), multi-GPU settings.

    Example:
        >>> tag_share(Task(id="1+2", prompt="1+2=", answer="3"), "<think>\\n1+2\\n</think>\\n<answer>3</answer>")
        0.5
    """
    return sum(completion.count(tag) == 1 for tag in _TAGS_ON_LINES) / len(_TAGS_ON_LINES)
