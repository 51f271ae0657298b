"""SVAMP (Patel et al. 2021, arXiv 2103.07191): short word problems, on the hub 700 for training and 300 held out."""

from __future__ import annotations

from typing import Any

from podsrl.tasks.answers import plain_number
from podsrl.tasks.base import TaskSet
from podsrl.tasks.published import Problem, Published, load_published
from podsrl.tasks.rows import Row, column, text_column


def load_svamp(*, path: str | None = None, num_eval: int | None = 0, seed: int = 0) -> TaskSet:
    """Load SVAMP; see `load_published`.

    Rows have the published columns (Body, Question, Answer), or "question" and "answer". A folder whose
    test split is all 1,000 problems, as the authors used them, is for evaluation only.
    """
    return load_published(SVAMP, path=path, num_eval=num_eval, seed=seed)


def _read(where: str, row: Row) -> Problem:
    if "Body" in row:
        question = f"{text_column(where, row, 'Body').strip()} {text_column(where, row, 'Question').strip()}"
        answer: Any = column(where, row, "Answer")
    else:
        question, answer = text_column(where, row, "question"), column(where, row, "answer")
    columns = {name: value for name, value in row.items() if name not in ("question", "answer")}
    return Problem(question=question, answer=plain_number(str(answer)), columns=columns)


SVAMP = Published(
    name="svamp",
    folder="svamp",
    train=(("ChilleD/SVAMP", None, "train"),),
    test=(("ChilleD/SVAMP", None, "test"),),
    read=_read,
)
