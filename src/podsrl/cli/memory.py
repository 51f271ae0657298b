"""What `--memory 24GiB` prints: whether the run fits, and the cheapest options that make it fit."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from podsrl.cli.console import say, size_text
from podsrl.config.bounds import parse_bytes
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError

if TYPE_CHECKING:
    from podsrl.run.before.memory_advice import MemoryAdvice

Json = dict[str, Any]
MIB = 1 << 20
_UNITS = {"K": "KiB", "M": "MiB", "G": "GiB", "KI": "KiB", "MI": "MiB", "GI": "GiB"}
"""Short units in capitals -> those of the schema; as in Slurm and Docker "24G" are GiB."""


def parse_memory(text: str) -> int:
    """Bytes of `--memory`: "24GiB", "24 GB", "24G".

    Raises:
        UsageError: no size, or one without a unit.

    Example:
        >>> parse_memory("24G") == parse_memory("24 gib") == 24 << 30
        True
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*", text)
    unit = match[2].upper() if match else ""
    try:
        if match is None:
            raise ValueError
        written = match[1] + _UNITS.get(unit, unit.replace("IB", "iB"))
        size = int(parse_bytes(written))
    except ValueError:
        raise UsageError(f"--memory {text}: wanted a size with its unit, such as 24GiB, 80GB or 900MiB") from None
    if size < MIB:
        raise UsageError(f"--memory {text}: wanted at least 1MiB")
    return size


def advise_on(
    config: RunConfig, bound_bytes: int, num_processes: int = 1, num_eval: int | None = None, longest_prompt: int = 0
) -> MemoryAdvice:
    """`podsrl.run.before.memory_advice.advise`, with the shape of the config's own model and the sizes of its data."""
    from podsrl.run.before.memory_advice import advise
    from podsrl.run.before.model_shape import read_shape
    from podsrl.run.before.sizes import sized

    most = sized(config, longest_prompt=longest_prompt, num_eval=num_eval)
    return advise(most, read_shape(config.model), bound_bytes, num_processes)


def print_advice(advice: Json, command: Sequence[str] | None) -> None:
    """Print whether a run fits, and if not what makes it fit; `advice` is of `MemoryAdvice.to_json`.

    `command` starts the run as it is, and is repeated with the changes; None: only the flags are shown.
    """
    bound, peak = size_text(advice["bound_bytes"]), size_text(advice["peak_bytes"])
    if advice["fits"]:
        say(f"fits into {bound}: about {peak} at the peak, what libraries take for themselves not counted")
        return
    say(f"does not fit into {bound}: about {peak} at the peak. What helps, the cheapest first:")
    for before, step in pairwise([advice, *advice["steps"]]):
        _say_step(step, before, advice["bound_bytes"])
    if not advice["is_possible"]:
        _say_floor(advice, bound)
        return
    say("that is enough")
    say("  " + _command(advice, command))


def _say_step(step: Json, before: Json, bound_bytes: int) -> None:
    old = step["old"]
    value = size_text(old) if step["key"].endswith("_bytes") and old else old
    was = "" if old in (None, 0, False) else f" (now {value})"
    names = {"generating": "generate_bytes", "update": "update_bytes"}
    phases = ", ".join(f"{name} {size_text(step[key])}" for name, key in names.items())
    saved = [f"{size_text(less)} {name}" for name, key in names.items() if (less := before[key] - step[key]) > 0]
    mark = "fits" if step["peak_bytes"] <= bound_bytes else "not yet"
    say(f"  {step['flag']}{was}\n      saves {', '.join(saved)}; then {phases}: {mark}\n      costs {step['cost']}")


def _say_floor(advice: Json, bound: str) -> None:
    largest = max(advice["parts"], key=lambda part: part["num_bytes"])
    say(
        f"that is not enough: about {size_text(advice['least_bytes'])} is the least, of which {largest['name']} takes "
        f"{size_text(largest['num_bytes'])}; {bound} wants a smaller model, or more processes that share it"
    )


def _command(advice: Json, command: Sequence[str] | None) -> str:
    """The command with its own values of the changed options left out, since a flag may stand once only."""
    keys = {f"--{step['key']}" for step in advice["steps"]}
    kept = [word for word in command or () if word.partition("=")[0] not in keys]
    return shlex.join([*kept, *advice["flags"]])
