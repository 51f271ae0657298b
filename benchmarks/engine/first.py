"""Today's engine against the first one (commit eaff5e3), on the model and the requests of the recipe `pods`.

    python -m benchmarks first-engine                            before steps 0, 20 and 40, about ten minutes
    python -m benchmarks first-engine --stages 0 --rounds 2      quicker

The recipe `pods` is trained; before each stage its weights are saved and the requests of that step are recorded.
Then two processes, one with the first engine (a git worktree in a temporary folder) and one with today's, load the same
weights and take turns on the same requests (`first_worker.py`). Needs the repository's whole history.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import command
from benchmarks.generators import WatchedGenerator
from benchmarks.timing import Say, ratios, take_turns, titled

WORKER = Path(__file__).with_name("first_worker.py")
FIRST_COMMIT = "eaff5e3"
Job = dict[str, Any]
"""JSON-able: the folder of the weights, max_new_tokens, stops, and requests as (id, prompt ids, rollouts)."""


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("first-engine", __doc__)
    parser.add_argument("--stages", nargs="+", type=int, default=[0, 20, 40], help="training steps done before")
    parser.add_argument("--rounds", type=int, default=9)
    command.measure(parser, arguments, run)


def run(options: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Measure every stage."""
    with tempfile.TemporaryDirectory() as path, _first_sources(Path(path) / "first") as first:
        jobs = recorded_jobs(Path(path), options.stages)
        with worker(first) as old, worker(command.ROOT / "src") as new:
            found = {
                stage: compare(old, new, job, options.rounds, titled(say, f"step {stage}"))
                for stage, job in jobs.items()
            }
    return {"first": FIRST_COMMIT, "rounds": options.rounds, "stages": found}


def recorded_jobs(folder: Path, stages: Sequence[int]) -> dict[int, Job]:
    """Train; before each stage, save the weights and record the requests that the trainer then sends its engine."""
    from podsrl.config.load import load_config
    from podsrl.policy import quiet_bars
    from podsrl.run.step.trainer import Trainer
    from podsrl.run.steps import training_step

    trainer = Trainer(load_config("pods", ["threads=1"]))
    engine = trainer.engine = WatchedGenerator(trainer.engine)
    jobs: dict[int, Job] = {}
    for step in range(max(stages) + 1):
        if step in stages:
            with quiet_bars():
                trainer.model.save_pretrained(folder / f"step{step}")
        training_step(trainer)
        if step in stages:
            jobs[step] = _job(folder / f"step{step}", engine.requests)
    return jobs


def _job(weights: Path, requests: list[Any]) -> Job:
    sampling = requests[0].sampling
    return {
        "folder": str(weights),
        "max_new_tokens": sampling.max_new_tokens,
        "stops": list(sampling.stop_token_ids),
        "requests": [[request.id, list(request.prompt_ids), request.num_rollouts] for request in requests],
    }


def compare(old: Any, new: Any, job: Job, rounds: int, say: Say = lambda text: None) -> dict[str, Any]:
    """Seconds of both engines in turn after one unmeasured round, and their ratio round by round."""
    processes = {"first": old, "today": new}
    arms = {name: partial(_ask_again, process, job) for name, process in processes.items()}
    answers = take_turns(arms, rounds + 1, say)
    seconds = {name: [answer["seconds"] for answer in found[1:]] for name, found in answers.items()}
    return {
        "seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "tokens": {name: found[0]["tokens"] for name, found in answers.items()},
        "are_tokens_the_same": answers["first"][0]["digest"] == answers["today"][0]["digest"],
        "speedup": ratios(seconds["first"], seconds["today"]),
    }


@contextlib.contextmanager
def _first_sources(folder: Path) -> Iterator[Path]:
    """A checkout of the first engine's source tree, removed at the end."""
    subprocess.run(
        ["git", "-C", str(command.ROOT), "worktree", "add", "--detach", str(folder), FIRST_COMMIT], check=True
    )
    try:
        yield folder / "src"
    finally:
        subprocess.run(["git", "-C", str(command.ROOT), "worktree", "remove", "--force", str(folder)], check=True)


@contextlib.contextmanager
def worker(sources: Path) -> Iterator[Any]:
    """A process that imports podsrl from `sources` and answers one JSON line with another."""
    environment = {**os.environ, "PYTHONPATH": str(sources), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(WORKER), str(sources)]
    with subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def _ask_again(process: Any, job: Job, number: int) -> dict[str, Any]:
    return ask(process, job)


def ask(process: Any, job: Job) -> dict[str, Any]:
    """Send a job and wait for its answer."""
    process.stdin.write(json.dumps(job) + "\n")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer
