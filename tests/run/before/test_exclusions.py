"""What does not go together: one thing needs that something holds, and another breaks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from loops import each
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.lib.moments import MOMENTS, WORDS
from podsrl.lib.parts import Parts
from podsrl.run.before.exclusions import Claim, check_claims, check_exclusions, check_pieces
from podsrl.run.before.prepare import prepare
from podsrl.types import Group, Selection
from podsrl.update import resolve_advantage
from runs import config_of

SMALL = ("rollouts.num_rollouts=32", "select.num_kept=8", "task.reward_workers=1")
FIRST = ("order.ahead=1", "order.take=first", "order.rest=put_off")
RUNS = ("order.ahead=2", "order.rest=run")
BATCH = ('task.rewards={"light_rewards:varied" = 1.0}', "task.correct=correct")
RANDOM, FORKED, PILOT = "options.random.at=3", "small_steering:Forked", "options.pilot_commit.pilots=4"
REPAIR = "options.scope.repair=podsrl.tasks.arithmetic:repair"


def of_groups(groups: Sequence[Group], selections: Sequence[Selection]) -> list[Tensor]:
    return [torch.zeros(len(chosen.kept)) for chosen in selections]


PAIRS = [
    # what reads dropped rollouts
    (("systems=certain", "select.rule=max_reward"), "systems = 'certain'", "kept_alone", "select.rule = 'max_reward'"),
    (("systems=certain,mixed",), "systems = 'certain'", "kept_alone", "keep of systems = 'mixed'"),
    (("systems=dapo,certain",), "systems = 'certain'", "kept_alone", "enough of systems = 'dapo'"),
    (
        ("systems=certain,small_parts:LaterLess",),
        "systems = 'certain'",
        "kept_alone",
        "shape of systems = 'small_parts:LaterLess'",
    ),
    (
        ("systems=certain", "select.num_kept=0.25"),
        "systems = 'certain'",
        "kept_alone",
        "select.num_kept = 0.25 of rollouts.num_rollouts = 32",
    ),
    (
        ("systems=certain", "select.rule=max_signal", "select.num_kept=32"),
        "systems = 'certain'",
        "kept_alone",
        "select.num_kept = 32 of rollouts.num_rollouts = 32",
    ),
    (
        ("systems=certain", "loss.advantage=test_exclusions:of_groups"),
        "systems = 'certain'",
        "kept_alone",
        "loss.advantage = 'test_exclusions:of_groups', which reads whole groups",
    ),
    # groups that are closed
    (
        ("systems=certain", "select.num_chunks=2"),
        "select.num_chunks = 2",
        "equal_groups",
        "close of systems = 'certain'",
    ),
    (("systems=dars,certain",), "close of systems = 'certain'", "fixed_sizes", "rollouts of systems = 'dars'"),
    (
        ("systems=until_mixed,worth",),
        "close of systems = 'until_mixed'",
        "fixed_sizes",
        "rollouts of systems = 'worth'",
    ),
    (
        ("systems=until_mixed", *BATCH),
        "close of systems = 'until_mixed'",
        "judged_singly",
        "the reward function 'light_rewards:varied', f of a batch",
    ),
    ((*FIRST, "systems=until_mixed"), "order.take = 'first'", "whole_groups", "close of systems = 'until_mixed'"),
    ((f"systems={FORKED},until_mixed",), f"systems = {FORKED!r}", "whole_groups", "close of systems = 'until_mixed'"),
    # rollouts that are watched, and forks
    (
        ("systems=random", RANDOM, "task.environment=environments:echo"),
        "look of systems = 'random'",
        "one_turn",
        "task.environment = 'environments:echo'",
    ),
    ((*FIRST, "systems=random", RANDOM), "look of systems = 'random'", "one_version", "order.rest = 'put_off'"),
    ((*RUNS, f"systems={FORKED}"), f"look of systems = {FORKED!r}", "one_version", "order.rest = 'run'"),
    (
        (f"systems=arrol,{FORKED}", "options.arrol.at=2"),
        f"systems = {FORKED!r}",
        "free_indices",
        "together of systems = 'arrol'",
    ),
    (
        ("systems=latr", "options.latr.until=12", "rollouts.stop_strings=['x']"),
        "systems = 'latr'",
        "no_stop_strings",
        "rollouts.stop_strings = ['x']",
    ),
    # groups under way
    ((*FIRST, "systems=dapo"), "order.take = 'first'", "asked_once", "enough of systems = 'dapo'"),
    ((*FIRST, "systems=dars"), "order.take = 'first'", "asked_once", "rollouts of systems = 'dars'"),
    ((*RUNS, "systems=pilot_commit", PILOT), "wait of systems = 'pilot_commit'", "settled_steps", "order.ahead = 2"),
    (
        ("systems=scope,pilot_commit", PILOT, REPAIR),
        "wait of systems = 'pilot_commit'",
        "settled_steps",
        "repair of systems = 'scope'",
    ),
]
"""Options, who needs, the word, who breaks it."""


@each("pair", PAIRS)
def test_what_one_needs_and_another_breaks_is_refused(pair: tuple[Sequence[str], str, str, str]) -> None:
    overrides, needing, word, breaking = pair
    with pytest.raises(UsageError) as error:
        prepare(config_of(*SMALL, *overrides))
    wanted = f"{needing} wants that {WORDS[word]}, and with {breaking} that is not so: leave one of them out"
    assert str(error.value) == wanted


@pytest.mark.parametrize("word", WORDS)
def test_each_word_is_needed_by_one_and_broken_by_another(word: str) -> None:
    needs, breaks = Claim("a", needs=frozenset({word})), Claim("b", breaks=frozenset({word}))
    for claims in ([needs, breaks], [breaks, needs], [Claim("c"), breaks, Claim("d"), needs]):
        with pytest.raises(UsageError, match=rf"^a wants that {WORDS[word]}, and with b that is not so"):
            check_claims(claims)
    check_claims([needs, needs, Claim("c"), Claim("a", breaks=frozenset(WORDS) - {word})])
    check_claims([Claim("a", frozenset({word}), frozenset({word}))])


# --- every two of all moments, options and words, against a table by hand ---


NEEDED = {
    "equal_groups": {"select.num_chunks"},
    "whole_groups": {"order.take"},
    "settled_steps": {"wait"},
    "asked_once": {"order.take"},
    "fixed_sizes": {"close"},
    "kept_alone": set[str](),
    "one_version": {"look"},
    "one_turn": {"look"},
    "judged_singly": {"close"},
    "one_process": {"order.take"},
    "lone_runs": set[str](),
    "free_indices": set[str](),
    "first_of_equals": {"prefer", "select.ties"},
    "free_ties": {"prefer"},
    "no_stop_strings": set[str](),
}
"""Word -> moments and options that need it."""
READING = {"enough", "questions", "rollouts", "guide", "keep", "prefer", "shape"}
BROKEN = {
    "equal_groups": {"close", "repair"},
    "whole_groups": {"close"},
    "settled_steps": {"order.ahead", "close", "repair"},
    "asked_once": {"enough", "rollouts"},
    "fixed_sizes": {"rollouts"},
    "kept_alone": {*READING, "select.rule", "select.num_kept", "select.ties", "loss.advantage"},
    "one_version": {"order.rest"},
    "one_turn": {"task.environment"},
    "judged_singly": {"the reward function"},
    "one_process": {"2 processes"},
    "lone_runs": set[str](),
    "free_indices": {"together"},
    "first_of_equals": {"select.rule"},
    "free_ties": {"select.ties"},
    "no_stop_strings": {"rollouts.stop_strings"},
}
"""Word -> moments and options that break it."""


@dataclass(frozen=True)
class Thing:
    """A part, or an option, and what it is in the table."""

    names: frozenset[str]
    overrides: tuple[str, ...] = ()
    part: Any = None
    num_processes: int = 1
    pieces: Mapping[str, Any] | None = None


def option(name: str, *overrides: str, more: Sequence[str] = (), **others: Any) -> Thing:
    return Thing(frozenset({name, *more} - {""}), overrides, **others)


THINGS = (
    *(Thing(frozenset({name}), part=SimpleNamespace(**{name: print})) for name in (*MOMENTS, "together")),
    *(Thing(frozenset({f"needs {word}"}), part=SimpleNamespace(needs={word})) for word in WORDS),
    *(Thing(frozenset({f"breaks {word}"}), part=SimpleNamespace(breaks=(word,))) for word in WORDS),
    option("order.ahead", "order.ahead=1", "order.rest=finish"),
    option("order.rest", *RUNS, more=["order.ahead"]),
    option("order.take", *FIRST, more=["order.ahead", "order.rest"]),
    option("select.num_chunks", "select.num_chunks=2"),
    option("select.rule", "select.rule=max_reward"),
    option("", "select.rule=max_signal"),
    option("select.ties", "select.ties=short"),
    option("select.num_kept", "select.num_kept=0.5"),
    option("select.num_kept", "select.num_kept=32"),
    option("rollouts.stop_strings", "rollouts.stop_strings=['x']"),
    option("loss.advantage", "loss.advantage=test_exclusions:of_groups"),
    option("", "loss.advantage=test_exclusions:of_rewards"),
    option("2 processes", num_processes=2),
    option("task.environment", pieces={"environment": SimpleNamespace(option="task.environment = 'mine:talk'")}),
    option("the reward function", pieces={"batches": ["mine:varied"]}),
)


def of_rewards(rewards: Tensor) -> Tensor:
    return rewards


def broken_words(names: frozenset[str]) -> list[tuple[str, str, str]]:
    """(who needs, word, who breaks it), by the table."""
    return [
        (needing, word, breaking)
        for word in WORDS
        for needing in names & {*NEEDED[word], f"needs {word}"}
        for breaking in names & {*BROKEN[word], f"breaks {word}"}
    ]


def is_said(text: str, needing: str, word: str, breaking: str) -> bool:
    who, _, other = text.partition(f" wants that {WORDS[word]}, and with ")
    beginnings = [
        f"{name} of systems = 'part" if name in MOMENTS else "systems = 'part" if name[-len(word) :] == word else name
        for name in (needing, breaking)
    ]
    return who.startswith(beginnings[0]) and other.startswith(beginnings[1])


@cache
def config_with(overrides: tuple[str, ...]) -> RunConfig:
    return config_of(*SMALL, *overrides)


def check(things: Sequence[Thing]) -> None:
    config = config_with(tuple(override for thing in things for override in thing.overrides))
    named = {f"part {place}": thing.part for place, thing in enumerate(things) if thing.part is not None}
    parts, name = Parts(named, {name: name for name in named}), config.loss.advantage
    advantage = resolve_advantage(name or "none")
    check_exclusions(config, parts, advantage, max(thing.num_processes for thing in things))
    pieces = {key: value for thing in things for key, value in (thing.pieces or {}).items()}
    check_pieces(parts, SimpleNamespace(batches=pieces.get("batches", [])), pieces.get("environment"))  # type: ignore[arg-type]


def test_every_two_moments_options_and_words_are_refused_as_the_table_says() -> None:
    num_refused = 0
    for thing in THINGS:
        check([thing])
    for things in combinations(THINGS, 2):
        names = frozenset().union(*(thing.names for thing in things))
        expected = broken_words(names)
        try:
            check(things)
        except UsageError as error:
            num_refused += 1
            assert any(is_said(str(error), *each) for each in expected), (names, str(error))
        else:
            assert not expected, names
    assert num_refused > 2 * len(WORDS)
