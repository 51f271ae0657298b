"""The page in a real browser: at the width of a phone and of a desk, light and dark, live, and without scripts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Browser, find

from podsrl.report.html import write_report
from podsrl.report.live import LivePage
from run_folders import group_line, rollout_entry, step_line, write_comparison, write_run

PHONE, DESK = 390, 1280
LEAST_FONT, LARGEST_FONT = 9.0, 23.0
"""Pixels; of the text of a figure. Its largest letters are those of a headline, 15 points."""
CONTRASTS = {"h1,h2,h3,p,td,th,a,span,b,label,button,pre": 4.5, "svg.plot text": 3.0}
"""Least contrast of texts and what is behind them: WCAG 2.2 AA for text, and for large text and figures."""

pytestmark = pytest.mark.skipif(find() is None, reason="no Chromium is installed")

TEXT_SIZES = """
[...document.querySelectorAll("svg.plot text")].filter((text) => text.getClientRects().length).map((text) =>
  parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)
"""
"""Each text of a figure as the eye sees it: its size times the scale of its drawing."""
CUT_TABLES = """
[...document.querySelectorAll("table")].filter((table) => {
  const box = table.parentElement;
  return table.getClientRects().length && box.scrollWidth > box.clientWidth + 1
    && getComputedStyle(box).overflowX !== "auto";
}).length
"""
WORST_CONTRAST = """
((selector) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (color) => {
    const [r, g, b] = color.map((v) => (v / 255 <= 0.04045 ? v / 3294.6 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = rgb(getComputedStyle(at).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255, 255];
  };
  let worst = [99, ""];
  for (const node of document.querySelectorAll(selector)) {
    if (!node.getClientRects().length || !node.textContent.trim()) continue;
    const style = getComputedStyle(node);
    if (node.closest("svg") && style.fill === "rgb(31, 35, 41)") continue;  // on a coloured bar
    const [a, b] = [light(rgb(node.closest("svg") ? style.fill : style.color)), light(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, node.textContent.slice(0, 40)];
  }
  return worst;
})
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run with an alarm, and a comparison; names as long as a user's."""
    folder = tmp_path_factory.mktemp("pages")
    steps = [step_line(step, **{"groups/zero_signal": 2}) for step in range(1, 30)]
    run = write_run(folder / "a-run-with-quite-a-long-name-for-a-phone", steps=steps)
    comparison = write_comparison(folder / "cmp", slow="grpo_with_accumulation", fast="pods", costs=["seconds"])
    return write_report([run, comparison], folder / "report.html").as_uri()


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, 800, DESK])
def test_the_page_fits_and_can_be_read(browser: Browser, page: str, width: int, is_dark: bool) -> None:
    browser.show(width, is_dark=is_dark, is_phone=width == PHONE)
    browser.open(page)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(CUT_TABLES) == 0
    sizes = browser.run(TEXT_SIZES)
    assert min(sizes) >= LEAST_FONT and max(sizes) <= LARGEST_FONT
    for texts, least in CONTRASTS.items():
        ratio, text = browser.run(f"{WORST_CONTRAST}({json.dumps(texts)})")
        assert ratio >= least, text
    assert browser.problems == []


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_a_group_of_512_rollouts_fits(browser: Browser, tmp_path: Path, width: int) -> None:
    rollouts = [rollout_entry(index, float(index % 3 == 0)) for index in range(512)]
    run = write_run(tmp_path / "run", groups=[group_line(1, rollouts=rollouts)])
    browser.show(width, is_phone=width == PHONE)
    browser.open(write_report([run], tmp_path / "report.html").as_uri())
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run('document.querySelector(".strip").childElementCount') == 512


def test_on_a_phone_an_open_group_has_each_text_in_full_width(browser: Browser, page: str) -> None:
    browser.show(PHONE, is_phone=True)
    browser.open(page)
    browser.run('document.querySelector("details.group").open = true')
    widths = browser.run('[...document.querySelectorAll("details[open] td.text pre")].map((text) => text.clientWidth)')
    assert len(widths) == 4 and min(widths) > 280
    assert browser.run("document.documentElement.scrollWidth") <= PHONE


def test_filters_leave_the_groups_that_fit(browser: Browser, page: str) -> None:
    browser.show(DESK)
    browser.open(page)
    look_for = 'const box = document.getElementById("search"); box.value = "no such word"; '
    look_for += 'box.dispatchEvent(new Event("input", { bubbles: true }))'
    shown = 'document.querySelectorAll("details.group:not([hidden])").length'
    assert browser.run(shown) == 5
    browser.run(f"{{ {look_for} }}")
    assert browser.run(shown) == 0
    assert browser.run('document.getElementById("count").textContent') == "0 of 5 groups"


def test_without_scripts_everything_is_there_and_opens(browser: Browser, page: str) -> None:
    browser.show(PHONE, with_script=False)
    browser.open(page)
    found = browser.call("Page.captureSnapshot")["data"]
    assert found.replace("=\r\n", "").count('<details class=3D"group"') == 5
    assert browser.problems == []


def test_a_live_page_loads_itself_again_unless_a_group_is_read(browser: Browser, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    page = LivePage([run := write_run(tmp_path / "run")], out)
    page.write()
    out.write_text(out.read_text().replace('data-reload="5"', 'data-reload="0.1"'))
    browser.show(PHONE)
    browser.open(out.as_uri())
    browser.wait_for(f"document.documentElement?.scrollWidth <= {PHONE}")  # none where the page is just being loaded
    # Open for several looks at one page: no loading that began before is left.
    opened = "group => group && (group.open = true) && (window.looks = (window.looks ?? 0) + 1) > 5"
    browser.wait_for(f'({opened})(document.querySelector("details.group"))')
    with (run / "groups.jsonl").open("a") as log:
        log.write(json.dumps(group_line(77)) + "\n")
    page.write()
    time.sleep(0.5)
    has_new = 'document.getElementById("groups")?.textContent.includes("step 77")'
    assert not browser.run(has_new)
    browser.run('document.querySelector("details.group").open = false')
    browser.wait_for(has_new)
    assert browser.problems == []
