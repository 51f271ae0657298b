"""What a test leaves behind fails it and no other, in one run of tests that leave something behind, or do not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import leftovers

CONFTEST = """
import json
from pathlib import Path

import leftovers

leftovers.ROOT = Path(__file__).parents[1] / "root"
found = {}

def pytest_runtest_logreport(report):
    name = report.nodeid.partition("::")[2]
    found[name] = found.get(name, "") + (f"{report.longreprtext}\\n" if report.failed else "")

def pytest_sessionfinish():
    Path(__file__).with_name("found.json").write_text(json.dumps(found))
"""

TESTS = """
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import pytest

import leftovers

OUTSIDE = leftovers.ROOT.parent / "outside"
ENVIRONMENT = dict(os.environ)
KEPT_PROCESSES = (b"of_this_module",)
kept = []

def shell(words):
    subprocess.run(["sh", "-c", words], check=True)

def test_a_process_that_is_waited_for():
    subprocess.Popen(["sleep", "0"]).wait()

def test_a_process_that_ends_soon():
    shell("sleep 0.1 > /dev/null 2>&1 &")

def test_the_time_to_end_is_short_from_now_on():
    leftovers.GRACE_SECONDS = 0.1

def test_a_process():
    subprocess.Popen(["sleep", "601"])

def test_an_orphan_with_a_session():
    shell("setsid sleep 603 > /dev/null 2>&1 &")

def test_a_process_that_the_module_keeps():
    kept.append(subprocess.Popen(["sh", "-c", "sleep 611; true of_this_module"], start_new_session=True))

def test_it_is_kept():
    assert kept[0].poll() is None
    os.killpg(kept[0].pid, signal.SIGKILL), kept[0].wait()

def test_a_process_and_its_child():
    subprocess.Popen(["sh", "-c", "sleep 604; true"])

@pytest.fixture(scope="module")
def of_module():
    os.environ["OF_MODULE"] = "1"
    folder = pathlib.Path(tempfile.mkdtemp())
    (OUTSIDE / "of_module").touch()
    process = subprocess.Popen(["sleep", "607"])
    yield process
    process.kill(), process.wait()
    del os.environ["OF_MODULE"]

def test_with_a_process_of_its_module(of_module):
    assert of_module.poll() is None

def test_with_it_again_and_one_of_its_own(of_module):
    subprocess.Popen(["sleep", "608"])

def test_a_file_in_the_repository_by_a_process():
    shell(f"touch {leftovers.ROOT}/of_process")

def test_a_temporary_file():
    tempfile.mkstemp()

def test_a_file_outside():
    (OUTSIDE / "opened").write_text("")

def test_a_file_moved_outside(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "file").rename(OUTSIDE / "moved")

def test_a_file_outside_by_a_link(tmp_path):
    (tmp_path / "link").symlink_to(OUTSIDE)
    (tmp_path / "link" / "linked").touch()

def test_files_that_it_removes(tmp_path):
    for folder in (OUTSIDE, leftovers.ROOT, pathlib.Path(tempfile.gettempdir())):
        (folder / "for_now").mkdir()
        (folder / "for_now" / "file").touch()
        shutil.rmtree(folder / "for_now")
    with tempfile.NamedTemporaryFile(), tempfile.TemporaryFile(), tempfile.TemporaryDirectory():
        pass

def test_files_in_its_folder(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()

def test_what_tools_write():
    for name in (".hypothesis", "__pycache__"):
        (leftovers.ROOT / name).mkdir()
        (leftovers.ROOT / name / "file").touch()

def test_a_new_variable():
    os.environ["NEW"] = "1"

def test_no_variable():
    del os.environ["HOME"]

def test_the_environment_is_as_before():
    own = {"PYTEST_CURRENT_TEST": "", "OF_MODULE": "1"}
    assert os.environ | own == ENVIRONMENT | own
    assert os.environ == {key.decode(): value.decode() for key, value in os.environb.items()}

def test_a_folder():
    os.chdir("/")

def test_a_folder_that_is_gone(tmp_path):
    (tmp_path / "gone").mkdir()
    os.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

def test_a_handler():
    signal.signal(signal.SIGTERM, lambda *_: None)

def test_the_handler_is_as_before():
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    signal.signal(signal.SIGTERM, signal.signal(signal.SIGTERM, signal.SIG_IGN))

def test_orphans():
    ctypes.CDLL(None).prctl(36, 0)

def test_orphans_are_adopted_as_before():
    assert leftovers.children.adopts_orphans()

def test_a_failure_and_a_variable():
    os.environ["NEW"] = "1"
    assert 1 == 2
"""

LEFT = {
    "a_process": r"the process \d+ \(sleep 601\)",
    "an_orphan_with_a_session": r"the process \d+ \((?:setsid )?sleep 603\)",
    "a_process_and_its_child": r"the process \d+ \(sh -c sleep 604; true\); the process \d+ \(sleep 604\)",
    "with_it_again_and_one_of_its_own": r"the process \d+ \(sleep 608\)",
    "a_file_in_the_repository_by_a_process": "the file {base}/root/of_process",
    "a_temporary_file": r"the file \S+/pods-\w+/tmp\w+",
    "a_file_outside": "the file {base}/outside/opened, outside its folder",
    "a_file_moved_outside": "the file {base}/outside/moved, outside its folder",
    "a_file_outside_by_a_link": "the file {base}/outside/linked, outside its folder",
    "a_new_variable": "a changed environment: NEW",
    "no_variable": "a changed environment: HOME",
    "a_folder": "the current folder /",
    "a_folder_that_is_gone": "the current folder that is gone",
    "a_handler": "a handler of SIGTERM",
    "orphans": "orphans that another process adopts",
    "a_failure_and_a_variable": "a changed environment: NEW",
}
LEFT_NOTHING = sorted(set(re.findall(r"^def test_(\w+)", TESTS, re.M)) - LEFT.keys())


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the repository and outside of these tests, and of the tests themselves."""
    base = Path(os.path.realpath(tmp_path_factory.mktemp("leftovers")))
    for name in ("root", "outside", "tests"):
        (base / name).mkdir()
    (base / "tests" / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (base / "tests" / "test_it.py").write_text(TESTS, encoding="utf-8")
    return base


@pytest.fixture(scope="module")
def said(base: Path) -> Mapping[str, str]:
    """What is said of each test that failed."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "leftovers", "-p", "no:cacheprovider", "--rootdir=.", "test_it.py"],
        cwd=base / "tests",
        env={**os.environ, "PYTHONPATH": str(Path(leftovers.__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    said = json.loads((base / "tests" / "found.json").read_text(encoding="utf-8"))
    assert len(said) == len(LEFT) + len(LEFT_NOTHING)
    return {name.removeprefix("test_"): words for name, words in said.items()}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_behind_is_said_with_the_name_of_the_test(name: str, base: Path, said: Mapping[str, str]) -> None:
    [line] = [line for line in said[name].splitlines() if "left behind" in line]
    wanted = LEFT[name].replace("{base}", re.escape(str(base)))
    assert re.fullmatch(rf"test_it\.py::test_{name} left behind: {wanted}", line), line
    assert ("assert 1 == 2" in said[name]) == (name == "a_failure_and_a_variable")


@pytest.mark.parametrize("name", LEFT_NOTHING)
def test_who_leaves_nothing_behind_is_not_blamed_and_finds_all_as_it_was(name: str, said: Mapping[str, str]) -> None:
    assert said[name] == ""
