"""Print the page docs/options.md, from the schema and the tables that it names.

Run: python docs/options.py > docs/options.md
"""

from __future__ import annotations

from collections.abc import Iterator

from podsrl.config.options import SCHEMAS, Chapter, OptionEntry, chapters_of
from podsrl.config.other_names import OTHER_NAMES

_HEAD = """\
# Options

Every option of every config, with what it takes, its default and its meaning. This page is made from the schema
(`src/podsrl/config/schema.py`) by `python docs/options.py > docs/options.md`; the same comes in a terminal from
`pods config`, and `pods config --resolved pods > mine.toml` writes a whole config with comments to start from.

## How to set them

In a TOML file, or as a flag behind any command that takes a config; a flag goes before the file, the file before the
default.

| written | means |
|---|---|
| `--select.num_kept=8` or `--select.num_kept 8` | the value 8; numbers below 0 may stand after a space as well |
| `--model.gradient_checkpointing` | true; `=false`, or `false` after a space, turns it off |
| `--task.rewards.correct=1` | one entry of a table |
| `--optim.betas='[0.9, 0.95]'` | TOML notation; what is no TOML value is text, so that text needs no quotes |
| `--task.system_prompt='--brief'` | a text that begins with two dashes needs the `=` |

A file may begin with `extends = "mixed"`, the name of a recipe or of a file beside it: it then holds only what it
changes in that one, which may extend another itself. `pods config --resolved my.toml` prints the whole config, and a
run's folder holds it.

Flags, a command's own options (`--out`, `-o`) and the config's name may stand in any order. The same flag twice, and a
name that nothing has, are errors.
"""
_ELSEWHERE = """\
## Coming from TRL, verl, OpenRLHF or the paper

What others call an option; their examples set nothing that this table does not answer. An unknown key that stands here
is answered with its row. A `*` stands for all other names of that form. Options with the same name on both sides
(`temperature`, `top_p`, `max_grad_norm`, `weight_decay`, …) are left out.

| there | here | difference, or why there is none |
|---|---|---|
"""
_TITLES = {"train": "Training", "compare": "Comparisons", "pretrain": "Pretraining"}


def options_page() -> str:
    """The whole page, as Markdown."""
    return "\n".join([_HEAD, *_schemas(), _elsewhere()])


def _schemas() -> Iterator[str]:
    for command, model in SCHEMAS.items():
        yield f"## {_TITLES[command]} (`pods {command}`)\n"
        for chapter in chapters_of(model):
            yield from _chapter(chapter)


def _chapter(chapter: Chapter) -> Iterator[str]:
    if chapter.name:
        note = " Not there by default; setting one of its options makes it." if chapter.is_absent else ""
        yield f"### `[{chapter.name}]`\n\n{chapter.meaning}{note}\n"
    else:
        yield f"{chapter.meaning}\n"
    yield "| option | default | takes | meaning |\n|---|---|---|---|"
    for option in chapter.options:
        yield _row(option)
    yield ""


def _row(option: OptionEntry) -> str:
    meaning = option.meaning
    if names := option.known_names:
        meaning += f" Known names: {', '.join(f'`{name}`' for name in names)}."
    default = option.default if option.default.startswith(("not set", "none:")) else f"`{option.default}`"
    cells = (f"`{option.key}`", default, option.takes, meaning)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _elsewhere() -> str:
    names: dict[tuple[str, str, str], list[str]] = {}
    for other in OTHER_NAMES:
        names.setdefault((other.origin, other.ours, other.difference), []).append(f"`{other.theirs}`")
    rows = [
        f"| {origin}: {', '.join(theirs)} | {f'`{ours}`' if ours else 'none'} | {difference} |"
        for (origin, ours, difference), theirs in names.items()
    ]
    return _ELSEWHERE + "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(options_page(), end="")
