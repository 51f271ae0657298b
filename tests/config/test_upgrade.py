"""Older configs in today's words."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from loops import each
from podsrl.config.files import read_tree, recipe_names
from podsrl.config.load import all_keys, load_config
from podsrl.config.schema import RunConfig
from podsrl.config.upgrade import _DECIDES, old_key, upgraded
from podsrl.errors import UsageError
from podsrl.lib.moments import SYSTEMS

Pods = Callable[..., tuple[int, str, str]]

DARS = """
extends = "mixed"
[budget]
rollouts = "harder"
keep = "mixed"
[options.harder]
mode = "ET"
most = 32
[loss]
advantage = "none"
"""
TRACE = """
[budget]
rollouts = "contrast"
[steer]
prune = "contrast"
[options.contrast]
at = [4, 8, 12, 16, 24]
[loss]
shape = ["contrast"]
"""
LATR = """
budget.rollouts = "ambiguous"
steer = { prune = "ambiguous", branch = "ambiguous" }
options.ambiguous = { until = 24, look = [4, 8] }
"""
XRPO = """
[budget]
rollouts = "confidence"
guide = "examples"
[options.confidence]
phases = 2
[options.novelty]
weight = 2
[loss]
shape = ["novelty"]
"""
DOTS_RR = """
rollouts.num_prompts = 8
budget = { questions = "difficulty", rollouts = "difficulty" }
replay.groups = "fifo"
correct = { proximal = "step_start", weight = "full" }
options.difficulty.every = 2
options.fifo.num = 8
"""
ECHO = """
steer = { prune = "confident", branch = "confident" }
options.confident.unsure = 0.9
loss.shape = ["votes", "confident"]
"""
CLOSED = """
[steer]
close = "certain"
first = 4
[options.certain]
lowest = 0.0
highest = 1.0
"""
DUMPED = """
[budget]
enough = "one_round"
questions = "stream"
rollouts = "worth"
guide = "none"
keep = "all"
[steer]
close = "never"
first = 16
prune = "never"
branch = "never"
[replay]
groups = "nothing"
wait = "nothing"
repair = "never"
[loss]
name = "grpo"
shape = []
bound = "same"
[options]
"""
OWN = """
budget.rollouts = "my_file:Twice"
loss.shape = "bins,my_file:Twice"
options."my_file:Twice".most = 3
options.vllm.enforce_eager = true
"""


@each(
    ("old", "new"),
    [
        (
            DARS,
            'extends = "mixed"\nsystems = ["dars", "mixed"]\noptions.dars = { mode = "ET", most = 32 }\n'
            'loss.advantage = "none"',
        ),
        (TRACE, 'systems = ["trace"]\noptions.trace.at = [4, 8, 12, 16, 24]'),
        (LATR, 'systems = ["latr"]\noptions.latr = { until = 24, look = [4, 8] }'),
        (XRPO, 'systems = ["xrpo"]\noptions.xrpo = { phases = 2, weight = 2 }'),
        (
            DOTS_RR,
            'systems = ["dots", "dots_rr"]\nrollouts.num_prompts = 8\n'
            'correct = { proximal = "step_start", weight = "full" }\noptions.dots.every = 2\noptions.dots_rr.num = 8',
        ),
        (ECHO, 'systems = ["echo"]\noptions.echo.unsure = 0.9'),
        (f'{ECHO}loss.bound = "confident"', 'systems = ["echo"]\noptions.echo.unsure = 0.9'),
        (CLOSED, 'systems = ["certain"]\noptions.certain = { lowest = 0.0, highest = 1.0, first = 4 }'),
        (DUMPED, 'systems = ["worth"]\nloss.name = "grpo"\noptions = {}'),
        (
            OWN,
            'systems = ["gdro_prompts", "my_file:Twice"]\noptions."my_file:Twice".most = 3\n'
            "options.vllm.enforce_eager = true",
        ),
        (
            'budget = { enough = "mixed", keep = "mixed" }\noptions.mixed.max_rounds = 2',
            "systems = ['dapo']\noptions.dapo.max_rounds = 2",
        ),
        (
            'budget.keep = "mixed"\noptions.mixed.metric = "reward"',
            "systems = ['mixed']\noptions.mixed.metric = 'reward'",
        ),
        ('budget.rollouts = "seek"\nloss.shape = "posterior"', "systems = ['aero']"),
        ('budget.rollouts = "seek"\nloss.shape = "pool_mean"', "systems = ['reinforce_ada']"),
        (
            'loss.shape = "novelty"\noptions.novelty.weight = 2',
            'systems = ["podsrl.systems.xrpo:Novelty"]\noptions."podsrl.systems.xrpo:Novelty".weight = 2',
        ),
        (  # the other order than the system's
            ECHO.replace('"votes", "confident"', '"confident", "votes"'),
            'systems = ["podsrl.systems.echo:Confident", "podsrl.systems.echo:Votes"]\n'
            'options."podsrl.systems.echo:Confident".unsure = 0.9',
        ),
        ('steer.close = "until_mixed"\nsteer.prune = "random"', "systems = ['until_mixed', 'random']"),
        ("steer.first = 4\nseed = 3", "seed = 3"),
        ("order.ahead = 1\nreplay.surplus = 1.25", "order.ahead = 1\nreplay.surplus = 1.25"),  # of a still older one
    ],
)
def test_an_older_file_in_todays_words(old: str, new: str) -> None:
    assert upgraded(tomllib.loads(old)) == tomllib.loads(new)


@each(
    ("old", "message"),
    [
        ('budget.enough = "mixed"', "budget.enough = 'mixed' without budget.keep: podsrl.systems.dapo:DynamicSampling"),
        ('steer.prune = "contrast"', "steer.prune = 'contrast' without budget.rollouts and loss.shape"),
        ('budget.rollouts = "hardr"', r"budget.rollouts = 'hardr': there was no such part\. Did you mean 'harder'"),
        ('budget.questions = "harder"', "budget.questions = 'harder': there was no such part"),
        ("budget.keep = 3", "budget.keep = 3: wanted names"),
        ('loss.shape = ["votes", 1]', "loss.shape = .*: wanted names"),
    ],
)
def test_what_cannot_be_said_is_one_error(old: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}") as caught:
        upgraded(tomllib.loads(old))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", recipe_names())
def test_todays_recipes_stay_as_they_are(name: str) -> None:
    assert upgraded(read_tree(name)) == read_tree(name)


@each(
    ("old", "new"),
    [
        ("options.harder.most = 12", "options.dars.most = 12"),
        ('budget.keep = "all"', "systems = ['dars']"),
        ('budget.enough = "mixed"', "systems = ['dapo', 'dars']"),
        (
            'steer.close = "certain"\nsteer.first = 4',
            "systems = ['dars', 'mixed', 'certain']\noptions.certain.first = 4",
        ),
        ('budget.rollouts = "harder"', ""),
        ('budget = { rollouts = "equal", keep = "all" }', "systems = []"),
    ],
)
def test_a_file_changes_the_systems_of_what_it_extends(old: str, new: str) -> None:
    found = upgraded(tomllib.loads(f'extends = "systems/dars"\n{old}'))
    assert found == {"extends": "systems/dars", **tomllib.loads(new)}


def test_a_file_beside_it_is_read_in_todays_words(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(DARS)
    found = upgraded({"extends": "base.toml", "budget": {"keep": "all"}}, tmp_path)
    assert found == {"extends": "base.toml", "systems": ["dars"]}


def test_arms_change_the_systems_of_their_base() -> None:
    old = """
    baseline = "plain"
    [base]
    budget.rollouts = "harder"
    [arms]
    plain.budget.rollouts = "equal"
    mixed.budget.keep = "mixed"
    other.seed = 1
    """
    assert upgraded(tomllib.loads(old)) == {
        "baseline": "plain",
        "base": {"systems": ["dars"]},
        "arms": {"plain": {"systems": []}, "mixed": {"systems": ["dars", "mixed"]}, "other": {"seed": 1}},
    }
    changed = upgraded({"extends": "demo", "arms": {"auto": {"budget": {"rollouts": "equal"}}}})
    assert changed == {"extends": "demo", "arms": {"auto": {"systems": []}}}


def test_every_class_is_one_of_a_system_and_every_class_of_a_system_has_an_older_name() -> None:
    later = {"podsrl.systems.prof:Prof", *SYSTEMS["levels"]}
    assert _DECIDES.keys() | later == {place for places in SYSTEMS.values() for place in places}


def test_a_table_of_an_older_part_is_answered_with_todays() -> None:
    with pytest.raises(UsageError, match=r"\[options\.harder\] is \[options\.dars\] now: pods config --upgrade FILE"):
        load_config({"systems": ["dars"], "options": {"harder": {"most": 48}}})
    assert load_config({"systems": ["dars"], "options": {"dars": {"most": 48}}}).options == {"dars": {"most": 48}}


def test_older_keys_are_told_from_todays() -> None:
    for key in ("budget.rollouts", "steer.first", "replay.wait", "loss.shape", "base.loss.bound", "arms.a.budget.keep"):
        assert str(old_key(key)).startswith(key.removeprefix("base.").removeprefix("arms.a.") + " is written systems")
    assert "[options.aero or reinforce_ada]" in str(old_key("options.seek"))
    assert [
        key for key in (*all_keys(RunConfig), "options.mixed", "options.vllm", "options.harder.most") if old_key(key)
    ] == []


def test_the_loader_answers_an_older_key() -> None:
    with pytest.raises(UsageError, match=r"budget\.rollouts is written systems = .* --upgrade FILE") as caught:
        load_config(None, ["budget.rollouts=harder", "loss.shape=votes"])
    assert "loss.shape is written systems" in str(caught.value)


def test_the_command_prints_a_file_that_loads(pods: Pods, tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text(f"# mine\n{DARS}")
    code, printed, _ = pods("config", "--upgrade", "old.toml")
    (tmp_path / "new.toml").write_text(printed)
    assert code == 0 and "mine" not in printed
    today = load_config("systems/dars")
    assert load_config(tmp_path / "new.toml").model_copy(update={"about": today.about}) == today
    for arguments in (["nowhere.toml"], ["pods"], ["old.toml", "systems"]):
        code, _, errors = pods("config", "--upgrade", *arguments)
        assert code == 2 and errors.count("\n") == 1
