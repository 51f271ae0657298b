"""docs/losses.md: its tables are those of the code, and its examples run."""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from made import group_of
from podsrl.lib.moments import SYSTEMS
from podsrl.lib.parts import factories, make_parts
from podsrl.types import Selection
from podsrl.update import (
    ADVANTAGES,
    ALGORITHMS,
    policy_loss,
    resolve_advantage,
    resolve_algorithm,
    shape_advantages,
    step_advantages,
    try_advantage,
)
from podsrl.update.bounds import bounds_of
from podsrl.update.loss import AGGREGATES

PAGE = (Path(__file__).parents[2] / "docs" / "losses.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_table_of_algorithms_is_the_one_of_the_code() -> None:
    page = PAGE.partition("## Advantages")[0]
    rows = {row.split("`")[1]: row for row in page.splitlines() if row.startswith("| `") and "arXiv" in row}
    assert set(rows) == set(ALGORITHMS)
    for name, row in rows.items():
        cells = [cell.strip(" `") for cell in row.split("|")[1:-1]]
        algorithm = ALGORITHMS[name]
        loss = algorithm.loss
        bounds = "" if loss.clip_low is None else f"{loss.clip_low:g}, {loss.clip_high:g}"
        assert cells[:6] == [name, algorithm.advantage, loss.ratio, loss.clip, bounds, loss.aggregate]


def test_every_system_that_shapes_and_every_advantage_has_a_line() -> None:
    shapes = [name for name in SYSTEMS if any(hasattr(each, "shape") for each in factories(name))]
    assert len(shapes) > 5 and all(f"| `{name}` | " in PAGE for name in (*shapes, *ADVANTAGES))


def test_the_advantages_of_the_page_run(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("my_advantages")
    for block in BLOCKS[:2]:
        exec(block, vars(module))
    monkeypatch.setitem(__import__("sys").modules, "my_advantages", module)
    above_half, short_wins = (resolve_advantage(f"my_advantages:{name}") for name in ("above_half", "short_wins"))
    for advantage in (above_half, short_wins):
        try_advantage(advantage, 4)
    group = group_of("q", 1.0, 1.0, lengths=(1, 3))
    kept = [Selection(group_id="q", kept=(0, 1), dropped={})]
    assert step_advantages([group], kept, above_half)[0].tolist() == [0.5, 0.5]
    assert step_advantages([group], kept, short_wins)[0].tolist() == pytest.approx([0.001, -0.001], abs=1e-7)


class LateTokens:
    def __init__(self, *, power: float = 1.0) -> None:
        self.power = power

    def shape(self, groups: Any, selections: Any, advantages: Any) -> list[torch.Tensor]:
        shaped = []
        for group, selection, values in zip(groups, selections, advantages, strict=True):
            lengths = torch.tensor([len(group.rollouts[i].token_ids) for i in selection.kept]).reshape(-1, 1)
            longest = int(lengths.max()) if len(lengths) else 0
            place = torch.arange(1, longest + 1) / lengths.clamp(min=1)  # [m, T], 1 at a row's last token
            shaped.append(values[:, None] * place**self.power)
        return shaped


def test_a_system_may_give_every_token_an_advantage_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("my_shapes")
    vars(module)["LateTokens"] = LateTokens
    monkeypatch.setitem(__import__("sys").modules, "my_shapes", module)
    name = "my_shapes:LateTokens"
    shapes = make_parts([name], {name: {"power": 2.0}})["shape"]
    groups, selections, advantages = try_advantage(resolve_advantage("none"), 4)
    shaped = shape_advantages(groups, selections, advantages, shapes)
    # Completions of 1, 2, 3 and 1 tokens: token t of T gets (t / T) squared of its row's advantage.
    squares = [[1, 0, 0], [0.25, 1, 0], [1 / 9, 4 / 9, 1], [1, 0, 0]]
    for values, found in zip(advantages, shaped, strict=True):
        torch.testing.assert_close(found, values[:, None] * torch.tensor(squares))
    nothing = [Selection(group_id=group.id, kept=(), dropped={}) for group in groups]
    empty = shape_advantages(groups, nothing, [torch.zeros(0)] * 2, shapes)
    assert [len(each) for each in empty] == [0, 0]


def test_every_aggregate_has_a_line_and_its_weight_is_as_the_page_says() -> None:
    """Groups of 1 and 3 rows of 2 and 4 tokens, where every token's loss is that of its group."""
    assert all(f"| `{name}` | " in PAGE for name in AGGREGATES)
    mask = torch.arange(4) < torch.tensor([2, 4, 4, 4])[:, None]
    weights = torch.tensor([4 / 2, 4 / 6, 4 / 6, 4 / 6], dtype=torch.float64)
    share = {}
    for name in AGGREGATES:
        loss_of = [
            policy_loss(
                zeros := torch.zeros(4, 4, dtype=torch.float64),
                zeros,
                -torch.tensor(of_group, dtype=torch.float64),
                mask,
                row_weights=weights,
                max_length=4,
                **resolve_algorithm("grpo", aggregate=name).loss.arguments(),
            )[0].item()
            for of_group in ([1, 0, 0, 0], [0, 1, 1, 1])
        ]
        share[name] = loss_of[1] / loss_of[0]
    assert share == pytest.approx({"sequence_mean": 3, "token_mean": 6, "constant": 6, "group_mean": 1})


class RightHasRoom:
    def bound(self, groups: Any, selections: Any) -> list[torch.Tensor]:
        pairs = zip(groups, selections, strict=True)
        return [torch.tensor([0.3 if g.rollouts[i].is_correct else 0.1 for i in s.kept]) for g, s in pairs]


def test_a_system_may_give_every_rollout_a_bound_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("my_bound")
    vars(module)["RightHasRoom"] = RightHasRoom
    monkeypatch.setitem(__import__("sys").modules, "my_bound", module)
    bound = make_parts(["my_bound:RightHasRoom"], {}).one("bound")
    group = group_of("q", 1.0, 0.0, 1.0)
    found = bounds_of([group], [Selection(group_id="q", kept=(1, 2), dropped={0: "not_selected"})], bound)
    assert found is not None and found[0].tolist() == pytest.approx([0.1, 0.3])
