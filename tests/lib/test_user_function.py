"""A user's module may do anything on import, and its function anything when called: one line says what."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
import torch

from podsrl.config.load import load_config
from podsrl.errors import UsageError
from podsrl.lib.user_function import GIVEN, given_name, import_function
from podsrl.run.before.prepare import prepare
from podsrl.score.rewards import find_reward, is_importable_by_workers
from podsrl.select import resolve_rule, try_rule
from podsrl.tasks import load_tasks
from podsrl.update import resolve_advantage, try_advantage

FIND: dict[str, Callable[[str], object]] = {
    "select.rule = ": resolve_rule,
    "loss.advantage = ": resolve_advantage,
    "task.name = ": load_tasks,
    "task.rewards = ": lambda name: find_reward(name, option="task.rewards"),
}
BROKEN = {
    "raises": ("\n1 / 0\n", r"ZeroDivisionError: division by zero \(raises.py, line 2\)"),
    "exits": ("import sys\nsys.exit(0)\n", r"SystemExit: 0 \(exits.py, line 2\)"),
    "unfinished": ("def f(:\n", r"SyntaxError: .*\(unfinished.py, line 1\)"),
    "asserts": ("raise AssertionError('two\\nlines')", r"AssertionError: two lines \(asserts.py, line 1\)"),
    "wants": ("import no_such_module_q\n", r"ModuleNotFoundError: No module named 'no_such_module_q'"),
}


@pytest.mark.parametrize("option", FIND)
@pytest.mark.parametrize("module", BROKEN)
def test_a_module_that_breaks_while_it_is_imported_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, module: str
) -> None:
    text, reason = BROKEN[module]
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=f"^{option}'{module}:f' cannot be imported: {reason}") as caught:
        FIND[option](f"{module}:f")
    assert "\n" not in str(caught.value)


def raises(rewards: torch.Tensor, num_kept: int, *, generator: torch.Generator | None = None) -> torch.Tensor:
    raise KeyError("no such column")


def exits(rewards: torch.Tensor, num_kept: int, *, generator: torch.Generator | None = None) -> torch.Tensor:
    raise SystemExit(0)


def takes_too_little(rewards: torch.Tensor) -> torch.Tensor:
    return rewards


def refuses_chunks(rewards: torch.Tensor, num_kept: int, *, generator: torch.Generator | None = None) -> torch.Tensor:
    if rewards.shape[1] == 8:
        raise ArithmeticError("eight are too few")
    return torch.arange(num_kept).expand(len(rewards), num_kept)


def gives_no_number(rewards: torch.Tensor) -> torch.Tensor:
    return rewards / 0


OF_16 = ("rollouts.num_rollouts=16", "select.num_kept=8", f"select.rule={__name__}:refuses_chunks")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((*OF_16, "select.num_chunks=2"), "eight are too few"),
        (OF_16, "/nowhere"),  # it is called as it will be, so it passes, and the tokenizer is the next
        ((f"loss.advantage={__name__}:gives_no_number",), "the advantage 'gives_no_number' returned NaN or inf"),
        (("select.options.share=0.5",), r"select.options.share = 0.5: there is no such option"),
    ],
)
def test_a_function_and_its_options_are_tried_before_the_tokenizer_loads(
    options: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        prepare(load_config("pods", (*options, "model.path=/nowhere")))


def test_a_module_that_loads_its_parts_when_asked_and_fails_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lazy_parts.py").write_text("def __getattr__(name):\n    raise ImportError('needs another package')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"an option cannot be imported: ImportError: needs another package"):
        import_function("lazy_parts:reward", where="an option")


def test_nothing_in_the_users_folder_is_imported_before_a_function_is_asked_for(tmp_path: Path) -> None:
    """A library that tries to import what is not installed must not run a file of that name."""
    (tmp_path / "own_q.py").write_text("def f(): return 7\n")
    program = """
import importlib.util, sys
from podsrl.cli.main import main
sys.argv = ["pods", "config", "seed"]
try:
    main()
except SystemExit as end:
    assert not end.code, end
assert importlib.util.find_spec("own_q") is None
from podsrl.lib.user_function import import_function
assert import_function("own_q:f", where="an option")() == 7
"""
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["no_such_rewards.py:exact", "./no_such_rewards.py:exact"])
def test_a_files_name_in_place_of_a_modules_is_explained(name: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be imported.*a module's name has no '\.py' and no '/'"):
        import_function(name, where=f"--reward: {name!r}")


class Unsaid(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


def through_a_library(rewards: torch.Tensor, num_kept: int, *, generator: object = None) -> torch.Tensor:
    return torch.nn.functional.softmax(rewards, dim=7)


def without_a_text(rewards: torch.Tensor, num_kept: int, *, generator: object = None) -> torch.Tensor:
    raise Unsaid


def on_no_device(rewards: torch.Tensor, num_kept: int, *, generator: object = None) -> torch.Tensor:
    return torch.zeros(len(rewards), num_kept, dtype=torch.int64, device="meta")


def of_broken_groups(groups: object, num_kept: int, *, generator: object = None) -> object:
    return [(1 // 0 for _ in range(3))]


def a_mask(groups: object, num_kept: int, *, generator: object = None) -> object:
    return [[True, False]]


HERE = r"\(test_user_function.py, line \d+\)"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("raises", f"raised KeyError: 'no such column' {HERE}$"),
        ("exits", f"raised SystemExit: 0 {HERE}$"),
        ("through_a_library", f"raised IndexError: .* {HERE}$"),
        ("without_a_text", f"raised Unsaid: .*{HERE}$"),
        ("on_no_device", r"returned a Tensor; wanted \[1, 2\] int64"),
        ("of_broken_groups", f"raised ZeroDivisionError: .* {HERE}$"),
        ("a_mask", r"returned \[True, False\] for group 'made-up'; wanted at least 2 distinct indices"),
        ("takes_too_little", r"raised TypeError: [^(]*\(\) got an .*'generator'; wanted f\(rewards, num_kept, "),
    ],
)
def test_a_rule_that_fails_in_an_odd_way_is_one_line(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"the selection rule '{name}' {message}") as caught:
        try_rule(globals()[name], 4, 2)
    assert "\n" not in str(caught.value)


async def later(rewards: torch.Tensor) -> torch.Tensor:
    return rewards


@pytest.mark.parametrize("option", FIND)
def test_an_asynchronous_function_fits_no_option(option: str) -> None:
    with pytest.raises(UsageError, match=f"^{option}'{__name__}:later' is asynchronous"):
        FIND[option](f"{__name__}:later")


def on_the_meta_device(groups: Sequence[object], selections: Sequence[object]) -> list[torch.Tensor]:
    return [torch.zeros(2, device="meta") for _ in groups]


def sparse(rewards: torch.Tensor) -> torch.Tensor:
    return (rewards - rewards.mean()).to_sparse()


def by_keyword_only(*, rewards: torch.Tensor) -> torch.Tensor:
    return rewards


def test_an_advantage_may_have_any_layout_that_holds_numbers() -> None:
    try_advantage(sparse, 4)
    with pytest.raises(UsageError, match="the advantage 'on_the_meta_device' returned a Tensor; wanted"):
        try_advantage(on_the_meta_device, 2)
    with pytest.raises(UsageError, match=r"loss.advantage = .*by_keyword_only' takes .*; wanted a function f\(rewards"):
        resolve_advantage(f"{__name__}:by_keyword_only")


def doubled(number: float) -> float:
    return 2 * number


def test_a_function_has_the_name_by_which_it_is_found() -> None:
    before = dict(GIVEN)
    assert given_name(doubled) == f"{__name__}:doubled" and before == GIVEN
    assert import_function(given_name(doubled), where="an option") is doubled


def test_a_function_that_has_no_such_name_is_kept_by_this_process() -> None:
    others: list[Callable[..., object]] = [
        lambda: 1,
        partial(doubled, 2),
        "a-b".split,
        type("Call", (), {"__call__": len})(),
    ]
    try:
        for function in others:
            name = given_name(function)
            assert import_function(name, where="an option") is function
            assert not is_importable_by_workers(name)
        first, second = (given_name(partial(doubled, number)) for number in (1, 2))
        assert first == second and import_function(first, where="an option")() == 4  # the later one
    finally:
        GIVEN.clear()
    with pytest.raises(UsageError, match="an option is a function that a notebook or script defined; define it there"):
        import_function(first, where="an option")


def test_a_function_whose_name_another_one_has_by_now_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    own = doubled
    monkeypatch.setitem(globals(), "doubled", lambda number: number)
    name = given_name(own)
    assert name == f"{__name__}:doubled (here)" and GIVEN.pop(name) is own
    monkeypatch.undo()
    assert given_name(own) == f"{__name__}:doubled" and not GIVEN
