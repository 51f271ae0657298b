"""The table of docs/rewards.md: which shipped reward pays for which family of hacks.

`python tests/tools/test_attack_table.py` writes it anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from podsrl.score import REWARDS
from podsrl.score.rewards import CODE
from podsrl.tools.attack.attack import attack_rewards
from podsrl.tools.attack.families import FAMILIES
from podsrl.tools.attack.questions import QUESTIONS, spread
from podsrl.tools.attack.result import FamilyCount

PAGE = Path(__file__).parents[2] / "docs" / "rewards.md"
BEGIN, END = "<!-- the table begins -->\n", "<!-- the table ends -->\n"
NUM_QUESTIONS = 7
TIMEOUT_SECONDS = 3.0


def table() -> str:
    """One row per kind of reward: those that pay the same share it."""
    names: dict[str, list[str]] = {}
    for name in REWARDS:
        if name not in CODE:
            names.setdefault(paid(attacked(name)), []).append(f"`{name}`")
    rows = [("reward", "pays"), ("---", "---"), *((", ".join(some), pays) for pays, some in names.items())]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def attacked(name: str) -> dict[str, FamilyCount]:
    tasks = spread(QUESTIONS, NUM_QUESTIONS)
    found = attack_rewards({name: 1.0}, tasks, timeout_seconds=TIMEOUT_SECONDS).decisive.families
    return {one.family.name: one for one in found}


def paid(found: dict[str, FamilyCount]) -> str:
    """The families that pay or make the reward fail; if most of those that were tried pay, how many do."""
    tried = [family.name for family in FAMILIES if family.name in found]
    paying = [name for name in tried if found[name].num_paid]
    failing = [f"{name} (fails)" for name in tried if found[name].num_escaped]
    if 2 * len(paying) > len(tried):
        return ", ".join([f"{len(paying)} of {len(tried)} families", *failing])
    return ", ".join([*paying, *failing]) or "nothing"


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
