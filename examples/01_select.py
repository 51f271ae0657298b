"""One call: which rollouts of a group are worth an update?

A group is n answers to one question, each with a reward. A selection rule keeps m of them. Rewards are a list, a numpy
array or a torch tensor, with any number of leading dimensions; the indices are of the same kind.
The script takes a second or two, mostly for `import torch`.

    python examples/01_select.py

Expected output:

    rewards 0.0  1.0  0.1  0.0  1.0  0.1  0.0  0.6, keep 4 of 8
    max_variance  keeps [0, 1, 3, 4]  rewards 0.0  1.0  0.0  1.0  variance 0.250
    max_reward    keeps [1, 4, 5, 7]  rewards 1.0  1.0  0.1  0.6  variance 0.137
    both_ends     keeps [0, 1, 3, 4]  rewards 0.0  1.0  0.0  1.0  variance 0.250
    random        keeps [0, 1, 3, 5]  rewards 0.0  1.0  0.0  0.1  variance 0.177
    percentile    keeps [2, 3, 4, 7]  rewards 0.1  0.0  1.0  0.6  variance 0.162
    a list:                   [0, 1, 3, 4]
    two groups, numpy array:  [[0, 1, 3, 4], [0, 1, 2, 7]]
    two groups, torch tensor: [[0, 1, 3, 4], [0, 1, 2, 7]]
"""

from __future__ import annotations

import numpy as np
import torch

from podsrl.select import RULES, max_variance

NUM_KEPT = 4
REWARDS = [0.0, 1.0, 0.1, 0.0, 1.0, 0.1, 0.0, 0.6]
ONE_RIGHT = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]


def main() -> None:
    print(f"rewards {_line(REWARDS)}, keep {NUM_KEPT} of {len(REWARDS)}")
    for name, rule in RULES.items():
        if name in ("keep_all", "max_signal", "drop_surplus"):  # plain GRPO; and rules that keep another number
            continue
        generator = torch.Generator().manual_seed(0)  # only "random" reads it
        kept = rule(torch.tensor(REWARDS), NUM_KEPT, generator=generator).tolist()
        rewards = [REWARDS[i] for i in kept]
        print(f"{name:13} keeps {kept}  rewards {_line(rewards)}  variance {np.var(rewards):.3f}")

    print("a list:                  ", max_variance(REWARDS, NUM_KEPT))
    array = np.array([REWARDS, ONE_RIGHT])
    print("two groups, numpy array: ", max_variance(array, NUM_KEPT).tolist())
    print("two groups, torch tensor:", max_variance(torch.from_numpy(array), NUM_KEPT).tolist())


def _line(rewards: list[float]) -> str:
    return "  ".join(f"{reward:.1f}" for reward in rewards)


if __name__ == "__main__":
    main()
