"""What the tests of this folder would miss: mistakes planted in copies of the source."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from planted import FAULTS, NUM_PARTS, SOURCE, Fault

NUM_SEEN = 19
"""Of the planted mistakes; the others give their reason."""


def test_every_planted_mistake_finds_its_line(tmp_path: Path) -> None:
    for fault in FAULTS:
        copy = tmp_path / fault.file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((SOURCE / fault.file).read_text())
        fault.plant(tmp_path)
    assert len([fault for fault in FAULTS if not fault.unseen]) == NUM_SEEN
    with pytest.raises(ValueError, match=r"'no such text' stands 0 times in types\.py; wanted once"):
        Fault("types.py", "no such text", "").plant(SOURCE)


@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_planted_mistakes_are_seen(part: int) -> None:
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("planted.py")), str(part)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (_, without), *results = [json.loads(line) for line in done.stdout.splitlines()]
    assert without is None, f"the scenario fails on the source as it is: {without}"
    faults = FAULTS[part::NUM_PARTS]
    assert [name for name, _ in results] == [fault.name for fault in faults]
    assert {fault.name for fault in faults if not fault.unseen} - {name for name, error in results if error} == set()
