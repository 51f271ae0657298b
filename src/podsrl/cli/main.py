"""The command `pods`. Parses first, imports torch later: `pods --help` stays under a second.

Exit codes: 0 done, 1 failed, 2 bad usage or config, 130 interrupted (143 by SIGTERM, 129 by SIGHUP).
"""

from __future__ import annotations

import sys
import warnings
from inspect import cleandoc
from typing import Annotated, NoReturn

import typer
from rich.markup import escape

from podsrl.cli import (
    check_reward,
    check_template,
    compare,
    config,
    diagnose,
    doctor,
    evaluate,
    inspect,
    launch,
    models,
    plan,
    recipes,
    systems,
    tasks,
    train,
    watch,
)
from podsrl.cli.console import errors, output
from podsrl.cli.flags import OWN_ARGUMENTS, CompareCommand, ConfigCommand, PretrainCommand
from podsrl.errors import PodsError, UsageError, is_out_of_memory, one_line, printable
from podsrl.lib.machine import set_waiting_policy
from podsrl.lib.parent import end_with_parent
from podsrl.lib.signals import exit_code, is_leaving
from podsrl.scale.launch import tell_torchrun

DISK_ERRORS = {
    "No space left on device": "make room",
    "Disk quota exceeded": "make room",
    "File too large": "allow larger files",
    "Read-only file system": "make it writable, or choose another folder",
}
"""How the operating system says that a file cannot be written -> the cure."""

HELP = """Train language models with verifiable rewards, and update them only on the rollouts that teach.

[bold]Examples[/]

  pods train pods --out runs/first     a tiny model learns to add, in a minute
  pods report runs/first               a page of curves and answers
  pods demo                            PODS beside GRPO, in some minutes
  pods train mine.toml --dry-run       check a config of your own
  pods config                          list all options

pods COMMAND --help shows examples of each command."""

app = typer.Typer(
    name="pods",
    help=HELP,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command(cls=CompareCommand, context_settings=OWN_ARGUMENTS)(compare.demo)
app.command(cls=ConfigCommand, context_settings=OWN_ARGUMENTS)(train.train)
app.command(cls=ConfigCommand, context_settings=OWN_ARGUMENTS)(launch.launch)
app.command("config", cls=ConfigCommand, context_settings=OWN_ARGUMENTS)(config.show_config)
app.command(cls=CompareCommand, context_settings=OWN_ARGUMENTS)(compare.compare)
app.command()(recipes.recipes)
app.command()(systems.systems)
app.command()(models.models)
app.command()(tasks.tasks)
app.command(cls=ConfigCommand, context_settings=OWN_ARGUMENTS)(plan.plan)
app.command("eval", cls=ConfigCommand, context_settings=OWN_ARGUMENTS)(evaluate.evaluate)
app.command("check-reward")(check_reward.check_reward)
app.command("check-template")(check_template.check_template)
app.command()(watch.watch)
app.command()(inspect.report)
app.command()(diagnose.diagnose)
app.command(cls=PretrainCommand, context_settings=OWN_ARGUMENTS)(train.pretrain)
app.command()(doctor.doctor)


def _flowing(text: str) -> str:
    """Each paragraph in one line, which the terminal alone breaks; indented blocks stay as they are."""
    blocks = cleandoc(text).split("\n\n")
    return "\n\n".join(block if block.startswith((" ", "\b")) else block.replace("\n", " ") for block in blocks)


for _command in app.registered_commands:
    assert _command.callback is not None
    _command.help = _flowing(_command.callback.__doc__ or "")


def _say_version(is_asked_for: bool) -> None:
    if is_asked_for:
        from importlib.metadata import version

        output.print(f"podsrl {version('podsrl')}", highlight=False)
        raise typer.Exit()


@app.callback()
def _whole_command(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    return None  # a docstring would stand in place of the help above


def main() -> None:
    """Run the command line; errors made on purpose are one line on stderr."""
    end_with_parent()
    set_waiting_policy()
    # Not which line of whose code said so.
    warnings.formatwarning = lambda message, *_, **__: f"warning: {printable(str(message))}\n"
    try:
        app(prog_name="pods")
    except UsageError as error:
        _fail("error", str(error), 2)
    except PodsError as error:
        _fail("failed", str(error), 1)
    except KeyboardInterrupt:
        _end_interrupted()
    except SystemExit as end:
        if _comes_of_interrupt(end):
            _end_interrupted()
        raise
    except Exception as error:
        if is_leaving():
            _end_interrupted()
        refused = _what_the_system_refused(error)
        if refused is None:
            tell_torchrun(f"{type(error).__name__}: {one_line(str(error))}")
            raise
        _fail("failed", refused, 1)


def _fail(word: str, reason: str, code: int) -> NoReturn:
    """End with one line. Square brackets in it are text, not markup."""
    line = one_line(reason)
    errors.print(f"[bold red]{word}:[/] {escape(line)}", soft_wrap=True)
    tell_torchrun(f"{word}: {line}")
    sys.exit(code)


def _what_the_system_refused(error: Exception) -> str | None:
    """In words, with the file; None where it was something else."""
    for text, cure in DISK_ERRORS.items():
        if text in str(error):  # other languages raise this as types of their own
            return f"{error}: {cure}, and do it again; what was whole before still is (a run goes on with --resume)"
    if is_out_of_memory(error):
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        return (
            f"memory ran out ({reason}): let other programs use less, or hold less (rollouts.kv_cache_bytes; "
            "pods train --dry-run --memory SIZE names more), and do it again; a run goes on with --resume"
        )
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return None


def _comes_of_interrupt(error: BaseException | None) -> bool:
    """Whether a library that parses the command line made it of a KeyboardInterrupt, without a word."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return error is not None


def _end_interrupted() -> NoReturn:
    errors.print("interrupted")
    sys.exit(exit_code())
