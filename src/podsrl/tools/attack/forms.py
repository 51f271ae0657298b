"""How an honest answer is written: the forms that a reward may want."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from podsrl.tools.completions import Stored

Form = tuple[str, str]
"""What stands before the answer, and after it."""

THOUGHT = "I work it out step by step."

FORMS: Mapping[str, Form] = {
    "tags": (f"<think>{THOUGHT}</think> <answer>", "</answer>"),
    "tags on lines": (f"<think>\n{THOUGHT}\n</think>\n<answer>\n", "\n</answer>"),
    "box": (f"{THOUGHT} So the answer is $\\boxed{{", "}$."),
    "box in tags": (f"<think>{THOUGHT}</think> <answer>\\boxed{{", "}</answer>"),
    "mark": (f"{THOUGHT} Answer: ", "."),
    "hashes": (f"{THOUGHT}\n#### ", ""),
    "bare": ("", ""),
}
BLOCK: Mapping[str, Form] = {"block": (f"{THOUGHT}\n```python\n", "\n```")}
"""Of a program."""


def written(form: str, answer: str) -> str:
    """Write an answer in a form.

    Example:
        >>> written("mark", "18")
        'I work it out step by step. Answer: 18.'
    """
    return filled(FORMS[form], answer)


def filled(form: Form, answer: str) -> str:
    """Write an answer in a form of one's own.

    Example:
        >>> filled(('{"result": "', '"}'), "18")
        '{"result": "18"}'
    """
    before, after = form
    return f"{before}{answer}{after}"


def form_of(stored: Sequence[Stored]) -> Form | None:
    """The form of the first completion that is known to be right and holds its reference answer exactly once."""
    for one in stored:
        answer = one.task.answer.strip()
        if one.label and answer and one.text.count(answer) == 1:
            before, _, after = one.text.partition(answer)
            return before, after
    return None
