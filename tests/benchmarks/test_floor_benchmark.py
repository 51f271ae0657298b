"""`python -m benchmarks floor`: operations are found with their shapes, and the parts add up to the step."""

import json

import pytest
import torch
import torch.nn.functional as F

from benchmarks.floor import PARTS, Step, made_up, measure
from benchmarks.operations import Operations, Product


def silent(text: str) -> None:
    assert text


def test_products_are_found_forward_and_backward_and_without_gradient() -> None:
    weight = torch.ones(5, 3, requires_grad=True)
    with Operations() as found:
        F.linear(torch.ones(4, 3), weight).sum().backward()
        with torch.inference_mode():
            F.linear(torch.ones(2, 7, 3), weight)
            torch.bmm(torch.ones(6, 1, 2), torch.ones(6, 2, 8))
    assert found.products == {
        ("update", Product(1, 4, 3, 5)): 1,
        ("update", Product(1, 5, 4, 3)): 1,  # the weights' gradient
        ("generate", Product(1, 14, 3, 5)): 1,
        ("generate", Product(6, 1, 2, 8)): 1,
    }
    assert found.seconds["update", "products"] > 0 and found.num_calls["generate"] >= 2


def test_a_made_up_step_is_split_into_its_parts() -> None:
    with made_up("s128") as step:
        assert isinstance(step, Step)
        facts = measure(step, 1, silent)
    seconds = facts["cpu_seconds"]
    assert seconds["step"] == pytest.approx(seconds["bookkeeping"] + sum(seconds[part] for part in PARTS))
    assert 0 < facts["floor_seconds"]["update"] < seconds["update"]
    assert facts["seconds_by_kind"]["generate"]["optimizer"] == 0 < facts["seconds_by_kind"]["update"]["optimizer"]
    json.dumps(facts)
