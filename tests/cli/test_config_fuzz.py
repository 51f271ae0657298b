"""Whatever is written into a config: it is planned for, or refused in one line that is short and says what is wrong.

Mutations are made of the schema, from a seed. Each goes up to the plan of a dry run, in this process; no weights are
read.
"""

from __future__ import annotations

import os
import random
import time
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import tomli_w
from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from pace import least_seconds
from podsrl.config.load import load_config, section_of
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError, one_line
from podsrl.plan.preview import preview_run

Pods = Callable[..., tuple[int, str, str]]
Tree = dict[str, Any]
MAX_MESSAGE = 1000
HUGE_DIGITS = "9" * 5000
TEXTS = (
    "", " ", "x", "a" * 5000, "/" * 5000, "é" * 3000, "\0", "a\0b", "../../../../etc/passwd", "/dev/null/x", "~", ".",
    "no_such_module:function", "math:sqrt", "os:system", ":", "a:", ":b", "json:", "podsrl:nothing", "{x = 1}", "[",
    "]", "[" * 3000, "{a = " * 800, '"', "'", "\\", "\n", "a\nb = 1", "\ud800", "🙂" * 50, "\u202e", "[bold]x[/bold]",
    "%s%n", "NaN", "true", "1e999", "-0", "0x10", "1_000", "٣", "²", "auto", "none", "None", "null",
    "cuda:999999999999", "cuda:-1", "builtin:", "builtin:../x", "hub:x", "400MiB", "9" * 400 + "MiB", "-1GiB",
    "1.5.5MiB", "1e3MiB", HUGE_DIGITS, "0x" + "f" * 5000,
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 3, 7, 2**15, 2**24 - 1, 2**24, 2**24 + 1, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, -(2**63),
    2**64, 10**18, 10**40, 10**400, -(10**400), 0.0, -0.0, 0.5, 1e-300, 5e-324, 1e300, 1.7e308, float("inf"),
    float("-inf"), float("nan"), 0.1, 1.0, 1.0000001, -1e-9, 1e9, 1e10, 1e-4, 1e-5,
)  # fmt: skip
OTHERS: tuple[Any, ...] = (True, False, [], {}, [[]], [1, "a"], [[[[1]]]], {"": 1}, {"a": {"b": {"c": 1}}}, {"a": 1})


def fields(model: Any, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every plain option by its dotted name."""
    for name, field in model.model_fields.items():
        section = section_of(field.annotation)
        if section is None:
            yield prefix + name, field
        else:
            yield from fields(section, f"{prefix}{name}.")


FIELDS = dict(fields(RunConfig))
SECTIONS = sorted({key.rpartition(".")[0] for key in FIELDS} - {""})


def bounds(field: FieldInfo) -> list[Any]:
    """The ends of an option's range, and what lies just beside them."""
    found: list[Any] = []
    rules = [*field.metadata]
    for kind in get_args(field.annotation):  # of a union
        rules += [rule for part in getattr(kind, "__metadata__", ()) for rule in getattr(part, "metadata", [part])]
    for rule in rules:
        end = next(
            (
                getattr(rule, name)
                for kind, name in ((Ge, "ge"), (Gt, "gt"), (Le, "le"), (Lt, "lt"))
                if isinstance(rule, kind)
            ),
            None,
        )
        if end is not None:
            found += [end, end - 1, end + 1, end * 2, float(end)]
    return found


def words(kind: Any) -> list[Any]:
    """What a Literal allows, however deep it stands."""
    if get_origin(kind) is None or isinstance(kind, types.GenericAlias):
        return [part for inner in get_args(kind) for part in words(inner)]
    return [part for inner in get_args(kind) for part in ([inner] if isinstance(inner, str) else words(inner))]


def value(rng: random.Random, key: str) -> Any:
    field = FIELDS[key]
    kind = rng.random()
    if kind < 0.3 and (ends := bounds(field)):
        return rng.choice(ends)
    if kind < 0.4 and (known := words(field.annotation)):
        return rng.choice(known)
    if kind < 0.6:
        return rng.choice(NUMBERS)
    if kind < 0.9:
        return rng.choice(TEXTS)
    return rng.choice(OTHERS) if rng.random() < 0.8 else [rng.choice(TEXTS), rng.choice(NUMBERS)]


def put(tree: Tree, key: str, new: Any) -> None:
    *sections, last = key.split(".")
    for section in sections:
        tree = tree.setdefault(section, {}) if isinstance(tree.get(section, {}), dict) else {}
    tree[last] = new


def odd_key(rng: random.Random) -> str:
    key = rng.choice(list(FIELDS))
    section = rng.choice(SECTIONS)
    return rng.choice(
        [
            key[:-1],
            key + "x",
            key.upper(),
            f"{section}.{key}",
            key.rpartition(".")[2],
            section,
            f"{key}.x",
            f"..{key}",
            "a" * 5000,
            "",
        ]
    )


def text_of(rng: random.Random, new: Any) -> str:
    """As somebody would write it behind the equals sign of a flag."""
    if isinstance(new, str):
        return new
    try:
        return tomli_w.dumps({"v": new}).removeprefix("v = ").rstrip("\n")
    except (ValueError, TypeError):
        return HUGE_DIGITS


def broken_toml(rng: random.Random, text: str) -> bytes:
    """A file with an error of writing in it."""
    content = text.encode("utf-8", "replace")
    place = rng.randrange(len(content) + 1)
    return rng.choice(
        [
            content[:place],
            content[:place] + b"\xff\xfe" + content[place:],
            content + b"\n" + content,
            content[:place] + rng.choice([b"[", b"]", b'"', b"=", b"\n", b"\0", b"'''", b"{"]) + content[place:],
            b"[" * 3000 + content,
            b"seed = " + HUGE_DIGITS.encode() + b"\n" + content,
            content + b"\na = " + b"[" * 3000,
            b"",
        ]
    )


def case(rng: random.Random, folder: Path) -> list[str]:
    """The words of a command line; a file that it names is written."""
    keys = [rng.choice(list(FIELDS)) for _ in range(rng.choice([1, 1, 1, 2, 3, 6]))]
    pairs = [(odd_key(rng) if rng.random() < 0.1 else key, value(rng, key)) for key in keys]
    kind = rng.random()
    if kind < 0.45:
        flags = [f"--{key}={text_of(rng, new)}" for key, new in pairs]
        return ["pods", *flags, *(flags[:1] if rng.random() < 0.05 else [])]
    if kind < 0.48:
        return [rng.choice([text for text in TEXTS if "--" not in text]) or "pods"]
    tree: Tree = {}
    for key, new in pairs:
        put(tree, key, new)
    try:
        text = tomli_w.dumps(tree)
    except (ValueError, TypeError):
        text = f"seed = {HUGE_DIGITS}"
    file = folder / "case.toml"
    file.write_bytes(broken_toml(rng, text) if kind > 0.85 else text.encode("utf-8", "replace"))
    return [str(file)]


NAMED = (
    *FIELDS,
    *SECTIONS,
    "unknown key",
    "not valid TOML",
    "override",
    "no such file",
    "cannot be read",
    "NUL",
    "UTF-8",
)
"""One of these is in every refusal: the option, or what is wrong with a key, a flag or a file that is none."""


@cache
def most_seconds() -> float:
    """Processor time that one case may take, as 1,000 plans of a plain config; most take that of one."""
    return 1000 * least_seconds(lambda: preview_run(load_config("pods", [])).to_json(), runs=5)


def plan(words: list[str], folder: Path) -> bool:
    """Plan for a run. Returns whether it was refused."""
    before, began = sorted(folder.iterdir()), time.process_time()
    shown = f"{[word[:200] for word in words]}: {(folder / 'case.toml').read_bytes()[:500]!r}"
    is_refused = False
    try:
        preview_run(load_config(words[0], words[1:])).to_json()
    except UsageError as error:
        message = one_line(str(error))
        assert len(message) <= MAX_MESSAGE, shown
        assert any(name in message for name in NAMED), f"{shown}: {error}"[:2000]
        is_refused = True
    except BaseException as error:
        raise AssertionError(shown) from error
    assert time.process_time() - began < most_seconds(), shown
    assert sorted(folder.iterdir()) == before, shown
    return is_refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "case.toml").write_text("")
    return tmp_path


@pytest.mark.parametrize(("seed", "count"), [(0, 200), (1, 2000)])
def test_odd_configs_are_planned_for_or_refused_in_one_line(folder: Path, seed: int, count: int) -> None:
    rng = random.Random(seed)
    refused = sum(plan(case(rng, folder), folder) for _ in range(count))
    assert 0.5 * count < refused < count  # else the mutations do not reach what they are for


def test_the_mutations_know_every_option_and_the_ends_of_its_range() -> None:
    assert {"rollouts.num_rollouts", "lora.rank", "seed", "optim.betas"} <= set(FIELDS)
    assert set(bounds(FIELDS["select.num_kept"])) >= {1, 2, 2**24, 2**24 + 1}
    assert set(words(FIELDS["loss.clip"].annotation)) == {"ppo", "cispo", "none"}


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["a" * 5000], "too long"),
        (["pods", f"--seed={HUGE_DIGITS}"], "seed"),
        (["pods", "--task.path=" + "[" * 3000], "task.path"),
        (["pods", "--rollouts.kv_cache_bytes=" + "9" * 400 + "MiB"], "rollouts.kv_cache_bytes"),
        (["pods", "--task.path=a\0b"], "task.path"),
        (["pods", "--model.path=\udcff"], "model.path"),
        (["pods", "--eval.num_samples=1000000000000"], "eval.num_samples"),
        (["pods", "--rollouts.num_slots=1000000000000"], "rollouts.num_slots"),
        (["pods", "--rollouts.num_prompts=100000000"], "rollouts.num_prompts"),
        (["pods", "--rollouts.num_prompts=100000", "--rollouts.num_rollouts=10000"], "rollouts.num_rollouts"),
        (["pods", "--rollouts.num_prompts=10000", "--rollouts.num_rollouts=1000", "--rollouts.max_new_tokens=100000"],
         "rollouts.max_new_tokens"),
        (["pods", "--eval.num_samples=1000000", "--task.num_eval=1000"], "task.num_eval"),
        (["pods", "--task.reward_workers=5000"], "task.reward_workers"),
        (["pods", "--lora.rank=1000000"], "lora.rank"),
        (["pods", "--optim.num_epochs=1000000000"], "optim.num_epochs"),
        (["pods", "--scale.timeout_seconds=1e30"], "scale.timeout_seconds"),
        (["pods", "--stop.steps=100000000"], "stop.steps"),
        (["pods", "--seed=1\nthreads = 2"], "seed"),
    ],
    ids=lambda words: " ".join(words)[:40] if isinstance(words, list) else words,
)  # fmt: skip
def test_sizes_beyond_all_use_are_refused_by_name_before_anything_is_made(
    words: list[str], wanted: str, pods: Pods, folder: Path
) -> None:
    before = sorted(folder.iterdir())
    code, _, errors = pods("train", *words, "--out", "run")
    assert code == 2 and errors.count("\n") == 1 and len(errors) <= MAX_MESSAGE + 10, errors
    assert wanted in errors and sorted(folder.iterdir()) == before


@pytest.mark.parametrize("name", ["a" * 5000, "a/" * 3000])
@pytest.mark.parametrize("option", ["--out", "--resume"])
def test_a_folder_that_can_be_none_is_refused_in_one_line(option: str, name: str, pods: Pods, folder: Path) -> None:
    words = ["pods", "--out", name] if option == "--out" else ["--resume", name]
    code, _, errors = pods("train", *words)
    assert code == 2 and errors.count("\n") == 1 and len(errors) <= MAX_MESSAGE + 10, errors
    assert option in errors and [path.name for path in folder.iterdir()] == ["case.toml"]


@pytest.mark.parametrize("kind", ["folder", "loop", "pipe", "unreadable", "large"])
def test_a_config_that_is_no_readable_file_is_refused_in_one_line(kind: str, pods: Pods, tmp_path: Path) -> None:
    file = tmp_path / "odd.toml"
    if kind == "folder":
        file.mkdir()
    elif kind == "loop":
        file.symlink_to(file)
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "unreadable":
        (tmp_path / "note").write_text("")
        file = tmp_path / "note" / "odd.toml"
    else:
        with file.open("wb") as stream:
            stream.truncate(1 << 30)
    code, _, errors = pods("train", str(file))
    assert code == 2 and errors.startswith("error: config") and errors.count("\n") == 1, errors
