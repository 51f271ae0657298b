"""ECHO: votes, widths, pruning and weights against numbers by hand and loops, and training steps without labels."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from made import group_of, selection
from podsrl.control import Steering
from podsrl.generate import Engine, Request, Sampling
from podsrl.run.step.trainer import Trainer
from podsrl.systems.echo import TOLD, Confident, Votes, majority
from podsrl.types import Notes
from runs import assert_same_weights, config_of
from small_models import new_model
from tests.systems.whole_steps import WAYS_TO_STEP, check_refused, check_resumed, forbid_draws, lines, steps

# --- votes ---


def voted(*answers: str | None) -> list[float]:
    """Advantages of a group that gives these answers; the rewards are no help."""
    group = group_of("q", *range(len(answers)))
    rollouts = [replace(one, answer=answer) for one, answer in zip(group.rollouts, answers, strict=True)]
    group = replace(group, rollouts=tuple(rollouts))
    [found] = Votes().shape([group], [selection(group, range(len(answers)))], [torch.ones(len(answers))])
    return found.tolist()


def test_votes_reward_the_answer_that_most_give() -> None:
    up, down = 0.5 / (math.sqrt(1 / 3) + 1e-4), -0.5 / (math.sqrt(1 / 3) + 1e-4)  # two of four, ddof 1
    assert voted("4", "5", "4", None) == pytest.approx([up, down, up, down])
    assert voted("4", "5", "5", "4") == [0] * 4 and voted(None, None) == [0] * 2 and voted("4", "4") == [0] * 2
    assert voted("7") == [0]


def test_rollouts_that_were_not_kept_vote_too_and_invalid_ones_do_not() -> None:
    group = group_of("q", 0, 0, 0, 0, 0)
    answers = ["4", "5", "5", "4", "4"]
    rollouts = [replace(one, answer=answer) for one, answer in zip(group.rollouts, answers, strict=True)]
    whole = replace(group, rollouts=tuple(rollouts))
    assert majority(whole) == "4"
    [found] = Votes().shape([whole], [selection(whole, [0, 1])], [torch.zeros(2)])
    assert found[0] > 0 > found[1]
    failed = replace(rollouts[0], invalid_reason="the reward raised")
    assert majority(replace(whole, rollouts=(failed, *rollouts[1:4]))) == "5"


# --- the tree ---

SAMPLING = Sampling(max_new_tokens=12, stop_token_ids=())
OPTIONS: dict[str, Any] = {"widest": 3, "top": 2, "unsure": 0.95, "floor": 0.45, "spike": 0.6, "quantile": 0.5}


@cache
def small_model() -> Any:
    return new_model("qwen2", vocab_size=6, initializer_range=0.25)


def told(prompt: tuple[int, ...], tokens: tuple[int, ...]) -> tuple[list[float], list[float], list[list[int]]]:
    """Entropy and confidence of every token, and the words behind each place from the likeliest to the least likely."""
    with torch.inference_mode():
        logits = small_model()(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 :].double()
    every = logits.softmax(-1).tolist()
    entropies = [-sum(p * math.log(p) for p in odds) for odds in every]
    confidences = [sum(sorted(odds)[-2:]) for odds in every]
    return entropies, confidences, [sorted(range(6), key=lambda word: -odds[word]) for odds in every]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def rises_at(entropies: list[float], t: int) -> float:
    return entropies[t] - mean(entropies[max(0, t - 4) : t]) if t else 0.0


def width_at(entropies: list[float], confidences: list[float], t: int) -> int:
    group = mean(confidences[max(0, t - 3) : t + 1])
    if t < 4 or group > 0.95 or rises_at(entropies, t) < 0.2 or entropies[t] <= np.median(entropies[:t]):
        return 1
    return min(3, max(1, round(1 + 2 * (entropies[t] - 1) / 2.5 - (group - 0.95) / 0.95)))


def is_lost_at(entropies: list[float], confidences: list[float], t: int) -> bool:
    if mean(confidences[max(0, t - 3) : t + 1]) < 0.45:
        return True
    if t < 3:
        return False
    tails = [mean(confidences[max(0, s - 7) : s + 1]) for s in range(t - 3, t + 1)]
    spikes = [rises_at(entropies, s) for s in range(t - 2, t + 1)]
    falls = tails[3] < tails[2] < tails[1] < tails[0]
    return (falls and tails[3] <= 0.95) or (min(spikes) > 0 and spikes[2] > 0.6)


def test_rollouts_branch_and_end_where_entropy_and_confidence_say_so() -> None:
    """Every decision again, from the model's probabilities of each rollout's own tokens."""
    num_forks = num_pruned = 0
    for seed in range(40):
        prompt = tuple(np.random.default_rng(seed).integers(2, 6, 3).tolist())
        watch = Steering(["echo"], {"echo": OPTIONS})
        request = Request("q", prompt, 2, SAMPLING)
        every = sorted(Engine(small_model(), seed=seed).generate([request], watch=watch), key=lambda one: one.index)
        expected: dict[tuple[int, ...], int] = {}
        for done in every:
            entropies, confidences, words = told(prompt, done.token_ids)
            length = len(done.token_ids)
            first = done.given[0][1] if done.given else 0
            lost = [t for t in range(first, length + 1) if is_lost_at(entropies, confidences, t)]
            is_pruned = done.status == "pruned"
            num_pruned += is_pruned
            assert lost[:1] == ([length] if is_pruned else lost[:1]) and (is_pruned or all(t >= length for t in lost))
            noted = done.notes[TOLD] if TOLD in done.notes else np.zeros((0, 2))
            assert np.allclose(noted, np.array([entropies, confidences]).T[: len(noted)], atol=1e-4)
            assert len(noted) == length
            if done.index < 2:
                places = [t for t in range(length) if width_at(entropies, confidences, t) > 1]
                for t in places[:1] if places and places[0] + 1 < length else []:
                    width = width_at(entropies, confidences, t)
                    others = [word for word in words[t][:width] if word != done.token_ids[t]][: width - 1]
                    expected |= {(*done.token_ids[:t], word): 1 for word in others}
            else:
                num_forks += 1
        forks = {done.token_ids[: done.given[0][1]] for done in every if done.index > 1}
        assert forks == set(expected)
    assert num_forks > 10 and num_pruned > 10


# --- weights ---


def test_uncertain_tokens_count_more() -> None:
    part = Confident(widest=1, weight=0.1)
    notes = [[(1.0, 0.9), (3.0, 0.2)], [(1.0, 0.8)]]
    group = group_of("q", 1.0, 0.0, lengths=[2, 2])  # the second was begun with a token that nobody watched
    rollouts = [replace(one, notes=Notes({TOLD: note})) for one, note in zip(group.rollouts, notes, strict=True)]
    group = replace(group, rollouts=tuple(rollouts))
    [found] = part.shape([group], [selection(group, [0, 1])], [torch.tensor([1.0, -2.0])])
    h, c = [1.0, 3.0, 1.0], [0.9, 0.2, 0.8]
    z = [[(x - mean(of)) / math.sqrt(sum((y - mean(of)) ** 2 for y in of) / 2 + 1e-8) for x in of] for of in (h, c)]
    score = [min(2.0, max(-2.0, one - other)) for one, other in zip(*z, strict=True)]
    assert score[1] == 2.0
    wanted = [[1 + 0.1 * score[0], 1.2], [-2.0, -2 * (1 + 0.1 * score[2])]]
    assert torch.allclose(found, torch.tensor(wanted), atol=1e-6)
    plain = [torch.tensor([1.0, -2.0])]
    assert Confident(weight=0).shape([group], [selection(group, [0, 1])], plain) is plain


# --- steps ---

STEPS = ("rollouts.num_rollouts=6", "rollouts.max_new_tokens=16", "select.rule=keep_all", "select.num_kept=6")
STEPS = (*STEPS, "task.digits=1", "optim.lr=1e-3")
GIVEN = {"widest": 3, "unsure": 0.99, "top": 1, "spike": 0, "floor": 0.5}
"""Digits that are guessed branch."""
ECHO = ("systems=echo", *(f"options.echo.{name}={value}" for name, value in GIVEN.items()))


def trainer_of(*overrides: str) -> Trainer:
    return Trainer(config_of(*STEPS, *overrides))


def test_with_nothing_to_do_a_run_is_the_plain_one_and_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = trainer_of()
    wanted = lines(steps(plain, 2))
    forbid_draws(monkeypatch)
    alone = "podsrl.systems.echo:Confident"  # with the rewards that there are, not votes
    for watched in (0, 1):  # one is shown every token, and acts on none
        options = f"widest = 1, spike = 0, weight = 0, floor = {1e-9 * watched}"
        neutral = trainer_of(f"systems={alone}", f'options={{"{alone}" = {{{options}}}}}')
        assert lines(steps(neutral, 2)) == wanted
        assert_same_weights(neutral, plain)


def test_no_label_is_read() -> None:
    """With the rewards turned round it learns the same."""
    one, other = trainer_of(*ECHO), trainer_of(*ECHO, "task.rewards={correct=-3.0}")
    results = [steps(trainer, 2) for trainer in (one, other)]
    assert_same_weights(one, other)
    rollouts = [rollout for result in results[0] for group in result.groups for rollout in group.rollouts]
    assert any(rollout.parent is not None for rollout in rollouts)
    assert sum(line["tokens/trained"] for line in lines(results[0])) > 0


@pytest.mark.parametrize("parts", WAYS_TO_STEP)
def test_a_run_that_is_resumed_goes_on_as_if_it_had_not_stopped(tmp_path: Path, parts: tuple[str, ...]) -> None:
    check_resumed(lambda: trainer_of(*ECHO, *parts), tmp_path)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("rollouts.stop_strings=['a']",), r"systems = 'echo' wants that no stop string .*stop_strings = \['a'\]"),
        (("rollouts.generator=vllm",), r"systems = 'echo' .*'watch'"),
        (("task.correct=format",), r"'echo' counts final answers, and task\.correct = 'format' finds none"),
        (("systems=echo,until_mixed",), r"systems = 'echo' wants that every rollout .*close of systems = 'until"),
    ],
)
def test_what_cannot_be_is_one_line(overrides: tuple[str, ...], message: str) -> None:
    check_refused(message, *STEPS, *ECHO, *overrides)
