"""`pods train` and `pods pretrain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from podsrl.cli.console import (
    AllowChanges,
    ConfigName,
    Plain,
    Resume,
    RunOut,
    counted,
    errors,
    new_folder,
    output,
    say,
    split_words,
)
from podsrl.cli.dry_run import show_plan
from podsrl.cli.progress import TrainDisplay, bar
from podsrl.config.files import read_tree
from podsrl.config.load import apply_overrides, build, load_config
from podsrl.config.pretrain import PretrainConfig
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.lib.imports import TRAINING, load
from podsrl.lib.signals import exit_code
from podsrl.scale.launch import LOST_EXIT_CODE, is_launched, is_main_process, resuming_command, tell_torchrun

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check a run, measure a step, and print what the run would do and take.")
]
DryRunMemory = Annotated[
    str | None,
    typer.Option(
        help="With --dry-run: say whether the run fits into this size, such as 24GiB, and which options make it fit."
    ),
]


def run_folder(example: str, config: str | None, resume: Path | None, out: Path | None, *, allow_changes: bool) -> Path:
    """The folder of a run that is started (with `config`) or resumed.

    Raises:
        UsageError: both or neither, --out with --resume, or a change is accepted and nothing is resumed.
    """
    if (config is None) == (resume is None):
        command = " ".join(example.split()[:2])
        if config is not None:
            raise UsageError(
                f"{command} got the config {config} and --resume {resume}: a resumed run keeps its own config; "
                f"leave {config} out"
            )
        raise UsageError(f"{command} needs a config or --resume RUN, e.g. `{example}`")
    if resume is not None and out is not None:
        raise UsageError(f"--out {out} has no meaning with --resume {resume}: a resumed run stays in its folder")
    if allow_changes and resume is None:
        raise UsageError("--allow-changes: only a resumed run has something to go on from; add --resume RUN")
    return resume or out or new_folder(Path(str(config)).stem)


def train(
    context: typer.Context,
    config: ConfigName = None,
    out: RunOut = None,
    resume: Resume = None,
    allow_changes: AllowChanges = False,
    plain: Plain = False,
    dry_run: DryRun = False,
    processes: Annotated[int, typer.Option(help="With --dry-run: plan a run with this many processes.")] = 1,
    memory: DryRunMemory = None,
    all_of_it: Annotated[
        bool, typer.Option("--all", help="With --dry-run: also more of the prompts, and memory by part.")
    ] = False,
    json: Annotated[bool, typer.Option(help="With --dry-run: print the plan as JSON.")] = False,
) -> None:
    """Train a model. The run can be watched, interrupted and resumed.

    [bold]Examples[/]

      pods train pods                                      PODS, on small sums
      pods train pods --select.num_kept=8 --stop.steps=50  with other values
      pods train my.toml --out runs/mine                   with your own config
      pods train --resume runs/mine --stop.steps=200       train longer
      pods train my.toml --dry-run                         check data and rewards
      pods train my.toml --dry-run --memory 24GiB          see what makes it fit

    Every option of the config is also a flag, --section.key=value or --section.key value; pods config lists them all.

    To look at a run while it trains, use pods watch runs/mine or pods report runs/mine --live.
    """
    config, overrides = split_words(config, context.args)
    folder = run_folder("pods train pods", config, resume, out, allow_changes=allow_changes)
    loaded = load_config(config, overrides) if config is not None else None
    if dry_run or processes != 1 or json or all_of_it or memory is not None:
        words, asked = [str(config), *overrides], {"is_asked_for": dry_run, "is_all": all_of_it}
        show_plan(loaded, processes, json, out=out, memory=memory, words=words, **asked)
        return
    outcome, num_steps = _run(loaded, folder, overrides, allow_changes, plain)
    if outcome == "interrupted":
        again = resuming_command()
        errors.print(f"interrupted; to resume: {again} --resume {folder}", markup=False, soft_wrap=True)
        raise typer.Exit(exit_code())
    if is_main_process():
        if resume is not None and outcome == "finished" and num_steps == 0:
            say(nothing_left(folder, overrides))
        output.print(f"done: {folder}   look at it: pods report {folder}", markup=False, soft_wrap=True)


def nothing_left(folder: Path, overrides: list[str]) -> str:
    """What a resume found that had no step left to do, and the command that trains longer."""
    from podsrl.lib.logs import read_object
    from podsrl.run.session import read_resumed_config

    end, stop = read_object(folder / "finished.json"), read_resumed_config(folder, overrides).stop
    steps, seconds = end["step"], end["seconds/train_elapsed"]
    reached = [f"--stop.steps={2 * steps}"] * (0 < stop.steps <= steps)
    reached += [f"--stop.seconds={2 * seconds:.0f}"] * (0 < stop.seconds <= seconds)
    return (
        f"the run was already finished, after {counted(steps, 'step')} and {seconds:.1f} s of training; no step was "
        f"left to do\nto train longer: pods train --resume {folder} {' '.join(reached)}"
    )


def _run(
    config: RunConfig | None, folder: Path, overrides: list[str], allow_changes: bool, plain: bool
) -> tuple[str, int]:
    """Run with all that is imported at once; of several processes that end, one says why."""
    load(*TRAINING)
    from podsrl.scale.processes import LostProcess

    try:
        return shown_run(config, folder, overrides, allow_changes, plain)
    except LostProcess as error:
        if not is_launched():
            tell_torchrun(str(error), is_consequence=True)
            raise
        if not is_main_process():  # the terminal is for the error of the process that failed
            errors.print(str(error), markup=False, soft_wrap=True)
        raise typer.Exit(LOST_EXIT_CODE) from None


def shown_run(
    config: RunConfig | None, folder: Path, overrides: list[str], allow_changes: bool = False, plain: bool = False
) -> tuple[str, int]:
    """Start (or, without a config, resume) a run and show it; of several processes only the first shows it.

    Returns:
        How it ended, and how many steps it took.
    """
    from podsrl.integrations.trackers import tracking
    from podsrl.run.session import read_resumed_config, resume, start

    shown = config or read_resumed_config(folder, overrides)
    with TrainDisplay(shown, plain or not is_main_process(), folder) as display:
        watched: Any = {
            "on_record": display.show,
            "say": display.say,
            "on_answer": display.evaluating,
            "tracking": tracking,
        }
        if config is not None:
            outcome = start(config, folder, **watched)
        else:
            outcome = resume(folder, overrides, allow_changes=allow_changes, **watched)
        return outcome, display.num_steps


def pretrain(
    context: typer.Context,
    out: Annotated[str, typer.Argument(help="Folder to write the model to.")],
    config: Annotated[str | None, typer.Option(help="TOML file with a PretrainConfig; default: its defaults.")] = None,
) -> None:
    """Train a small base model from random weights. The same seed gives the same model.

    [bold]Examples[/]

      pods pretrain my-base                                the package's own model
      pods pretrain rarer --careful=0.01                   rarer correct answers
      pods pretrain mine --careful='{2 = 0.3, 3 = 0.02}'   rarest in long sums
      pods pretrain often --start=builtin:arithmetic --skill_steps=0 --careful=0.2

    Such a model shows how a way of training does where correct answers are as rare as you choose.
    """
    tree: dict[str, Any] = read_tree(config) if config else {}
    name, overrides = split_words(out, context.args)
    if name is None:
        raise UsageError("pods pretrain wants a folder to write to, e.g. `pods pretrain my-base`")
    folder = Path(name)
    options = build(PretrainConfig, apply_overrides(tree, overrides), config or "of pretrain")
    if folder.exists():
        raise UsageError(f"{folder}: this folder exists; choose a new one")
    load("podsrl.tools.pretrain", "transformers.modeling_utils")
    from podsrl.tools.pretrain import pretrain as run

    with bar("pretraining") as update:
        update(0, None, "starting")
        run(options, folder, update)
    output.print(f"done: {folder}   train it: pods train pods --model.path={folder}", markup=False, soft_wrap=True)
