"""`pods check-reward --attack`: which questions, and what is printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from podsrl.cli.console import errors, output, say
from podsrl.cli.progress import bar
from podsrl.config.load import load_config
from podsrl.errors import UsageError, cut

if TYPE_CHECKING:
    from podsrl.tools.attack.forms import Form
    from podsrl.tools.attack.result import AttackResult, FamilyCount, Finding, RewardAttack
    from podsrl.types import Task

NUM_QUESTIONS = 14
NUM_SHOWN, NUM_FAMILIES = 2, 3
"""Examples of a family that are printed with --all; without it one of each of so many families."""
_SHOWN = 100
"""Characters of a text that are printed."""


def attack(
    file: Path | None,
    rewards: dict[str, float],
    config: str | None,
    task: str | None,
    num_questions: int | None,
    out: Path | None,
    force: bool,
    limits: dict[str, Any],
    json: bool,
    is_all: bool,
) -> None:
    """Attack and print, the verdict first; the exit code is 1 if something pays, escapes, or could not be judged."""
    from podsrl.tools.attack.attack import attack_rewards
    from podsrl.tools.attack.questions import spread
    from podsrl.tools.check_reward import find_functions
    from podsrl.tools.completions import check_out, completions_writer

    check_out(out, is_forced=force)
    find_functions(rewards, None)  # a wrong name is an error before anything is loaded
    questions, own_form = _questions(file, config, task)
    tasks = spread(questions, num_questions or NUM_QUESTIONS)
    with bar("attacking") as progress:
        result = attack_rewards(rewards, tasks, **limits, own_form=own_form, progress=progress)
    with completions_writer(out) as write:
        write(result.stored)
    decisive = result.decisive
    say(closing_sentence(decisive, out), errors if json else output)
    if json:
        output.print_json(data=result.to_json(), ensure_ascii=True)
    else:
        _print(result, is_all)
    if decisive.is_open or not decisive.num_tried:
        raise typer.Exit(1)


def _questions(file: Path | None, config: str | None, task: str | None) -> tuple[Sequence[Task], Form | None]:
    """Questions, and the form of a file's right completions."""
    from podsrl.tools.attack.forms import form_of
    from podsrl.tools.attack.questions import QUESTIONS, config_of, held_out_questions, stored_questions
    from podsrl.tools.completions import read_completions

    if file is not None and task is not None:
        raise UsageError(f"{file} and --task {task} both name questions: keep one")
    if file is not None:
        stored = read_completions(file)
        return stored_questions(stored), form_of(stored)
    if task is not None:
        return held_out_questions(config_of(task)), None
    if config is not None:
        return held_out_questions(load_config(config)), None
    return QUESTIONS, None


def closing_sentence(attack: RewardAttack, out: Path | None) -> str:
    """What to do now."""
    if not attack.num_tried:
        cause = f": {attack.unjudged_reason}" if attack.unjudged_reason else ""
        return (
            f"'{attack.name}' rewards no honest answer in any of the forms that were tried{cause}; nothing can be said "
            "about hacks: give a FILE with a completion that it rewards (label true), whose form is then tried too"
        )
    tried = f"{attack.num_tried:,} hacks on {attack.num_questions - attack.num_unjudged} questions"
    if not attack.is_open:
        return f"'{attack.name}' rewarded none of {tried}, and failed on none"
    keep = "" if out else "; --out hacks.jsonl keeps them as completions labelled wrong"
    doing = [f"rewards {len(attack.paid):,}"] if attack.paid else []
    doing += [f"fails on {len(attack.escaped):,}"] if attack.escaped else []
    cures = ["let it refuse them"] if attack.paid else []
    cures += ["return 0 where it fails now"] if attack.escaped else []
    return (
        f"'{attack.name}' {' and '.join(doing)} of {tried}, and training finds such texts: "
        f"{', '.join(cures)}, and attack again{keep}"
    )


def _print(result: AttackResult, is_all: bool) -> None:
    decisive = result.decisive
    for attack in result.rewards:
        families = [one for one in attack.families if is_all or one.num_paid or one.num_escaped]
        if families:
            output.print(_table(attack, families))
        if attack.num_unjudged:
            cause = f"; first: {attack.unjudged_reason}" if attack.unjudged_reason else ""
            count = f"{attack.num_unjudged} of {attack.num_questions} questions"
            say(f"'{attack.name}' rewards no honest answer to {count}{cause}")
    for line in (*_examples("pays", decisive.paid, is_all), *_examples("escapes", decisive.escaped, is_all)):
        say(line)
    if not is_all and decisive.num_tried:
        say("all families, and more examples of those that pay: --all")


def _table(attack: RewardAttack, families: Sequence[FamilyCount]) -> Table:
    honest = attack.honest
    title = f"{attack.name}: looks at {'the answer' if attack.nature == 'correctness' else 'the form only'}"
    if honest is not None:
        title += f"; honest and correct {honest.right:.3g}, honest and wrong {honest.wrong:.3g} ({honest.form})"
    table = Table("family", "knows the answer", *NUMBERS, title=title, title_justify="left")
    for column in table.columns[2:]:
        column.justify = "right"
    for one in families:
        style = "bold red" if one.num_paid or one.num_escaped else None
        cells = [f"{count:,}" if count else "·" for count in (one.num_tried, one.num_paid, one.num_escaped)]
        table.add_row(one.family.name, "yes" if one.family.knows_answer else "no", *cells, style=style)
    return table


NUMBERS = ("tried", "pay", "escape")
"""Columns of counts."""


def _examples(verb: str, findings: Sequence[Finding], is_all: bool) -> Iterator[str]:
    shown: dict[str, int] = {}
    for one in findings:
        family = one.hack.family
        count = shown[family.name] = shown.get(family.name, 0) + 1
        if count <= NUM_SHOWN if is_all else count == 1 and len(shown) <= NUM_FAMILIES:
            what = one.outcome if isinstance(one.outcome, str) else f"{one.outcome:.3g}"
            yield f"{verb}: {family.name}, answer {one.hack.target.answer!r}: {cut(one.hack.text, _SHOWN)!r} -> {what}"
            if count == 1:
                yield f"    must not, because {family.why}"
