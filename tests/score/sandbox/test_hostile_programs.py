"""Over seventy hostile programs: none is paid, none does anything outside of its sandbox, nothing is left of them."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from podsrl.score.sandbox import REMOTE, WEAKER, Limits, ProgramTests, remote, run_tests
from podsrl.score.sandbox.remote import ADDRESS, service
from podsrl.tools.attack.programs import HOSTILE, ROUGH, program
from waiting import processes, wait_for, words_of

sys.path.insert(0, str(Path(__file__).parent))
from fusion import fusion

PROGRAMS = {name: text for _, programs in HOSTILE.values() for name, text in programs.items()}
THERE = {
    name: text
    for family, (_, programs) in HOSTILE.items()
    if family not in {*ROUGH, "never answers"}
    for name, text in programs.items()
}
"""What ends by itself, for the remote kind."""
ASSERTS = ProgramTests(
    asserts=(
        "assert secret(1) == 731",
        "assert abs(secret(2) - 2.625) < 1e-6",
        "assert sorted(secret('ab')) == ['q', 'z'] and len(secret('ab')) == 2",
        "assert math.isclose(secret(4), 0.375)",
        "found = secret(5)\nassert isinstance(found, dict) and found == {'k': [9, 8]}",
    )
)
FILE = ProgramTests(
    text="""
import unittest
from solution import secret

class Cases(unittest.TestCase):
    def test_one(self):
        self.assertEqual(secret(1), 731)

    def test_two(self):
        self.assertAlmostEqual(secret(2), 2.625)

    def test_three(self):
        self.assertIn(secret(3), ("qz", "zq"))

def check(candidate):
    assert candidate(1) == 731
    assert 2.62 < candidate(2) < 2.63
""",
    entry_point="secret",
)
PAIRS = ProgramTests(pairs=(("1\n", "731\n"), ("2\n", "2.625\n")))
GOOD = """
def secret(x):
    return {1: 731, 2: 2.625, "ab": {"q", "z"}, 4: 0.375, 5: {"k": [9, 8]}, 3: "qz"}[x]

if __name__ == "__main__":
    print(secret(int(input())))
"""
WORDS = {"NAME": "secret", "ANSWER": GOOD}
pytestmark = pytest.mark.usefixtures("bubblewrap")


def run_all(program: str, limits: Limits) -> list[list[bool]]:
    return [run_tests(program, tests, limits=limits) for tests in (ASSERTS, FILE, PAIRS)]


def test_an_honest_program_is_paid() -> None:
    assert run_all(GOOD, Limits()) == [[True] * 5, [True] * 4, [True] * 2]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hostile_program_is_not_paid_and_does_nothing_outside(name: str, tmp_path: Path) -> None:
    mark = (16 << 20) + os.getpid()  # the limit of its disk, so that command lines show whose they are
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        words = {"OUTSIDE": str(tmp_path), "PORT": str(server.getsockname()[1]), "MARK": str(mark)}
        results = run_all(program(PROGRAMS[name], words | WORDS), Limits(seconds=0.7, disk_bytes=mark))
        with pytest.raises(BlockingIOError):
            server.accept()
    assert not any(map(any, results)), results
    assert [len(results[0]), len(results[2])] == [5, 2]
    assert not any(tmp_path.iterdir())
    wait_for(lambda: not [pid for pid in processes() if str(mark) in " ".join(words_of(pid))], seconds=5)


@pytest.mark.parametrize("name", THERE)
def test_a_service_pays_for_none_either(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"OUTSIDE": str(tmp_path), "PORT": "9", "MARK": "60"}
    with fusion() as there:
        monkeypatch.setenv(ADDRESS, there.url)
        monkeypatch.setattr(remote, "MAX_ROUNDS", 20)
        service.cache_clear()
        results = run_tests(program(THERE[name], words | WORDS), ASSERTS, limits=Limits(seconds=0.7), kind=REMOTE)
    assert results == [False] * 5 and there.bodies


@pytest.mark.parametrize("name", ["connects", "reads passwords"])
def test_what_must_not_be_possible_is_paid_where_it_is(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        words = {"PORT": str(server.getsockname()[1]), **WORDS}
        assert run_tests(program(PROGRAMS[name], words), ASSERTS, kind=WEAKER) == [True] * 5
