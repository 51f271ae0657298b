"""What a run says before its first step, and what it writes down instead."""

from __future__ import annotations

import json
from pathlib import Path

from podsrl.config.load import load_config
from podsrl.lib.machine import configure_threads
from podsrl.run.session import start

SMALL = ("rollouts.num_prompts=1", "rollouts.num_rollouts=4", "select.num_kept=2", "rollouts.max_new_tokens=4")
SHORT = ("task.num_eval=2", "eval.every_seconds=0", "stop.seconds=0", "stop.steps=1", "loss.clip_low=0.1")


def test_a_run_says_what_learns_what_and_writes_down_what_computes_it(tmp_path: Path) -> None:
    said: list[str] = []
    start(load_config("pods", [*SMALL, *SHORT]), tmp_path / "run", on_record=lambda record: None, say=said.append)
    assert said[0].startswith("builtin:arithmetic learns from the questions of 'arithmetic', rewarded by correct (1)")
    [idle] = [line for line in said if "changes nothing" in line]
    assert idle.startswith("loss.clip_low = 0.1 changes nothing here: one optimizer step")
    [line] = (tmp_path / "run" / "starts.jsonl").read_text().splitlines()
    setup = json.loads(line)["setup"]
    assert setup.keys() == {"threads", "matrix products", "generation", "update"}
    assert setup["threads"] == configure_threads(0, 0) and not set(setup.values()) & set(said)
