"""`pods tasks`: what task sets there are, and questions of one."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from podsrl.tasks import TASKS, load_tasks

Pods = Callable[..., tuple[int, str, str]]
needs_gym = pytest.mark.skipif(
    importlib.util.find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed (make test-peers)"
)


def test_every_set_has_a_question_or_what_has_to_be_there_for_one(
    pods: Pods, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "svamp").mkdir()
    for side, question in (("train", "2 and 2?"), ("test", "1 and 1?")):
        (tmp_path / f"svamp/{side}.jsonl").write_text(json.dumps({"question": question, "answer": 4}))
    monkeypatch.setenv("PODS_DATA", str(tmp_path))
    code, said, _ = pods("tasks", "--json")
    rows = {row["name"]: row for row in json.loads(said)}
    assert code == 0 and list(rows) == list(TASKS) and all(row["about"] for row in rows.values())
    sums = load_tasks("arithmetic", num_eval=1).eval[0]
    assert (rows["arithmetic"]["question"], rows["arithmetic"]["answer"]) == (str(sums.prompt).strip(), sums.answer)
    assert (rows["svamp"]["question"], rows["svamp"]["answer"]) == ("user: 1 and 1?", "4")
    assert rows["gsm8k"]["question"] == "(on the hub, or as gsm8k/ in the folder that PODS_DATA names)"
    assert rows["jsonl"]["question"] == "(what task.path names)" and rows["jsonl"]["answer"] == ""
    code, said, _ = pods("tasks")
    assert code == 0 and all(f" {name} " in said for name in TASKS) and "pods tasks NAME" in said


def test_one_set_shows_questions_and_an_unknown_one_the_nearest_name(pods: Pods) -> None:
    code, said, _ = pods("tasks", "steps")
    shown = load_tasks("steps", num_eval=3).eval
    assert code == 0 and said.count("→ ") == 3 and "Stories of one to eight exact steps" in said
    assert all(str(task.prompt).strip() in said and f"→ {task.answer}\n" in said for task in shown)
    code, _, errors = pods("tasks", "stepz")
    assert code == 2 and "pods tasks stepz: there is no such task set. Did you mean 'steps'?" in errors


@needs_gym
def test_reasoning_gym_lists_its_data_sets_and_one_shows_its_options_and_levels(pods: Pods) -> None:
    from podsrl.integrations.reasoning_gym_sets import REFUSED, entry_of, names
    from podsrl.integrations.reasoning_gym_sets import Source as From

    code, said, _ = pods("tasks", "reasoning_gym", "--json")
    rows = {row["name"]: row for row in json.loads(said)}
    assert code == 0 and set(rows) == {*names(), *REFUSED}
    assert rows["leg_counting"]["level"] == 35 and rows["acre"]["level"] is None
    assert all(rows[name]["question"] for name in names()) and all(rows[name]["refused"] for name in REFUSED)
    code, said, _ = pods("tasks", "reasoning_gym:leg_counting")
    assert code == 0 and "levels 0 .. 35" in said and "    max_animals = 10\n" in said and said.count("→ ") == 4
    entry = entry_of(From(name="leg_counting", level=2), 0, 1, 0)
    assert f"level 2\n{entry['question'].strip()}\n→ {entry['answer']}" in said
    code, _, errors = pods("tasks", "reasoning_gym:countdown")
    assert code == 2 and "runs what the model wrote" in errors
