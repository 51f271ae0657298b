"""Memory that the dry run predicts, beside what a run of a real model takes: five configs, each in its own process.

    python -m benchmarks memory               SmolLM2-135M and Qwen2.5-Coder-0.5B, half an hour on one core
    python -m benchmarks memory --quick       the demo's model alone
    python -m benchmarks memory --only full   one of the configs

Measured is the most that a process holds of its own (without files that are mapped, such as libraries, which the kernel
drops and reads again), looked at a hundred times a second over a whole run: an evaluation at both ends, three steps, a
checkpoint. What the process held when all was imported and nothing loaded is taken off. Needs the models: pods models.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import command
from benchmarks.figures.markdown import table
from benchmarks.files import Result
from benchmarks.timing import Say
from podsrl.errors import PodsError

if TYPE_CHECKING:
    from podsrl.config.schema import RunConfig

REWARD = "benchmarks.memory:mean_letter"
STEPS = 3
"""The first has no optimizer's moments yet, and the heap of the C library grows until its holes are used again."""
EVERY: dict[str, Any] = {
    "threads": 1,
    "stop": {"steps": STEPS, "seconds": 0.0},
    "eval": {"every_seconds": 0.0},
    "task": {"num_eval": 4, "rewards": {"math_correct": 1.0, REWARD: 1.0}},
}
LONG_PROMPTS: dict[str, Any] = {
    "task": {"name": "jsonl", "path": "long.jsonl"},
    "rollouts": {"max_prompt_tokens": 1024},
}
LONG_ANSWERS: dict[str, Any] = {
    "task": {"name": "jsonl", "path": "stories.jsonl", "system_prompt": "You tell long stories."},
    "rollouts": {"num_prompts": 1, "num_rollouts": 64, "max_new_tokens": 300},
    "select": {"num_kept": 16},
    "stop": {"steps": 1, "seconds": 0.0},
}
QWEN: dict[str, Any] = {
    "model": {"path": "package:qwen2.5-coder-0.5b"},
    "rollouts": {"num_prompts": 2, "num_rollouts": 8},
}
CONFIGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "adapters": ("SmolLM2-135M, adapters: 4 × 16 rollouts of 16 tokens, 4 kept (the recipe `smol`)", "smol", {}),
    "full": ("the same, all weights", "smol", {"lora": None, "optim": {"lr": 1e-5}}),
    "answers": ("adapters, 1 × 64 rollouts of 300 tokens, 16 kept", "smol", LONG_ANSWERS),
    "prompts": ("adapters, prompts of some 640 tokens", "smol", LONG_PROMPTS),
    "qwen": ("Qwen2.5-Coder-0.5B, adapters: 2 × 8 rollouts of 16 tokens, 4 kept", "smol", QWEN),
    "demo": ("the demo's model, 136 thousand weights", "pods", {}),
}
"""Name -> what it is, the recipe, and what it changes there beside `EVERY`."""
QUICK = ("demo",)


def mean_letter(completions: list[Any], **columns: Any) -> list[float]:
    """A reward that hardly any two texts, or chats, have in common, so that each step has its whole update."""
    texts = [each if isinstance(each, str) else each[-1]["content"] for each in completions]
    return [sum(map(ord, text)) / (1000 * len(text) + 1) for text in texts]


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("memory", __doc__)
    parser.add_argument("--quick", action="store_true", help="the demo's model alone")
    parser.add_argument("--only", nargs="+", choices=CONFIGS, help="some of the configs")
    command.measure(parser, arguments, run)


def run(options: argparse.Namespace, say: Say = lambda text: None) -> Result:
    """Measure each config in a process of its own, which ends with what `measure` gives."""
    found = {}
    for name in options.only or (QUICK if options.quick else [name for name in CONFIGS if name not in QUICK]):
        say(CONFIGS[name][0])
        found[name] = watched([sys.executable, "-m", "benchmarks.memory", name])
    return {"configs": found}


def watched(child: Sequence[str]) -> dict[str, Any]:
    """What a process says in its last line, with the most that it held."""
    peak = 0
    with subprocess.Popen(child, stdout=subprocess.PIPE, text=True, cwd=command.ROOT) as process:
        while process.poll() is None:
            peak = max(peak, own_bytes(process.pid))
            time.sleep(0.01)
        said = process.stdout.read() if process.stdout else ""
    if process.returncode:
        raise PodsError(f"{' '.join(child[1:])} ended with {process.returncode}; its own output says why")
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    measured = peak - found["held"]
    return {**found, "measured": measured, "ratio": found["predicted"] / measured}


def own_bytes(pid: int) -> int:
    """Resident memory of a process that no file stands for; 0 when it has ended."""
    try:
        found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return 1024 * int(found[1]) if found else 0


def config_of(name: str) -> RunConfig:
    """One of `CONFIGS`; its data lie in the working folder."""
    from podsrl.config.files import merge, read_tree
    from podsrl.config.load import build
    from podsrl.config.schema import RunConfig

    _, recipe, changes = CONFIGS[name]
    tree = merge(merge(read_tree(recipe), EVERY), changes)
    return build(RunConfig, {key: value for key, value in tree.items() if value is not None}, name)


def measure(config: RunConfig) -> dict[str, Any]:
    """Bytes of a run, in this process: `predicted`, by part too, and `held` at the start. It leaves a folder `run`.

    PodsError: nothing was trained, so that the memory is that of generating alone.
    """
    from podsrl.lib.imports import TRAINING, load
    from podsrl.plan.inputs import check_inputs
    from podsrl.plan.preview import preview_run
    from podsrl.run.before.fit import fit
    from podsrl.run.before.settle import settle

    load(*TRAINING, "peft", "transformers.models.llama.modeling_llama", "transformers.models.qwen2.modeling_qwen2")
    from podsrl.run.session import start

    config, _ = settle(config, 1)
    inputs = check_inputs(config)
    longest = inputs.prompts.longest if inputs.prompts else 0
    config, _ = fit(config, longest_prompt=longest, num_eval=inputs.num_eval)
    preview = preview_run(config, 1, inputs.num_eval, longest)
    held = own_bytes(os.getpid())
    start(config, Path("run"), on_record=lambda record: None, say=lambda text: None)
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    trained = [line["tokens/trained"] for line in lines if "tokens/trained" in line]
    if not all(trained):
        raise PodsError("a step trained on nothing; its line in run/metrics.jsonl says why")
    return {
        "trained_tokens": trained,
        "predicted": preview.peak_bytes,
        "parts": {part.name: part.num_bytes for part in preview.parts},
        "longest_prompt": longest,
        "held": held,
    }


def write_questions() -> None:
    """Sums behind a text of about 480 tokens, and stories that fill every answer, into the working folder."""
    text = " ".join(f"{a} and {a + 7} are numbers." for a in range(11, 71))
    sums = [(f"{text} What is {a} + {a + 9}?", a) for a in range(10, 40)]
    stories = [
        (f"Tell a story of two thousand words about {a} sailors, with many characters.", a) for a in range(10, 40)
    ]
    for path, questions in (("long.jsonl", sums), ("stories.jsonl", stories)):
        rows = (json.dumps({"question": question, "answer": str(answer)}) for question, answer in questions)
        Path(path).write_text("\n".join(rows), encoding="utf-8")


def page(result: Result) -> str:
    """The table of docs/real-models.md."""
    return table(
        ("config", "predicted, GiB", "measured, GiB", "predicted / measured"),
        [(CONFIGS[name][0], *_row(found)) for name, found in result["configs"].items()],
    )


def _row(found: Mapping[str, Any]) -> tuple[str, str, str]:
    return f"{found['predicted'] / 2**30:.2f}", f"{found['measured'] / 2**30:.2f}", f"{found['ratio']:.2f}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_questions()
        print(json.dumps(measure(config_of(sys.argv[1]))))
