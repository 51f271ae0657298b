"""NudgeRL: in how many ways each question is asked, and its advantages against the authors' formula."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch

import made
from podsrl.control import Ask, Budget, View
from podsrl.errors import UsageError
from podsrl.lib.parts import make_parts
from podsrl.run.metrics import step_metrics
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from podsrl.systems.nudgerl import Contexts, Nudge, behind
from podsrl.tasks.arithmetic import addition_task, first_words
from podsrl.types import Group, Selection, Task, TokenMarkup
from podsrl.update import group_advantages
from population import Population, _answers
from runs import config_of
from tests.systems import made_up_groups

HINTS = {"hints": ["draw it", "count back", "guess"]}
TASKS = tuple(Task(id=str(i), prompt=f"Question {i}?\n", answer="", columns=HINTS) for i in range(4))
SHOWN = [None, "Question 2?\nTry: draw it.\n", "Question 2?\nTry: count back.\n"]


def view(**changes: Any) -> View:
    return made_up_groups.view(4, 8, len(TASKS), tasks=TASKS, **changes)


def nudge(**options: Any) -> Nudge:
    return Nudge(**{"form": "Try: {hint}.\n", **options})


def test_a_question_is_asked_plainly_and_behind_each_hint_in_one_group() -> None:
    ask = Ask(index=2, num_rollouts=9)
    for step in range(30):
        ways = list(nudge().guide(view(step=step), [ask]))
        assert sum(way.num_rollouts for way in ways) == 9 and {way.index for way in ways} == {2}
        assert [way.joins for way in ways] == [None, *[""] * (len(ways) - 1)]
        counts = {way.prompt: way.num_rollouts for way in ways}
        assert list(counts) == [prompt for prompt in SHOWN if prompt in counts]
        assert counts.get(SHOWN[1], 0) <= 5 and counts.get(SHOWN[2], 0) <= 4
        assert all(way.origin == ("" if way.prompt is None else f"hint {SHOWN.index(way.prompt)}") for way in ways)
        assert ways == list(nudge().guide(view(step=step), [ask])), "a resumed step asks the same"
    more = list(nudge().guide(view(), [replace(ask, joins="s6/1")]))
    assert [way.joins for way in more] == ["s6/1", *[""] * (len(more) - 1)]


@pytest.mark.parametrize("drop", [0.0, 0.25, 0.5])
def test_each_rollout_loses_its_hint_with_the_same_probability(drop: float) -> None:
    asks, counts = [Ask(index=i % 4, num_rollouts=8) for i in range(400)], Counter[str]()
    for way in nudge(drop=drop).guide(view(), asks):
        counts[way.origin] += way.num_rollouts
    error = 4 * (3200 * drop * (1 - drop)) ** 0.5
    assert abs(counts[""] - 3200 * drop) <= error and abs(counts["hint 1"] - counts["hint 2"]) <= error


def test_where_all_hints_are_dropped_nothing_is_drawn_or_read() -> None:
    asks = [Ask(index=2, num_rollouts=8)]
    assert nudge(drop=1.0, hints="none").guide(None, asks) is asks  # type: ignore[arg-type]


def test_probes_and_what_another_part_shows_are_left_alone() -> None:
    asks = [Ask(index=0, num_rollouts=8, is_trained=False), Ask(index=1, num_rollouts=8, prompt="Other?")]
    assert list(nudge().guide(view(), asks)) == asks


def test_the_ways_are_one_group_of_the_simulated_population() -> None:
    asks = Budget(make_parts(["nudgerl"], {"nudgerl": {"drop": 0.25}})).ask(view())
    groups = _answers(asks, view(), Population([0.0] * 4), TASKS)
    assert len(groups) == 4 < len(asks) and {len(group.rollouts) for group in groups} == {8}
    assert all(len(group.outcomes) == sum(r.origin == "" for r in group.rollouts) for group in groups)


def test_a_hint_stands_behind_the_last_message() -> None:
    chat = ({"role": "system", "content": TokenMarkup("Be brief.")}, {"role": "user", "content": "5 + 8?"})
    shown = behind(Task(id="a", prompt=chat, answer=""), "Count.")
    assert shown == (chat[0], {"role": "user", "content": "5 + 8?\nCount."})


@pytest.mark.parametrize(
    ("options", "task", "message"),
    [
        (
            {"hints": "tips"},
            TASKS[0],
            r"options.nudgerl.hints = 'tips': question '0' has no such column \(it has: hints\)",
        ),
        (
            {"count": 4},
            TASKS[0],
            "question '0' has .'draw it', .*; wanted a list of at least options.nudgerl.count = 4",
        ),
        (
            {},
            replace(TASKS[0], columns={"hints": "one"}),
            "options.nudgerl.hints = 'hints': question '0' has 'one'; wanted a list",
        ),
        ({}, replace(TASKS[0], prompt=TokenMarkup("?")), "question '0' is written with special tokens"),
        ({"hints": "podsrl.tasks.arithmetic:nothing"}, TASKS[0], "options.nudgerl.hints = "),
        ({"form": "hint"}, TASKS[0], "options.nudgerl.form = 'hint'; wanted a text with {hint} in it"),
    ],
)
def test_what_cannot_be_shown_is_named_before_the_model_loads(options: Any, task: Task, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        nudge(**options).check_tasks([task])


def test_fewer_rollouts_than_hints_is_an_error() -> None:
    assert Nudge(count=3).most(4, 3) == (4, 3)
    with pytest.raises(UsageError, match=r"options.nudgerl.count = 3 hints share rollouts.num_rollouts = 2"):
        Nudge(count=3).most(4, 2)


# --- advantages ---


def asked(rewards: list[float], contexts: list[int]) -> Group:
    """Context 0 has no hint."""
    rollouts = [
        made.rollout(r, index=i, prompt_ids=(c,) if c else None)
        for i, (r, c) in enumerate(zip(rewards, contexts, strict=True))
    ]
    return made.group("q", *rollouts)


def shaped(group: Group, weight: float, advantage: str = "none", kept: tuple[int, ...] = ()) -> torch.Tensor:
    chosen = made.selection(group, kept or tuple(range(len(group.rollouts))))
    rewards = torch.tensor([group.rollouts[i].reward for i in chosen.kept], dtype=torch.float64)
    [found] = Contexts(weight=weight).shape([group], [chosen], [group_advantages(rewards, advantage).float()])
    return found


def test_advantages_by_hand() -> None:
    """Means: 1/2 of all, 1 of hint 1, 1/4 of hint 2. With weight 2: 1/2 + 1/2, then 3/4 - 1/2 and -1/4 - 1/2 …"""
    group = asked([0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0], [0, 0, 1, 1, 2, 2, 2, 2])
    raw = torch.tensor([-0.5, 0.5, 1.0, 1.0, -0.75, -0.75, -0.75, 0.25], dtype=torch.float64)
    expected = (raw - raw.mean()) / (raw.std(correction=0) + 1e-5)
    torch.testing.assert_close(shaped(group, 2.0), expected.float())


@pytest.mark.parametrize("advantage", ["none", "std", "leave_one_out"])
def test_random_groups_as_a_twin_with_loops(advantage: str) -> None:
    rng = random.Random(3)
    for _ in range(60):
        size, weight = rng.randint(2, 9), rng.choice((0.0, 1.0, 1.1, 3.0))
        rewards, contexts = [float(rng.randint(0, 2)) for _ in range(size)], [rng.randint(0, 2) for _ in range(size)]
        if len(set(rewards)) == 1 or not any(contexts):
            continue
        mean, raw = sum(rewards) / size, []
        for reward, context in zip(rewards, contexts, strict=True):
            same = [r for r, c in zip(rewards, contexts, strict=True) if c == context]
            own = sum(same) / len(same)
            raw.append(reward - own + weight * (own - mean) if context else reward - mean)
        centre = sum(raw) / size
        spread = (sum((a - centre) ** 2 for a in raw) / size) ** 0.5
        if spread > 1e-9:
            expected = torch.tensor([(a - centre) / spread for a in raw])
            torch.testing.assert_close(
                shaped(asked(rewards, contexts), weight, advantage), expected, rtol=1e-3, atol=1e-4
            )


def test_groups_without_hints_and_groups_of_equal_rewards_keep_their_advantages() -> None:
    plain, equal = asked([0.0, 1.0, 1.0], [0, 0, 0]), asked([1.0, 1.0, 1.0], [0, 1, 2])
    assert torch.equal(shaped(plain, 2.0, "std"), group_advantages(torch.tensor([0.0, 1.0, 1.0])))
    assert not shaped(equal, 2.0).any()
    empty = Contexts().shape([plain], [Selection(group_id="q", kept=(), dropped={})], [torch.zeros(0)])
    assert empty[0].shape == (0,)


def test_means_are_those_of_the_kept_rollouts_of_a_chunk() -> None:
    group = asked([0.0, 1.0, 1.0, 1.0, 0.0], [0, 1, 1, 2, 2])
    three = asked([0.0, 1.0, 0.0], [0, 1, 2])
    assert torch.equal(shaped(group, 2.0, kept=(0, 1, 4)), shaped(three, 2.0))


def test_an_advantage_per_token_is_refused() -> None:
    group = asked([0.0, 1.0], [0, 1])
    with pytest.raises(UsageError, match=r"'nudgerl' compares one advantage per rollout"):
        Contexts().shape([group], [made.selection(group, (0, 1))], [torch.zeros(2, 3)])


# --- runs ---

SIZES = ("rollouts.num_prompts=4", "rollouts.max_new_tokens=24", "select.num_kept=8", "select.rule=keep_all")


def step_of(*overrides: str) -> dict[str, Any]:
    line = step_metrics(training_step(Trainer(config_of(*SIZES, *overrides))))
    return {name: value for name, value in line.items() if not name.startswith(("seconds/", "memory/"))}


def test_without_hints_it_is_plain_grpo_bit_for_bit() -> None:
    dropped = 'options={nudgerl = {drop = 1.0, hints = "podsrl.tasks.arithmetic:first_words"}}'
    assert step_of("systems=nudgerl", dropped) == step_of()


def test_hinted_rollouts_are_trained_behind_the_prompt_that_they_answered() -> None:
    hints = 'options={nudgerl = {hints = "podsrl.tasks.arithmetic:first_words", form = "{hint}"}}'
    trainer = Trainer(config_of(*SIZES, "systems=nudgerl", hints))
    result = training_step(trainer)
    line = step_metrics(result)
    assert 0 < line["rollouts/guided"] < 32 and line["logprob_gap"] < 1e-5 and line["tokens/prompt"] > 0
    for group in result.groups:
        shown = {r.origin: trainer.tokenizer.decode(r.prompt_ids) for r in group.rollouts if r.prompt_ids}
        hints = first_words(group.task)
        assert all(text == f"{group.task.prompt}{hints[int(origin[-1]) - 1]}" for origin, text in shown.items())


def test_the_hints_of_a_sum_are_the_first_words_of_its_solution() -> None:
    assert first_words(addition_task(3, 4)) == ["3+4=7", "3+4=7 Answer:"]
