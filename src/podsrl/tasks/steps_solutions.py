"""Solutions of stories: what the base model of 'steps' is pretrained on, right and wrong ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from podsrl.tasks.steps import ORDINALS, VERBS, Story

STYLES: Mapping[str, float] = {"plain": 0.7, "worded": 0.2, "long": 0.07, "checked": 0.03}
"""Ways to word a solution -> their share of the pretraining texts. The style of a solution says nothing about whether
it is right; long ones give the answers' lengths their tail."""


def read_rightly(story: Story) -> tuple[int, ...]:
    """The true meanings of a story's verbs: 1, -1 or 0 each."""
    return tuple(VERBS[word].sign for word in story.words)


def solution(story: Story, signs: Sequence[int], *, style: str = "plain", is_stated: bool = True) -> str:
    """What follows from these meanings of the verbs.

    Example:
        >>> story = Story(name="Ann", things="pens", start=47, words=("finds", "sells"), operands=(5, 3), in_tens=True)
        >>> solution(story, read_rightly(story))
        'First 47+5=52. Second 52-3=49. 9 over. Answer: 1.'
        >>> solution(story, (1, 0), style="worded", is_stated=False)
        'First she finds 5: 47+5=52. Second she sells 3: 52+0=52. 2 over. So it is 0.'
    """
    totals = (story.start, *story.read(signs))
    steps = [step_text(story, place, totals[place], sign, style) for place, sign in enumerate(signs)]
    return " ".join([*steps, *remainder(story, totals[-1]), end_text(story, totals[-1], is_stated)])


def step_text(story: Story, place: int, before: int, sign: int, style: str) -> str:
    """The step of one verb, from the number before it: one sentence, or two where it is checked.

    Example:
        >>> story = Story(name="Ann", things="pens", start=47, words=("finds", "sells"), operands=(5, 3))
        >>> step_text(story, 1, 52, -1, "checked")
        'Second she sells 3 pens, so Ann has 52-3=49 pens. Check: 49+3=52.'
    """
    start, n = ORDINALS[place], story.operands[place]
    change, after = (n if sign else 0), before + sign * n
    equation = f"{before}{'-' if sign < 0 else '+'}{change}={after}"
    if style == "plain":
        return f"{start} {equation}."
    if style == "worded":
        return f"{start} she {story.words[place]} {n}: {equation}."
    told = f"{start} she {story.words[place]} {n} {story.things}, so {story.name} has {equation} {story.things}."
    check = f" Check: {after}{'+' if sign < 0 else '-'}{change}={before}."
    return told + check * (style == "checked")


def remainder(story: Story, last: int) -> list[str]:
    """The sentence that says what is left over from tens, if the question asks for it."""
    return [f"{last % 10} over."] if story.in_tens else []


def end_text(story: Story, last: int, is_stated: bool = True) -> str:
    """The last sentence, in the form that the reward asks for or in another one."""
    return f"{'Answer:' if is_stated else 'So it is'} {story.conclude(last)}."
