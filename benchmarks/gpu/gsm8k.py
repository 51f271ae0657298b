"""A model of 0.5 billion weights learns GSM8K on a GPU: GRPO with 16 and with 64 rollouts, PODS 64 → 16, and auto.

    python -m benchmarks gpu-gsm8k                          one seed of 180 training seconds of each arm
    python -m benchmarks gpu-gsm8k --model FOLDER           with another instruct model
    python -m benchmarks gpu-gsm8k --quick                  a tiny model and seconds, on any machine: a trial
    python -m benchmarks gpu-gsm8k --out FOLDER             goes on in a folder

The arms are those of `gsm8k.toml` beside this file. `pods models qwen2.5-coder-0.5b` fetches the model; PODS_DATA names
the folder that holds gsm8k/train.jsonl and gsm8k/test.jsonl.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu.compared import measure

TARGETS = (0.2, 0.3)


def main(arguments: Sequence[str]) -> None:
    measure("gpu-gsm8k", __doc__, str(Path(__file__).with_suffix(".toml")), (), TARGETS, arguments)
