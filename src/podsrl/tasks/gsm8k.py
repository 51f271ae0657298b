"""GSM8K (Cobbe et al. 2021, arXiv 2110.14168): grade-school word problems, 7,473 for training and 1,319 held out."""

from __future__ import annotations

import re

from podsrl.tasks.answers import gsm8k_answer
from podsrl.tasks.base import TaskSet
from podsrl.tasks.published import Problem, Published, load_published
from podsrl.tasks.rows import Row, text_column

_CALCULATOR_MARK = re.compile(r"<<[^<>]*>>")


def load_gsm8k(*, path: str | None = None, num_eval: int | None = 0, seed: int = 0) -> TaskSet:
    """Load GSM8K; see `load_published`.

    A task's answer is the number after `####`; its column "solution" is the published one without the calculator marks
    `<<48/2=24>>`.

    Example:
        >>> import json, tempfile, pathlib
        >>> row = json.dumps({"question": "How many eggs?", "answer": "500 * 2 = <<500*2=1000>>1,000\\n#### 1,000"})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pathlib.Path(folder, "test.jsonl").write_text(row)
        ...     [task] = load_gsm8k(path=folder).eval
        >>> task.id, task.prompt, task.answer, task.columns["solution"]
        ('gsm8k/test/0', 'How many eggs?\\n', '1000', '500 * 2 = 1,000\\n#### 1,000')
    """
    return load_published(GSM8K, path=path, num_eval=num_eval, seed=seed)


def _read(where: str, row: Row) -> Problem:
    solution = text_column(where, row, "answer")
    columns = {name: value for name, value in row.items() if name not in ("question", "answer")}
    return Problem(
        question=text_column(where, row, "question"),
        answer=gsm8k_answer(solution),
        columns={**columns, "solution": _CALCULATOR_MARK.sub("", solution)},
    )


GSM8K = Published(
    name="gsm8k",
    folder="gsm8k",
    train=(("openai/gsm8k", "main", "train"),),
    test=(("openai/gsm8k", "main", "test"),),
    read=_read,
)
