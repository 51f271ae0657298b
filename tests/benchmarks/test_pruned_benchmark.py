"""`python -m benchmarks pruned`: its table, by hand-written numbers, and one short measurement."""

from __future__ import annotations

from argparse import Namespace

from benchmarks.pruned import RATES, RULES, run, table


def test_a_row_says_what_a_rule_gives_over_whole_groups_and_over_the_coin() -> None:
    values = {"whole groups": (0.2, 0.1), "an even coin": (0.16, 0.1), "by group": (0.24, 0.11)}
    tokens = {"whole groups": (100, 200), "an even coin": (70, 140), "by group": (70, 150)}
    rules = {name: {"spread": own, "tokens": tokens[name]} for name, own in values.items()}
    text = table({"rules": {"standing": rules}, "num_steps": 40})
    assert "| standing | by group | 1.15× (1.10–1.20) | 1.30× (1.10–1.50) | 0.72× (0.70–0.75) |" in text
    assert "| standing | whole groups | 1.00× (1.00–1.00) | 1.12× (1.00–1.25) | 1.00× (1.00–1.00) |" in text
    assert "steps 11 to 40" in text


def test_all_rules_are_measured() -> None:
    found = run(Namespace(quick=True))
    assert [*found["rules"]] == [*RATES] and all([*rules] == [*RULES] for rules in found["rules"].values())
    assert all(0 < own["spread"][0] <= 0.25 for rules in found["rules"].values() for own in rules.values())
    standing = found["rules"]["standing"]
    assert all(own["tokens"][0] < standing["whole groups"]["tokens"][0] for own in [*standing.values()][1:])
