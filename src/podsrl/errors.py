"""The errors a user can meet. Each message names the option, what it got, what it wanted and the cure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PodsError(Exception):
    """Base of every error raised on purpose; the command line prints it in one line, without a traceback."""


class UsageError(PodsError, ValueError):
    """Bad input from the user: an option, a config key, a file, a model folder. The command line exits with 2."""


class UnavailableError(UsageError):
    """What a config names is not to be had here and now (no network, no such package or GPU); elsewhere it may be."""


class RewardError(UsageError):
    """A reward function that breaks its contract for a whole batch (wrong length or type), not for one rollout."""


class CheckpointError(PodsError):
    """A checkpoint that is missing, truncated or altered. The message names the file."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Say what `name` was probably meant to be.

    Args:
        name: what the user wrote.
        known: the names that exist.

    Returns:
        `" Did you mean 'x'?"` for a near miss, else `" Known: a, b, c."`.

    Example:
        >>> nearest("max_varianse", ["max_variance", "random"])
        " Did you mean 'max_variance'?"
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else f" Known: {', '.join(names)}."
