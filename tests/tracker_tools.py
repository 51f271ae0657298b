"""The trackers' tools in a test's process: without the user's accounts and folders, and gone afterwards."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from podsrl.integrations.trackers.tools import TOOLS

PLACES = ("WANDB_API_KEY", "WANDB_MODE", "WANDB_DIR", "WANDB_SERVICE", "TRACKIO_DIR", "MLFLOW_TRACKING_URI")


@contextmanager
def only_here(folder: Path) -> Iterator[pytest.MonkeyPatch]:
    """What the tools set in the environment is put back, and W&B's service ended; `folder` is for temporary files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NETRC", os.devnull)
        patch.setenv("WANDB_DATA_DIR", str(folder))
        patch.setattr("tempfile.tempdir", str(folder))
        for tool in TOOLS.values():
            for name, value in tool.environment.items():
                patch.setenv(name, value)
        for name in PLACES:
            patch.setenv(name, "")
            patch.delenv(name)
        try:
            yield patch
        finally:
            if (wandb := sys.modules.get("wandb")) is not None:
                with suppress(OSError):  # a test has killed it, and its socket stays
                    wandb.teardown()
                for socket in Path(os.environ["TMPDIR"]).glob("wandb-[0-9]*"):
                    shutil.rmtree(socket)
