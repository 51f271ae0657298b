"""SmolLM2-135M learns sums on a GPU: GRPO, PODS and auto, the recipe `smol-arms` with less time.

    python -m benchmarks gpu-demo                  two seeds of 45 training seconds of each arm
    python -m benchmarks gpu-demo --quick          a tiny model and seconds, on any machine: a trial
    python -m benchmarks gpu-demo --out FOLDER     goes on in a folder

`pods models smollm2-135m` fetches the model.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.gpu.compared import measure

TARGETS = (0.2, 0.4)
CHANGES = ("num_seeds=2", "base.stop.seconds=45", "base.eval.every_seconds=5")


def main(arguments: Sequence[str]) -> None:
    measure("gpu-demo", __doc__, "smol-arms", CHANGES, TARGETS, arguments)
