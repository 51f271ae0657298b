"""Float32 matrix products on an x86 processor by the faster of two libraries: MKL or oneDNN.

torch's own linear layers use MKL, but torch also contains oneDNN. Which one is faster depends on the processor: oneDNN
on AMD's Zen 5, mostly MKL on Intel's Sapphire Rapids (figures in docs/engine.md). So both are timed at first use, once
per machine, which gives a rule: the product size from which oneDNN is used. The rule holds for the whole process, like
torch's number of threads. It is kept in the user's cache folder, in a small JSON file per machine and setting
(`podsrl/matmul-DIGEST.json` in XDG_CACHE_HOME or ~/.cache), because the libraries round differently: two runs of one
config must choose alike. A folder that cannot be written and a damaged file are no errors: the measured rule then holds
for one process.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from podsrl.errors import UsageError
from podsrl.lib.machine import processor_facts

_call: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
"""Takes x [R, in], weight [out, in], bias [out] or None, and a function of the result: none here."""


def is_available() -> bool:
    """Whether oneDNN can be used: on an x86 processor, with a torch that was built with oneDNN."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64")
    return is_x86 and _call is not None and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]  # torch's


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [R, in] @ weight.T [in, out] + bias; float32 on a CPU, without gradient."""
    result: Tensor = _call(x, weight, bias, "none", [], "")
    return result


class OnednnLinear(torch.autograd.Function):
    """`OnednnLinear.apply(x [..., in], weight [out, in], bias [out] or None)`, with gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return onednn(x.flatten(0, -2), weight, bias).view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        above, below = gradient.flatten(0, -2), x.flatten(0, -2)
        return (
            onednn(above, weight.t()).view_as(x) if for_x else None,
            outer(above, below) if for_weight else None,
            above.sum(0) if for_bias else None,
        )


def outer(above: Tensor, below: Tensor) -> Tensor:
    """above.T @ below [out, in]; oneDNN is faster with the larger one as its weights."""
    if above.shape[1] > below.shape[1]:
        return onednn(below.t(), above.t()).t()
    return onednn(above.t(), below.t())


Use = Literal["few_rows", "many_rows", "update"]

FEW_ROWS = 32
"""Products of at most so many rows do little arithmetic per weight that they read; they have timings of their own."""
MARGIN = 1.1
"""oneDNN counts as faster where MKL takes this many times as long; a smaller difference may be noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Multiplications of a product (rows · in · out) from which oneDNN computes it; infinite: never."""

    few_rows: float
    """A product without gradient of at most `FEW_ROWS` rows."""
    many_rows: float
    """A product without gradient of more rows."""
    update: float
    """A product of an update; its two backward products go to the same library."""

    def to_json(self) -> dict[str, float | None]:
        """As JSON, where null means never."""
        return {name: None if value == math.inf else value for name, value in asdict(self).items()}

    def __str__(self) -> str:
        kinds = {f"up to {FEW_ROWS} rows": self.few_rows, "more rows": self.many_rows, "updates": self.update}
        starts = [f"{value:,.0f} ({kind})" for kind, value in kinds.items() if value < math.inf]
        return f"MKL; oneDNN for products of at least {', '.join(starts)} multiplications" if starts else "MKL"


NEVER = Rule(few_rows=math.inf, many_rows=math.inf, update=math.inf)
FIXED = {"mkl": NEVER, "onednn": Rule(few_rows=1e6, many_rows=1e6, update=1e6)}
"""Fixed rules. "onednn" leaves small products to MKL, because a call of oneDNN costs some microseconds more."""


def rule_from(stored: Any) -> Rule | None:
    """The inverse of `Rule.to_json`; None for anything else."""
    if not isinstance(stored, dict) or set(stored) != {field.name for field in fields(Rule)}:
        return None
    values = {name: math.inf if value is None else value for name, value in stored.items()}
    is_good = all(type(value) in (int, float) and value >= 0 for value in values.values())
    return Rule(**values) if is_good else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One shape on both libraries."""

    use: Use
    work: int
    """Multiplications of the forward product."""
    mkl_seconds: float
    onednn_seconds: float


def rule_of(timings: Iterable[Timing]) -> Rule:
    """The rule that follows from timings.

    Example:
        >>> loss = Timing(use="update", work=1000, mkl_seconds=1.0, onednn_seconds=2.0)
        >>> win = Timing(use="update", work=5000, mkl_seconds=8.0, onednn_seconds=4.0)
        >>> rule_of([loss, win]).to_json()
        {'few_rows': None, 'many_rows': None, 'update': 5000}
    """
    timings = list(timings)
    starts = {use: _start([t for t in timings if t.use == use]) for use in ("few_rows", "many_rows", "update")}
    return Rule(**starts)


def _start(timings: list[Timing]) -> float:
    """The measured size from which oneDNN gains most: the sum of log(MKL's seconds / (`MARGIN` · oneDNN's)).

    It is a sum, so that a single disturbed timing does not decide alone.
    """
    start, best, gain = math.inf, 0.0, 0.0
    for timing in sorted(timings, key=lambda t: t.work, reverse=True):
        gain += math.log(timing.mkl_seconds / (MARGIN * timing.onednn_seconds))
        if gain > best:
            start, best = timing.work, gain
    return start


SHAPES: dict[Use, tuple[tuple[int, int, int], ...]] = {
    "few_rows": ((16, 256, 256), (16, 256, 704), (16, 896, 896)),
    "many_rows": ((256, 64, 64), (512, 64, 64), (512, 64, 160), (128, 256, 704)),
    "update": ((256, 64, 64), (512, 64, 64), (512, 64, 160), (256, 128, 256)),
}
"""Rows, in, out."""
_ROUNDS = 7
"""Each product is timed once per round, so that a busy moment of the machine affects all of them."""

Product = Callable[[], object]


def measure() -> list[Timing]:
    """Time every shape with torch's current number of threads. Draws no random number."""
    shapes = [(use, shape) for use, shapes in SHAPES.items() for shape in shapes]
    with torch.inference_mode():
        products = [_products(use, *shape) for use, shape in shapes]
        seconds = iter(_shortest([product for both in products for library in both for product in library]))
    timings = []
    for (use, (rows, num_in, num_out)), both in zip(shapes, products, strict=True):
        mkl, other = (sum(next(seconds) for _ in library) for library in both)
        timings.append(Timing(use=use, work=rows * num_in * num_out, mkl_seconds=mkl, onednn_seconds=other))
    return timings


def _products(use: Use, rows: int, num_in: int, num_out: int) -> tuple[list[Product], list[Product]]:
    """The products of a linear layer with MKL and with oneDNN: forward, and in an update also both gradients."""
    x, weight, above = (
        torch.full(shape, 0.5, dtype=torch.float32, device="cpu")
        for shape in ((rows, num_in), (num_out, num_in), (rows, num_out))
    )
    mkl: list[Product] = [lambda: F.linear(x, weight), lambda: above @ weight, lambda: above.t() @ x]
    other: list[Product] = [lambda: onednn(x, weight), lambda: onednn(above, weight.t()), lambda: outer(above, x)]
    num = 3 if use == "update" else 1
    return mkl[:num], other[:num]


def _shortest(products: list[Product]) -> list[float]:
    """The shortest seconds of each: other programs can only make a call slower."""
    for product in products:
        product()  # compiles its kernel
    rounds = [[_seconds(product) for product in products] for _ in range(_ROUNDS)]
    return [min(found) for found in zip(*rounds, strict=True)]


def _seconds(product: Product) -> float:
    start = time.perf_counter()
    product()
    return time.perf_counter() - start


_SCHEME = "1"
"""Increased when the shapes or the rule's meaning change: older files are then ignored."""
_SETTINGS = ("ATEN_", "DNNL_", "MKL_", "ONEDNN_")
"""Beginnings of the environment variables that choose instructions or kernels."""


def this_machine() -> dict[str, str]:
    """All that the measurement depends on."""
    libraries = (line.strip(" -") for line in torch.__config__.show().splitlines())
    return {
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "libraries": "; ".join(line for line in libraries if "Math Kernel Library" in line or "MKL-DNN" in line),
        "threads": str(torch.get_num_threads()),
        "environment": " ".join(f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(_SETTINGS)),
        "scheme": _SCHEME,
    }


def _processor() -> str:
    """The processor's name, with family and model where the system reports them."""
    found = processor_facts()
    if not found:
        return platform.processor() or platform.machine()
    numbers = [f"{name} {found[name]}" for name in ("cpu family", "model", "stepping") if name in found]
    return " ".join([found.get("model name", platform.machine()), *numbers])


def _digest_of(machine: Mapping[str, str]) -> str:
    """A short name for a machine and its setting."""
    return hashlib.sha256(json.dumps(dict(machine), sort_keys=True).encode()).hexdigest()[:16]


def rule_path(machine: Mapping[str, str]) -> Path:
    """The file of a machine's rule, there or not. RuntimeError: the user has no home folder."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "podsrl" / f"matmul-{_digest_of(machine)}.json"


def read_rule(machine: Mapping[str, str]) -> Rule | None:
    """The rule that was measured on this machine; None if there is no usable one."""
    try:
        stored = json.loads(rule_path(machine).read_text())
    except (OSError, RuntimeError, ValueError):
        return None
    return rule_from(stored.get("rule")) if isinstance(stored, dict) and stored.get("machine") == machine else None


def write_rule(machine: Mapping[str, str], rule: Rule) -> Rule:
    """Store a rule. Returns it, or the one that another process stored first, which decides for all."""
    with suppress(OSError, RuntimeError):
        path = rule_path(machine)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            new = Path(folder) / path.name
            new.write_text(json.dumps({"machine": dict(machine), "rule": rule.to_json()}, indent=1))
            try:
                os.link(new, path)  # whole or not at all, and never over another
            except OSError:  # another was first; or it is damaged, or the file system has no links
                if (first := read_rule(machine)) is not None:
                    return first
                new.replace(path)
    return rule


_known: dict[str, Rule] = {}
"""Rules that this process has measured or read, by machine and setting."""
_rule: Rule | None = None
_lock = threading.RLock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A rule, and the machine on which it was measured."""

    rule: Rule
    machine: Mapping[str, str]
    """See `this_machine`; empty for a fixed rule, which needs no measurement."""

    def to_json(self) -> dict[str, Any]:
        return {"rule": self.rule.to_json(), "machine": dict(self.machine)}

    @staticmethod
    def of_json(stored: Any) -> Choice | None:
        """The inverse of `to_json`; None for anything else."""
        if not isinstance(stored, dict) or not isinstance(stored.get("machine"), dict):
            return None
        rule = rule_from(stored.get("rule"))
        return None if rule is None else Choice(rule=rule, machine=stored["machine"])


def check_option(option: str) -> None:
    """UsageError: `model.matmul` names a library that this machine does not have."""
    if option == "onednn" and not is_available():
        raise UsageError(
            "model.matmul = 'onednn': oneDNN's products need an x86 processor and a torch built with oneDNN, which is "
            "not the case here; leave the option out"
        )


def choose(option: str = "auto") -> Choice:
    """The rule for "auto" or a key of `FIXED`: a fixed one, or one measured on this machine, now or earlier."""
    check_option(option)
    if option != "auto":
        return Choice(rule=FIXED[option], machine={})
    with _lock:
        machine = this_machine()
        key = _digest_of(machine)
        if key not in _known:
            rule = (read_rule(machine) or write_rule(machine, rule_of(measure()))) if is_available() else NEVER
            _known[key] = rule
        return Choice(rule=_known[key], machine=machine)


def use(rule: Rule | None) -> None:
    """Use this rule from now on, in the whole process; None: choose again at the next product."""
    global _rule
    _rule = rule if rule is None or is_available() else NEVER


def current() -> Rule:
    """The rule in use; if there is none yet, that of "auto"."""
    with _lock:
        if _rule is None:
            use(choose().rule)
        assert _rule is not None
        return _rule


def in_use() -> Rule | None:
    """The rule in use; None if nothing has been chosen yet."""
    return _rule


def uses_onednn(rows: int, work: int) -> bool:
    """Whether oneDNN computes a float32 product without gradient; `work` is its multiplications, rows · in · out."""
    rule = _rule or current()
    return work >= (rule.few_rows if rows <= FEW_ROWS else rule.many_rows)


def has_fast_linear(model: nn.Module) -> bool:
    """Whether some of a model's products may go through oneDNN."""
    return is_available() and any(_is_fast(module) for module in model.modules())


@contextmanager
def fast_linears(model: nn.Module) -> Iterator[None]:
    """Within it the float32 linear layers of `model` that are on a CPU compute with the faster library."""
    changed: list[Any] = [module for module in model.modules() if _is_fast(module)] if is_available() else []
    for module in changed:
        module.forward = partial(linear, module)
    try:
        yield
    finally:
        for module in changed:
            del module.forward


def _is_fast(module: nn.Module) -> bool:
    """A plain linear layer whose forward has not been replaced."""
    if type(module) is not nn.Linear or "forward" in vars(module):
        return False
    return module.weight.is_cpu and module.weight.dtype == torch.float32


def linear(module: nn.Linear, x: Tensor) -> Tensor:
    """`module(x)`, with its gradients, by the faster of both libraries."""
    if x.dtype != torch.float32 or x.numel() * len(module.weight) < current().update:
        return F.linear(x, module.weight, module.bias)
    result: Tensor = OnednnLinear.apply(x, module.weight, module.bias)  # type: ignore[no-untyped-call]  # torch's
    return result


class Linear:
    """x [R, in] -> [R, out] with the weights of a module, in place."""

    __slots__ = ("_bias", "_has_choice", "_size", "_weight")

    def __init__(self, module: Any) -> None:
        self._weight, self._bias = module.weight, module.bias
        self._has_choice = self._weight.is_cpu and self._weight.dtype == torch.float32
        self._size: int = self._weight.numel()

    def __call__(self, x: Tensor) -> Tensor:
        if self._has_choice and uses_onednn(len(x), len(x) * self._size):
            return onednn(x, self._weight, self._bias)
        return F.linear(x, self._weight, self._bias)
