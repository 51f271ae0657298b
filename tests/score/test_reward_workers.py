import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from podsrl.errors import RewardError
from podsrl.score.base import Rows, Values
from podsrl.score.panel import Panel
from podsrl.score.workers.dispatcher import default_workers
from podsrl.types import Task
from waiting import is_alive, wait_for

TASK = Task(id="1/2", prompt="What is half of one?", answer=r"\frac{1}{2}", columns={"level": 3})


def rows(texts: list[str], task: Task = TASK) -> Rows:
    return Rows(tasks=[task] * len(texts), texts=texts, token_ids=[()] * len(texts))


def reason(values: Values, row: int) -> str:
    return values.faults[row].reason


def test_mathematics_is_judged_in_another_process_that_has_no_torch(user_folder: Path) -> None:
    names = ["boxed_correct", "worker_rewards:process", "worker_rewards:loads_torch"]
    with Panel(dict.fromkeys(names, "--reward"), num_workers=1) as workers:
        texts = [r"\boxed{0.5}", r"\boxed{\sqrt{\frac14}}", "0.25", ""]
        assert workers.judge("boxed_correct", rows(texts)) == Values(values=[1.0, 1.0, 0.0, 0.0], faults={})
        [pid] = workers.judge("worker_rewards:process", rows(["a"])).values
        assert pid != os.getpid()
        assert workers.judge("worker_rewards:loads_torch", rows(["a"])).values == [0.0]


def test_a_worker_is_given_the_whole_task(user_folder: Path) -> None:
    with Panel({"worker_rewards:columns": "--reward"}, num_workers=1) as workers:
        chat = Task(id="c", prompt=({"role": "user", "content": "x"},), answer="1", columns={"level": 40})
        assert workers.judge("worker_rewards:columns", rows(["ab"])).values == [3.0 + len("What is half of one?") + 2]
        assert workers.judge("worker_rewards:columns", rows(["ab"], chat)).values == [40.0 + 1 + 2]


def test_what_a_function_imports_later_is_imported_before_the_first_completion(
    user_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "worker_rewards:has_module"
    monkeypatch.setattr(importlib.import_module("worker_rewards").has_module, "worker_modules", {"own_module"})
    (user_folder / "own_module.py").touch()
    with Panel({name: "--reward"}, num_workers=1) as workers:
        assert workers.judge(name, rows(["a"])).values == [1.0]
    assert "own_module" not in sys.modules


def test_what_crashes_hangs_or_wants_too_much_memory_spoils_its_own_row_only(
    user_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = "worker_rewards:odd"
    texts = ["a", "crash", "bb", "hang", "exit", "greedy", "raise", "print", "ccc"]
    with Panel({name: "--reward"}, num_workers=2, timeout_seconds=0.6) as workers:
        values = workers.judge(name, rows(texts))
    assert [values.values[row] for row in (0, 2, 7, 8)] == [1.0, 2.0, 5.0, 3.0]
    assert {row: fault.kind for row, fault in values.faults.items()} == {
        1: "died",
        3: "timeout",
        4: "raised",
        5: "exhausted",
        6: "raised",
    }
    assert reason(values, 1) == f"reward '{name}': its worker died (killed by SIGSEGV)"
    assert reason(values, 3) == f"reward '{name}' took longer than 0.6 s and was stopped"
    assert reason(values, 4).startswith(f"reward '{name}' raised SystemExit: 3 (worker_rewards.py, line ")
    assert reason(values, 5).startswith(f"reward '{name}' raised MemoryError")
    assert reason(values, 6).startswith(f"reward '{name}' raised KeyError: 'level' (worker_rewards.py, line ")
    assert capfd.readouterr().out == ""  # standard output belongs to the command


def test_draws_from_torch_are_seeded_even_in_the_row_that_loads_it(user_folder: Path) -> None:
    name, found = "worker_rewards:draw_torch", []
    for num_workers in (1, 2):
        with Panel({name: "--reward"}, num_workers=num_workers, timeout_seconds=100) as workers:
            found.append(workers.judge(name, rows(["a", "b", "c"])).values)
    assert found[0] == found[1] and len(set(found[0])) == 3


def test_equal_rows_are_judged_once(user_folder: Path) -> None:
    name = "worker_rewards:odd"
    with Panel({name: "--reward"}, num_workers=1, timeout_seconds=0.4) as workers:
        start = time.monotonic()
        values = workers.judge(name, rows(["hang"] * 1000))
        assert time.monotonic() - start < 300  # one after the other they would take 400 s
    assert len(values.faults) == 1000 and {fault.kind for fault in values.faults.values()} == {"timeout"}


def test_what_was_submitted_early_is_not_judged_again(user_folder: Path) -> None:
    name = "worker_rewards:process"
    with Panel({name: "--reward"}, num_workers=1) as workers:
        workers.submit([TASK], ["a"])
        [first] = workers.judge(name, rows(["a"])).values
        os.kill(int(first), signal.SIGKILL)  # the next worker has another process id
        wait_for(lambda: not is_alive(int(first)))
        assert workers.judge(name, rows(["a"])).values == [first]
        assert workers.judge(name, rows(["b"])).values != [first]
        workers.submit([TASK], ["c"])
        workers.forget([TASK], ["a"])
        assert workers.judge(name, rows(["a"])).values != [first]


def test_what_nobody_asks_for_does_not_pile_up(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podsrl.score.panel.MAX_WAITING", 3)
    name = "worker_rewards:process"
    with Panel({name: "--reward"}, num_workers=1) as workers:
        first = workers.judge(name, rows(list("abcdef"))).values[0]
        workers.forget([TASK], ["f"])
        os.kill(int(first), signal.SIGKILL)  # the next worker has another process id
        wait_for(lambda: not is_alive(int(first)))
        values = workers.judge(name, rows(list("abcdef"))).values
        assert [value == first for value in values] == [False, False, True, True, True, False]


def test_answers_come_while_the_caller_does_something_else(user_folder: Path) -> None:
    with Panel({"worker_rewards:length": "--reward"}, num_workers=1) as workers:
        workers.submit([TASK], ["a"])
        [(_, job)] = workers._jobs.values()
        wait_for(lambda: job.outcome is not None)
        assert job.outcome.values == [1.0]


def test_the_caller_may_be_any_thread(user_folder: Path) -> None:
    found: list[Values] = []
    with Panel({"worker_rewards:length": "--reward"}, num_workers=1) as workers:
        judge = threading.Thread(target=lambda: found.append(workers.judge("worker_rewards:length", rows(["a"]))))
        judge.start()
        judge.join()
    assert found == [Values(values=[1.0], faults={})]


@pytest.mark.parametrize(
    ("elsewhere", "message"),
    [
        ("1 / 0", r"could not load \['worker_rewards:odd'\]: UsageError: .*ZeroDivisionError"),
        ("os._exit(7)", r"a reward worker died \(exit code 7\) while it loaded \['worker_rewards:odd'\]"),
    ],
)
def test_a_function_that_loads_here_but_not_in_a_worker_is_an_error(
    user_folder: Path, elsewhere: str, message: str
) -> None:
    source = f"import os\nif os.getpid() != {os.getpid()}:\n    {elsewhere}\ndef odd(task, text): return 1.0\n"
    (user_folder / "worker_rewards.py").write_text(source)
    with Panel({"worker_rewards:odd": "--reward"}, num_workers=2) as workers, pytest.raises(RewardError, match=message):
        workers.judge("worker_rewards:odd", rows(["a"]))


def test_workers_that_nobody_holds_any_more_end(user_folder: Path) -> None:
    workers = Panel({"worker_rewards:process": "--reward"}, num_workers=1)
    [pid] = workers.judge("worker_rewards:process", rows(["a"])).values
    del workers
    wait_for(lambda: not is_alive(int(pid)))


MAIN = """
import sys, time
from podsrl.score.base import Rows
from podsrl.score.panel import Panel
from podsrl.types import Task

task = Task(id="a", prompt="x", answer="1")
names = ("worker_rewards:process", "worker_rewards:odd")
workers = Panel(dict.fromkeys(names, "--reward"), num_workers=1, timeout_seconds=100)
print(workers.judge("worker_rewards:process", Rows(tasks=[task], texts=["a"], token_ids=[()])).values[0], flush=True)
workers.judge("worker_rewards:odd", Rows(tasks=[task], texts=["hang"], token_ids=[()]))
"""


def test_no_worker_outlives_ctrl_c_or_says_a_word(user_folder: Path) -> None:
    main = subprocess.Popen(
        [sys.executable, "-c", MAIN],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(user_folder), *sys.path))},
        start_new_session=True,
    )
    assert main.stdout is not None
    pid = int(float(main.stdout.readline()))
    os.killpg(main.pid, signal.SIGINT)  # as a terminal does with Ctrl-C: the whole process group
    _, said = main.communicate(timeout=300)
    assert main.returncode == -signal.SIGINT
    wait_for(lambda: not is_alive(pid))
    assert said.count("Traceback") == 1 and "worker.py" not in said


def test_time_in_which_the_whole_process_stood_still_does_not_count(user_folder: Path) -> None:
    name = "worker_rewards:odd"
    with Panel({name: "--reward"}, num_workers=1, timeout_seconds=100) as workers:
        workers.judge(name, rows(["a"]))
        dispatcher = workers._row_workers
        workers.submit([TASK], ["hang"])
        wait_for(lambda: bool(dispatcher._workers[0].jobs))
        dispatcher._last_poll -= 1000  # as if the machine had slept
        time.sleep(0.7)
        [job] = [job for (_, _, text), (_, job) in workers._jobs.items() if text == "hang"]
        assert job.outcome is None and dispatcher._now < 500


def test_cores_are_shared_among_the_processes_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(8))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert default_workers() == 8
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert default_workers() == 2
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "16")
    assert default_workers() == 1


def test_the_supervisor_sleeps_after_a_worker_has_died(user_folder: Path) -> None:
    """One that spins is running, or ready to, whenever it is looked at, on a busy machine too."""
    with Panel({"worker_rewards:odd": "--reward", "worker_rewards:process": "--reward"}, num_workers=1) as workers:
        crashed = workers.judge("worker_rewards:odd", rows(["crash"]))
        assert crashed.faults[0].kind == "died"
        [worker] = workers.judge("worker_rewards:process", rows(["a"])).values
        supervisor = psutil.Process(int(worker)).ppid()
        time.sleep(0.2)
        states = []
        for _ in range(40):
            time.sleep(0.01)
            states.append(psutil.Process(supervisor).status())
    assert states.count(psutil.STATUS_SLEEPING) > 30
