"""Try reward functions on stored completions: values, times, failures, repeatability, agreement with labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from inspect import signature
from operator import ne
from typing import Any

import numpy as np

from podsrl.config.schema import RunConfig
from podsrl.errors import RewardError
from podsrl.lib.callbacks import Progress, no_progress
from podsrl.run.before.data import load_task_set
from podsrl.score.base import Reward, Rows, Values
from podsrl.score.forms import RowForm, judge_of
from podsrl.score.panel import Panel
from podsrl.score.rewards import find_reward
from podsrl.tools.completions import Stored

_PART = 64
"""Rows between two looks at the progress; a function of TRL's form is called with all rows at once."""
NUM_SHOWN = 5
"""Disagreements that are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A completion on which reward and label differ."""

    where: str
    label: bool
    value: float | None
    answer: str
    completion_end: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """A reward's verdict (value at least 1) against the labels; an invalid row counts as judged wrong."""

    num_labels: int
    accuracy: float
    precision: float | None
    """Of what the reward calls right, the share that is; None where it calls nothing right."""
    recall: float | None
    """Of what is right, the share that the reward calls so; None where nothing is right."""
    num_disagreements: int
    disagreements: tuple[Disagreement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardCheck:
    """The findings about one reward function."""

    name: str
    form: str
    """"row": called once per completion. "batch": called once per step."""
    weight: float
    num_rows: int = 0
    mean: float | None = None
    """Over the valid rows."""
    num_distinct: int = 0
    num_invalid: Mapping[str, int] = field(default_factory=dict)
    """How often each kind of failure occurred: raised, none, not_finite, not_a_number, timeout, died."""
    first_reason: str | None = None
    """The first failure, in words."""
    first_failure: str | None = None
    """It with the completion that it is about, and the cure."""
    num_stopped: int = 0
    """Rows of a known reward that ran out of time or memory: value 0, a wrong answer, and not invalid."""
    stopped_reason: str | None = None
    """Why the first of them was stopped."""
    num_changed: int = 0
    """Rows with another value, or failure, the second time."""
    milliseconds: Mapping[str, float] | None = None
    """Time for one completion (p50, p90, p99, max); None where the function was not called or broke its contract."""
    agreement: Agreement | None = None
    no_limit: str | None = None
    """That no time limit held, and why; None where one did."""
    reads_token_ids: bool
    """It asks for `completion_ids`; stored completions have none, so it was given empty lists."""
    broken: str | None = None
    """How it breaks its contract for a whole batch: a run would end with this error."""

    @property
    def problems(self) -> list[str]:
        """Why a run with this reward would fail; empty where it would not."""
        if self.broken is not None:
            return [self.broken]
        if self.num_invalid.get("not_a_number"):
            return [f"{self.first_reason}; wanted a number for each completion"]
        if self.num_rows and sum(self.num_invalid.values()) == self.num_rows:
            what = "no completion got a value, so nothing could be trained on"
            return [f"reward '{self.name}': {what}; first: {self.first_failure}"]
        return []

    @property
    def warnings(self) -> list[str]:
        """What a person should look at, though a run would go on."""
        found = [] if self.no_limit is None else [self.no_limit]
        if self.num_distinct == 1 and self.num_rows > 1:
            found.append(f"reward '{self.name}' gave every completion the same value, so it teaches nothing here")
        if 0 < (num_invalid := sum(self.num_invalid.values())) < self.num_rows:
            found.append(f"{num_invalid} of {self.num_rows} completions would be invalid; first: {self.first_failure}")
        if self.num_stopped:
            found.append(
                f"{self.num_stopped} of {self.num_rows} completions were stopped at the limit and counted as wrong; "
                f"first: {self.stopped_reason}"
            )
        if self.num_changed:
            found.append(f"reward '{self.name}' gave another value the second time for {self.num_changed} completions")
        if self.reads_token_ids:
            found.append(f"reward '{self.name}' reads completion_ids, which stored completions lack: got empty lists")
        return found

    def to_json(self) -> dict[str, Any]:
        """All fields, the problems and the warnings."""
        return {**asdict(self), "problems": self.problems, "warnings": self.warnings}


def rewards_of(config: RunConfig) -> tuple[Mapping[str, float], str]:
    """Rewards and judge of a config; what its task section leaves open is read from its task set."""
    task = config.task
    if task.rewards is not None and task.correct is not None:
        return task.rewards, task.correct
    tasks = load_task_set(task, config.options)
    return task.rewards or tasks.rewards, task.correct or tasks.correct


def find_functions(rewards: Mapping[str, float], correct: str | None) -> dict[str, Reward]:
    """Find the functions by name.

    Raises:
        UsageError: a name is unknown, an import fails, or a function has neither form.
    """
    options = dict.fromkeys(rewards, "--reward")
    if correct is not None:
        options.setdefault(correct, "--correct")
    functions = {name: find_reward(name, option=option) for name, option in options.items()}
    for name, function in functions.items():
        judge_of(name, function)
    return functions


def check_rewards(
    rewards: Mapping[str, float],
    correct: str | None,
    stored: Sequence[Stored],
    *,
    num_workers: int = 0,
    timeout_seconds: float = 10.0,
    batch_timeout_seconds: float = 300.0,
    progress: Progress = no_progress,
) -> list[RewardCheck]:
    """Judge every completion twice by every reward; `correct` names the one that is compared with the labels.

    Args:
        num_workers: processes for functions of the row form; 0: one per core.
        timeout_seconds: limit for one function on one completion.
        batch_timeout_seconds: limit for a function of TRL's form on all completions.
        progress: judgements done, out of all.

    Raises:
        UsageError: a name is unknown, or a function has neither form.
    """
    functions = find_functions(rewards, correct)
    rows = Rows(tasks=[row.task for row in stored], texts=[row.text for row in stored], token_ids=[()] * len(stored))
    checks = []
    for place, (name, function) in enumerate(functions.items()):

        def tell(done: int, place: int = place, name: str = name) -> None:
            progress(2 * len(stored) * place + done, 2 * len(stored) * len(functions), name)

        new_panel = partial(
            Panel,
            {name: "--reward"},
            num_workers=num_workers,
            timeout_seconds=timeout_seconds,
            batch_timeout_seconds=batch_timeout_seconds,
        )
        found = RewardCheck(
            name=name,
            form="row" if isinstance(judge_of(name, function), RowForm) else "batch",
            weight=rewards.get(name, 0.0),
            reads_token_ids="completion_ids" in signature(function).parameters,
        )
        try:
            first, second, no_limit = _judge_twice(found, new_panel, rows, tell)
        except RewardError as error:
            checks.append(replace(found, broken=str(error)))
            continue
        found = replace(found, num_changed=_num_changed(first, second), no_limit=no_limit)
        checks.append(_with_values(found, first, stored, is_judge=name == correct))
    return checks


def _judge_twice(
    found: RewardCheck, new_panel: Callable[[], Panel], rows: Rows, tell: Callable[[int], None]
) -> tuple[Values, Values, str | None]:
    """Judge twice, so that a function with a memory is found out; besides, the warning that it has no time limit.

    The second time the row form gets the rows in reverse order in fresh processes. TRL's form gets the same call again
    in the same process, as a run makes one call after the other.
    """
    is_row = found.form == "row"
    part = _PART if is_row else len(rows)

    def judge(panel: Panel, rows: Rows, num_done: int) -> Values:
        return panel.judge_in_parts(found.name, rows, part, lambda done: tell(num_done + done))

    with new_panel() as panel:
        first, no_limit = judge(panel, rows, 0), next(iter(panel.warnings), None)
        if not is_row:
            return first, judge(panel, rows, len(rows)), no_limit
        with new_panel() as fresh:
            last = len(rows) - 1
            second = judge(fresh, rows.part(slice(None, None, -1)), len(rows))
    faults = {last - row: fault for row, fault in second.faults.items()}
    return first, Values(values=second.values[::-1], faults=faults), no_limit


def _num_changed(first: Values, second: Values) -> int:
    one, other = (
        [values.faults[row].kind if row in values.faults else value for row, value in enumerate(values.values)]
        for values in (first, second)
    )
    return sum(map(ne, one, other))


def _with_values(found: RewardCheck, values: Values, stored: Sequence[Stored], *, is_judge: bool) -> RewardCheck:
    faults, stopped = values.faults, values.stopped
    valid = [value for row, value in enumerate(values.values) if row not in faults]
    percentiles = zip(("p50", "p90", "p99", "max"), (50, 90, 99, 100), strict=True)
    return replace(
        found,
        num_rows=len(values.values),
        mean=float(np.mean(valid)) if valid else None,
        num_distinct=len(set(valid)),
        num_invalid=dict(Counter(fault.kind for fault in faults.values())),
        first_reason=faults[min(faults)].reason if faults else None,
        first_failure=faults[min(faults)].on(stored[min(faults)].text) if faults else None,
        num_stopped=len(stopped),
        stopped_reason=stopped[min(stopped)].reason if stopped else None,
        milliseconds={name: 1e3 * float(np.percentile(values.seconds, share)) for name, share in percentiles}
        if values.seconds
        else None,
        agreement=agreement_of(stored, values) if is_judge else None,
    )


def agreement_of(stored: Sequence[Stored], values: Values) -> Agreement | None:
    """Compare a reward's values, one per completion, with the labels; None where nothing has a label.

    Example:
        >>> from podsrl.types import Task
        >>> task = Task(id="1+2", prompt="1+2=", answer="3")
        >>> stored = [Stored(where="", task=task, text=text, label=text == "3") for text in ("3", "4", "5", "6")]
        >>> agreement_of(stored, Values(values=[1.0, 1.0, 0.0, 0.0], faults={})).accuracy
        0.75
    """
    labelled = [(row, one.label) for row, one in enumerate(stored) if one.label is not None]
    if not labelled:
        return None
    said = {row: row not in values.faults and values.values[row] >= 1 for row, _ in labelled}
    both = sum(label and said[row] for row, label in labelled)
    num_right, num_said = sum(label for _, label in labelled), sum(said.values())
    different = [row for row, label in labelled if label != said[row]]
    return Agreement(
        num_labels=len(labelled),
        accuracy=1 - len(different) / len(labelled),
        precision=both / num_said if num_said else None,
        recall=both / num_right if num_right else None,
        num_disagreements=len(different),
        disagreements=tuple(
            Disagreement(
                where=stored[row].where,
                label=bool(stored[row].label),
                value=None if row in values.faults else values.values[row],
                answer=stored[row].task.answer,
                completion_end=stored[row].text[-80:],
            )
            for row in different[:NUM_SHOWN]
        ),
    )
