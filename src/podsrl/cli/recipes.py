"""`pods recipes`."""

from __future__ import annotations

from rich.table import Table

from podsrl.cli.console import AsJson, output, say
from podsrl.config.files import read_tree, recipe_idea, recipe_names

_FOLDERS = {"paper": "settings of the PODS paper: paper/a … paper/e", "systems": "published systems: pods systems"}
"""Folders of recipes -> what they hold; they are a row each."""


def recipes(json: AsJson = False) -> None:
    """List the recipes: configs that come with the package, with their idea and what to type.

    [bold]Examples[/]

      pods recipes                          what there is
      pods train pods                       train one
      pods train pods --seed 3 --dry-run    with other values, without training
      pods config --resolved pods           all that it sets

    A config of your own may begin with one: extends = "pods".
    """
    found = [
        {
            "name": name,
            "idea": recipe_idea(name),
            "command": f"pods {'compare' if 'arms' in read_tree(name) else 'train'} {name}",
        }
        for name in recipe_names()
        if "/" not in name
    ]
    if json:
        output.print_json(data=found)
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("type", no_wrap=True, style="cyan")
    table.add_column("idea", overflow="fold")
    for each in found:
        table.add_row(each["command"], each["idea"])
    output.print(table, highlight=False, markup=False)
    say("")
    for folder, what in _FOLDERS.items():
        say(f"{folder}/…: {what}")
