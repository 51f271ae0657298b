"""The data sets of reasoning-gym as a task set, with their verifiers as the reward. See docs/generated-tasks.md.

    pods train --task.name=reasoning_gym --options.reasoning_gym.datasets=leg_counting

Every question is made when the set is loaded: first the held-out ones, then those to train on from other seeds; a
question whose text was there before is left out. A task's columns say how its question is made, so that a worker makes
it again and gives it to the verifier.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import chain
from typing import Annotated, Any, Literal

from pydantic import Field

from podsrl.errors import UsageError, nearest, short
from podsrl.integrations.reasoning_gym_sets import (
    MOST_QUESTIONS,
    Source,
    check_config,
    check_installed,
    check_name,
    entry_of,
    made,
)
from podsrl.score.rewards.extract import answer_pieces
from podsrl.tasks import MOST_HELD_OUT, TaskSet
from podsrl.types import Task

Form = Literal["tags", "line"]
SCORE, ANSWERED = "podsrl.integrations.reasoning_gym:score", "podsrl.integrations.reasoning_gym:answered"
"""The rewards of this task set, as `task.rewards` names them."""
ASKS: Mapping[Form, str] = {
    "tags": "\n\nWrite the final answer, and nothing else, between <answer> and </answer>.\n",
    "line": "\nAnswer:",
}
"""What follows a question, by `form`."""
MAX_CHARACTERS = 4096
"""Of an answer; a longer one is none."""
_HELD_OUT = 1_000_000_000
"""The seed of held-out questions, and 0 of the others: question i of seed s is that of seed s + i in most data sets, so
the seeds of the two sides, and of two levels, lie further apart than there are questions."""


def load_reasoning_gym(
    *,
    datasets: Any = (),
    config: dict[str, dict[str, Any]] | None = None,
    difficulty: int | tuple[int, ...] = (),
    size: Annotated[int, Field(ge=1, le=MOST_QUESTIONS)] = 1024,
    form: Form = "tags",
    num_eval: int | None,
) -> TaskSet:
    """Load data sets of reasoning-gym, or a mixture.

    Args:
        datasets: a name, a list of names, or names with weights, such as `{leg_counting = 2, gcd = 1}`.
        config: name of a data set -> options of its own, such as `{leg_counting = {max_animals = 5}}`.
        difficulty: levels of the data sets' curricula, from 0: the questions are spread evenly over them. Default: no
            level, but what `config` says.
        size: questions to train on, before those are left out that stand there twice.
        form: where the answer stands: between `<answer>` and `</answer>` ("tags", asked as a chat message), or on the
            first line behind "Answer:" ("line", for base models), up to a full stop at its end.
        num_eval: held-out questions, in the same proportions; None: `MOST_HELD_OUT`.

    Returns:
        The set; "leg_counting@2/17" is a question of level 2, "leg_counting@2/eval/17" a held-out one.

    Raises:
        UsageError: the package is missing, or of another release than the one whose verifiers were read; a data set
            does not exist, or is refused (`REFUSED` says why), or refuses its options; no question is left to train on.
    """
    check_installed()
    weights, levels = _weights(datasets), (difficulty,) if isinstance(difficulty, int) else difficulty
    if twice := [level for place, level in enumerate(levels) if level in levels[:place]]:
        raise UsageError(f"options.reasoning_gym.difficulty names {twice[0]} twice; wanted each level once")
    config = config or {}
    for name in config:
        if name not in weights:
            raise UsageError(f"options.reasoning_gym.config.{name}: not among the datasets.{nearest(name, weights)}")
    for name in weights:
        check_config(name, config.get(name, {}), levels)
    num_eval = MOST_HELD_OUT if num_eval is None else num_eval
    if not 1 <= num_eval <= MOST_QUESTIONS:
        raise UsageError(f"task.num_eval = {num_eval}: questions are made on demand: choose 1 or more")
    shares = _sources(weights, config, levels)
    for source in shares:
        made(source, 0, 1)  # what it refuses is said before any question is made
    parts, seen = [], set[str]()
    for count, is_eval in ((num_eval, True), (size, False)):
        counts = dict(zip(shares, shared_out([*shares.values()], count), strict=True))
        drawn = [_draw(source, each, form, seen, is_eval=is_eval) for source, each in counts.items()]
        parts.append((counts, drawn))
    for (source, count), tasks in zip(parts[1][0].items(), parts[1][1], strict=True):
        if count and not tasks:
            raise UsageError(
                f"options.reasoning_gym: all {count:,} questions of {source.title!r} are held out, or stand there "
                f"before: raise options.reasoning_gym.size, lower task.num_eval = {num_eval}, or let its options make "
                "more questions"
            )
    (_, held_out), (_, train) = parts
    titles = [source.title for source in shares]
    return TaskSet(
        name=f"reasoning_gym, {', '.join(titles) if len(titles) < 9 else f'{len(titles)} data sets and levels'}",
        train=tuple(chain.from_iterable(train)),
        eval=tuple(chain.from_iterable(held_out)),
        rewards={SCORE: 1.0, ANSWERED: 0.1},
        correct=SCORE,
        format=ANSWERED,
        chat=form == "tags",
        notes=(*_notes(*parts[0], "held-out"), *_notes(*parts[1], "training")),
    )


def score(task: Task, completion: str) -> float:
    """What the verifier of the task's data set gives for the answer: 1.0 is right, and some give parts of it.

    0.0 where there is no answer, or the verifier fails on it: it was written for any text, and a policy must gain
    nothing by an answer that it cannot read. UsageError: the question is another one in this process.
    """
    columns = task.columns
    answer = find_answer(completion, columns["form"])
    if answer is None:
        return 0.0
    if columns["form"] == "line" and not task.answer.endswith("."):
        answer = answer.removesuffix(".")
    source = Source(name=columns["dataset"], config=columns["config"], level=columns.get("level"))
    seed, size = columns["seed"], columns["size"]
    entry = entry_of(source, seed, size, columns["place"])
    if _answer_of(entry) != task.answer:
        raise UsageError(f"task {task.id!r} has another answer when it is made again")
    try:
        return float(made(source, seed, size).score_answer(answer, deepcopy(entry)))
    except Exception:
        return 0.0


score.worker_modules = {"reasoning_gym"}  # type: ignore[attr-defined]
"""What a worker imports before it judges."""


def answered(task: Task, completion: str) -> float:
    """Whether there is an answer in the form that was asked for, right or wrong: 1.0 or 0.0."""
    return float(find_answer(completion, task.columns["form"]) is not None)


def find_answer(completion: str, form: Form) -> str | None:
    """The one answer of a text; None where there is none, or several that differ.

    Example:
        >>> find_answer("<think><answer>3</answer></think> <answer> 4 </answer>", "tags"), find_answer(" 4\\n5", "line")
        ('4', '4')
    """
    if form == "line":
        found = {completion.strip().partition("\n")[0].strip()}
    else:
        found = {piece.text for piece in answer_pieces(completion) if piece.is_closed and not piece.is_thought}
    answer = found.pop() if len(found) == 1 else ""
    return answer if 0 < len(answer) <= MAX_CHARACTERS else None


def _weights(datasets: Any) -> dict[str, float]:
    where = f"options.reasoning_gym.datasets = {short(datasets)}"
    wanted = "a name, names, or names with weights above 0"
    if not datasets:
        raise UsageError(f"options.reasoning_gym.datasets is not set; wanted {wanted} (pods tasks lists them)")
    names = [datasets] if isinstance(datasets, str) else datasets
    if not isinstance(names, (list, tuple, dict)) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{where}: wanted {wanted}")
    weights = dict(names) if isinstance(names, dict) else dict.fromkeys(names, 1)
    for name, weight in weights.items():
        check_name(name)
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < math.inf:
            raise UsageError(f"options.reasoning_gym.datasets.{name} = {short(weight)}: wanted a weight above 0")
    if len(weights) < len(names):
        raise UsageError(f"{where} has a name twice: give it a weight, as {{leg_counting = 2, gcd = 1}}")
    return weights


def _sources(
    weights: Mapping[str, float], config: Mapping[str, Mapping[str, Any]], levels: Sequence[int]
) -> dict[Source, float]:
    """Each data set at each level, with its share of the questions."""
    total = sum(weights.values())
    each: Sequence[int | None] = levels or [None]
    return {
        Source(name=name, config=json.dumps(config.get(name, {}), sort_keys=True), level=level): (
            weight / total / len(each)
        )
        for name, weight in weights.items()
        for level in each
    }


def shared_out(shares: Sequence[float], size: int) -> list[int]:
    """How many of `size` each share gets; the rounding goes to the largest remainders, and of equal ones to the first.

    Example:
        >>> shared_out([0.5, 0.25, 0.25], 7)
        [3, 2, 2]
    """
    exact = [share * size for share in shares]
    counts = [int(number + 1e-9) for number in exact]
    order = sorted(range(len(exact)), key=lambda place: counts[place] - exact[place])
    for place in order[: size - sum(counts)]:
        counts[place] += 1
    return counts


def _draw(source: Source, count: int, form: Form, seen: set[str], *, is_eval: bool) -> list[Task]:
    """The first `count` questions of one side, without those whose text is in `seen`; theirs are added to it."""
    seed = (_HELD_OUT if is_eval else 0) + MOST_QUESTIONS * (source.level or 0)
    level = {} if source.level is None else {"level": source.level}
    columns = {"dataset": source.name, "config": source.config, **level, "seed": seed, "size": count, "form": form}
    tasks = []
    for place in range(count):
        entry = entry_of(source, seed, count, place)
        prompt = f"{entry['question'].strip()}{ASKS[form]}"
        if prompt not in seen:
            seen.add(prompt)
            id = f"{source.title}/{'eval/' * is_eval}{place}"
            tasks.append(Task(id=id, prompt=prompt, answer=_answer_of(entry), columns={**columns, "place": place}))
    return tasks


def _answer_of(entry: Mapping[str, Any]) -> str:
    """Empty where a question has many answers, and the data set names none."""
    return "" if entry["answer"] is None else str(entry["answer"])


def _notes(counts: Mapping[Source, int], drawn: Sequence[Sequence[Task]], side: str) -> list[str]:
    """How many questions of each source stand there twice."""
    return [
        f"{source.title}: {count - len(tasks):,} of {count:,} {side} questions stand there before and are left out"
        for (source, count), tasks in zip(counts.items(), drawn, strict=True)
        if len(tasks) < count
    ]
