"""The table of docs/check-reward.md: which shipped reward pays for which family of hacks.

`python tests/tools/test_attack_table.py` writes it anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from podsrl.score import REWARDS
from podsrl.tools.attack.attack import attack_rewards
from podsrl.tools.attack.families import FAMILIES
from podsrl.tools.attack.questions import QUESTIONS, spread
from podsrl.tools.attack.result import FamilyCount

PAGE = Path(__file__).parents[2] / "docs" / "check-reward.md"
BEGIN, END = "<!-- the table begins -->\n", "<!-- the table ends -->\n"
NUM_QUESTIONS = 7
TIMEOUT_SECONDS = 3.0


def table() -> str:
    """One row a family, one column a reward."""
    found = {name: attacked(name) for name in REWARDS}
    rows = [["family", *(f"`{name}`" for name in REWARDS)], ["---"] * (len(REWARDS) + 1)]
    rows += [[family.name, *(cell(found[name].get(family.name)) for name in REWARDS)] for family in FAMILIES]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def attacked(name: str) -> dict[str, FamilyCount]:
    tasks = spread(QUESTIONS, NUM_QUESTIONS)
    return {
        one.family: one for one in attack_rewards({name: 1.0}, tasks, timeout_seconds=TIMEOUT_SECONDS).decisive.families
    }


def cell(count: FamilyCount | None) -> str:
    if count is None:
        return ""
    words = [*(["**pays**"] if count.num_paid else []), *(["fails"] if count.num_escaped else [])]
    return ", ".join(words) or "no"


def parts() -> Iterator[str]:
    """What stands before the table, the table, and what stands behind it."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    shown, _, behind = rest.partition(END)
    yield from (before, shown, behind)


def test_the_table_of_shipped_rewards_is_true() -> None:
    _, shown, _ = parts()
    assert shown == table(), "write it anew with: python tests/tools/test_attack_table.py"


if __name__ == "__main__":
    before, _, behind = parts()
    PAGE.write_text(f"{before}{BEGIN}{table()}{END}{behind}")
