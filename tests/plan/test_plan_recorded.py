"""What a plan is made from where it is a run's logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from podsrl.config.load import dump, load_config
from podsrl.plan.recorded import read_measurements


def step_line(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "tokens/generated": 64,
        "tokens/forwarded": 40,
        "tokens/trained": 20,
        "length/kept": 5.0,
        "memory/peak_generate_bytes": 1000,
        **{f"seconds/{stage}": 0.1 for stage in ("generate", "score", "select", "update")},
        "seconds/total": 0.5,
    }


def group_line(name: str, *rewards: float | None) -> dict[str, Any]:
    rollouts = [
        {
            "index": index,
            "text": "",
            "reward": reward,
            "parts": {},
            "is_correct": reward == 1.0,
            "invalid_reason": None if reward is not None else "it raised",
            "num_tokens": 3 + index,
            "finish_reason": "stop",
            "kept": False,
            "drop_reason": "not_selected",
            "advantage": None,
        }
        for index, reward in enumerate(rewards)
    ]
    task = {"id": name, "prompt": "?", "answer": "!"}
    return {"step": 2, "group": name, "task": task, "rollouts": rollouts}


def test_the_chunks_of_a_question_belong_together(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(dump(load_config("pods", ["--select.num_chunks=2"])))
    lines = [group_line("s1/0/q#0", 1.0, 0.0), group_line("s1/0/q#1", 0.0, None), group_line("s1/1/q", 1.0, 1.0)]
    for name, written in (("metrics", map(step_line, (1, 2, 3))), ("groups", lines)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))
    seen = read_measurements(tmp_path).groups
    assert [group.rewards.tolist() for group in seen] == [[1.0, 0.0, 0.0], [1.0, 1.0]]
    assert [group.lengths.tolist() for group in seen] == [[3.0, 4.0, 3.0], [3.0, 4.0]]
