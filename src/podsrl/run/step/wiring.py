"""What a trainer is wired of, beside its generator: the desk, and the learner with what it forwards."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

from podsrl.config.schema import CostsConfig, RunConfig
from podsrl.control import Steering, View, repaired, waiting_ids
from podsrl.generate import Generator, Sampling, Watch, abilities_of
from podsrl.generate.engine.limits import row_limit
from podsrl.lib.parts import GO_ON
from podsrl.lib.seeds import derive
from podsrl.policy import AdaptedPolicy, Policy
from podsrl.run.before.checks import check_abilities
from podsrl.run.before.closing import first_of
from podsrl.run.before.prepare import Prepared
from podsrl.run.step.closing import Closing, EarlyClose, Whole
from podsrl.run.step.desk import Desk
from podsrl.run.step.learn import Learner
from podsrl.run.step.together import TogetherTalks
from podsrl.run.step.turns import EnvironmentTalks, Talks, no_talks
from podsrl.run.step.waiting import FirstGroups
from podsrl.scale.processes import Processes
from podsrl.scale.shard import is_sharded, shard, shard_frozen
from podsrl.score import EARNED
from podsrl.tasks.stream import Stream
from podsrl.types import Task
from podsrl.update import Correction, TokenLogprobs, Updater


def opening_view(config: RunConfig, costs: CostsConfig, train: Sequence[Task], step: int, data_position: int) -> View:
    """What the budget sees in round 0 of a step."""
    return View(
        step=step,
        num_prompts=config.rollouts.num_prompts,
        num_rollouts=config.rollouts.num_rollouts,
        num_train=len(train),
        tasks=train,
        seed=config.seed,
        costs=costs,
        stream=Stream(len(train), derive(config.seed, "data"), data_position),
    )


def new_updater(config: RunConfig, policy: Policy, parts: Prepared, processes: Processes) -> Updater:
    """The updater, with weights sharded over the processes if the config says so.

    The engine's model, which has to be whole, is made before: from here on the trainer's own weights are in pieces.
    """
    if parts.generator.training is not None:
        made: Updater = parts.generator.training.new_updater(config, parts.loss)
        return made
    optim = config.optim
    forward = TokenLogprobs(
        policy.model,
        temperature=config.rollouts.temperature,
        chunk_tokens=optim.logprob_chunk_tokens,
        packing=optim.packing,
        prefix_sharing=optim.prefix_sharing,
    )
    has_penalty = config.loss.kl_beta > 0
    reference = copy.deepcopy(policy.model) if has_penalty and not isinstance(policy, AdaptedPolicy) else None
    if is_sharded(config.scale.strategy, processes):
        if reference is not None:
            shard_frozen(reference, config.scale.strategy, processes)
        shard(forward, policy.model, config.scale.strategy, processes)
    return Updater(
        policy.model,
        optim,
        forward=forward,
        reference=reference,
        reference_context=policy.reference if has_penalty and isinstance(policy, AdaptedPolicy) else None,
        loss=parts.loss,
        correction=Correction(**config.correct.model_dump()),
        kl_beta=config.loss.kl_beta,
        max_length=config.rollouts.max_new_tokens,
    )


def longest_asked(config: RunConfig, model: Any, parts: Prepared) -> int:
    """Tokens of the longest prompt that a run may ask: with a guide, the most that there is room for."""
    return parts.longest_prompt if not parts.systems.has("guide") else prompt_room(config, model)


def prompt_room(config: RunConfig, model: Any) -> int:
    """Tokens that a prompt may have: the limit's, and no more than the model's window leaves."""
    limit, rollouts = row_limit(model), config.rollouts
    room = rollouts.max_prompt_tokens if limit is None else limit.tokens - rollouts.max_new_tokens
    return min(rollouts.max_prompt_tokens, room)


def new_desk(
    config: RunConfig, engine: Generator, model: Any, parts: Prepared, processes: Processes, sampling: Sampling
) -> Desk:
    """The desk of a run, or of an evaluation; `model` is any that has the vocabulary and window of the run's."""
    return Desk(
        engine,
        parts.scorer,
        parts.tokenizer,
        processes,
        order=config.order,
        train=parts.tasks.train,
        budget=parts.budget,
        sampling=sampling,
        max_prompt_tokens=config.rollouts.max_prompt_tokens,
        max_guided_tokens=longest_asked(config, model, parts),
        num_words=len(model.get_input_embeddings().weight),
        closing=_closing(config, parts),
        waits=None if (wait := parts.systems.one("wait")) is None else partial(waiting_ids, wait),
        repairs=None if (repair := parts.systems.one("repair")) is None else partial(repaired, repair),
        watch=_watch(config, parts),
        talks=_talks(config, parts, engine),
        kind=parts.generator,
    )


def _closing(config: RunConfig, parts: Prepared) -> Closing:
    if config.order.take == "first":
        return FirstGroups(config.order, config.rollouts.num_prompts)
    close = parts.systems.one("close")
    return Whole() if close is None else EarlyClose(close, close.option, first_of(close))


def _watch(config: RunConfig, parts: Prepared) -> Watch | None:
    return Steering(config.systems, config.options, parts.systems) if parts.systems.has("look") else None


def _talks(config: RunConfig, parts: Prepared, engine: Generator) -> Talks:
    if parts.environment is None:
        together = parts.systems.one("together")
        return no_talks if together is None else TogetherTalks(together)
    wanted = [(parts.environment.option, ability) for ability in GO_ON]
    check_abilities(wanted, type(engine).__name__, abilities_of(engine))
    is_judge = EARNED in {*parts.rewards, parts.correct, parts.format}
    return EnvironmentTalks(parts.environment, parts.tokenizer, config.task.max_turns, is_judge)


def new_learner(config: RunConfig, policy: Policy, parts: Prepared, processes: Processes) -> Learner:
    """The learner, with the updater of `new_updater`."""
    return Learner(
        policy,
        new_updater(config, policy, parts, processes),
        processes,
        is_sharded=is_sharded(config.scale.strategy, processes),
        has_penalty=config.loss.kl_beta > 0,
        num_epochs=config.optim.num_epochs,
        num_minibatches=config.optim.num_minibatches,
        pad_token_id=parts.tokenizer.pad_token_id,
    )
