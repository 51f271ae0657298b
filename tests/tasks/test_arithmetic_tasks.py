import itertools
import re
import sys
from collections import Counter

import numpy as np
import pytest

from podsrl.errors import UsageError
from podsrl.tasks.arithmetic import (
    addition_task,
    careful_solution,
    careless_solution,
    load_arithmetic,
    num_digits,
    split_pairs,
)


def split_mix_64(state: int) -> int:
    """The published generator's output for one state, in whole numbers of any size."""
    mask = 2**64 - 1
    z = (state + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def read_carefully(text: str) -> tuple[int, int]:
    """Check every step of a careful solution and give back the two addends: written without the code under test."""
    *steps, answer_word, answer = text.split(" ")
    assert answer_word == "Answer:"
    carry, addends, column_sums = 0, [0, 0], 0
    for place, step in enumerate(steps):
        left, result = step.split("=")
        terms = [int(term) for term in left.split("+")]
        assert sum(terms) == int(result)
        assert terms[2:] == [1] * carry
        assert all(0 <= term <= 9 for term in terms)
        carry = 1 if int(result) >= 10 else 0
        addends = [addend + term * 10**place for addend, term in zip(addends, terms[:2], strict=True)]
        column_sums += (int(result) - 10 * carry) * 10**place
    assert answer == f"{column_sums + carry * 10 ** len(steps)}."
    return addends[0], addends[1]


def test_a_question_has_its_exact_text() -> None:
    task = addition_task(47, 85)
    assert (task.id, task.prompt, task.answer, dict(task.columns)) == ("47+85", "What is 47 + 85?\n", "132", {})


@pytest.mark.parametrize(
    ("digits", "num_pairs", "num_held_out"), [(1, 81, 9), (2, 8_100, 1_020), (3, 810_000, 101_520)]
)
def test_the_split_holds_every_pair_once_and_mirrors_on_one_side(
    digits: int, num_pairs: int, num_held_out: int
) -> None:
    train, held_out = split_pairs(digits)
    codes, held_codes = (set((pairs[:, 0] * 1000 + pairs[:, 1]).tolist()) for pairs in (train, held_out))
    mirrors = set((held_out[:, 1] * 1000 + held_out[:, 0]).tolist())
    assert len(held_out) == num_held_out
    assert len(codes) + len(held_codes) == len(train) + len(held_out) == num_pairs
    assert not codes & held_codes
    assert mirrors == held_codes
    assert min(codes | held_codes) == 1001 * 10 ** (digits - 1)
    assert max(codes | held_codes) == 1001 * (10**digits - 1)


@pytest.mark.parametrize("digits", [1, 2])
def test_the_split_follows_the_published_hash(digits: int) -> None:
    addends = range(10 ** (digits - 1), 10**digits)
    wanted = [
        [a, b] for a, b in itertools.product(addends, repeat=2) if split_mix_64(min(a, b) * 1000 + max(a, b)) % 8 == 0
    ]
    assert split_pairs(digits)[1].tolist() == wanted


def test_the_evaluation_questions_are_the_same_as_last_year_and_a_prefix_of_a_larger_draw() -> None:
    ids = [task.id for task in load_arithmetic(digits=2, num_eval=1_020).eval]
    assert ids[:5] == ["48+28", "70+71", "36+74", "79+92", "31+94"]
    assert [task.id for task in load_arithmetic(digits=2, num_eval=5).eval] == ids[:5]
    assert len(set(ids)) == 1_020


def test_three_digit_tasks_are_made_on_demand() -> None:
    train = load_arithmetic(digits=3, num_eval=1).train
    assert len(train) == 708_480
    assert sys.getsizeof(train) < 1_000
    assert (train[0].id, train[-1].id, train[np.int64(0)].answer) == ("100+100", "999+999", "200")
    assert [task.id for task in train[1:3]] == ["100+101", "100+102"]
    with pytest.raises(IndexError):
        train[708_480]


def test_the_split_cannot_be_changed_by_its_reader() -> None:
    for pairs in split_pairs(1):
        with pytest.raises(ValueError, match="read-only"):
            pairs[0, 0] = 5


@pytest.mark.parametrize(
    ("digits", "train", "held_out"),
    [
        ([1, 2, 3], {1: 72, 2: 216, 3: 216}, {1: 9, 2: 27, 3: 27}),
        ([2, 3], {2: 216, 3: 216}, {2: 27, 3: 27}),
        ([1, 3], {1: 72, 3: 216}, {1: 9, 3: 27}),
    ],
)
def test_a_mixed_set_holds_as_many_questions_of_each_number_of_digits_as_the_page_says(
    digits: list[int], train: dict[int, int], held_out: dict[int, int]
) -> None:
    tasks = load_arithmetic(digits=digits, num_eval=None)
    assert Counter(map(num_digits, tasks.train)) == train
    assert Counter(map(num_digits, tasks.eval)) == held_out


def test_a_mixed_set_trains_and_holds_out_distinct_questions_of_each_side_of_the_split() -> None:
    tasks = load_arithmetic(digits=[1, 2, 3], num_eval=None)
    sides = [np.concatenate([split_pairs(digits)[side] for digits in (1, 2, 3)]).tolist() for side in (0, 1)]
    for questions, side in zip((tasks.train, tasks.eval), sides, strict=True):
        ids = [task.id for task in questions]
        assert len(set(ids)) == len(ids)
        assert {*ids} <= {f"{a}+{b}" for a, b in side}


def test_a_mixed_set_does_not_depend_on_the_order_of_the_digits_and_a_smaller_eval_is_a_prefix() -> None:
    first, second = (load_arithmetic(digits=digits, num_eval=None) for digits in ([1, 2, 3], (3, 1, 2, 1)))
    assert first.eval == second.eval and [*first.train] == [*second.train]
    assert load_arithmetic(digits=[1, 2, 3], num_eval=20).eval == first.eval[:20]
    assert {num_digits(task) for task in first.eval[:20]} == {1, 2, 3}


def test_a_mixed_set_is_the_same_as_last_year() -> None:
    tasks = load_arithmetic(digits=[1, 2, 3], num_eval=None)
    assert [task.id for task in tasks.eval[:6]] == ["214+440", "17+41", "406+971", "613+751", "86+98", "722+507"]
    assert [task.id for task in tasks.train[70:75]] == ["6+9", "1+8", "36+35", "63+45", "45+88"]


def test_a_list_of_one_number_is_that_number() -> None:
    one, several = load_arithmetic(digits=2, num_eval=7), load_arithmetic(digits=[2], num_eval=7)
    assert (one.name, one.eval, len(one.train)) == (several.name, several.eval, len(several.train))


def test_a_mixed_set_names_how_many_it_can_hold_out() -> None:
    with pytest.raises(
        UsageError, match=r"task.num_eval = 64; .*\[1, 2, 3\] have 63 held-out questions: choose 1 .. 63$"
    ):
        load_arithmetic(digits=[1, 2, 3], num_eval=64)
    with pytest.raises(UsageError, match=r"task.digits = 4; wanted 1, 2 or 3"):
        load_arithmetic(digits=[1, 4], num_eval=None)
    with pytest.raises(UsageError, match=r"task.digits = \[\]; wanted at least one"):
        load_arithmetic(digits=[], num_eval=None)


@pytest.mark.parametrize(("digits", "num_eval", "available"), [(1, 10, 9), (1, 0, 9), (2, 1_021, 1_020)])
def test_more_evaluation_questions_than_held_out_are_refused(digits: int, num_eval: int, available: int) -> None:
    with pytest.raises(UsageError, match=rf"task.num_eval = {num_eval}; .* choose 1 \.\. {available}, or raise"):
        load_arithmetic(digits=digits, num_eval=num_eval)
    assert len(load_arithmetic(digits=digits, num_eval=available).eval) == available


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (47, 85, "7+5=12 4+8+1=13 Answer: 132."),
        (12, 34, "2+4=6 1+3=4 Answer: 46."),
        (7, 5, "7+5=12 Answer: 12."),
        (995, 105, "5+5=10 9+0+1=10 9+1+1=11 Answer: 1100."),
        (10, 90, "0+0=0 1+9=10 Answer: 100."),
    ],
)
def test_careful_solutions_written_by_hand(a: int, b: int, text: str) -> None:
    assert careful_solution(a, b) == text


def test_every_careful_two_digit_solution_passes_an_independent_reader() -> None:
    for a, b in itertools.product(range(10, 100), repeat=2):
        text = careful_solution(a, b)
        assert read_carefully(text) == (a, b)
        assert text.endswith(f" Answer: {a + b}.")


@pytest.mark.parametrize(
    ("a", "b", "plausible"),
    [
        (47, 85, range(100, 199)),
        (12, 34, range(20, 100)),
        (50, 50, range(100, 199)),
        (99, 99, range(100, 199)),
        (10, 10, range(20, 100)),
        (1, 1, range(2, 10)),
        (9, 9, range(10, 19)),
        (500, 600, range(1000, 1999)),
    ],
)
def test_careless_answers_are_all_plausible_ones_but_the_right_one(a: int, b: int, plausible: range) -> None:
    rng = np.random.default_rng(5)
    # 20 draws an answer: one of 998 is missed with a probability under 998 · e^-20 = 2e-6.
    texts = [careless_solution(a, b, rng) for _ in range(20 * len(plausible))]
    assert all(re.fullmatch(r"Answer: [1-9][0-9]*\.", text) for text in texts)
    assert {int(text[8:-1]) for text in texts} == set(plausible) - {a + b}


def test_careless_answers_are_uniform() -> None:
    rng = np.random.default_rng(6)
    answers = [int(careless_solution(4, 5, rng)[8:-1]) for _ in range(7_000)]
    # Seven answers, 1,000 each, standard deviation 29; five of them.
    assert all(855 <= answers.count(answer) <= 1_145 for answer in range(2, 9))


def test_careless_solutions_follow_the_generator() -> None:
    first, second = (careless_solution(47, 85, np.random.default_rng(0)) for _ in range(2))
    assert first == second == "Answer: 184."


@pytest.mark.parametrize(("a", "b"), [(5, 10), (-4, 5), (0, 0), (-12, -13)])
def test_solutions_of_uneven_or_non_positive_addends_are_refused(a: int, b: int) -> None:
    with pytest.raises(UsageError, match=f"addends {a} and {b}; wanted two numbers from 1 up"):
        careful_solution(a, b)
    with pytest.raises(UsageError, match=f"addends {a} and {b}"):
        careless_solution(a, b, np.random.default_rng(0))
