"""Where the command line prints: results on stdout, everything else on stderr."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from podsrl.config.files import recipe_names
from podsrl.errors import UsageError, printable


class _Printed(Console):
    """A console whose texts cannot steer the terminal: files, models and users' functions say some of them."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


output = _Printed()
errors = _Printed(stderr=True)
MAX_WIDTH = 100
"""Characters of a line of text, where the terminal is wider."""
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


def _recipes(incomplete: str) -> list[str]:
    return [name for name in recipe_names() if name.startswith(incomplete)]


ConfigName = Annotated[
    str | None,
    typer.Argument(help="TOML file, or a recipe's name (pods recipes lists them).", autocompletion=_recipes),
]
RunOut = Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the run; default: runs/NAME-DATE-TIME.")]
Resume = Annotated[
    Path | None, typer.Option(help="Resume the run in this folder; it reproduces the uninterrupted run's numbers.")
]
AllowChanges = Annotated[
    bool,
    typer.Option(
        "--allow-changes",
        help="With --resume: accept that data, tokenizer, first weights or own functions changed. The log notes it.",
    ),
]
Plain = Annotated[bool, typer.Option(help="Print plain lines instead of a picture or a bar.")]
"""Arguments that several commands have; the last five are those of a command that starts a run."""


def split_words(first: str | None, rest: Sequence[str]) -> tuple[str | None, list[str]]:
    """Tell the one positional word of a command from its --section.key=value overrides, in whatever order they came.

    Raises:
        UsageError: a second positional word.

    Example:
        >>> split_words("--seed=1", ["pods"])
        ('pods', ['--seed=1'])
    """
    given = [*([first] if first is not None else []), *rest]
    words = [text for text in given if not text.startswith("--")]
    if len(words) > 1:
        raise UsageError(f"unexpected {words[1]!r} after {words[0]!r}; values are set as --section.key=value")
    return next(iter(words), None), [text for text in given if text.startswith("--")]


def counted(number: int, noun: str) -> str:
    """A number and its noun, in the plural where there are several.

    Example:
        >>> counted(1, "seed"), counted(1024, "batch")
        ('1 seed', '1,024 batches')
    """
    ending = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{ending}"


def size_text(num_bytes: float) -> str:
    """A size in the unit that suits it.

    Example:
        >>> size_text(1536), size_text(5 << 30)
        ('1.5 KiB', '5.0 GiB')
    """
    size, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"


def say(text: str, to: Console = output) -> None:
    """Print text as it is, without markup, colours or line breaks."""
    to.print(text, markup=False, highlight=False, soft_wrap=True)


def print_paragraph(text: str, indent: str = "", style: str | None = None, *, start: str | None = None) -> None:
    """Print text in lines of the terminal's width, at most `MAX_WIDTH`; words are never cut.

    Args:
        start: what the first line begins with in place of `indent`.
    """
    wrapped = textwrap.fill(
        text,
        min(output.width, MAX_WIDTH),
        initial_indent=indent if start is None else start,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    output.print(wrapped, style=style, markup=False, highlight=False, soft_wrap=True)


def check_plot(plot: Path | None) -> None:
    """UsageError: the file of --plot is of no kind that a picture is written as, or its folder is not there."""
    if plot is not None and (plot.suffix not in (".png", ".svg", ".pdf") or not plot.parent.is_dir()):
        raise UsageError(f"--plot {plot}: wanted a file that ends in .png, .svg or .pdf, in a folder that exists")


def new_folder(name: str) -> Path:
    """runs/NAME-DATE-TIME, which no earlier run has."""
    return Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
