"""`pods check-template`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from podsrl.cli.console import AsJson, output, print_paragraph, say
from podsrl.cli.progress import waiting

if TYPE_CHECKING:
    from podsrl.tools.check_template import History

_SIGNS = {"ok": "ok   ", "look": "look ", "wrong": "WRONG"}


def check_template(
    model: Annotated[
        str, typer.Argument(help="Model folder, hub name, package:NAME or builtin:NAME; no weights needed.")
    ],
    json: AsJson = False,
) -> None:
    """Show what a model's chat template does: where it writes history otherwise than it was drawn, and what stops it.

    [bold]Examples[/]

      pods check-template Qwen/Qwen3-0.6B
      pods check-template models/mine --json

    Nothing is judged by the exit code, which is 0 for every template that renders one question. A property is "ok",
    "look" (a trainer has to know it) or "WRONG" (training goes wrong unless something is changed).
    """
    with waiting("reading the tokenizer"):
        from podsrl.tools.check_template import check_template as look_at

        found = look_at(model)
    if json:
        output.print_json(data=asdict(found))
        return
    num_kept = sum(history.verdict == "ok" for history in found.histories)
    rest = "" if num_kept == len(found.histories) else ": go on from tokens, not from rendered text"
    print_paragraph(
        f"{model}: of {len(found.histories)} conversations, {num_kept} are rendered as they were drawn{rest}.",
        style="bold",
    )
    say("")
    for each in found.properties:
        print_paragraph(f"{each.name}: {each.text}", indent=" " * 6, start=f"{_SIGNS[each.verdict]} ")
    say("\nhistory: the next prompt, beside the tokens that were read and drawn before")
    for history in found.histories:
        _print(history)


def _print(history: History) -> None:
    start = f"{_SIGNS[history.verdict]} {history.name}"
    if history.refusal:
        print_paragraph(f"{start}: refused, {history.refusal}", indent=" " * 6)
    elif (at := history.at) is None:
        say(start)
    else:
        same = ", the same text in other tokens" if at.is_same_text else ""
        say(f"{start}: leaves it at token {at.place}{same}")
        before = _joined(at.before)
        say(f"      drawn     {before} | {_joined(at.drawn)}")
        say(f"      rendered  {before} | {_joined(at.rendered)}")


def _joined(tokens: Sequence[tuple[int, str]]) -> str:
    return " ".join(f"{text!r} ({id})" for id, text in tokens) or "(the end)"
