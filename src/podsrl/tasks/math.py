"""MATH (Hendrycks et al. 2021, arXiv 2103.03874): competition problems; held out is MATH-500 (Lightman et al. 2023).

On the hub the training side is the published training split, all seven subjects: 7,500 problems, as in PODS. MATH-500
is drawn from the test split.
"""

from __future__ import annotations

from dataclasses import replace

from podsrl.lib.boxed import boxed_answer
from podsrl.tasks.base import TaskSet
from podsrl.tasks.published import Problem, Published, load_published
from podsrl.tasks.rows import Row, text_column

_SUBJECTS = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)


def load_math(*, path: str | None = None, num_eval: int | None = 0, seed: int = 0) -> TaskSet:
    """Load MATH; see `load_published`.

    A task's answer is what the solution's last box holds (MATH-500 gives it in a column of its own). Its columns
    "solution", "level" (as text: "Level 3") and "subject" (also as "type") are there on both sides.
    """
    return load_published(MATH, path=path, num_eval=num_eval, seed=seed)


def load_math500(*, path: str | None = None, num_eval: int | None = 0, seed: int = 0) -> TaskSet:
    """Load MATH under the name of what is held out, which is the same."""
    return load_published(replace(MATH, name="math500"), path=path, num_eval=num_eval, seed=seed)


def _read(where: str, row: Row) -> Problem:
    solution = text_column(where, row, "solution")
    subject, level = row.get("subject", row.get("type")), row.get("level")
    columns = {name: value for name, value in row.items() if name not in ("problem", "answer")}
    return Problem(
        question=text_column(where, row, "problem"),
        answer=text_column(where, row, "answer").strip() if "answer" in row else boxed_answer(solution),
        columns={
            **columns,
            "level": f"Level {level}" if isinstance(level, int) else level,
            "subject": subject,
            "type": subject,
        },
    )


MATH = Published(
    name="math",
    folder="math",
    train=tuple(("EleutherAI/hendrycks_math", subject, "train") for subject in _SUBJECTS),
    test=(("HuggingFaceH4/MATH-500", None, "test"),),
    read=_read,
)
