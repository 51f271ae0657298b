"""No family of models is both accepted and sampled, or trained, with wrong probabilities."""

from __future__ import annotations

import pytest

from benchmarks.families.judge import GAP, Verdict, family_names, judge

RUNS = {
    "qwen2": ("fast", "packed", None),
    "llama": ("fast", "packed", None),
    "gpt2": ("model", "packed", None),
    "gpt_neo": ("model", "padded", "local attention's window of 16"),
    "llama, longrope": ("model", "packed", "16 tokens from which its rotary positions (longrope)"),
    "mistral": ("model", "padded", "its window of 16"),
}


def check(verdict: Verdict) -> None:
    """What is accepted is right, and the rows were such that a wrong place would have shown."""
    if verdict.forward is None:
        return
    assert verdict.engine_gap is not None and verdict.engine_gap < GAP, verdict
    assert verdict.update_gap is not None and verdict.update_gap < GAP, verdict
    assert verdict.sensitivity > 10 * GAP, verdict
    assert verdict.longest == (37 if verdict.limit is None else 15), verdict


@pytest.mark.parametrize("family", RUNS)
def test_a_usual_family_runs_as_expected(family: str) -> None:
    verdict, (forward, update, limit) = judge(family), RUNS[family]
    check(verdict)
    assert verdict.forward == forward and (verdict.update or "").startswith(f"{update} rows")
    assert verdict.limit is None if limit is None else limit in (verdict.limit or "")


def test_no_family_is_both_accepted_and_wrong() -> None:
    verdicts = [judge(name) for name in family_names()]
    for verdict in verdicts:
        check(verdict)
    assert sum(verdict.forward is not None for verdict in verdicts) > 90
