"""One self-contained HTML page of stored completions: each question with what was answered, right or wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from podsrl.errors import UsageError
from podsrl.lib.text import prompt_text
from podsrl.report import numbers
from podsrl.report.page import render_page, write_page
from podsrl.tools.completions import Stored, read_completions


class Question(NamedTuple):
    """One question with its completions, in the file's order."""

    id: str
    prompt: str
    """Chat messages are written as "role: content", one after another."""
    answer: str
    completions: Sequence[Stored]


def write_completions_report(path: Path, out: Path, *, max_questions: int = 300) -> Path:
    """Write one HTML file about the completions in `path` (`podsrl.tools.completions`), in place of an older one.

    The page has at most `max_questions`, evenly spread, and says what is left out.

    Raises:
        UsageError: the completions cannot be read, or `out` is a folder, or the file that is read.
    """
    if out.is_dir() or out.resolve() == path.resolve():
        raise UsageError(f"{out} is {'a folder' if out.is_dir() else 'what is read'}; give the HTML file to write")
    stored = read_completions(path)
    questions = _questions(stored)
    count = min(max_questions, len(questions))
    shown = [questions[i] for i in np.linspace(0, len(questions) - 1, count).round().astype(int).tolist()]
    labelled = [one for one in stored if one.label is not None]
    page = render_page(
        "completions.html.j2",
        title=path.name,
        questions=shown,
        num_questions=len(questions),
        num_completions=len(stored),
        share_right=sum(one.label is True for one in labelled) / len(labelled) if labelled else None,
        num_labelled=len(labelled),
        num_invalid=sum(one.invalid_reason is not None for one in stored),
        num_cut=sum(one.finish_reason == "length" for one in stored),
        numbers=numbers,
    )
    write_page(out, page)
    return out


def _questions(stored: Sequence[Stored]) -> list[Question]:
    """By id, prompt and answer, because a file may join several sets whose ids are the same."""
    found: dict[tuple[str, str, str], list[Stored]] = {}
    for one in stored:
        prompt = prompt_text(one.task.prompt)
        name = "" if one.task.id == one.where else one.task.id  # a file without ids names each line
        found.setdefault((name, prompt, one.task.answer), []).append(one)
    return [
        Question(name or f"question {number}", prompt, answer, completions)
        for number, ((name, prompt, answer), completions) in enumerate(found.items(), start=1)
    ]
