"""What published claims look like on sums of one to three digits: as `claims`, in minutes per arm.

python -m benchmarks claims-sums                    all runs that are missing
python -m benchmarks claims-sums --arms DAPO        these alone; further options as of `claims`
python -m benchmarks claims-sums --out benchmarks/results/amd-zen-4/claims-sums    goes on with those that are stored
python -m benchmarks claims-sums --save             also the table of docs/systems-measured.md
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.claims import measure


def main(arguments: Sequence[str]) -> None:
    measure("claims-sums", __doc__, "sums", arguments)
