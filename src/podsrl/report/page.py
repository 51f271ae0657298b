"""What every HTML page shares: its style, its script, a policy that forbids loading anything, and how it is written."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from podsrl.lib.logs import write_atomically
from podsrl.report.standing import LiveState

RELOAD_SECONDS = 5


def render_page(template: str, *, live: LiveState | None = None, **values: Any) -> str:
    """Fill a template of this folder, with the page's style and script; all other values are taken as text.

    A live page loads itself again, and without scripts too; with them, not while a group is open.
    """
    script = _file("report.js")
    # Autoescape is what keeps a model's "<script>" a text; no template switches it off.
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["with_code"] = with_code
    return environment.from_string(_file(template)).render(
        style=Markup(_file("report.css")),
        script=Markup(script),
        live=live,
        reload_seconds=RELOAD_SECONDS,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        **values,
    )


def with_code(text: str) -> Markup:
    """What stands between backticks, as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def write_page(out: Path, page: str) -> None:
    """Write beside the file and rename, so that a reader never sees half a page; make missing folders."""
    out.parent.mkdir(parents=True, exist_ok=True)
    # A model can write half of a surrogate pair, which UTF-8 has no bytes for.
    data = page.encode("utf-8", errors="backslashreplace")
    write_atomically(out, data)


def _file(name: str) -> str:
    return resources.files("podsrl.report").joinpath(name).read_text(encoding="utf-8")
