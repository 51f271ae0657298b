"""Changes one place of the source at a time, and shows which changes no test notices.

    python tests/mutations.py select update metrics score --sample 40 --seed 0
    python tests/mutations.py select --list                      every change, without running a test
    python tests/mutations.py metrics --at metrics.py:60         the changes of one line
    python tests/mutations.py --sample 16 --save before.json     what became of each change, and which test noticed it
    python tests/mutations.py --again before.json                after a change of the tests: is each still noticed?

Each change is made in a temporary copy of the package, on which the fast tests of the changed module's folder then run.
A change that all tests pass has survived: a test is missing, or the change means nothing. `--again` tries the changes
that were noticed: by the test that noticed them, then by all fast tests of the place, then by the slow ones. This is no
test of its own and pytest does not collect it.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "podsrl"
TESTS = ROOT / "tests"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Modules to change, and the tests that should notice, quick ones first; all are glob patterns: files may move."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


PLACES = {
    "select": Place(modules=("select/**/*.py",), tests=("select/**/test_*.py",)),
    "update": Place(
        modules=tuple(f"update/**/*{idea}*.py" for idea in ("advantage", "algorithm", "loss", "batch")),
        tests=("update/**/test_*.py",),
    ),
    "metrics": Place(
        modules=("**/metrics.py", "run/step/step_result.py", "run/step/collected.py"),
        tests=("run/test_metrics_by_number.py", "run/step/test_load_counts.py", "run/test_loop.py"),
    ),
    "group_log": Place(modules=("run/group_log.py",), tests=("run/test_group_log.py",)),
    "control": Place(modules=("control/**/*.py",), tests=("control/**/test_*.py", "systems/test_*.py")),
    "systems": Place(modules=("systems/*.py",), tests=("systems/test_*.py",)),
    "records": Place(modules=("records.py",), tests=("test_records.py",)),
    "score": Place(modules=("score/**/*.py",), tests=("score/**/test_*.py",)),
    "tasks": Place(modules=("tasks/**/*.py",), tests=("tasks/**/test_*.py",)),
    "generate": Place(modules=("generate/**/*.py",), tests=("generate/**/test_*.py",)),
    "sync": Place(modules=("sync/*.py",), tests=("sync/test_*.py",)),
    "run": Place(modules=("run/**/*.py",), tests=("run/**/test_*.py",)),
    "scale": Place(modules=("scale/**/*.py",), tests=("scale/**/test_*.py",)),
    "report": Place(modules=("report/**/*.py",), tests=("report/**/test_*.py",)),
    "config": Place(modules=("config/**/*.py",), tests=("config/**/test_*.py",)),
}
FAST, SLOW = "not slow", "slow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One change of one file."""

    path: Path
    line: int
    kind: str
    old: str
    new: str
    start: int
    """Bytes of the file before the changed part, in UTF-8."""
    end: int

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        num_same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        start = max(0, num_same - 30)  # a long text is shown from shortly before the first difference
        old, new = (f"{'…' if start else ''}{text[start : start + 80]}" for text in (old, new))
        return f"{self.path.relative_to(ROOT)}:{self.line}  {self.kind}: {old}  ->  {new}"

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]


# What each operator may become. A comparison's first change moves its edge, its second turns it round.
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
TWINS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
TYPE_NAMES = {"Literal", "Callable", "TypeVar", "cast", "Annotated"}
"""What these are given are types, or the names of types."""


def mutations_of(path: Path) -> list[Mutation]:
    """Every change of a file, in the order of its lines."""
    source = path.read_bytes()
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    found = []
    for kind, node, new in _changes(ast.parse(source)):
        start, end = span(node)
        old = source[start:end].decode()
        found.append(Mutation(path=path, line=node.lineno, kind=kind, old=old, new=new, start=start, end=end))
    return sorted(found, key=lambda m: (m.start, m.end))


Change = tuple[str, "ast.expr | ast.stmt", str]
"""Its kind, the node that it replaces, and the new text."""


def _changes(node: ast.AST) -> Iterator[Change]:
    if _is_left_out(node):
        return
    if isinstance(node, ast.expr):
        for kind, new in _of_expression(node):
            text = ast.unparse(new)
            yield (
                kind,
                node,
                text if isinstance(new, (ast.Name, ast.Constant, ast.Call, ast.Subscript)) else f"({text})",
            )
        if isinstance(node, ast.Constant):
            yield from (("constant", node, repr(value)) for value in _other_constants(node.value))
    elif isinstance(node, ast.stmt):
        yield from _of_statement(node)
    if not isinstance(node, ast.Raise):  # of a message no word is changed
        for child in _children(node):
            yield from _changes(child)


def _is_left_out(node: ast.AST) -> bool:
    """Imports, types, text with holes (an error's, mostly), and declarations that do nothing."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.JoinedStr, ast.Assert, ast.Pass)):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # a docstring, or `...`
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return True
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        is_alias = isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias"
        return is_alias or (isinstance(target, ast.Name) and target.id in ("__all__", "__slots__"))
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Name) and node.value.id in TYPE_NAMES
    return False


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "keywords") and not isinstance(node, ast.Call):
            continue
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in TYPE_NAMES:
                value = node.args[1:] if name == "args" else []
            elif node.func.id == "zip" and name == "keywords":
                continue
        yield from (child for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST))


def _of_expression(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Compare():
            for i, operator in enumerate(node.ops):
                for other in COMPARISONS[type(operator)]:
                    yield "comparison", _with(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])
        case ast.BinOp() if type(node.op) in ARITHMETIC:
            yield "arithmetic", _with(node, op=ARITHMETIC[type(node.op)]())
        case ast.UnaryOp():
            yield "sign", node.operand
        case ast.BoolOp():
            yield "boolean", _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
            yield from (
                ("operand left out", _with(node, values=_without(node.values, i))) for i in range(len(node.values))
            )
        case ast.IfExp():
            yield from (("branch", node.body), ("branch", node.orelse))
        case ast.Call():
            yield from _of_call(node)
        case ast.Subscript(slice=ast.Slice()):
            for part in ("lower", "upper", "step"):
                if getattr(node.slice, part) is not None:
                    yield "slice", _with(node, slice=_with(node.slice, **{part: None}))
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            for i, loop in enumerate(node.generators):
                for k in range(len(loop.ifs)):
                    new = deepcopy(node)
                    new.generators[i].ifs = _without(new.generators[i].ifs, k)
                    yield "filter left out", new


def _of_call(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    name = ast.unparse(node.func).rpartition(".")[2]
    if name in TYPE_NAMES or name == "zip" or name[0].isupper():
        return  # types, a safeguard (strict=), and records, which miss any field they are not given
    if isinstance(node.func, ast.Name) and name in TWINS:
        yield "function", _with(node, func=ast.Name(TWINS[name]))
    if len(node.args) > 1 and name not in ("isinstance", "getattr"):
        yield "argument left out", _with(node, args=node.args[:-1])
    for i, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            yield "argument left out", _with(node, keywords=_without(node.keywords, i))


def _of_statement(node: ast.stmt) -> Iterator[Change]:
    match node:
        case ast.Return(value=ast.expr()) if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield "return", node, "return None"
        case ast.Raise() | ast.AugAssign() | ast.Continue() | ast.Break() | ast.Expr(value=ast.Call() | ast.Yield()):
            yield "statement left out", node, "pass"
        case ast.Assign() if all(isinstance(target, (ast.Subscript, ast.Attribute)) for target in node.targets):
            yield "statement left out", node, "pass"
        case ast.If() | ast.While():
            yield "condition", node.test, "False"
            if isinstance(node, ast.If):
                yield "condition", node.test, "True"
    if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
        yield "arithmetic", node, ast.unparse(_with(node, op=ARITHMETIC[type(node.op)]()))


def _other_constants(value: object) -> list[object]:
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1]
        case float():
            return [value * 2 if value else 1.0]
        case str():
            return [value + "~"]
    return []


def _with(node: ast.AST, **fields: object) -> ast.expr:
    new = deepcopy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new  # type: ignore[return-value]


def _without(values: list, index: int) -> list:  # type: ignore[type-arg]
    return values[:index] + values[index + 1 :]


class Copy:
    """A copy of the package, on which tests of the repository run; `close` deletes it.

    Each test run is a fork of this process, which has imported what is slow to import and nothing of the package.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="podsrl-mutations-"))
        shutil.copytree(PACKAGE, self.folder / "podsrl", ignore=shutil.ignore_patterns("__pycache__"))
        self.log = self.folder / "log.txt"
        # Without bytecode: it would be taken for that of the next change, whose file has the same size and time.
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(self.folder))
        extra = {
            "PYTHONPATH": str(self.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
            "HF_HUB_OFFLINE": "1",
        }
        os.environ.update(extra)
        os.chdir(ROOT)
        for name in ("torch", "transformers", "hypothesis", "pytest"):
            importlib.import_module(name)

    def close(self) -> None:
        shutil.rmtree(self.folder)

    def outcome(
        self, mutation: Mutation, tests: Sequence[Path | str], limit_seconds: float, which: str = FAST
    ) -> tuple[str, str]:
        """Say "survived", "killed" or "timeout", and the test that failed first."""
        path = self.folder / "podsrl" / mutation.path.relative_to(PACKAGE)
        source = path.read_bytes()
        path.write_bytes(mutation.apply(source))
        try:
            code = self.test(tests, limit_seconds, which)
        finally:
            path.write_bytes(source)
        if code in (0, 4, 5):  # 4 and 5: no test was found, such as one that is gone
            return "survived", ""
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", self.log.read_text(errors="replace"), re.MULTILINE)
        return "timeout" if code is None else "killed", failed[1] if failed else ""

    def test(self, tests: Sequence[Path | str], limit_seconds: float, which: str = FAST) -> int | None:
        """Pytest's exit code, or None after the limit; what it prints goes to `log`."""
        child = os.fork()
        if child == 0:
            self._test_in_child(tests, which)
        end = time.monotonic() + limit_seconds
        while time.monotonic() < end:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                return abs(os.waitstatus_to_exitcode(status))
            time.sleep(0.05)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return None

    def _test_in_child(self, tests: Sequence[Path | str], which: str) -> NoReturn:
        code = 3
        try:
            os.setsid()
            with self.log.open("w") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            import pytest

            import podsrl

            assert str(podsrl.__file__).startswith(str(self.folder)), podsrl.__file__
            options = ["-x", "-q", "-m", which, "-p", "no:cacheprovider"]
            code = int(pytest.main([*options, *map(str, tests)]))
        finally:
            sys.stdout.flush()
            os._exit(code)


def modules_of(place: Place) -> list[Path]:
    """The place's modules; a pattern that no file matches is an error, so that a moved file is noticed."""
    found: dict[Path, None] = {}
    for pattern in place.modules:
        paths = sorted(PACKAGE.glob(pattern))
        if not paths:
            raise SystemExit(f"no module matches {PACKAGE}/{pattern}: mend PLACES in {Path(__file__).name}")
        found |= dict.fromkeys(paths)
    return list(found)


def tests_of(place: Place, module: Path) -> list[Path]:
    """The place's test files; those that name the module come first, since the first failure ends a run."""
    paths = [path for pattern in place.tests for path in sorted(TESTS.glob(pattern))]
    name = ".".join(module.relative_to(PACKAGE).with_suffix("").parts)
    return sorted(paths, key=lambda path: f"podsrl.{name} " not in path.read_text())


def run_place(name: str, sample: Sequence[Mutation], copy: Copy) -> list[dict[str, str]]:
    place = PLACES[name]
    start = time.monotonic()
    if copy.test(tests_of(place, sample[0].path), 3600) != 0:
        raise SystemExit(f"{name}: the tests fail without any change:\n{copy.log.read_text()}")
    limit = 3 * (time.monotonic() - start) + 20
    print(f"{name}: {len(sample)} changes, at most {limit:.0f} s of tests for each", flush=True)
    found = []
    for mutation in sample:
        outcome, test = copy.outcome(mutation, tests_of(place, mutation.path), limit)
        found.append(_record(name, mutation, outcome, test))
        print(f"  {outcome:8}  {mutation}  {test}", flush=True)
    return found


def run_again(before: Sequence[dict[str, str]], copy: Copy) -> list[dict[str, str]]:
    """What becomes now of the changes that were noticed, the test that noticed one first."""
    found = []
    for old in before:
        if old["outcome"] == "survived":
            continue
        mutation = _same(old)
        if mutation is None:
            print(f"  gone      {old['path']}:{old['line']}  {old['old']}", flush=True)
            continue
        tests: list[Path | str] = [*tests_of(PLACES[old["place"]], mutation.path)]
        alone: list[Path | str] = [old["test"].partition("[")[0]]
        outcome, test, mark = "survived", "", ""
        for which, chosen in ((FAST, alone), (SLOW, alone), (FAST, tests), (SLOW, tests)):
            if outcome == "survived" and chosen != [""]:
                outcome, test = copy.outcome(mutation, chosen, 900, which)
                mark = "" if which == FAST else "slow, "
        found.append(_record(old["place"], mutation, outcome, mark + test))
        print(f"  {outcome:8}  {mutation}  {mark}{test}", flush=True)
    return found


def _record(place: str, mutation: Mutation, outcome: str, test: str) -> dict[str, str]:
    path = mutation.path.relative_to(PACKAGE).as_posix()
    where = {"path": path, "line": str(mutation.line), "start": str(mutation.start)}
    change = {"kind": mutation.kind, "old": mutation.old, "new": mutation.new}
    return {"place": place, **where, **change, "outcome": outcome, "test": test}


def _same(record: dict[str, str]) -> Mutation | None:
    """The recorded change in today's source; of several alike, the nearest to its place."""
    path = PACKAGE / record["path"]
    alike = [
        m
        for m in (mutations_of(path) if path.exists() else [])
        if (m.kind, m.old, m.new) == (record["kind"], record["old"], record["new"])
    ]
    start = int(record["start"])
    return min(alike, key=lambda m: (abs(m.line - int(record["line"])), abs(m.start - start)), default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", metavar="PLACE", help=f"any of {', '.join(PLACES)}; default: all")
    parser.add_argument("--sample", type=int, default=40, help="so many changes of each place; 0: all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--at", action="append", default=[], metavar="FILE:LINE", help="only changes of this line")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write what became of each change")
    parser.add_argument("--again", type=Path, metavar="FILE", help="only the changes that were noticed in this file")
    parser.add_argument("--list", action="store_true", help="print the changes and run nothing")
    options = parser.parse_args()
    if unknown := set(options.places) - set(PLACES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; places are {', '.join(PLACES)}")
    chosen = {}
    for name in options.places or list(PLACES):
        found = [mutation for path in modules_of(PLACES[name]) for mutation in mutations_of(path)]
        if options.at:
            found = [m for m in found if any(f"{m.path}:{m.line}".endswith(f"/{at}") for at in options.at)]
        elif 0 < options.sample < len(found) and not options.list:
            found = sorted(random.Random(options.seed).sample(found, options.sample), key=found.index)
        chosen[name] = found
    if options.list:
        for name, found in chosen.items():
            print(f"{name}: {len(found)} changes", *found, sep="\n  ")
        return
    copy = Copy()
    try:
        if options.again:
            before = json.loads(options.again.read_text())
            found = run_again([one for one in before if one["place"] in chosen], copy)
        else:
            found = [one for name, sample in chosen.items() if sample for one in run_place(name, sample, copy)]
    finally:
        copy.close()
    if options.save:
        options.save.write_text(json.dumps(found, indent=0))
    for name in chosen:
        counts = Counter(one["outcome"] for one in found if one["place"] == name)
        print(f"{name}: " + ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("killed", "survived", "timeout")))


if __name__ == "__main__":
    main()
