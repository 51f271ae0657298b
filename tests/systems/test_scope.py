"""SCOPE: which rollouts are repaired and what of, against texts by hand; and whole steps."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loops import each
from podsrl.config.schema import ModelConfig
from podsrl.control import repaired
from podsrl.errors import UsageError
from podsrl.lib.parts import Call
from podsrl.policy import load_tokenizer
from podsrl.run.metrics import step_metrics
from podsrl.run.step.trainer import Trainer
from podsrl.systems.scope import Scope
from podsrl.tasks import arithmetic, step_judge
from podsrl.tasks.arithmetic import addition_task
from podsrl.tasks.steps_solutions import STYLES, solution
from podsrl.types import Group, Parent, Rollout, Task
from runs import config_of
from tests.systems.made_up_groups import view
from tests.systems.whole_steps import check_refused, check_resumed, forbid_draws, lines, steps

TOKENIZER = load_tokenizer(ModelConfig())
TASK = addition_task(47, 85)
RIGHT = "7+5=12 4+8+1=13 Answer: 132."
ON = ("systems=scope", "options.scope.repair=podsrl.tasks.arithmetic:repair", "select.rule=keep_all")


def rollout(index: int, text: str, **changes: Any) -> Rollout:
    ids = (*TOKENIZER(text, add_special_tokens=False)["input_ids"], TOKENIZER.eos_token_id)
    logprobs = tuple(-0.1 * i for i in range(len(ids)))
    plain: Any = {"group_id": "g", "index": index, "token_ids": ids, "logprobs": logprobs, "version": 3}
    judged = {"finish_reason": "stop", "text": text, "reward": 0.0, "is_correct": text == RIGHT}
    return Rollout(**(plain | judged | changes))


def group_of(*texts: str) -> Group:
    rollouts = tuple(rollout(i, text) for i, text in enumerate(texts))
    return Group(id="g", task=TASK, prompt_ids=(1,), rollouts=rollouts, index=0)


def scope(most_tokens: int = 64, **options: Any) -> Scope:
    part = Scope(**({"repair": "podsrl.tasks.arithmetic:repair"} | options))
    part.check_model(TOKENIZER, most_tokens)
    return part


def test_by_hand() -> None:
    """The first begins wrongly, two are alike up to their mistakes, and the last is right."""
    group = group_of("7+5=11 4+8=12 Answer: 121.", "7+5=12 4+8=12 Answer: 122.", "7+5=12 9 Answer: 1.", RIGHT)
    [found] = scope().repair(view(), group)
    own = len(TOKENIZER("7+5=12 ", add_special_tokens=False)["input_ids"])
    assert TOKENIZER.decode(found.token_ids, skip_special_tokens=True) == RIGHT
    assert found.token_ids[:own] == group.rollouts[1].token_ids[:own]
    assert found.logprobs == (*group.rollouts[1].logprobs[:own], *(0.0,) * (len(found.token_ids) - own))
    assert found.given == ((own, len(found.token_ids)),) and found.index == 4 and found.version == 3
    assert found.token_ids[-1] == TOKENIZER.eos_token_id


def test_at_most_a_share_is_repaired_and_nothing_too_long_or_asked_otherwise() -> None:
    texts = ("7+5=12 4+8+1=13 Answer: 131.", "7+5=12 4+8=12 Answer: 122.", "7+5=12 4+8+1=13 So 1.", RIGHT)
    group = group_of(*texts)
    assert [done.index for done in scope().repair(view(), group)] == [4, 5]
    assert len(scope(share=0.25).repair(view(), group)) == 1 and len(scope(share=1.0).repair(view(), group)) == 3
    assert scope(most_tokens=len(group.rollouts[0].token_ids) - 1).repair(view(), group) == []
    for changes in ({"parent": Parent(0, 1)}, {"prompt_ids": (1, 2)}, {"invalid_reason": "lost"}, {"is_correct": True}):
        changed = replace(group, rollouts=tuple(replace(one, **changes) for one in group.rollouts))
        assert scope().repair(view(), changed) == [], changes
    cut = tuple(replace(one, finish_reason="length") for one in group.rollouts)
    assert scope().repair(view(), replace(group, rollouts=cut)) == []


@each("seed", range(40))
def test_a_repaired_story_is_right_and_begins_as_the_answer_did(seed: int) -> None:
    draws = random.Random(seed)
    words = [draws.choice(list(step_judge.VERBS)) for _ in range(draws.randint(2, 6))]
    told = " ".join(
        f"{name} she {word} {draws.randint(2, 5)}."
        for name, word in zip(("First", "Second", "Third", "Fourth", "Fifth", "Sixth"), words, strict=False)
    )
    question = f"Ann has 50 pens. {told} How many pens are left?\n"
    story = step_judge.read_story(question)
    right = [step_judge.VERBS[word].sign for word in words]
    place = draws.randrange(len(words))
    signs = [*right[:place], (right[place] + 2) % 3 - 1, *right[place + 1 :]]
    answer = solution(story, signs, style=draws.choice(list(STYLES)))
    found = step_judge.repair(Task(id="a", prompt=question, answer=str(story.totals[-1])), answer)
    if place == 0:
        assert found is None
        return
    assert found is not None
    assert 0 < found[0] == step_judge.first_wrong(question, answer)
    whole = answer[: found[0]] + found[1]
    assert all(step.is_right for step in step_judge.judge_steps(question, whole))
    assert whole.endswith(f"Answer: {story.totals[-1]}.")


@each(
    "answer, wanted",
    [
        (RIGHT, None),
        ("Answer: 132.", None),
        (f"{RIGHT} So.", None),
        ("7+5=12", None),
        ("7+5=12 4+8+1=13 Answer: 131.", (24, "132.")),
        ("7+5=12 Answer: 132.", (7, "4+8+1=13 Answer: 132.")),
    ],
)
def test_a_sum_goes_on_from_its_first_wrong_word(answer: str, wanted: Any) -> None:
    assert arithmetic.repair(TASK, answer) == wanted


@each("found, message", [((0, "a"), "a place 1"), ((5, 6), "a text"), ("a", "returned 'a'"), ((99, "a"), "a place 1")])
def test_what_a_function_of_ones_own_returns_is_checked(
    found: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arithmetic, "repair", lambda task, answer: found)
    with pytest.raises(UsageError, match=message):
        scope().repair(view(), group_of("7+5=12 4."))


@each(
    "made",
    [[3], [Rollout(group_id="x", index=1, token_ids=(3,), logprobs=(0.0,), version=0, finish_reason="stop")]],
)
def test_what_a_part_of_ones_own_adds_is_checked(made: Any) -> None:
    own = Call("repair of systems = 'own'", lambda view, group: made)
    with pytest.raises(UsageError, match=r"repair of systems = 'own' gave .*indices 1, 2 …"):
        repaired(own, view(), group_of("7+5=12"))


def test_repaired_rollouts_join_and_count_in_no_accuracy() -> None:
    run = Trainer(config_of(*ON, "rollouts.num_prompts=6", "rollouts.num_rollouts=8", "select.num_kept=8",
                            "rollouts.max_new_tokens=40", recipe="mixed"))  # fmt: skip
    found = steps(run, 4)
    said = lines(found)
    assert sum(line.get("rollouts/repaired", 0) for line in said) >= 2
    for result, line in zip(found, said, strict=True):
        own = [one for group in result.groups for one in group.rollouts if not one.is_repaired]
        put_right = [one for group in result.groups for one in group.rollouts if one.is_repaired]
        assert line["accuracy/all"] == pytest.approx(sum(one.is_correct for one in own) / len(own)) and len(own) == 48
        assert all(one.is_correct and one.reward > 0 and one.num_drawn for one in put_right)
        assert line.get("tokens/given", 0) == sum(one.num_given for one in put_right)
        for group in result.groups:
            assert len(group.outcomes) == 8 and [one.index for one in group.rollouts] == list(
                range(len(group.rollouts))
            )


def test_a_resumed_run_repairs_alike(tmp_path: Path) -> None:
    check_resumed(lambda: Trainer(config_of(*ON, "select.num_kept=8", recipe="mixed")), tmp_path)


def test_where_nothing_can_be_repaired_it_is_plain_grpo_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_draws(monkeypatch)
    monkeypatch.setattr(arithmetic, "repair", lambda task, answer: None)
    keep = ("select.rule=keep_all", "select.num_kept=8")
    one, other = Trainer(config_of(*ON, *keep[1:])), Trainer(config_of(*keep))
    assert [step_metrics(a)["loss"] for a in steps(one, 2)] == [step_metrics(b)["loss"] for b in steps(other, 2)]
    assert one.weights_digest == other.weights_digest


def test_what_it_does_not_go_with_is_refused() -> None:
    check_refused("scope", *ON[:1])
    check_refused(
        r"options\.scope\.repair = 'podsrl\.tasks\.arithmetic:nobody'",
        ON[0],
        "options.scope.repair=podsrl.tasks.arithmetic:nobody",
    )
