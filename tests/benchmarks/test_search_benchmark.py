"""`python -m benchmarks search`: its table, by hand-written points."""

from __future__ import annotations

from typing import Any

from benchmarks.search import table


def point(search: str, width: int, right: int, tokens: float) -> dict[str, Any]:
    of = {"accuracy": right / 4, "low": 0.1, "high": 0.85, "right": "1" * right + "0" * (4 - right)}
    return {"search": search, "width": width, "tokens": tokens, **of}


def test_a_row_has_a_search_at_every_width() -> None:
    points = [point("majority", 1, 1, 80.4), point("majority", 2, 2, 161.0), point("best", 1, 1, 80.4)]
    text = table({"points": [*points, point("best", 2, 3, 1612.0)]})
    rows = [line for line in text.split("\n") if line.startswith("| ")]
    assert rows[0] == "| search | 1 answer | 2 answers |"
    assert "95 % interval; generated tokens per question). Over `majority` at equal tokens: `best`" in text
    assert rows[1:] == [
        "| majority | 25.0% (10–85; 80) | 50.0% (10–85; 161) |",
        "| best | 25.0% (10–85; 80) | 75.0% (10–85; 1,612) |",
    ]


def test_a_search_is_compared_with_majority_at_equal_tokens_question_by_question() -> None:
    """At 120 tokens majority is halfway from 1 of 4 to 3 of 4: the questions have 1, 1/2, 1/2 and 0."""
    majority = [point("majority", 1, 1, 80.0), point("majority", 2, 3, 160.0)]
    text = table({"points": [*majority, point("best", 1, 1, 80.0), point("best", 2, 4, 120.0)]})
    half = 1.96 * (((0 - 50) ** 2 + 0 + 0 + (100 - 50) ** 2) / 3) ** 0.5 / 2  # of 0, 50, 50, 100 points
    assert f"`best` with 2 answers beats it, +50.0 points (+{50 - half:.1f} to +{50 + half:.1f})." in text
    worse = [point("majority", 1, 4, 80.0), point("majority", 2, 4, 160.0), point("best", 1, 0, 80.0)]
    assert "`best` with 2 answers is beaten, -100.0 points (-100.0 to -100.0)" in table(
        {"points": [*worse, point("best", 2, 0, 500.0)]}
    )
    same = [*majority, point("best", 1, 1, 80.0), point("best", 2, 3, 160.0)]
    assert "differs within its interval, +0.0 points" in table({"points": same})
