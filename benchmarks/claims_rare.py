"""What hints are worth where hardly anything is right: as `claims`, on sums of two digits from 1 % right.

python -m benchmarks claims-rare                    all runs that are missing
python -m benchmarks claims-rare --out benchmarks/results/amd-zen-4/claims-rare    goes on with those that are stored
python -m benchmarks claims-rare --save             also the table of docs/systems-measured.md
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.claims import measure


def main(arguments: Sequence[str]) -> None:
    measure("claims-rare", __doc__, "rare", arguments)
