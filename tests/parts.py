"""Runs a part of CI where something that it reaches has changed since it passed on this machine, else leaves it out.

    python3 tests/parts.py device -- make device
    ALL=1 python3 tests/parts.py device -- make device      in any case
    python3 tests/parts.py device                           only prints what it reaches

A part reaches the files that its entry in `PARTS` names; whatever a reached file imports, or names in a text as
"podsrl.module"; the conftest.py of its folder and of those above; and the data that lie beside it. Imports are found by
what the lines look like, so those in texts and comments count too: rather too many than too few. When a part has
passed, the digests of what it reaches are kept in ~/.cache/podsrl/ci. This is no test, and runs before there is any
environment: with the standard library alone.
"""

from __future__ import annotations

import ast
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path

PARTS = {
    "device": (
        "tests/device/*",
        "tests/select/*.py",
        "tests/**/test_*kernels.py",
        "tests/**/test_graph.py",
        "tests/**/test_one_pass.py",
    ),
    "vllm": ("tests/with_vllm/*",),
    "peers": ("tests/integrations/*", "tests/examples/test_peers_pages.py", "examples/*.py", "docs/from-*.md"),
    "site": ("*.md", "LICENSE", "mkdocs.yml", "docs/**/*", "examples/*", "src/podsrl/**/*"),
    "wheel": ("README.md", "LICENSE", "src/podsrl/**/*"),
}
"""Name -> what it starts from."""
ALWAYS = ("Makefile", "pyproject.toml", "constraints.txt", ".ci/*", "tests/parts.py")
OWN_ENVIRONMENT = ("vllm", "peers")
"""These have an environment of their own, such as .venv-vllm or what VLLM_VENV names, which CI does not make."""

FROM = re.compile(r"\bfrom\s+([\w.]+)\s+import\s+(\([^)]*\)|.*)")
IMPORT = re.compile(r"\bimport\s+(.*)")
DOTTED = re.compile(r"\b(?:podsrl|benchmarks)(?:\.\w+)+")
SCRIPT = re.compile(r"\b(\w+)\.py[\"']")
WORD = re.compile(r"\w+")
ARGUMENTS = re.compile(r"(?:\bdef \w+|usefixtures|getfixturevalue)\((.*?)\)(?=\s*->.*:$|\s*:$|\s)", re.S | re.M)

State = dict[str, str]
"""File or circumstance -> its digest or value."""


# --- what a part reaches ---


def reached(globs: Sequence[str]) -> set[Path]:
    """All files of a part; of a conftest.py only those fixtures count that a reached test or all tests ask for."""
    starts = files(globs)
    modules, asked, known = modules_by_name(), frozenset[str](), None
    while asked != known:
        texts = closure(starts, modules, asked)
        of_tests = "".join(text for path, text in texts.items() if path.parts[0] == "tests")
        known, asked = asked, frozenset(word for found in ARGUMENTS.findall(of_tests) for word in WORD.findall(found))
    beside = (path for folder in {path.parent for path in texts} for path in data(folder))
    return {*files(ALWAYS), *starts, *texts, *beside}


def files(globs: Iterable[str]) -> set[Path]:
    found = (path for pattern in globs for path in Path().glob(pattern))
    return {path for path in found if path.is_file() and path.suffix != ".pyc"}


def modules_by_name() -> dict[str, list[Path]]:
    """Dotted name -> its file, or a package's __init__ and __main__; a file of tests/ has the name without folders."""
    found = defaultdict(list)
    for home, package in ((Path("src"), "podsrl"), (Path(), "benchmarks")):
        for path in (home / package).rglob("*.py"):
            parts = path.relative_to(home).with_suffix("").parts
            found[".".join(part for part in parts if part not in ("__init__", "__main__"))].append(path)
    for path in Path("tests").rglob("*.py"):
        found[path.stem].append(path)
    return {name: paths for name, paths in found.items() if name != "conftest"}


def closure(starts: Iterable[Path], modules: Mapping[str, Sequence[Path]], asked: frozenset[str]) -> dict[Path, str]:
    """The Python files that are reached from these, with these, and their texts."""
    texts: dict[Path, str] = {}
    waiting = [path for path in starts if path.suffix == ".py"]
    while waiting:
        path = waiting.pop()
        if path in texts:
            continue
        text = path.read_text()
        texts[path] = without_unused_fixtures(text, asked) if path.name == "conftest.py" else text
        # of the package's own commands those that a message shows ("-m podsrl.cli train") start nothing
        names = named(re.sub(r"-m podsrl\.\w+", "", texts[path]) if path.parts[0] == "src" else texts[path])
        if path.parts[0] == "tests":
            waiting += (folder / "conftest.py" for folder in path.parents if (folder / "conftest.py").is_file())
        if path.parts[0] == "src":  # whose prose may hold the name of a test's file
            names = {name for name in names if name.startswith(("podsrl", "benchmarks"))}
        waiting += (module for name in names for module in modules.get(name, ()))
    return texts


@cache
def named(text: str) -> set[str]:
    """Everything that may be the name of a module, and of what it stands in: "from a import b" gives "a" and "a.b"."""
    names = {*DOTTED.findall(text), *SCRIPT.findall(text)}
    names.update(name for found in IMPORT.findall(text) for name in re.findall(r"[\w.]+", found))
    names.update(f"{module}.{name}" for module, found in FROM.findall(text) for name in WORD.findall(found))
    return {name[:end] for name in names for end in (*(dot.start() for dot in re.finditer(r"\.", name)), len(name))}


@cache
def without_unused_fixtures(text: str, asked: frozenset[str]) -> str:
    """A conftest.py without the fixtures whose names are not among these."""
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name not in asked:
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            if "fixture" in decorators and not re.search("autouse|name=", decorators):
                first, last = node.decorator_list[0].lineno - 1, node.end_lineno
                lines[first:last] = ["\n"] * len(lines[first:last])
    return "".join(lines)


def data(folder: Path) -> Iterator[Path]:
    """What lies in the folder and is no source, with folders in it that hold no source at all."""
    for path in folder.iterdir():
        if path.is_file() and path.suffix != ".py":
            yield path
        elif path.is_dir() and path.name != "__pycache__" and not any(path.rglob("*.py")):
            yield from data(path)


# --- whether it runs ---


def state_of(name: str, command: Sequence[str]) -> State:
    """All that the result of a part depends on."""
    packages = sorted(path.name for path in environment_of(name).glob("lib/python*/site-packages/*-info"))
    circumstances = {
        "the command": " ".join(command),
        "the version of Python": platform.python_version(),
        "the machine": platform.machine(),
        "its GPUs": " ".join(sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))),
        "its compiler": shutil.which("g++") or "",
        "the installed packages": digest(" ".join(packages).encode()),
    }
    return circumstances | {str(path): digest(path.read_bytes()) for path in sorted(reached(PARTS[name]))}


def environment_of(name: str) -> Path:
    if name not in OWN_ENVIRONMENT:
        return Path(".venv")
    return Path(os.environ.get(f"{name.upper()}_VENV") or f".venv-{name}")


def digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def last_passed(record: Path) -> tuple[State, str]:
    """The state in which it last passed, and the date; nothing where that is not known."""
    try:
        found = json.loads(record.read_text())
        return dict(found["state"]), str(found["date"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}, ""


def keep(record: Path, state: State) -> None:
    record.parent.mkdir(parents=True, exist_ok=True)
    unfinished = record.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps({"date": time.strftime("%Y-%m-%d"), "state": state}))
    unfinished.replace(record)


def why_it_runs(today: State, passed: State) -> str:
    """Empty: it does not."""
    changed = sorted(each for each in {*today, *passed} if today.get(each) != passed.get(each))
    if not passed:
        return "it has not passed on this machine"
    if changed:
        return f"{len(changed)} of what it reaches changed: {', '.join(changed[:3])}{', …' * (len(changed) > 3)}"
    return "ALL is set" * bool(os.environ.get("ALL"))


def leave_out(name: str, reason: str) -> int:
    print(f"== {name} left out: {reason}", flush=True)
    note(name, f"left out: {reason}")
    return 0


def note(name: str, result: str) -> None:
    """Add a row to the table that CI prints at its end."""
    if table := os.environ.get("CI_TABLE"):
        with Path(table).open("a") as rows:
            rows.write(f"{name}\t{result}\n")


def main(name: str, command: Sequence[str]) -> int:
    """Exit code: the command's, or 0 where it is left out."""
    environment = environment_of(name)
    if name in OWN_ENVIRONMENT and not (environment / "bin" / "pytest").exists():
        return leave_out(name, f"there is no {environment} (make test-{name} makes it)")
    record = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "podsrl" / "ci" / f"{name}.json"
    today, (passed, date) = state_of(name, command), last_passed(record)
    if not (reason := why_it_runs(today, passed)):
        num_files = sum(Path(each).is_file() for each in today)
        return leave_out(name, f"none of the {num_files} files that it reaches has changed since it passed on {date}")
    print(f"== {name} runs: {reason}", flush=True)
    start = time.monotonic()
    code = subprocess.call(command)
    note(name, f"{time.monotonic() - start:.0f} s" + f", failed with {code}" * (code != 0))
    if code == 0:
        keep(record, today)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[1])
    match sys.argv[1:]:
        case [part, "--", *words] if part in PARTS and words:
            sys.exit(main(part, words))
        case [part] if part in PARTS:
            print("\n".join(map(str, sorted(reached(PARTS[part])))))
        case _:
            sys.exit(f"usage: parts.py {{{','.join(PARTS)}}} [-- COMMAND ...]")
