import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from podsrl.config.schema import TaskConfig
from podsrl.errors import UsageError
from podsrl.tasks import TASKS, TaskSet, load_tasks
from podsrl.tasks.base import TasksOnDemand
from podsrl.types import Task

ONE = Task(id="a", prompt="1+2=", answer="3")
TWO = Task(id="b", prompt="2+2=", answer="4")


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("own_tasks")
    monkeypatch.setitem(sys.modules, "own_tasks", module)
    return module


@pytest.fixture
def rows(tmp_path: Path) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "a", "answer": 1}\n{"question": "b", "answer": 2}\n')
    return str(path)


def test_the_defaults_are_those_of_the_config() -> None:
    parameters = inspect.signature(load_tasks).parameters
    assert {"path", "subset", "chat", "system_prompt", "num_eval"} <= parameters.keys()
    for option in inspect.signature(load_tasks).parameters.keys() - {"name", "seed", "own"}:
        assert parameters[option].default == TaskConfig.model_fields[option].default, option


def test_known_sets_load_by_name(rows: str) -> None:
    names = ["arithmetic", "columns", "steps", "functions", "gsm8k", "math", "math500", "svamp"]
    assert list(TASKS) == [*names, "jsonl", "hub", "reasoning_gym"]
    assert load_tasks("arithmetic", digits=1, num_eval=9, seed=5).train[0].id == "1+1"
    tasks = load_tasks("jsonl", path=rows, num_eval=1)
    assert {task.prompt for task in [*tasks.train, *tasks.eval]} == {"a", "b"}


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match=r"task.name = 'aritmetic'.*'arithmetic'\?"):
        load_tasks("aritmetic")


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("arithmetic", "path", "x.jsonl"),
        ("arithmetic", "prompt_column", "q"),
        ("arithmetic", "eval_path", "x.jsonl"),
        ("gsm8k", "eval_path", "x.jsonl"),
        ("hub", "eval_path", "x.jsonl"),
        ("arithmetic", "answer_column", "a"),
        ("jsonl", "digits", 3),
        ("jsonl", "subset", "main"),
        ("jsonl", "eval_split", "test"),
        ("gsm8k", "prompt_column", "q"),
        ("math500", "train_split", "train"),
        ("hub", "digits", 3),
        ("steps", "digits", 3),
        ("arithmetic", "levels", {1: 1.0}),
    ],
)
def test_an_option_that_the_set_does_not_read_is_refused(rows: str, name: str, option: str, value: Any) -> None:
    options = ({"path": rows} if name == "jsonl" else {}) | {option: value}
    with pytest.raises(UsageError, match=rf"task.{option} = {value!r}, but task set '{name}' does not read"):
        load_tasks(name, num_eval=1, **options)


@pytest.mark.parametrize(("name", "cure"), [("jsonl", "a file"), ("hub", "a data set's name on the hub")])
def test_a_set_that_wants_a_path_is_refused_without_one(name: str, cure: str) -> None:
    with pytest.raises(UsageError, match=f"not set, but task set '{name}' reads it: set task.path to {cure}"):
        load_tasks(name)


def test_chat_and_system_prompt_reach_every_set(own: ModuleType) -> None:
    own.load = lambda: TaskSet(name="own", train=[ONE], eval=(TWO,))
    tasks = load_tasks("own_tasks:load", chat=True, system_prompt="Be brief.")
    system = {"role": "system", "content": "Be brief."}
    assert tasks.train[0].prompt == (system, {"role": "user", "content": "1+2="})
    assert tasks.eval[0].prompt == (system, {"role": "user", "content": "2+2="})


def test_a_file_without_or_as_the_name_of_a_set_is_an_error_that_names_the_set_which_reads_it() -> None:
    with pytest.raises(UsageError, match=r"set task\.name to one that does \(gsm8k, .*jsonl, hub\)"):
        load_tasks("arithmetic", path="mine.jsonl")
    with pytest.raises(UsageError, match=r"set task\.name = 'jsonl' and task\.path = 'mine\.jsonl'"):
        load_tasks("mine.jsonl")


def test_ids_in_both_parts_are_refused_whatever_loads_them(own: ModuleType, tmp_path: Path) -> None:
    own.load = lambda: TaskSet(name="own", train=[ONE, TWO], eval=(TWO,))
    own.lazy = lambda: TaskSet(name="own", train=TasksOnDemand(range(2), [ONE, TWO].__getitem__), eval=(TWO,))
    for name in "load", "lazy":
        with pytest.raises(UsageError, match=r"share 1 id \('b'\): leave"):
            list(load_tasks(f"own_tasks:{name}").train)
    for side in "train", "eval":
        (tmp_path / f"{side}.jsonl").write_text(f'{{"id": 1, "question": "{side}?", "answer": 1}}\n')
    with pytest.raises(UsageError, match=r"share 1 id \('1'\)"):
        load_tasks("jsonl", path=str(tmp_path / "train.jsonl"), eval_path=str(tmp_path / "eval.jsonl"))


def test_a_loader_of_ones_own_gets_the_options_it_names(own: ModuleType) -> None:
    def load(*, num_eval: int, path: str = "none") -> TaskSet:
        return TaskSet(name=f"{path} {num_eval}", train=[ONE], eval=(TWO,))

    own.load = load
    assert load_tasks("own_tasks:load", path="p", num_eval=3, seed=9).name == "p 3"
    with pytest.raises(UsageError, match=r"task.digits = 3, but task set 'own_tasks:load' does not read"):
        load_tasks("own_tasks:load", digits=3)


def test_a_loader_has_options_of_its_own(own: ModuleType) -> None:
    def load(*, num_eval: int, colour: str, shade: float = 0.5) -> TaskSet:
        return TaskSet(name=f"{colour} {shade}", train=[ONE], eval=(TWO,))

    own.load, name = load, "own_tasks:load"
    assert load_tasks(name, own={"colour": "red", "shade": 1}).name == "red 1.0"
    for given, message in (
        ({"color": "red"}, r"options\.own_tasks:load\.color = 'red': there is no such option. Did you mean 'colour'\?"),
        ({}, r"options\.own_tasks:load\.colour is not set, and has no default: set it"),
        ({"colour": 3}, r"options\.own_tasks:load\.colour = 3: Input should be a valid string"),
        ({"colour": "red", "num_eval": 3}, r"options\.own_tasks:load\.num_eval = 3: there is no such option"),
    ):
        with pytest.raises(UsageError, match=message):
            load_tasks(name, own=given)
    with pytest.raises(UsageError, match=r"options\.arithmetic\.colour = 1: there is no such option\. It takes no"):
        load_tasks("arithmetic", own={"colour": 1})


def test_a_loader_of_ones_own_gets_a_number_of_held_out_questions(own: ModuleType) -> None:
    own.load = lambda *, num_eval: TaskSet(name=f"{num_eval}", train=[ONE], eval=(TWO,))
    assert load_tasks("own_tasks:load").name == "256"
    own.load = lambda: TaskSet(name="none", train=[ONE], eval=(TWO,))
    assert load_tasks("own_tasks:load").name == "none"


def test_arithmetic_holds_out_256_or_all_that_there_are() -> None:
    assert [len(load_tasks("arithmetic", digits=digits).eval) for digits in (1, 2)] == [9, 256]


def test_a_loader_with_keywords_gets_all_options(own: ModuleType) -> None:
    seen: dict[str, Any] = {}

    def load(**options: Any) -> TaskSet:
        seen.update(options)
        return TaskSet(name="own", train=[ONE], eval=(TWO,))

    own.load = load
    load_tasks("own_tasks:load", digits=3, num_eval=4, seed=5)
    assert seen == {
        "path": None,
        "eval_path": None,
        "subset": None,
        "train_split": None,
        "eval_split": None,
        "prompt_column": "question",
        "answer_column": "answer",
        "digits": 3,
        "levels": None,
        "num_eval": 4,
        "seed": 5,
    }


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (lambda colour: None, r" wants \['colour'\]; a loader can be given \['path'"),
        (lambda: [ONE], " returned a list; wanted a podsrl.tasks.TaskSet"),
        (dict, ": no signature found"),
        (5, " has the type int; wanted a function"),
    ],
)
def test_what_is_no_loader_is_refused(own: ModuleType, loader: Any, message: str) -> None:
    own.load = loader
    with pytest.raises(UsageError, match=f"'own_tasks:load'{message}"):
        load_tasks("own_tasks:load")


def test_a_task_set_that_holds_nothing_out_is_refused() -> None:
    with pytest.raises(UsageError, match="'mine' has no eval tasks"):
        TaskSet(name="mine", train=[ONE], eval=())


class Unsaid(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


class Broken(list[Task]):
    def __getitem__(self, index: Any) -> Any:
        raise Unsaid


SEVEN = Task(id="a", prompt="3+4=", answer="7")
BROKEN_LOADERS: dict[str, tuple[Callable[[], Any], str]] = {
    "raises": (lambda: 1 // 0, r"task.name = 'own_loader:raises' raised ZeroDivisionError: .*test_load_tasks.py"),
    "exits": (lambda: sys.exit(), r"task.name = 'own_loader:exits' raised SystemExit"),
    "no_list": (lambda: TaskSet(name="own", train={"a": SEVEN}, eval=(SEVEN,)), "train of .* is a dict; wanted"),  # type: ignore[arg-type]
    "texts": (lambda: TaskSet(name="own", train=["a"], eval=(SEVEN,)), "holds 'a'; wanted a Task"),  # type: ignore[list-item]
    "number": (lambda: TaskSet(name="own", train=[replace(SEVEN, answer=7)], eval=(SEVEN,)), "answer of task 'a' is 7"),  # type: ignore[arg-type]
    "messages": (
        lambda: TaskSet(name="own", train=[replace(SEVEN, prompt=({"rol": "user"},))], eval=(SEVEN,)),
        "prompt of task 'a' is .*; wanted a text, or messages",
    ),
    "lazy": (lambda: TaskSet(name="own", train=Broken([SEVEN]), eval=(SEVEN,)), r"task set 'own' raised Unsaid: .* \("),
}


@pytest.mark.parametrize("name", BROKEN_LOADERS)
def test_a_loader_of_ones_own_that_breaks_is_one_line(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module, (loader, message) = ModuleType("own_loader"), BROKEN_LOADERS[name]
    setattr(module, name, loader)
    monkeypatch.setitem(sys.modules, "own_loader", module)
    with pytest.raises(UsageError, match=message) as caught:
        load_tasks(f"own_loader:{name}").train[0]
    assert "\n" not in str(caught.value)
