"""What the pages name exists: links, files, commands, options, metrics, and names of Python. Prose is not checked."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from benchmarks import BENCHMARKS, COMMANDS
from loops import each
from podsrl.cli.main import HELP, app
from podsrl.config.load import section_of
from podsrl.config.options import SCHEMAS, find_field
from podsrl.config.other_names import other_names
from podsrl.config.schema import RunConfig

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "podsrl"
PAGES = sorted(
    [*(page for folder in ("", "docs", "examples") for page in (ROOT / folder).glob("*.md")), *SOURCE.rglob("*.md")]
)
NAMING = [
    pytest.param(page, marks=pytest.mark.slow if page.name == "from-trl.md" else ())  # it imports TRL
    for page in PAGES
    if page.name != "CHANGELOG.md"
]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
ENDINGS = "py|md|toml|json|jsonl|html|cpp|css|js|j2|txt|npz|png|svg|safetensors"
USERS_OWN = re.compile(r"^(?:my[-_.]|(?:mine|answers|hacks|questions|heldout|map)\.|runs/|~|\.{0,2}/|[A-Z]+/)")
"""Names that stand for a file of the reader, such as `my_rules.py`."""
WRITTEN = {
    *("metrics.jsonl", "groups.jsonl", "starts.jsonl", "finished.json", "compare.json", "compare.toml", "report.html"),
    *("config.json", "custom_generate/", "build/"),
}
"""Files and folders of a run, a comparison, a model folder, and of the tests."""
METRIC = re.compile(
    r"^(?:tokens|reward|reward_std|groups|rollouts|length|memory|seconds|sync|updates|eval)/[a-z_]+(?:@\d+)?$"
)
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree() -> tuple[frozenset[str], frozenset[str]]:
    """Paths of all files and folders below the root, relative to it, and their last names."""
    skipped = {".git", ".venv", "__pycache__", "build", "dist"}
    paths = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in skipped]
        paths += [relative(Path(folder, name)) for name in (*folders, *files)]
    return frozenset(paths), frozenset(Path(path).name for path in paths)


def inline_code(text: str) -> list[str]:
    return CODE.findall(BLOCK.sub("", text))


def code_lines(text: str) -> Iterator[str]:
    """Lines of shell blocks, and inline code."""
    for kind, block in BLOCK.findall(text):
        if kind in ("", "sh"):
            yield from (line.removeprefix("$ ").strip() for line in block.splitlines())
    yield from inline_code(text)


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def headings(text: str) -> set[str]:
    """The anchors of a page."""
    return {slug(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def broken_links(text: str, folder: Path) -> list[str]:
    broken = []
    for target in (first or second for first, second in LINK.findall(BLOCK.sub("", text))):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        page = folder / file if file else None
        # GitHub follows no symbolic link, such as `configs`.
        on_the_way = [part for part in [page, *page.parents] if ROOT in part.parents] if page else []
        is_there = page is None or (page.exists() and not any(part.is_symlink() for part in on_the_way))
        if not is_there or (anchor and slug(anchor) not in headings(page.read_text() if page else text)):
            broken.append(target)
    return broken


def missing_files(text: str) -> list[str]:
    """Paths in inline code, and scripts that a command runs, which are nowhere in the tree."""
    paths, names = tree()
    named = [
        code for code in inline_code(text) if re.fullmatch(rf"[\w./@-]+\.(?:{ENDINGS})|[\w.-]+/(?:[\w.-]+/)*", code)
    ]
    named += re.findall(r"(?<![\w./-])(?:docs|src|tests|benchmarks|examples|configs)/[\w./-]*\w", text)
    named += [word for line in code_lines(text) for word in re.findall(r"^(?:\S+/)?python ([\w./-]+\.py)", line)]
    return [
        name
        for name in sorted({*named})
        if not USERS_OWN.search(name)
        and name not in WRITTEN
        and not any(path == name.rstrip("/") or path.endswith("/" + name.rstrip("/")) for path in paths)
        and name not in names
        and not (ROOT / name).exists()
    ]


@cache
def commands() -> dict[str, Any]:
    """Name -> subcommand of `pods`."""
    whole = typer.main.get_command(app)
    assert isinstance(whole, TyperGroup)
    return whole.commands


def is_config_key(key: str) -> bool:
    return any(find_field(schema, key) is not None for schema in SCHEMAS.values())


def wrong_commands(text: str) -> list[str]:
    """Lines that call `pods` or a benchmark by a name or with an option that it does not have."""
    wrong = []
    for line in code_lines(text):
        line = re.split(r" {3,}| #| >", line)[0]
        if pods := re.match(r"(?:\S+/)?pods(?!/)(?: ([a-z][a-z-]*))?\b(.*)$", line):
            wrong += [line] if not is_right_call(pods[1], pods[2]) else []
        if benchmark := re.match(r"(?:\S+/)?python -m benchmarks(?: ([a-z][\w-]*))?(.*)$", line):
            wrong += [line] if not is_right_benchmark(benchmark[1], benchmark[2]) else []
    return wrong


def is_right_call(name: str | None, rest: str) -> bool:
    if name is None:
        return not rest.strip() or rest.strip() in ("--help", "--version", "--install-completion")
    if name not in commands():
        return False
    own = {option for parameter in commands()[name].params for option in parameter.opts} | {"--help"}
    flags = re.findall(r"(?<=\s)(-[a-z]|--[A-Za-z][\w.@+-]*)", rest)
    return all(flag in own or is_config_key(flag.removeprefix("--")) for flag in flags)


def is_right_benchmark(name: str | None, rest: str) -> bool:
    if name is None:
        return not re.findall(r"--\w+", rest)
    if name not in BENCHMARKS | COMMANDS:
        return False
    module = (ROOT / "benchmarks").joinpath(*(BENCHMARKS | COMMANDS)[name].split(".")).with_suffix(".py").read_text()
    is_of_runs = "runs.new_parser" in module or "from benchmarks.claims import" in module
    shared = (ROOT / "benchmarks/runs.py").read_text() if is_of_runs else ""
    own = {*re.findall(r'"(--[\w-]+)"', module + shared), "--json", "--save", "--help"}
    if name == "all" and "--only" in rest:
        return all(each in BENCHMARKS for each in rest.partition("--only")[2].split())
    stages = set(re.findall(r"^def (\w+)|\"(\w+)\"", module, re.MULTILINE))
    words = {word for pair in stages for word in pair}
    flags, plain = re.findall(r"--[\w-]+", rest), re.findall(r"(?<=\s)[a-z]\w*", re.sub(r"--\S+(?: \S+)?", "", rest))
    return {*flags} <= own and {*plain} <= words


def unknown_options(text: str) -> list[str]:
    """Dotted keys of a section in inline code that the schema does not have: `select.num_keep`."""
    theirs = {other.theirs for other in other_names()}
    sections = {name for name, field in RunConfig.model_fields.items() if section_of(field.annotation)}
    found = []
    for code in inline_code(text):
        key = re.match(r"(?:--)?((\w+)\.[a-z_]+(?:\.[\w.]+)?)(?=$|[ =])", code)
        if key and key[2] in sections and not re.search(rf"\.(?:{ENDINGS})$", key[1]):
            found += [code] if key[1] not in theirs and not is_config_key(key[1]) else []
    return found


@cache
def source() -> str:
    return "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))


def unknown_metrics(text: str) -> list[str]:
    return [code for code in inline_code(text) if METRIC.match(code) and not is_metric(code)]


def is_metric(name: str) -> bool:
    """Whether the source has it: whole, in two parts ("seconds/", "update"), or up to a number ("eval/pass@")."""
    prefix, _, own = name.partition("/")
    whole = f'"{name}"' in source() or f'"{prefix}/{own.split("@")[0]}@' in source()
    return whole or (f'"{prefix}/' in source() and f'"{own}"' in source())


def missing_names(text: str) -> list[str]:
    """Dotted names below podsrl, and what Python blocks import from it, which cannot be found."""
    missing = [
        name
        for code in inline_code(text)
        for name in re.findall(r"^(podsrl(?:\.\w+)+)", code)
        if not exists(name) and not code.endswith(".py")
    ]
    for kind, block in BLOCK.findall(text):
        if kind == "python":
            missing += missing_imports(block)
    return missing


def missing_imports(code: str) -> list[str]:
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    names = [f"{node.module}.{alias.name}" for node in nodes for alias in node.names]
    return [name for name in names if name.split(".")[0] in ("podsrl", "benchmarks") and not exists(name)]


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def other_on_the_site(text: str) -> list[str]:
    """Lines that the site's Markdown reads otherwise than GitHub: lists and tables right after text, its own marks."""
    plain = BLOCK.sub("", text)
    begins = r"^(?![ \n|>#-]|\d+\. |<!--).+\n((?:- |\d+\. |\|).*)$"
    return re.findall(begins, plain, re.MULTILINE) + re.findall(r"^(?:!!!|\?\?\?|:::|=== ).*$", plain, re.MULTILINE)


@each("page", PAGES)
def test_a_page_reads_the_same_on_the_site(page: Path) -> None:
    assert other_on_the_site(page.read_text()) == []


@each("page", PAGES)
def test_a_pages_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page.read_text(), page.parent) == []


CHECKS: tuple[Callable[[str], Iterable[str]], ...] = (
    missing_files,
    wrong_commands,
    unknown_options,
    unknown_metrics,
    missing_names,
)


@each("check", CHECKS)
@pytest.mark.parametrize("page", NAMING, ids=relative)
def test_what_a_page_names_exists(page: Path, check: Callable[[str], Iterable[str]]) -> None:
    assert list(check(page.read_text())) == []


def test_the_page_of_benchmarks_lists_them_all() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    listed = text.split("| name |")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([\w-]+)`", listed, re.MULTILINE) == list(BENCHMARKS)


@pytest.mark.parametrize("example", EXAMPLES, ids=relative)
def test_what_the_docstring_of_an_example_names_exists(example: Path) -> None:
    doc = ast.get_docstring(ast.parse(example.read_text())) or ""
    in_blocks = re.sub(r"(?m)^((?:    .*\n?)+)", r"```\n\1```\n", doc)
    assert missing_files(in_blocks) + wrong_commands(in_blocks) + unknown_options(in_blocks) == []
    assert missing_imports(example.read_text()) == []


def test_the_help_of_a_command_begins_with_examples_that_work_and_fit_80_columns() -> None:
    for name, text in [*((name, command.help) for name, command in commands().items()), ("", HELP)]:
        _, title, examples, *_ = text.split("\n\n")
        lines = examples.splitlines()
        assert title == "[bold]Examples[/]" and lines[0].startswith(f"  pods {name}"), name
        assert [line for line in lines if len(line) > 78] == [], name
        assert wrong_commands("".join(f"```\n{line.strip()}\n```\n" for line in lines)) == [], name


@each("recipe", sorted(SOURCE.rglob("recipes/**/*.toml")))
def test_what_the_comments_of_a_recipe_name_exists(recipe: Path) -> None:
    comments = re.findall(r"#(.*)", recipe.read_text())
    as_code = "".join(
        f"`{comment.strip()}`\n" for comment in comments if comment.strip().startswith(("pods ", "python "))
    )
    files = "".join(f"`{name}`\n" for comment in comments for name in re.findall(r"[\w./-]+\.(?:md|toml)\b", comment))
    assert wrong_commands(as_code) + missing_files(files) == []


@each(
    ("check", "right", "wrong"),
    [
        (missing_files, "docs/engine.md, `select/variance.py` and `my_rules.py`", "`select/variants.py`"),
        (wrong_commands, "`pods train pods --stop.steps=2 -o x`", "`pods train pods --stop.step=2`"),
        (wrong_commands, "`python -m benchmarks select --quick`", "`python -m benchmarks selection`"),
        (unknown_options, "`select.num_kept` and `task.system_prompt = x`", "`select.num_keep`"),
        (unknown_metrics, "`groups/zero_signal`, `seconds/update`", "`groups/no_signal`"),
        (missing_names, "`podsrl.score.is_correct(a, b)`", "`podsrl.score.math.is_correct`"),
        (missing_names, "```python\nfrom podsrl import Task\n```\n", "```python\nfrom podsrl import Tasks\n```\n"),
        (other_on_the_site, "Two:\n\n- a\n- b\n  more\n- c\n", "Two:\n- a\n- b\n"),
        (lambda text: broken_links(text, ROOT), "[y](docs/engine.md#steering)", "[y](docs/engine.md#steered)"),
    ],
)
def test_the_checks_see_what_they_look_for(check: Callable[[str], Iterable[str]], right: str, wrong: str) -> None:
    assert list(check(right)) == []
    assert len(list(check(wrong))) == 1


def test_torch_s_index_is_asked_for_torch_alone() -> None:
    for page in [*PAGES, ROOT / "Makefile"]:
        text = page.read_text()
        assert not re.search("extra.index.url", text, re.IGNORECASE), page
        for line in re.findall(r"^pip install .*--index-url .*$", text, re.MULTILINE):
            assert "--no-deps" in line and line.endswith(" torch"), page
