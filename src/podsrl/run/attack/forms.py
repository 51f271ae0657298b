"""How an honest answer is written: the forms that a reward may want.

In: an answer. Out: a whole completion.
"""

from __future__ import annotations

from collections.abc import Mapping

THOUGHT = "I work it out step by step."

_FORMS: Mapping[str, tuple[str, str]] = {
    "tags": (f"<think>{THOUGHT}</think> <answer>", "</answer>"),
    "tags on lines": (f"<think>\n{THOUGHT}\n</think>\n<answer>\n", "\n</answer>"),
    "box": (f"{THOUGHT} So the answer is $\\boxed{{", "}$."),
    "box in tags": (f"<think>{THOUGHT}</think> <answer>\\boxed{{", "}</answer>"),
    "mark": (f"{THOUGHT} Answer: ", "."),
    "hashes": (f"{THOUGHT}\n#### ", ""),
    "bare": ("", ""),
}
"""What stands before the answer, and after it."""

FORMS = tuple(_FORMS)
"""Their names."""


def written(form: str, answer: str) -> str:
    """Write an answer in a form.

    Example:
        >>> written("mark", "18")
        'I work it out step by step. Answer: 18.'
    """
    before, after = _FORMS[form]
    return f"{before}{answer}{after}"
