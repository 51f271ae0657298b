"""Data sets of reasoning-gym as a task set: what is asked, what is right, what is refused."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import UnavailableError, UsageError
from podsrl.integrations import reasoning_gym_sets as sets
from podsrl.integrations.reasoning_gym import (
    ANSWERED,
    MAX_CHARACTERS,
    SCORE,
    Form,
    answered,
    find_answer,
    score,
    shared_out,
)
from podsrl.score import Scorer
from podsrl.tasks import TaskSet, load_tasks
from podsrl.types import Rollout

needs_gym = pytest.mark.skipif(
    importlib.util.find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed (make test-peers)"
)
SLOW = {"futoshiki", "jugs", "rush_hour", "sokoban", "sudoku", "zebra_puzzles"}
"""Data sets that take long for a question."""


def load(num_eval: int | None = 8, **own: Any) -> TaskSet:
    return load_tasks("reasoning_gym", own=own, num_eval=num_eval)


def text_of(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else str(prompt[-1]["content"])


@pytest.mark.parametrize(
    ("text", "form", "answer"),
    [
        ("It is <answer> 4 </answer>.", "tags", "4"),
        ("<answer>1 0\n0 1</answer>", "tags", "1 0\n0 1"),
        ("<think><answer>3</answer></think><answer>4</answer>", "tags", "4"),
        ("<answer>4</answer> so <answer>4</answer>", "tags", "4"),
        ("<answer>4</answer> or <answer>5</answer>", "tags", None),
        ("<answer>4", "tags", None),
        ("4", "tags", None),
        ("<answer> </answer>", "tags", None),
        (" 4 \nWhat is 5?", "line", "4"),
        ("\n\n4", "line", "4"),
        (" \n", "line", None),
        ("a" * MAX_CHARACTERS, "line", "a" * MAX_CHARACTERS),
        ("a" * (MAX_CHARACTERS + 1), "line", None),
    ],
)
def test_an_answer_is_the_one_that_stands_in_the_form(text: str, form: Form, answer: str | None) -> None:
    assert find_answer(text, form) == answer


@pytest.mark.parametrize(
    ("shares", "size", "counts"),
    [([1.0], 5, [5]), ([0.5, 0.5], 5, [3, 2]), ([0.2, 0.3, 0.5], 7, [1, 2, 4]), ([1 / 3] * 3, 2, [1, 1, 0])],
)
def test_questions_are_shared_out_by_largest_remainders(shares: list[float], size: int, counts: list[int]) -> None:
    assert shared_out(shares, size) == counts


def test_a_missing_package_or_another_release_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    for version, found in ((missing, "none"), (lambda name: "0.2.0", r"0\.2\.0")):
        monkeypatch.setattr(sets, "version", version)
        with pytest.raises(UnavailableError, match=rf"0\.1\.25.*found {found}: pip install 'podsrl\[reasoning\]'"):
            load(datasets="gcd")


@needs_gym
@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({}, r"\.datasets is not set; wanted a name, names, or names with weights"),
        ({"datasets": 5}, r"\.datasets = 5: wanted a name"),
        ({"datasets": "leg_countin"}, r"\.datasets = 'leg_countin': .*no such data set. Did you mean 'leg_counting'\?"),
        ({"datasets": "qqq"}, r"no such data set. pods tasks lists them"),
        ({"datasets": "countdown"}, "'countdown': its verifier runs what the model wrote as Python code; choose"),
        ({"datasets": "ransom_note"}, "'ransom_note': its questions differ from process to process"),
        ({"datasets": {"gcd": 0}}, r"\.datasets\.gcd = 0: wanted a weight above 0"),
        ({"datasets": {"gcd": "x"}}, r"\.datasets\.gcd = 'x': wanted a weight above 0"),
        ({"datasets": ["gcd", "gcd"]}, r"has a name twice: give it a weight"),
        ({"datasets": "gcd", "config": {"lcm": {}}}, r"\.config\.lcm: not among the datasets. Known: gcd"),
        ({"datasets": "gcd", "config": {"gcd": {"max_number": 3}}}, r"max_number = 3: .* Did you mean 'max_numbers'\?"),
        ({"datasets": "gcd", "config": {"gcd": {"size": 3}}}, r"gcd.size = 3: .*options.reasoning_gym.size is"),
        (
            {"datasets": "gcd", "config": {"gcd": {"max_numbers": 1}}},
            r"'max_numbers': 1}: the data set refuses this: ma",
        ),
        ({"datasets": "acre", "difficulty": 1}, r"\.difficulty = 1: the data set 'acre' has no curriculum"),
        ({"datasets": "gcd", "difficulty": 4}, r"\.difficulty = 4: the levels of 'gcd' are 0 \.\. 3"),
        ({"datasets": "gcd", "difficulty": -1}, r"\.difficulty = -1: the levels of 'gcd' are 0 \.\. 3"),
        ({"datasets": "gcd", "difficulty": [1, 1]}, r"\.difficulty names 1 twice"),
        (
            {"datasets": "gcd", "difficulty": 1, "config": {"gcd": {"max_numbers": 9}}},
            r"gcd.max_numbers is also set by options.reasoning_gym.difficulty",
        ),
        ({"datasets": "gcd", "num_eval": 0}, "task.num_eval = 0"),
        ({"datasets": "gcd", "size": 0}, r"\.size = 0: wanted at least 1"),
        ({"datasets": "gcd", "form": "box"}, r"\.form = 'box': wanted 'tags' or 'line'"),
        (
            {"datasets": "coin_flip", "num_eval": 2000, "config": {"coin_flip": {"min_trials": 3, "max_trials": 3}}},
            r"all 1,024 questions of 'coin_flip' are held out.*: raise options.reasoning_gym.size, lower task",
        ),
    ],
)
def test_what_cannot_be_asked_is_one_line(own: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        load(**own)
    assert "\n" not in str(caught.value)


@needs_gym
def test_a_data_set_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from reasoning_gym.arithmetic.gcd import GCDDataset

    monkeypatch.setattr(GCDDataset, "__getitem__", lambda self, place: [][place])
    with pytest.raises(UsageError, match=r"reasoning-gym's data set 'gcd@1', question 0 raised IndexError"):
        load(datasets="gcd", difficulty=1, size=777)


@needs_gym
def test_every_question_stands_there_once_and_the_others_are_counted() -> None:
    import reasoning_gym

    tasks = load(datasets="coin_flip", size=400, num_eval=50, form="line")
    held_out = {each["question"].strip() for each in reasoning_gym.create_dataset("coin_flip", seed=10**9, size=50)}
    asked = {
        each["question"].strip() for each in reasoning_gym.create_dataset("coin_flip", seed=0, size=400)
    } - held_out
    assert {text_of(task.prompt) for task in tasks.eval} == {f"{question}\nAnswer:" for question in held_out}
    assert {text_of(task.prompt) for task in tasks.train} == {f"{question}\nAnswer:" for question in asked}
    assert (len(tasks.eval), len(tasks.train)) == (len(held_out), len(asked))
    assert tasks.notes == (
        f"coin_flip: {50 - len(held_out)} of 50 held-out questions stand there before and are left out",
        f"coin_flip: {400 - len(asked)} of 400 training questions stand there before and are left out",
    )


@needs_gym
def test_a_mixture_has_weights_and_levels_and_more_questions_begin_with_fewer() -> None:
    own: dict[str, Any] = {"datasets": {"leg_counting": 2, "gcd": 1}, "difficulty": [0, 2]}
    tasks = load(**own, size=12, num_eval=6)
    assert [task.id for task in tasks.train] == [
        *(f"leg_counting@{level}/{place}" for level in (0, 2) for place in range(4)),
        *(f"gcd@{level}/{place}" for level in (0, 2) for place in range(2)),
    ]
    assert [task.id for task in tasks.eval][-2:] == ["gcd@0/eval/0", "gcd@2/eval/0"]
    more = {task.id: task for task in load(**own, size=24, num_eval=6).train}
    assert all(more[task.id].prompt == task.prompt for task in tasks.train)
    animals = [text_of(task.prompt).count(",") for task in more.values() if task.id.startswith("leg_counting@2")]
    assert set(animals) - {animals[0]} == set()  # a level has its own part of a range, not the easier ones
    assert tasks.chat and tasks.rewards == {SCORE: 1.0, ANSWERED: 0.1} and tasks.correct == SCORE


@needs_gym
def test_a_verifier_decides_in_workers_and_where_it_fails_the_answer_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    [task] = load(datasets="leg_counting", size=1).train
    right, texts = f"<answer>{task.answer}</answer>", ["", "<answer>-1</answer>", task.answer]
    assert json.loads(json.dumps(dict(task.columns))) == task.columns  # what records and workers are given
    assert score(task, right) == 1 and [score(task, text) for text in texts] == [0, 0, 0]
    assert [answered(task, text) for text in (right, *texts)] == [1, 0, 1, 0]
    completions = [
        Rollout(group_id="r", index=i, token_ids=(1,), logprobs=(0.0,), finish_reason="stop", version=0)
        for i in range(2)
    ]
    with Scorer({SCORE: 1.0, ANSWERED: 0.5}, correct=SCORE, workers=1) as scorer:
        [rollouts] = scorer.score([task], [completions], [[right, texts[1]]])
    assert [(rollout.reward, rollout.is_correct) for rollout in rollouts] == [(1.5, True), (0.5, False)]
    [line] = load(datasets="leg_counting", size=1, form="line").train
    size = len(task.answer)
    parts = [score(line, f" {task.answer}{end}\n7") for end in ("", ".", "..")]
    assert parts == [1, 1, size / (size + 1)]  # of an answer that holds the right one, the share that is right
    dataset = sets.made(sets.Source(name="leg_counting"), 0, 1)
    monkeypatch.setattr(dataset, "score_answer", lambda answer, entry: [][1], raising=True)
    assert score(task, right) == 0


@needs_gym
def test_all_usable_data_sets_take_their_own_answers() -> None:
    taken, open_ended = [], []
    for name in sets.names():
        if name not in SLOW:
            [task] = load(datasets=name, size=1, num_eval=1).train
            given = score(task, f"<answer>{task.answer}</answer>")
            (taken if given == 1 else open_ended).append(name)
            assert given == 1 or task.answer == "", name
    assert len(taken) > 75 and open_ended == ["boxnet", "graph_color", "propositional_logic", "rubiks_cube"]


CALLS = {
    "eval",
    "exec",
    "compile",
    "parse_expr",
    "sympify",
    "parse_latex",
    "S",
    "system",
    "run",
    "Popen",
    "import_module",
}
"""Functions that run a text as code, or may: sympy's parsers call eval."""
READ = {
    "basic_arithmetic": "of the expression that it asks",
    "bitwise_arithmetic": "of the expression that it asks",
    "gsm_symbolic": "of fractions in its own templates",
    "number_sorting": "of its own answer",
    "propositional_logic": "a parser of its own",
}
"""Usable data sets whose modules call one of them all the same: each was read."""


def is_compiling(call: ast.Call) -> bool:
    """Whether it is `re.compile`, or that of another module."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "compile"


@needs_gym
def test_no_usable_data_set_runs_what_a_model_wrote() -> None:
    from reasoning_gym.factory import DATASETS

    folder = Path(inspect.getfile(DATASETS["gcd"][0])).parents[1]
    found = set()
    for name, (kind, _) in DATASETS.items():
        file = Path(inspect.getfile(kind))
        files = [file] if file.parent.parent == folder else sorted(file.parent.rglob("*.py"))
        nodes = [node for each in files for node in ast.walk(ast.parse(each.read_text())) if isinstance(node, ast.Call)]
        called = {getattr(node.func, "id", getattr(node.func, "attr", "")) for node in nodes if not is_compiling(node)}
        found |= {name} if called & CALLS else set()
    assert found >= {name for name, why in sets.REFUSED.items() if "Python code" in why}
    assert found - set(sets.REFUSED) == READ.keys()


@needs_gym
def test_another_process_makes_the_same_questions() -> None:
    """With other hashes of texts, and in another order: what a resumed run and a worker make again."""
    code = """
import json, sys, zlib
from podsrl.integrations import reasoning_gym_sets as sets
sets.check_installed()
places = [0, 1, 2][::int(sys.argv[1])]
names = [name for name in sets.names() if name not in sys.argv[2:]]
made = {n: {p: sets.entry_of(sets.Source(name=n), 7, 3, p) for p in places} for n in names}
print(json.dumps({n: [zlib.crc32(repr(made[n][p]).encode()) for p in sorted(made[n])] for n in made}))
"""
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code, order, *SLOW],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for order, seed in (("1", "1"), ("-1", "2"))
    ]
    first, again = map(json.loads, outputs)
    assert first == again and len(first) > 80
