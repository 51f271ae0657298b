"""`pods eval --system-prompt`: the same questions behind several system prompts, as one table or as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from podsrl.cli.console import counted, errors, output, say
from podsrl.cli.progress import bar, waiting
from podsrl.errors import UsageError, cut, printable, short
from podsrl.evaluation.target import Target

if TYPE_CHECKING:
    from podsrl.evaluation.evaluator import Evaluator
    from podsrl.score.accuracy import Accuracy
    from podsrl.types import Group

_SHOWN = 120
"""Characters of a prompt in the table."""


def compare_prompts(
    found: Target, given: Sequence[str], num_questions: int, out: Path | None, *, is_json: bool
) -> None:
    """Ask all questions behind each system prompt, the config's own first unless it is given; Ctrl-C shows those done.

    Args:
        given: the prompts, "" for none.

    Raises:
        UsageError: a prompt is given twice, or what `Evaluator` raises.
    """
    from podsrl.evaluation.evaluator import Evaluator

    prompts = _asked(found, given)
    results: dict[str | None, Accuracy] = {}
    with waiting("loading"):
        evaluator = Evaluator(
            found.config, num_questions=num_questions, adapters=found.adapters, system_prompts=prompts
        )
    with evaluator:
        for warning in evaluator.warnings:
            say(f"warning: {warning}", errors)
        with suppress(KeyboardInterrupt):
            _fill(results, evaluator, out)
    _show(results, found, has_form=evaluator.has_form, is_json=is_json)
    if len(results) < len(prompts):
        raise KeyboardInterrupt


def _asked(found: Target, given: Sequence[str]) -> list[str | None]:
    if again := [text for place, text in enumerate(given) if text in given[:place]]:
        raise UsageError(f"--system-prompt {short(again[0])} is given twice: keep one")
    own, prompts = found.config.task.system_prompt, [text or None for text in given]
    return prompts if own in prompts else [own, *prompts]


def _fill(results: dict[str | None, Accuracy], evaluator: Evaluator, out: Path | None) -> None:
    from podsrl.score.accuracy import accuracy_of
    from podsrl.tools.completions import completions_writer, stored_group

    size, num_prompts = len(evaluator.questions), len(evaluator.worded)
    with completions_writer(out) as write, bar("evaluating") as advance:
        for place, (prompt, questions) in enumerate(evaluator.worded.items()):
            groups: list[Group] = []
            name = f"system prompt {place + 1} of {num_prompts}"
            advance(place * size, num_prompts * size, name)
            for group in evaluator.answers(questions):
                write(stored_group(group))
                groups.append(group)
                so_far = f"{name}: {len(groups):,} of {counted(size, 'question')}"
                advance(place * size + len(groups), num_prompts * size, so_far)
            results[prompt] = accuracy_of(groups, num_stopped=evaluator.scorer.stats.num_stopped)


def _show(results: Mapping[str | None, Accuracy], found: Target, *, has_form: bool, is_json: bool) -> None:
    from podsrl.score.accuracy import accuracy_metrics

    own = found.config.task.system_prompt
    if not results:
        errors.print("no system prompt has all its answers")
    elif is_json:
        rows = [
            {"system_prompt": prompt, "is_own": prompt == own, "interval": each.interval, **accuracy_metrics(each)}
            for prompt, each in results.items()
        ]
        output.print_json(data={"prompts": rows})
    else:
        output.print(_table(results, own, found.config.eval.temperature, has_form))


def _table(results: Mapping[str | None, Accuracy], own: str | None, temperature: float, has_form: bool) -> Table:
    first = next(iter(results.values()))
    answers = counted(first.num_samples // first.num_questions, "answer")
    title = f"{counted(first.num_questions, 'question')}, {answers} each, temperature {temperature:g}"
    has_unjudged = any(each.num_invalid or each.num_stopped for each in results.values())
    more = ["unjudged, %"] if has_unjudged else []
    caption = "own: of the config; (…): 95 % interval; cut: at the token limit"
    table = Table(title=title, caption=f"{caption}; unjudged: no usable reward" if more else caption)
    table.add_column("system prompt", ratio=1, overflow="fold")
    for name in ("accuracy, %", *(["in form, %"] if has_form else []), "cut, %", *more, "tokens"):
        table.add_column(name, justify="right")
    for prompt, each in results.items():
        text = "none" if prompt is None else repr(cut(prompt, _SHOWN))
        low, high = each.interval
        table.add_row(
            Text(printable(f"own: {text}" if prompt == own else text)),
            f"{100 * each.accuracy:.1f} ({100 * low:.1f}–{100 * high:.1f})",
            *([f"{100 * each.accuracy_and_format:.1f}"] if has_form else []),
            f"{100 * each.num_truncated / each.num_samples:.1f}",
            *([f"{100 * (each.num_invalid + each.num_stopped) / each.num_samples:.1f}"] if has_unjudged else []),
            f"{each.length:.0f}",
        )
    return table
