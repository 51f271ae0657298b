"""Conversations in workers say what the simple form says, whatever becomes of a worker, and each ends once."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import children as subprocess
import conversations
from pages import ROOT, blocks
from podsrl.errors import UsageError
from podsrl.lib.below import kill_below
from podsrl.score import Environment, Reply
from podsrl.score.base import Fault
from podsrl.score.workers.turns import find_environment, is_start, read_reply
from podsrl.types import Task

Make = Callable[..., Environment]
TASK = Task(id="a", prompt="?", answer="50")


@pytest.fixture
def make() -> Iterator[Make]:
    made = list[Environment]()

    def one(name: str, workers: int = 1, seconds: float = 20.0) -> Environment:
        made.append(Environment(f"conversations:{name}", workers=workers, timeout_seconds=seconds))
        return made[-1]

    yield one
    for each in made:
        each.close()


def game(number: int, **columns: Any) -> Task:
    return Task(id=f"g{number}", prompt="?", answer=str(number), columns=columns)


def twin(task: Task, turns: list[str]) -> Reply | Fault:
    return read_reply("guess", conversations.guess(task, turns))


def answers(environment: Environment, task: Task, *turns: list[str]) -> list[Reply | Fault]:
    """Each asked alone."""
    return [environment.reply(environment.ask(task, said)) for said in turns]


def counts(log: Path) -> list[Counter[str]]:
    """How often each was started, and closed."""
    lines = [line.split() for line in log.read_text().splitlines()]
    return [Counter(name for word, name in lines if word == wanted) for wanted in ("start", "close")]


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("name", "does"),
    [("Guess", True), ("waits", True), ("nothing", True), ("guess", False)],
)
def test_the_form_is_told_by_what_is_named(name: str, does: bool) -> None:
    assert is_start(find_environment(f"conversations:{name}")) is does


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("Mute", "'conversations:Mute' is a class without a method hear; wanted .* start"),
        ("Deaf", r"'conversations:Deaf': its method hear takes \(self\).*\(too many positional arguments\); wanted"),
        ("Apart", r"'conversations:Apart' takes \(\) \(too many positional arguments\); wanted"),
        ("waits_for_turns", "is asynchronous .* wanted a function reply"),
    ],
)
def test_what_is_of_neither_form_is_one_line(make: Make, name: str, match: str) -> None:
    with pytest.raises(UsageError, match=match) as error:
        make(name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "task", "match"),
    [
        ("nothing", "a", "started None, which has no method hear, when it was started for task 'a'; wanted"),
        (
            "Fates",
            "raise",
            r"raised ValueError: no such door \(conversations.py, line .*, when it was started for task",
        ),
        ("Fates", "hang", "took longer than 0.5 s and was stopped, when it was started for task 'hang'"),
        ("Fates", "die", r"its worker died \(exit code 7\), when it was started for task 'die'"),
    ],
)
def test_what_cannot_start_ends_a_run_before_it_begins(make: Make, name: str, task: str, match: str) -> None:
    environment = make(name, seconds=0.5)
    with pytest.raises(UsageError, match=match) as error:
        environment.probe(Task(id=task, prompt="?", answer=""))
    assert "\n" not in str(error.value)


def test_a_made_up_turn_may_raise(make: Make) -> None:
    [warning] = make("Guess").probe(TASK)
    assert warning.startswith("environment 'conversations:Guess' raised ValueError: invalid literal")
    environment = make("waits")
    assert len(environment.probe(TASK)) == 1
    until(lambda: environment.num_open == 0)


@pytest.mark.parametrize("name", ["Guess", "waits"])
def test_a_conversation_says_what_the_function_says(make: Make, name: str) -> None:
    environment = make(name)
    turns = ["3", "99", "4", "50"]
    for end in range(1, 5):
        reply = environment.reply(environment.ask(TASK, turns[:end], ("g", 0)))
        assert reply == twin(TASK, turns[:end])
        assert environment.num_open == (end < 4)


def test_the_same_turns_again_and_others_than_before_are_a_new_conversation(make: Make, tmp_path: Path) -> None:
    environment, task = make("Guess"), game(7, log=str(tmp_path / "log"))
    for turns in (["1"], ["1"], ["2", "3"], ["2", "3", "4"], ["2"], ["2", "3", "4", "5"]):
        assert environment.reply(environment.ask(task, turns, ("g", 0))) == twin(task, turns)
    other = game(8, log=str(tmp_path / "log"))
    assert environment.reply(environment.ask(other, ["2", "3", "4", "5", "6"], ("g", 0))) == twin(
        other, ["2"] * 4 + ["6"]
    )
    environment.close()
    started, closed = counts(tmp_path / "log")
    assert started == closed == {"g7": 5, "g8": 1}


def test_a_conversation_that_gives_a_reply_or_bytes(make: Make) -> None:
    good, bad = answers(make("Fates"), TASK, ["reply"], ["bytes"])
    assert good == Reply(("a", "b"), reward=0.5)
    assert isinstance(bad, Fault) and bad.reason.endswith("returned b'x', not a text")


def test_each_fate_is_its_own_among_conversations_that_wait(make: Make) -> None:
    """A death, a hang that blocks the loop and one that waits; the others of the same worker are asked again."""
    environment = make("Fates", seconds=1.0)
    texts = ["hi", "wait", "raise", "exit", "wait", "sleep", "deaf", "hang", "die", "greedy", "wait", "hi"]
    jobs = [environment.ask(TASK, [text], ("g", index)) for index, text in enumerate(texts)]
    replies = dict(zip(range(12), map(environment.reply, jobs), strict=True))
    for index in (0, 1, 4, 10, 11):
        assert replies.pop(index) == Reply((texts[index],))
    reasons = [reply.reason.removeprefix("environment 'conversations:Fates'") for reply in replies.values()]  # type: ignore[union-attr]
    assert [reason.strip()[:17] for reason in reasons] == [
        "raised ValueError",
        "raised SystemExit",
        *["took longer than "] * 3,
        ": its worker died",
        "raised MemoryErro",
    ]
    assert answers(environment, TASK, ["hi"]) == [Reply(("hi",))]


@pytest.mark.parametrize("end", ["raise", "exit", "hang", "die"])
def test_a_close_that_fails_costs_no_other_rollout_its_answer(make: Make, end: str) -> None:
    environment = make("Fates", seconds=0.5)
    for index, text in enumerate([f"close {end}", "hi"]):
        environment.reply(environment.ask(TASK, [text], ("g", index)))
    environment.over([("g", 0)])
    assert environment.reply(environment.ask(TASK, ["hi", "hi"], ("g", 1))) == Reply(("hi",))
    assert environment.num_open == 1


def test_random_numbers_depend_on_the_task_and_the_turns_alone(make: Make) -> None:
    environment = make("Draws", workers=2)
    tasks = [game(number) for number in range(8)]
    alone = [answers(environment, task, ["x"], ["x", "y"]) for task in tasks]
    for turns, place in ((["x"], 0), (["x", "y"], 1)):
        jobs = [environment.ask(task, turns, (task.id, 0)) for task in tasks]
        assert [environment.reply(job) for job in jobs] == [each[place] for each in alone]
    assert len({str(each) for pair in alone for each in pair}) == 16


def test_conversations_that_wait_overlap(make: Make) -> None:
    environment = make("waits")
    environment.reply(environment.ask(TASK, ["1"]))
    start = time.monotonic()
    jobs = [environment.ask(game(50, seconds=0.05), ["1"], ("g", index)) for index in range(200)]
    assert {str(environment.reply(job)) for job in jobs} == {str(twin(TASK, ["1"]))}
    assert time.monotonic() - start < 200 * 0.05 / 3
    assert environment.num_open == 200


def test_one_of_several_is_waited_for(make: Make) -> None:
    environment = make("waits")
    environment.reply(environment.ask(TASK, ["1"]))
    slow = environment.ask(game(6, seconds=10.0), ["1"], ("g", 1))
    quick = environment.ask(game(5, seconds=0.1), ["1"], ("g", 2))
    start = time.monotonic()
    environment.wait([slow, quick], 5.0)
    assert environment.is_ready(quick) and not environment.is_ready(slow) and time.monotonic() - start < 3
    start, cpu = time.monotonic(), time.thread_time()
    environment.wait([slow], 0.3)
    environment.wait([], 0.1)
    assert 0.4 <= time.monotonic() - start < 2 and time.thread_time() - cpu < 0.1
    environment.wait([slow, quick], 5.0)
    environment.close()  # neither waits for the slow one
    assert time.monotonic() - start < 4


def test_what_is_over_is_closed_and_never_heard(make: Make, tmp_path: Path) -> None:
    environment, log = make("Waiting"), tmp_path / "log"
    jobs = [environment.ask(game(number, log=str(log), seconds=0.05), ["1"], ("g", number)) for number in range(2, 40)]
    environment.reply(jobs[0])
    keys = [("g", number) for number in range(2, 40)]
    environment.over([*keys, ("g", 99)])
    environment.over(keys)
    for job, number in zip(jobs, range(2, 40), strict=True):
        reply = environment.reply(job)
        assert reply == twin(game(number), ["1"]) or (
            isinstance(reply, Fault) and "the rollout was over" in reply.reason
        )
    until(lambda: counts(log)[0] == counts(log)[1])
    assert environment.num_open == 0
    task = game(7, log=str(log))  # it may be asked again
    assert environment.reply(environment.ask(task, ["1", "2"], ("g", 7))) == twin(task, ["1", "2"])


def test_one_that_is_over_while_it_is_asked_leaves_the_next_of_its_key_alone(make: Make, tmp_path: Path) -> None:
    environment, log = make("waits", workers=2), tmp_path / "log"
    task = game(9, log=str(log), seconds=0.3)
    environment.probe(TASK)
    until(lambda: all(worker.is_ready for worker in environment._dispatcher._workers))
    first = environment.ask(task, ["1"], ("g", 0))
    until(log.exists)
    environment.over([("g", 0)])
    second = environment.ask(task, ["1", "2"], ("g", 0))
    assert environment.reply(second) == twin(task, ["1", "2"])
    reply = environment.reply(first)
    assert isinstance(reply, Fault) and reply.reason.endswith("was not asked: the rollout was over")
    assert environment.num_open == 1 and counts(log) == [{"g9": 2}, {"g9": 1}]


def test_a_new_step_closes_none_and_the_end_closes_all(make: Make, tmp_path: Path) -> None:
    environment, log = make("waits", workers=2), tmp_path / "log"
    for turns in (["1"], ["1", "2"]):
        environment.new_step()
        jobs = [environment.ask(game(9, log=str(log)), turns, ("g", index)) for index in range(50)]
        assert {str(environment.reply(job)) for job in jobs} == {str(twin(game(9), turns))}
    assert counts(log) == [{"g9": 50}, {}]
    environment.close()
    assert counts(log) == [{"g9": 50}, {"g9": 50}]


def test_a_process_that_ends_without_a_word_closes_what_is_open(tmp_path: Path) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(Path(conversations.__file__).parent)!r})
from podsrl.score import Environment
from podsrl.types import Task
environment = Environment("conversations:waits", workers=2)
columns = [dict(log="log", seconds=seconds) for seconds in (0, 0, 60)]
tasks = [Task(id=str(each["seconds"]), prompt="?", answer="50", columns=each) for each in columns]
first, second, slow = (environment.ask(task, ["1"], ("g", index)) for index, task in enumerate(tasks))
environment.wait([slow], 0.1)
print(environment.reply(first) == environment.reply(second))
raise SystemExit(3)
"""
    found = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (found.returncode, found.stdout) == (3, "True\n"), found.stderr
    assert counts(tmp_path / "log") == [{"0": 2, "60": 1}, {"0": 2, "60": 1}]


def test_the_simple_form_has_keys_too_and_nothing_to_close(make: Make) -> None:
    environment = make("guess", workers=2)
    jobs = {index: environment.ask(TASK, ["1", str(index)], ("g", index)) for index in range(50)}
    environment.over([("g", index) for index in range(50)])
    left = [*jobs.values()]
    while left:
        environment.wait(left, 10.0)
        left = [job for job in left if not environment.is_ready(job)]
    assert {index: environment.reply(job) for index, job in jobs.items()} == {
        index: twin(TASK, ["1", str(index)]) for index in jobs
    }
    assert environment.num_open == 0


def test_the_example_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = blocks((ROOT / "docs/turns.md").read_text())
    [place] = [place for place, block in enumerate(found) if block.file == "database.py"]
    example, shown = found[place + 1 : place + 3]
    (tmp_path / "database.py").write_text(found[place].text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    exec(example.text, {})
    assert capsys.readouterr().out == shown.text


@pytest.mark.parametrize(("name", "workers", "groups"), [("Guess", 2, 60), ("waits", 1, 60), ("waits", 2, 250)])
def test_thousands_of_rollouts_in_any_order_are_those_of_the_twin_and_each_ends_once(
    make: Make, tmp_path: Path, name: str, workers: int, groups: int
) -> None:
    """Rollouts are asked, answered, put off, ended early, and begun again under the same key."""
    environment, draw, log = make(name, workers=workers), random.Random(workers), tmp_path / "log"
    tasks = [game(number, log=str(log)) for number in range(1, 60)]
    left = [(f"{number}", index, number) for number in range(groups) for index in range(8)]
    going: dict[tuple[str, int], tuple[Task, list[str], Any]] = {}
    while left or going:
        while left and len(going) < 64:
            group, index, number = left.pop()
            task, turns = tasks[number % len(tasks)], [f"{draw.randrange(60)}"]
            going[group, index] = task, turns, environment.ask(task, turns, (group, index))
        environment.wait([job for _, _, job in going.values()], 10.0)
        for key in [key for key, (_, _, job) in going.items() if environment.is_ready(job)]:
            task, turns, job = going.pop(key)
            reply = environment.reply(job)
            assert reply == twin(task, turns)
            fate = draw.random()
            if fate < 0.1:
                environment.over([key])
            if isinstance(reply, Reply) and reply.texts and len(turns) < 6 and fate < 0.9:
                turns.append(f"{draw.randrange(60)}")
                job = environment.ask(task, turns, key)
                if fate > 0.8:  # it is aborted while it is asked, and asked again
                    environment.over([key])
                    job = environment.ask(task, turns, key)
                going[key] = task, turns, job
            else:
                environment.over([key])
    until(lambda: environment.num_open == 0)
    environment.close()
    started, closed = counts(log)
    assert started == closed and started.total() > 8 * groups


def test_one_whose_worker_is_killed_is_asked_again(make: Make, tmp_path: Path) -> None:
    environment, log = make("waits"), tmp_path / "log"
    job = environment.ask(game(9, log=str(log), seconds=0.3), ["1"], ("g", 0))
    until(log.exists)
    [worker] = environment._dispatcher._workers
    kill_below(worker.supervisor_pid)
    assert environment.reply(job) == twin(game(9), ["1"])
    assert counts(log) == [{"g9": 2}, {}]


def test_workers_that_are_killed_lose_nothing(make: Make) -> None:
    environment, draw = make("waits", workers=2), random.Random(0)
    tasks = {("g", index): game(index, seconds=0.01) for index in range(40)}
    turns: dict[tuple[str, int], list[str]] = {key: [] for key in tasks}
    for _ in range(6):
        for said in turns.values():
            said.append(f"{40 + draw.randrange(60)}")
        jobs = {key: environment.ask(tasks[key], turns[key], key) for key in tasks}
        if ready := [worker for worker in environment._dispatcher._workers if worker.is_ready]:
            kill_below(draw.choice(ready).supervisor_pid)
        assert {key: environment.reply(job) for key, job in jobs.items()} == {
            key: twin(tasks[key], turns[key]) for key in tasks
        }
