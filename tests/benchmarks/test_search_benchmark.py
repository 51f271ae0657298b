"""`python -m benchmarks search`: its table, by hand-written points."""

from __future__ import annotations

from typing import Any

from benchmarks.search import table


def point(search: str, width: int, right: int, tokens: float) -> dict[str, Any]:
    return {"search": search, "width": width, "accuracy": right / 4, "low": 0.1, "high": 0.85, "tokens": tokens}


def test_a_row_has_a_search_at_every_width() -> None:
    points = [point("majority", 1, 1, 80.4), point("majority", 2, 2, 161.0), point("best", 1, 1, 80.4)]
    text = table({"points": [*points, point("best", 2, 3, 1612.0)]})
    rows = [line for line in text.split("\n") if line.startswith("| ")]
    assert rows[0] == "| search | 1 answer | 2 answers |"
    assert rows[1:] == [
        "| majority | 25.0% (10–85; 80) | 50.0% (10–85; 161) |",
        "| best | 25.0% (10–85; 80) | 75.0% (10–85; 1,612) |",
    ]
