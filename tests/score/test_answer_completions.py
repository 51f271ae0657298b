r"""Completions as the models of the paper write them, and beside each one of the same shape that must not be paid."""

from loops import each
from podsrl.score.rewards.answers import math_correct
from podsrl.types import Task

QUESTION = "Tom gets {a} boxes with {b} eggs each, on {c} days. How many eggs does Tom get?"
NUMBERS = [
    (a, b, c) for a, b in ((3, 60), (5, 7), (12, 20), (24, 50), (6, 9), (31, 40)) for c in (8, 17)
]  # twelve, with c in no other place
PATTERNS = {  # a * b = p, p * c = v, which is right; w = v + 1
    "<answer>{a} x {b} = {p},\n{p} x {c} = {v}</answer>": "<answer>{a} x {b} = {w},\n{p} x {c} = {v}</answer>",
    "<answer>{a} * {b} = {p} eggs\n{p} * {c} = {v} eggs</answer>": "<answer>{w} = {w}\n{p} * {c} = {v} eggs</answer>",
    "<answer>{a} × {b} = {p}. Then {p} × {c} = {v}.</answer>": "<answer>{c} × {b} = {p}. {p} × {c} = {v}.</answer>",
    "<answer>{p} * {c} = {v}\nAnswer: {v}</answer>": "<answer>{p} * {c} = {w}\nAnswer: {v}</answer>",
    "{p} * {c} = {v}\nAnswer: {v}": "Answer: {w}\nAnswer: {v}",
    "<answer>The answer should be {v}.</answer>": "<answer>The answer should be {v} or {w}.</answer>",
    "The answer should be {v}.": "The answer could be {v}.",
    "<answer>There are {a} boxes with {b} eggs each. These are {a} x {b} = {p} eggs every day. On {c} days Tom gets {p}"
    " x {c} = {v} eggs. So the answer is {v}.</answer>": "<answer>There are {w}. All = {w}.\n{v}</answer>",
    "<answer>Tom gets {a} boxes of {b} eggs and has {v} eggs.</answer>": "<answer>He has {w} and has {v}.</answer>",
    "<answer>Tom gets {v} eggs from the {a} boxes.</answer>": "<answer>Tom gets {v} eggs minus the {a} boxes.</answer>",
    "<think>{a} * {b} = {p}, so it is \\boxed{{{v}}} </think>": "<think>{p}, so it is \\boxed{{{v}}} </think> {w}",
    "{p} * {c} is \\boxed{{{v}}}\n</think>\n": "{p} * {c} is {v}\n</think>\n",
    "<answer>{v}</answer>" * 9 + "<answer>{v}</ans": "<answer>{w}</answer><answer>{v}</answer>" * 5
    + "<answer>{v}</ans",
    "<answer>{v}</answer>\n" * 9 + "<ans": "<answer>{w}</answer>\n" + "<answer>{v}</answer>\n" * 9 + "<ans",
    "{v}</answer>\n" * 9 + "{v}</an": "{w}</answer>\n" + "{v}</answer>\n" * 9 + "{v}</an",
    "<answer>{v}\n" * 9 + "<": "<answer>{w}\n" + "<answer>{v}\n" * 9 + "<",
    "<answer>{v}": "<answer>{w} {v}",
    "<think>{p}</think> answer>{v}</answer": "<think>{p}</think> answer>{w}, {v}</answer",
    "<answer>$<<{p}*{c}={v}>>{v}</answer>": "<answer>$<<{w}>>{v}</answer>",
    "Tom gets {p}*{c} = <<{p}*{c}={v}>>{v} eggs.": "Tom gets {p}*{c} = <<{w}>>{v} eggs.",
    "<answer>{v} (= {p} × {c})</answer>": "<answer>{v} (= {p} × {a})</answer>",
    "<answer>1. {v}</answer>": "<answer>1. {w} 2. {v}</answer>",
    "<answer>- {v} eggs</answer>": "<answer>- {w} eggs\n- {v} eggs</answer>",
    "Tom gets {v} eggs in all. This is the final answer.": "Tom gets {w} or {v} eggs. This is the final answer.",
    "<answer>Tom gets {v} eggs.\n#### {v}</answer>": "<answer>Tom gets {w} eggs.\n#### {v}</answer>",
    "\\boxed{{{v}}}, \\boxed{{{v}}}": "\\boxed{{{w}}}, \\boxed{{{v}}}",
}
COMPLETIONS = [(right, wrong, *numbers) for numbers in NUMBERS for right, wrong in PATTERNS.items()]


def rewards(pattern: str, a: int, b: int, c: int) -> list[float]:
    """With the right value, and with one that is one too large."""
    p, v = a * b, a * b * c
    task = Task(id="a", prompt=QUESTION.format(a=a, b=b, c=c), answer=str(v))
    return [math_correct(task, pattern.format(a=a, b=b, c=c, p=p, v=value, w=v + 2)) for value in (v, v + 1)]


@each(("right", "wrong", "a", "b", "c"), COMPLETIONS, few=len(PATTERNS))
def test_a_right_completion_is_paid_and_its_twin_is_not(right: str, wrong: str, a: int, b: int, c: int) -> None:
    assert rewards(right, a, b, c) == [1.0, 0.0]
    assert rewards(wrong, a, b, c) == [0.0, 0.0]
