"""`pods config` as a person uses it, and the page of all options."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from podsrl.config.load import all_keys, load_config
from podsrl.config.options import chapters_of
from podsrl.config.schema import RunConfig
from podsrl.lib.moments import SYSTEMS
from podsrl.lib.options import part_options, part_summary
from podsrl.lib.parts import factories

Pods = Callable[..., tuple[int, str, str]]
PAGE = Path(__file__).parents[2] / "docs" / "options.md"


def test_the_page_in_the_docs_is_what_the_schema_says() -> None:
    page = runpy.run_path(str(PAGE.with_suffix(".py")))["options_page"]()
    assert page == PAGE.read_text(encoding="utf-8"), "renew it: python docs/options.py > docs/options.md"


def test_every_option_is_printed_in_80_columns(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    code, printed, _ = pods("config")
    assert code == 0 and "\x1b" not in printed
    assert {line.partition(" = ")[0] for line in printed.splitlines() if " = " in line[:50]} >= set(all_keys(RunConfig))
    assert max(map(len, printed.splitlines())) <= 80


def test_a_section_prints_its_options_alone(pods: Pods) -> None:
    _, printed, _ = pods("config", "select")
    keys = re.findall(r"^([a-z_]+\.[a-z_]+) = ", printed, re.MULTILINE)
    assert keys == ["select.rule", "select.options", "select.num_kept", "select.ties", "select.num_chunks"]


@pytest.mark.parametrize("word", ["rollouts.num_rollouts", "num_rollouts", "num_generations", "rollout.n", "n"])
def test_an_option_is_found_by_its_key_its_last_part_and_other_names(word: str, pods: Pods) -> None:
    _, printed, _ = pods("config", word)
    assert printed.startswith("rollouts.num_rollouts\n")
    for part in ("--rollouts.num_rollouts=64", "num_rollouts = 64", "[rollouts]", "at least 2", "verl: rollout.n"):
        assert part in " ".join(printed.split())


def test_one_option_names_what_it_knows(pods: Pods) -> None:
    from podsrl.select import RULES

    _, printed, _ = pods("config", "select.rule")
    assert all(name in printed for name in RULES)
    assert part_summary(RULES["keep_all"]) in " ".join(printed.split())
    code, printed, _ = pods("config", "select.rule", "--json")
    assert code == 0 and json.loads(printed)["known"] == [*RULES]


def test_systems_are_listed_with_what_their_parts_do_and_one_with_its_options(pods: Pods) -> None:
    _, printed, _ = pods("config", "systems")
    words = " ".join(printed.split())
    for name in SYSTEMS:
        assert f" {name} {' '.join(map(part_summary, factories(name)))}" in words
    code, printed, _ = pods("config", "systems.xrpo")
    options = [option.name for factory in factories("xrpo") for option in part_options(factory)]
    assert code == 0 and all(f"      {name} = " in printed for name in options) and "Novelty decides shape." in printed
    _, printed, _ = pods("config", "systems.latr", "--json")
    [part] = json.loads(printed)
    assert (part["system"], part["name"], part["moments"]) == ("latr", "Ambiguous", ["rollouts", "look"])


def test_every_name_of_every_table_can_be_loaded() -> None:
    options = {option.key: option for chapter in chapters_of(RunConfig) for option in chapter.options}
    told = {key for key, option in options.items() if re.search(r"`podsrl\.[a-z.]+\.[A-Z_]+`", option.meaning)}
    named = {key: option for key, option in options.items() if option.table}
    assert told | {"systems", "rollouts.generator", "rollouts.scheduler"} <= named.keys()
    for key, option in named.items():
        assert option.known and all(option.known[name] for name in option.known), key
    assert not options["seed"].known


@pytest.mark.parametrize("arguments", [["memory"], ["--search", "memory"]])
def test_a_word_that_is_no_option_is_looked_for(arguments: list[str], pods: Pods) -> None:
    _, printed, _ = pods("config", *arguments)
    assert "rollouts.kv_cache_bytes" in printed and "model.gradient_checkpointing" in printed
    assert "optim.lr" not in printed


def test_json_holds_every_option(pods: Pods) -> None:
    _, printed, _ = pods("config", "--json")
    found = {option["key"]: option for option in json.loads(printed)}
    assert set(found) == set(all_keys(RunConfig))
    assert found["select.num_kept"]["value"] == 16 and found["model.revision"]["value"] is None
    _, printed, _ = pods("config", "--of", "compare", "--json")
    assert "baseline" in {option["key"] for option in json.loads(printed)}


def test_a_resolved_config_is_a_file_that_trains_the_same(pods: Pods, tmp_path: Path) -> None:
    code, printed, _ = pods("config", "--resolved", "pods", "--select.num_kept", "8")
    assert code == 0
    (tmp_path / "mine.toml").write_text(printed)
    assert load_config(tmp_path / "mine.toml") == load_config("pods", ["select.num_kept=8"])
    code, again, _ = pods("config", "--resolved", "mine.toml")
    assert code == 0 and again == printed
    code, printed, _ = pods("config", "--resolved", "demo")
    assert code == 0 and 'baseline = "grpo"' in printed and "[arms.pods" in printed
    code, printed, _ = pods("config", "--resolved", "--of", "pretrain")
    assert code == 0 and "careful = 0.03" in printed
    assert pods("config", "--resolved")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["zebra"], "'zebra'"),
        (["pods"], "--resolved pods"),
        (["--of", "trian"], "Did you mean 'train'"),
        (["--select.num_kept=8"], "--resolved"),
        (["select", "--search", "x"], "wants one of"),
        (["budget.rollouts"], "--upgrade FILE"),
        (["systems.zebra"], "'systems.zebra'"),
        (["--resolved", "--search", "x"], "wants one of"),
        (["select", "rollouts"], "unexpected 'rollouts'"),
    ],
)
def test_bad_usage_is_one_line(arguments: list[str], wanted: str, pods: Pods) -> None:
    code, _, errors = pods("config", *arguments)
    assert code == 2 and errors.count("\n") == 1 and wanted in errors
