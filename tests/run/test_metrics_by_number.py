"""One step and one evaluation written by hand: every metric of their lines has the number worked out beside it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import made
from loops import each
from made import selection
from podsrl.lib.cpu_time import CpuTime
from podsrl.run.evaluate import Evaluation
from podsrl.run.metrics import group_records, step_metrics
from podsrl.run.step.collected import Load
from podsrl.run.step.counters import Progress
from podsrl.run.step.learn import UpdateResult
from podsrl.run.step.step_result import StepResult
from podsrl.score.accuracy import accuracy_of
from podsrl.types import Group, Parent, Rollout
from podsrl.update import UpdateStats, to_samples


def rollout(
    reward: float | None, length: int, *, is_correct: bool = False, reason: str | None = "no judge", **more: Any
) -> Rollout:
    """With its number of tokens; invalid without a reward, for the reason that is given."""
    value = math.nan if reward is None else reward
    parts, why = {"right": math.nan if reward is None else float(is_correct)}, reason if reward is None else None
    plain: Any = {"status": "done" if why is None else "failed", "invalid_reason": why}
    return made.rollout(value, length, parts=parts, is_correct=is_correct, **(plain | more))


def group_of(name: str, num_prompt_tokens: int, *rollouts: Rollout) -> Group:
    return made.group(name, *rollouts, prompt_ids=(5,) * num_prompt_tokens)


MIXED = group_of(
    "mixed", 5, rollout(1.0, 2, is_correct=True), rollout(0.0, 4), rollout(0.5, 6, finish_reason="length")
)  # 12 tokens
EQUAL = group_of("equal", 7, rollout(0.25, 3), rollout(None, 1), rollout(0.25, 5))  # 9 tokens
CUT = group_of(  # in two chunks, of which the second has one valid rollout; 21 tokens
    "cut",
    2,
    *(rollout(1.0, 1, is_correct=True), rollout(0.0, 2), rollout(0.0, 3)),
    *(rollout(None, 4, reason="late"), rollout(2.0, 5, is_correct=True), rollout(None, 6)),
)
CHUNKS = ((0, 1, 2), (3, 4, 5))

GROUPS = (MIXED, EQUAL, CUT)
SELECTIONS = (selection(MIXED, (0, 1)), selection(EQUAL, (0, 2)), selection(CUT, (0, 1), chunks=CHUNKS))
STEP = StepResult(
    progress=Progress(step=3, version=2, data_position=24, train_seconds=40.5),
    groups=GROUPS,
    selections=SELECTIONS,
    samples=tuple(to_samples(GROUPS, SELECTIONS, [torch.zeros(2)] * 3)),
    trained_version=1,
    update=UpdateResult(
        stats=UpdateStats(
            loss=0.125,
            entropy=0.75,
            kl=0.0625,
            clip_fraction=0.25,
            logprob_gap=0.03125,
            num_trained_tokens=9,  # of MIXED and CUT
        ),
        grad_norm=1.5,
    ),
    lr=0.015625,
    num_skipped_updates=1,
    weights_digest="0123456789abcdef",
    load=Load(
        num_decode_steps=6,
        num_forwarded=41,
        num_reread=5,
        peak_generate_bytes=600,
        peak_update_bytes=700,
        num_stopped=3,
        num_hurried=2,
        stopped_reasons=("a", "b", "c", "d"),
        num_postponed=0,
        num_postponed_tokens=0,
        num_pruned=0,
        num_pruned_tokens=0,
        num_waiting=0,
        num_resumed_tokens=0,
        cpu=CpuTime(5.5, 0.75),
    ),
    seconds={
        "generate": 1.0,
        "score": 2.0,
        "exchange": 0.0625,  # as with several processes
        "select": 0.5,
        "update": 4.0,
        "sync": 0.25,
        "record": 0.125,
    },
    total_seconds=8.5,
    overlapped_seconds=0.75,  # as with a step ahead
)


def bins(**counts: int) -> list[int]:
    """Twenty counts, 0 where none is given: `_5=2` is 2 in the bin of number 5."""
    return [counts.get(f"_{place}", 0) for place in range(20)]


LINE: dict[str, Any] = {
    "step": 3,
    "version": 2,
    "tokens/prompt": 5 + 7 + 2,
    "tokens/generated": 12 + 9 + 21,
    "tokens/forwarded": 41,
    "tokens/reread": 5,
    "tokens/trained": 9,
    "tokens/skipped": 8,  # kept are 2 + 4, 3 + 5 and 1 + 2 tokens
    "tokens/discarded": 42 - 17,
    "tokens/pruned": 0,
    "tokens/postponed": 0,
    "rollouts/pruned": 0,
    "rollouts/postponed": 0,
    "rollouts/lag": 1.0,
    "rollouts/lag_max": 1,
    "histogram/lags": {"low": 1.0, "high": 1.0, "counts": [6]},
    "reward/all": (1.5 + 0.5 + 3.0) / 9,
    "reward/kept": (1.0 + 0.5 + 1.0) / 6,
    "reward/min": 0.0,
    "reward/max": 2.0,  # behind the kept ones of CUT
    # deviations of (1, 0, 1/2), of (1/4, 1/4), of (1, 0, 0), and 0 for the one reward of the last chunk
    "reward_std/all": (0.5 + 0.0 + math.sqrt(1 / 3) + 0.0) / 4,
    "reward_std/kept": (math.sqrt(1 / 2) + 0.0 + math.sqrt(1 / 2) + 0.0) / 4,
    "rewards/right/mean": 3 / 9,
    "rewards/right/std": 0.5,  # of three ones and six zeros: the root of (3 · 4/9 + 6 · 1/9) / 8
    "accuracy/all": 3 / 12,
    "groups/all": 4,  # CUT counts twice
    "rollouts/all": 12,
    "rollouts/kept": 6,
    "rollouts/left_out": 0,
    "rollouts/probes": 0,
    "rollouts/guided": 0,
    "rollouts/guide_too_long": 0,
    "groups/mixed": 2,
    "groups/all_wrong": 1,  # EQUAL
    "groups/left_out": 0,
    "groups/zero_signal": 2,  # EQUAL, and the last chunk
    "groups/invalid": 1,  # the last chunk
    "rollouts/invalid": 3,
    "invalid_reasons": ["no judge", "late"],
    "rollouts/reward_timeouts": 3,
    "rollouts/reward_hurried": 2,
    "reward_timeout_reasons": ["a", "b", "c"],
    "rollouts/truncated": 1,
    "length/all": 42 / 12,
    "length/kept": 17 / 6,
    "length/min": 1,
    "length/max": 6,
    "histogram/rewards": {"low": 0.0, "high": 2.0, "counts": bins(_0=3, _2=2, _5=1, _10=2, _19=1)},
    "histogram/rewards_kept": {"low": 0.0, "high": 1.0, "counts": bins(_0=2, _5=2, _19=2)},
    "histogram/lengths": {"low": 1.0, "high": 6.0, "counts": bins(_0=2, _4=2, _8=2, _12=2, _16=2, _19=2)},
    "histogram/advantages": {"low": 0.0, "high": 0.0, "counts": [6]},
    "loss": 0.125,
    "grad_norm": 1.5,
    "lr": 0.015625,
    "entropy": 0.75,
    "kl": 0.0625,
    "clip_fraction": 0.25,
    "logprob_gap": 0.03125,
    "updates/skipped": 1,
    "sync/weights_digest": "0123456789abcdef",
    "memory/peak_generate_bytes": 600,
    "memory/peak_update_bytes": 700,
    "seconds/generate": 1.0,
    "seconds/score": 2.0,
    "seconds/exchange": 0.0625,
    "seconds/select": 0.5,
    "seconds/update": 4.0,
    "seconds/sync": 0.25,
    "seconds/record": 0.125,
    "seconds/overlapped": 0.75,
    "seconds/total": 8.5,
    "seconds/tokens_per_second": 42 / 8.5,
    "seconds/train_elapsed": 40.5,
    "seconds/cpu": 5.5,
    "seconds/cpu_wait": 0.75,
}


def close(line: dict[str, Any]) -> dict[str, Any]:
    """Means of float64 numbers, whatever the order of their sums."""
    return {
        name: pytest.approx(value, rel=1e-12) if isinstance(value, float) else value for name, value in line.items()
    }


def documented(section: str) -> set[str]:
    """The names before the colons of a section's lists."""
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    lists = page.split(f"## {section}\n")[1].split("\n#")[0]
    terms = re.findall(r"^- (`[^:]*):", lists, flags=re.MULTILINE)
    return {name for term in terms for name in re.findall(r"`([^`]+)`", term)}


def test_every_metric_of_a_step_has_its_number() -> None:
    assert step_metrics(STEP) == close(LINE)


def test_every_documented_metric_of_a_step_has_its_number_here() -> None:
    names = {name.replace("/right/", "/NAME/") for name in LINE}
    assert names | {
        "capped_fraction",
        "dropped_fraction",
        "tokens/recalled",
        "tokens/shared",
        "rollouts/recalled",
        "tokens/resumed",
        "rollouts/repaired",
        "invalid_example",
        "level/NAME",
        "groups/waiting",
        "groups/resumed",
        "groups/age_max",
        "tokens/given",
        "turns/mean",
        "turns/max",
        "tools/calls",
        "tools/failed",
    } == documented("`metrics.jsonl`: one line per step")


def sample(answer: str | None, length: int, **changes: Any) -> Rollout:
    """An answer to a held-out question; "8" is right. Its reward is 1.5 where it is, else 0.5."""
    is_correct = answer == "8"
    made = rollout(1.5 if is_correct else 0.5, length, is_correct=is_correct)
    return replace(made, answer=answer, **changes)


# right answers: 3 of 4, 1 of 4, 0 of 4
EASY = group_of("easy", 5, sample("8", 2), sample("8", 3, is_formatted=False), sample("9", 4), sample("8", 5))
HARD = group_of("hard", 5, sample("9", 2), sample("9", 2, is_formatted=False), sample("8", 1), sample(None, 9))
LOST = group_of(
    "lost",
    5,
    *(sample("9", 2), sample(None, 6), replace(sample("7", 3), reward=math.nan, invalid_reason="late")),
    replace(rollout(0.5, 9, finish_reason="length"), answer="7"),
)
EVALUATION = Evaluation(
    step=20,
    result=accuracy_of([EASY, HARD, LOST], num_stopped=2),
    examples=(replace(EASY, rollouts=(sample("8", 2, text="It is 8."), *EASY.rollouts[1:])), HARD),
    train_elapsed_seconds=33.5,
    seconds=1.25,
)
EVALUATION_LINE: dict[str, Any] = {
    "step": 20,
    "eval/examples": [
        {"id": "easy", "prompt": "?", "answer": "!", "text": "It is 8.", "is_correct": True},
        {"id": "hard", "prompt": "?", "answer": "!", "text": "", "is_correct": False},
    ],
    "eval/accuracy": 4 / 12,
    "eval/accuracy_sem": math.sqrt(((5 / 12) ** 2 + (1 / 12) ** 2 + (4 / 12) ** 2) / 2 / 3),  # of 3/4, 1/4 and 0
    "eval/accuracy_and_format": 3 / 12,
    "eval/format": 9 / 12,  # all but two without the form and an invalid one
    "eval/maj": 1 / 3,  # EASY alone: LOST's "9" and "7" have a valid vote each
    "eval/pass@2": (1.0 + 3 / 6 + 0.0) / 3,  # of six pairs of HARD three hold the right one
    "eval/pass@4": 2 / 3,
    "eval/reward": (4 * 1.5 + 7 * 0.5) / 11,
    "eval/length": (14 + 14 + 20) / 12,
    "eval/truncated": 1,
    "eval/num_questions": 3,
    "eval/num_samples": 12,
    "eval/num_invalid": 1,
    "eval/reward_timeouts": 2,
    "seconds/train_elapsed": 33.5,
    "seconds/eval": 1.25,
}


def test_every_metric_of_an_evaluation_has_its_number() -> None:
    assert EVALUATION.to_json() == close(EVALUATION_LINE)
    assert set(EVALUATION_LINE) == documented("`metrics.jsonl`: one line per evaluation")


def test_a_step_is_empty_where_no_group_keeps_a_rollout() -> None:
    nothing = tuple(selection(group, ()) for group in STEP.groups)
    assert [replace(STEP, selections=some).is_empty for some in (nothing, (), STEP.selections)] == [True, True, False]
    assert not replace(STEP, selections=(*nothing[:2], STEP.selections[2])).is_empty


def test_the_lines_of_a_steps_groups_hold_its_advantages() -> None:
    """One number per rollout, or one per token without the padding."""
    advantages = [torch.tensor([0.5, -0.5]), torch.tensor([[0.25] * 5, [-0.25] * 5]), torch.tensor([1.0, -1.0])]
    lines = list(group_records(replace(STEP, samples=tuple(to_samples(GROUPS, SELECTIONS, advantages)))))
    assert [(line["step"], line["group"]) for line in lines] == [(3, "mixed"), (3, "equal"), (3, "cut")]
    assert [[rollout["advantage"] for rollout in line["rollouts"]] for line in lines] == [
        [0.5, -0.5, None],
        [(0.25,) * 3, None, (-0.25,) * 5],
        [1.0, -1.0, None, None, None, None],
    ]


def test_a_line_is_json_and_its_counts_are_whole_numbers() -> None:
    line = step_metrics(STEP)
    assert json.loads(json.dumps(line, allow_nan=False)) == line
    assert {name for name in LINE if type(line[name]) is not type(LINE[name])} == set()


def test_a_group_that_is_left_out_counts_with_its_tokens_and_its_accuracy() -> None:
    guided = replace(rollout(1.0, 3, is_correct=True), prompt_ids=(5,) * 9, origin="examples")
    plain = replace(rollout(-1.0, 5), is_unguided=True)
    left_out = group_of("left", 3, guided, plain)
    changed = {
        "tokens/prompt": 14 + 3 + 9,  # both prompts
        "tokens/generated": 42 + 8,
        "seconds/tokens_per_second": 50 / 8.5,
        "tokens/discarded": 25 + 8,
        "reward/min": -1.0,
        "accuracy/all": 4 / 14,
        "groups/mixed": 3,
        "groups/left_out": 1,
        "rollouts/left_out": 2,
        "rollouts/guided": 1,
        "rollouts/guide_too_long": 1,
    }
    assert step_metrics(replace(STEP, left_out=(left_out,))) == close({**LINE, **changed})
    assert step_metrics(replace(STEP, left_out=(left_out, EQUAL)))["groups/all_wrong"] == 2


def test_a_pruned_rollout_has_no_reward_and_is_no_failure() -> None:
    """It counts with its tokens and nowhere else, in its group or behind it; a probe with its prompt and its tokens."""
    pruned = rollout(None, 10, **made.ended("pruned"), reason=None)
    probe = group_of(
        "probe", 3, rollout(0.5, 2, is_correct=True), rollout(None, 8, **made.ended("pruned"), reason=None)
    )
    with_pruned = replace(MIXED, rollouts=(*MIXED.rollouts, pruned))
    load = replace(STEP.load, num_postponed=4, num_postponed_tokens=50, num_pruned=3, num_pruned_tokens=20)
    step = replace(STEP, groups=(with_pruned, EQUAL, CUT), probes=(probe,), load=load)
    changed = {
        "tokens/prompt": 14 + 3,
        "tokens/generated": 42 + 10 + 2 + 8 + 50 + 20,
        "seconds/tokens_per_second": 132 / 8.5,
        "tokens/discarded": 25 + 2,
        "tokens/pruned": 10 + 8 + 20,
        "tokens/postponed": 50,
        "rollouts/pruned": 2 + 3,
        "rollouts/postponed": 4,
        "rollouts/probes": 1,
    }
    line = step_metrics(step)
    assert line == close({**LINE, **changed})
    parts = ("trained", "skipped", "discarded", "pruned", "postponed")
    assert line["tokens/generated"] == sum(line[f"tokens/{part}"] for part in parts)


def test_groups_that_went_on_and_that_go_on_are_counted() -> None:
    """Of the 42 tokens that ended 30 are of earlier steps; 12 wait. The groups began in this step and before it."""
    load = replace(STEP.load, num_postponed=4, num_postponed_tokens=12, num_waiting=2, num_resumed_tokens=30)
    groups = tuple(replace(group, step=step) for step, group in enumerate(STEP.groups))
    line = step_metrics(replace(STEP, groups=groups, load=load))
    assert line["tokens/generated"] == 42 - 30 + 12 and line["tokens/resumed"] == 30
    assert (line["groups/waiting"], line["groups/resumed"], line["groups/age_max"]) == (2, 2, 2)
    assert step_metrics(replace(STEP, groups=groups)) == close(LINE)


def test_given_tokens_are_counted_apart() -> None:
    """One token of a kept rollout, and two of one that was pruned."""
    hinted = rollout(1.0, 2, is_correct=True, given=((0, 1),))
    pruned = rollout(None, 10, **made.ended("pruned"), reason=None, given=((1, 3),))
    group = replace(MIXED, rollouts=(hinted, *MIXED.rollouts[1:], pruned))
    line, plain = step_metrics(replace(STEP, groups=(group, EQUAL, CUT))), step_metrics(STEP)
    kinds = ("generated", "skipped", "discarded", "pruned", "trained")
    assert {kind: line[f"tokens/{kind}"] - plain[f"tokens/{kind}"] for kind in kinds} == {
        **dict.fromkeys(kinds, 0),
        "generated": 8 - 1,
        "skipped": -1,
        "pruned": 8,
    }
    assert line["tokens/given"] == 3 and "tokens/given" not in plain
    assert line["length/max"] == plain["length/max"] and line["length/all"] == plain["length/all"]


def test_a_token_that_rollouts_share_counts_once() -> None:
    """A kept fork of 4 tokens shares 3 with its source, one of 6 that is discarded 4, and a pruned one of 10 the 7."""
    forks = rollout(0.0, 4, parent=Parent(0, 3)), rollout(0.5, 6, parent=Parent(0, 4), finish_reason="length")
    pruned = rollout(None, 10, **made.ended("pruned"), reason=None, parent=Parent(0, 7))
    group = replace(MIXED, rollouts=(MIXED.rollouts[0], *forks, pruned))
    changed = {
        "tokens/generated": 42 - 3 - 4 + 3,
        "seconds/tokens_per_second": 38 / 8.5,
        "tokens/discarded": 25 - 4,
        "tokens/pruned": 3,
        "tokens/shared": 3,  # in trained and skipped
        "rollouts/pruned": 1,
    }
    line = step_metrics(replace(STEP, groups=(group, EQUAL, CUT)))
    assert line == close({**LINE, **changed})
    assert line["tokens/generated"] == 9 + 8 + 21 + 3 - 3


def test_what_is_not_there_or_not_finite_is_null() -> None:
    stats = replace(STEP.update.stats, kl=None, loss=math.nan)
    step = replace(
        STEP,
        update=UpdateResult(stats=stats, grad_norm=math.inf),
        load=replace(STEP.load, peak_update_bytes=None),
    )
    line = {**LINE, **dict.fromkeys(("kl", "loss", "grad_norm"))}
    del line["memory/peak_update_bytes"]  # on a CPU nobody measures it
    assert step_metrics(step) == close(line)


@pytest.mark.filterwarnings("error")
def test_a_step_without_groups_has_no_means_and_warns_of_none() -> None:
    line = step_metrics(replace(STEP, groups=(), selections=(), samples=(), update=UpdateResult()))
    means = {
        "reward/all",
        "reward/kept",
        "reward/min",
        "reward/max",
        "reward_std/all",
        "reward_std/kept",
        "accuracy/all",
        "length/all",
        "length/kept",
        "length/min",
        "length/max",
        "histogram/rewards",
        "histogram/rewards_kept",
        "histogram/lengths",
        "histogram/advantages",
    }
    assert {name for name in means if line[name] is not None} == set()
    counts = {"tokens/prompt", "tokens/generated", "tokens/skipped", "tokens/discarded", "rollouts/invalid"}
    assert {line[name] for name in counts | {"groups/zero_signal", "groups/invalid", "rollouts/truncated"}} == {0}


def test_the_lag_counts_from_the_oldest_token_of_each_kept_rollout_to_the_weights_before_the_update() -> None:
    ages = [(7, ()), (5, ()), (6, (6, 7)), (7, (7, 4)), (7, ()), (7, (7, 7))]
    samples = [
        replace(sample, rollout=replace(sample.rollout, version=first, versions=versions))
        for sample, (first, versions) in zip(STEP.samples, ages, strict=True)
    ]
    line = step_metrics(replace(STEP, samples=tuple(samples), trained_version=7))
    assert (line["rollouts/lag"], line["rollouts/lag_max"]) == ((0 + 2 + 1 + 3 + 0 + 0) / 6, 3)
    assert line["histogram/lags"] == {"low": 0.0, "high": 3.0, "counts": bins(_0=3, _6=1, _13=1, _19=1)}
    assert "histogram/lags" not in step_metrics(replace(STEP, trained_version=0))
    line = step_metrics(replace(STEP, groups=(), selections=(), samples=()))
    assert line["rollouts/lag"] is line["rollouts/lag_max"] is None


@pytest.mark.filterwarnings("ignore:overflow")  # of the rewards' deviation, which is null then
@each(
    "low, high, counts",
    [(1.0, 1.0 + 2**-52, bins(_0=1, _19=1)), (-1.7e308, 1.7e308, bins(_0=1, _19=1)), (0, 5e-324, [2])],
)
def test_a_histogram_has_room_for_the_nearest_and_the_farthest_numbers(
    low: float, high: float, counts: list[int]
) -> None:
    group = group_of("far", 1, rollout(low, 1), rollout(high, 1))
    line = step_metrics(replace(STEP, groups=(group,), selections=(selection(group, ()),), samples=()))
    assert line["histogram/rewards"] == {"low": low, "high": high, "counts": counts}


def test_a_fourth_reason_is_left_out() -> None:
    group = group_of("bad", 1, *(rollout(None, 1, reason=reason) for reason in ("d", "c", "d", "b", "a")))
    line = step_metrics(replace(STEP, groups=(group,), selections=(selection(group, ()),), samples=()))
    assert line["invalid_reasons"] == ["d", "c", "b"] and line["rollouts/invalid"] == 5


def test_the_first_invalid_answer_is_shown_shortened() -> None:
    group = group_of("bad", 1, rollout(1.0, 1, text="fine"), rollout(None, 1, text=f"a{'-' * 300}b"))
    line = step_metrics(replace(STEP, groups=(group,), selections=(selection(group, ()),), samples=()))
    assert line["invalid_example"] == f"a{'-' * 119}…{'-' * 118}b"
