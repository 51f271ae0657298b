"""Print the page docs/options.md, from the schema and the tables that it names.

Run: python docs/options.py > docs/options.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice

from podsrl.config.options import SCHEMAS, Chapter, OptionEntry, chapters_of
from podsrl.config.other_names import other_names

_HEAD = """\
# Options

Every option of `pods train` and `pods compare`, with its default (not set without a `=`), its range and, in italics,
what TRL, verl, OpenRLHF and the paper call it. A number without a range is at least 0, or 1 where 0 would make no
sense.

`pods config` shows them in a terminal, `pods config --of pretrain` those of `pods pretrain`, and `pods config
--resolved pods > mine.toml` writes a whole config to start from.

## How to set them

In a TOML file, or as a flag, which overrides the file, of any command that takes a config:

- `--select.num_kept=8` or `--select.num_kept 8`
- `--model.gradient_checkpointing` for true, `--model.gradient_checkpointing=false`
- `--task.rewards.correct=1`: one entry of a table
- `--optim.betas='[0.9, 0.95]'`: TOML notation; anything else is text, without quotes
- `--task.system_prompt='--brief'`: a text that begins with two dashes needs the `=`

A file may begin with `extends = "mixed"`, the name of a recipe or of a file beside it, and then holds only its changes.
"""
_ELSEWHERE = """\
## Coming from TRL, verl, OpenRLHF or the paper

The italics have the main names that are not nearly equal; a `*` stands for all names of that form. `pods config NAME`,
as in `pods config per_device_train_batch_size`, knows all names, and says how theirs differs, or why there is none
here. Three flags have other names, too:
"""
_ORIGINS = {"paper": 2, "TRL": 2, "verl": 1, "OpenRLHF": 1}
"""Whose names are listed, and how many for an option."""
_LONG = 8
"""More names of a table are not listed here, but on the page that the option or its section links to."""
_SHORTER = (
    (r", at most (?:[\d,]{5,}|1e\+\d+)|(?<=at least 0), below 2\^\d+", ""),  # bounds that no one comes near
    (r"^a whole number, at least 2 or a number, above 0, below 1$", "2 or more, or a share"),
    (r"^a whole number, at least 1, at most 3 or a list of whole numbers$", "1 to 3, or a list"),
    (r"^a (?:whole )?number, at least (\S+), at most (\S+)$", r"\1 to \2"),
    (r"^a (?:whole )?number, at least (\S+)$", r"\1 or more"),
    (r"^a (?:whole )?number, above 0$", "above 0"),
    (r"\ba number, ", ""),
    (r"^a list of 2: ", ""),
    (r"^a (?:list of texts, |number of )", ""),
)
"""What an option takes, beside its default."""
_PLAIN = {"text", "true or false", "0 or more", "1 or more", "a table", "a list of texts", "a list of numbers"} | {
    f"a table of names and {values}" for values in ("numbers", "tables")
}
"""What is not said beside a default."""
_PAGE = re.compile(r"docs/([\w-]+)\.md")
_TITLES = {"train": "Training", "compare": "Comparisons"}


def options_page() -> str:
    """The whole page, as Markdown."""
    flags = dict.fromkeys(other.ours for other in other_names() if other.ours.startswith("--"))
    return "\n".join([_HEAD, *_schemas(), _ELSEWHERE, *(f"- `{flag}`: {_elsewhere(flag)}" for flag in flags), ""])


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
    default = "" if is_set else option.default.removeprefix("not set").removeprefix("none: it ")
    value = f"`={option.default.partition(', or ')[0]}`" if is_set else ""
    notes = "; ".join(filter(None, [default, _takes(option)]))
    others = _elsewhere(option.key)
    return (
        f"- **`{option.key}`**{value}{notes and f' ({notes})'}: {option.meaning}{_known(option, same)}"
        f"{others and f' *{others}*'}"
    )


def _takes(option: OptionEntry) -> str:
    """What an option takes, where neither its default nor its meaning says so."""
    choices = {*re.findall(r'"\w+"', option.takes)} - {option.default}
    if choices and all(choice in option.meaning for choice in choices):
        return ""
    takes = option.takes
    for pattern, shorter in _SHORTER:
        takes = re.sub(pattern, shorter, takes)
    return "" if takes in _PLAIN else takes


def _known(option: OptionEntry, same: str) -> str:
    if len(option.known) > _LONG or same != option.key:
        return ""
    names = ", ".join(f"`{name}`" for name in option.known if f'"{name}"' not in option.meaning)
    return names and f" Known: {names}."


def _elsewhere(ours: str) -> str:
    """What the projects call an option or a flag."""
    found: dict[str, list[str]] = {origin: [] for origin in _ORIGINS}
    for other in other_names():
        if other.ours == ours and other.origin in found and not _is_equal(ours, other.theirs):
            found[other.origin].append(other.theirs)
    listed = (islice(_once(names), _ORIGINS[origin]) for origin, names in found.items())
    return ", ".join(dict.fromkeys(chain.from_iterable(listed)))


def _once(names: list[str]) -> Iterator[str]:
    """Names as code, without those that end another, as "train_batch_size" ends "data.train_batch_size"."""
    plain = {name: name.replace(".", "_") for name in names}
    for name in names:
        if not any(other != name and plain[other].endswith(plain[name]) for other in names[: names.index(name)]):
            yield f"`{name}`"


def _is_equal(ours: str, theirs: str) -> bool:
    """Whether the last part of a name is that of ours, or all of ours, as "lora_alpha" is for "lora.alpha"."""
    return theirs.rpartition(".")[2] in (ours.rpartition(".")[2], ours.replace(".", "_"))


if __name__ == "__main__":
    print(options_page(), end="")
