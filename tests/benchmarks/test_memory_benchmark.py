"""`python -m benchmarks memory`: what a dry run predicts, against what the process of a run holds."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.memory import config_of, watched
from benchmarks.models import shaped_model
from podsrl.tools.pretrain import character_tokenizer

CHILD = """
import json, os, sys
from benchmarks.memory import measure
from podsrl.config.load import load_config
sys.path.insert(0, os.getcwd())  # where the workers find the reward
os.chdir(sys.argv[1])
print(json.dumps(measure(load_config("config.toml"))))
"""
CONFIG = """
extends = "pods"
threads = 1
model.path = "model"
rollouts = { num_prompts = 4, num_rollouts = 16, max_new_tokens = 64 }
select.num_kept = 16
eval.every_seconds = 0.0
stop = { steps = 1, seconds = 0.0 }
[task]
num_eval = 4
rewards = { "benchmarks.memory:mean_letter" = 1.0 }
correct = "math_correct"
"""


def test_the_prediction_is_within_half_of_what_a_run_of_fourteen_million_weights_holds(tmp_path: Path) -> None:
    tokenizer = character_tokenizer()
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    shaped_model("s384", **ends).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "config.toml").write_text(CONFIG)
    found = watched([sys.executable, "-c", CHILD, str(tmp_path)])
    [step] = [line for line in map(json.loads, (tmp_path / "run/metrics.jsonl").open()) if "loss" in line]
    assert step["tokens/trained"] > 3000 and found["measured"] > 500 << 20
    assert 1 / 1.5 < found["ratio"] < 1.5


@pytest.mark.parametrize("name", ["adapters", "full", "answers", "demo"])
def test_each_config_is_one(name: str) -> None:
    config = config_of(name)
    assert config.stop.steps == (1 if name == "answers" else 3) and (config.lora is None) == (name in ("full", "demo"))
