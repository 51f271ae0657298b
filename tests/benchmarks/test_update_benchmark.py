"""`python -m benchmarks update`: its parts in their smallest form."""

import json

import pytest
import torch

from benchmarks.models import shaped_model
from benchmarks.update import PLAIN, PLAIN_FAST, difference, measure, peak


def silent(text: str) -> None:
    assert text


def test_ratios_stand_beside_the_ratio_of_tokens_and_gradients_agree() -> None:
    facts = measure(shaped_model("s128"), 16, 4, 1, silent)
    assert facts["floor"] == pytest.approx((16 + 16 * 4) / (16 * 20)) == 0.25
    assert 0 < facts["gradient_difference"] < 1e-5
    for name in (PLAIN, PLAIN_FAST):
        assert 0 < facts["ratio_by_cpu"][name]["min"] == facts["ratio_by_cpu"][name]["max"]
    json.dumps(facts)


def test_a_difference_counts_against_the_tensor_s_own_size_or_a_hundredth_of_the_largest() -> None:
    theirs = {"a": torch.tensor([4.0, -10.0]), "b": torch.tensor([0.001])}
    assert difference({"a": torch.tensor([4.0, -9.0]), "b": torch.tensor([0.001])}, theirs) == pytest.approx(0.1)
    assert difference({"a": theirs["a"], "b": torch.tensor([0.021])}, theirs) == pytest.approx(0.2)


def test_peak_memory_does_not_grow_with_the_rollouts_that_are_not_kept() -> None:
    found = [peak(n, True, silent) for n in (16, 256)]
    assert [facts["num_rollouts"] for facts in found] == [16, 256]
    assert found[1]["update_bytes"] == pytest.approx(found[0]["update_bytes"], rel=0.1)  # a small one is mostly noise
    assert found[0]["update_bytes"] > 2**20
