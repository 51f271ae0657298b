"""Draw docs/images/front-light.png and front-dark.png: a run in its terminal beside its report, in Chromium.

Run: pods train smol --threads=1 --eval.every_seconds=25 --stop.seconds=150 --out runs/first
     python docs/images/front.py runs/first
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from reading import Browser, save
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, DIMMED_MONOKAI, TerminalTheme

from podsrl.report.html import write_report
from podsrl.report.picture import picture
from podsrl.report.read import read_run

WIDTH, HEIGHT, COLUMNS = 1120, 540, 66
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; padding: 16px; display: flex; gap: 16px; background: {ground}; }}
div {{ flex: 1; height: {height}px; overflow: hidden; border: 1px solid {line}; border-radius: 8px; }}
pre {{ margin: 0; padding: 16px; font: 12.4px/1.5 "DejaVu Sans Mono", monospace; }}
iframe {{ border: 0; width: 100%; height: 100%; }}
</style><div style="background: {card}; color: {ink}"><pre>$ pods train smol --threads=1 \\
    --eval.every_seconds=25 --stop.seconds=150

{code}</pre></div><div><iframe src="{report}#curves"></iframe></div>"""
LIGHT = {"ground": "#eef1f4", "card": "#ffffff", "ink": "#1f2328", "line": "#d8dee4"}
DARK = {"ground": "#010409", "card": "#0d1117", "ink": "#e6edf3", "line": "#30363d"}


def main(run: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary, Browser(Path(temporary) / "profile") as browser:
        report = write_report([run], Path(temporary) / "report.html").as_uri()
        for name, colours, theme in (("light", LIGHT, DEFAULT_TERMINAL_THEME), ("dark", DARK, DIMMED_MONOKAI)):
            page = Path(temporary) / f"{name}.html"
            page.write_text(PAGE.format(**colours, height=HEIGHT - 34, code=terminal(run, theme), report=report))
            browser.show(WIDTH, height=HEIGHT, is_dark=name == "dark")
            browser.open(page.as_uri())
            save(browser, f"front-{name}.png", 1.0)


def terminal(run: Path, theme: TerminalTheme) -> str:
    """The lines that the run's terminal shows, as HTML."""
    with open("/dev/null", "w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="standard")
        for line in picture([read_run(run, only_newest_group=True)], COLUMNS, None):
            console.print(line, soft_wrap=True)
    return console.export_html(theme=theme, code_format="{code}", inline_styles=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
