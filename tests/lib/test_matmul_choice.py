"""A machine's rule: measured once, kept in the user's cache folder, and never an error."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from podsrl.errors import UsageError
from podsrl.lib import matmul
from podsrl.lib.matmul import FIXED, NEVER, Choice, Rule, Timing, choose, current, is_available, use, uses_onednn

WON = [Timing(use="many_rows", work=4_000_000, mkl_seconds=2.0, onednn_seconds=1.0)]
RULE = Rule(few_rows=math.inf, many_rows=4_000_000, update=math.inf)
OTHER = Rule(few_rows=5, many_rows=6, update=7)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's empty cache folder, on a machine where both libraries can be had."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(matmul, "is_available", lambda: True)
    a_new_process(monkeypatch)
    return tmp_path


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each measurement."""
    times: list[int] = []

    def measure() -> list[Timing]:
        times.append(torch.get_num_threads())
        return WON

    monkeypatch.setattr(matmul, "measure", measure)
    return times


def a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "_known", {})
    use(None)


def test_a_machine_is_measured_once(folder: Path, measured: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose().rule == RULE and choose().rule == RULE and len(measured) == 1
    a_new_process(monkeypatch)
    assert choose().rule == RULE and len(measured) == 1
    [file] = (folder / "podsrl").iterdir()
    assert json.loads(file.read_text()) == {"machine": matmul.this_machine(), "rule": RULE.to_json()}


@pytest.mark.parametrize("name", ["ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_CBWR"])
def test_an_environment_that_chooses_other_kernels_is_another_machine(
    name: str, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = choose()
    with monkeypatch.context() as changed:
        changed.setenv(name, "of another machine")
        second = choose()
    assert len(measured) == 2 and first.machine != second.machine
    assert f"{name}=of another machine" in second.machine["environment"]
    assert choose() == first and len(measured) == 2


def test_another_number_of_threads_is_another_machine(measured: list[int]) -> None:
    before = torch.get_num_threads()
    choose()
    try:
        torch.set_num_threads(before + 1)
        choose()
    finally:
        torch.set_num_threads(before)
    assert measured == [before, before + 1]


def test_versions_and_processor_are_part_of_a_machine() -> None:
    machine = matmul.this_machine()
    assert machine["torch"] == torch.__version__ and machine["processor"]
    assert not torch.backends.mkl.is_available() or "Math Kernel Library" in machine["libraries"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "\x00\xff",
        '{"machine": {}, "rule": {"few_rows": 1, "many_rows": 1, "update": 1}}',
        '{"machine": MACHINE, "rule": {"few_rows": "soon"}}',
        '{"machine": MACHINE}',
    ],
)
def test_a_damaged_file_is_measured_again_and_replaced(
    text: str, folder: Path, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = matmul.rule_path(matmul.this_machine())
    path.parent.mkdir()
    path.write_text(text.replace("MACHINE", json.dumps(matmul.this_machine())))
    assert choose().rule == RULE and len(measured) == 1
    assert matmul.read_rule(matmul.this_machine()) == RULE
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_keeps_the_choice_for_the_process(
    folder: Path, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "podsrl").write_text("a file in the folder's place")
    assert choose().rule == choose().rule == RULE and len(measured) == 1
    a_new_process(monkeypatch)
    assert choose().rule == RULE and len(measured) == 2


def test_a_user_without_a_home_has_a_choice_too(monkeypatch: pytest.MonkeyPatch, measured: list[int]) -> None:
    def no_home() -> Path:
        raise RuntimeError("could not determine home directory")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert choose().rule == RULE and len(measured) == 1


def test_of_two_that_measure_at_once_the_first_to_write_decides() -> None:
    machine = matmul.this_machine()
    assert matmul.write_rule(machine, RULE) == RULE
    assert matmul.write_rule(machine, OTHER) == RULE == matmul.read_rule(machine)


def test_a_file_system_without_links_keeps_a_choice_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError("operation not supported")

    monkeypatch.setattr(matmul.os, "link", no_links)
    machine = matmul.this_machine()
    assert matmul.write_rule(machine, RULE) == RULE == matmul.read_rule(machine)
    assert matmul.write_rule(machine, OTHER) == RULE == matmul.read_rule(machine)


def test_what_is_insisted_on_is_not_measured(folder: Path, measured: list[int]) -> None:
    assert choose("mkl") == Choice(rule=NEVER, machine={})
    assert choose("onednn") == Choice(rule=Rule(few_rows=1e6, many_rows=1e6, update=1e6), machine={})
    assert not measured and not list(folder.iterdir())


def test_where_there_is_one_library_nothing_is_measured(
    folder: Path, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul, "is_available", lambda: False)
    assert choose().rule == NEVER and choose("mkl").rule == NEVER
    with pytest.raises(UsageError, match=r"model\.matmul = 'onednn'.*x86"):
        choose("onednn")
    use(FIXED["onednn"])  # another process's choice, say
    assert current() == NEVER and not uses_onednn(10**6, 10**12)
    assert not measured and not list(folder.iterdir())


@pytest.mark.parametrize("name", ["arm64", "aarch64", "x86_64", "AMD64"])
def test_only_an_x86_processor_has_a_choice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: name)
    is_built_in = hasattr(torch.ops.mkldnn, "_linear_pointwise") and torch.backends.mkldnn.is_available()
    assert is_available() == (is_built_in and name in ("x86_64", "AMD64"))


def test_the_first_product_chooses_for_the_process(measured: list[int]) -> None:
    with torch.inference_mode():
        assert uses_onednn(100, 4_000_000) and not uses_onednn(100, 3_999_999) and not uses_onednn(32, 4_000_000)
    assert current() == RULE and len(measured) == 1
    use(OTHER)
    assert uses_onednn(32, 5) and not uses_onednn(33, 5) and uses_onednn(33, 6) and len(measured) == 1


def test_a_choice_comes_back_from_json() -> None:
    found = choose()
    assert Choice.of_json(json.loads(json.dumps(found.to_json()))) == found
    rule = RULE.to_json()
    for bad in (None, {}, {"rule": rule}, {"rule": {}, "machine": {}}, {"rule": rule, "machine": 1}):
        assert Choice.of_json(bad) is None
