"""Measure a model on this machine: a few real training steps at several n, each with updates at several m.

The learning rate is all but zero meanwhile, so that every step sees the same policy: rewards, lengths and gradient
norms belong together, and the weights stay what they were. Nothing is written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from podsrl.config.load import with_values
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.lib.callbacks import Progress
from podsrl.plan.cost import PREDICTED_STAGES
from podsrl.plan.measured import Measurements, StepProbe, UpdateProbe, own_kept
from podsrl.plan.rewards import Seen
from podsrl.plan.search import STANDS_FOR, planning_advantage, planning_rule
from podsrl.plan.value import gradient_probe
from podsrl.run.before.settle import settle
from podsrl.run.before.sizes import parts_of
from podsrl.run.step.learn import UpdateResult
from podsrl.run.step.step import training_step
from podsrl.run.step.step_result import StepResult, samples_by_group
from podsrl.run.step.trainer import Trainer
from podsrl.types import Group, Sample, Selection

STILL = 1e-30
"""Learning rate of a probe: float32 weights do not change by it."""
MAX_ROUNDS = 12
_CHANGES_STEPS = ("enough", "questions", "rollouts", "guide", "keep", "look", "wait", "repair")
"""Moments of systems with which a step has other rollouts."""
_PREDICTED = (
    "pods plan predicts only steps of rollouts.num_prompts × rollouts.num_rollouts rollouts, one step after the other, "
    "by the generator of this package in the trainer's process"
)


def probing_config(config: RunConfig) -> RunConfig:
    """The same run without `[costs]`; max-variance stands for rules of `STANDS_FOR`, and n rollouts of each question
    for the system `worth`.

    Raises:
        UsageError: a run whose seconds the plan's model cannot describe, or as of `planning_rule` and
            `planning_advantage`.
    """
    planning_rule(config), planning_advantage(config)
    for key, value, default in (
        ("order.ahead", config.order.ahead, 0),
        ("rollouts.generator", config.rollouts.generator, "engine"),
        ("scale.generators", config.scale.generators, 0),
    ):
        if value != default:
            raise UsageError(f"{key} = {value!r}: {_PREDICTED}; plan with --{key}={default}")
    systems = tuple(name for name in config.systems if name != "worth")
    options = {name: own for name, own in config.options.items() if name != "worth"}
    config = config.model_copy(update={"costs": None, "systems": systems, "options": options})
    parts = parts_of(config)
    if found := [call.option for moment in _CHANGES_STEPS for call in parts[moment]]:
        raise UsageError(f"{found[0]}: {_PREDICTED}; plan without the system, as --systems=")
    select = {"rule": STANDS_FOR[config.select.rule], "options": {}} if config.select.rule in STANDS_FOR else {}
    return with_values(config, select=select)


def probe_sizes(config: RunConfig) -> list[int]:
    """The n of the probes: a quarter, the config's own, and twice it."""
    n, chunks = config.rollouts.num_rollouts, config.select.num_chunks
    return sorted({max(4 * chunks, n // 4 // chunks * chunks), n, 2 * n})


def probe_kept(config: RunConfig, num_rollouts: int) -> list[int]:
    """The m of the probes: 2 per chunk, a quarter of the config's own, its own, and four times it."""
    own, chunks = own_kept(config), config.select.num_chunks
    sizes = {2 * chunks, max(2 * chunks, own // 4 // chunks * chunks), own, 4 * own}
    return sorted({min(size, num_rollouts) for size in sizes})


def run_probes(trainer: Trainer, config: RunConfig, *, budget_seconds: float, progress: Progress) -> Measurements:
    """Measure for about `budget_seconds`, at least one round, with a trainer of `still_trainer`; progress is 0 .. 1.

    The sizes take turns, so that a slow moment of the machine does not fall on one n alone.
    """
    start, sizes, steps = time.perf_counter(), probe_sizes(config), list[StepProbe]()

    def spent() -> float:
        """Share of the budget."""
        return (time.perf_counter() - start) / budget_seconds

    progress(0.0, 1.0, "a first step")
    _take_step(trainer, config, sizes[0])  # not counted: memory is taken and kernels are chosen
    for done in range(1, MAX_ROUNDS + 1):
        for size in sizes:
            progress(min(spent(), 1.0), 1.0, f"a step of {size} rollouts per question")
            steps.append(_take_step(trainer, config, size))
        if spent() * (done + 1) / done > 1:  # the next round would not fit
            break
    return Measurements(config=config, steps=tuple(steps))


@contextmanager
def still_trainer(config: RunConfig) -> Iterator[Trainer]:
    """A trainer that learns nothing; its reward workers end with it.

    Raises:
        UsageError: as of `probing_config`, several processes, or whatever a run with this config would meet.
    """
    with _opened(probing_config(settle(config)[0])) as trainer:
        yield trainer


@contextmanager
def _opened(config: RunConfig) -> Iterator[Trainer]:
    trainer = Trainer(with_values(config, optim={"lr": STILL, "weight_decay": 0.0}))
    try:
        if not trainer.processes.is_alone:
            raise UsageError("one process is measured; start it without torchrun or pods launch")
        trainer.parts.systems.check("write_nothing")
        yield trainer
    finally:
        trainer.close()


def measure_steps(config: RunConfig, num_steps: int) -> list[StepResult]:
    """So many steps that learn and write nothing. UsageError: several processes, or whatever a run would meet."""
    with _opened(config) as trainer:
        training_step(trainer)  # not counted: memory is taken and kernels are chosen
        return [training_step(trainer) for _ in range(num_steps)]


def measure_pace(config: RunConfig, num_steps: int = 2) -> float:
    """Mean seconds of the steps of `measure_steps`."""
    return sum(step.total_seconds for step in measure_steps(config, num_steps)) / num_steps


def resize(trainer: Trainer, num_rollouts: int, num_kept: int) -> None:
    """Let the trainer's next step use another n and m."""
    trainer.config = with_values(trainer.config, rollouts={"num_rollouts": num_rollouts}, select={"num_kept": num_kept})


def seen_groups(groups: Sequence[Group]) -> tuple[Seen, ...]:
    """The valid rollouts of each group, with the tokens that were drawn for them, as the update counts them."""
    return tuple(
        Seen.of([(r.reward, r.num_drawn, r.is_correct) for r in group.rollouts if r.is_valid]) for group in groups
    )


def _take_step(trainer: Trainer, config: RunConfig, num_rollouts: int) -> StepProbe:
    """A step at the config's m, then updates at the other m on what it generated: so their gradients compare."""
    own = min(own_kept(config), num_rollouts)
    resize(trainer, num_rollouts, own)
    step = training_step(trainer)
    stages = {stage: step.seconds[stage] for stage in PREDICTED_STAGES}
    updates = [_update_probe(trainer, step.groups, step.selections, step.samples, step.update, stages)]
    for num_kept in probe_kept(config, num_rollouts):
        if num_kept != own:
            resize(trainer, num_rollouts, num_kept)
            updates.append(_update_again(trainer, step.groups))
    return StepProbe(
        num_rollouts=num_rollouts,
        decode_steps=max(1, step.load.num_decode_steps),
        forwarded=step.load.num_forwarded,
        generated=sum(r.num_drawn for group in step.fresh for r in group.rollouts),
        generate_seconds=stages["generate"],
        score_seconds=stages["score"],
        rest_seconds=max(0.0, step.total_seconds - sum(stages.values())),
        updates=tuple(updates),
        groups=seen_groups(step.fresh),
    )


def _update_again(trainer: Trainer, groups: Sequence[Group]) -> UpdateProbe:
    start = time.perf_counter()
    selections = trainer.choose(groups)
    samples = trainer.credit(groups, selections)
    batch = trainer.make_batch(samples)
    selected = time.perf_counter()
    update = trainer.update(batch)
    if trainer.policy.device.type == "cuda":
        torch.cuda.synchronize(trainer.policy.device)
    seconds = {"select": selected - start, "update": time.perf_counter() - selected}
    return _update_probe(trainer, groups, selections, samples, update, seconds)


def _update_probe(
    trainer: Trainer,
    groups: Sequence[Group],
    selections: Sequence[Selection],
    samples: Sequence[Sample],
    update: UpdateResult,
    seconds: Mapping[str, float],
) -> UpdateProbe:
    """The gradient is that of the chunks of all groups, one after the other."""
    rewards, kept, weights = list[list[float]](), list[list[float]](), list[Tensor]()
    for group, selection, own in zip(groups, selections, samples_by_group(selections, samples), strict=True):
        advantage_of = {i: sample.advantage for i, sample in zip(selection.kept, own, strict=True)}
        for chunk in selection.chunks or (range(len(group.rollouts)),):
            chosen = [i for i in chunk if i in advantage_of]
            rewards.append([group.rollouts[i].reward for i in chunk if group.rollouts[i].is_valid])
            kept.append([group.rollouts[i].reward for i in chosen])
            weights.append(torch.tensor([advantage_of[i] for i in chosen]))
    num_kept, num_chunks = own_kept(trainer.config), trainer.config.select.num_chunks
    return UpdateProbe(
        num_kept=num_kept,
        trained_rows=update.stats.num_trained_rows,
        trained_tokens=update.stats.num_trained_tokens,
        update_seconds=seconds["update"],
        select_seconds=seconds["select"],
        gradient=gradient_probe(rewards, kept, weights, update.grad_norm, num_kept=num_kept, num_chunks=num_chunks),
    )
