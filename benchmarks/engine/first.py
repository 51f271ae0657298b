"""Today's engine against the first one (commit eaff5e3), on the demo's own model and the trainer's own requests.

    python benchmarks/first_engine.py

The PODS arm of the demo is trained for 40 steps; before steps 0, 20 and 40 its weights are saved and that step's
requests written down. Then two processes, one with the first engine (a git worktree in a temporary folder) and one with
today's, load the same weights and take turns on the same requests. Writes benchmarks/results/first_engine.json.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks" / "results" / "first_engine.json"
FIRST_COMMIT = "eaff5e3"
STAGES = (0, 20, 40)
REPEATS = 9
Job = dict[str, Any]
"""JSON-able: folder of weights, max_new_tokens, stops, and requests as (id, prompt ids, rollouts)."""


def main(stages: tuple[int, ...] = STAGES, repeats: int = REPEATS) -> dict[str, Any]:
    """Measure every stage."""
    with tempfile.TemporaryDirectory() as path, _first_sources(Path(path) / "first") as first:
        jobs = recorded_jobs(Path(path), stages)
        with worker(first) as old, worker(ROOT / "src") as new:
            found = {stage: compare(old, new, job, repeats) for stage, job in jobs.items()}
    from podsrl.lib.machine import hardware_line

    return {"first": FIRST_COMMIT, "hardware": hardware_line(), "repeats": repeats, "stages": found}


def recorded_jobs(folder: Path, stages: tuple[int, ...]) -> dict[int, Job]:
    """Train, and before each stage keep the weights and what the trainer then asks its engine for."""
    from podsrl.config.load import load_config
    from podsrl.policy import quiet_bars
    from podsrl.run.loop import training_step
    from podsrl.run.trainer import Trainer

    trainer: Any = Trainer(load_config("pods", ["threads=1"]))
    asked: list[Any] = []
    generate = trainer.engine.generate
    trainer.engine.generate = lambda requests: generate(_keep(asked, requests))
    jobs: dict[int, Job] = {}
    for step in range(max(stages) + 1):
        if step in stages:
            with quiet_bars():
                trainer.model.save_pretrained(folder / f"step{step}")
        training_step(trainer)
        if step in stages:
            jobs[step] = _job(folder / f"step{step}", asked)
    return jobs


def _keep(asked: list[Any], requests: list[Any]) -> list[Any]:
    asked[:] = requests
    return requests


def _job(weights: Path, requests: list[Any]) -> Job:
    sampling = requests[0].sampling
    return {
        "folder": str(weights),
        "max_new_tokens": sampling.max_new_tokens,
        "stops": list(sampling.stop_token_ids),
        "requests": [[request.id, list(request.prompt_ids), request.num_rollouts] for request in requests],
    }


def compare(old: Any, new: Any, job: Job, repeats: int) -> dict[str, Any]:
    """Seconds of both engines in turn after one unmeasured round, and their ratio round by round."""
    answers: dict[str, list[Any]] = {"first": [], "today": []}
    for repeat in range(repeats + 1):
        pair = [("first", old), ("today", new)]
        for name, process in pair if repeat % 2 else pair[::-1]:
            answers[name].append(ask(process, job))
    seconds = {name: [answer["seconds"] for answer in found[1:]] for name, found in answers.items()}
    ratios = [a / b for a, b in zip(seconds["first"], seconds["today"], strict=True)]
    return {
        "seconds": {name: statistics.median(values) for name, values in seconds.items()},
        "tokens": {name: found[0]["tokens"] for name, found in answers.items()},
        "are_tokens_the_same": answers["first"][0]["digest"] == answers["today"][0]["digest"],
        "speedup": {"min": min(ratios), "median": statistics.median(ratios), "max": max(ratios)},
    }


@contextlib.contextmanager
def _first_sources(folder: Path) -> Iterator[Path]:
    """The first engine's source tree, checked out beside this one for as long as it is needed."""
    subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--detach", str(folder), FIRST_COMMIT], check=True)
    try:
        yield folder / "src"
    finally:
        subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(folder)], check=True)


@contextlib.contextmanager
def worker(sources: Path) -> Iterator[Any]:
    """A process that imports podsrl from `sources` and answers one JSON line with another."""
    environment = {**os.environ, "PYTHONPATH": str(sources), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", str(sources)]
    with subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def ask(process: Any, job: Job) -> dict[str, Any]:
    """Send a job and wait for its answer."""
    process.stdin.write(json.dumps(job) + "\n")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


def serve(sources: Path) -> None:
    """The worker: one line a job. An engine is made anew for new weights only."""
    import podsrl

    if not Path(podsrl.__file__).is_relative_to(sources):
        raise SystemExit(f"podsrl came from {podsrl.__file__}, wanted {sources}: PYTHONPATH was overruled")
    import torch

    torch.set_num_threads(1)
    folder, engine = "", None
    for line in sys.stdin:
        job = json.loads(line)
        if job["folder"] != folder:
            folder, engine = job["folder"], _engine(job["folder"])
        print(json.dumps(_answer(engine, job)), flush=True)


def _engine(folder: str) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from podsrl.generate import Engine

    logging.disable_progress_bar()
    return Engine(AutoModelForCausalLM.from_pretrained(folder, dtype="float32"))


def _answer(engine: Any, job: Job) -> dict[str, Any]:
    from hashlib import sha256

    from podsrl.generate import Request, Sampling

    sampling = Sampling(max_new_tokens=job["max_new_tokens"], stop_token_ids=tuple(job["stops"]))
    requests = [Request(name, tuple(prompt), n, sampling) for name, prompt, n in job["requests"]]
    start = time.perf_counter()
    found = list(engine.generate(requests))
    seconds = time.perf_counter() - start
    tokens = sorted((completion.request_id, completion.index, completion.token_ids) for completion in found)
    return {
        "seconds": seconds,
        "tokens": sum(len(ids) for *_, ids in tokens),
        "digest": sha256(repr(tokens).encode()).hexdigest(),
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        serve(Path(sys.argv[2]))
    else:
        result = main()
        RESULT.parent.mkdir(parents=True, exist_ok=True)
        RESULT.write_text(json.dumps(result, indent=1) + "\n")
        print(json.dumps(result, indent=1))
