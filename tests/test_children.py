"""A child that is forked does what a fresh interpreter does, and from outside it looks like one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import children

pytestmark = [
    pytest.mark.slow,  # the process that it forks from imports for seconds
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux can make a fork a child of another process"),
]
# Many short sleeps: a signal that comes just before a sleep is noticed behind it.
HANG = "import time\nprint('here', flush=True)\nfor _ in range(12_000): time.sleep(0.05)"


@pytest.fixture(scope="module", autouse=True)
def nursery() -> Iterator[children.Nursery]:
    """It has started before the first test, and what it has imported is in no test's time."""
    assert children.run([sys.executable, "-c", ""]).returncode == 0
    return children.nursery()


def python(program: str, *words: str) -> list[str]:
    return [sys.executable, "-c", program, *words]


def said(command: list[str], **options: Any) -> Any:
    """What a child prints as JSON."""
    return json.loads(children.run(command, stdout=children.PIPE, check=True, **options).stdout)


def test_a_child_is_a_fork_and_one_of_this_process() -> None:
    assert said(python("import sys, os, json; print(json.dumps(['torch' in sys.modules, os.getppid()]))")) == [
        True,
        os.getpid(),
    ]


def test_output_errors_and_input_are_those_of_its_pipes() -> None:
    program = "import sys; print(sys.stdin.read().upper()); print('wrong', file=sys.stderr); sys.exit(3)"
    done = children.run(python(program), input="word", capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "WORD\n", "wrong\n")
    done = children.run(python(program), input=b"word", stdout=children.PIPE, stderr=children.STDOUT)
    assert (done.returncode, sorted(done.stdout.split())) == (3, [b"WORD", b"wrong"])
    with pytest.raises(children.CalledProcessError):
        children.run(python("1 / 0"), stderr=children.DEVNULL, check=True)


@pytest.mark.parametrize(
    ("program", "code", "error"),
    [
        ("", 0, ""),
        ("raise SystemExit", 0, ""),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit('why')", 1, "why\n"),
        ("import sys; sys.exit(True)", 1, ""),
        ("import os; os._exit(4)", 4, ""),
        ("raise ValueError('why')", 1, "ValueError: why\n"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt\n"),
        ("import os; os.kill(os.getpid(), 9)", -9, ""),
        ("import os; os.kill(os.getpid(), 15)", -15, ""),
        ("import sys; sys.excepthook = lambda *_: print('hook', file=sys.stderr); 1 / 0", 1, "hook\n"),
        ("import atexit, sys; atexit.register(lambda: print('end', file=sys.stderr))", 0, "end\n"),
        (
            "import sys, threading, time\nthreading.Timer(0.1, lambda: print('end', file=sys.stderr)).start()",
            0,
            "end\n",
        ),
    ],
)
def test_it_ends_as_an_interpreter_does(program: str, code: int, error: str) -> None:
    done = children.run(python(program), stderr=children.PIPE, text=True)
    assert done.returncode == code
    assert done.stderr.endswith(error) and bool(done.stderr) == bool(error), done.stderr


def test_a_signal_ends_it_and_a_time_limit_kills_it() -> None:
    with children.Popen(python(HANG), stdout=children.PIPE, stderr=children.DEVNULL) as process:
        assert process.stdout is not None and process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGINT)
        assert process.wait() == -signal.SIGINT
    with pytest.raises(children.TimeoutExpired):
        children.run(python("import time; time.sleep(600)"), timeout=0.1)


def test_a_signal_that_is_ignored_here_is_ignored_there(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import json, signal; print(json.dumps([signal.getsignal(n) == signal.SIG_IGN for n in (1, 2, 15)]))"
    assert said(python(program)) == [False, False, False]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert said(python(program)) == [False, True, False]
    finally:
        signal.signal(signal.SIGINT, before)


def test_folder_environment_words_and_session_are_those_asked_for_also_in_proc(tmp_path: Path) -> None:
    environment = {"ONE": "1", "EMPTY": "", "LONG": "x" * 50_000, "ODD": "Ω \udcff = \n"} | {
        name: value for name, value in os.environ.items() if name.startswith(children._READ_AT_IMPORT)
    }
    program = (
        "import json, os, sys; found = os.getcwd(), dict(os.environ), sys.argv, sys.orig_argv, os.getsid(0);"
        "print(json.dumps(found), flush=True); sys.stdin.read()"
    )
    command = python(program, "-x", "a b", "Ω")
    with children.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
        stdin=children.PIPE,
        stdout=children.PIPE,
    ) as process:
        assert process.stdout is not None
        folder, variables, argv, original, session = json.loads(process.stdout.readline())
        assert (folder, variables, argv, original) == (str(tmp_path), environment, ["-c", *command[3:]], command)
        assert session == process.pid != os.getsid(0)
        shown = Path(f"/proc/{process.pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        assert shown == [os.fsencode(word) for word in command]
        shown = Path(f"/proc/{process.pid}/environ").read_bytes().rstrip(b"\0").split(b"\0")
        assert set(shown) == {os.fsencode(f"{name}={value}") for name, value in environment.items()}
        assert os.path.realpath(f"/proc/{process.pid}/cwd") == str(tmp_path)


def test_it_has_the_descriptors_that_are_passed_and_no_others() -> None:
    pipes = [os.pipe() for _ in range(20)]
    passed = [there for _, there in pipes]
    own = passed[-1] + 100  # a high number, which the child has too
    os.dup2(passed[0], own)
    program = (
        "import json, os, sys\nfor word in sys.argv[1:]: os.write(int(word), word.encode())\n"
        "found = [n for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}')]\n"
        "print(json.dumps(sorted(map(int, found))))"
    )
    try:
        numbers = [*passed, own]
        found = said(python(program, *map(str, numbers)), pass_fds=numbers)
        assert found == [0, 1, 2, *sorted(numbers)]
        assert os.read(pipes[0][0], 100).decode() == f"{passed[0]}{own}"
        assert all(os.read(here, 100).decode() == str(there) for here, there in pipes[1:])
    finally:
        for number in {own, *(end for pipe in pipes for end in pipe)}:
            os.close(number)


def test_a_module_and_a_script_find_what_an_interpreter_would(tmp_path: Path) -> None:
    program = "import json, sys; print(json.dumps([__name__, __file__, sys.argv, sys.path[0]]))"
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "named.py").write_text(program, encoding="utf-8")
    (tmp_path / "script.py").write_text("import named_too", encoding="utf-8")
    (tmp_path / "named_too.py").write_text(program, encoding="utf-8")
    for words, options in (
        (["-m", "named", "x"], {"cwd": folder}),
        ([str(folder / "named.py"), "x"], {}),
        ([str(tmp_path / "script.py")], {}),
        (["-P", "-m", "named"], {"env": os.environ | {"PYTHONPATH": str(folder)}}),
        (["-P", "-c", "import named"], {"env": os.environ | {"PYTHONPATH": str(folder)}}),
    ):
        command = [sys.executable, *words]
        fresh = subprocess.run(command, stdout=subprocess.PIPE, check=True, **options)  # type: ignore[call-overload]
        assert said(command, **options) == json.loads(fresh.stdout)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["true"], {}),
        (["python3", "-c", ""], {}),
        (f"{sys.executable} -c 1", {"shell": True}),
        ([sys.executable, "-I", "-c", ""], {}),
        ([sys.executable, "-P", "-I", "-c", ""], {}),
        ([sys.executable, "-c", ""], {"env": {"PYTHONHASHSEED": "3"}}),
        ([sys.executable, "-c", ""], {"env": {"HF_HOME": "elsewhere"}}),
        ([sys.executable, "-c", ""], {"executable": "/bin/true"}),
        ([sys.executable, "-c", ""], {"close_fds": False}),
        ([sys.executable, "-c", ""], {"umask": 0o77}),
        ([sys.executable, "-c", ""], {"process_group": 0}),
        ([os.fsencode(sys.executable), b"-c", b""], {}),
    ],
)
def test_what_a_fork_does_otherwise_is_started_as_usual(
    words: Any, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork(*_: Any) -> int:
        raise AssertionError("was forked")

    monkeypatch.setattr(children.Nursery, "fork", fork)
    usual: list[Any] = []
    monkeypatch.setattr(subprocess.Popen, "_execute_child", lambda _, *values: usual.append(values[0]))
    monkeypatch.setattr(subprocess.Popen, "__del__", lambda _: None)
    children.Popen(words, **options)
    assert usual == [words]
