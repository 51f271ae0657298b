"""Draw docs/images/slots.svg: which rollout stands in which slot, step by step, under eight schedules.

Run from the root: python -m docs.images.slots        (always draws the same picture)
"""

from __future__ import annotations

from pathlib import Path

from slots_figure import slots_figure

from benchmarks.infinite_sampling.lengths import gsm8k_set
from benchmarks.infinite_sampling.schedules import Schedule, simulate_group
from podsrl.report.figures.svg import save_svg

SHOWN = {
    "full group": Schedule("full"),
    "micro groups": Schedule("micro"),
    "continuous, first come first served": Schedule("continuous"),
    "continuous, shortest first, lengths known": Schedule("continuous+sjf", "perfect"),
    "continuous, longest first, predicted": Schedule("continuous+ljf", "prompt"),
    "continuous, grouped, lengths known": Schedule("continuous+grouped", "perfect"),
    "probed, longest first, predicted": Schedule("probed+ljf", "tokens"),
    "dynamic, longest first, predicted": Schedule("dynamic+ljf", "tokens", "half"),
}


def main() -> None:
    lengths = gsm8k_set(32)
    group = lengths.groups[0]
    spans = {name: simulate_group(lengths, group, schedule).spans for name, schedule in SHOWN.items()}
    title = "32 rollouts with the lengths of GSM8K solutions, on 8 slots (full group: 32; dynamic: half its memory)"
    print(save_svg(slots_figure(spans, [row.length for row in group], title=title), Path(__file__).with_suffix(".svg")))


if __name__ == "__main__":
    main()
