"""Which steps of an answer to a story are right: what search and repair start from.

A step is a sentence of the answer. It is right where it says what is true of the story at its place; so a step that
goes on without a mistake from a wrong number is wrong, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile

from podsrl.errors import UsageError
from podsrl.tasks.steps import VERBS, Story
from podsrl.tasks.steps_solutions import STYLES, end_text, read_rightly, remainder, solution, step_text
from podsrl.types import Task

_QUESTION = re.compile(
    r"(?P<name>[A-Z][a-z]+) has (?P<start>\d{1,2}) (?P<things>[a-z]+)\. (?P<told>(?:[A-Z][a-z]+ she [a-z]+ \d\. ){1,8})"
    r"(?:How many (?P=things) are left|(?P<tens>In tens, are five or more left over))\?\n",
    re.ASCII,
)
_SENTENCE_OF_SOLUTION = re.compile(r"[^. ][^.]*\.")
_SENTENCE = re.compile(r"[^.]*\.|[^.]+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One sentence of an answer."""

    start: int
    """Place of its first character in the answer, white space before it not counted."""
    end: int
    """Place after its last."""
    is_right: bool


def read_story(question: str) -> Story:
    """The story that a question tells. UsageError: it is no question of 'steps'.

    Example:
        >>> read_story("Ann has 47 pens. First she finds 5. Second she sells 3. How many pens are left?\\n").totals
        (52, 49)
    """
    match = _QUESTION.fullmatch(question)
    told = re.findall(r"she ([a-z]+) (\d)\.", match["told"]) if match else []
    if match is not None and {word for word, _ in told} <= VERBS.keys():
        story = Story(
            name=match["name"],
            things=match["things"],
            start=int(match["start"]),
            words=tuple(word for word, _ in told),
            operands=tuple(int(number) for _, number in told),
            in_tens=match["tens"] is not None,
        )
        if story.question == question:
            return story
    raise UsageError(f"{question[:80]!r} is no question of the task set 'steps': only their steps can be judged")


def worked_solution(task: Task) -> str:
    """The right solution of a question of 'steps', for parts that show one."""
    story = read_story(str(task.prompt))
    return solution(story, read_rightly(story))


def judge_steps(question: str, answer: str) -> tuple[Step, ...]:
    """Judge each sentence of an answer.

    A sentence with a sum that begins with no "Check:" is the step of a verb, the first one of the first verb and so on.
    A sentence is right if it is, letter by letter, what a right solution has there in one of the `STYLES`. After the
    steps of all verbs these are the remainder, if the question asks for one, and the end, in either form. A check
    belongs to the step before it. Anything else, what follows the end and a sentence that was cut off are wrong steps.

    Args:
        question: of the task set 'steps'.
        answer: any text.

    Returns:
        The sentences in their order; they cover the text but for white space between them. Empty for an empty text.

    Raises:
        UsageError: the question is none of 'steps'.

    Example:
        >>> question = "Ann has 47 pens. First she finds 5. Second she sells 3. In tens, are five or more left over?\\n"
        >>> answer = "First 47+5=52. Second 52+3=55. 5 over. Answer: 1."
        >>> [step.is_right for step in judge_steps(question, answer)]
        [True, False, False, True]
    """
    story = read_story(question)
    judged, place, is_over = [], 0, False
    for match in _SENTENCE.finditer(answer):
        if text := match[0].strip():
            start = match.start() + len(match[0]) - len(match[0].lstrip())
            place += _is_step_of_verb(text)
            is_right = not is_over and text in _right_texts(story, place, text)
            is_over = is_over or text.startswith(("Answer:", "So it is"))
            judged.append(Step(start=start, end=start + len(text), is_right=is_right))
    return tuple(judged)


def first_wrong(question: str, answer: str) -> int | None:
    """Place in the text where its first wrong step begins, from which a repair goes on; None: all steps are right.

    Example:
        >>> question = "Ann has 47 pens. First she finds 5. Second she sells 3. In tens, are five or more left over?\\n"
        >>> answer = "First 47+5=52. Second 52+3=55. 5 over. Answer: 1."
        >>> answer[: first_wrong(question, answer)]
        'First 47+5=52. '
    """
    return next((step.start for step in judge_steps(question, answer) if not step.is_right), None)


def repair(task: Task, answer: str) -> tuple[int, str] | None:
    """The place of an answer's first wrong step, and what a right solution says from there on; None: the first step is
    wrong, or none is.

    Example:
        >>> question = "Ann has 47 pens. First she finds 5. Second she sells 3. In tens, are five or more left over?\\n"
        >>> answer = "First 47+5=52. Second 52+3=55. 5 over. Answer: 1."
        >>> place, rest = repair(Task(id="a", prompt=question, answer="1"), answer)
        >>> answer[:place], rest
        ('First 47+5=52. ', 'Second 52-3=49. 9 over. Answer: 1.')
    """
    steps = judge_steps(str(task.prompt), answer)
    right = list(takewhile(lambda step: step.is_right, steps))
    if not right or len(right) == len(steps):
        return None
    told = [answer[step.start : step.end] for step in right]
    place = sum(not text.startswith("Check:") for text in told)
    rest = " ".join(_SENTENCE_OF_SOLUTION.findall(worked_solution(task))[place:])
    return (steps[len(right)].start, rest) if rest else None


def _is_step_of_verb(text: str) -> bool:
    return re.search(r"[+-]\d+=", text, re.ASCII) is not None and not text.startswith("Check:")


def _right_texts(story: Story, place: int, text: str) -> set[str]:
    """What a right sentence can be, `place` steps of verbs with its own counted."""
    totals = (story.start, *story.totals)
    if _is_step_of_verb(text) or text.startswith("Check:"):
        if not 1 <= place <= len(story.words):
            return set()
        sign = read_rightly(story)[place - 1]
        told = [step_text(story, place - 1, totals[place - 1], sign, style) for style in STYLES]
        return {sentence.strip() for each in told for sentence in _SENTENCE.findall(each)}
    if place != len(story.words):
        return set()
    return {*remainder(story, totals[-1]), *(end_text(story, totals[-1], is_stated) for is_stated in (True, False))}
