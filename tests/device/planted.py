"""One-line mistakes of the kind that only a GPU shows, planted in copies of the source: are they seen?

As a command it prints a JSON line for each, or with K for every NUM_PARTS-th from the K-th on: its name, and the error
that a small scenario ended with (null: none).
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[2] / "src" / "podsrl"


class Fault(NamedTuple):
    """A text that stands once in a file, and what a mistake would have written there."""

    file: str
    old: str
    new: str
    unseen: str = ""
    """Why a scenario over host memory cannot see it; empty: it must be seen."""

    @property
    def name(self) -> str:
        return f"{self.file}: {' '.join(self.new.split())}"

    def plant(self, package: Path) -> None:
        """ValueError: the text is not there once, so the fault says nothing about today's source."""
        path = package / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(
                f"planted.py: {self.old!r} stands {text.count(self.old)} times in {self.file}; wanted once"
            )
        path.write_text(text.replace(self.old, self.new))
        os.utime(path, (0, 0))  # so the bytecode that was copied beside it is of another time


FAULTS = (
    # made on the CPU, or left there
    Fault("generate/engine/kv_pool.py", "device=self.layout.device)", 'device="cpu")'),
    Fault(
        "generate/engine/forward/fast.py", "torch.arange(length, device=positions.device) >", "torch.arange(length) >"
    ),
    Fault("generate/engine/forward/fast.py", "self.layout.dtype, device=positions.device)", "self.layout.dtype)"),
    Fault(
        "generate/engine/forward/fast.py", "torch.arange(capacity, device=positions.device)", "torch.arange(capacity)"
    ),
    Fault(
        "generate/engine/forward/model.py",
        "torch.arange(length, device=positions.device) <=",
        "torch.arange(length) <=",
    ),
    Fault("generate/engine/forward/prefill.py", "for i in members], device=device)", "for i in members])"),
    Fault("generate/engine/forward/prefill.py", "dtype=torch.int64, device=model.device)", "dtype=torch.int64)"),
    Fault("generate/engine/queue.py", "logits.clone()", "logits.cpu()"),
    Fault("generate/engine/queue.py", "hidden.clone()", "hidden.cpu()"),
    Fault("generate/engine/sampler.py", "dtype=torch.bool, device=logits.device)", "dtype=torch.bool)"),
    Fault("update/loss.py", "torch.zeros((), dtype=values.dtype, device=values.device)", "torch.zeros(1).double()"),
    Fault("update/adamw.py", "state[weight] = dict(kinds)", "state[weight] = {k: v.cpu() for k, v in kinds.items()}"),
    Fault("sync/digest.py", "return torch.arange(count, device=device)", "return torch.arange(count)"),
    Fault("update/packed/layout.py", "dtype=torch.bool, device=device).tril()", "dtype=torch.bool).tril()"),
    # read on the CPU
    Fault("sync/digest.py", "torch.cat(values).cpu()", "torch.cat(values)"),
    # of the CPU's kernels and generators
    Fault("update/packed/attention.py", "if query.is_cpu and dropout == 0", "if dropout == 0"),
    Fault("policy/lora.py", "torch.empty(weight.shape, dtype=torch.float32)", "torch.empty_like(weight)"),
    # memory that holds anything
    Fault("generate/engine/forward/fast.py", "zeros = torch.zeros(hidden.shape", "zeros = torch.empty(hidden.shape"),
    Fault("update/logprobs.py", "each.new_zeros(shape)", "each.new_empty(shape)"),
    # not to be seen
    Fault(
        "generate/engine/forward/prefill.py",
        "for i in members], device=model.device)\n            with",
        "for i in members])\n            with",
        "a GPU takes indices of the CPU too; it costs a wait",
    ),
    Fault(
        "lib/matmul.py",
        "module.weight.is_cpu and module.weight.dtype",
        "module.weight.dtype",
        "whether oneDNN is asked for products of this size depends on the machine",
    ),
)


NUM_PARTS = 6


def scenario() -> None:
    """The engine's two forwards against the CPU's tokens; steps with a penalty and with adapters, saved and resumed."""
    import torch
    from small_runs import Looking, generated, requests, steps_and_a_resume, tiny

    wanted = requests(nucleus={"top_p": 0.8}, greedy={"top_k": 1})
    tokens, _ = generated(tiny("cpu"), wanted)
    for forward, dtype in (("fast", torch.float32), ("model", torch.float64)):
        model = tiny("cuda", dtype=dtype)
        found, _ = generated(model, wanted, Looking(), forward=forward, num_slots=3)
        assert found == tokens, "other tokens than the CPU's"
    for option, is_double in (("loss.kl_beta=0.05", True), ("lora.rank=4", False)):
        with tempfile.TemporaryDirectory() as folder:
            steps_and_a_resume(Path(folder), option, is_double=is_double)


def error_of(plant: Callable[[Path], None]) -> str | None:
    """What `scenario` ends with in a process of its own, on a copy of the source that `plant` has changed."""
    with tempfile.TemporaryDirectory() as place:
        copied = Path(place) / "podsrl"
        shutil.copytree(SOURCE, copied)  # with its bytecode: to compile it takes longer than the scenario
        plant(copied)
        said = Path(place) / "said"
        child = os.fork()
        if child == 0:
            os._exit(_run(copied.parent, said))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            return None
        return said.read_text() if said.exists() else f"the process ended with {code}"


def _run(place: Path, said: Path) -> int:
    sys.path.insert(0, str(place))
    try:
        scenario()
    except BaseException as error:
        line = traceback.extract_tb(error.__traceback__)[-1]
        said.write_text(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:160]} ({line.name})")
        return 1
    return 0


def main() -> None:
    """Each child starts with the heavy libraries loaded, and with podsrl not yet."""
    gc.disable()  # while they are loaded; the children look at none of their objects again
    import pretend

    pretend.start()
    import peft  # noqa: F401
    import torch
    import transformers.models.qwen2.modeling_qwen2  # noqa: F401

    torch.set_num_threads(1)
    gc.freeze()
    gc.enable()
    assert not any(name.partition(".")[0] == "podsrl" for name in sys.modules)
    print(json.dumps(["", error_of(lambda package: None)]), flush=True)
    for fault in FAULTS[int(sys.argv[1]) :: NUM_PARTS] if sys.argv[1:] else FAULTS:
        print(json.dumps([fault.name, error_of(fault.plant)]), flush=True)


if __name__ == "__main__":
    main()
