"""`pods tasks`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from podsrl.cli.console import AsJson, output, print_paragraph, say
from podsrl.cli.progress import bar, waiting
from podsrl.errors import UnavailableError, UsageError, cut, nearest, printable

if TYPE_CHECKING:
    from podsrl.types import Task

Json = dict[str, Any]
_GYM = "reasoning_gym"
_OF_PATH = "what task.path names"
_SHOWN, _NUM_SHOWN = 120, 3
"""Characters of a question in a table; questions of one set."""


def tasks(
    name: Annotated[str | None, typer.Argument(help="A task set, or reasoning_gym:DATA_SET; else all.")] = None,
    json: AsJson = False,
) -> None:
    """List the task sets that a config can name, with a question of each, or show some questions of one.

    [bold]Examples[/]

      pods tasks                             all
      pods tasks steps                       some questions of one
      pods tasks reasoning_gym               the data sets of reasoning-gym
      pods tasks reasoning_gym:leg_counting  one of them, with its levels

    A task set is named in a config, as task.name = "steps". docs/tasks.md shows how to write your own.
    """
    if name is None or name == _GYM:
        rows = _sets() if name is None else _data_sets()
        return output.print_json(data=rows) if json else _list(rows, name)
    with waiting("making questions"):
        found = _data_set(name.partition(":")[2]) if name.startswith(f"{_GYM}:") else _set(name)
    return output.print_json(data=found) if json else _describe(found)


def _list(rows: list[Json], name: str | None) -> None:
    table = Table("name", "a question", "its answer", box=SIMPLE_HEAD, show_lines=True)
    table.columns[0].no_wrap, table.columns[1].overflow, table.columns[2].overflow = True, "fold", "fold"
    for row in rows:
        question = row["refused"] if row.get("refused") else cut(" ".join(row["question"].split()), _SHOWN)
        table.add_row(row["name"], Text(printable(question)), Text(printable(cut(row["answer"], 40))))
    output.print(table)
    say("some questions of one: pods tasks NAME" if name is None else f"one of them: pods tasks {_GYM}:NAME")
    if name is None:
        say(f"the data sets of reasoning-gym: pods tasks {_GYM}")


def _describe(found: Json) -> None:
    print_paragraph(f"{found['name']}: {found['about']}", style="bold")
    for option, default in found.get("options", {}).items():
        say(f"    {option} = {default}")
    for each in found["questions"]:
        output.print(f"\n{each['id']}", style="cyan", markup=False, highlight=False)
        say(printable(each["question"]))
        say(f"→ {printable(each['answer']) or 'whatever the verifier takes'}")


def _sets() -> list[Json]:
    """Each task set with a question, or what has to be there for one."""
    from podsrl.tasks import TASKS

    rows = []
    with bar("making questions") as progress:
        for place, name in enumerate(TASKS):
            progress(place, len(TASKS), name)
            try:
                [first] = _questions(name, 1)
            except UnavailableError as error:
                first = {"question": str(error).rpartition(": ")[2], "answer": ""}
            except UsageError as error:
                first = {"question": str(error), "answer": ""}
            rows.append({"name": name, "about": _about(name), "question": first["question"], "answer": first["answer"]})
    return rows


def _set(name: str) -> Json:
    from podsrl.tasks import TASKS

    if name not in TASKS:
        raise UsageError(f"pods tasks {name}: there is no such task set.{nearest(name, TASKS)}")
    return {"name": name, "about": _about(name), "questions": _questions(name, _NUM_SHOWN)}


def _about(name: str) -> str:
    """The first sentence of the module of a set's loader."""
    from podsrl.tasks import TASKS

    module = import_module(TASKS.places[name].partition(":")[0])
    return " ".join((module.__doc__ or "").partition("\n\n")[0].split())


def _questions(name: str, count: int) -> list[Json]:
    """The first questions of a set by its defaults. UsageError: they are not on this machine."""
    from podsrl.tasks import TASKS, load_tasks
    from podsrl.tasks.published import DATA_VARIABLE

    module = TASKS.places[name].partition(":")[0].rpartition(".")[2]
    if name in ("jsonl", "hub"):
        raise UsageError(f"({_OF_PATH})")
    folder = Path(os.environ.get(DATA_VARIABLE) or "/nowhere") / module
    if module in ("gsm8k", "math", "svamp") and not folder.is_dir():
        raise UsageError(f"(on the hub, or as {module}/ in the folder that {DATA_VARIABLE} names)")
    own = {"datasets": "leg_counting", "size": count} if name == _GYM else None
    loaded = load_tasks(name, num_eval=count, own=own)
    return [_shown(task) for task in loaded.eval[:count]]


def _shown(task: Task) -> Json:
    from podsrl.lib.text import prompt_text

    return {"id": task.id, "question": prompt_text(task.prompt).strip(), "answer": task.answer}


def _data_sets() -> list[Json]:
    """The data sets of reasoning-gym, each with a question, or why it is not used."""
    from podsrl.integrations import reasoning_gym_sets as gym

    gym.check_installed()
    names, rows = gym.names(), list[Json]()
    with bar("making questions") as progress:
        for place, name in enumerate(names):
            progress(place, len(names), name)
            rows.append({"name": name, "level": gym.most_level(name), **_entry(gym.Source(name=name))})
    return rows + [{"name": name, "refused": why, "answer": ""} for name, why in sorted(gym.REFUSED.items())]


def _data_set(name: str) -> Json:
    from podsrl.integrations import reasoning_gym_sets as gym

    gym.check_installed()
    gym.check_name(name)
    most = gym.most_level(name)
    levels = [None, *range(min(_NUM_SHOWN, (-1 if most is None else most) + 1))]
    scale = "no levels" if most is None else f"levels 0 .. {most}"
    return {
        "name": f"{_GYM}:{name}",
        "about": f"{scale}; [options.{_GYM}.config.{name}] has these options",
        "options": gym.options_of(name),
        "questions": [
            {
                "id": "by its defaults" if level is None else f"level {level}",
                **_entry(gym.Source(name=name, level=level)),
            }
            for level in levels
        ],
    }


def _entry(source: Any) -> Mapping[str, str]:
    """The first question of a data set; what it says where it can make none."""
    from podsrl.integrations.reasoning_gym_sets import entry_of

    try:
        entry = entry_of(source, 0, 1, 0)
    except UsageError as error:
        return {"question": f"({error})", "answer": ""}
    return {"question": entry["question"].strip(), "answer": "" if entry["answer"] is None else str(entry["answer"])}
