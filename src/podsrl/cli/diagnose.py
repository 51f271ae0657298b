"""`pods diagnose`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from podsrl.cli.console import AsJson, counted, output, print_paragraph, say

if TYPE_CHECKING:
    from podsrl.report.diagnose import Diagnosis


def diagnose(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    json: AsJson = False,
) -> None:
    """Say what a run spent its rollouts on, what its parts would have saved, and what to try first.

    [bold]Examples[/]

      pods diagnose runs/mine
      pods diagnose runs/mine --json

    The verdict comes first: unscored, indifferent, over-long, starved, solved or healthy. The savings are simulated on
    the groups that the run recorded, with the same answers.
    """
    from podsrl.report.diagnose import diagnose as look_at
    from podsrl.report.read import read_run

    found = look_at(read_run(run))
    commands = [
        f"pods train {run / 'config.toml'} {' '.join(f'--{flag}' for flag in flags)}" for _, flags in found.parts
    ]
    if json:
        facts = asdict(found)
        del facts["cause"], facts["parts"]
        output.print_json(data={"verdict": found.cause.name, **facts, "try_first": commands})
        return
    share, advice = found.shares[found.cause.name], found.cause.cure and f" What to do: {found.cause.cure}."
    print_paragraph(f"{run} is {found.cause.name}: {share:.0%} {found.cause.finding}.{advice}", style="bold")
    _shares(found)
    _tables(found)
    say("\ntry first" * bool(commands))
    for (why, _), command in zip(found.parts, commands, strict=True):
        say(f"  {why}\n      {command}")


def _shares(found: Diagnosis) -> None:
    say("")
    for title, parts in (("tokens", found.tokens), ("seconds", found.seconds)):
        shown = [f"{name} {share:.0%}" for name, share in parts.items() if share >= 0.005]
        print_paragraph(", ".join(shown), indent=" " * 10, start=f"{title:<10}")
    if found.most_lag:
        say(f"lag       {found.lag:.2g} updates, at most {found.most_lag:.0f}")
    _print(
        "whole run and last quarter",
        ("share", "run", "last"),
        [(name, f"{share:.0%}", f"{found.late[name]:.0%}") for name, share in found.shares.items()],
    )


def _tables(found: Diagnosis) -> None:
    if not found.num_groups:
        print_paragraph("The run recorded no groups (record.num_groups), so nothing is told by difficulty or length.")
        return
    for title, head, parts in (
        (
            f"by difficulty, in {counted(found.num_groups, 'recorded group')}",
            ("correct", "groups"),
            found.by_difficulty,
        ),
        ("by length, in quarters", ("tokens", "rollouts"), found.by_length),
        ("by turns of the rollout", ("turns", "rollouts"), found.by_turns),
    ):
        if not parts:
            continue
        _print(
            title,
            (*head, "generated", "taught"),
            [
                (part.name, f"{part.count:,}", f"{part.generated:,}", f"{part.trained / max(part.generated, 1):.0%}")
                for part in parts
            ],
        )
    _print(
        "the recorded groups with other parts (simulated), of the tokens generated",
        ("", "generated", "trained"),
        [(" ".join(saving.flags), f"{saving.generated:.0%}", f"{saving.trained:.0%}") for saving in found.savings],
    )


def _print(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    say(f"\n{title}")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for place, name in enumerate(head):
        table.add_column(name, justify="left" if place == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    output.print(table, highlight=False, markup=False)
