"""The form `<think> … </think> <answer> … </answer>`, and how well a text has it."""

from __future__ import annotations

from podsrl.types import Task

TAGS = ("<think>", "</think>", "<answer>", "</answer>")


def answer_format(task: Task, completion: str) -> float:
    """How nearly the text is one `<think>…</think>` and one `<answer>…</answer>`, each with something in it.

    Returns:
        A quarter for each: one closed answer that holds a letter or digit; one such thought; both, the thought first;
        only white space around them.

    The answer and the thought count only where each of their tags occurs exactly once. An empty form earns nothing.

    Example:
        >>> task = Task(id="1+2", prompt="1+2=", answer="3")
        >>> answer_format(task, "<think>1+2</think> <answer>3</answer>"), answer_format(task, "<answer>3</answer>")
        (1.0, 0.25)
    """
    thought, answer = (_span(completion, *tags) for tags in (TAGS[:2], TAGS[2:]))
    if thought is None or answer is None:
        return 0.25 * ((thought is not None) + (answer is not None))
    if thought[1] > answer[0]:
        return 0.5
    outside = completion[: thought[0]] + completion[thought[1] : answer[0]] + completion[answer[1] :]
    return 0.75 if outside.strip() else 1.0


def _span(text: str, start: str, end: str) -> tuple[int, int] | None:
    """Start and end of the one pair of tags; None where there is none, or nothing in it."""
    if text.count(start) != 1 or text.count(end) != 1:
        return None
    first, last = text.index(start), text.index(end)
    inside = text[first + len(start) : last]
    return (first, last + len(end)) if any(map(str.isalnum, inside)) else None
