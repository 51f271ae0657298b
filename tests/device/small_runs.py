"""Small models, requests and runs for the tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from podsrl.config.load import load_config
from podsrl.generate import Engine, Live, Request, Sampling, Watch
from podsrl.policy import load_model
from podsrl.run.metrics import step_metrics
from podsrl.run.saving.checkpoint import load_newest
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from podsrl.tasks import TaskSet
from podsrl.types import Task

Tokens = dict[tuple[str, int], tuple[tuple[int, ...], str]]

STEP = (
    "threads=1",
    "task.name=small_runs:sums",
    "task.num_eval=4",
    "rollouts.num_prompts=3",
    "rollouts.num_rollouts=8",
    "rollouts.max_new_tokens=16",
    "select.num_kept=4",
    "optim.num_epochs=2",
    "optim.micro_batch_tokens=150",
    'task.rewards={"small_runs:variety" = 1.0}',
    "task.correct=correct",
)


def sums(*, num_eval: int) -> TaskSet:
    """Questions of different lengths."""
    tasks = [Task(id=f"{a}", prompt=f"What is {a} + {a**3}?\n", answer=f"{a + a**3}") for a in range(3, 40)]
    return TaskSet(name="sums", train=tasks[num_eval:], eval=tuple(tasks[:num_eval]))


def variety(completions: list[str], **columns: object) -> list[float]:
    """How many different characters: a reward that differs within every group."""
    return [float(len(set(text))) for text in completions]


# --- the engine ---


def tiny(device: str, family: str = "qwen2", dtype: torch.dtype = torch.float64, head_dim: int = 8) -> Any:
    """A random model of two layers; its weights are drawn on the CPU, so they are the same on every device."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": head_dim}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
    config = AutoConfig.for_model(family, **sizes, **heads, initializer_range=0.3)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).to(dtype).eval().to(device)


def requests(**ways: Any) -> list[Request]:
    """Four prompts of 2 to 11 tokens, five rollouts each of at most 6 to 15 tokens; `ways` are further ones of one."""
    plain = [
        Request(f"r{i}", tuple(range(5, 7 + 3 * i)), 5, Sampling(max_new_tokens=6 + 3 * i, stop_token_ids=(3,)))
        for i in range(4)
    ]
    others = [
        Request(name, (9, 8, 7), 3, Sampling(max_new_tokens=9, **{"stop_token_ids": (), **way}))
        for name, way in ways.items()
    ]
    return [*plain, *others]


class Looking:
    """A watch that reads what there is of a rollout's third token, and does nothing."""

    at = frozenset({2})

    def look(self, live: Live) -> tuple[()]:
        assert torch.cat([live.hidden, live.entropies[:, None]], dim=1)[live.row_of].cpu().isfinite().all()
        return ()


def generated(
    model: Any, wanted: list[Request] | None = None, watch: Watch | None = None, **options: Any
) -> tuple[Tokens, dict[Any, list[float]]]:
    """Each rollout's tokens and end, and its log-probs."""
    done = list(Engine(model, seed=3, **options).generate(requests() if wanted is None else wanted, watch=watch))
    return (
        {(each.group_id, each.index): (tuple(each.token_ids), each.finish_reason) for each in done},
        {(each.group_id, each.index): list(each.logprobs) for each in done},
    )


# --- whole steps ---


def trainer(*options: str, device: str, is_double: bool = True) -> Trainer:
    """A run of the built-in model; `device` stays out of its config.

    In float64 and with the seed as it is, no rounding decides about a token.
    """
    given = {option.partition("=")[0] for option in options}
    config = load_config("pods", [*(text for text in STEP if text.partition("=")[0] not in given), *options])
    model = load_model(config.model.model_copy(update={"device": device}))
    return Trainer(config, model=model.double() if is_double else model)


def sampled(run: Trainer) -> list[list[tuple[int, ...]]]:
    """The tokens of the rollouts that the next step trains on, group by group."""
    return [[tuple(r.token_ids) for r in group.rollouts] for group in run.sample().groups]


def taken_step(run: Trainer) -> dict[str, Any]:
    """The metrics of one step."""
    return step_metrics(training_step(run))


def resumed(run: Trainer, folder: Path, *options: str, device: str, is_double: bool = True) -> Trainer:
    """Another trainer, gone on from a checkpoint that `run` saves below `folder`."""
    run.save(folder, {})
    checkpoint = load_newest(folder)
    assert checkpoint is not None
    other = trainer(*options, device=device, is_double=is_double)
    other.load(checkpoint)
    return other


def steps_and_a_resume(folder: Path, *options: str, is_double: bool = True) -> Trainer:
    """A step, a checkpoint, and a step from there that goes like the one without it; packed rows, finite metrics."""
    run = trainer(*options, device="cuda", is_double=is_double)
    assert run.learner.updater.layout.startswith("packed"), run.learner.updater.layout
    line = taken_step(run)
    assert None not in [line[name] for name in ("loss", "grad_norm", "entropy", "clip_fraction", "logprob_gap")], line
    other = resumed(run, folder, *options, device="cuda", is_double=is_double)
    assert taken_step(other)["sync/weights_digest"] == taken_step(run)["sync/weights_digest"]
    return run
