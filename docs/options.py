"""Print the page docs/options.md, from the schema and the tables that it names.

Run: python docs/options.py > docs/options.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from podsrl.config.options import SCHEMAS, Chapter, OptionEntry, chapters_of
from podsrl.config.other_names import other_names

_HEAD = """\
# Options

Every option of `pods train` and `pods compare`, made from the schema (`src/podsrl/config/schema.py`) by
`python docs/options.py > docs/options.md`. `pods config` shows the same in a terminal, `pods config --of pretrain` the
options of `pods pretrain`, and `pods config --resolved pods > mine.toml` writes a whole config to start from.

## How to set them

In a TOML file, or as a flag behind any command that takes a config, in any order; a flag goes before the file, the file
before the default. The same flag twice, and a name that nothing has, are errors.

| written | means |
|---|---|
| `--select.num_kept=8` or `--select.num_kept 8` | the value 8; numbers below 0 may stand after a space as well |
| `--model.gradient_checkpointing` | true; `=false`, or `false` after a space, turns it off |
| `--task.rewards.correct=1` | one entry of a table |
| `--optim.betas='[0.9, 0.95]'` | TOML notation; what is no TOML value is text, so that text needs no quotes |
| `--task.system_prompt='--brief'` | a text that begins with two dashes needs the `=` |

A file may begin with `extends = "mixed"`, the name of a recipe or of a file beside it: it then holds only what it
changes in that one, which may extend another itself.
"""
_ELSEWHERE = """\
## Coming from TRL, verl, OpenRLHF or the paper

What others call each option. How theirs differs, or why there is none here, says `pods config NAME`, and so does the
error that ends a command with such a name: `pods config per_device_train_batch_size`. A `*` stands for all other names
of that form. Options with the same name on both sides are left out.
"""
_SHORTER = (
    (r", at most (?:[\d,]{7,}|1e\+\d+)|(?<=at least 0), below 2\^\d+", ""),  # bounds that no one comes near
    (r"^a (?:whole )?number, at least (\S+), at most (\S+)$", r"\1 to \2"),
    (r"^a (?:whole )?number, at least (\S+)$", r"\1 or more"),
    (r"^a (?:whole )?number, above 0$", "more than 0"),
)
"""What an option takes, beside its default."""
_TITLES = {"train": "Training", "compare": "Comparisons"}


def options_page() -> str:
    """The whole page, as Markdown."""
    return "\n".join([_HEAD, *_schemas(), _elsewhere()])


def _schemas() -> Iterator[str]:
    for command, title in _TITLES.items():
        yield f"## {title} (`pods {command}`)\n"
        for chapter in chapters_of(SCHEMAS[command]):
            yield from _chapter(chapter)


def _chapter(chapter: Chapter) -> Iterator[str]:
    if chapter.name:
        yield f"### `[{chapter.name}]`\n\n{chapter.meaning}\n"
    else:
        yield f"{chapter.meaning}\n"
    for option in chapter.options:
        yield _row(option)
    yield ""


def _row(option: OptionEntry) -> str:
    default = f" = `{option.default}`"
    if option.default.startswith(("not set", "none:")):
        default = f" ({option.default})"
    takes = "" if option.takes in ("text", "true or false") else option.takes
    for pattern, shorter in _SHORTER:
        takes = re.sub(pattern, shorter, takes)
    names = f" Known: {', '.join(f'`{name}`' for name in option.known)}." if option.table else ""
    return f"- **`{option.key}`**{default}: {option.meaning}{takes and f' Takes {takes}.'}{names}"


def _elsewhere() -> str:
    """A line per option here, and one of the names that have none."""
    found: dict[str, dict[str, list[str]]] = {}
    for other in other_names():
        found.setdefault(other.ours, {}).setdefault(other.origin, []).append(f"`{other.theirs}`")
    none = found.pop("")
    lines = [f"- `{ours}`: {_by_origin(own)}" for ours, own in found.items()]
    return "\n".join([_ELSEWHERE, *lines, f"\nNo option here stands for {_by_origin(none)}.", ""])


def _by_origin(names: dict[str, list[str]]) -> str:
    return "; ".join(f"{origin} {', '.join(theirs)}" for origin, theirs in names.items())


if __name__ == "__main__":
    print(options_page(), end="")
