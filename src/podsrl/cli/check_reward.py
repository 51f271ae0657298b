"""`pods check-reward`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from podsrl.cli.attack import attack as run_attack
from podsrl.cli.console import errors, output, say
from podsrl.cli.progress import bar
from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig, TaskConfig
from podsrl.errors import UsageError

if TYPE_CHECKING:
    from podsrl.tools.check_reward import Agreement, RewardCheck


NumWorkers = Annotated[
    int | None,
    typer.Option(min=0, help="Processes for rewards of the row form; 0: one per core. Default: the config's, or 0."),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        help="Seconds that a reward of the row form may take for one completion; default: the config's, or 10. A "
        "reward in TRL's form has the config's limit per call, or 300."
    ),
]


def check_reward(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Completions, one JSON object per line (prompt, completion, answer; as pods eval --out writes), or a "
            "run's groups.jsonl. With --attack only its questions are used, and it may be left out."
        ),
    ] = None,
    reward: Annotated[
        list[str] | None, typer.Option(help="NAME=WEIGHT or NAME, as in task.rewards; may be given several times.")
    ] = None,
    correct: Annotated[
        str | None,
        typer.Option(help="The reward to compare with the labels; default: the config's, or the first."),
    ] = None,
    config: Annotated[str | None, typer.Option(help="TOML file or recipe whose task section is used.")] = None,
    attack: Annotated[bool, typer.Option("--attack", help="Try reward hacks, and list those that pay.")] = False,
    task: Annotated[str | None, typer.Option(help="With --attack: a task set whose questions are used.")] = None,
    num_questions: Annotated[
        int | None, typer.Option(min=1, help="With --attack: number of questions, evenly spread; default: 14.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="With --attack: file for every hack that pays or escapes.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --out: replace the file if it exists.")] = False,
    workers: NumWorkers = None,
    timeout: Timeout = None,
    all_of_it: Annotated[
        bool, typer.Option("--all", help="Also show what is in order: all times, counts and families of hacks.")
    ] = False,
    json: Annotated[bool, typer.Option(help="Print the result as JSON, all of it.")] = False,
) -> None:
    """Try reward functions before you train on them: on stored completions, or by an attack.

    [bold]Examples[/]

      pods check-reward completions.jsonl --reward math_correct
      pods check-reward runs/a/groups.jsonl --reward correct --reward mine:brief
      pods check-reward --attack --reward my_rewards:right --task gsm8k
      pods check-reward --attack --config my.toml --out hacks.jsonl

    Every completion is judged twice, in worker processes as in a run. The command reports times, failures, constant
    rewards, and how often the rewards agree with labels. The column "label" (true or false) says which completions are
    correct; without it, the column "is_correct" does, which holds the verdict of an earlier reward. The exit code is 1
    if a run with these rewards would fail.

    With --attack you need no completions: the command writes some thousand texts that should earn nothing, and compares
    their rewards with those of honest answers, correct and wrong. The exit code is 1 if the reward pays for such a text
    or fails on it.
    """
    if (reward is None) == (config is None):
        raise UsageError("pods check-reward wants either --reward NAME=WEIGHT (perhaps several) or --config CONFIG")
    own = RunConfig() if config is None else load_config(config)
    limits, (rewards, judge) = _limits(own.task, workers, timeout), _rewards(reward, own)
    if attack:
        _refuse({"--correct": correct}, "names what is compared with labels, and --attack has none: leave it out")
        run_attack(file, rewards, config, task, num_questions, out, force, limits, json, all_of_it)
    else:
        given = {"--task": task, "--num-questions": num_questions, "--out": out, "--force": force or None}
        _refuse(given, "read with --attack only")
        _check(file, rewards, correct or judge, limits, json, all_of_it)


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Options that would be ignored."""
    if given := [option for option, value in options.items() if value is not None]:
        raise UsageError(f"{' and '.join(given)}: {why}")


def _check(
    file: Path | None, rewards: dict[str, float], correct: str, limits: dict[str, Any], json: bool, is_all: bool
) -> None:
    if file is None:
        raise UsageError("pods check-reward wants a FILE of completions, or --attack to make some")
    checks = checks_of(file, rewards, correct, **limits)
    problems = [problem for check in checks for problem in check.problems]
    for problem in problems:
        errors.print(f"[bold red]a run would fail:[/] {escape(problem)}", soft_wrap=True)
    if json:
        output.print_json(data={"rewards": [check.to_json() for check in checks], "problems": problems})
    else:
        _print(checks, is_all)
    if problems:
        raise typer.Exit(1)


def checks_of(file: Path, rewards: Mapping[str, float], correct: str, **limits: Any) -> list[RewardCheck]:
    """Check rewards on a file of completions, with a bar; `limits` are those of `check_rewards`."""
    from podsrl.tools.check_reward import check_rewards, find_functions
    from podsrl.tools.completions import read_completions

    stored = read_completions(file)
    find_functions(rewards, correct)  # a wrong name is an error before a bar appears
    with bar("judging") as progress:
        return check_rewards(
            rewards,
            correct,
            stored,
            **limits,
            progress=lambda done, total, name: progress(done, total, f"{name}: {done:,} of {total:,} judgements"),
        )


def _limits(section: TaskConfig, workers: int | None, timeout: float | None) -> dict[str, Any]:
    """As keyword arguments of `check_rewards` and `attack_rewards`: what is not given is the config's."""
    if timeout is not None and not timeout > 0:
        raise UsageError(f"--timeout {timeout:g}: wanted seconds above 0")
    return {
        "num_workers": section.reward_workers if workers is None else workers,
        "timeout_seconds": section.reward_timeout_seconds if timeout is None else timeout,
        "batch_timeout_seconds": section.batch_timeout_seconds,
    }


def _rewards(texts: list[str] | None, config: RunConfig) -> tuple[dict[str, float], str]:
    if texts is not None:
        return _parse(texts)
    from podsrl.tools.check_reward import rewards_of

    rewards, correct = rewards_of(config)
    return dict(rewards), correct


def _parse(texts: list[str]) -> tuple[dict[str, float], str]:
    rewards: dict[str, float] = {}
    for text in texts:
        name, is_given, weight = text.partition("=")
        try:
            rewards[name] = float(weight) if is_given else 1.0
        except ValueError:
            raise UsageError(f"--reward {text}: {weight!r} is no number; wanted NAME=WEIGHT, e.g. correct=1") from None
    return rewards, next(iter(rewards))


def _print(checks: list[RewardCheck], is_all: bool) -> None:
    if not any(check.problems for check in checks):
        agreements = [_agreement(check.name, check.agreement) for check in checks if check.agreement]
        say("; ".join(("a run with these rewards would not fail", *agreements)))
    output.print(_table(checks, is_all))
    for check in checks:
        for warning in check.warnings:
            say(f"warning: {warning}", errors)
        for one in check.agreement.disagreements if check.agreement else ():
            label, value = ("correct" if one.label else "wrong"), ("invalid" if one.value is None else f"{one.value:g}")
            line = f"  {one.where}: label {label}, reward {value}, answer {one.answer!r}, ends {one.completion_end!r}"
            say(line)
    if not is_all:
        say("all times and counts: --all")


def _agreement(name: str, found: Agreement) -> str:
    return (
        f"'{name}' agrees with {found.accuracy:.1%} of {found.num_labels} labels "
        f"(precision {_share(found.precision)}, recall {_share(found.recall)})"
    )


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _table(checks: list[RewardCheck], is_all: bool) -> Table:
    """A column for each reward, because names are long and facts are many."""
    table = Table("", *(check.name for check in checks))
    facts = [_facts(check) for check in checks]
    for title in facts[0]:
        values = [fact[title] for fact in facts]
        if is_all or title in SHORT or (title in FAULTS and set(values) != {"0"}):
            table.add_row(title, *values)
    return table


SHORT = ("mean", "distinct values", "ms: median", "invalid")
FAULTS = ("stopped at the limit, counted as wrong", "changed when repeated")
"""Facts that are shown without --all: always, and where there are any."""


def _facts(check: RewardCheck) -> dict[str, str]:
    times = check.milliseconds
    shown = [f"{value:.2f}" for value in times.values()] if times else ["–"] * 4
    if check.form == "batch":
        shown[1:] = ["–"] * 3  # one call for all: only the mean is known
    invalid = ", ".join(f"{count} {kind}" for kind, count in check.num_invalid.items())
    return {
        "weight": f"{check.weight:g}",
        "called once per": "completion" if check.form == "row" else "step",
        "completions": f"{check.num_rows:,}",
        "mean": "–" if check.mean is None else f"{check.mean:.4g}",
        "distinct values": f"{check.num_distinct:,}",
        "ms: median": shown[0],
        "ms: 90 %": shown[1],
        "ms: 99 %": shown[2],
        "ms: longest": shown[3],
        "invalid": invalid or "0",
        "stopped at the limit, counted as wrong": f"{check.num_stopped:,}",
        "changed when repeated": f"{check.num_changed:,}",
    }
