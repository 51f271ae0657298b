"""`pods eval`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from podsrl.cli.console import errors, output, split_words
from podsrl.cli.progress import bar, waiting
from podsrl.errors import UsageError
from podsrl.evaluate.target import READ_ROLLOUTS, find_target
from podsrl.lib.imports import load

if TYPE_CHECKING:
    from podsrl.score.accuracy import Accuracy
    from podsrl.types import Group

_ROLLOUTS = tuple(f"rollouts.{name}" for name in READ_ROLLOUTS)
READ = (
    "eval.num_samples",
    "eval.temperature",
    "eval.top_p",
    "task.",
    "model.",
    "options.",
    *_ROLLOUTS,
    "threads",
    "seed",
)
"""What an evaluation reads of a training config."""


def evaluate(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            help="A run's folder (its newest checkpoint), a recipe or TOML file (its base model), a model's or PEFT "
            "adapters' folder, or a name on the hub."
        ),
    ],
    task: Annotated[str | None, typer.Option(help="Task set, instead of the config's own.")] = None,
    num_questions: Annotated[
        int, typer.Option(min=0, help="Held-out questions to ask, evenly spread; 0: all.", show_default=True)
    ] = 0,
    samples: Annotated[int | None, typer.Option(min=1, help="Answers per question (eval.num_samples).")] = None,
    temperature: Annotated[float | None, typer.Option(help="Softmax temperature (eval.temperature).")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for all completions (JSONL).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --out if it exists.")] = False,
    json: Annotated[bool, typer.Option(help="Print the result as JSON.")] = False,
) -> None:
    """Measure held-out accuracy by sampling: pass@1, maj@k, pass@k, with and without the wanted form.

    [bold]Examples[/]

      pods eval runs/mine
      pods eval Qwen/Qwen2.5-3B-Instruct --task gsm8k --num-questions 100
      pods eval pods --task.digits=3 -o answers.jsonl   its base model, harder
    """
    from podsrl.tools.completions import check_out

    name, overrides = split_words(target, context.args)
    if name is None:
        raise UsageError("pods eval wants a run's folder, a config or a model, e.g. `pods eval pods`")
    for text in overrides:
        if not text.removeprefix("--").startswith(READ):
            raise UsageError(f"{text}: an evaluation does not read it; it reads {', '.join(READ)}")
    check_out(out, is_forced=force)
    given = {"eval.num_samples": samples, "eval.temperature": temperature}
    overrides += [f"--{key}={value}" for key, value in given.items() if value is not None]

    found = find_target(name, overrides, task)
    for line in found.notes:
        errors.print(line, markup=False, soft_wrap=True)

    load("podsrl.evaluate.evaluator", "transformers.modeling_utils")
    from podsrl.evaluate.evaluator import Evaluator

    with ExitStack() as stack:
        with waiting("loading"):
            evaluator = stack.enter_context(
                Evaluator(found.config, num_questions=num_questions, adapters=found.adapters)
            )
        for warning in evaluator.warnings:
            errors.print(f"warning: {warning}", markup=False, soft_wrap=True)
        groups, is_whole = _ask(evaluator, out)
    num_stopped = evaluator.scorer.stats.num_stopped
    _show(groups, num_stopped, found.config.eval.num_samples, len(evaluator.questions), json)
    if not is_whole:
        raise KeyboardInterrupt


def _ask(evaluator: Any, out: Path | None) -> tuple[list[Group], bool]:
    """Every question's answers, or those judged before Ctrl-C; and whether they are all."""
    from podsrl.tools.completions import completions_writer, stored_group

    groups: list[Group] = []
    total, num_right, num_judged = len(evaluator.questions), 0, 0
    try:
        with completions_writer(out) as write, bar("evaluating") as advance:
            advance(0, total, f"0 of {total:,} questions")
            for group in evaluator.answers():
                write(stored_group(group))
                groups.append(group)
                num_right += sum(rollout.is_correct for rollout in group.rollouts)
                num_judged += len(group.rollouts)
                so_far = f"accuracy so far {num_right / num_judged:.1%}"
                advance(len(groups), total, f"{len(groups):,} of {total:,} questions, {so_far}")
    except KeyboardInterrupt:
        return groups, False
    return groups, True


def _show(groups: list[Group], num_stopped: int, num_samples: int, total: int, json: bool) -> None:
    from podsrl.score.accuracy import accuracy_metrics, accuracy_of

    if not groups:
        errors.print("no question was answered")
        return
    result = accuracy_of(groups, num_stopped=num_stopped)
    if json:
        output.print_json(data={**accuracy_metrics(result), "num_questions_wanted": total})
        return
    output.print(_table(result, num_samples))
    if len(groups) < total:
        output.print(f"stopped early: {len(groups)} of {total} questions; those with short answers come first")


def _table(result: Accuracy, num_samples: int) -> Table:
    title = f"{result.num_questions:,} questions, {num_samples} answer{'s' if num_samples > 1 else ''} each"
    table = Table(title=title, show_header=False)
    spread = "" if result.accuracy_sem is None else f" ± {result.accuracy_sem:.1%} (standard error over questions)"
    table.add_row("accuracy (pass@1)", f"{result.accuracy:.1%}{spread}")
    table.add_row("right and in the wanted form", f"{result.accuracy_and_format:.1%}")
    table.add_row("in the wanted form", f"{result.format:.1%}")
    if result.majority is not None and num_samples > 1:
        table.add_row(f"maj@{num_samples}", f"{result.majority:.1%}")
    for k, share in result.pass_at.items():
        table.add_row(f"pass@{k}", f"{share:.1%}")
    table.add_row("mean reward", "no valid answer" if result.reward is None else f"{result.reward:.3f}")
    cut = f"{result.num_truncated:,} of {result.num_samples:,} cut at the token limit"
    table.add_row("length", f"{result.length:.0f} tokens; {cut}")
    if result.num_invalid:
        table.add_row("without a usable reward", f"{result.num_invalid:,}")
    if result.num_stopped:
        table.add_row("stopped at the limit, counted as wrong", f"{result.num_stopped:,}")
    return table
