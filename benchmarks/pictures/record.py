"""Three groups of one run of the recipe `pods`, for the pictures of docs/pictures.md.

    python -m benchmarks pictures            trains for some seconds, until the run has had all three
    python -m benchmarks pictures --quick    with 8 rollouts per prompt
    python -m benchmarks pictures --save     also draws docs/images/pictures/

"shown" is the first group with three different rewards and more correct answers than are kept of a group, "rare" the
first with one correct answer, "common" the first with one wrong answer.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import torch

from benchmarks import command
from benchmarks.timing import Say
from podsrl.run.step.trainer import Trainer
from podsrl.types import Group, Sample, Selection

Json = dict[str, Any]
MOST_STEPS = 200


def main(arguments: Sequence[str]) -> None:
    from benchmarks.pictures.page import captions, publish

    parser = command.new_parser("pictures", __doc__)
    parser.add_argument("--quick", action="store_true", help="8 rollouts per prompt")
    command.measure(parser, arguments, run, captions, publish=publish)


def run(options: argparse.Namespace, say: Say = lambda text: None) -> Json:
    """Train until each kind of group has come.

    Raises:
        PodsError: one did not come within `MOST_STEPS`.
    """
    from benchmarks.our_arm import OurArm
    from podsrl.config.load import load_config
    from podsrl.errors import PodsError
    from podsrl.run.steps import training_step

    sizes = ("rollouts.num_rollouts=8", "select.num_kept=4") if options.quick else ()
    config = load_config("pods", ("threads=1", 'model.device="cpu"', 'model.matmul="onednn"', *sizes))
    found: Json = {}
    with closing(OurArm(config)) as arm:
        for step in range(MOST_STEPS):
            say(f"step {step}: {', '.join(found) or 'none'} of 3 groups")
            result = training_step(arm.trainer)
            for group, selection in zip(result.groups, result.selections, strict=True):
                kind = kind_of(group, len(selection.kept), num_rewards=2 if options.quick else 3)
                if kind and kind not in found:
                    found[kind] = recorded(arm.trainer, group, selection) | {"step": step}
            if len(found) == 3:
                return found
    raise PodsError(f"{MOST_STEPS} steps had no groups but {', '.join(found)}; wanted rare, shown and common")


def kind_of(group: Group, num_kept: int, num_rewards: int = 3) -> str | None:
    """ "rare", "common", "shown", or None: a group of which there is no picture."""
    num_correct = sum(rollout.is_correct for rollout in group.rollouts)
    if num_correct in (1, len(group.rollouts) - 1):
        return "rare" if num_correct == 1 else "common"
    is_shown = num_correct > num_kept and len({rollout.reward for rollout in group.rollouts}) == num_rewards
    return "shown" if is_shown else None


def recorded(trainer: Trainer, group: Group, selection: Selection) -> Json:
    """What is drawn of a group whose step has just been trained.

    Returns:
        "prompt"; of its n answers "texts", "rewards", "correct" and the log-probabilities "before" and "after" the
        update, in nats per answer; "kept", the indices that were trained on.
    """
    rollouts = group.rollouts
    return {
        "prompt": str(group.task.prompt).strip(),
        "texts": [rollout.text for rollout in rollouts],
        "rewards": [round(rollout.reward, 4) for rollout in rollouts],
        "correct": [rollout.is_correct for rollout in rollouts],
        "before": [round(sum(rollout.completion.logprobs), 4) for rollout in rollouts],
        "after": [round(value, 4) for value in logprobs(trainer, group)],
        "kept": list(selection.kept),
    }


def logprobs(trainer: Trainer, group: Group) -> list[float]:
    """log p of each answer under the weights as they are now."""
    from podsrl.update import make_batch
    from podsrl.update.logprobs import token_logprobs

    samples = [
        Sample(group_id=group.id, prompt_ids=group.prompt_ids, completion=rollout.completion, advantage=0.0)
        for rollout in group.rollouts
    ]
    batch = make_batch(samples, pad_token_id=trainer.tokenizer.pad_token_id)
    with torch.no_grad():
        found, _ = token_logprobs(trainer.model, batch.input_ids, batch.attention_mask, batch.target_mask)
    return [float(value) for value in found.sum(-1)]
