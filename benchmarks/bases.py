"""Base models that answer different shares of the questions right, each made once from the built-in model."""

from __future__ import annotations

from benchmarks import command
from podsrl.config.load import build
from podsrl.config.pretrain import PretrainConfig
from podsrl.errors import UsageError
from podsrl.lib.callbacks import Progress, no_progress

FOLDER = command.ROOT / "runs" / "when-pods-helps" / "bases"
BUILTIN = "builtin:arithmetic"
STARTS: dict[str, str | tuple[float, int]] = {
    "0.9%": "builtin:arithmetic-rare",
    "4%": BUILTIN,
    "18%": (0.2, 400),
    "59%": (0.6, 400),
}
"""Start accuracy on two-digit sums -> a model that comes with the package, or share of careful solutions and steps of
further pretraining."""


def base_model(start: str, progress: Progress = no_progress) -> str:
    """The model that starts at this accuracy, pretrained if it is missing (on one thread, always the same weights).

    Args:
        start: a key of `STARTS`, or any model folder, hub name or "builtin:NAME".

    Returns:
        A value for `model.path`.
    """
    from podsrl.tools.pretrain import pretrain

    if start not in STARTS:
        if start.endswith("%"):
            raise UsageError(f"start {start!r}: no such start accuracy, wanted one of {', '.join(STARTS)}, or a model")
        return start
    if isinstance(source := STARTS[start], str):
        return source
    careful, steps = source
    folder = FOLDER / start
    if not folder.exists():
        tree = {"start": BUILTIN, "skill_steps": 0, "mixture_steps": steps, "careful": careful}
        pretrain(build(PretrainConfig, tree, "benchmarks"), folder, progress)
    return str(folder)
