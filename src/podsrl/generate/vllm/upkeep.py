"""Keeps a server on the newest weights: gives them to it, and again after it has restarted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from podsrl.errors import LostGenerator, PodsError, UsageError
from podsrl.generate.base import Setting
from podsrl.generate.vllm.checks import ServerFacts, check_model, check_server, examine, server_command
from podsrl.generate.vllm.handover import RUN
from podsrl.generate.vllm.link import Link, Refused, Unreachable

_MAX_PAUSE_SECONDS = 5.0


class Upkeep:
    """What a server holds, and whether it answers.

    Args:
        link: to the server.
        setting: of the run.
        retry_seconds: how long the server may be away.

    Raises:
        UnavailableError: nothing answers.
        UsageError: the server was started in another way than a run needs, or has another model.
    """

    def __init__(self, link: Link, setting: Setting, retry_seconds: float) -> None:
        self._link, self._setting, self._retry_seconds = link, setting, retry_seconds
        self.facts: ServerFacts = check_server(link)
        check_model(link, self.facts, setting)
        self.num_loads = 0
        """How often the server has loaded weights; an answer is of the newest if it is the same before and after."""
        self._folder = self._label = ""  # of the newest weights, and their name on the server
        self._is_given, self._has_labels = False, True
        self._is_sure, self._was_away = True, False  # that the server holds them; that a request has failed since
        self._gone: LostGenerator | None = None
        self._gate = threading.Lock()

    def give(self, folder: str, version: int) -> None:
        """Let the server load weights from a folder, which has to stay until the next are given.

        Raises:
            LostGenerator: it was away for too long, or cannot load them.
        """
        self._folder, self._is_given = folder, False
        self._label = f"podsrl-{RUN}-{version}-{self.num_loads}"
        self.doubt(is_idle=True)
        self.wait()

    def doubt(self, *, is_idle: bool = False, was_away: bool = False) -> None:
        """Ask the server before the next request whether it still holds the newest weights: it may have restarted.

        Args:
            is_idle: nobody waits for a job, so a server that was given up is tried again.
            was_away: a request has failed.
        """
        self._was_away |= was_away
        self._is_sure = False
        if is_idle:
            self._gone = None

    def wait(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Return when the server answers and holds the newest weights, or when it `is_over`.

        Raises:
            LostGenerator: it was away for too long, or cannot load them.
        """
        if self._is_sure:
            return
        with self._gate:
            deadline, pause = time.monotonic() + self._retry_seconds, 0.1
            while not self._is_sure and not is_over():
                if self._gone is not None:
                    raise LostGenerator(str(self._gone))
                try:
                    self._bring_up_to_date()
                    self._is_sure, self._was_away = True, False
                except Unreachable as error:
                    self._was_away = True
                    if is_over():  # it may have begun while the server was away, and others go on
                        return
                    if time.monotonic() + pause > deadline:
                        self._gone = self.lost(error)
                        raise self._gone from error
                    time.sleep(pause)
                    pause = min(2 * pause, _MAX_PAUSE_SECONDS)
                except Refused as error:
                    self._gone = self.lost(error)
                    raise self._gone from error

    def lost(self, error: Exception) -> LostGenerator:
        """The error of a server that is given up."""
        return LostGenerator(
            f"the vLLM server at {self._link.url} is lost after options.vllm.retry_seconds = {self._retry_seconds:g}: "
            f"{error}; start it again, then resume the run: "
            f"{server_command(self._link.url, self._setting.folder, self.facts.max_model_len)}"
        )

    def check_folder(self, empty: str) -> None:
        """Let the server load a folder with a file without tensors, which changes nothing: it has to see it.

        Raises:
            UsageError: it does not.
        """
        kwargs = {"weights_path": empty, "is_checkpoint_format": False}
        try:
            self._link.ask("/collective_rpc", {"method": "reload_weights", "kwargs": kwargs})
        except Refused as error:
            if "is_checkpoint_format" not in str(error):  # not of every release
                raise UsageError(
                    f"options.vllm.folder: the server at {self._link.url} cannot read what this run writes there "
                    f"({error}); wanted a folder that both see under the same path, as the same user"
                ) from error
        except Unreachable as error:
            raise self.lost(error) from error

    def _bring_up_to_date(self) -> None:
        """Let the server load the newest weights, if it does not hold them."""
        if not self._folder:
            self._link.ask("/health", timeout_seconds=10)
            return
        if self._is_given:
            if self._holds_newest():
                return
            self.facts = examine(self._link)  # a server that has restarted may have other flags
            check_model(self._link, self.facts, self._setting)
            self.num_loads += 1
        self._link.ask("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": self._folder}})
        if self._has_labels:
            try:
                self._link.ask("/update_weight_version", {"new_version": self._label}, timeout_seconds=60)
            except Refused:  # not of every release
                self._has_labels = False
        self.num_loads, self._is_given = self.num_loads + 1, True

    def _holds_newest(self) -> bool:
        """By the name that they have on the server; without names, if it has answered all the time."""
        if not self._has_labels:
            return not self._was_away
        answer = self._link.ask("/weight_info", timeout_seconds=60)
        label = answer.get("weight_version") if isinstance(answer, dict) else None
        if isinstance(label, str) and label.startswith("podsrl-") and not label.startswith(f"podsrl-{RUN}-"):
            raise PodsError(
                f"another run has given its weights to the server at {self._link.url}; one server has the weights of "
                "one run: start a second server"
            )
        return label == self._label
