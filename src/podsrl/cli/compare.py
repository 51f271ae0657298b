"""`pods demo` and `pods compare`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from podsrl.cli.compare_result import QUESTION
from podsrl.cli.compare_result import shown as shown_result
from podsrl.cli.console import errors, new_folder, output, say, split_words
from podsrl.cli.progress import evaluation_text, shown, waiting
from podsrl.config.files import read_tree, recipe_names
from podsrl.config.load import apply_overrides, build
from podsrl.config.schema import CompareConfig
from podsrl.errors import UsageError
from podsrl.lib.imports import load
from podsrl.lib.logs import LogTail
from podsrl.lib.signals import exit_code
from podsrl.lib.time_left import pace_text, time_text

Json = dict[str, Any]
QUICK = ("num_seeds=1", "base.stop.seconds=4", "base.eval.every_seconds=2", "base.task.num_eval=64")
DEMO_SECONDS, DEMO_STEP_SECONDS = 60, 0.16
"""What the recipe gives each arm, and a step of its baseline where that was chosen (benchmarks/results/amd-zen-4)."""
SECONDS = "base.stop.seconds"


def demo(
    context: typer.Context,
    quick: Annotated[
        bool,
        typer.Option(help="A few seconds per arm: enough to see that everything works, not which arm wins."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the comparison; default: runs/demo-DATE-TIME.")
    ] = None,
    json: Annotated[bool, typer.Option(help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Compare four ways of training, side by side, on a laptop and without a download.

    [bold]Examples[/]

      pods demo                   two seeds of each way: four minutes or more
      pods demo --quick           a few seconds of each way, to see that it works
      pods demo --num_seeds=5     more seeds, and narrower intervals

    A tiny language model learns to add. At the start about 1 % of its answers are correct, and a KL penalty makes every
    trained rollout cost an update. GRPO generates and trains on 16 rollouts per question. GRPO with gradient
    accumulation generates and trains on 64. PODS generates 64 and trains on the 16 whose rewards vary most. Auto
    generates and trains on as many as are worth their cost. Every run trains for the same time: 60 seconds, or longer
    if two measured steps are slower here than on the machine for which 60 was chosen.
    """
    given = {text.removeprefix("--").split("=")[0] for text in context.args}
    errors.print(QUESTION, markup=False, highlight=False, soft_wrap=True)
    shortened = [text for text in QUICK if quick and text.split("=")[0] not in given]
    overrides, folder = [*shortened, *context.args], out or new_folder("demo")
    if not quick and SECONDS not in given:
        overrides.append(f"--{SECONDS}={_demo_seconds(overrides, folder)}")
    _compare("demo", overrides, folder, json, ["pods", "demo", *context.args])


def compare(
    context: typer.Context,
    config: Annotated[str, typer.Argument(help="TOML file of arms, as above, or a recipe's name.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Output folder. If it already holds this comparison, the comparison resumes."),
    ] = None,
    processes: Annotated[int, typer.Option(help="Processes per run, as in pods launch.")] = 1,
    json: Annotated[bool, typer.Option(help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Train several arms on the same seeds for the same time, and measure speed-ups with intervals.

    [bold]Examples[/]

      pods compare demo --num_seeds=5 --jobs=2
      pods compare systems             what `pods systems` lists, against GRPO
      pods compare paper/compare-a     setting (a) of the paper, both arms
      pods compare my-arms.toml --base.stop.seconds=120 --out runs/mine

    To put runs that you already have side by side, use pods report runs/a runs/b.

    [bold]A file of arms[/] (docs/comparing.md explains every key)

    \b
      baseline = "grpo"              # the other arms are measured against it
      num_seeds = 3                  # runs of each arm
      \\[base]                         # a training config that all arms share
      task = { name = "arithmetic", digits = 2, num_eval = 64 }
      rollouts.num_prompts = 8
      eval.every_seconds = 2
      stop.seconds = 20              # training seconds of every run
      \\[arms.grpo]                    # changes to base
      rollouts.num_rollouts = 16
      select = { rule = "keep_all", num_kept = 16 }
      \\[arms.pods]
      rollouts.num_rollouts = 64
      select = { rule = "max_variance", num_kept = 16 }
    """
    _refuse_folders([config, *context.args])
    name, overrides = split_words(config, context.args)
    if name is None:
        raise UsageError("pods compare wants a CONFIG, e.g. `pods compare demo`")
    if processes < 1:
        raise UsageError(f"--processes {processes}: wanted at least 1")
    command = ["pods", "compare", name, *overrides]
    if processes > 1:
        command.append(f"--processes={processes}")
    _compare(name, overrides, out or new_folder(Path(name).stem), json, command, processes)


def _demo_seconds(overrides: Sequence[str], folder: Path) -> int:
    """Training seconds per arm: the recipe's, or as many more as steps are slower here; of a resumed demo, its own."""
    if (folder / "compare.toml").exists():
        return int(read_tree(folder / "compare.toml")["base"]["stop"]["seconds"])
    load("podsrl.plan.probe", "transformers.modeling_utils")
    from podsrl.compare.runs import plan
    from podsrl.lib.machine import num_cores
    from podsrl.plan.probe import measure_pace

    config = build(CompareConfig, apply_overrides(read_tree("demo"), overrides), "demo")
    member = next(member for member in plan(config, folder) if member.arm == config.baseline)
    with waiting("measuring two steps"):
        step_seconds = measure_pace(member.config)
    seconds = demo_seconds(step_seconds, config.jobs, num_cores())
    if seconds > DEMO_SECONDS:
        say(
            f"a step took {pace_text(step_seconds)}, {DEMO_STEP_SECONDS:g} s where the demo was made: each arm gets "
            f"{time_text(seconds)} of training",
            errors,
        )
    return seconds


def demo_seconds(step_seconds: float, jobs: int = 1, num_cores: int = 1) -> int:
    """Training seconds in which an arm takes as many steps as where the demo was made; whole minutes.

    Example:
        >>> demo_seconds(0.1), demo_seconds(0.32), demo_seconds(0.32, jobs=2, num_cores=1)
        (60, 120, 240)
    """
    slower = step_seconds / DEMO_STEP_SECONDS * max(1.0, jobs / num_cores)
    return DEMO_SECONDS * max(1, math.ceil(round(slower, 6)))


def _refuse_folders(words: Sequence[str]) -> None:
    """Point to `pods report`, which puts existing runs side by side."""
    folders = [word for word in words if Path(word).is_dir() and word not in recipe_names()]
    if folders:
        raise UsageError(
            f"{folders[0]} is a folder, and pods compare wants a TOML file of arms, which it then runs; to put "
            f"existing runs side by side: pods report {' '.join(folders)}"
        )


def _compare(
    source: str, overrides: Sequence[str], folder: Path, as_json: bool, command: Sequence[str], num_processes: int = 1
) -> None:
    """Run and show a comparison; `command` started it."""
    config = build(CompareConfig, apply_overrides(read_tree(source), overrides), source)
    result, report = reported_comparison(config, folder, num_processes)
    if as_json:
        output.print_json(data=result)
    else:
        output.print(shown_result(result, _advice(result, source, command)), soft_wrap=True)
    errors.print(f"pictures and every recorded rollout: {report}", markup=False, soft_wrap=True)


def _advice(result: Json, source: str, command: Sequence[str]) -> str:
    """How to give every arm enough time; a demo knows how many steps it takes."""
    step_seconds, seconds = sum(result["stage_seconds"][result["baseline"]].values()), 4 * result["seconds"]
    measured = ""
    if source == "demo":
        seconds = max(seconds, demo_seconds(step_seconds))
        measured = f", {DEMO_STEP_SECONDS:g} s where the demo was made"
    words = [word for word in command if SECONDS not in word and word != "--quick"]
    return f"{measured}; give each arm {time_text(seconds)}: {shlex.join([*words, f'--{SECONDS}={seconds:g}'])}"


def reported_comparison(config: CompareConfig, folder: Path, num_processes: int = 1) -> tuple[Json, Path]:
    """`run_comparison`, and the page of it."""
    result = run_comparison(config, folder, num_processes)

    from podsrl.report.html import write_report

    with waiting("drawing the report"):
        return result, write_report([folder], folder / "report.html")


def run_comparison(config: CompareConfig, folder: Path, num_processes: int = 1) -> Json:
    """Check every arm, run what is not finished yet with a live display, and measure what `compare.json` holds.

    Raises:
        UsageError, RunFailed: as `plan` and `run_all`. Ctrl-C ends the command with a hint how to resume.
    """
    load("podsrl.compare.schedule", "podsrl.run.before.prepare")
    from podsrl.compare import runs as comparison
    from podsrl.compare.measure import measure
    from podsrl.compare.schedule import run_all
    from podsrl.run.before.prepare import prepare

    members = comparison.plan(config, folder)
    with waiting("checking the arms"):
        for member in members[: len(config.arms)]:
            prepare(member.config).close()  # every arm, before minutes go into the first
    comparison.open_folder(config, folder)
    with _Display(members, folder) as tick:
        is_complete = run_all(members, config.jobs, tick, num_processes, config.slice_seconds)
    if not is_complete:
        errors.print(
            f"interrupted; every run has saved a checkpoint. To resume, give the same command with --out {folder}",
            markup=False,
            soft_wrap=True,
        )
        raise typer.Exit(exit_code())
    if any(member.config.record.trackers for member in members):
        say(f"trackers: the last lines of {folder}/runs/*.log say where each run can be seen", errors)
    return measure(config, members, folder)


class _Display:
    """The picture of all runs, or a bar; plain lines without a terminal. Only new lines of the logs are read."""

    def __init__(self, members: Sequence[Any], folder: Path) -> None:
        self._members = members
        self._tails = {member: LogTail(member.path / "metrics.jsonl") for member in members}
        self._seconds = dict.fromkeys(members, 0.0)
        self._total = sum(float(member.config.stop.seconds) for member in members)
        self._shown = shown("all runs", folder=folder)

    def __enter__(self) -> Callable[[], None]:
        self._shown.__enter__()
        return self._tick

    def __exit__(self, *error: Any) -> None:
        self._shown.__exit__(*error)

    def _tick(self) -> None:
        for member, tail in self._tails.items():
            for line in tail.new_lines():
                seconds = line.get("seconds/train_elapsed", self._seconds[member])  # a note has none
                self._seconds[member] = min(float(member.config.stop.seconds), seconds)
                if "eval/accuracy" in line:
                    self._shown.say(f"{member.path.name}: {evaluation_text(line)}")
        num_done = sum(member.is_finished for member in self._members)
        text = f"{num_done} of {len(self._members)} runs done"
        self._shown.update(sum(self._seconds.values()), self._total, text)
