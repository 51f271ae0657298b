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

Every option of `pods train` and `pods compare`. `pods config` shows them in a terminal, `pods config --of pretrain`
those of `pods pretrain`, and `pods config --resolved pods > mine.toml` writes a whole config to start from. The page is
made from `src/podsrl/config/schema.py` by `python docs/options.py > docs/options.md`.

## How to set them

In a TOML file, or as a flag behind any command that takes a config. A flag overrides the file, and the file the
default. The same flag twice, or a name that does not exist, is an error.

| written | means |
|---|---|
| `--select.num_kept=8` or `--select.num_kept 8` | the value 8 |
| `--model.gradient_checkpointing` | true; `=false`, or `false` after a space, turns it off |
| `--task.rewards.correct=1` | one entry of a table |
| `--optim.betas='[0.9, 0.95]'` | TOML notation; anything else is text, which needs no quotes |
| `--task.system_prompt='--brief'` | a text that begins with two dashes needs the `=` |

A file may begin with `extends = "mixed"`, the name of a recipe or of a file beside it; it then holds only what it
changes there. What `[about]` says of a recipe decides nothing.
"""
_ELSEWHERE = """\
## Coming from TRL, verl, OpenRLHF or the paper

What others call each option. `pods config NAME`, as in `pods config per_device_train_batch_size`, says how theirs
differs, or why there is none here. A `*` stands for all names of that form; equal names are left out.
"""
_SHORTER = (
    (r", at most (?:[\d,]{7,}|1e\+\d+)|(?<=at least 0), below 2\^\d+", ""),  # bounds that no one comes near
    (r"^a (?:whole )?number, at least (\S+), at most (\S+)$", r"\1 to \2"),
    (r"^a (?:whole )?number, at least (\S+)$", r"\1 or more"),
    (r"^a (?:whole )?number, above 0$", "more than 0"),
)
"""What an option takes, beside its default."""
_PAGE = re.compile(r"docs/([\w-]+)\.md")
_TITLES = {"train": "Training", "compare": "Comparisons"}


def options_page() -> str:
    """The whole page, as Markdown."""
    return "\n".join([_HEAD, *_schemas(), _elsewhere()])


def _schemas() -> Iterator[str]:
    for command, title in _TITLES.items():
        yield f"## {title} (`pods {command}`)\n"
        for chapter in chapters_of(SCHEMAS[command]):
            if chapter.name == "about":  # what a recipe says of itself
                continue
            yield from (_PAGE.sub(r"[\1](\1.md)", line) for line in _chapter(chapter))


def _chapter(chapter: Chapter) -> Iterator[str]:
    if chapter.name:
        yield f"### `[{chapter.name}]`\n\n{chapter.meaning}\n"
    else:
        yield f"{chapter.meaning}\n"
    first: dict[str, str] = {}
    for option in chapter.options:
        same = first.setdefault(option.table, option.key)
        yield _row(option, same)
    yield ""


def _row(option: OptionEntry, same: str) -> str:
    """A line; `same` is the first option of the section with the same known names."""
    is_set = not option.default.startswith(("not set", "none:"))
    takes = "" if option.takes in ("text", "true or false") else option.takes
    for pattern, shorter in _SHORTER:
        takes = re.sub(pattern, shorter, takes)
    known = ", ".join(f"`{name}`" for name in option.known) if same == option.key else f"those of `{same}`"
    names = f" Known: {known}." if option.table else ""
    value = f" = `{option.default}`" if is_set else ""
    notes = "; ".join(filter(None, ["" if is_set else option.default, takes]))
    return f"- **`{option.key}`**{value}{notes and f' ({notes})'}: {option.meaning}{names}"


def _elsewhere() -> str:
    """A line per option here."""
    found: dict[str, dict[str, list[str]]] = {}
    for other in other_names():
        found.setdefault(other.ours, {}).setdefault(other.origin, []).append(f"`{other.theirs}`")
    lines = [f"- `{ours}`: {_by_origin(own)}" for ours, own in found.items() if ours]
    return "\n".join([_ELSEWHERE, *lines, ""])


def _by_origin(names: dict[str, list[str]]) -> str:
    return "; ".join(f"{origin} {', '.join(theirs)}" for origin, theirs in names.items())


if __name__ == "__main__":
    print(options_page(), end="")
