"""A figure as SVG, inside a page or as a file: small, in the colours of light or dark mode, loading nothing."""

from __future__ import annotations

import base64
import html
import io
import re
from importlib import resources
from pathlib import Path

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

from podsrl.report.figures import theme

COLOR_VARIABLES = {
    theme.INK: "--ink",
    theme.MUTED: "--muted",
    theme.GRID: "--line",
    theme.PAPER: "--card",
    theme.BASELINE: "--baseline",
    **{color: f"--series-{i}" for i, color in enumerate(theme.SERIES)},
}
PIXELS_PER_INCH = 110
"""Of a page: a figure may be drawn smaller, and never larger, so that its letters are those of the text around it."""
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def inline_svg(figure: Figure, name: str, description: str) -> Markup:
    """Write a figure as one `<svg>` element.

    It has no namespaces, metadata, style sheets or links to other documents. The theme's colours are CSS variables
    (`--ink`, `--series-0` ...), text is text in the page's font, and `--own-width` is the width that the page gives it
    at most.

    Args:
        name: letters, digits and dashes, unique in the page: it keeps the ids of several figures apart.
        description: what a screen reader says; plain text.

    Example:
        >>> inline_svg(theme.new_figure(1, 1), "empty", "nothing at all")[:56]
        Markup('<svg class="plot" role="img" aria-label="nothing at all"')
    """
    buffer = io.StringIO()
    # A fixed salt makes the same figure the same text; fonttype none keeps text as text.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", facecolor="none", metadata=_NO_METADATA)
    drawing = buffer.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<style.*?</style>|<!--.*?-->|font-family: [^;\"]*; ", "", drawing, flags=re.DOTALL)
    width = f"--own-width: {PIXELS_PER_INCH * figure.get_figwidth():.0f}px"
    head = rf'<svg {_attributes(description)} \1 style="{width}">'
    drawing = re.sub(r"<svg[^>]*(viewBox=\"[^\"]*\")[^>]*>", head, drawing, count=1)
    drawing = drawing.replace("xlink:href=", "href=")
    drawing = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", drawing)
    for color, variable in COLOR_VARIABLES.items():
        drawing = drawing.replace(color, f"var({variable})")
    return Markup(drawing)


def save_svg(figure: Figure, path: Path, *, pixels_per_inch: int = 72) -> Path:
    """Write a figure as a file in the colours of the reader's light or dark mode, and return its path."""
    path.write_text(_document(figure, path.stem, pixels_per_inch), encoding="utf-8")
    return path


def svg_image(figure: Figure, name: str) -> str:
    """A figure as an `<img>` that holds it, for a notebook: nothing in it reaches the page around it."""
    content = base64.b64encode(_document(figure, name, 72).encode()).decode()
    return f'<img alt="{html.escape(name)}" src="data:image/svg+xml;base64,{content}">'


def _document(figure: Figure, name: str, pixels_per_inch: int) -> str:
    css = resources.files("podsrl.report").joinpath("report.css").read_text(encoding="utf-8")
    style = css[: css.index("* {")] + "svg { background: var(--card); font-family: var(--sans); }"
    width, height = (f"{pixels_per_inch * inches:.0f}" for inches in figure.get_size_inches())
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
    drawing = str(inline_svg(figure, name, name.replace("-", " "))).replace("<svg", head, 1)
    start = drawing.index(">") + 1
    return f"{drawing[:start]}<style>{style}</style>{drawing[start:]}"


def _attributes(description: str) -> str:
    # A backslash would be read as a group reference by re.sub.
    label = html.escape(description).replace("\\", r"\\")
    return f'class="plot" role="img" aria-label="{label}"'
