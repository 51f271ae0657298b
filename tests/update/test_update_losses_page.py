"""docs/losses.md: its tables are those of the code, and its examples run."""

import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

from podsrl.types import Completion, Group, Rollout, Selection, Task
from podsrl.update import ADVANTAGES, ALGORITHMS, resolve_advantage, step_advantages, try_advantage

PAGE = (Path(__file__).parents[2] / "docs" / "losses.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_table_of_algorithms_is_the_one_of_the_code() -> None:
    rows = {row.split("`")[1]: row for row in PAGE.splitlines() if row.startswith("| `") and "arXiv" in row}
    assert set(rows) == set(ALGORITHMS)
    for name, row in rows.items():
        cells = [cell.strip(" `") for cell in row.split("|")[1:-1]]
        algorithm = ALGORITHMS[name]
        loss = algorithm.loss
        bounds = "" if loss.clip_low is None else f"{loss.clip_low:g}, {loss.clip_high:g}"
        assert cells[:6] == [name, algorithm.advantage, loss.ratio, loss.clip, bounds, loss.aggregate]


def test_every_known_advantage_has_a_line() -> None:
    assert all(f"| `{name}` | " in PAGE for name in ADVANTAGES)


def test_the_advantages_of_the_page_run(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("my_advantages")
    for block in BLOCKS[:2]:
        exec(block, vars(module))
    monkeypatch.setitem(__import__("sys").modules, "my_advantages", module)
    above_half, short_wins = (resolve_advantage(f"my_advantages:{name}") for name in ("above_half", "short_wins"))
    for advantage in (above_half, short_wins):
        try_advantage(advantage, 4)
    rollouts = tuple(
        Rollout(
            completion=Completion(
                request_id="q",
                index=i,
                token_ids=(1,) * length,
                logprobs=(-1.0,) * length,
                finish_reason="stop",
                version=0,
            ),
            text="",
            reward=1.0,
            parts={},
            is_correct=True,
        )
        for i, length in enumerate((1, 3))
    )
    group = Group(id="q", task=Task(id="q", prompt="?", answer="1"), prompt_ids=(1,), rollouts=rollouts)
    kept = [Selection(group_id="q", kept=(0, 1), dropped={})]
    assert step_advantages([group], kept, above_half)[0].tolist() == [0.5, 0.5]
    assert step_advantages([group], kept, short_wins)[0].tolist() == pytest.approx([0.001, -0.001], abs=1e-7)


def test_the_loss_of_the_page_runs() -> None:
    names: dict[str, torch.Tensor] = {}
    exec(BLOCKS[2], names)
    assert names["loss"].item() == pytest.approx(0.0, abs=1e-7)  # a group's advantages sum to 0, and every ratio is 1
    assert names["logprobs"].grad is not None and names["logprobs"].grad.abs().sum() > 0
