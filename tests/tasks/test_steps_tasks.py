"""Stories: their exact texts, their answers by another way of reading, and what is held out."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from podsrl.errors import UsageError
from podsrl.score.rewards.stated import correct, format
from podsrl.tasks.steps import LEVELS, VERBS, Story, draw_story, is_held_out, load_steps
from podsrl.tasks.steps_solutions import STYLES, read_rightly, solution
from podsrl.types import Task

ADDS = ["finds", "buys", "bakes", "earns", "reaps", "digs", "plants", "hauls", "lands", "tows"]
TAKES = ["loses", "sells", "breaks", "spends", "feeds", "loads", "cuts", "ships", "sinks", "trades"]
KEEPS = ["sees", "counts", "paints", "cleans", "waters", "stacks", "weighs", "tars", "marks", "seals"]


def answer_by_hand(question: str) -> str:
    """The answer of a question, read with three lists of words and nothing of the code under test."""
    total = int(re.findall(r"has (\d+) ", question)[0])
    for word, number in re.findall(r"she (\w+) (\d)\.", question):
        assert (word in ADDS) + (word in TAKES) + (word in KEEPS) == 1
        total += int(number) * (word in ADDS) - int(number) * (word in TAKES)
    if "In tens, are five or more left over?" in question:
        return "1" if str(total)[-1] in "56789" else "0"
    return str(total)


def story(**changed: object) -> Story:
    fields: dict[str, object] = {"name": "Ann", "things": "pens", "start": 47}
    fields |= {"words": ("finds", "sells", "counts"), "operands": (5, 3, 2)}
    return Story(**(fields | changed))  # type: ignore[arg-type]  # the fields of the call


def test_a_story_has_its_exact_text() -> None:
    told = "Ann has 47 pens. First she finds 5. Second she sells 3. Third she counts 2. "
    assert story().question == told + "How many pens are left?\n"
    assert story(in_tens=True).question == told + "In tens, are five or more left over?\n"
    assert (story().totals, story().answer) == ((52, 49, 49), "49")
    assert [story(in_tens=True, start=start).answer for start in (47, 43, 42)] == ["1", "1", "0"]


def test_each_style_has_its_exact_text() -> None:
    told = story(words=("finds", "sells"), operands=(5, 3), in_tens=True)
    wanted = {
        "plain": "First 47+5=52. Second 52-3=49.",
        "worded": "First she finds 5: 47+5=52. Second she sells 3: 52-3=49.",
        "long": "First she finds 5 pens, so Ann has 47+5=52 pens. Second she sells 3 pens, so Ann has 52-3=49 pens.",
        "checked": "First she finds 5 pens, so Ann has 47+5=52 pens. Check: 52-5=47. "
        "Second she sells 3 pens, so Ann has 52-3=49 pens. Check: 49+3=52.",
    }
    assert {style: solution(told, (1, -1), style=style) for style in STYLES} == {
        style: f"{text} 9 over. Answer: 1." for style, text in wanted.items()
    }
    assert (
        solution(story(), (0, 1, -1), is_stated=False) == "First 47+0=47. Second 47+3=50. Third 50-2=48. So it is 48."
    )


def test_every_question_of_the_set_has_the_answer_that_another_reading_finds() -> None:
    tasks = load_steps(levels=None, num_eval=512)
    for task in [*tasks.train, *tasks.eval]:
        assert isinstance(task.prompt, str) and task.answer == answer_by_hand(task.prompt)
    assert len({task.id for task in [*tasks.train, *tasks.eval]}) == 4096 + 512


def test_a_right_reading_is_rewarded_in_every_style_and_only_in_the_form_that_is_asked_for() -> None:
    rng = np.random.default_rng(0)
    for level in [*LEVELS] * 20:
        told = draw_story(level, rng)
        task = Task(id="a", prompt=told.question, answer=told.answer)
        for style in STYLES:
            stated = solution(told, read_rightly(told), style=style)
            loose = solution(told, read_rightly(told), style=style, is_stated=False)
            assert (correct(task, stated), format(task, stated)) == (1.0, 1.0)
            assert (correct(task, loose), format(task, loose)) == (0.0, 0.0)


def test_no_held_out_story_is_trained_on_under_any_name() -> None:
    tasks = load_steps(levels=None, num_eval=512)
    bare = [
        {re.sub(r"^\w+ has (\d+) \w+|How many \w+", r"\1", str(task.prompt)) for task in side}
        for side in (tasks.train, tasks.eval)
    ]
    assert (len(bare[0]), len(bare[1])) == (4096, 512) and not bare[0] & bare[1]


def test_names_and_things_do_not_decide_what_is_held_out_and_an_eighth_is() -> None:
    rng = np.random.default_rng(1)
    drawn = [draw_story(3, rng) for _ in range(4000)]
    other = [Story(**{**{f: getattr(s, f) for f in Story.__slots__}, "name": "Zoe", "things": "eggs"}) for s in drawn]
    held_out = [is_held_out(each) for each in drawn]
    assert held_out == [is_held_out(each) for each in other]
    assert 0.1 < np.mean(held_out) < 0.15


def test_no_answer_stands_in_its_question() -> None:
    tasks = load_steps(levels=None, num_eval=512)
    for task in [*tasks.train, *tasks.eval]:
        assert task.answer not in re.findall(r"\d+", str(task.prompt))


def test_half_of_the_readings_of_a_question_in_tens_are_right_by_luck_and_few_of_the_others() -> None:
    rng = np.random.default_rng(2)
    shares: dict[bool, list[float]] = {True: [], False: []}
    for level in [3] * 150:
        told = draw_story(level, rng)
        readings = list(itertools.product((1, -1, 0), repeat=len(told.words)))
        rightly = [told.conclude(told.read(signs)[-1]) == told.answer for signs in readings]
        shares[told.in_tens].append(float(np.mean(rightly)))
    assert 0.45 < np.mean(shares[True]) < 0.65
    assert np.mean(shares[False]) < 0.1


def test_yes_is_as_common_as_no() -> None:
    answers = Counter(task.answer for task in load_steps(levels=None, num_eval=None).train if "In tens" in task.prompt)
    assert set(answers) == {"0", "1"} and abs(answers["0"] - answers["1"]) < 4 * sum(answers.values()) ** 0.5


def test_stories_have_the_sizes_and_numbers_that_their_level_says() -> None:
    rng = np.random.default_rng(3)
    for level, kind in LEVELS.items():
        drawn = [draw_story(level, rng) for _ in range(300)]
        assert {len(each.words) for each in drawn} == {*range(kind.steps[0], kind.steps[1] + 1)}
        assert {word for each in drawn for word in each.words} == {verb.word for verb in kind.verbs}
        assert all(len({*each.words}) == len(each.words) and {*each.operands} <= {2, 3, 4, 5} for each in drawn)
        for each in drawn:
            most = sum(each.operands)
            assert each.start - most >= 6 and each.start + most <= 94
    assert len(VERBS) == sum(len(kind.verbs) for kind in LEVELS.values()) == 30


def test_verbs_mean_what_the_lists_say() -> None:
    assert {word for word, verb in VERBS.items() if verb.sign == 1} == {*ADDS}
    assert {word for word, verb in VERBS.items() if verb.sign == -1} == {*TAKES}
    assert {word for word, verb in VERBS.items() if verb.sign == 0} == {*KEEPS}


@pytest.mark.parametrize(
    ("levels", "train", "held_out"),
    [
        ({1: 1.0}, {1: 4096}, {1: 512}),
        ({4: 0.25, 2: 0.75}, {2: 3072, 4: 1024}, {2: 384, 4: 128}),
        ({1: 1 / 3, 2: 1 / 3, 3: 1 / 3}, {1: 1366, 2: 1365, 3: 1365}, {1: 171, 2: 171, 3: 170}),
    ],
)
def test_each_level_has_its_share_of_both_sides(
    levels: Mapping[int, float], train: Mapping[int, int], held_out: Mapping[int, int]
) -> None:
    tasks = load_steps(levels=levels, num_eval=512)
    for side, wanted in ((tasks.train, train), (tasks.eval, held_out)):
        words = [re.findall(r"she (\w+)", str(task.prompt))[0] for task in side]
        found = [level for word in words for level, kind in LEVELS.items() if VERBS[word] in kind.verbs]
        assert Counter(found) == wanted and found == [task.columns["level"] for task in side]


def test_fewer_held_out_questions_are_the_first_of_more() -> None:
    assert load_steps(levels=None, num_eval=7).eval == load_steps(levels=None, num_eval=512).eval[:7]
    assert len(load_steps(levels=None, num_eval=None).eval) == 256


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ({1: 0.5, 2: 0.4}, r"task.levels = \{1: 0.5, 2: 0.4\}: the shares add up to 0.9; wanted 1"),
        ({}, r"the shares add up to 0; wanted 1"),
        ({1: 1.5, 2: -0.5}, r"task.levels has the share 1.5; wanted shares from 0 to 1"),
        ({5: 1.0}, r"task.levels names \[5\]; wanted levels out of \[1, 2, 3, 4\]"),
        ({1: float("nan")}, r"task.levels has the share nan"),
    ],
)
def test_shares_that_do_not_fit_are_refused(levels: Mapping[int, float], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_steps(levels=levels, num_eval=None)


@pytest.mark.parametrize("num_eval", [0, -1, 513])
def test_other_numbers_of_held_out_questions_are_refused(num_eval: int) -> None:
    with pytest.raises(UsageError, match=f"task.num_eval = {num_eval}; 'steps' has 512 held-out .* choose 1 .. 512"):
        load_steps(levels=None, num_eval=num_eval)
