"""The trainer: every stage of a run wired together behind a few verbs.

    sample            tasks -> groups of scored rollouts
    choose            groups -> selections
    make_batch        what was selected -> tensors, with advantages normalised on the kept subset
    forward_backward  tensors -> gradients
    optim_step        gradients -> new weights
    sync              new weights -> generator
    save / load       checkpoints

`run/loop.py` says in which order. Nothing here prints or writes metrics. With several processes all call the same
verbs: each generates and trains its own share, and all see the same groups, selections and numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from podsrl.config.schema import RunConfig
from podsrl.generate import Generator, Sampling
from podsrl.generate.schedule.lengths import request_id
from podsrl.lib.machine import configure_threads
from podsrl.lib.seeds import derive, selection_generator
from podsrl.policy import load_policy
from podsrl.run.ask import Asker, OnAnswer, Stage
from podsrl.run.checkpoint import Checkpoint, checkpoint_path, save_checkpoint
from podsrl.run.checks import check_config, check_data, check_device, check_processes, check_same_choice, check_window
from podsrl.run.data_digest import Side, describe_data
from podsrl.run.kv_bound import update_bytes
from podsrl.run.matmul import describe_matmul, restore_matmul, settle_matmul
from podsrl.run.prepare import Parts, prepare
from podsrl.run.progress import NO_UPDATE, Progress
from podsrl.run.wiring import (
    describe_generation,
    generator_model,
    new_engine,
    new_updater,
    stop_token_ids,
    train_sampling,
)
from podsrl.scale.gradients import sum_gradients
from podsrl.scale.processes import Processes, join_processes
from podsrl.scale.shard import collect, is_sharded, shard_moment, whole, write_shard
from podsrl.scale.share import share_groups
from podsrl.scale.update import forward_backward
from podsrl.select.chunks import split_groups
from podsrl.select.groups import select_groups
from podsrl.sync import sync_weights
from podsrl.tasks import task_indices
from podsrl.types import Completion, Group, Selection, Task
from podsrl.update import Batch, UpdateStats, batch_advantages, make_batch


class Trainer:
    """Loads everything a config names, checking what can be checked before the weights are read.

    Args:
        config: what to train and how.
        model, tokenizer: already loaded ones instead of `config.model`.
        processes: that share the run; by default those that the environment names (torchrun, `pods launch`).
        parts: what `prepare(config, tokenizer)` gave; by default it is called.

    Raises:
        UsageError: anything in the config that does not fit together, or does not fit the data or the model.

    Example:
        >>> trainer = Trainer(load_config("pods"))                      # doctest: +SKIP
        >>> groups = trainer.sample(trainer.next_tasks())               # doctest: +SKIP
        >>> selections = trainer.choose(groups)                         # doctest: +SKIP
        >>> advantages = trainer.advantages(groups, selections)         # doctest: +SKIP
        >>> stats = trainer.forward_backward(trainer.make_batch(groups, selections, advantages))  # doctest: +SKIP
        >>> grad_norm = trainer.optim_step()                            # doctest: +SKIP
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        model: Any = None,
        tokenizer: Any = None,
        processes: Processes | None = None,
        parts: Parts | None = None,
    ) -> None:
        self.config = config
        self.processes = processes or join_processes(config.model.device, config.scale.timeout_seconds)
        check_processes(config, self.processes.num_processes)
        self.progress = Progress()
        self.parts = parts or prepare(self.processes.place(config), tokenizer)
        self.tasks, self.tokenizer, self.scorer = self.parts.tasks, self.parts.tokenizer, self.parts.scorer
        self.policy = load_policy(self.processes.place(config), self.tokenizer, model=model)
        self.model = self.policy.model
        """What the update trains; with `scale.strategy` other than "ddp" its weights are in pieces."""
        check_window(self.model, self.parts.longest_prompt, config.rollouts.max_new_tokens)
        self.threads = configure_threads(config.threads, self.model.num_parameters(), self.processes.num_here)
        self._matmul = settle_matmul(config.model.matmul, self.model, self.processes)
        self.warnings: list[str] = []
        """Why the numbers after `load` may be others than without the stop."""
        self._is_sharded = is_sharded(config.scale.strategy, self.processes)
        later = update_bytes(config, self.policy.model, self.processes.num_processes)
        engine = new_engine(config, generator_model(self.policy, self._is_sharded), self.tokenizer, later)
        self.generation = describe_generation(
            engine, config, self.sampling, self.parts.longest_prompt, self.processes.num_processes
        )
        """Which decode step runs, and how a step's rollouts share the key-value memory."""
        limit = config.rollouts.max_prompt_tokens
        self._asker = Asker(engine, self.scorer, self.tokenizer, self.processes, limit)
        self.updater = new_updater(config, self.policy, self.parts, self.processes)
        self.weights_digest = ""
        """Of the weights that the engine samples from, since the last `sync`."""

    # --- the verbs, in the order of a step ---

    def next_tasks(self) -> list[Task]:
        """The next questions of the data stream; the position moves when the step is finished (`finish_step`)."""
        indices = task_indices(
            len(self.tasks.train),
            seed=derive(self.config.seed, "data"),
            start=self.progress.data_position,
            count=self.config.rollouts.num_prompts,
        )
        return [self.tasks.train[i] for i in indices]

    def sample(self, tasks: Sequence[Task], *, stage: Stage = nullcontext) -> list[Group]:
        """Generate and score `num_rollouts` rollouts a task: one group a task, or `select.num_chunks` smaller ones."""
        num_rollouts = self.config.rollouts.num_rollouts
        groups = self._asker.answer(self._group_ids(tasks), tasks, num_rollouts, self.sampling, stage=stage)
        return split_groups(groups, self.config.select.num_chunks)

    def answer(
        self,
        ids: Sequence[str],
        tasks: Sequence[Task],
        num_rollouts: int,
        sampling: Sampling,
        *,
        on_answer: OnAnswer | None = None,
    ) -> list[Group]:
        """Generate and score any tasks with any sampling (see `Asker.answer`): one group a task, in their order."""
        return self._asker.answer(ids, tasks, num_rollouts, sampling, on_answer=on_answer)

    def generate(self, tasks: Sequence[Task]) -> list[list[Completion]]:
        """`num_rollouts` completions for each task, in the order of their index; by this process alone."""
        return self.complete(self._group_ids(tasks), tasks, self.config.rollouts.num_rollouts, self.sampling)

    def complete(
        self, ids: Sequence[str], tasks: Sequence[Task], num_rollouts: int, sampling: Sampling
    ) -> list[list[Completion]]:
        """Completions of any tasks with any sampling; by this process alone."""
        return self._asker.complete(ids, tasks, num_rollouts, sampling)

    def choose(self, groups: Sequence[Group]) -> list[Selection]:
        """Which rollouts of each group are trained on."""
        generator = selection_generator(self.config.seed, self.progress.step)
        num_kept = self.config.select.num_kept // self.config.select.num_chunks
        selections = select_groups(groups, self.parts.rule, num_kept, generator=generator)
        check_same_choice(selections, self.config.select.rule, self.processes)
        return selections

    def advantages(self, groups: Sequence[Group], selections: Sequence[Selection]) -> list[Tensor]:
        """One tensor [m] a group, normalised over what was kept; empty for a group of which nothing was."""
        kept_P_K = [[g.rollouts[k].reward for k in s.kept] for g, s in zip(groups, selections, strict=True)]
        flat = batch_advantages([kept for kept in kept_P_K if kept], self.parts.advantage)
        return list(torch.split(flat, [len(kept) for kept in kept_P_K]))

    def make_batch(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> Batch | None:
        """The kept rollouts as tensors, on the CPU until a micro-batch's turn comes; None where no group kept any.

        With several processes: of whole groups, so that every process has about as many tokens to train on.
        """
        if not any(selection.kept for selection in selections):
            return None
        own = self._own_groups(groups, selections, advantages)
        pairs = [(groups[i], groups[i].rollouts[k].completion) for i in own for k in selections[i].kept]
        return make_batch(
            [group.prompt_ids for group, _ in pairs],
            [completion for _, completion in pairs],
            torch.cat([torch.empty(0), *(advantages[i] for i in own)]),
            pad_token_id=self.tokenizer.pad_token_id,
        )

    def forward_backward(self, batch: Batch) -> UpdateStats:
        """Gradients of the whole batch, cut into micro-batches by token budget; stats of all processes' batches."""
        return forward_backward(self.updater, batch, self.processes, is_sharded=self._is_sharded)

    def optim_step(self) -> float:
        """One optimizer step; returns the gradient norm before clipping."""
        if not self._is_sharded:  # else the backward pass has summed already
            sum_gradients(self.model, self.processes)
        norm = self.updater.optim_step()
        self.progress = replace(self.progress, version=self.updater.optimizer.num_steps)
        return norm

    def update(self, batch: Batch | None) -> tuple[UpdateStats, float]:
        """`optim.num_epochs` optimizer steps on one batch; stats and gradient norm of the last. None: nothing."""
        stats, norm = NO_UPDATE, 0.0
        if batch is None:
            return stats, norm
        for _ in range(self.config.optim.num_epochs):
            stats = self.forward_backward(batch)
            norm = self.optim_step()
        return stats, norm

    def sync(self) -> None:
        """The engine samples from the new weights."""
        weights = self.policy.sampled_weights(whole) if self._is_sharded else self.policy.sampled_weights()
        self.weights_digest = sync_weights(weights, self.engine, self.progress.version)

    def finish_step(self) -> None:
        """Count a step as done: the data stream moves on."""
        self.progress = replace(
            self.progress,
            step=self.progress.step + 1,
            data_position=self.progress.data_position + self.config.rollouts.num_prompts,
        )

    def add_seconds(self, seconds: float) -> None:
        """Count training time."""
        self.progress = replace(self.progress, train_seconds=self.progress.train_seconds + seconds)

    # --- checkpoints ---

    def save(self, folder: Path, extra: dict[str, Any]) -> Path:
        """Write a checkpoint below `folder`; `extra` is stored with the state. All call it, process 0 writes."""
        tensors, numbers = self.updater.state_dict()
        weights = self.policy.weights()
        if self._is_sharded:
            tensors, weights = collect(tensors, self.processes), collect(weights, self.processes)
        if not self.processes.is_main:
            return checkpoint_path(folder, self.progress.step)
        progress = {name: getattr(self.progress, name) for name in Progress.__dataclass_fields__}
        return save_checkpoint(
            folder,
            save_model=lambda path: self.policy.save(path, weights),
            optimizer=tensors,
            state={
                **progress,
                "optimizer": numbers,
                "matmul": self._matmul and self._matmul.to_json(),
                "config": self.config.model_dump(mode="json"),
                "data": self.data,
                "device": self.policy.device.type,
                **extra,
            },
            keep=self.config.checkpoint.keep,
        )

    @cached_property
    def data(self) -> dict[str, Side]:
        """Which data the run has, as a checkpoint holds it."""
        return describe_data(self.tasks)

    def load(self, checkpoint: Checkpoint, *, allow_data_change: bool = False) -> None:
        """Go on from a checkpoint: weights, moments, counters, and the choice of `model.matmul`.

        Raises:
            UsageError: it was made with another config, or, unless that is allowed, from other data.
        """
        new_options = check_config(checkpoint, self.config)
        check_data(checkpoint, self.data, is_allowed=allow_data_change)
        self.policy.load(checkpoint.model, write_shard)
        moments = checkpoint.optimizer(shard_moment(self.model))
        self.updater.load_state_dict(moments, checkpoint.state["optimizer"])
        self.progress = Progress(**{name: checkpoint.state[name] for name in Progress.__dataclass_fields__})
        self._matmul, self.warnings = restore_matmul(self._matmul, checkpoint.state.get("matmul"))
        self.warnings += new_options + check_device(checkpoint, self.policy.device.type)
        self.sync()

    def close(self) -> None:
        """End what runs beside: reward workers, and the tie to the other processes."""
        self.parts.close()
        self.processes.close()

    # --- details ---

    @property
    def engine(self) -> Generator:
        """What rollouts come from; put another in its place as you like."""
        return self._asker.engine

    @engine.setter
    def engine(self, engine: Generator) -> None:
        self._asker.engine = engine

    @property
    def matmul(self) -> str:
        """What computes the matrix products, in one line."""
        return describe_matmul(self.config.model.matmul, self._matmul)

    @property
    def sampling(self) -> Sampling:
        """How the rollouts that are trained on are drawn."""
        return train_sampling(self.config, self.stop_token_ids)

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """The tokenizer's end token and all that the model's generation config names."""
        return stop_token_ids(self.model, self.tokenizer)

    def _group_ids(self, tasks: Sequence[Task]) -> list[str]:
        return [request_id(self.progress.step, place, task.id) for place, task in enumerate(tasks)]

    def _own_groups(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> Sequence[int]:
        """Which groups this process trains: those with a gradient are shared out by the tokens of their kept rows."""
        if self.processes.is_alone:
            return range(len(groups))
        penalty = self.config.loss.kl_beta > 0
        costs = [
            sum(len(g.prompt_ids) + len(g.rollouts[k].completion.token_ids) for k in s.kept)
            if penalty or bool(a.any())
            else 0
            for g, s, a in zip(groups, selections, advantages, strict=True)
        ]
        return share_groups(costs, self.processes.num_processes)[self.processes.rank]
