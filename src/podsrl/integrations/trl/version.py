"""Which TRL is installed; it is imported here first, and every reason why it cannot be is one line."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from podsrl.errors import UsageError
from podsrl.lib.user_function import FAILURES, reason_of


def check_version() -> tuple[int, int]:
    """TRL's version, major and minor. UsageError: it is not installed, or not 1.x."""
    try:
        found = version("trl")
    except PackageNotFoundError:
        raise UsageError("TRL is not installed; wanted 1.0 or newer, below 2: pip install 'podsrl[trl]'") from None
    major, minor = (*map(int, re.findall(r"\d+", str(found))), 0, 0)[:2]  # also of "1.0rc1"
    if major != 1:
        raise UsageError(f"TRL {found} is installed; wanted 1.0 or newer, below 2: pip install 'trl>=1.0,<2'")
    return major, minor


VERSION = check_version()
try:
    from trl import GRPOConfig, GRPOTrainer
except FAILURES as error:  # TRL imports the trackers that it finds, and one of these may be broken
    raise UsageError(
        f"TRL {version('trl')} cannot be imported: {reason_of(error)}; repair or remove the package that fails"
    ) from error

__all__ = ["VERSION", "GRPOConfig", "GRPOTrainer", "check_version"]
