"""`python -m benchmarks select`, in its smallest form."""

import json

import numpy as np

from benchmarks.select import REWARDS, run, scan


def test_the_scan_finds_a_subset_of_the_largest_variance_by_hand() -> None:
    # three times the variance: {0, 0.1, 1.2} has 0.887, {0, 1, 1.2} has 0.827, the other subsets less
    assert sorted(scan(np.array([0.2, 0.0, 1.0, 0.1, 1.2]), 3).tolist()) == [1, 3, 4]


def test_a_quick_run_is_json_with_sound_ratios() -> None:
    result = json.loads(json.dumps(run(quick=True)))
    assert [case["rewards"] for case in result["cases"]] == list(REWARDS)
    for case in result["cases"]:
        assert case["agrees_with_scan"]
        for ratio in (case["ratio_to_sort"], case["ratio_to_scan"]):
            assert 0 < ratio["min"] <= ratio["median"] <= ratio["max"]
