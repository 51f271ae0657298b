"""The table of algorithms, and what the options of the loss make of an entry."""

import math
from pathlib import Path
from typing import Any

import pytest

from podsrl.errors import UsageError
from podsrl.update import ADVANTAGES, ALGORITHMS, NAMED_LOSSES, Algorithm, LossSpec, resolve_algorithm


def test_resolving_without_changes_gives_the_named_point() -> None:
    for name, algorithm in ALGORITHMS.items():
        assert resolve_algorithm(name) == algorithm


def test_the_losses_by_name_are_those_of_the_algorithms_and_their_advantages_exist() -> None:
    assert {name: algorithm.loss.arguments() for name, algorithm in ALGORITHMS.items()} == NAMED_LOSSES
    assert {algorithm.advantage for algorithm in ALGORITHMS.values()} == set(ADVANTAGES)
    grpo = {"ratio": "token", "clip": "ppo", "clip_low": 0.2, "clip_high": 0.2, "aggregate": "sequence_mean"}
    assert (NAMED_LOSSES["grpo"], ALGORITHMS["grpo"].advantage) == (grpo, "std")
    assert NAMED_LOSSES["rloo"] == {"ratio": "token", "clip": "none", "aggregate": "constant"}


def test_resolving_replaces_what_is_given_and_leaves_the_table_alone() -> None:
    found = resolve_algorithm("grpo", advantage="none", clip_high=0.28, aggregate="token_mean", ratio=None)
    assert found == Algorithm(
        advantage="none",
        loss=LossSpec(ratio="token", clip="ppo", clip_low=0.2, clip_high=0.28, aggregate="token_mean"),
    )
    assert NAMED_LOSSES["grpo"]["clip_high"] == 0.2


def test_clip_none_drops_the_named_bounds_and_refuses_new_ones() -> None:
    assert resolve_algorithm("grpo", clip="none").loss.clip_low is None
    cases: list[tuple[str, Any]] = [("grpo", {"clip": "none", "clip_low": 0.1}), ("rloo", {"clip_high": 0.1})]
    for name, options in cases:
        with pytest.raises(UsageError, match=r"loss.clip_(low|high) has no effect with clip = 'none'"):
            resolve_algorithm(name, **options)


def test_a_bound_put_on_an_unbounded_loss_needs_both_numbers() -> None:
    with pytest.raises(UsageError, match="clip_high = None"):
        resolve_algorithm("rloo", clip="ppo", clip_low=0.2)
    assert resolve_algorithm("rloo", clip="ppo", clip_low=0.2, clip_high=0.3).loss.clip_high == 0.3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "grop"}, "Did you mean 'grpo'"),
        ({"name": "grpo", "advantage": "stdd"}, "loss.advantage = 'stdd'"),
        ({"name": "grpo", "ratio": "word"}, "loss.ratio = 'word'"),
        ({"name": "grpo", "clip": "soft"}, "loss.clip = 'soft'"),
        ({"name": "grpo", "clip_low": -1.0}, "loss.clip_low = -1.0"),
        ({"name": "grpo", "clip_low": math.nan}, "loss.clip_low = nan"),
    ],
)
def test_resolving_an_unknown_choice_names_the_option(options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve_algorithm(**options)


def test_an_advantage_of_ones_own_is_found_and_kept_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_advantages_q.py").write_text("def centred(rewards):\n    return rewards - rewards.mean()\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve_algorithm("grpo", advantage="my_advantages_q:centred").advantage == "my_advantages_q:centred"
    with pytest.raises(UsageError, match=r"loss.advantage = 'my_advantages_q:centered' .* Did you mean 'centred'\?"):
        resolve_algorithm("grpo", advantage="my_advantages_q:centered")
