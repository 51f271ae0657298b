"""Every recipe of the folder `systems` is small, whole and described, and every part is used by one."""

from __future__ import annotations

from pathlib import Path

from loops import each
from podsrl.compare.runs import plan
from podsrl.compare.systems import parts_of_slots, read_system, system_names
from podsrl.config.files import read_tree
from podsrl.config.load import build
from podsrl.config.schema import CompareConfig
from podsrl.control import ENOUGH, GUIDES, KEEPS, QUESTIONS, ROLLOUTS, make_budget
from podsrl.control.tables import DEFAULTS
from podsrl.lib.options import check_options
from podsrl.update import SHAPES

FOLDER = Path(__file__).parents[2] / "src" / "podsrl" / "config" / "recipes" / "systems"
FILES = sorted(FOLDER.glob("*.toml"))
TABLES = {
    "budget.enough": ENOUGH,
    "budget.questions": QUESTIONS,
    "budget.rollouts": ROLLOUTS,
    "budget.guide": GUIDES,
    "budget.keep": KEEPS,
    "loss.shape": SHAPES,
}


def test_the_names_are_the_files() -> None:
    assert sorted(system_names()) == [file.stem for file in FILES] and {"grpo", "grpo_ga", "pods"} <= {*system_names()}


@each("file", FILES)
def test_a_recipe_names_known_parts_with_options_that_they_take(file: Path) -> None:
    system = read_system(file.stem)
    slots = parts_of_slots(system)
    for name, keys in slots.items():
        assert all(name in TABLES[key] for key in keys), (name, keys)
        check_options(TABLES[keys[0]][name], system.options.get(name, {}), where=f"options.{name}")
    assert system.options.keys() <= slots.keys()
    budget = {slot: getattr(system.config.budget, slot) for slot in DEFAULTS}
    make_budget(budget, {name: own for name, own in system.options.items() if name in budget.values()})


def test_every_part_is_used_by_a_recipe() -> None:
    used = {
        (key, name)
        for each in system_names()
        for name, keys in parts_of_slots(read_system(each)).items()
        for key in keys
    }
    defaults = {(f"budget.{slot}", name) for slot, name in DEFAULTS.items()}
    assert {(key, name) for key, table in TABLES.items() for name in table} - defaults <= used


def test_the_comparison_has_every_system_as_an_arm(tmp_path: Path) -> None:
    config = build(CompareConfig, read_tree("systems"), "systems")
    assert sorted(config.arms) == sorted(system_names()) and config.baseline == "grpo"
    assert all(arm == {"extends": f"systems/{name}"} for name, arm in config.arms.items())
    assert config.num_seeds == 5 and config.jobs == 2
    minutes = len(config.arms) * config.num_seeds * config.base["stop"]["seconds"] / config.jobs / 60
    assert minutes < 30
    for member in plan(config, tmp_path):
        own = read_system(member.arm).config
        assert member.config.model_copy(update={"seed": 0, "threads": 0, "eval": own.eval, "stop": own.stop}) == own
