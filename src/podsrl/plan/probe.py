"""Measure a model on this machine: a few real training steps at several n, and updates at several m and micro-batches.

The learning rate is all but zero meanwhile, so that every step sees the same policy: rewards, lengths and gradient
norms belong together, and the weights stay what they were. Nothing is written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from podsrl.config.load import with_values
from podsrl.config.schema import BudgetConfig, RunConfig
from podsrl.errors import UsageError
from podsrl.lib.callbacks import Progress
from podsrl.lib.machine import peak_bytes, start_peak, total_bytes
from podsrl.plan.cost import PREDICTED_STAGES
from podsrl.plan.measured import GenerationProbe, Measurements, UpdateProbe, own_kept
from podsrl.plan.rewards import Seen
from podsrl.plan.search import STANDS_FOR, Candidate
from podsrl.plan.value import MIDDLE, GradientProbe, gradient_probe, noise_range, noise_ratio
from podsrl.run.before.settle import settle
from podsrl.run.step.step_result import StepResult, samples_by_group
from podsrl.run.step.trainer import Trainer
from podsrl.run.step.wiring import new_updater
from podsrl.run.steps import training_step
from podsrl.types import Group, Sample, Selection

STILL = 1e-30
"""Learning rate of a probe: float32 weights do not change by it."""
SHARE_OF_STEPS = 0.55
"""Share of the budget for whole steps; the rest is for updates."""
MAX_ROUNDS = 12
KEPT_STEPS = 4
"""Steps at the largest n whose rollouts are updated on again and again."""


def probing_config(config: RunConfig) -> RunConfig:
    """The same run without `[costs]`; max-variance stands for rules of `STANDS_FOR`, and n rollouts of each question
    for `budget.rollouts = "worth"`.

    Raises:
        UsageError: a run whose seconds the plan's model cannot describe.
    """
    config = config.model_copy(update={"costs": None})
    if config.budget.rollouts == "worth":
        options = {name: own for name, own in config.options.items() if name != "worth"}
        config = with_values(config, budget={"rollouts": "equal"}).model_copy(update={"options": options})
    budget = config.budget.model_dump()
    for key, value, default in (
        ("steps.name", config.steps.name, "sync"),
        ("rollouts.generator", config.rollouts.generator, "engine"),
        ("scale.generators", config.scale.generators, 0),
        *((f"budget.{slot}", budget[slot], part) for slot, part in BudgetConfig().model_dump().items()),
        ("replay.unfinished", config.replay.unfinished, "drop"),
        ("replay.wait", config.replay.wait, "nothing"),
        ("replay.repair", config.replay.repair, "never"),
        ("steer.prune", config.steer.prune, "never"),
        ("steer.branch", config.steer.branch, "never"),
    ):
        if value != default:
            raise UsageError(
                f"{key} = {value!r}: pods plan predicts only steps of rollouts.num_prompts × rollouts.num_rollouts "
                "rollouts, one step after the other, by the generator of this package in the trainer's process; plan "
                f"with --{key}={default}"
            )
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


def probe_micro_batches(config: RunConfig, num_tokens: int) -> list[int]:
    """Micro-batches of a quarter to four times the config's own; what no batch fills is one and the same."""
    own = config.optim.micro_batch_tokens
    longest = config.rollouts.max_new_tokens
    sizes = {size for size in (own // 4, own // 2, 2 * own, 4 * own) if longest <= size < 2 * num_tokens}
    return sorted(sizes | {own})


def run_probes(trainer: Trainer, config: RunConfig, *, budget_seconds: float, progress: Progress) -> Measurements:
    """Measure for about `budget_seconds`, at least one round, with a trainer of `still_trainer`; progress is 0 .. 1."""
    prober = _Prober(trainer, config, budget_seconds, progress)
    prober.measure_steps()
    prober.measure_updates()
    return prober.result()


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


def resize(trainer: Trainer, *, num_rollouts: int, num_kept: int, micro_batch_tokens: int) -> None:
    """Let the trainer's next step use another n, m and micro-batch; the optimizer starts anew with the latter."""
    is_other = micro_batch_tokens != trainer.config.optim.micro_batch_tokens
    trainer.config = with_values(
        trainer.config,
        rollouts={"num_rollouts": num_rollouts},
        select={"num_kept": num_kept},
        optim={"micro_batch_tokens": micro_batch_tokens},
    )
    if is_other:
        del trainer.learner.updater  # before the new one, whose moments take as much memory
        trainer.learner.updater = new_updater(trainer.config, trainer.policy, trainer.parts, trainer.processes)


def seen_groups(groups: Sequence[Group]) -> list[Seen]:
    """The valid rollouts of each group."""
    return [
        Seen.of([(r.reward, len(r.completion.token_ids), r.is_correct) for r in group.rollouts if r.is_valid])
        for group in groups
    ]


class _Prober:
    def __init__(self, trainer: Trainer, config: RunConfig, budget_seconds: float, progress: Progress) -> None:
        self._trainer, self._config, self._progress = trainer, config, progress
        self._start, self._budget = time.perf_counter(), budget_seconds
        self._generation: list[GenerationProbe] = []
        self._updates: list[UpdateProbe] = []
        self._gradients: list[tuple[int, int, GradientProbe]] = []  # step, m
        self._seen: list[Seen] = []
        self._largest: list[tuple[Group, ...]] = []
        self._unknown: list[str] = []

    def measure_steps(self) -> None:
        """Whole steps at several n, in turns, so that a slow moment of the machine does not fall on one n alone."""
        sizes, own = probe_sizes(self._config), self._config.optim.micro_batch_tokens
        kept = own_kept(self._config)
        self._resize(sizes[0], min(kept, sizes[0]), own)
        training_step(self._trainer)  # not counted: memory is taken and kernels are chosen
        for done in range(MAX_ROUNDS):
            for size in sizes:
                self._progress(min(self._spent(), SHARE_OF_STEPS), 1.0, f"a step of {size} rollouts per question")
                self._resize(size, min(kept, size), own)
                self._take_step(training_step(self._trainer), size)
            if self._spent() > SHARE_OF_STEPS * (done + 1) / (done + 2):  # the next round would not fit
                break

    def measure_updates(self) -> None:
        """Updates on the largest steps' rollouts, again in turns."""
        num_rollouts = probe_sizes(self._config)[-1]
        tokens = sum(len(r.completion.token_ids) for group in self._largest[-1] for r in group.rollouts)
        pairs = probe_micro_batches(self._config, tokens), probe_kept(self._config, num_rollouts)
        start = self._spent()
        for done in range(MAX_ROUNDS):
            for place, micro in enumerate(pairs[0], start=done):  # every step's rollouts soon: gradients differ by step
                self._update_with(micro, pairs[1], num_rollouts, place % len(self._largest))
            if self._spent() + (self._spent() - start) / (done + 1) > 1:
                break

    def result(self) -> Measurements:
        sizes, probes = [m for _, m, _ in self._gradients], [probe for *_, probe in self._gradients]
        ratio, steps = noise_ratio(probes, sizes), [step for step, *_ in self._gradients]
        if ratio is None:
            self._unknown.append("the noise of a rollout's gradient: no gradients at three different m")
        return Measurements(
            config=self._config,
            generation=tuple(self._generation),
            updates=tuple(self._updates),
            groups=tuple(self._seen),
            noise_ratio=ratio,
            memory_bytes=total_bytes(self._trainer.policy.device),
            noise_range=None if ratio is None else noise_range(probes, sizes, steps, MIDDLE),
            unknown=tuple(self._unknown),
        )

    def _update_with(self, micro: int, kept: Sequence[int], num_rollouts: int, step: int) -> None:
        """Updates on a step's rollouts at every m with one micro-batch size; one that does not fit ends this size."""
        groups = self._largest[step]
        self._resize(num_rollouts, kept[0], micro)
        try:
            self._update_once(groups)  # not counted: the optimizer's memory is taken
            for m in kept:
                what = f"an update of {m} rollouts per question, {micro} tokens at once"
                self._progress(min(self._spent(), 1.0), 1.0, what)
                self._resize(num_rollouts, m, micro)
                probe, gradient = self._update_once(groups)
                self._updates.append(probe)
                self._gradients.append((step, m, gradient))
        except torch.OutOfMemoryError:
            if micro <= self._config.optim.micro_batch_tokens:
                raise
            torch.cuda.empty_cache()
            self._updates = [p for p in self._updates if p.micro_batch_tokens != micro]
            self._unknown.append(f"micro-batches of {micro} tokens and more: they did not fit in memory")

    def _update_once(self, groups: Sequence[Group]) -> tuple[UpdateProbe, GradientProbe]:
        trainer, device = self._trainer, self._trainer.policy.device
        start = time.perf_counter()
        selections = trainer.choose(groups)
        samples = trainer.credit(groups, selections)
        batch = trainer.make_batch(samples)
        selected = time.perf_counter()
        start_peak(device)
        update = trainer.update(batch)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        probe = UpdateProbe(
            num_rollouts=trainer.config.rollouts.num_rollouts,
            num_kept=own_kept(trainer.config),
            micro_batch_tokens=trainer.config.optim.micro_batch_tokens,
            trained_rows=update.stats.num_trained_rows,
            trained_tokens=update.stats.num_trained_tokens,
            update_seconds=time.perf_counter() - selected,
            select_seconds=selected - start,
            peak_bytes=peak_bytes(device),
        )
        return probe, _gradient(groups, selections, samples, update.grad_norm, trainer.config.select.num_chunks)

    def _take_step(self, step: StepResult, size: int) -> None:
        stages = {stage: step.seconds[stage] for stage in PREDICTED_STAGES}
        self._generation.append(
            GenerationProbe(
                num_rollouts=size,
                decode_steps=max(1, step.load.num_decode_steps),
                forwarded=step.load.num_forwarded,
                generated=sum(len(r.completion.token_ids) for group in step.groups for r in group.rollouts),
                generate_seconds=stages["generate"],
                score_seconds=stages["score"],
                rest_seconds=max(0.0, step.total_seconds - sum(stages.values())),
                kv_bytes=step.load.peak_generate_bytes,
            )
        )
        self._updates.append(
            UpdateProbe(
                num_rollouts=size,
                num_kept=own_kept(self._trainer.config),
                micro_batch_tokens=self._trainer.config.optim.micro_batch_tokens,
                trained_rows=sum(sample.has_advantage for sample in step.samples),
                trained_tokens=step.update.stats.num_trained_tokens,
                update_seconds=stages["update"],
                select_seconds=stages["select"],
                peak_bytes=None,
            )
        )
        self._seen += seen_groups(step.groups)
        if size == probe_sizes(self._config)[-1]:
            self._largest = [*self._largest, step.groups][-KEPT_STEPS:]

    def _resize(self, num_rollouts: int, num_kept: int, micro_batch_tokens: int) -> None:
        resize(self._trainer, num_rollouts=num_rollouts, num_kept=num_kept, micro_batch_tokens=micro_batch_tokens)

    def _spent(self) -> float:
        """Share of the budget, 0 at the start."""
        return (time.perf_counter() - self._start) / self._budget


def _gradient(
    groups: Sequence[Group], selections: Sequence[Selection], samples: Sequence[Sample], norm: float, chunks: int
) -> GradientProbe:
    """Make the probe from the chunks of all groups, one after the other."""
    rewards, kept, weights = list[list[float]](), list[list[float]](), list[Tensor]()
    for group, selection, own in zip(groups, selections, samples_by_group(selections, samples), strict=True):
        advantage_of = {i: sample.advantage for i, sample in zip(selection.kept, own, strict=True)}
        for chunk in selection.chunks or (range(len(group.rollouts)),):
            chosen = [i for i in chunk if i in advantage_of]
            rewards.append([group.rollouts[i].reward for i in chunk if group.rollouts[i].is_valid])
            kept.append([group.rollouts[i].reward for i in chosen])
            weights.append(torch.tensor([advantage_of[i] for i in chosen]))
    return gradient_probe(rewards, kept, weights, norm, num_chunks=chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Predicted and measured seconds of a step."""

    predicted: float
    measured: float
    """Median over the steps."""
    low: float
    """First quartile."""
    high: float
    """Third quartile."""
    num_steps: int
    stages: dict[str, tuple[float, float]]
    """Stage -> predicted and median measured seconds."""

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.measured


def verify(
    trainer: Trainer, candidates: Sequence[Candidate], *, num_steps: int, progress: Progress
) -> list[Verification]:
    """Take `num_steps` real steps per choice, with a trainer that learns nothing and is not to be used afterwards.

    The choices take turns, so that a slow moment of the machine falls on all of them alike. The first step after a
    change of the micro-batch size does not count: it allocates the optimizer's memory.
    """
    steps: list[list[StepResult]] = [[] for _ in candidates]
    for done in range(num_steps):
        for candidate, own in zip(candidates, steps, strict=True):
            n, m, micro = candidate.key
            progress(done / num_steps, 1.0, f"{n} → {m} for real")
            is_new = done == 0 or micro != trainer.config.optim.micro_batch_tokens
            resize(trainer, num_rollouts=n, num_kept=m, micro_batch_tokens=micro)
            if is_new:
                training_step(trainer)
            own.append(training_step(trainer))
    return [_compare(candidate, own) for candidate, own in zip(candidates, steps, strict=True)]


def _compare(candidate: Candidate, steps: Sequence[StepResult]) -> Verification:
    totals = np.array([step.total_seconds for step in steps])
    return Verification(
        predicted=candidate.seconds.total,
        measured=float(np.median(totals)),
        low=float(np.quantile(totals, 0.25)),
        high=float(np.quantile(totals, 0.75)),
        num_steps=len(steps),
        stages={
            name: (getattr(candidate.seconds, name), float(np.median([step.seconds[name] for step in steps])))
            for name in PREDICTED_STAGES
        },
    )
