"""sGPO's profile: sizes for every share of right probes, the unsolved share, phases, and what is asked when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from podsrl.control import Ask, Budget, View
from podsrl.errors import UsageError
from podsrl.lib.parts import Parts, make_parts
from podsrl.systems.sgpo import Profile
from podsrl.tasks.stream import Stream
from podsrl.types import Group
from tests.systems import made_up_groups
from tests.systems.made_up_groups import right_of

P = 10


def parts_of(**options: Any) -> Parts:
    return make_parts(["sgpo"], {"sgpo": options})


def view(num_train: int, step: int = 0, seed: int = 0, position: int = 0, **changes: Any) -> View:
    stream = Stream(num_train, seed=seed, position=position)
    return made_up_groups.view(P, 8, num_train, step=step, seed=seed, stream=stream, **changes)


def answered(ask: Ask, num_right: int, name: str) -> Group:
    return right_of(name, num_right, ask.num_rollouts, index=ask.index, is_trained=ask.is_trained)


def answers(asks: Sequence[Ask], right: Sequence[int], share: float = 0.5) -> list[Group]:
    """Probes have `right[index]` right of eight; other groups `share`."""
    return [
        answered(ask, round(share * ask.num_rollouts) if ask.is_trained else right[ask.index], f"{place}")
        for place, ask in enumerate(asks)
    ]


def stepped(parts: Parts, first: View, right: Sequence[int], share: float = 0.5) -> tuple[list[Ask], View]:
    """The trained asks of a step, with the last view; the part learns."""
    budget, asked, now = Budget(parts), [], first
    while asks := budget.ask(now):
        asked += [ask for ask in asks if ask.is_trained]
        groups = [replace(g, id=f"{now.round}/{g.id}") for g in answers(asks, right, share)]
        now = now.after(groups)
    parts.learn(now.groups)
    return asked, now


def test_sizes_for_every_share_of_right_probes() -> None:
    """The smallest power of two of at least 1 / p: 1/8 -> 8, 2/8 and 3/8 -> 4, 4/8 to 6/8 -> 2."""
    assert [Profile().size_of(k, 8) for k in range(9)] == [0, 8, 4, 4, 2, 2, 2, None, None]
    assert [Profile(drop_above=1.0).size_of(k, 8) for k in (6, 7, 8)] == [2, 2, 2]
    assert [Profile(largest=4).size_of(k, 8) for k in (1, 2, 3)] == [4, 4, 4]
    assert [Profile(largest=64).size_of(1, n) for n in (3, 8, 33, 100)] == [4, 8, 64, 64]


def test_the_first_round_of_a_run_asks_every_question_as_a_probe() -> None:
    parts, first = parts_of(), view(7)
    assert Budget(parts).ask(first) == [Ask(index=i, num_rollouts=8, is_trained=False) for i in range(7)]
    assert first.stream.position == 0
    assert parts.most(P, 4) == (20_000, 8)


def test_a_large_set_is_sampled_and_only_the_sample_is_trained_on() -> None:
    one, two, other = (parts_of(most_profiled=20) for _ in range(3))
    probes = Budget(one).ask(view(1000))
    assert len({ask.index for ask in probes}) == 20
    assert probes == Budget(two).ask(view(1000)) != Budget(other).ask(view(1000, seed=1))
    asked, _ = stepped(one, view(1000), [4] * 1000)
    assert len(asked) == P and {ask.index for ask in asked} <= {ask.index for ask in probes}


def test_the_second_round_asks_the_groups_of_the_easiest_phase() -> None:
    right = [8, 7, 6, 5, 4, 3, 2, 1, 0, 0] * 3
    parts = parts_of()
    asked, last = stepped(parts, view(30), right)
    assert last.round == 2 and len(asked) == P
    assert {ask.num_rollouts for ask in asked} == {2}
    assert {right[ask.index] for ask in asked} == {0, 4, 5, 6}
    asked, last = stepped(parts, view(30, step=1, position=last.stream.position), right)
    assert last.round == 1 and len(asked) == P and {right[ask.index] for ask in asked} == {0, 4, 5, 6}


@pytest.mark.parametrize(("share", "expected"), [(0.1, 40), (0.25, 100), (0.0, 0)])
def test_the_unsolved_share_of_every_phase_is_exact(share: float, expected: int) -> None:
    right = ([0] * 5 + [4] * 6 + [2] * 5 + [1] * 4) * 2
    parts = parts_of(unsolved_share=share, window=20)
    sizes: dict[int, list[int]] = {}
    position = 0
    for step in range(120):
        asked, last = stepped(parts, view(40, step=step, position=position), right)
        position = last.stream.position
        for ask in asked:
            sizes.setdefault(ask.num_rollouts, []).append(right[ask.index])
    assert sorted(sizes) == [2, 4, 8] and [len(found) for found in sizes.values()] == [400, 400, 400]
    for of_phase in sizes.values():
        assert of_phase.count(0) == expected
        for j in range(1, 401):
            assert of_phase[:j].count(0) == int(j * share + 1e-9)


def test_a_step_that_is_asked_again_asks_the_same() -> None:
    right = [0, 1, 2, 3, 4, 5, 6, 7] * 4
    budget = Budget(parts_of())
    first = view(32).after(answers(budget.ask(view(32)), right))
    one, two = (budget.ask(replace(first, stream=Stream(32, seed=0))) for _ in range(2))
    assert one == two


def test_a_phase_lasts_while_its_accuracy_rises() -> None:
    part, right = Profile(window=3), [4, 4, 2, 2]
    probes = answers([Ask(index=i, num_rollouts=8, is_trained=False) for i in range(4)], right)
    part.learn(probes)
    phases = []
    for share in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.6, 0.6, 0.5, 0.4, 0.4, 0.4):
        part.learn(answers([Ask(index=0, num_rollouts=20)], right, share))
        phases.append(part.state()["phase"])
    # The window means after the ninth group: 0.5 before, 0.567 since; after the tenth 0.567 before, 0.5 since.
    assert phases == [0] * 9 + [1] * 3


def test_the_last_phase_never_ends_and_unsolved_questions_do_not_count() -> None:
    part, right = Profile(window=1), [2, 0]
    part.learn(answers([Ask(index=i, num_rollouts=8, is_trained=False) for i in range(2)], right))
    for _ in range(5):
        part.learn(answers([Ask(index=0, num_rollouts=4), Ask(index=1, num_rollouts=4)], right))
    assert part.state()["phase"] == 0 and part.state()["accuracy"].tolist() == [0.5, 0.5]


def test_state_goes_on_as_if_it_had_not_stopped() -> None:
    right = [0, 1, 2, 3, 4, 5, 6, 7] * 4
    whole, position = parts_of(window=2), 0
    for step in range(30):
        again = parts_of(window=2)
        again.restore(whole.state())
        found = [stepped(each, view(32, step=step, position=position), right) for each in (whole, again)]
        assert found[0][0] == found[1][0]
        position = found[0][1].stream.position
    assert whole.state()["sgpo"]["phase"] == 2


def test_a_profile_without_a_question_to_train_on_is_an_error_that_names_the_threshold() -> None:
    budget = Budget(parts_of())
    last = view(5).after(answers(budget.ask(view(5)), [8, 8, 7, 0, 0]))
    with pytest.raises(UsageError, match=r"^options.sgpo.drop_above = 0.75 leaves no question of 5: 3 were .* 2 never"):
        budget.ask(last)


def test_a_small_phase_repeats_its_questions() -> None:
    part = Profile(unsolved_share=0.0)
    right = [4, 2, 2, 2]
    groups = tuple(answers([Ask(index=i, num_rollouts=8, is_trained=False) for i in range(4)], right))
    assert Counter(part.questions(view(4, round=1, groups=groups), P)) == {0: P}


def test_a_step_that_begins_before_the_profile_is_known_asks_the_stream() -> None:
    """As one step ahead does: the second step's first round comes before the first step's probes are learned."""
    parts = parts_of()
    second = Budget(parts).ask(view(20, step=1, position=P))
    assert [ask.index for ask in second] == Stream(20, seed=0, position=P).draw(P)
    assert {(ask.num_rollouts, ask.is_trained) for ask in second} == {(8, True)}
    stepped(parts, view(20), [4] * 20)
    assert Budget(parts).ask(view(20, step=1, position=P).after(answers(second, [4] * 20))) == []
