"""The learner: which process trains which samples."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import made
from podsrl.config.load import load_config
from podsrl.run.step.learn import Learner, UpdateResult
from podsrl.run.step.trainer import Trainer
from podsrl.scale.processes import Processes
from podsrl.types import Sample


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    return Trainer(load_config("pods", ["task.num_eval=4", "rollouts.num_rollouts=16"]))


def learner_of(
    trainer: Trainer, rank: int, num_processes: int, *, has_penalty: bool = False, num_minibatches: int = 1
) -> Learner:
    return Learner(
        trainer.policy,
        trainer.learner.updater,
        Processes(rank, num_processes),
        is_sharded=False,
        has_penalty=has_penalty,
        num_epochs=1,
        num_minibatches=num_minibatches,
        pad_token_id=0,
    )


def sample(group: str, first_token: int, length: int, advantage: float | tuple[float, ...]) -> Sample:
    """Its prompt names the group and its first token the sample."""
    return made.sample((ord(group),), (first_token, *(9,) * (length - 1)), advantage, group_id=group)


SAMPLES = [
    sample("a", 10, 30, 1.0),
    sample("a", 11, 30, -1.0),
    sample("b", 12, 50, 0.0),  # long, and without a gradient
    sample("b", 13, 50, 0.0),
    sample("c", 14, 5, (0.0, 0.0, 0.5, 0.0, 0.0)),
    sample("d", 15, 4, 0.5),
]


def shares(trainer: Trainer, samples: list[Sample] = SAMPLES, *, has_penalty: bool = False) -> list[list[int]]:
    """The first completion token of each row that process 0 and process 1 train."""
    found = []
    for rank in range(2):
        batch = learner_of(trainer, rank, 2, has_penalty=has_penalty).make_batch(samples)
        assert batch is not None
        found.append(batch.input_ids[:, 1].tolist())
    return found


def test_groups_go_whole_to_the_process_with_the_fewest_tokens_to_train(trainer: Trainer) -> None:
    assert shares(trainer) == [[10, 11], [12, 13, 14, 15]]


def test_a_penalty_gives_every_row_a_gradient_and_so_a_cost(trainer: Trainer) -> None:
    assert shares(trainer, has_penalty=True) == [[12, 13], [10, 11, 14, 15]]


def test_chunks_of_a_group_may_go_to_several_processes(trainer: Trainer) -> None:
    """Tokens to train on: 31, 31, 0, 6 and 5."""
    chunked = [SAMPLES[0], replace(SAMPLES[1], chunk=1), *SAMPLES[2:]]
    assert shares(trainer, chunked) == [[10, 14], [11, 12, 13, 15]]


def test_one_process_trains_all_in_their_order(trainer: Trainer) -> None:
    batch = learner_of(trainer, 0, 1).make_batch(SAMPLES)
    assert batch is not None and batch.input_ids[:, 1].tolist() == [10, 11, 12, 13, 14, 15]


def test_nothing_to_train_changes_nothing(trainer: Trainer) -> None:
    before = [weight.clone() for weight in trainer.model.parameters()]
    assert trainer.learner.make_batch([]) is None
    assert trainer.update(None) == UpdateResult()
    assert trainer.progress.version == trainer.learner.version == 0
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))


def test_every_process_has_the_weights_of_the_whole_step(trainer: Trainer) -> None:
    """Groups of 2, 2, 1 and 1 rows among 6: 6 / (4 × 2) = 0.75 and 6 / (4 × 1) = 1.5."""
    batches = [learner_of(trainer, rank, 2).make_batch(SAMPLES) for rank in range(2)]
    found = [batch.row_weights.tolist() for batch in batches if batch is not None]
    assert found == [[0.75, 0.75], [0.75, 0.75, 1.5, 1.5]]
    alone = learner_of(trainer, 0, 1).make_batch(SAMPLES)
    assert alone is not None and alone.row_weights.tolist() == [0.75] * 4 + [1.5] * 2


def test_groups_are_dealt_to_mini_batches_in_turn(trainer: Trainer) -> None:
    """Groups a and c, then b and d: 4 rows each of 2, 1 and 2, 1; so 3 rows / (2 groups × 2 or 1)."""
    learner = learner_of(trainer, 0, 1, num_minibatches=2)
    batch = learner.make_batch(SAMPLES)
    assert batch is not None and batch.input_ids[:, 1].tolist() == [10, 11, 14, 12, 13, 15]
    assert batch.minibatch.tolist() == [0, 0, 0, 1, 1, 1]
    assert batch.row_weights.tolist() == [0.75, 0.75, 1.5, 0.75, 0.75, 1.5]


def test_each_process_has_a_share_of_each_mini_batch(trainer: Trainer) -> None:
    found = [learner_of(trainer, rank, 2, num_minibatches=2).make_batch(SAMPLES) for rank in range(2)]
    assert [batch.minibatch.tolist() for batch in found if batch is not None] == [[0, 0, 1], [0, 1, 1]]


def test_a_pass_is_a_step_per_mini_batch_each_with_its_own_counts(trainer: Trainer) -> None:
    """By hand: the gradient of each mini-batch alone, stepped one after the other; the numbers are of both."""
    names = dict.fromkeys(sample.group_id for sample in SAMPLES)
    samples = [replace(each, prompt_ids=(list(names).index(each.group_id),)) for each in SAMPLES]
    start = {name: weight.clone() for name, weight in trainer.learner.state()[0].items()}
    learner = learner_of(trainer, 0, 1, num_minibatches=2)
    batch = learner.make_batch(samples)
    assert batch is not None
    found, moved = learner.update(batch), {name: weight.clone() for name, weight in learner.state()[0].items()}
    assert learner.version == 2 and found.stats.num_sequences == 6 and found.stats.num_trained_tokens == 30 + 30 + 5 + 4
    for name, weight in learner.state()[0].items():
        weight.copy_(start[name])
    learner.updater.optimizer.load_state_dict({}, {"num_steps": 0, "num_skipped_steps": 0})
    of_half = learner_of(trainer, 0, 1)
    stats = []
    for half in ([*samples[:2], samples[4]], [*samples[2:4], samples[5]]):
        rows = of_half.make_batch(half)
        assert rows is not None
        stats.append(of_half.update(rows).stats)
    assert found.stats.loss == (stats[0].loss + stats[1].loss) / 2
    assert all(torch.equal(moved[name], weight) for name, weight in of_half.state()[0].items())
