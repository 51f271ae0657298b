"""What a run says before its first step, and what it writes down instead."""

from __future__ import annotations

from pathlib import Path

from podsrl.lib.machine import configure_threads
from podsrl.run.session import start
from runs import config_of, lines_of


def test_a_run_says_what_learns_what_and_writes_down_what_computes_it(tmp_path: Path) -> None:
    said: list[str] = []
    config = config_of("rollouts.max_new_tokens=4", "stop.steps=1", "loss.clip_low=0.1")
    start(config, tmp_path / "run", on_record=lambda record: None, say=said.append)
    assert said[0].startswith("builtin:arithmetic learns from the questions of 'arithmetic', rewarded by correct (1)")
    [idle] = [line for line in said if "changes nothing" in line]
    assert idle.startswith("loss.clip_low = 0.1 changes nothing here: one optimizer step")
    [line] = lines_of(tmp_path / "run", "starts.jsonl")
    setup = line["setup"]
    assert setup.keys() == {"threads", "matrix products", "generation", "update"}
    assert setup["threads"] == configure_threads(0, 0) and not set(setup.values()) & set(said)
