"""`pods train CONFIG --dry-run`: what a run would read and do, as text or JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from podsrl.cli.console import counted, errors, output, print_paragraph, say, size_text
from podsrl.cli.memory import advise_on, parse_memory, print_advice
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError, cut
from podsrl.lib.imports import load
from podsrl.lib.time_left import pace_text, time_text

if TYPE_CHECKING:
    from podsrl.plan.duration import Duration
    from podsrl.plan.inputs import Inputs, Trial
    from podsrl.plan.preview import Preview

PHASES = {"always": "all the time", "generate": "while generating", "update": "in the update"}
MOST_SECONDS = 60.0
"""What measuring may take, by the sizes of the model: two steps, or two smaller ones; 0 leaves it out."""
DETAILS = ("prompts", "checked", "update")
"""Lines that only `--all` shows."""


def show_plan(
    config: RunConfig | None,
    processes: int,
    as_json: bool,
    *,
    is_asked_for: bool,
    out: Path | None = None,
    memory: str | None = None,
    words: Sequence[str] = (),
    is_all: bool = False,
) -> None:
    """Check what a run would check before its weights, print what it would do, and how long by a measured step.

    Args:
        config: of the run; None with --resume.
        is_asked_for: whether --dry-run was given, without which the others mean nothing.
        memory: a size that a process may take at most; the command ends with 1 where the run takes more, and also
            where a reward fails on its trial.
        words: the config's name and flags, to be repeated with the changes that make it fit.
        is_all: print every part of the memory and every option that is not at its default, too.

    Raises:
        UsageError: options that do not go together, or what a run would end with before its weights are loaded.
    """
    if not is_asked_for:
        raise UsageError(
            "--processes, --memory, --all and --json go with --dry-run; several processes train with pods launch"
        )
    if config is None:
        raise UsageError("--dry-run wants a CONFIG, not --resume RUN: give RUN/config.toml to see its plan")
    if processes < 1:
        raise UsageError(f"--processes {processes}: wanted at least 1")
    bound = None if memory is None else parse_memory(memory)
    load("podsrl.plan.inputs", "podsrl.plan.preview")
    from podsrl.plan.duration import predict
    from podsrl.plan.inputs import check_inputs
    from podsrl.plan.preview import preview_run
    from podsrl.run.before.fit import fit
    from podsrl.run.before.settle import settle
    from podsrl.run.saving.folder import RunFolder

    if out is not None:
        RunFolder(out).check_is_free()
    config, choices = settle(config, processes)
    with errors.status("reading the questions and trying the rewards"):
        inputs = check_inputs(config, processes)
    longest = inputs.prompts.longest if inputs.prompts else 0
    try:
        config, fitted = fit(
            config, longest_prompt=longest, num_eval=inputs.num_eval, num_processes=processes, num_here=processes
        )
        preview = preview_run(config, processes, inputs.num_eval, longest)
    except UsageError:
        if not as_json:  # of what was found, although the model is out of reach
            say("\n".join(input_lines(inputs)))
        raise
    advice = None if bound is None else advise_on(config, bound, processes, inputs.num_eval, longest).to_json()
    with errors.status("measuring a step (Ctrl-C leaves it out)"):
        time = predict(config, preview, inputs, MOST_SECONDS)
    if as_json:
        memory_json = {"memory": advice} if advice else {}
        chosen = {"chosen": [*choices, *fitted]}
        output.print_json(
            data={**preview.to_json(), **chosen, **memory_json, "time": asdict(time), "inputs": inputs.to_json()}
        )
    else:
        if advice:
            command = ["pods", "train"] if processes == 1 else ["pods", "launch", "--processes", str(processes)]
            print_advice(advice, [*command, *words])
        else:
            print_paragraph(_verdict(preview, inputs, time), style="bold")
        _print(preview, inputs, time, (*choices, *fitted), is_all)
    if (advice and not advice["fits"]) or any(trial.invalid_reason is not None for trial in inputs.trials):
        raise typer.Exit(1)


def _print(preview: Preview, inputs: Inputs, time: Duration, choices: Sequence[str], is_all: bool) -> None:
    """The plan as lines, and with `is_all` two tables; then on stderr warnings, and what was not checked."""
    from podsrl.run.before.no_effect import idle_notes

    sampled = [f"sampled  {time.pace.first_look}"] if time.pace.first_look else []
    lines = [
        *input_lines(inputs),
        *sampled,
        *_lines(preview),
        _time_line(time),
        *(f"chosen   {line}" for line in choices),
    ]
    say("\n".join(line for line in lines if is_all or line[:9].strip() not in DETAILS))
    if is_all:
        _print_memory(preview)
        _print_options(preview)
    else:
        say("memory by part, and all options that are not at their default: --all")
    warnings = dict.fromkeys((*preview.warnings, *inputs.warnings))
    lines = [*(f"warning: {warning}" for warning in warnings), *idle_notes(preview.options)]
    lines += [f"not checked: {missing.what}: {missing.why}" for missing in inputs.not_checked]
    if count := len(inputs.not_checked):
        cause = f"the first of these {count}" if count > 1 else "that"
        lines.append(f"a run on this machine would end with {cause}")
    for line in lines:
        say(line, errors)


def _verdict(preview: Preview, inputs: Inputs, time: Duration) -> str:
    needs = f"about {size_text(preview.needed_bytes)} at the peak, and {preview.machine} has"
    needs = f"the run needs {needs} {size_text(preview.machine_bytes)}"
    needs += f". It takes about {time_text(time.total_seconds)}{_roughly(time)}."
    if preview.needed_bytes > preview.machine_bytes:
        return f"Too large for this machine: {needs} {preview.cure}"
    if inputs.not_checked:
        return f"Not ready on this machine, see below what was not checked; {needs}"
    is_broken = any(trial.invalid_reason is not None for trial in inputs.trials)
    return f"{'Not ready: a reward failed on its trial' if is_broken else 'Ready to train'}; {needs}"


def _roughly(time: Duration) -> str:
    return ", a guess by the model's sizes alone" if time.why_not_measured else ""


def _time_line(time: Duration) -> str:
    pace, evals = time.pace, counted(time.num_evals, "evaluation")
    held = f"; at most {size_text(pace.peak_bytes)} in all" if pace.peak_bytes else ""
    how = f"measured on a step{' of ' * bool(pace.smaller_step)}{pace.smaller_step}"
    how = f"by the model's sizes alone: {time.why_not_measured}" if time.why_not_measured else how
    if pace.is_update_guessed and not time.why_not_measured:
        how += " whose rewards were alike in each group, so that its update is by sizes"
    return (
        f"time     {counted(time.num_steps, 'step')} of {pace_text(pace.step_seconds)} and {evals} of about "
        f"{pace_text(time.eval_seconds)} ({how}{held})"
    )


def input_lines(inputs: Inputs) -> list[str]:
    """What was found of the questions, the rewards and the tokenizer, a line each; nothing of what was not."""
    lines = [f"data     {inputs.split}"] if inputs.split is not None else []
    if prompts := inputs.prompts:
        dropped = prompts.num_dropped_train + prompts.num_dropped_eval
        kind = "chat messages" if prompts.is_chat else "plain text"
        if prompts.has_template and not prompts.is_chat:
            kind += " (the tokenizer has a chat template, which task.chat = true uses)"
        lines.append(f"prompts  {kind}; the longest has {prompts.longest:,} tokens; {dropped:,} left out as too long")
        lines.append(f"first    {cut(prompts.first)!r} ({prompts.first_tokens:,} tokens)")
    if inputs.rewards is not None:
        lines.append(f"rewards  {_text(inputs.rewards)}; {inputs.correct!r} says what is correct")
    lines += [f"trial    {_trial_text(trial)}" for trial in inputs.trials]
    if inputs.tokenizer is not None:
        lines.append(f"tokens   {inputs.tokenizer}")
    lines += [
        f"run      {inputs.schedule}",
        *(f"costs    {each.removeprefix('costs in use: ')}" for each in inputs.costs),
    ]
    return [*lines, f"checked  in {inputs.seconds:.1f} s"]


def _trial_text(trial: Trial) -> str:
    if trial.invalid_reason is not None:
        return f"{cut(trial.text)!r}: invalid, {trial.invalid_reason}"
    verdict = "correct" if trial.is_correct else "not correct"
    parts = ", ".join(f"{name} {_text(value)}" for name, value in trial.parts.items())
    return f"{cut(trial.text)!r}: reward {_text(trial.reward)} ({parts}), {verdict}"


def _lines(preview: Preview) -> list[str]:
    by = f", by {preview.num_processes} processes" if preview.num_processes > 1 else ""
    return [
        f"model    {preview.model}",
        f"trained  {preview.trained}",
        f"per step {counted(preview.prompts, 'question')}{by}: at most {preview.prompt_tokens:,} prompt tokens, "
        f"{preview.generated_tokens:,} generated, of which {preview.kept_tokens:,} kept",
        f"update   at most {counted(preview.num_micro_batches, 'micro-batch')} "
        f"of {preview.work.micro_batch_tokens:,} tokens" + (" in each process" if preview.num_processes > 1 else ""),
    ]


def _print_memory(preview: Preview) -> None:
    table = Table(title="memory, an estimate" + (" for each process" if preview.num_processes > 1 else ""))
    table.add_column("part")
    table.add_column("when")
    table.add_column("size", justify="right")
    for part in sorted(preview.parts, key=lambda part: list(PHASES).index(part.phase)):
        table.add_row(part.name, PHASES[part.phase], size_text(part.num_bytes))
    table.add_section()
    table.add_row("peak", "what is held, and the larger of the two", size_text(preview.peak_bytes))
    table.add_row(preview.machine, "has", size_text(preview.machine_bytes))
    output.print(table)


def _print_options(preview: Preview) -> None:
    """Like `pods config`: an option with its value in a line, what it does in paragraphs of the terminal's width."""
    if preview.options:
        output.print("options that are not at their default:", highlight=False)
    for option in preview.options:
        value = f"{option.key} = {_text(option.value)}   (default {_text(option.default)})"
        output.print(f"  {value}", style="cyan", markup=False, highlight=False, soft_wrap=True)
        meaning = f"no effect here: {option.no_effect}" if option.no_effect else option.meaning
        print_paragraph(meaning, indent="      ")


def _text(value: object) -> str:
    """A value in a few characters; a dash for what is absent."""
    if value is None:
        return "–"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(part)}" for key, part in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
