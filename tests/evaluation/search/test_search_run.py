"""The rounds of a search on a made-up model, whose steps are texts of characters: each character is a token."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from loops import each
from made import completion
from podsrl.errors import UsageError
from podsrl.evaluation.evaluator import Evaluator
from podsrl.evaluation.search import SEARCHES
from podsrl.evaluation.search.base import Leaf, Search, highest
from podsrl.evaluation.search.judge import StepJudge
from podsrl.evaluation.search.run import Found, run_search
from podsrl.generate import Sampling
from podsrl.types import Group, Open, Rollout, Task

END = "$"
Write = Callable[[str, int, str], str]
"""(group's id, index, text so far) -> the next step, with the text that ends it."""


class MadeUp:
    """A desk of a model that writes by a rule, up to the token limit."""

    def __init__(self, write: Write) -> None:
        self._write, self.asked = write, list[list[Open]]()
        self.engine = SimpleNamespace(abilities=frozenset({"join", "start"}))

    def generated(self, opens: Sequence[Open], sampling: Sampling) -> list[Open]:
        self.asked.append(list(opens))
        return [replace(each, begun=tuple(self._done(each, i, sampling) for i in range(each.size))) for each in opens]

    def _done(self, each: Open, index: int, sampling: Sampling) -> Rollout:
        starts = {done.index: done for done in each.begun}
        ids = starts[index].token_ids if index in starts else ()
        text = "".join(map(chr, ids))
        new = self._write(each.group.id, index, text)[: sampling.max_new_tokens - len(ids)]
        is_whole = new.endswith((END, *sampling.stop_strings))
        tokens = (*ids, *map(ord, new))
        given = ((0, len(ids)),) if ids else ()
        reason = "stop" if is_whole else "length"
        return completion(tokens, group_id=each.group.id, index=index, given=given, finish_reason=reason)

    def answer(self, opens: Sequence[Open], sampling: Sampling) -> list[Group]:
        assert not any(each.to_come for each in opens)
        return [replace(each.group, rollouts=tuple(map(judged, each.begun))) for each in opens]


def judged(done: Rollout) -> Rollout:
    text = "".join(map(chr, done.token_ids))
    answer = text[-2] if text.endswith(END) and len(text) > 1 else None
    return replace(done, text=text, reward=0.0, is_correct=answer == "7", answer=answer)


def searched(desk: MadeUp, search: Search, *, num_questions: int = 1, **named: Any) -> list[Found]:
    tokenizer = SimpleNamespace(
        batch_decode=lambda rows, skip_special_tokens: ["".join(map(chr, ids)).removesuffix(END) for ids in rows]
    )
    evaluator = SimpleNamespace(
        desk=desk,
        environment=None,
        tokenizer=tokenizer,
        sampling=Sampling(max_new_tokens=named.pop("limit", 20), stop_token_ids=(ord(END),)),
        questions={place: Task(id=f"q{place}", prompt="?", answer="7") for place in range(num_questions)},
        config=SimpleNamespace(seed=0),
    )
    given = {"width": 2, "tokens": 10**6, "judge": None, "step_end": ".", **named}
    return run_search(cast(Evaluator, evaluator), search, **given)


def going_on(leaves: Sequence[Leaf], width: int, rng: np.random.Generator) -> list[int]:
    return [*range(len(leaves))]


STEPWISE = Search(grow=going_on, choose=highest)


def texts(found: Found) -> list[str]:
    return [each.text for each in found.group.rollouts]


def test_leaves_go_on_step_by_step_until_the_model_ends_them() -> None:
    steps = {"": "ab.", "ab.": "c.", "ab.c.": f"7{END}"}
    desk = MadeUp(lambda name, index, text: steps[text])
    [found] = searched(desk, STEPWISE)
    assert texts(found) == ["ab.c.7$", "ab.c.7$"]
    assert (found.num_tokens, len(desk.asked)) == (14, 3)
    assert [group.group.id for [group] in desk.asked] == ["eval/0/q0", "eval/0/q0/1", "eval/0/q0/2"]


def test_whole_answers_are_asked_as_an_evaluation_asks_them_in_one_round() -> None:
    desk = MadeUp(lambda name, index, text: f"a.b.{index}{END}")
    [found] = searched(desk, SEARCHES["majority"], width=3)
    [[asked]] = desk.asked
    assert (asked.group.id, asked.size, asked.begun) == ("eval/0/q0", 3, ())
    assert texts(found) == ["a.b.0$", "a.b.1$", "a.b.2$"]


def test_a_leaf_that_the_search_drops_costs_its_tokens_and_gives_no_answer() -> None:
    def first(leaves: Sequence[Leaf], width: int, rng: np.random.Generator) -> list[int]:
        return [0, 0]

    desk = MadeUp(lambda name, index, text: f"{index}." if not text else f"{index}{END}")
    [found] = searched(desk, replace(STEPWISE, grow=first))
    assert texts(found) == ["0.0$", "0.1$"]
    assert found.num_tokens == 4 + 4


def test_paths_share_the_numbers_of_the_steps_that_they_share() -> None:
    seen: list[list[tuple[int, ...]]] = []

    def first(leaves: Sequence[Leaf], width: int, rng: np.random.Generator) -> list[int]:
        seen.append([leaf.steps for leaf in leaves])
        return [0, 0]

    searched(MadeUp(lambda name, index, text: "a." if len(text) < 4 else END), replace(STEPWISE, grow=first))
    assert seen == [[(1,), (2,)], [(1, 3), (1, 4)]]


def test_an_answer_at_the_token_limit_has_ended() -> None:
    [found] = searched(MadeUp(lambda name, index, text: "abc."), STEPWISE, limit=6)
    assert texts(found) == ["abc.ab", "abc.ab"]
    assert found.answer is found.group.rollouts[0]


def test_a_leaf_waits_while_it_could_overdraw_the_tokens() -> None:
    # 9 tokens hold one answer of at most 5 at a time: the second begins when the first has used 3, for 9 - 3 >= 5
    desk = MadeUp(lambda name, index, text: f"a{index}{END}")
    [found] = searched(desk, SEARCHES["majority"], limit=5, tokens=9)
    assert [each.size for [each] in desk.asked] == [1, 1]
    assert found.num_tokens == 6 and len(found.group.rollouts) == 2


@each("seed", range(40))
def test_no_question_draws_more_tokens_than_allowed_and_nothing_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    lengths: dict[tuple[str, int], int] = {}

    def write(name: str, index: int, text: str) -> str:
        length = lengths.setdefault((name, index), rng.randrange(1, 9))
        return "a" * length + (END if rng.random() < 0.3 else ".")

    width, limit = rng.randrange(1, 6), rng.randrange(8, 20)
    tokens = rng.randrange(limit, 4 * limit)
    name = rng.choice(["particles", "dora", "ets", "majority"])
    judge = None if name == "majority" else cast(StepJudge, SimpleNamespace(scores=scores_of(rng)))
    for found in searched(
        MadeUp(write), SEARCHES[name], num_questions=3, width=width, limit=limit, tokens=tokens, judge=judge
    ):
        assert found.num_tokens <= tokens
        assert all(len(one.token_ids) <= limit for one in found.group.rollouts)
        assert (found.answer is None) == (not [one for one in found.group.rollouts if votes(name, one)])


def votes(name: str, one: Rollout) -> bool:
    return one.answer is not None or name in ("particles", "dora")


def scores_of(rng: random.Random) -> Callable[[Sequence[Task], Sequence[Leaf]], list[float]]:
    return lambda tasks, leaves: [rng.choice([0.0, 0.5, 1.0, rng.random()]) for _ in leaves]


def test_a_question_is_searched_alike_beside_others_and_alone() -> None:
    def write(name: str, index: int, text: str) -> str:
        return f"{index}." if len(text) < 8 else f"7{END}"

    def judge() -> StepJudge:
        return cast(StepJudge, SimpleNamespace(scores=lambda tasks, leaves: [len(leaf.text) / 20 for leaf in leaves]))

    [alone] = searched(MadeUp(write), SEARCHES["particles"], width=4, judge=judge())
    first, *_ = searched(MadeUp(write), SEARCHES["particles"], width=4, judge=judge(), num_questions=3)
    assert alone == first


def test_the_text_of_a_step_is_what_follows_the_text_before_it() -> None:
    steps: list[list[str]] = []

    def look(leaves: Sequence[Leaf], width: int, rng: np.random.Generator) -> list[int]:
        steps.append([leaf.step for leaf in leaves])
        return [0, 1]

    searched(MadeUp(lambda name, index, text: f"{index}." if len(text) < 4 else END), replace(STEPWISE, grow=look))
    assert steps == [["0.", "1."], ["0.", "1."]]


def test_what_cannot_be_searched_is_refused() -> None:
    desk = MadeUp(lambda name, index, text: END)
    desk.engine = SimpleNamespace(abilities=frozenset())
    with pytest.raises(UsageError, match=r"cannot go on .* use rollouts.generator = 'engine'"):
        searched(desk, STEPWISE)
    assert len(searched(desk, SEARCHES["majority"])) == 1


def test_the_answer_with_the_highest_score_is_given_if_a_final_answer_is_in_it() -> None:
    answers = [judged(completion(map(ord, text))) for text in ("a6$", "b7$", "c7$", "none")]
    assert highest(answers, [0.1, 0.8, 0.8, 0.9]) is answers[1]
    assert highest(answers[3:], [0.0]) is answers[3]
    assert highest([], []) is None
