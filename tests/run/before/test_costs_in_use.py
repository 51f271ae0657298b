"""Which costs a run goes by, what it says of them, and costs that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from podsrl.config.load import load_config
from podsrl.config.schema import DEFAULT_COSTS, CostsConfig
from podsrl.errors import UsageError
from podsrl.run.before.costs import costs_advice, costs_notes, costs_of, rule_options, with_costs
from podsrl.run.before.no_effect import idle_notes, set_options, without_effect
from podsrl.run.before.prepare import prepare
from podsrl.select import max_signal
from podsrl.types import group_of_rewards

MEASURED = ("costs.group_ms=3", "costs.rollout_ms=0.5", "costs.row_ms=2")
AUTO = ("task.num_eval=4",)


def test_a_run_without_costs_has_those_of_its_devices_kind() -> None:
    assert costs_of(load_config("auto", ["model.device=cpu"])) == DEFAULT_COSTS["cpu"]
    assert costs_of(load_config("auto", ["model.device=cuda:1"])) == DEFAULT_COSTS["cuda"]
    assert costs_of(load_config("auto")) == DEFAULT_COSTS["cpu"]  # the demo's model is small
    # 9.6 + 0.05 · 64 ms at 1 ms per row, and 91 + 2.7 · 64 at 9.4
    assert [DEFAULT_COSTS[kind].overhead(64) for kind in ("cpu", "cuda")] == pytest.approx([12.8, 263.8 / 9.4])


def test_the_costs_of_the_config_are_in_use_and_said_once() -> None:
    parts = prepare(load_config("auto", [*MEASURED, *AUTO]))
    parts.close()
    [line] = [line for line in parts.notes if line.startswith("costs in use")]
    assert all(text in line for text in ("3 ms per group", "0.5 per rollout", "2 per row", "17.5 rows"))
    rare = [group_of_rewards("q", [1.0] + [0.0] * 63)]
    assert parts.rule(rare, 16) == max_signal(rare, 16, overhead=17.5) != max_signal(rare, 16, overhead=4.0)
    assert parts.costs.row_ms == 2
    assert costs_notes(load_config("pods")) == []
    [default] = costs_notes(load_config("auto"))
    assert "default" in default and "12.8 rows" in default


def test_an_overhead_of_ones_own_stands() -> None:
    assert rule_options(load_config("auto", [*MEASURED, "select.options.overhead=4"])) == {"overhead": 4}


def test_each_chunk_bears_its_part_of_what_a_group_has_cost() -> None:
    chunked = load_config("pods", [*MEASURED, "select.rule=max_signal", "select.num_chunks=4"])
    assert rule_options(chunked) == {"overhead": 17.5 / 4}


def test_an_option_of_that_name_of_a_rule_of_ones_own_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "rule_of_overhead.py").write_text(
        "def first(rewards, num_kept, *, generator=None, overhead: int = 5):\n"
        "    return [[*range(num_kept - 1), overhead]] * len(rewards)\n"
    )
    parts = prepare(load_config("pods", ["select.rule=rule_of_overhead:first", "select.num_kept=3", *AUTO]))
    parts.close()
    assert parts.rule([[0.0] * 64], 3) == [[0, 1, 5]]  # type: ignore[arg-type, comparison-overlap]  # it returns lists


def test_the_costs_of_a_run_are_written_down_where_something_reads_them() -> None:
    assert with_costs(load_config("auto")).costs == DEFAULT_COSTS["cpu"]
    assert with_costs(load_config("pods")).costs is None
    alone = ("systems=", "select.options.overhead=9")
    assert with_costs(load_config("auto", alone)).costs is None
    own = load_config("auto", MEASURED)
    assert with_costs(own) == own


def test_costs_that_nothing_weighs_are_said_to_change_nothing() -> None:
    idle = without_effect(load_config("pods", MEASURED), 1)
    assert {f"costs.{name}" for name in CostsConfig.model_fields} <= idle.keys()
    [line] = idle_notes(set_options(load_config("pods", MEASURED), load_config("pods", MEASURED), 1))
    assert line.startswith("costs.group_ms = 3.0, costs.rollout_ms = 0.5, costs.row_ms = 2.0, ")
    for used in (load_config("auto", MEASURED), load_config("pods", [*MEASURED, "select.rule=my:own"])):
        assert not any(key.startswith("costs") for key in without_effect(used, 1))


def test_a_busy_machine_is_said_with_its_spread() -> None:
    assert costs_advice(load_config("auto", [*MEASURED, "costs.spread=0.3"])) == costs_advice(load_config("auto")) == []
    assert costs_advice(load_config("pods", [*MEASURED, "costs.spread=0.45"])) == []  # nothing goes by them
    [line] = costs_advice(load_config("auto", [*MEASURED, "costs.spread=0.45"]))
    assert "costs.spread = 0.45" in line and "--measure" in line


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("costs.row_ms=0",), r"costs\.row_ms = 0: wanted more than 0"),
        (("costs.rollout_ms=-1",), r"costs\.rollout_ms = -1: wanted more than 0"),
        (("costs.gruop_ms=3",), r"unknown key 'costs\.gruop_ms'"),
    ],
)
def test_costs_that_cannot_be_are_refused_before_a_model_loads(overrides: tuple[str, ...], message: str) -> None:
    names = {text.partition("=")[0] for text in overrides}
    rest = [text for text in MEASURED if text.partition("=")[0] not in names]
    with pytest.raises(UsageError, match=message):
        load_config("auto", [*rest, *overrides])


def test_costs_of_another_model_are_refused_before_a_model_loads() -> None:
    with pytest.raises(UsageError, match=r"costs\.model = 'a/b', and model\.path = 'builtin:arithmetic'.*pods plan"):
        prepare(load_config("auto", [*MEASURED, "costs.model=a/b"]))


def test_a_part_of_the_costs_alone_is_refused() -> None:
    with pytest.raises(UsageError, match=r"costs\.group_ms has to be set"):
        load_config("auto", ["costs.row_ms=1", "costs.rollout_ms=1"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("select.num_kept=1", r"select\.num_kept"),
        ("rollouts.num_rollouts=1", r"rollouts\.num_rollouts = 1: wanted at least 2"),
        ("options.worth.sizes=[1, 8]", r"options\.worth\.sizes = \[1, 8\]: at \[0\]: wanted at least 2"),
        ("options.worth.sizes=[]", r"options\.worth\.sizes = \[\]: wanted a list of at least 1"),
        ("select.options.overhead=0", r"select\.options\.overhead = 0: wanted more than 0"),
    ],
)
def test_sizes_that_cannot_be_are_refused_before_a_model_loads(override: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        prepare(load_config("auto", [override, f"model.path={tmp_path}"]))


def test_trained_rows_that_only_max_signal_has_are_said() -> None:
    other = ("systems=worth", "select.num_kept=8")
    assert costs_advice(load_config("pods", [*other, "options.worth.rows=8"])) == []
    [line] = costs_advice(load_config("pods", other))
    assert "options.worth.rows" in line and "keeps 8 of 64" in line
