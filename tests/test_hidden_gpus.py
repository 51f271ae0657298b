"""Tests about the CPU see no GPU, wherever they run."""

from __future__ import annotations

import os
import subprocess
import sys

import torch


def test_a_gpu_of_this_machine_is_hidden_from_this_process() -> None:
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0


def test_and_from_those_it_starts() -> None:
    code = "import os; print(repr(os.environ['CUDA_VISIBLE_DEVICES']))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "''\n"
