"""SAPO's folder: what a run takes of others' files against a list by hand, hostile files, and whole runs that share."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loops import each
from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError
from podsrl.plan.probe import measure_steps
from podsrl.policy import load_tokenizer, prompt_ids
from podsrl.records import encode
from podsrl.run.before.exclusions import check_exclusions
from podsrl.run.step.trainer import Trainer
from podsrl.systems.sapo import Swarm
from podsrl.types import Group, Rollout, Task
from runs import config_of
from tests.systems import made_up_groups
from tests.systems.whole_steps import check_refused, check_resumed, lines, steps

TASKS = tuple(Task(id=f"q/{i}", prompt=f"What is {i} + 2?", answer=str(i + 2)) for i in range(4))
TOKENIZER = load_tokenizer(ModelConfig())
MOST = 6


def view(step: int, seed: int = 0) -> Any:
    return replace(made_up_groups.view(2, 2, 4, tasks=TASKS, step=step), seed=seed)


def met(step: int, index: int, *rewards: float, **changes: Any) -> Group:
    """A group of a step, with a rollout per reward."""
    name = f"s{step}/0/{TASKS[index].id}"
    rollouts = []
    for place, reward in enumerate(rewards):
        own: dict[str, Any] = {"token_ids": (3, 4 + place), "logprobs": (-0.5, -1.0), "version": 7, **changes}
        done = Rollout(group_id=name, index=place, finish_reason="stop", **own)
        rollouts.append(replace(done, reward=reward, parts={"correct": reward}, is_correct=reward > 0.5))
    ids = prompt_ids(TOKENIZER, TASKS[index])
    return Group(id=name, task=TASKS[index], prompt_ids=ids, rollouts=tuple(rollouts), index=index, step=step)


def swarm(folder: Path, name: str, **options: Any) -> Swarm:
    part = Swarm(folder=str(folder), name=name, **options)
    part.check_model(TOKENIZER, MOST)
    return part


def test_a_run_takes_mixed_groups_of_the_newest_files_of_others_and_none_of_its_own(tmp_path: Path) -> None:
    one, other, third = (swarm(tmp_path, name, num=9, window=2) for name in ("a", "b", "c"))
    for part in (one, other, third):
        part.recall(view(0))
    for step in range(4):
        other.learn([met(step, 0, 0.0, 1.0), met(step, 1, 1.0, 1.0)])
        one.learn([met(step, 2, 0.0, 1.0)])
    third.learn([met(9, 3, 1.0, 0.0)])
    found = one.recall(view(4))
    assert [group.id for group in found] == ["b/s2/0/q/0", "b/s3/0/q/0", "c/s9/0/q/3"]
    for group in found:
        assert all(rollout.origin == "swarm" for rollout in group.rollouts)
        assert {rollout.group_id for rollout in group.rollouts} == {group.id}
        assert group.rollouts[0].logprobs == (-0.5, -1.0) and group.task is TASKS[group.index or 0]
    own = [f"{name}.{step:08d}.groups" for name in "ab" for step in (2, 3)]
    assert sorted(path.name for path in tmp_path.glob("*.groups")) == [*own, "c.00000009.groups"]


def test_files_of_an_earlier_run_of_the_same_name_go_when_it_writes(tmp_path: Path) -> None:
    earlier, part = swarm(tmp_path, "a"), swarm(tmp_path, "a", window=2)
    for step in (0, 1, 2, 90):
        earlier.learn([met(step, 0, 0.0, 1.0)])
    for step in (0, 1, 2):
        part.learn([met(step, 0, 0.0, 1.0)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.00000001.groups", "a.00000002.groups"]


def test_of_many_some_are_drawn_and_the_same_when_a_step_is_asked_again(tmp_path: Path) -> None:
    one, other = (swarm(tmp_path, name, num=2, window=9) for name in ("a", "b"))
    other.recall(view(0))
    for step in range(8):
        other.learn([met(step, step % 4, 0.0, 1.0)])
    drawn = {tuple(group.id for group in one.recall(view(step))) for step in range(30)}
    assert all(len({*ids}) == 2 for ids in drawn) and len(drawn) > 10
    assert one.recall(view(3)) == one.recall(view(3))


def test_a_run_without_a_name_has_that_of_its_seed(tmp_path: Path) -> None:
    part = swarm(tmp_path, "")
    part.recall(view(0, seed=5))
    part.learn([met(0, 0, 0.0, 1.0)])
    assert [path.name for path in tmp_path.glob("*.groups")] == ["run-5.00000000.groups"]


def test_the_name_of_a_run_that_goes_on_is_refused(tmp_path: Path) -> None:
    hold = "import fcntl, sys; fcntl.lockf(file := open(sys.argv[1], 'w'), 2); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", hold, str(tmp_path / "run-5.lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline()
        with pytest.raises(UsageError, match=r"the name 'run-5' .* another seed, or options\.sapo\.name"):
            swarm(tmp_path, "").recall(view(0, seed=5))


def test_steps_that_are_measured_write_nothing(tmp_path: Path) -> None:
    measure_steps(config_of("systems=sapo", f"options.sapo.folder={tmp_path}", *STEPS, recipe="mixed"), 1)
    assert not [*tmp_path.iterdir()]


def changed(**changes: Any) -> Callable[[Group], Group]:
    return lambda group: met(group.step, group.index or 0, 0.0, 1.0, **changes)


HOSTILE: dict[str, Callable[[Group], Group]] = {
    "another prompt": lambda group: replace(group, prompt_ids=(*group.prompt_ids, 3)),
    "no question": lambda group: replace(group, index=9),
    "another question": lambda group: replace(group, index=2),
    "a large token": changed(token_ids=(3, 10**6)),
    "a token below 0": changed(token_ids=(3, -1)),
    "too many tokens": changed(token_ids=(3,) * 7, logprobs=(-1.0,) * 7),
    "no tokens": changed(token_ids=(), logprobs=()),
    "log-probs above 0": changed(logprobs=(0.5, -1.0)),
    "log-probs without number": changed(logprobs=(math.nan, -1.0)),
    "stretches out of order": changed(given=((1, 9),)),
    "an infinite reward": lambda group: met(group.step, group.index or 0, math.inf, 1.0),
}
REASONS = {"prompt": "another tokenizer or template", "question": "of no question here"}
"""Last word of the name of a change -> why it is skipped, unless no run could have made it."""


@each("name", HOSTILE)
def test_a_hostile_file_is_skipped_counted_and_said(name: str, tmp_path: Path) -> None:
    change, message = HOSTILE[name], REASONS.get(name.split()[-1], "none that this run could have made")
    folder = tmp_path / name.replace(" ", "-")
    part = swarm(folder, "a", num=9)
    good = met(3, 0, 0.0, 1.0)
    (folder / "b.00000003.groups").write_bytes(encode([good, change(good)]))
    (folder / "c.00000003.groups").write_bytes(encode([good]))
    with pytest.warns(UserWarning, match=rf"b\.00000003\.groups' is skipped \(the first\): .*{message}"):
        found = part.recall(view(4))
    assert [group.id for group in found] == ["c/s3/0/q/0"] and part.num_skipped == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert part.recall(view(5)) == found, "a file that was skipped is not read again"


def test_torn_large_linked_and_strange_files_are_skipped(tmp_path: Path) -> None:
    part = swarm(tmp_path, "a", num=9, most_bytes=1 << 16)
    whole = encode([met(3, 0, 0.0, 1.0)])
    for number in range(0, len(whole), 97):
        (tmp_path / f"torn-{number}.00000001.groups").write_bytes(whole[:number])
    flipped = bytearray(whole)
    flipped[-3] ^= 1
    (tmp_path / "bit.00000001.groups").write_bytes(flipped)
    (tmp_path / "large.00000001.groups").write_bytes(whole + bytes(1 << 16))
    (tmp_path / "true.groups").write_bytes(whole)
    os.symlink(tmp_path / "true.groups", tmp_path / "link.00000001.groups")
    os.mkfifo(tmp_path / "pipe.00000001.groups")
    (tmp_path / "folder.00000001.groups").mkdir()
    (tmp_path / "..00000001.groups").write_bytes(whole)  # no name of a run
    (tmp_path / "pickle.00000001.groups").write_bytes(b"cos\nsystem\n(S'touch hacked'\ntR.")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert part.recall(view(4)) == []
    num_torn = len(range(0, len(whole), 97))
    assert part.num_skipped == num_torn + 6
    assert len(said) == (num_torn + 6).bit_length(), "the first, second, fourth, eighth …"
    assert not Path("hacked").exists()


# --- whole runs ---

STEPS = (
    *("rollouts.num_prompts=4", "rollouts.max_new_tokens=20", "select.num_kept=8"),
    *("task.digits=[1,2]", "optim.lr=1e-3"),
)


def trainer_of(folder: Path, *overrides: str) -> Trainer:
    own = ("systems=sapo", f"options.sapo.folder={folder}", "options.sapo.num=3", *STEPS, *overrides)
    return Trainer(config_of(*own, recipe="mixed"))


def test_two_runs_share_and_alone_a_run_is_the_plain_one(tmp_path: Path) -> None:
    alone = lines(steps(trainer_of(tmp_path / "empty"), 2))
    plain = lines(steps(Trainer(config_of(*STEPS, recipe="mixed")), 2))
    assert [line["tokens/generated"] for line in alone] == [line["tokens/generated"] for line in plain]
    assert [line["loss"] for line in alone] == [line["loss"] for line in plain]
    first = trainer_of(tmp_path / "both", "seed=1")
    steps(first, 2)
    second = trainer_of(tmp_path / "both", "seed=2", "correct.proximal=step_start", "correct.weight=truncate")
    results = steps(second, 1)
    assert 0 < results[0].num_recalled <= 3
    [line] = lines(results)
    assert line["rollouts/recalled"] == 8 * results[0].num_recalled and line["tokens/trained"] > 0
    assert line["rollouts/lag_max"] == 0


def test_a_resumed_run_goes_on_as_before_where_the_folder_is_the_same(tmp_path: Path) -> None:
    steps(trainer_of(tmp_path / "shared", "seed=1"), 3)
    (tmp_path / "shared" / "torn.00000001.groups").write_bytes(b"")
    wanted = check_resumed(lambda: trainer_of(tmp_path / "shared", "seed=2"), tmp_path / "run")
    assert any(line["rollouts/recalled"] for line in wanted)


def test_several_processes_and_names_that_are_none_are_refused(tmp_path: Path) -> None:
    config = ("systems=sapo", f"options.sapo.folder={tmp_path}")
    check_refused(r"options\.sapo\.name = .*wanted up to 64", *config, "options.sapo.name=../up")
    check_refused(r"options\.sapo\.folder = .*: ", "systems=sapo", "options.sapo.folder=/dev/null/swarm")
    check_refused(r"options\.sapo\.folder", "systems=sapo")
    trainer = trainer_of(tmp_path)
    with pytest.raises(UsageError, match=r"systems = 'sapo' wants that one process trains, .* and with 2 processes"):
        check_exclusions(trainer.config, trainer.parts.systems, trainer.parts.advantage, 2)
