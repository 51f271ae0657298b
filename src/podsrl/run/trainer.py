"""The trainer: every stage of a run wired together behind a few verbs.

    sample            tasks -> groups of scored rollouts
    choose            groups -> selections
    make_batch        what was selected -> tensors, with advantages normalised on the kept subset
    forward_backward  tensors -> gradients
    optim_step        gradients -> new weights
    sync              new weights -> generator
    save / load       checkpoints

`run/loop.py` says in which order. Nothing here prints or writes metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from podsrl.config.load import changed_keys
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.generate import Engine, Generator, Request, Sampling
from podsrl.run.checkpoint import Checkpoint, save_checkpoint
from podsrl.run.models import load_model, prompt_ids
from podsrl.run.prepare import prepare
from podsrl.run.streams import derive, selection_generator
from podsrl.run.threads import configure_threads
from podsrl.select.groups import select_groups
from podsrl.sync import sync_weights
from podsrl.tasks.base import task_indices
from podsrl.types import Completion, Group, Selection, Task
from podsrl.update import Batch, Updater, UpdateStats, batch_advantages, make_batch

NO_UPDATE = UpdateStats(
    loss=0.0,
    entropy=0.0,
    kl=None,
    clip_fraction=0.0,
    logprob_gap=0.0,
    ratio_max=0.0,
    num_sequences=0,
    num_tokens=0,
    num_trained_rows=0,
    num_trained_tokens=0,
    num_micro_batches=0,
)
"""Of a step in which no group had two valid rollouts."""

MAX_REMEMBERED_PROMPTS = 4096
CHANGEABLE = ("stop.", "checkpoint.", "record.")
"""Config sections that a resume may change: they do not touch the numbers of a step."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands; the part of a checkpoint that is not a tensor."""

    step: int = 0
    """Steps done."""
    version: int = 0
    """Optimizer steps that have changed the weights."""
    data_position: int = 0
    """Tasks drawn from the data stream so far."""
    train_seconds: float = 0.0
    """Seconds of all steps; evaluation and checkpoints are not in it."""


class Trainer:
    """Loads everything a config names, checking what can be checked before the weights are read.

    Args:
        config: what to train and how.
        model, tokenizer: already loaded ones instead of `config.model`.

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

    def __init__(self, config: RunConfig, *, model: Any = None, tokenizer: Any = None) -> None:
        self.config = config
        self.progress = Progress()
        self.parts = prepare(config, tokenizer)
        self.tasks, self.tokenizer, self.scorer = self.parts.tasks, self.parts.tokenizer, self.parts.scorer
        self.model = model if model is not None else load_model(config.model)
        self._prompt_ids: dict[str, tuple[int, ...]] = {}
        self._check_vocabulary()
        self._check_window()
        self.threads = configure_threads(config.threads, self.model.num_parameters())
        engine = Engine(
            self.model,
            num_slots=config.rollouts.num_slots or None,
            kv_cache_bytes=config.rollouts.kv_cache_bytes or None,
            scheduler=config.rollouts.scheduler,
            seed=derive(config.seed, "sampling"),
            tokenizer=self.tokenizer,
        )
        longest = (0,) * self.parts.longest_prompt
        num_rollouts, sampling = config.rollouts.num_rollouts, self.sampling
        memory = engine.plan(
            Request(str(i), longest, num_rollouts, sampling) for i in range(config.rollouts.num_prompts)
        )
        step = "hand-written decode step" if engine.forward.name == "fast" else "the model's own forward"
        self.generation = f"{step}; {memory}"
        """Which decode step runs, and how a step's rollouts share the key-value memory."""
        self.engine: Generator = engine
        self.updater = self._new_updater()

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

    def generate(self, tasks: Sequence[Task]) -> list[list[Completion]]:
        """`num_rollouts` completions for each task, in the order of their index."""
        ids = [self._group_id(i, t) for i, t in enumerate(tasks)]
        return self.complete(ids, tasks, self.config.rollouts.num_rollouts, self.sampling)

    def complete(
        self, ids: Sequence[str], tasks: Sequence[Task], num_rollouts: int, sampling: Sampling
    ) -> list[list[Completion]]:
        """Completions of any tasks with any sampling: one list a task, in the order of their index."""
        requests = [Request(i, self.prompt_ids(t), num_rollouts, sampling) for i, t in zip(ids, tasks, strict=True)]
        found: dict[str, list[Completion]] = {request.id: [] for request in requests}
        for completion in self.engine.generate(requests):
            found[completion.request_id].append(completion)
        return [sorted(found[request.id], key=lambda completion: completion.index) for request in requests]

    def score(self, tasks: Sequence[Task], completions: Sequence[Sequence[Completion]]) -> list[Group]:
        """Completions -> groups of rollouts with rewards."""
        distinct = list({completion.token_ids: None for group in completions for completion in group})
        texts = dict(zip(distinct, self.tokenizer.batch_decode(distinct, skip_special_tokens=True), strict=True))
        texts_PG = [[texts[completion.token_ids] for completion in group] for group in completions]
        rollouts = self.scorer.score(tasks, completions, texts_PG)
        return [
            Group(id=group[0].completion.request_id, task=task, prompt_ids=self.prompt_ids(task), rollouts=tuple(group))
            for task, group in zip(tasks, rollouts, strict=True)
        ]

    def sample(self, tasks: Sequence[Task]) -> list[Group]:
        """Generate and score."""
        return self.score(tasks, self.generate(tasks))

    def choose(self, groups: Sequence[Group]) -> list[Selection]:
        """Which rollouts of each group are trained on."""
        generator = selection_generator(self.config.seed, self.progress.step)
        return select_groups(groups, self.parts.rule, self.config.select.num_kept, generator=generator)

    def advantages(self, groups: Sequence[Group], selections: Sequence[Selection]) -> list[Tensor]:
        """One tensor [m] a group, normalised over what was kept; empty for a group of which nothing was."""
        kept_P_K = [[g.rollouts[k].reward for k in s.kept] for g, s in zip(groups, selections, strict=True)]
        flat = batch_advantages([kept for kept in kept_P_K if kept], self.parts.advantage)
        return list(torch.split(flat, [len(kept) for kept in kept_P_K]))

    def make_batch(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> Batch | None:
        """The kept rollouts of all groups, as tensors on the model's device; None where no group kept any."""
        pairs = [(g, g.rollouts[k].completion) for g, s in zip(groups, selections, strict=True) for k in s.kept]
        if not pairs:
            return None
        batch = make_batch(
            [group.prompt_ids for group, _ in pairs],
            [completion for _, completion in pairs],
            torch.cat(list(advantages)),
            pad_token_id=self.tokenizer.pad_token_id,
        )
        return batch.to(self.model.device)

    def forward_backward(self, batch: Batch) -> UpdateStats:
        """Gradients of the whole batch, cut into micro-batches by token budget."""
        return self.updater.forward_backward(batch)

    def optim_step(self) -> float:
        """One optimizer step; returns the gradient norm before clipping."""
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
        sync_weights(self.model, self.engine, self.progress.version)

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
        """Write a checkpoint below `folder`; `extra` is stored with the state."""
        tensors, numbers = self.updater.state_dict()
        progress = {name: getattr(self.progress, name) for name in Progress.__dataclass_fields__}
        return save_checkpoint(
            folder,
            model=self.model,
            tokenizer=self.tokenizer,
            optimizer=tensors,
            state={**progress, "optimizer": numbers, "config": self.config.model_dump(mode="json"), **extra},
            keep=self.config.checkpoint.keep,
        )

    def load(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint: weights, moments, counters.

        Raises:
            UsageError: it was made with another config.
        """
        differences = changed_keys(checkpoint.state["config"], self.config.model_dump(mode="json"))
        differences = [line for line in differences if not line.startswith(CHANGEABLE)]
        if differences:
            raise UsageError(
                f"{checkpoint.path} was made with another config: {', '.join(differences)}; "
                "undo the change, or start a new run in another folder"
            )
        saved = self.config.model.model_copy(update={"path": str(checkpoint.model)})
        weights = load_model(saved).state_dict()
        self.model.load_state_dict(weights)
        self.updater.load_state_dict(checkpoint.optimizer(), checkpoint.state["optimizer"])
        self.progress = Progress(**{name: checkpoint.state[name] for name in Progress.__dataclass_fields__})
        self.sync()

    # --- details ---

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
        """The tokenizer's end token and all that the model's generation config names: chat models have several."""
        named = self.model.generation_config.eos_token_id
        ids = {self.tokenizer.eos_token_id, *(named if isinstance(named, list) else [named])}
        return tuple(sorted(ids - {None}))

    def prompt_ids(self, task: Task) -> tuple[int, ...]:
        """Tokens of a task's prompt; the newest thousands are remembered, since a step asks for each twice."""
        key = task.prompt if isinstance(task.prompt, str) else repr(task.prompt)
        if key not in self._prompt_ids:
            if len(self._prompt_ids) >= MAX_REMEMBERED_PROMPTS:
                self._prompt_ids.clear()
            self._prompt_ids[key] = prompt_ids(self.tokenizer, task, self.config.rollouts.max_prompt_tokens)
        return self._prompt_ids[key]

    def _group_id(self, place: int, task: Task) -> str:
        return f"s{self.progress.step}/{place}/{task.id}"

    def _check_vocabulary(self) -> None:
        """The tokens that the loop itself uses exist in the model."""
        rows = self.model.get_input_embeddings().weight.shape[0]
        for name in ("eos_token", "pad_token"):
            token, number = getattr(self.tokenizer, name), getattr(self.tokenizer, f"{name}_id")
            if number >= rows:
                raise UsageError(
                    f"model.path = {self.config.model.path!r}: its tokenizer's {name} {token!r} is token {number}, but "
                    f"the model has {rows} tokens: save the tokenizer that belongs to the model"
                )

    def _check_window(self) -> None:
        window = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        longest = self.parts.longest_prompt
        wanted = longest + self.config.rollouts.max_new_tokens
        if window is not None and wanted > window:
            raise UsageError(
                f"prompts of {longest} tokens + rollouts.max_new_tokens = {self.config.rollouts.max_new_tokens} "
                f"exceed the model's window of {window}: lower rollouts.max_new_tokens to {window - longest} or less"
            )

    def _new_updater(self) -> Updater:
        optim = self.config.optim
        return Updater(
            self.model,
            lr=optim.lr,
            betas=optim.betas,
            eps=optim.eps,
            weight_decay=optim.weight_decay,
            max_grad_norm=optim.max_grad_norm,
            warmup_steps=optim.warmup_steps,
            loss=self.parts.loss,
            kl_beta=self.config.loss.kl_beta,
            temperature=self.config.rollouts.temperature,
            max_length=self.config.rollouts.max_new_tokens,
            micro_batch_tokens=optim.micro_batch_tokens,
            chunk_tokens=optim.logprob_chunk_tokens,
        )
