"""The largest step that systems may ask decides what is checked and estimated before the weights load."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest

from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig
from podsrl.control import Ask, View
from podsrl.errors import UsageError
from podsrl.plan.measured import own_kept
from podsrl.plan.preview import preview_run
from podsrl.plan.probe import probe_kept
from podsrl.plan.search import kept_sizes
from podsrl.report import numbers
from podsrl.run.before.estimate import estimate
from podsrl.run.before.model_shape import read_shape
from podsrl.run.before.prepare import find
from podsrl.run.before.sizes import at_most, parts_of


class UpTo:
    """Asks up to `size` rollouts of a question, and says so."""

    def __init__(self, *, size: int = 32, groups: int = 1) -> None:
        self.size, self.groups = size, groups

    def rollouts(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        return asks

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        return max(num_prompts, self.groups), self.size


class Silent:
    """Asks for what is asked."""

    def rollouts(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        return asks


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ModuleType("own_sizes")
    own.UpTo, own.Silent = UpTo, Silent  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_sizes", own)


def config_of(*overrides: str, part: str = "UpTo", **options: int) -> RunConfig:
    table = [f'options={{"own_sizes:{part}" = {{{", ".join(f"{k} = {v}" for k, v in options.items())}}}}}']
    kept = [] if any(override.startswith("select.num_kept") for override in overrides) else ["select.num_kept=4"]
    sizes = ("rollouts.num_rollouts=8", *kept, "task.num_eval=4", "task.digits=1")
    return load_config("pods", [*sizes, f"systems=own_sizes:{part}", *(table if options else []), *overrides])


def check(config: RunConfig) -> None:
    find(config).close()


def test_the_largest_round_is_that_of_the_part_that_says_the_most() -> None:
    config = config_of(size=32, groups=20)
    rollouts = at_most(config).rollouts
    assert (rollouts.num_prompts, rollouts.num_rollouts) == (20, 32)
    assert at_most(config, parts_of(config)) == at_most(config)
    assert at_most(config_of(part="Silent")).rollouts == config_of().rollouts
    assert at_most(config).systems == config.systems


def test_num_kept_may_be_any_size_that_the_systems_may_ask() -> None:
    check(config_of("select.num_kept=16"))
    check(config_of("select.num_kept=32"))
    check(config_of("select.num_kept=32", "select.num_chunks=1", size=32))
    wanted = r"^select.num_kept = 33 is more than rollouts.num_rollouts = 8 \(systems = own_sizes:UpTo asks .* 32 of a"
    with pytest.raises(UsageError, match=wanted):
        check(config_of("select.num_kept=33"))
    with pytest.raises(UsageError, match=r"^select.num_kept = 9 is more than rollouts.num_rollouts = 8; keep at most"):
        check(config_of("select.num_kept=9", part="Silent"))


def test_keep_all_needs_no_number_where_a_system_decides_the_sizes() -> None:
    for num_kept in ("2", "64", "0.5"):
        config = config_of("select.rule=keep_all", f"select.num_kept={num_kept}")
        check(config)
        options = {option.key: option.no_effect for option in preview_run(config).options}
        assert "keep_all" in str(options["select.num_kept"])


def test_chunks_of_groups_that_may_be_unequal_are_an_error() -> None:
    check(config_of("select.num_chunks=2", size=8))
    check(config_of("select.num_chunks=2", part="Silent"))
    wanted = r"^select.num_chunks = 2 cuts equal groups, and systems = own_sizes:UpTo makes unequal ones"
    for num_kept in ("4", "0.5"):
        with pytest.raises(UsageError, match=wanted):
            check(config_of("select.num_chunks=2", f"select.num_kept={num_kept}"))


def test_a_round_that_no_memory_holds_is_an_error() -> None:
    wanted = r"^systems = own_sizes:UpTo with up to 5000 groups in a round of up to 4000 .*memory holds all"
    with pytest.raises(UsageError, match=wanted):
        check(config_of(size=4000, groups=5000))


def test_a_share_is_tried_on_the_largest_group() -> None:
    seen: list[tuple[int, int]] = []
    own = sys.modules["own_sizes"]

    def rule(rewards: Any, num_kept: int, *, generator: Any = None) -> Any:
        seen.append((rewards.shape[-1], num_kept))
        return [list(range(num_kept))] * len(rewards)

    own.rule = rule  # type: ignore[attr-defined]
    check(config_of("select.rule=own_sizes:rule", "select.num_kept=0.25"))
    check(
        load_config("pods", ["select.rule=own_sizes:rule", "select.num_kept=0.25", "task.num_eval=4", "task.digits=1"])
    )
    assert seen == [(32, 8), (64, 16)]


def test_a_share_of_equal_groups_is_the_number() -> None:
    share, number = (load_config("pods", [f"select.num_kept={m}"]).select for m in ("0.25", "16"))
    assert isinstance(share.num_kept, float) and isinstance(number.num_kept, int)
    assert share.most_kept(64) == number.most_kept(64) == 16
    of_share, of_number = (preview_run(load_config("pods", [f"select.num_kept={m}"])) for m in ("0.25", "16"))
    assert (of_share.kept_tokens, of_share.work) == (of_number.kept_tokens, of_number.work)
    assert load_config("pods", ["select.num_kept=0.25", "select.num_chunks=4"]).select.most_kept(64) == 16


def test_memory_is_that_of_the_largest_round() -> None:
    config = config_of("select.rule=keep_all", size=32, groups=20)
    same = load_config("pods", ["rollouts.num_prompts=20", "rollouts.num_rollouts=32", "select.num_kept=32"])
    one, other = preview_run(config), preview_run(same)
    assert one.work.num_rows == other.work.num_rows == 640
    assert one.parts == other.parts == tuple(estimate(at_most(config), read_shape(config.model)))
    assert (one.generated_tokens, one.kept_tokens) == (other.generated_tokens, other.kept_tokens)
    assert any("one round of 20 groups of 32" in line for line in one.warnings)


def test_the_planner_and_the_reports_read_a_share_as_the_number_that_it_is() -> None:
    share, number = (load_config("pods", [f"select.num_kept={m}"]) for m in ("0.25", "16"))
    assert own_kept(share) == own_kept(number) == 16
    for size in (32, 64, 128):
        assert kept_sizes(share, size) == kept_sizes(number, size)
    assert probe_kept(share, 64) == probe_kept(number, 64)
    assert numbers.kept(share.select.num_kept) == "25 %" and numbers.kept(number.select.num_kept) == "16"


def test_what_has_no_effect_is_said_only_where_it_is_sure() -> None:
    def no_effect(*overrides: str) -> dict[str, str | None]:
        return {option.key: option.no_effect for option in preview_run(load_config("pods", overrides)).options}

    rule, budget = ("select.rule=random", "select.num_kept=0.999"), "systems=own_sizes:Silent"
    assert "every rule keeps all" in str(no_effect(*rule)["select.rule"])
    assert no_effect(*rule, budget)["select.rule"] is None


def test_the_largest_group_is_that_with_its_forks() -> None:
    assert at_most(load_config("pods", ["systems=small_steering:Forked"])).rollouts.num_rollouts == 64 + 3
    pruned = ["systems=random", "options.random.at=3"]
    assert at_most(load_config("pods", pruned)).rollouts.num_rollouts == 64


def test_a_part_is_asked_for_its_most_of_the_groups_under_way_too() -> None:
    options = ["order.ahead=0.5", "order.take=first", "order.rest=put_off", "rollouts.num_prompts=4"]
    assert at_most(load_config("mixed", options)).rollouts.num_prompts == 6
    nudged = [*options, "rollouts.num_rollouts=4", "select.num_kept=4", "systems=nudgerl", "options.nudgerl.count=6"]
    hints = "options.nudgerl.hints=podsrl.tasks.arithmetic:first_words"
    with pytest.raises(UsageError, match=r"options\.nudgerl\.count = 6"):
        at_most(load_config("mixed", [*nudged, hints]))
