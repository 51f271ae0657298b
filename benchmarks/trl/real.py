"""One update of a real model beside TRL's GRPOTrainer: the same rows and tokens, CPU seconds and memory.

    python -m benchmarks trl-real            SmolLM2-135M, all weights and adapters, two sizes: half an hour on one core
    python -m benchmarks trl-real --quick    a small random model

One process, one thread, float32; log-probs, loss, backward, clipping and AdamW on completions that the model drew, none
of which ends early. Both sides have the same model, adapters, rewards and loss, take turns, and TRL has the faster of
two sizes of micro-batches. Memory is the process's high-water mark within an update, above what it held before: weights
and the optimizer's moments, which are alike on both sides, are not in it. Needs TRL (pip install -e '.[trl]') and the
model (pods models smollm2-135m).
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchmarks import command
from benchmarks.figures.markdown import table
from benchmarks.files import Result
from benchmarks.timing import Say, Taken, spread, spread_text, take_turns, titled

if TYPE_CHECKING:
    from benchmarks.trl.setup import Scene
    from podsrl.types import Rollout

MODEL = "package:smollm2-135m"
QUESTION = "What is 29 + 12?"
SIZES = {"short": (16, 16), "long": (8, 300)}
"""Completions and their tokens."""
RANK = 16
ROUNDS = 5
WEIGHTS = {"full": "all weights", "lora": f"adapters of rank {RANK}"}


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("trl-real", __doc__)
    parser.add_argument("--quick", action="store_true", help="a small random model and two rounds")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="updates of each side that count")
    command.measure(parser, arguments, run)


def run(options: argparse.Namespace, say: Say = lambda text: None) -> dict[str, Any]:
    """Measure all sizes. UsageError: TRL is not installed, or the model is not fetched."""
    from transformers.utils.logging import disable_progress_bar

    from benchmarks.trl.setup import check_trl

    version = check_trl()
    from benchmarks.trl.losses import generate

    disable_progress_bar()
    scene = _small_scene() if options.quick else _scene()
    rounds = 2 if options.quick else options.rounds
    found: dict[str, Any] = {}
    for size, (rows, tokens) in SIZES.items():
        own = replace(scene, num_rollouts=rows, max_new_tokens=tokens // 10 if options.quick else tokens)
        say(f"{size}, generating")
        completions = generate(own, stops=())
        for weights in WEIGHTS:
            told = titled(say, f"{size}, {weights}")
            found[f"{size}/{weights}"] = compare(_trained(own, weights), completions, rounds, told)
    prompt = len(scene.tokenizer.encode(scene.prompts[0]))
    return {"trl": version, "rounds": rounds, "prompt_tokens": prompt, "updates": found}


def compare(scene: Scene, completions: Sequence[Rollout], rounds: int, say: Say) -> dict[str, Any]:
    """Loss of both sides on the same batch, then their updates in turns; the first of each does not count."""
    from benchmarks.trl.losses import compare_loss, drifted
    from benchmarks.trl.seconds import OURS, TRL, best_setting, compared, our_update, rewards_of, trl_update

    rewards = rewards_of(scene, completions)
    say("comparing the loss")
    loss = compare_loss("grpo", scene, drifted(completions), rewards, 1.0)
    rows = scene.num_rollouts
    theirs = best_setting({size: trl_update(scene, completions, rewards, size) for size in (rows // 2, rows)}, say, TRL)
    ours = our_update(scene, completions, rewards, 8192)
    ours()
    held: dict[str, list[int]] = {OURS: [], TRL: []}
    arms = {name: _watched(arm, held[name]) for name, arm in {OURS: ours, TRL: theirs.arm}.items()}
    taken = take_turns(arms, rounds, say)
    memory = {name: statistics.median(values) for name, values in held.items()}
    return {
        "loss": loss,
        "trl_rows": theirs.setting,
        "tried_cpu_seconds": theirs.tried,
        "update_bytes": memory,
        **compared(taken, OURS),
    }


def _watched(arm: Callable[[], Taken], held: list[int]) -> Callable[[int], Taken]:
    """The arm as a function of the round, which notes by how much an update raises the process's memory."""
    import torch

    from podsrl.lib.machine import peak_bytes, start_peak

    device = torch.device("cpu")

    def call(number: int) -> Taken:
        with suppress(AttributeError):  # a C library without it
            ctypes.CDLL(None).malloc_trim(0)  # what another arm has freed is no memory of this one
        start_peak(device)
        before = peak_bytes(device) or 0
        taken = arm()
        held.append((peak_bytes(device) or 0) - before)
        return taken

    return call


def _scene() -> Scene:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from benchmarks.trl.setup import Scene
    from podsrl.policy import model_folder

    folder = model_folder(MODEL)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    chat = [{"role": "user", "content": QUESTION}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return Scene(model=model, tokenizer=tokenizer, prompts=(prompt,), num_rollouts=1, max_new_tokens=1)


def _small_scene() -> Scene:
    from benchmarks.trl.setup import make_scene

    sizes: dict[str, Any] = {"num_prompts": 1, "num_rollouts": 1, "prompt_tokens": (20, 40), "max_new_tokens": 1}
    return make_scene("s128", mean_tokens=None, **sizes)


def _trained(scene: Scene, weights: str) -> Scene:
    """The scene with a copy of its model, of which all weights or adapters are trained."""
    from podsrl.config.schema import LoraConfig
    from podsrl.policy.lora import add_adapters

    model = copy.deepcopy(scene.model)
    if weights == "lora":
        model = add_adapters(model, LoraConfig(rank=RANK, alpha=RANK), base=MODEL, revision=None, seed=0)
    return replace(scene, model=model)


def page(result: Result) -> str:
    """The table of docs/from-trl.md."""
    rows = []
    for name, found in result["updates"].items():
        size, weights = name.split("/")
        count, tokens = SIZES[size]
        peer = found["peer"]
        seconds = {arm: spread_text(spread(values), ".1f") for arm, values in found["cpu_seconds"].items()}
        memory = [f"{found['update_bytes'][arm] / 2**30:.2f}" for arm in (peer, "podsrl")]
        ratio = spread_text(found["cpu_ratio"])
        rows.append((f"{count} × {tokens}, {WEIGHTS[weights]}", seconds[peer], seconds["podsrl"], ratio, *memory))
    head = ("completions × tokens", "TRL, CPU s", "podsrl, CPU s", "podsrl / TRL", "TRL, GiB", "podsrl, GiB")
    return table(head, rows)
