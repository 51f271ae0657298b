"""What records say of themselves: one short line each, and a group as a table for a notebook, in which all is text."""

from __future__ import annotations

import math
import re

import made
from podsrl import load_config
from podsrl.run.group_log import group_line, parse_group
from podsrl.score.accuracy import accuracy_of
from podsrl.types import Sample, Task

GROUP = made.group(
    "s1/0/7+5",
    made.rollout(0.0, text="No.", index=0),
    made.rollout(1.0, text="<i>Yes</i>", index=1),
    made.rollout(math.nan, text="?", index=2, invalid_reason="it raised"),
    task=Task(id="7+5", prompt="7 < 5?", answer="<b>"),
)
CHOSEN = made.selection(GROUP, (0, 1))


def cells(table: str) -> list[list[str]]:
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in re.findall(r"<tr>(.*?)</tr>", table)]


def test_records_are_one_short_line_whatever_their_size() -> None:
    long = made.rollout(0.5, 5000, text="x" * 5000)
    assert repr(made.completion((7,) * 5000)) == "Rollout('q', index 0, 5000 tokens, stop)"
    assert repr(long) == f"Rollout(reward 0.5, wrong, '{'x' * 29}…{'x' * 28}')"
    assert repr(GROUP) == "Group('s1/0/7+5', 3 rollouts, 1 correct)"
    assert repr(CHOSEN) == "Selection('s1/0/7+5', 2 of 3 kept)"
    sample = Sample(group_id="g", prompt_ids=(1,) * 900, rollout=long, advantage=-0.5)
    assert repr(sample) == f"Sample('g', advantage -0.5, {long})"
    assert repr(accuracy_of([GROUP])).startswith("Accuracy(33.3%, 1 questions, 3 answers)")
    assert repr(load_config(None)) == "RunConfig()"
    assert (
        repr(load_config(None, select={"num_kept": 8}, seed=3)) == "RunConfig(seed=3, select=SelectConfig(num_kept=8))"
    )


def test_a_group_is_a_table_of_rewards_and_texts() -> None:
    table = GROUP._repr_html_()
    assert "7 &lt; 5? → &lt;b&gt;: 3 rollouts, 1 correct" in table
    assert cells(table) == [
        ["reward", "text"],
        ["reward 0, wrong", "No."],
        ["reward 1, correct", "&lt;i&gt;Yes&lt;/i&gt;"],
        ["it raised", "?"],
    ]


def test_a_recorded_group_says_what_was_kept_the_highest_reward_first() -> None:
    samples = [
        Sample(group_id=GROUP.id, prompt_ids=(1,), rollout=GROUP.rollouts[index], advantage=advantage)
        for index, advantage in ((0, -0.70711), (1, 0.70711))
    ]
    recorded = parse_group(group_line(4, GROUP, CHOSEN, samples))
    assert repr(recorded) == "RecordedGroup(step 4, '7 < 5?', 2 of 3 kept)"
    assert cells(recorded._repr_html_()) == [
        ["kept", "reward", "advantage", "text"],
        ["✓", "1", "0.707", "&lt;i&gt;Yes&lt;/i&gt;"],
        ["✓", "0", "-0.707", "No."],
        ["", "", "", "?"],
    ]
