"""Selection in ART: 64 trajectories per scenario are generated, the 16 whose rewards vary most are trained on.

The rewards are made up here, so it needs no model; in a run your agent earns them. See docs/from-art.md.

    python examples/06_art.py

Expected output:

    64 trajectories with variance 0.08, of which 16 with variance 0.20
    64 trajectories with variance 0.07, of which 16 with variance 0.18
"""

from __future__ import annotations

import asyncio
import random
from statistics import pvariance

import art

from podsrl.integrations.art import keep


async def rollout(scenario: int, attempt: int) -> art.Trajectory:
    messages = [{"role": "user", "content": f"question {scenario}"}, {"role": "assistant", "content": f"try {attempt}"}]
    return art.Trajectory(messages_and_choices=messages, reward=random.Random(f"{scenario}/{attempt}").random())


async def main() -> None:
    everything = [[await rollout(scenario, attempt) for attempt in range(64)] for scenario in range(2)]
    groups = await art.gather_trajectory_groups(
        (art.TrajectoryGroup(rollout(scenario, attempt) for attempt in range(64)) for scenario in range(2)),
        after_each=keep(16),
        pbar_desc=None,
    )
    for before, group in zip(everything, groups, strict=True):
        spread = [f"{pvariance(one.reward for one in side):.2f}" for side in (before, group)]
        print(f"{len(before)} trajectories with variance {spread[0]}, of which {len(group)} with variance {spread[1]}")


asyncio.run(main())
