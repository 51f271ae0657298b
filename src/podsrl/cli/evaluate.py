"""`pods eval`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from podsrl.cli.console import errors, output, split_words
from podsrl.errors import UsageError

READ = (
    "eval.",
    "task.",
    "model.",
    "rollouts.max_new_tokens",
    "rollouts.max_prompt_tokens",
    "rollouts.stop_strings",
    "rollouts.num_slots",
    "rollouts.kv_cache_bytes",
    "rollouts.scheduler",
    "seed",
)
"""What an evaluation reads of a training config."""


def evaluate(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(help="A run's folder (its newest checkpoint), a TOML file or a recipe (its base model).")
    ],
    json: Annotated[bool, typer.Option(help="Print the result as JSON.")] = False,
) -> None:
    """Measure held-out accuracy by sampling.

    [bold]Examples[/]

      pods eval runs/mine

      pods eval pods --task.digits=3              the base model on a harder task

      pods eval runs/mine --eval.num_samples=8 --eval.temperature=0.6
    """
    from podsrl.config.load import load_config

    name, overrides = split_words(target, context.args)
    if name is None:
        raise UsageError("pods eval wants a run's folder or a CONFIG, e.g. `pods eval pods`")
    folder = Path(name)
    is_run = (folder / "config.toml").is_file()
    for text in overrides:
        if not text.removeprefix("--").startswith(READ):
            raise UsageError(f"{text}: an evaluation does not read it; it reads {', '.join(READ)}")
    config = load_config(folder / "config.toml" if is_run else name, overrides)

    from podsrl.run.checkpoint import load_newest
    from podsrl.run.evaluate import evaluate as measure
    from podsrl.run.trainer import Trainer

    if is_run:
        checkpoint = load_newest(folder / "checkpoints")
        if checkpoint is None:
            raise UsageError(f"{folder}: has no checkpoint yet; let it train until it saves one")
        config = config.model_copy(update={"model": config.model.model_copy(update={"path": str(checkpoint.model)})})
        for line in checkpoint.damaged:
            errors.print(f"warning: {line}; using the checkpoint before it", markup=False, soft_wrap=True)
        errors.print(f"evaluating {checkpoint.path}", markup=False, soft_wrap=True)
    with errors.status("sampling answers"):
        trainer = Trainer(config)
        result = measure(trainer)
    if json:
        output.print_json(data=result.to_json())
        return
    reward = "no valid rollout" if result.reward is None else f"mean reward {result.reward:.3f}"
    output.print(
        f"accuracy {result.accuracy:.1%} on {result.num_samples} answers to {len(trainer.tasks.eval)} held-out "
        f"questions ({reward}, {result.num_invalid} invalid, {result.seconds:.1f} s)"
    )
