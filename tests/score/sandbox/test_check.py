"""A machine without bubblewrap, or with one that cannot work, is an error that says what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podsrl.errors import UsageError
from podsrl.score import Scorer
from podsrl.score.sandbox import BWRAP, WEAKER, check, process, require


@pytest.fixture(autouse=True)
def fresh() -> None:
    check._problem.cache_clear()


def told(kind: str) -> str:
    with pytest.raises(UsageError) as caught:
        require(kind)
    return str(caught.value)


def test_without_bubblewrap_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert re.search(r"no `bwrap` in the PATH: install it \(apt-get install bubblewrap.*weaker_code_tests", told(BWRAP))
    require(WEAKER)
    with pytest.raises(UsageError, match="no `bwrap` in the PATH"):
        Scorer({"code_share": 1.0}, "code_tests")
    Scorer({"weaker_code_share": 1.0}, "weaker_code_tests").close()


def test_what_bubblewrap_says_is_told_with_the_cures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check.shutil, "which", lambda name: "/usr/bin/bwrap")
    monkeypatch.setattr(check, "bwrap", lambda *given: ["/bin/sh", "-c", "echo 'bwrap: No permissions' >&2; exit 1"])
    assert "cannot work here (bwrap: No permissions): it needs version 0.8 and user namespaces" in told(BWRAP)
    monkeypatch.setattr(check, "bwrap", lambda *given: ["/nowhere/bwrap"])
    check._problem.cache_clear()
    assert "cannot work here ([Errno 2] No such file" in told(BWRAP)


def test_a_sandbox_in_which_nothing_can_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check.shutil, "which", lambda name: "/usr/bin/bwrap")
    monkeypatch.setattr(check, "_said", lambda: "")
    monkeypatch.setattr(check, "run_tests", lambda *given: [False])
    assert "wanted Linux 5.14 or newer" in told(BWRAP)
    monkeypatch.setattr(check.sys, "platform", "darwin")
    check._problem.cache_clear()
    assert "which is for Linux: use a Linux machine" in told(BWRAP)


def test_root_needs_a_python_that_others_can_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    (hidden / "bin").mkdir(parents=True)
    hidden.chmod(0o700)
    (hidden / "bin" / "python3").touch(0o755)
    monkeypatch.setattr(process.sys, "_base_executable", str(hidden / "bin" / "python3"))
    monkeypatch.setattr(process, "_SYSTEM_PYTHON", str(tmp_path / "none"))
    monkeypatch.setattr(process.os, "geteuid", lambda: 0)
    process.python.cache_clear()
    try:
        assert re.search("cannot read .*/hidden/bin/python3: install a Python that all can read", told(WEAKER))
        monkeypatch.setattr(process.os, "geteuid", lambda: 1000)
        assert process.python() == str(hidden / "bin" / "python3")
    finally:
        process.python.cache_clear()
