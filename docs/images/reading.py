"""Draw docs/images/report.png and report-phone.png: the report of a run, in Chromium.

Run: pods train pods --stop.steps=90 --out runs/mine; python docs/images/reading.py runs/mine
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from chromium import Browser
from PIL import Image

from podsrl.report.html import write_report

HERE = Path(__file__).parent


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


def save(browser: Browser, name: str, scale: float) -> None:
    """What the browser shows, smaller, in at most 256 colours."""
    path = browser.screenshot(HERE / name)
    image = Image.open(path).convert("RGB")
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)
    image.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
