"""`pods eval`."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from podsrl.cli.console import errors, output, split_words
from podsrl.cli.progress import bar, waiting
from podsrl.cli.prompts import compare_prompts
from podsrl.cli.search import SearchFlags, evaluate_search
from podsrl.errors import UsageError
from podsrl.evaluation.target import READ_ROLLOUTS, Target, find_target
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
        int, typer.Option(min=0, help="Number of held-out questions, evenly spread; 0: all.", show_default=True)
    ] = 0,
    samples: Annotated[int | None, typer.Option(min=1, help="Answers per question (eval.num_samples).")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Softmax temperature (eval.temperature); 0.0001: greedy.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for all completions (JSONL).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --out if it exists.")] = False,
    json: Annotated[bool, typer.Option(help="Print the result as JSON.")] = False,
    search: Annotated[
        str | None, typer.Option(help="Ways to choose one of several answers, joined by commas: docs/search.md.")
    ] = None,
    judge: Annotated[
        str | None, typer.Option(help="Of a search: says how good an answer is so far; steps, or module:function.")
    ] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Of a search: most tokens for a question.")] = None,
    step_end: Annotated[
        str | None, typer.Option(help="Of a search: text that ends a step; default: an empty line.")
    ] = None,
    system_prompt: Annotated[
        list[str] | None,
        typer.Option(
            help="A system prompt to compare with the config's own, on the same questions; give it several times to "
            "compare several. '': none.",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Of a search: picture of accuracy against tokens (.png, .svg, .pdf).")
    ] = None,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Ask a run even questions that it may have been trained on.")
    ] = False,
) -> None:
    """Measure held-out accuracy from sampled answers: pass@1, maj@k and pass@k; or that of searches.

    [bold]Examples[/]

      pods eval runs/mine
      pods eval Qwen/Qwen2.5-3B-Instruct --task gsm8k --num-questions 100
      pods eval pods --task.digits=3 -o answers.jsonl   its base model
      pods eval smol --system-prompt "Be brief."   beside its own
      pods eval steps --search majority,particles --judge steps --tokens 2560

    The result counts correct answers with and without the form that the task asks for. With --search it is the
    accuracy of the one answer that each search gives, at 1, 2, 4, 8 … answers up to --samples, and the tokens that
    were generated for it.
    """
    name, overrides = split_words(target, context.args)
    if name is None:
        raise UsageError("pods eval wants a run's folder, a config or a model, e.g. `pods eval pods`")
    given = {"eval.num_samples": samples, "eval.temperature": temperature}
    overrides += [f"--{key}={value}" for key, value in given.items() if value is not None]
    flags = SearchFlags(search=search, judge=judge, tokens=tokens, step_end=step_end, plot=plot)
    if search is None:
        flags.check_unused()
    elif out is not None:
        raise UsageError(f"--out {out}: a search writes no file of completions; leave it out, or leave --search out")
    elif system_prompt:
        raise UsageError("--system-prompt: a search compares no system prompts; leave it out, or leave --search out")
    found = target_of(name, overrides, task, out, is_forced=force, allow_changes=allow_changes)
    load("podsrl.evaluation.evaluator", "transformers.modeling_utils")
    if search is not None:
        return evaluate_search(found, flags, num_questions, is_json=json)
    if system_prompt:
        return compare_prompts(found, system_prompt, num_questions, out, is_json=json)
    answered = answers_of(found, num_questions, out)
    _show(answered, found.config.eval.num_samples, json)
    if not answered.is_whole:
        raise KeyboardInterrupt


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What an evaluation found."""

    groups: list[Group]
    """The judged answers of each question, in the order in which they were done."""
    num_stopped: int
    """Answers that could not be judged within the limits."""
    num_wanted: int
    """Questions that were to be asked."""
    has_form: bool
    """Whether the answers were to have a form."""

    @property
    def is_whole(self) -> bool:
        """False where Ctrl-C ended it."""
        return len(self.groups) == self.num_wanted

    @property
    def accuracy(self) -> Accuracy:
        """Of the questions that were answered, at least one."""
        from podsrl.score.accuracy import accuracy_of

        return accuracy_of(self.groups, num_stopped=self.num_stopped)


def target_of(
    name: str,
    overrides: list[str],
    task: str | None,
    out: Path | None = None,
    *,
    is_forced: bool = False,
    allow_changes: bool = False,
) -> Target:
    """What an evaluation is of; it says which checkpoint of a run that is.

    Raises:
        UsageError: an option that no evaluation reads, `out` cannot be written, or what `find_target` raises.
    """
    from podsrl.tools.completions import check_out

    for text in overrides:
        if not text.removeprefix("--").startswith(READ):
            raise UsageError(f"{text}: an evaluation does not read it; it reads {', '.join(READ)}")
    check_out(out, is_forced=is_forced)
    found = find_target(name, overrides, task, allow_changes=allow_changes)
    for line in found.notes:
        errors.print(line, markup=False, soft_wrap=True)
    return found


def answers_of(found: Target, num_questions: int = 0, out: Path | None = None) -> Answered:
    """Evaluate, and show how far it is: `num_questions` of the held-out questions, 0: all."""
    from podsrl.evaluation.evaluator import Evaluator

    with ExitStack() as stack:
        with waiting("loading"):
            evaluator = stack.enter_context(
                Evaluator(found.config, num_questions=num_questions, adapters=found.adapters)
            )
        for warning in evaluator.warnings:
            errors.print(f"warning: {warning}", markup=False, soft_wrap=True)
        groups = _ask(evaluator, out)
    return Answered(
        groups=groups,
        num_stopped=evaluator.scorer.stats.num_stopped,
        num_wanted=len(evaluator.questions),
        has_form=evaluator.has_form,
    )


def _ask(evaluator: Any, out: Path | None) -> list[Group]:
    """Every question's answers, or those judged before Ctrl-C."""
    from podsrl.tools.completions import completions_writer, stored_group

    groups: list[Group] = []
    total, num_right, num_judged = len(evaluator.questions), 0, 0
    with suppress(KeyboardInterrupt), completions_writer(out) as write, bar("evaluating") as advance:
        advance(0, total, f"0 of {total:,} questions")
        for group in evaluator.answers():
            write(stored_group(group))
            groups.append(group)
            num_right += sum(rollout.is_correct for rollout in group.rollouts)
            num_judged += len(group.rollouts)
            so_far = f"accuracy so far {num_right / num_judged:.1%}"
            advance(len(groups), total, f"{len(groups):,} of {total:,} questions, {so_far}")
    return groups


def _show(answered: Answered, num_samples: int, json: bool) -> None:
    from podsrl.score.accuracy import accuracy_metrics

    if not answered.groups:
        errors.print("no question was answered")
        return
    if json:
        metrics = accuracy_metrics(answered.accuracy)
        output.print_json(data={**metrics, "num_questions_wanted": answered.num_wanted})
        return
    output.print(_table(answered.accuracy, num_samples, answered.has_form))
    if not answered.is_whole:
        asked = f"{len(answered.groups)} of {answered.num_wanted} questions"
        output.print(f"stopped early: {asked}; those with short answers come first")


def _table(result: Accuracy, num_samples: int, has_form: bool) -> Table:
    title = f"{result.num_questions:,} questions, {num_samples} answer{'s' if num_samples > 1 else ''} each"
    table = Table(title=title, show_header=False)
    spread = "" if result.accuracy_sem is None else f" ± {result.accuracy_sem:.1%} (standard error over questions)"
    table.add_row("accuracy (pass@1)", f"{result.accuracy:.1%}{spread}")
    if has_form:
        table.add_row("correct and in the wanted form", f"{result.accuracy_and_format:.1%}")
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
