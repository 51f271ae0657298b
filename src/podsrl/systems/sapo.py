"""SAPO's swarm (arXiv 2509.08721): independent runs share their rollouts through a folder.

Each run writes the groups of a step to a file of the folder. Each step also trains on `num` groups that other runs have
written: drawn at random from those of their newest `window` files whose rewards are not all equal. The runs need not
know of each other, and none waits for another.

A file is read with suspicion: it is a regular file below `most_bytes`, in the format of this package's records with its
checksum, of questions of this run's training set whose prompts are the same tokens here (so the tokenizer and the chat
template are the same), with tokens of its vocabulary, at most as many as a rollout here may have, finite rewards, and
log-probs that are at most 0. Anything else is skipped as a whole, counted, and said; nothing of a file is executed.
Rewards are taken as they are: whoever may write into the folder is trusted with them.

The paper treats foreign tokens as if this run had drawn them: `correct.proximal = "step_start"` without a weight. F-TIS
(arXiv 2605.22537) weighs them by the ratio to the policy that drew them, at most 2, and drops bad ones that are too far
off: `correct.weight = "truncate"` and `correct.drop = "far_negative"`; its log-probs are in the file.

What is ours: the folder, where the paper has a network; the paper sends decoded texts and each receiver encodes them
anew, so its runs may have different tokenizers. The age of foreign rollouts is not known, and they count as made by the
newest weights that this run has seen in its own. What other runs have written when a step looks is up to their clocks:
a run repeats itself bit for bit where the folder is the same. While it trains, a run holds the lock of its name.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import stat
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from podsrl.control.base import View
from podsrl.errors import PodsError, UsageError, short
from podsrl.lib.logs import write_atomically
from podsrl.lib.rounding import has_signal
from podsrl.policy import prompt_ids
from podsrl.records import decode, encode
from podsrl.types import Group, Task

Count = Annotated[int, Field(ge=1, le=1_000_000)]
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
FILE = re.compile(rf"({NAME.pattern})\.(\d{{8}})\.groups")
ORIGIN = "swarm"
"""`Rollout.origin` of those of other runs."""


class Swarm:
    """Gives groups of other runs, and writes its own.

    Args:
        folder: shared by the runs; made where it is missing.
        name: of this run in it, of letters, digits, "-" and "_"; "": "run-" and the seed.
        num: groups of others per step, as far as there are so many.
        window: newest files of each other run that are read, and own ones that stay.
        most_bytes: of a file that is read.

    Raises:
        UsageError: a name of other characters.
    """

    needs, breaks = frozenset({"one_process"}), frozenset({"lone_runs"})

    def __init__(
        self,
        *,
        folder: Annotated[str, Field(min_length=1)],
        name: str = "",
        num: Count = 8,
        window: Count = 4,
        most_bytes: Annotated[int, Field(ge=1)] = 1 << 26,
    ) -> None:
        if name and NAME.fullmatch(name) is None:
            raise UsageError(f"options.sapo.name = {short(name)}; wanted up to 64 letters, digits, '-', '_', or ''")
        self._folder, self._name = Path(folder), name
        self._num, self._window, self._most_bytes = num, window, most_bytes
        self._tokenizer: Any = None
        self._most_tokens = 0
        self._read: dict[tuple[str, int, int], tuple[Group, ...]] = {}
        """(file's name, time, size) -> its groups as they are there, of the files that are in the folder now."""
        self._version, self.num_skipped = 0, 0
        """The newest weights that own rollouts were made by; files that this process has skipped."""
        self._writes = True
        self._lock: FileIO | None = None

    def check_model(self, tokenizer: Any, max_tokens: int) -> None:
        """Remember what foreign rollouts have to fit. UsageError: the folder cannot be written."""
        self._tokenizer, self._most_tokens = tokenizer, max_tokens
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"options.sapo.folder = {str(self._folder)!r}: {error.strerror}; name another") from None
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise UsageError(f"options.sapo.folder = {str(self._folder)!r} cannot be written; name another")

    def write_nothing(self) -> None:
        """Take groups of others from now on, and give none."""
        self._writes = False

    def recall(self, view: View) -> Sequence[Group]:
        """Some of other runs' newest groups, in the order of their names. UsageError: one that runs has this name."""
        self._name = self._name or f"run-{view.seed}"
        if self._writes and self._lock is None:
            self._lock = self._hold()
        found = [group for path in self._newest() for group in self._groups_of(path, view.tasks)]
        count = min(self._num, len(found))
        drawn = view.rng("swarm").choice(len(found), count, replace=False) if count else ()
        return [self._foreign(found[place]) for place in sorted(drawn)]

    def learn(self, groups: Sequence[Group]) -> None:
        """Write the step's groups for the others, and remove what is too old for them, or of another run."""
        own = [group for group in groups if group.is_trained and group.index is not None]
        if not own or not self._name or not self._writes:
            return
        self._version = max((one.oldest_version for group in own for one in group.rollouts), default=self._version)
        step = max(group.step for group in own)
        write_atomically(self._folder / f"{self._name}.{step:08d}.groups", encode(own))
        for number, path in self._files().get(self._name, ()):
            if not step - self._window < number <= step:  # later ones are of an earlier run of this name
                path.unlink(missing_ok=True)

    def state(self) -> Mapping[str, Any]:
        """The newest weights that own rollouts were made by."""
        return {"version": self._version}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._version = state["version"]

    def _hold(self) -> FileIO:
        """The lock of this run's name, of which the operating system lets go when the process ends."""
        path = self._folder / f"{self._name}.lock"
        try:
            lock = FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666), "r+")
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise UsageError(
                f"options.sapo.folder = {str(self._folder)!r}: another run that goes on has the name {self._name!r} in "
                "it, and each wants its own: set another seed, or options.sapo.name"
            ) from None
        except OSError as error:
            raise UsageError(f"options.sapo.folder: {path}: {error.strerror}; name another folder") from None
        return lock

    def _files(self) -> dict[str, list[tuple[int, Path]]]:
        """Run -> step and path of its files, the oldest first."""
        found: dict[str, list[tuple[int, Path]]] = {}
        for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            if (parts := FILE.fullmatch(path.name)) is not None:
                found.setdefault(parts[1], []).append((int(parts[2]), path))
        return found

    def _newest(self) -> list[Path]:
        files = {name: own[-self._window :] for name, own in self._files().items() if name != self._name}
        return [path for own in files.values() for _, path in own]

    def _groups_of(self, path: Path, tasks: Sequence[Task]) -> tuple[Group, ...]:
        """The groups of a file that can teach; none where it is not to be trusted."""
        try:
            found = path.lstat()
        except OSError:
            return ()  # its run has removed it
        key = path.name, found.st_mtime_ns, found.st_size
        if key not in self._read:
            self._read = {other: own for other, own in self._read.items() if (self._folder / other[0]).exists()}
            try:
                if not stat.S_ISREG(found.st_mode) or found.st_size > self._most_bytes:
                    raise PodsError(f"it is no file of at most {self._most_bytes:,} bytes")
                self._read[key] = tuple(self._taken(path, tasks))
            except (OSError, PodsError) as error:
                self._read[key] = ()
                self._skip(path.name, error)
        return self._read[key]

    def _taken(self, path: Path, tasks: Sequence[Task]) -> Iterator[Group]:
        def task_of(name: str, index: int | None) -> Task:
            if index is None or not 0 <= index < len(tasks) or name.split("/", 2)[2:] != [tasks[index].id]:
                raise PodsError(f"its group {short(name)} is of no question here")
            return tasks[index]

        peer = path.name.partition(".")[0]
        for group in decode(path.read_bytes(), task_of):
            self._check(group)
            if has_signal([one.reward for one in group.rollouts if one.is_valid]):
                yield replace(group, id=f"{peer}/{group.id}")

    def _foreign(self, group: Group) -> Group:
        """A group of a file as this step takes it; when its file was read must not matter."""
        rollouts = (
            replace(one, group_id=group.id, version=self._version, versions=(), origin=ORIGIN) for one in group.rollouts
        )
        return replace(group, rollouts=tuple(rollouts))

    def _check(self, group: Group) -> None:
        """PodsError: it does not fit this run."""
        if group.prompt_ids != prompt_ids(self._tokenizer, group.task):
            raise PodsError(f"the prompt of {group.task.id!r} has other tokens: it is of another tokenizer or template")
        size = len(self._tokenizer)
        for one in group.rollouts:
            stretches = [0, *(end for stretch in one.given for end in stretch), len(one.token_ids)]
            if (
                one.prompt_ids is not None
                or not 0 < len(one.token_ids) <= self._most_tokens
                or len(one.logprobs) != len(one.token_ids)
                or not 0 <= min(one.token_ids) <= max(one.token_ids) < size
                or not (math.isfinite(sum(one.logprobs)) and max(one.logprobs) <= 0)
                or stretches != sorted(stretches)
                or (one.is_valid and not math.isfinite(one.reward))
            ):
                raise PodsError(
                    f"rollout {one.index} of its group {short(group.id)} is none that this run could have made"
                )

    def _skip(self, name: str, error: Exception) -> None:
        self.num_skipped += 1
        if self.num_skipped.bit_count() == 1:  # 1, 2, 4, 8 …
            count = "the first" if self.num_skipped == 1 else f"{self.num_skipped} so far"
            warnings.warn(f"options.sapo.folder: {short(name)} is skipped ({count}): {error}", stacklevel=2)
