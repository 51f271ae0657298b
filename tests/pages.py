"""The pages (README and docs/*.md), their fenced blocks, and the commands of shell blocks.

A block is one of

    python              runs as it stands; blocks of a page share one namespace
    # name.py, # name.toml in its first line: it is that file, in the folder where the page's blocks run
    toml                else a part of a config, which is read
    (nothing), sh, bash, console
                        shell; if lines begin with "$ ", only those are commands
    text, json          shows something

Of a shell block every line runs except `pip install`; `export NAME=VALUE` holds for the rest of the page.

A comment in the line before a block that does not run here says why, or which file of the tests runs it, or which
package it needs. A block of another language needs one.

    <!-- not run: needs a GPU -->
    <!-- run by tests/examples/test_generators_page.py -->
    <!-- needs verifiers -->

A page whose blocks all have a test elsewhere says so once, anywhere: <!-- all run by tests/... -->
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = ("", "sh", "bash", "console")
SHOWN = ("text", "json")


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    mark: str
    """The comment before it."""
    line: int
    """Of its first line in the page, from 1."""

    @property
    def file(self) -> str | None:
        """The file that it is, if its first line names one."""
        name = re.match(rf"# ([\w-]+\.{'py' if self.kind == 'python' else 'toml'})\b", self.text)
        return name[1] if name and self.kind in ("python", "toml") else None

    @property
    def commands(self) -> list[str]:
        """Of a shell block; of a file, those that its first line names."""
        if self.kind in SHELL:
            return list(shell_commands(self.text))
        return re.findall(r"pods .*", self.text.splitlines()[0]) if self.file else []

    @property
    def is_marked(self) -> bool:
        return self.mark.startswith(("not run: ", "run by "))

    @property
    def needs(self) -> str | None:
        """The package without which it cannot run."""
        return self.mark.removeprefix("needs ") if self.mark.startswith("needs ") else None


def blocks(page: str) -> list[Block]:
    of_all = re.search(r"^<!-- all (run by \S+) -->$", page, re.MULTILINE)
    default = of_all[1] if of_all else ""
    return [
        Block(kind=found[2], text=found[3], mark=found[1] or default, line=page[: found.start(3)].count("\n") + 1)
        for found in BLOCK.finditer(page)
    ]


def shell_commands(text: str) -> Iterator[str]:
    """Commands of a shell block as a shell reads them: over several lines inside of quotes or after a backslash."""
    lines = text.splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    command = ""
    for line in lines:
        command = f"{command}\n{line}" if command else line
        if not is_open(command):
            if shlex.split(command, comments=True):
                yield command.strip()
            command = ""
    assert not command, f"a quotation without an end: {command}"


def is_open(command: str) -> bool:
    if command.endswith("\\"):
        return True
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return True
    return False
