"""What a run says of groups under way: how many, how old, and whether a resumed run is the same."""

from __future__ import annotations

import pytest

from loops import each
from podsrl.config.load import load_config
from podsrl.errors import UsageError
from podsrl.run.before.estimate import estimate
from podsrl.run.before.exclusions import check_exclusions
from podsrl.run.before.model_shape import read_shape
from podsrl.run.before.order import order_notes
from podsrl.run.before.prepare import prepare
from podsrl.run.before.replay import replay_notes
from podsrl.run.before.sizes import parts_of
from podsrl.update import resolve_advantage
from runs import config_of

FIRST = ("order.ahead=0.25", "order.take=first", "order.rest=put_off", "rollouts.num_prompts=8")
FIRST_RUNS = ("order.ahead=0.25", "order.take=first", "order.rest=run", "rollouts.num_prompts=8")
ELSEWHERE = "scale.generators=1"
NOT_SAME = "this run is not reproducible: "
LOST = (
    f"{NOT_SAME}with order.rest = 'run' each checkpoint stops what runs, which goes on behind keys and values of the "
    "newest weights"
)
CLOCKS = f"{NOT_SAME}the clocks of generators that work beside the trainer decide "
TOKENS = f"{NOT_SAME}with order.rest = 'run' clocks decide at which token new weights come"


@each(
    "overrides, talks, said",
    [
        (("order.ahead=1", ELSEWHERE), True, ["1 further step is under way beside each; a group is at most 1 step "]),
        (("order.ahead=1", "rollouts.generator=beside:beside"), False, ["old, 1 weight update (optim"]),
        (("order.ahead=3", "order.rest=run"), True, ["3 further steps are under way", "4 steps old, 4 weight", TOKENS]),
        (("order.ahead=3", "order.rest=run", "order.most_age=2"), True, ["3 further steps are", "2 steps old", TOKENS]),
        (("order.ahead=2", "order.rest=run", "optim.num_epochs=2"), False, ["3 steps old, 6 weight updates", LOST]),
        (FIRST, False, ["10 groups are under way, and a step takes the first 8; no bound on the ages"]),
        ((*FIRST, "order.most_age=4"), False, ["at most 4 steps old, 4 weight updates (optim.num_epochs"]),
        ((*FIRST, ELSEWHERE), False, [f"{CLOCKS}which groups are whole first, and where the others stop"]),
        (FIRST, True, [f"{NOT_SAME}the clocks of an environment decide which groups are whole first"]),
        (("order.ahead=2", "order.rest=put_off", ELSEWHERE), False, [f"{CLOCKS}where rollouts stop"]),
        ((*FIRST_RUNS, ELSEWHERE), False, [TOKENS]),
    ],
)
def test_a_run_says_what_is_under_way_and_how_old_it_gets(
    overrides: tuple[str, ...], talks: bool, said: list[str]
) -> None:
    [note] = order_notes(config_of(*overrides), talks=talks)
    assert all(part in note for part in said) and "\n" not in note, note
    assert (NOT_SAME in note) == any(NOT_SAME in part for part in said)


def test_a_run_without_groups_under_way_says_nothing_of_them() -> None:
    assert order_notes(config_of(ELSEWHERE), talks=True) == ()


def test_the_first_lines_of_a_run_have_the_note() -> None:
    prepared = prepare(config_of("order.ahead=2", "order.rest=run"))
    assert [note for note in prepared.notes if note.startswith("2 further steps are under way")]
    prepared.close()


@each(
    "overrides, groups",
    [
        (FIRST, 2),
        (("order.ahead=1", ELSEWHERE, "rollouts.num_prompts=8"), 8),
        (("order.ahead=2", "order.rest=run", "rollouts.num_prompts=8"), 24),
        (("order.ahead=2", "order.rest=put_off", "rollouts.num_prompts=8"), 16),
        (("rollouts.num_prompts=8",), 0),
    ],
)
def test_the_memory_of_groups_of_later_steps_is_said(overrides: tuple[str, ...], groups: int) -> None:
    config = config_of(*overrides)
    notes = replay_notes(config, parts_of(config))
    rollouts = config.rollouts
    product = f"keeps at most {groups} × {rollouts.num_rollouts} rollouts with up to {rollouts.max_new_tokens} tokens"
    assert [product in note for note in notes] == ([True] if groups else [])
    if groups:
        much = config_of(*overrides, "rollouts.num_prompts=20000", "rollouts.max_new_tokens=20000")
        with pytest.raises(UsageError, match=r"^order\.ahead = .* and this machine has .*: let it keep fewer groups"):
            replay_notes(much, parts_of(much))


def test_the_first_whole_groups_are_those_of_one_process() -> None:
    config = config_of(*FIRST)
    mean = resolve_advantage("none")
    check_exclusions(config, parts_of(config), mean, 1)
    with pytest.raises(UsageError, match=r"^order\.take = 'first' wants that one process trains.* with 2 processes"):
        check_exclusions(config, parts_of(config), mean, 2)
    asked = config_of("order.ahead=2", "order.rest=run")
    check_exclusions(asked, parts_of(asked), mean, 2)


def test_key_values_of_all_that_is_under_way_stay_while_the_update_runs() -> None:
    """With two further steps there are three times as many; they need room beside what the update takes."""

    def key_values(*overrides: str) -> dict[str, tuple[str, int]]:
        config = load_config("pods", ["task.num_eval=8", *overrides])
        parts = estimate(config, read_shape(config.model))
        return {part.name: (part.phase, part.num_bytes) for part in parts if "key-values" in part.name}

    plain, run = key_values(), key_values("order.ahead=2", "order.rest=run")
    put_off = key_values("order.ahead=2", "order.rest=put_off")
    assert plain["key-values"][0] == "generate" and plain.keys() == put_off.keys() == {"key-values", "kept key-values"}
    assert run == {"key-values": ("always", 3 * plain["key-values"][1])}
    assert put_off["key-values"] == ("generate", 3 * plain["key-values"][1])
