"""Draw docs/images/report.png, report-phone.png and watch.png: the report and `pods watch` of a run, in Chromium.

Run: pods train pods --stop.steps=90 --out runs/mine; python docs/images/reading.py runs/mine
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.terminal_theme import MONOKAI

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "tests" / "report"))

from chromium import Browser  # noqa: E402

from podsrl.report.follow import FollowedRun  # noqa: E402
from podsrl.report.html import write_report  # noqa: E402
from podsrl.report.terminal.picture import picture  # noqa: E402

COLUMNS = 80
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 14px; background: {background}; color: {foreground}; }}
pre {{ margin: 0; font: 13px/1.2 "DejaVu Sans Mono", monospace; }}
.dots {{ display: inline-block; width: 1ch; }}
{stylesheet}</style><pre>{code}</pre>"""


def main(run: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary, Browser(Path(temporary) / "profile") as browser:
        page = write_report([run], Path(temporary) / "report.html").as_uri()
        browser.show(1280, height=1330)
        browser.open(page)
        save(browser, "report.png", 0.6)
        browser.show(390, height=844, is_dark=True, is_phone=True)
        browser.open(page)
        browser.run('document.getElementById("costs").scrollIntoView()')
        save(browser, "report-phone.png", 0.8)
        terminal = Path(temporary) / "watch.html"
        terminal.write_text(watch_page(run), encoding="utf-8")
        browser.show(660, height=490)
        browser.open(terminal.as_uri())
        save(browser, "watch.png", 1.0)


def watch_page(run: Path) -> str:
    """The picture of `pods watch` as HTML; each braille character is as wide as the others."""
    followed = FollowedRun(run)
    followed.poll()
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="standard",
        legacy_windows=False,
    )
    for line in picture([followed], COLUMNS, None):
        console.print(line, soft_wrap=True)
    page = console.export_html(theme=MONOKAI, code_format=PAGE)
    return re.sub("[\u2800-\u28ff]", lambda found: f'<span class="dots">{found[0]}</span>', page)


def save(browser: Browser, name: str, scale: float) -> None:
    """What the browser shows, smaller, in at most 256 colours."""
    path = browser.screenshot(HERE / name, is_whole=False)
    image = Image.open(path).convert("RGB")
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)
    image.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
