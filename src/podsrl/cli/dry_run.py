"""`pods train CONFIG --dry-run`: what a run would read and do, as text or JSON."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from podsrl.cli.console import counted, errors, output, print_paragraph, say, size_text
from podsrl.config.bounds import parse_bytes
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError, cut
from podsrl.lib.imports import load
from podsrl.lib.time_left import pace_text, time_text

if TYPE_CHECKING:
    from podsrl.plan.duration import Duration
    from podsrl.plan.inputs import Inputs, Trial
    from podsrl.plan.preview import Preview
    from podsrl.run.before.memory_advice import MemoryAdvice, MemoryStep

PHASES = {"always": "all the time", "generate": "while generating", "update": "in the update"}
MIB = 1 << 20
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
        is_all: print more of the prompts, and every part of the memory, too.

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
        preview = preview_run(config, processes, inputs.num_eval, longest, bound)
    except UsageError:
        if not as_json:  # of what was found, although the model is out of reach
            say("\n".join(input_lines(inputs)))
        raise
    advice = preview.advice
    with errors.status("measuring a step (Ctrl-C leaves it out)"):
        time = predict(config, preview, inputs, MOST_SECONDS)
    if as_json:
        chosen = {"chosen": [*choices, *fitted]}
        output.print_json(data={**preview.to_json(), **chosen, "time": asdict(time), "inputs": inputs.to_json()})
    else:
        if bound is None:
            print_paragraph(_verdict(preview, inputs, time), style="bold")
        if advice:
            command = ["pods", "train"] if processes == 1 else ["pods", "launch", "--processes", str(processes)]
            _print_advice(advice, [*command, *words])
        _print(preview, inputs, time, (*choices, *fitted), is_all)
    is_too_large = bound is not None and advice is not None and not advice.fits
    if is_too_large or any(trial.invalid_reason is not None for trial in inputs.trials):
        raise typer.Exit(1)


def _print(preview: Preview, inputs: Inputs, time: Duration, choices: Sequence[str], is_all: bool) -> None:
    """The plan as lines, and with `is_all` a table; then on stderr warnings, and what was not checked."""
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
        _print_memory(preview, time.pace.peak_bytes)
    else:
        say("prompts, and memory by part: --all")
    warnings = dict.fromkeys((*preview.warnings, *inputs.warnings))
    lines = [*(f"warning: {warning}" for warning in warnings), *idle_notes(preview.options)]
    lines += [f"not checked: {missing.what}: {missing.why}" for missing in inputs.not_checked]
    if count := len(inputs.not_checked):
        cause = f"see the first of these {count}" if count > 1 else "see the line above"
        lines.append(f"this run would fail here: {cause}")
    for line in lines:
        say(line, errors)


def _verdict(preview: Preview, inputs: Inputs, time: Duration) -> str:
    needs = f"about {size_text(preview.needed_bytes)} at the peak, and {preview.machine} has"
    needs = f"the run needs {needs} {size_text(preview.machine_bytes)}"
    needs += f". It takes about {time_text(time.total_seconds)}{_roughly(time)}."
    if preview.needed_bytes > preview.machine_bytes:
        return f"Too large for this machine: {needs}"
    if inputs.not_checked:
        return f"Not ready on this machine, see below what was not checked; {needs}"
    is_broken = any(trial.invalid_reason is not None for trial in inputs.trials)
    return f"{'Not ready: a reward failed on its trial' if is_broken else 'Ready to train'}; {needs}"


def _roughly(time: Duration) -> str:
    return ", a guess by the model's sizes alone" if time.why_not_measured else ""


def _time_line(time: Duration) -> str:
    pace, evals = time.pace, counted(time.num_evals, "evaluation")
    how = f"measured on a step{' of ' * bool(pace.smaller_step)}{pace.smaller_step}"
    how = f"by the model's sizes alone: {time.why_not_measured}" if time.why_not_measured else how
    if pace.is_update_guessed and not time.why_not_measured:
        how += " whose rewards were alike in each group, so that its update is by sizes"
    return (
        f"time     {counted(time.num_steps, 'step')} of {pace_text(pace.step_seconds)} and {evals} of about "
        f"{pace_text(time.eval_seconds)} ({how})"
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


def _print_memory(preview: Preview, measured: int | None) -> None:
    table = Table(title="memory, an estimate" + (" for each process" if preview.num_processes > 1 else ""))
    table.add_column("part")
    table.add_column("when")
    table.add_column("size", justify="right")
    for part in sorted(preview.parts, key=lambda part: list(PHASES).index(part.phase)):
        table.add_row(part.name, PHASES[part.phase], size_text(part.num_bytes))
    table.add_section()
    table.add_row("peak", "what is held, and the larger of the two", size_text(preview.peak_bytes))
    if measured:
        table.add_row("measured on a step", "with the memory of libraries", size_text(measured))
    table.add_row(preview.machine, "has", size_text(preview.machine_bytes))
    output.print(table)


def _print_advice(advice: MemoryAdvice, command: Sequence[str]) -> None:
    """Whether a run fits, and if not what makes it fit: `command`, which starts it as it is, with the changes."""
    bound, peak = size_text(advice.bound_bytes), size_text(advice.peak_bytes)
    if advice.fits:
        say(f"fits into {bound}: about {peak} at the peak, what libraries take for themselves not counted")
        return
    say(f"does not fit into {bound}: about {peak} at the peak. What helps, the cheapest first:")
    before: MemoryAdvice | MemoryStep = advice
    for step in advice.steps:
        _say_step(step, before, advice.bound_bytes)
        before = step
    if not advice.is_possible:
        largest = max(advice.parts, key=lambda part: part.num_bytes)
        say(
            f"that is not enough: about {size_text(advice.least_bytes)} is the least, of which {largest.name} takes "
            f"{size_text(largest.num_bytes)}; {bound} wants a smaller model, or more processes that share it"
        )
        return
    say("that is enough")
    keys = {f"--{step.key}" for step in advice.steps}  # a flag may stand once only
    kept = [word for word in command if word.partition("=")[0] not in keys]
    say("  " + shlex.join([*kept, *advice.flags]))


def _say_step(step: MemoryStep, before: MemoryAdvice | MemoryStep, bound_bytes: int) -> None:
    value = size_text(step.old) if step.key.endswith("_bytes") and step.old else step.old
    was = "" if step.old in (None, 0, False) else f" (now {value})"
    phases = f"generating {size_text(step.generate_bytes)}, update {size_text(step.update_bytes)}"
    less = {
        "generating": before.generate_bytes - step.generate_bytes,
        "update": before.update_bytes - step.update_bytes,
    }
    saved = ", ".join(f"{size_text(size)} {name}" for name, size in less.items() if size > 0)
    mark = "fits" if step.peak_bytes <= bound_bytes else "not yet"
    say(f"  {step.flag}{was}\n      saves {saved}; then {phases}: {mark}\n      costs {step.cost}")


def parse_memory(text: str) -> int:
    """Bytes of `--memory`, such as "24GiB". UsageError: no size, or one without a unit.

    Example:
        >>> parse_memory("24GiB") == 24 << 30
        True
    """
    try:
        size = parse_bytes(text)
    except ValueError:
        size = None
    if not isinstance(size, int) or size < MIB:
        raise UsageError(f"--memory {text}: wanted at least 1MiB, with the unit, such as 24GiB, 80GB or 900MiB")
    return size


def _text(value: object) -> str:
    """A value in a few characters; a dash for what is absent."""
    if value is None:
        return "–"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(part)}" for key, part in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
