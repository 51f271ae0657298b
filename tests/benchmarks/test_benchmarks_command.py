"""`python -m benchmarks`: its help, what it saves, and how seconds are compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import BENCHMARKS, COMMANDS, command, files
from benchmarks.__main__ import first_line, main
from benchmarks.processor import processor_family
from benchmarks.timing import ratios, take_turns
from podsrl.errors import UsageError
from podsrl.lib.machine import processor_facts


@pytest.mark.parametrize("name", [*BENCHMARKS, *COMMANDS])
def test_the_help_of_a_benchmark_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    page = capsys.readouterr().out
    assert ended.value.code == 0
    assert page.startswith(f"usage: python -m benchmarks {name} ")
    assert page.count(f"python -m benchmarks {name}") >= 2 and first_line(name) in page


def test_a_result_is_printed_and_saved_with_its_hardware_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(files, "RESULTS", tmp_path)
    torch.set_num_threads(2)
    parser = command.new_parser("some-name", "Some benchmark.")
    parser.add_argument("--size", type=int)
    arguments = ["--size", "3", "--json", "--save"]
    if files.commit() is None:
        pytest.skip("not in a clone")
    command.measure(parser, arguments, lambda options, say: {"size": options.size, "left": sorted(vars(options))})
    assert torch.get_num_threads() == 2
    result = json.loads(capsys.readouterr().out)
    assert (result["name"], result["size"], result["left"]) == ("some-name", 3, ["size"])
    assert "(1 thread)" in result["hardware"] and result["options"] == {"size": 3}
    assert result["commit"] == files.commit() and 0 <= result["minutes"] < 5 and result["has_changes"] in (True, False)
    [file] = tmp_path.glob("*/some_name.json")
    assert json.loads(file.read_text()) == result == files.read_all("some-name")[result["processor"]]
    assert file.parent.name == files.folder_name(result["processor"])


def test_a_result_has_the_name_of_the_device_that_the_options_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some GPU 7")
    assert files.stamp("some-name", {"device": "cuda", "size": 3})["processor"] == "Some GPU 7"
    here = processor_family(processor_facts())
    assert files.stamp("some-name", {"device": "cpu"})["processor"] == here
    assert files.stamp("some-name", {"size": 3})["processor"] == here != "Some GPU 7"
    assert files.path_of("some-name", "Some GPU 7").parent.name == "some-gpu-7"


def test_a_quick_size_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "RESULTS", tmp_path)
    parser = command.new_parser("some-name", "Some benchmark.")
    parser.add_argument("--quick", action="store_true")
    with pytest.raises(UsageError, match="--save with --quick"):
        command.measure(parser, ["--save", "--quick"], lambda options, say: pytest.fail("ran"))


def test_arms_take_turns_in_an_order_that_rotates() -> None:
    order: list[str] = []

    def arm(name: str) -> int:
        order.append(name)
        return len(order)

    found = take_turns({"a": lambda i: arm("a"), "b": lambda i: arm("b"), "c": lambda i: 100 * i + arm("c")}, 3)
    assert "".join(order) == "abcbcacab"
    assert found == {"a": [1, 6, 8], "b": [2, 4, 9], "c": [3, 105, 207]}


def test_a_ratio_is_taken_within_a_round() -> None:
    found = ratios([6.0, 8.0, 9.0], [2.0, 4.0, 1.0])
    assert found == {"min": 2.0, "median": 3.0, "max": 9.0}
