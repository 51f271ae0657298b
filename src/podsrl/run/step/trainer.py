"""The trainer: a desk and a learner, wired together behind the verbs of a step.

    sample            the budget's questions -> groups of scored rollouts; those of later steps, as `[order]` says
    recall            and groups of earlier steps
    choose            groups -> selections
    credit            selections -> samples: kept rollouts, each with its advantage
    make_batch        samples -> tensors
    update            tensors -> new weights: forward_backward and optim_step in every epoch
    sync              new weights -> generator, if the order does not let them wait
    settle            between steps: what runs has come to where it may be saved; the generator has the newest weights
    finish_step       parts learn, the counters move on
    save / load       checkpoints (run/step/trainer_state.py)

`run/step/step.py` says in which order; each verb counts its own seconds. Nothing here prints or writes logs. With
several processes all of them call the same verbs: each generates and trains its own share, and all see the same groups,
selections and numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from podsrl.config.schema import RunConfig
from podsrl.control import View, recalled
from podsrl.generate import Generator, Sampling, abilities_of
from podsrl.lib.cpu_time import CpuWatch
from podsrl.lib.machine import configure_threads, host_bytes
from podsrl.lib.seeds import seed_globals, selection_generator
from podsrl.lib.torch_model import end_token_ids
from podsrl.lib.user_function import check_is_no_import
from podsrl.policy import load_policy
from podsrl.run.before.checks import check_abilities, check_generator, check_processes, check_window, needs
from podsrl.run.before.exclusions import check_exclusions
from podsrl.run.before.fit import fit
from podsrl.run.before.matmul import describe_matmul, settle_matmul
from podsrl.run.before.prepare import Prepared, prepare
from podsrl.run.before.settle import settle
from podsrl.run.before.sizes import at_most
from podsrl.run.saving.checkpoint import Checkpoint
from podsrl.run.saving.inputs import describe_inputs
from podsrl.run.step.agreement import check_same_choice, check_same_run
from podsrl.run.step.clock import StageClock
from podsrl.run.step.collected import Collected, Load, gather_load
from podsrl.run.step.counters import Progress
from podsrl.run.step.generators import describe_generation, new_generator
from podsrl.run.step.learn import UpdateResult
from podsrl.run.step.trainer_state import load_trainer, save_trainer
from podsrl.run.step.wiring import (
    longest_asked,
    new_desk,
    new_learner,
    opening_view,
)
from podsrl.scale.processes import Processes, join_processes
from podsrl.score import ScoreStats
from podsrl.select.groups import select_groups
from podsrl.select.ties import preferred
from podsrl.sync.digest import weights_digest
from podsrl.types import Group, Sample, Selection
from podsrl.update import Batch, UpdateStats, shape_advantages, step_advantages, to_samples
from podsrl.update.bounds import bounds_of


class Trainer:
    """Loads everything that a config names, checking what can be checked before the weights are read.

    Args:
        config: what to train and how.
        model, tokenizer: already loaded ones instead of `config.model`.
        processes: that share the run; by default those that the environment names (torchrun, `pods launch`).
        parts: what `prepare(config, tokenizer)` gave; by default it is called.

    Raises:
        UsageError: anything in the config that does not fit together, or does not fit the data or the model.

    Example:
        >>> trainer = Trainer(load_config("pods"))                                      # doctest: +SKIP
        >>> collected = trainer.sample()                                                # doctest: +SKIP
        >>> selections = trainer.choose(collected.groups)                               # doctest: +SKIP
        >>> batch = trainer.make_batch(trainer.credit(collected.groups, selections))    # doctest: +SKIP
        >>> stats, grad_norm = trainer.forward_backward(batch), trainer.optim_step()    # doctest: +SKIP
        >>> trainer.sync()                                                              # doctest: +SKIP
        >>> load = trainer.finish_step(collected)                                       # doctest: +SKIP
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        model: Any = None,
        tokenizer: Any = None,
        processes: Processes | None = None,
        parts: Prepared | None = None,
    ) -> None:
        check_is_no_import("a Trainer is made")
        self.processes = processes or join_processes(config.model.device, config.scale.timeout_seconds)
        config, self.choices = settle(config, self.processes.num_processes)
        """What "auto" has become, a line for each."""
        self.config = config
        """May be replaced between steps by one with other sizes of a step."""
        check_processes(config, self.processes.num_processes, is_one_machine=self.processes.is_one_machine)
        self.parts = parts or prepare(self.processes.place(config), tokenizer)
        if model is None and parts is None:  # a resumed run gives its parts, and keeps its sizes
            config, lines = self._fitting(config)
            self.config, self.choices = config, (*self.choices, *lines)
        check_generator(self.parts.generator, config, self.processes.num_processes)
        check_exclusions(config, self.parts.systems, self.parts.advantage, self.processes.num_processes)
        counts = (
            config.lora is not None or config.loss.kl_beta > 0
        )  # else a checkpoint's weights take the start's place
        given = None if model is None else weights_digest(model.state_dict().items()) if counts else ""
        self.tasks, self.tokenizer, self.scorer = self.parts.tasks, self.parts.tokenizer, self.parts.scorer
        if not self.processes.is_one_machine:
            read = describe_inputs(config, self.tasks, self.tokenizer, weights="")  # `check_same_weights` comes later
            check_same_run(config, read, self.processes)
        training = self.parts.generator.training
        load = load_policy if training is None else training.load_policy
        self.policy = load(self.processes.place(config), self.tokenizer, model=model)
        self.inputs = describe_inputs(config, self.tasks, self.tokenizer, given)
        """What the run reads, as a checkpoint holds it."""
        self.change: str | None = None
        """What differs in it from what the loaded checkpoint was trained with."""
        self.model = self.policy.model
        """What the update trains; with `scale.strategy` other than "ddp" its weights are in pieces."""
        check_window(self.model, self.parts.longest_prompt, config.rollouts.max_new_tokens)
        self.threads = configure_threads(config.threads, self.model.num_parameters(), self.processes.num_here)
        library = settle_matmul(config.model.matmul, self.model, self.processes)
        self.matmul = describe_matmul(config.model.matmul, library)
        """What computes the matrix products, in one line."""
        self.progress = Progress()
        self.warnings: list[str] = []
        """Why the numbers after `load` may be others than without the stop."""
        self.weights_digest = ""
        """Of the weights that the generator samples from."""
        self.clock = StageClock(self.model.device)
        """Of the present step, or of the last one until `sample` begins another."""
        self._between = StageClock(self.model.device)  # what the next step has needed already
        self._cpu = CpuWatch()  # runs in a step, and between two where that is for the next
        self.is_between_steps = True
        """False while a step is being counted: parts may have learned from it, and the counters do not say so yet."""
        self.step_seconds = 0.0
        """Of the last step, on the clock of process 0, which decides when a run evaluates and ends."""
        generator = new_generator(config, self.parts, self.policy, self.processes)
        longest = longest_asked(config, self.model, self.parts)
        with ExitStack() as on_error:
            on_error.callback(generator.close)
            wanted = needs(config, self.parts.systems)
            check_abilities(wanted, type(generator).__name__, abilities_of(generator))
            with self.parts.generator.calling():
                self.generation = describe_generation(
                    generator,
                    at_most(config, self.parts.systems),
                    self.sampling,
                    longest,
                    self.processes.num_processes,
                )
            """What generates, and how a step's rollouts share the key-value memory."""
            self.desk = new_desk(config, generator, self.model, self.parts, self.processes, self.sampling)
            self.learner = new_learner(config, self.policy, self.parts, self.processes)
            self._publish()
            on_error.pop_all()

    # --- the verbs, in the order of a step ---

    def sample(self) -> Collected:
        """Begin a step: its groups, scored, and later steps asked; again before `finish_step`, the same groups.

        The clock and the counts start at 0, and the global generators at the step's seed.
        """
        self._between, self.clock = StageClock(self.model.device), self._between.going_on()
        self._cpu.go()
        seed_globals(self.config.seed, self.progress.step, rank=self.processes.rank)
        self.scorer.stats = ScoreStats()  # what an evaluation needed is not the next step's
        return self.desk.take(
            self._view,
            self.progress.step,
            self.progress.data_position,
            self.config.stop.steps or math.inf,
            partial(self._load_newest, self.clock),
            stage=self.clock.stage,
        )

    def settle(self) -> None:
        """Between steps, on the next step's clock: let what runs come to where it may be saved, and give the generator
        the newest weights."""
        self._cpu.go()
        with self._between.stage("generate"):
            self.desk.settle()
        self._load_newest(self._between)
        self._cpu.pause()

    def recall(self, groups: Sequence[Group]) -> list[Group]:
        """These groups, and those of earlier steps that a part recalls."""
        with self.clock.stage("select"):
            view = self._view(self.progress.step, self.progress.data_position).after(groups)
            return [*groups, *recalled(self.parts.systems.one("recall"), view)]

    def choose(self, groups: Sequence[Group]) -> list[Selection]:
        """Which rollouts of each group are trained on."""
        options, step = self.config.select, self.progress.step
        with self.clock.stage("select"):
            selections = select_groups(
                groups,
                self.parts.rule,
                options.kept_of_chunk,
                num_chunks=options.num_chunks,
                generator=selection_generator(self.config.seed, step),
                preferences=preferred(groups, options.ties, self.parts.systems.one("prefer")),
            )
            check_same_choice(selections, options.rule, self.processes)
            return selections

    def credit(self, groups: Sequence[Group], selections: Sequence[Selection]) -> list[Sample]:
        """The kept rollouts, each with its advantage, in the order of the groups and of `Selection.kept`."""
        with self.clock.stage("select"):
            advantages = step_advantages(groups, selections, self.parts.advantage)
            shaped = shape_advantages(groups, selections, advantages, self.parts.systems["shape"])
            bound = self.parts.systems.one("bound")
            return to_samples(groups, selections, shaped, bounds_of(groups, selections, bound))

    def make_batch(self, samples: Sequence[Sample]) -> Batch | None:
        """This process's share of the samples, as tensors on the CPU; None where there are none."""
        with self.clock.stage("select"):
            return self.learner.make_batch(samples)

    def update(self, batch: Batch | None) -> UpdateResult:
        """`optim.num_epochs` passes of `forward_backward` and `optim_step` per mini-batch; what the last one did."""
        with self.clock.stage("update"):
            result = self.learner.update(batch)
            self._count_version()
            return result

    def forward_backward(self, batch: Batch) -> UpdateStats:
        """Gradients of the whole batch, cut into micro-batches by token budget; stats of all processes' batches."""
        with self.clock.stage("update"):
            return self.learner.forward_backward(batch)

    def optim_step(self, stats: UpdateStats | None = None) -> float:
        """One optimizer step after `forward_backward`, which gave the stats; the gradient norm before clipping."""
        with self.clock.stage("update"):
            grad_norm = self.learner.optim_step(stats)
            self._count_version()
            return grad_norm

    def sync(self) -> None:
        """Let the generator sample from the new weights; where they wait until nothing runs, `sample` does it."""
        if not (self.config.order.is_ahead and self.config.order.rest == "finish"):
            self._load_newest(self.clock)

    def finish_step(self, collected: Collected) -> Load:
        """Count a step as done: the parts learn, and the data stream moves on.

        Returns:
            What the step needed of the machine.
        """
        self.is_between_steps = False
        with self.clock.stage("record"):
            self.parts.systems.learn(collected.seen)
            self.desk.taken(collected)
            update_bytes = self.learner.updater.peak_bytes()
            load = gather_load(collected, self.scorer.stats, update_bytes, self._cpu.take(), self.processes)
        self.step_seconds = self.processes.broadcast(self.clock.total())
        self.progress = replace(
            self.progress,
            step=self.progress.step + 1,
            data_position=collected.data_position,
            train_seconds=self.progress.train_seconds + self.step_seconds,
        )
        self.is_between_steps = True
        return load

    def __repr__(self) -> str:
        return f"Trainer({self.config.model.path!r}, step {self.progress.step}, version {self.progress.version})"

    # --- checkpoints ---

    def save(self, folder: Path, extra: dict[str, Any]) -> Path:
        """Write a checkpoint below `folder`; `extra` is stored with the state. All call it, process 0 writes."""
        return save_trainer(self, folder, extra)

    def load(self, checkpoint: Checkpoint, *, allow_changes: bool = False) -> None:
        """Go on from a checkpoint: weights, moments, counters, and what parts learned.

        Raises:
            UsageError: it was made with another config, or, unless that is allowed, the run read something else then.
        """
        load_trainer(self, checkpoint, allow_changes=allow_changes)

    def close(self) -> None:
        """End the generator and the reward workers, and leave the other processes."""
        with self.parts.generator.calling():
            self.engine.close()
        self.parts.close()
        self.processes.close()

    # --- what it is made of ---

    @property
    def engine(self) -> Generator:
        """The generator. It may be replaced at any time between steps."""
        return self.desk.engine

    @engine.setter
    def engine(self, engine: Generator) -> None:
        self.desk.engine = engine

    @property
    def sampling(self) -> Sampling:
        """How the rollouts that are trained on are drawn."""
        rollouts = self.config.rollouts
        return Sampling(
            temperature=rollouts.temperature,
            top_p=rollouts.top_p,
            top_k=rollouts.top_k,
            min_p=rollouts.min_p,
            max_new_tokens=rollouts.max_new_tokens,
            stop_token_ids=self.stop_token_ids,
            stop_strings=rollouts.stop_strings,
        )

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """The tokenizer's end token and all that the model's generation config names."""
        return end_token_ids(self.model, self.tokenizer)

    def _fitting(self, config: RunConfig) -> tuple[RunConfig, tuple[str, ...]]:
        return fit(
            config,
            longest_prompt=self.parts.longest_prompt,
            num_eval=len(self.parts.tasks.eval),
            num_processes=self.processes.num_processes,
            num_here=self.processes.num_here,
            num_bytes=min(self.processes.gather(host_bytes())),
        )

    def _count_version(self) -> None:
        self.progress = replace(self.progress, version=self.learner.version)

    def _view(self, step: int, data_position: int) -> View:
        return opening_view(self.config, self.parts.costs, self.tasks.train, step, data_position)

    def _load_newest(self, clock: StageClock) -> None:
        if self._published != self.learner.version:
            with clock.stage("sync"):
                self._publish()

    def _publish(self) -> None:
        with self.parts.generator.calling():
            self.weights_digest = self.learner.publish(self.engine)
        self._published = self.learner.version
