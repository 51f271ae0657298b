"""A measured figure of README and docs stands in a part that is written from a result file, or is declared here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import pages
from loops import each

UNIT = r"(?:ms|µs|s|h|seconds?|minutes?|hours?|times|[MG]i?B|GFLOP/s|tokens/s|tokens per second|milliseconds)\b"
FIGURE = re.compile(rf"(?<![\w.,-])\d(?:[\d,.]*\d)?(?:×|\s?(?:%|{UNIT}))")
"""A number and its unit; in "64 × 16", a size, the sign stands apart."""
OF_A_MACHINE = re.compile(r"\b(?:AMD|EPYC|Intel|Xeon|Sapphire)\b")
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")

LEFT_OUT = {
    "options.md": "generated from the config's schema",
}
ARITHMETIC = "arithmetic from numbers that stand beside it"
EXAMPLE = "an example of what the text explains"
SETTING = "a setting, a bound or a target of the code"
SHIPPED = "of the models that come with the package, the same on every machine"
ONCE = "measured once by hand; hardware and date stand in the section"
DECLARED: dict[str, dict[str, tuple[str, ...]]] = {
    "README.md": {
        SETTING: (
            "two seeds for 60 seconds each",
            "has 90 % of the held-out questions",
            "(95 % intervals)",
            "- 0.9 %:",
            "- 4 %:",
        ),
        "size of packages": ("environment takes 1.6 GB",),
    },
    "benchmarks.md": {
        SETTING: (
            "until 50, 80 and 90 % are right",
            "CPU seconds to 90 % by",
            "has 90 % at that rate",
            "with a 95 % interval in",
        ),
        ARITHMETIC: ("At p = 1 % that is", "With p = 18 % it is"),
    },
    "budgets.md": {SHIPPED: ("## Questions of mixed difficulty",)},
    "check-reward.md": {SETTING: ("or 10 s)", "default 300 s")},
    "comparing.md": {
        EXAMPLE: ('"1.83× (1.60–2.05)"',),
        SETTING: ("95 % interval", "of each arm to 50, 80, 90 and 95 %"),
    },
    "engine.md": {
        SETTING: ("a bound by default: 80 %", "if it is 10 % faster"),
        ONCE: ("the engine was 5.5 times as fast", "the timing took 55 to 60 ms of CPU time, and 200 to 260 ms"),
        ARITHMETIC: ("alone takes 4.8 ms per step",),
    },
    "from-trl.md": {ONCE: ("from 1 % to 100 % right on a CPU, in 33 seconds",)},
    "generators.md": {
        ARITHMETIC: ("## On a GPU",),
        SETTING: (
            "by default 80 %",
            "on a CPU 1 GiB",
            "ends it after 60 seconds",
            "say so after 30 seconds",
            "end after 30 seconds without",
            "kills its processes 30 seconds later",
        ),
        ONCE: (
            "1.41 times the tokens per second of vLLM",
            "1.51 times after prompts",
            "## vLLM in the trainer's process",
        ),
    },
    "long-runs.md": {
        SETTING: ("Growth below 1 MiB per", "One is written every 60 seconds", "a checkpoint every 20 seconds"),
        ARITHMETIC: ("room for 3 × 3 times the weights",),
    },
    "metrics.md": {
        SETTING: ("down to 0.25 s", "95 % interval"),
        EXAMPLE: ('"training 9.1%, held out 2.7% (step 40)"',),
    },
    "planner.md": {
        ONCE: ("## Against what was observed",),
        SETTING: ("40 s of probes", "of the fit: 40 times", "middle 90 %", "more than 5 % of the time", "above 30 %"),
    },
    "reading-the-report.md": {
        SETTING: ("95 % interval", "at the token limit | 10 %", "without signal | 50 %", "without a reward | 1 %"),
        EXAMPLE: ("updated 3 s ago",),
    },
    "real-models.md": {
        ONCE: ("questions took 14 s of CPU time",),
        SETTING: (
            "10 seconds of CPU time per 256",
            "and 1 GiB of memory",
            "at most 90 % of the tokens",
        ),
    },
    "rewards.md": {SETTING: ("and 2 GiB each",)},
    "when-pods-helps.md": {
        SETTING: (
            "has 90 % right",
            "has 90 % of two-digit sums",
            "(4 %)",
            "is behind them from 4 %",
            "cheap: from 4 %",
            "(18 %)",
            "(59 %)",
            "## How it was measured",
        ),
        SHIPPED: ("lucky guesses** (0.9 %)", "(1.4 %)"),
        "read off the tables that stand there": ("## How far the intervals can be trusted",),
    },
    "trackers.md": {
        SETTING: ("not answer within 20 seconds", "at most 60 seconds"),
        ONCE: ("took between 0.70 and 1.99 times as long",),
    },
}
"""Page -> reason -> snippets of its text, or headings of whole sections."""


def visible(text: str) -> str:
    """A page without the parts that files give, code, comments and the targets of links."""
    for pattern in (pages.MARK, r"(?ms)^```.*?^```", r"(?s)<!--.*?-->", r"`[^`\n]*`"):
        text = re.sub(pattern, "", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def section_at(text: str, place: int) -> str:
    """The section, of any level, that a place of a page is in."""
    starts = [found.start() for found in re.finditer(r"(?m)^#+ ", text)]
    before = [start for start in starts if start <= place]
    return text[before[-1] if before else 0 : next((start for start in starts if start > place), len(text))]


def places_of(snippet: str, text: str) -> list[tuple[int, int]]:
    """Where a snippet stands, whatever the line breaks; a heading stands for its section, with those below it."""
    if snippet.startswith("## "):
        found = re.search(rf"(?ms)^{re.escape(snippet)}$.*?(?=^## |\Z)", text)
        return [found.span()] if found else []
    return [found.span() for found in re.finditer(r"\s+".join(map(re.escape, snippet.split())), text)]


def undeclared(name: str, text: str) -> list[str]:
    """Figures of a page's visible text that no snippet declares."""
    snippets = [each for snippets in DECLARED.get(name, {}).values() for each in snippets]
    spans = [span for snippet in snippets for span in places_of(snippet, text)]
    return [
        text[max(0, found.start() - 40) : found.end() + 20]
        for found in FIGURE.finditer(text)
        if not any(start <= found.start() and found.end() <= end for start, end in spans)
    ]


@each("page", pages.pages())
def test_a_page_has_no_measured_figure_without_a_file(page: Path) -> None:
    if page.name in LEFT_OUT:
        pytest.skip(LEFT_OUT[page.name])
    assert undeclared(page.name, visible(page.read_text(encoding="utf-8"))) == []


@each("name", DECLARED)
def test_what_is_declared_stands_on_its_page_and_what_was_measured_once_says_on_what_and_when(name: str) -> None:
    [page] = [page for page in pages.pages() if page.name == name]
    text = visible(page.read_text(encoding="utf-8"))
    for reason, snippets in DECLARED[name].items():
        for snippet in snippets:
            places = places_of(snippet, text)
            assert places, f"{snippet!r} is no longer there; declare it no more"
            if reason == ONCE:
                around = text[slice(*places[0])] if snippet.startswith("## ") else section_at(text, places[0][0])
                assert OF_A_MACHINE.search(around) and DATE.search(around), snippet


@pytest.mark.parametrize(
    "line",
    [
        "is 3.1× as fast",
        "takes 12 ms",
        "after 3.5 seconds",
        "uses 8.4 % of it",
        "1,234 tokens/s",
        "two (2.5 times) more",
    ],
)
def test_a_measured_figure_is_found(line: str) -> None:
    assert undeclared("some.md", line)


@pytest.mark.parametrize("line", ["64 × 16 rollouts", "64 → 16", "m = 16", "step 40", "see `12 ms`", "version 2.13.0"])
def test_a_size_or_a_setting_is_none(line: str) -> None:
    assert undeclared("some.md", visible(line)) == []
