"""Pilot-Commit against a plain loop over questions, and in whole steps."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loops import each
from podsrl.control import Budget, View, waiting_ids
from podsrl.errors import UsageError
from podsrl.lib.parts import Call, Parts, make_parts
from podsrl.run.before.replay import replay_notes
from podsrl.run.before.sizes import parts_of
from podsrl.run.step.trainer import Trainer
from podsrl.types import Group
from runs import config_of
from tests.systems.made_up_groups import outcomes, right_of, view
from tests.systems.whole_steps import check_refused, check_resumed, lines, steps

SMALL = (
    *("systems=pilot_commit", "options.pilot_commit.pilots=3", "rollouts.num_prompts=2", "rollouts.num_rollouts=6"),
    *("select.num_kept=6", "rollouts.max_new_tokens=24"),
)


def made(**options: Any) -> Parts:
    return make_parts(["pilot_commit"], {"pilot_commit": options})


def waiting(parts: Parts, seen: View) -> list[str]:
    return waiting_ids(parts["wait"][0], seen)


def trainer(*overrides: str) -> Trainer:
    return Trainer(config_of(*SMALL, *overrides, recipe="mixed"))


class Questions:
    """How many of a question's first rollouts are right, drawn when it is asked."""

    def __init__(self, seed: int) -> None:
        self._draws = random.Random(seed)
        self._right: dict[str, list[bool]] = {}

    def group(self, name: str, size: int, **changes: Any) -> Group:
        if name not in self._right:
            share = self._draws.choice([0.0, 0.1, 0.5, 0.9, 1.0])
            self._right[name] = [self._draws.random() < share for _ in range(16)]
        right = self._right[name][:size]
        rollouts = [replace(one, is_correct=is_right) for one, is_right in zip(outcomes(0, size), right, strict=True)]
        return replace(right_of(name, 0, size), rollouts=tuple(rollouts), **changes)


def step_of(parts: Parts, opening: View, questions: Questions) -> tuple[View, list[list[tuple[str, int]]]]:
    """What the desk makes of a step: its view after the last round, and what each round asked."""
    budget, seen, rounds = Budget(parts), opening, list[list[tuple[str, int]]]()
    while asks := budget.ask(seen):
        asked = list[tuple[str, int]]()
        for ask in asks:
            name = ask.joins or f"s{seen.step}/{sum(map(len, rounds)) + len(asked)}"
            asked.append((name, ask.num_rollouts))
        known = {group.id: group for group in (*seen.waiting, *seen.groups)}
        grown = [
            questions.group(name, count + len(known[name].rollouts), step=known[name].step)
            if name in known
            else questions.group(name, count, step=seen.step)
            for name, count in asked
        ]
        rounds.append(asked)
        seen = seen.after(grown)
    return seen, rounds


@each("seed", range(60))
def test_each_pilot_is_trained_on_left_out_or_waits_once(seed: int) -> None:
    """And a plain loop over the same questions, with the same draws, commits the same ones."""
    draws = random.Random(seed)
    num_prompts, size, pilots = draws.randint(1, 4), draws.randint(4, 8), draws.randint(2, 3)
    wide, rounds, most_age, most = draws.randint(1, 3), draws.randint(2, 4), draws.randint(1, 3), draws.randint(2, 9)
    lower, upper = draws.choice([(0.125, 0.25), (0.0, 0.5), (0.4, 0.4)])
    options = {"wide": wide, "rounds": rounds, "most_age": most_age, "size": most, "lower": lower, "upper": upper}
    parts, questions, kept, ended = made(pilots=pilots, **options), Questions(seed), list[Group](), set[str]()
    for step in range(5):
        opening = replace(view(num_prompts, size), step=step, seed=seed, waiting=tuple(kept))
        seen, asked = step_of(parts, opening, questions)
        trained, names = Budget(parts).trained(seen), waiting(parts, seen)

        # the plain loop
        buffer, committed, number = [group.id for group in kept], list[str](), 0
        for turn in range(rounds):
            lacking = num_prompts - len(committed)
            if not lacking:
                break
            picked = opening.rng("pilot") if turn == 0 else replace(opening, round=turn).rng("pilot")
            count = min(lacking, len(buffer))
            places = sorted(picked.choice(len(buffer), count, replace=False)) if count else []
            new = wide * num_prompts if len(buffer) - lacking < num_prompts else 0
            if not new and not places:
                break
            fresh = [f"s{step}/{number + i}" for i in range(new)]
            number += new + len(places)
            assert asked[turn] == [*((name, pilots) for name in fresh), *((buffer[p], size - pilots) for p in places)]
            committed += [buffer[place] for place in places]
            for name in fresh:
                share = sum(one.is_correct for one in questions.group(name, pilots).rollouts) / pilots
                if lower <= share <= 1 - upper:
                    buffer.append(name)
            buffer = [name for name in buffer if name not in committed]
        assert trained == set(committed) and len(committed) <= num_prompts
        age = {group.id: step - group.step for group in (*kept, *seen.groups)}
        assert names == [name for name in buffer if age[name] < most_age][-most:]

        before = {group.id for group in kept}
        assert not trained & ended and not ended & set(names) and not trained & set(names)
        ended |= (before | {group.id for group in seen.groups}) - set(names)
        known = {group.id: group for group in (*seen.waiting, *seen.groups)}
        kept = [known[name] for name in names]
        assert all(len(group.rollouts) == pilots for group in kept)


def test_by_hand() -> None:
    """Of four pilots 1 to 3 right are worth more; the one that waited since step 5 goes as it is too old."""
    parts, old = made(pilots=4, most_age=1), replace(right_of("old", 2, 4), step=5)
    groups = tuple(right_of(f"g{right}", right, 4) for right in range(5))
    seen = replace(view(num_prompts=2), waiting=(old,), groups=(*groups, right_of("whole", 3, 8)))
    assert waiting(parts, seen) == ["g1", "g2", "g3"]
    assert Budget(parts).trained(seen) == {"whole"}
    asks = Budget(parts).ask(replace(seen, round=1))
    assert [(ask.num_rollouts, ask.joins in {"old", "g1", "g2", "g3"}) for ask in asks] == [(4, True)]


@each(
    "names, message",
    [
        (["no"], "wait of systems = 'own' returned 'no'; wanted ids of groups"),
        (["g", "g"], "returned an id twice"),
        (3, "returned 3; wanted ids of groups"),
        (["probe"], "no probes"),
    ],
)
def test_what_a_part_of_ones_own_says_is_checked(names: Any, message: str) -> None:
    own = Call("wait of systems = 'own'", lambda view: names)
    groups = (right_of("g", 1, 4), right_of("probe", 1, 4, is_trained=False))
    with pytest.raises(UsageError, match=message):
        waiting_ids(own, replace(view(), groups=groups))


def test_groups_grow_over_steps_and_every_token_counts_once(tmp_path: Path) -> None:
    run = trainer()
    found = steps(run, 5)
    said = lines(found)
    assert [line["groups/all"] for line in said] == [2] * 5 and sum(line["groups/resumed"] for line in said) >= 4
    for result in found:
        for group in result.groups:
            assert [one.index for one in group.rollouts] == list(range(6))
            assert 1 <= sum(one.is_correct for one in group.rollouts[:3]) <= 2
        assert all(len(group.rollouts) == 3 for group in result.left_out)
    ended = sum(
        len(one.token_ids) for result in found for group in (*result.groups, *result.left_out) for one in group.rollouts
    )
    waiting = sum(len(done.token_ids) for each in run.desk.waiting for done in each.rollouts)
    assert sum(line["tokens/generated"] for line in said) == ended + waiting
    names = [group.id for result in found for group in (*result.groups, *result.left_out)]
    assert len(set(names)) == len(names)


def test_a_resumed_run_has_the_buffer(tmp_path: Path) -> None:
    assert any(line["groups/resumed"] for line in check_resumed(trainer, tmp_path))


def test_what_it_does_not_go_with_is_refused() -> None:
    wants = "wait of systems = 'pilot_commit' wants that all that a step asks for has ended when it ends, and with"
    check_refused(rf"{wants} order\.ahead = 1", *SMALL, "order.ahead=1", "rollouts.generator=beside:beside")
    repair = ("systems=pilot_commit,scope", "options.scope.repair=podsrl.tasks.arithmetic:repair")
    check_refused(f"{wants} repair of systems = 'scope'", *SMALL, *repair)
    pilots = r"options\.pilot_commit\.pilots = 6: wanted fewer than rollouts\.num_rollouts = 6"
    check_refused(pilots, *SMALL, "options.pilot_commit.pilots=6")


def test_the_memory_of_the_buffer_is_said() -> None:
    config = config_of(*SMALL, recipe="mixed")
    [note] = replay_notes(config, parts_of(config))
    assert "wait of systems = 'pilot_commit' keeps at most 256 × 6 rollouts" in note
