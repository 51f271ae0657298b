"""Write the measured figures of README and docs from the result files.

    python -m benchmarks pages            writes each part between the marks of every page
    python -m benchmarks pages --check    writes nothing; names the parts that differ from the files (exit code 1)

A part stands between `<!-- figures: NAME -->` and `<!-- end -->`, on lines of its own or within a line. NAME is a
function of `benchmarks/figures/` that makes Markdown from the files below `benchmarks/results/`; words after it are its
arguments. A mark does not begin a line of text: Markdown takes such a line for HTML.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.files import ROOT, Files, read_all
from podsrl.errors import PodsError, UsageError, nearest

MARK = re.compile(r"<!-- figures: (?P<name>[^>]*?) -->(?P<text>.*?)<!-- end -->", re.DOTALL)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks pages", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, name what differs")
    options = parser.parse_args(arguments)
    old = [f"{page.relative_to(ROOT)}: {name}" for page in pages() for name in stale(page.read_text(encoding="utf-8"))]
    if options.check and old:
        raise PodsError(f"{len(old)} parts differ from the result files: {'; '.join(old)}. `pages` writes them")
    if not options.check:
        write()
    print("\n".join([*old, f"{len(old)} parts {'differ' if options.check else 'written'}"]))


def pages() -> list[Path]:
    """README and the pages of docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def write() -> None:
    """Make each part of each page anew."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := filled(text)) != text:
            page.write_text(new, encoding="utf-8")


def filled(text: str, files: Files = read_all) -> str:
    """A page with each part made anew.

    Raises:
        UsageError: a part has no function, or its arguments are not the function's.
    """
    return MARK.sub(lambda found: _between(found, made(found["name"], files)), text)


def stale(text: str, files: Files = read_all) -> Iterator[str]:
    """Names of the parts of a page that differ from what the files give."""
    for found in MARK.finditer(text):
        if found[0] != _between(found, made(found["name"], files)):
            yield found["name"]


def made(call: str, files: Files = read_all) -> str:
    """What a part's function gives.

    Args:
        call: the function's name, then its arguments, between spaces.
        files: the results.
    """
    from benchmarks.figures import PARTS

    name, *arguments = call.split()
    if name not in PARTS:
        raise UsageError(f"figures {name!r}: no such part of a page.{nearest(name, PARTS)}")
    return PARTS[name](files, *arguments).strip("\n")


def _between(found: re.Match[str], text: str) -> str:
    """A mark with a text; a part on lines of its own stays on them."""
    inner = f"\n\n{text}\n\n" if found["text"].startswith("\n") else text
    return f"<!-- figures: {found['name']} -->{inner}<!-- end -->"
