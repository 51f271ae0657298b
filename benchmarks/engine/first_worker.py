"""A process of `first.py`: generates with whichever podsrl PYTHONPATH names. It imports nothing else of this project.

PYTHONPATH=SOURCES python first_worker.py SOURCES      reads jobs, one JSON line each, and answers each with a line
"""

from __future__ import annotations

import json
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

Job = dict[str, Any]


def serve(sources: Path) -> None:
    """Answer jobs until the input ends; an engine is made for each new folder of weights."""
    import podsrl

    if not Path(podsrl.__file__).is_relative_to(sources):
        raise SystemExit(f"podsrl came from {podsrl.__file__}, wanted {sources}: PYTHONPATH was overruled")
    import torch

    torch.set_num_threads(1)
    folder, engine = "", None
    for line in sys.stdin:
        job = json.loads(line)
        if job["folder"] != folder:
            folder, engine = job["folder"], load_engine(job["folder"])
        print(json.dumps(answer(engine, job)), flush=True)


def load_engine(folder: str) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from podsrl.generate import Engine

    logging.disable_progress_bar()
    return Engine(AutoModelForCausalLM.from_pretrained(folder, dtype="float32"))


def answer(engine: Any, job: Job) -> dict[str, Any]:
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
    serve(Path(sys.argv[1]))
