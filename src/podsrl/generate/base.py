"""What a generator is (`Generator`), what it is made for (`Setting`), asked (`Request`, `Sampling`) and counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from podsrl.errors import PodsError, UsageError, short
from podsrl.lib.watch import Key, Watch
from podsrl.types import FinishReason, Rollout, Status

MIN_TEMPERATURE = 1e-6
"""Below it logits divided by it overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are drawn. Filters apply in the order temperature, top-k, top-p, min-p, as in Hugging Face `generate`.

    Raises:
        UsageError: a value outside its range.

    Example:
        >>> Sampling(temperature=0.7, max_new_tokens=8).top_p
        1.0
    """

    temperature: float = 1.0
    """Softmax temperature, at least `MIN_TEMPERATURE`."""
    top_p: float = 1.0
    """Nucleus: smallest set of tokens with at least this probability, in (0, 1]; 1 keeps all."""
    top_k: int = 0
    """The k likeliest tokens; 0 keeps all."""
    min_p: float = 0.0
    """Tokens with at least this fraction of the likeliest one's probability, in [0, 1); 0 keeps all."""
    max_new_tokens: int = 64
    """Token limit, at least 1."""
    stop_token_ids: tuple[int, ...] | None = None
    """A completion ends with, and includes, the first of these; (): none of them ends it; None: the end tokens of the
    model's generation config and of the tokenizer, where the generator has them. A run names them in each request."""
    stop_strings: tuple[str, ...] = ()
    """A completion ends with, and includes, the token that completes one of these in its text, wherever in the token
    that happens; neither the prompt's text nor what ends with given tokens (`Rollout.given`) counts. The engine needs a
    tokenizer for them."""

    def __post_init__(self) -> None:
        is_positive = math.isfinite(self.temperature) and self.temperature >= MIN_TEMPERATURE
        wanted = f"a number of at least {MIN_TEMPERATURE:g} (for greedy decoding set top_k = 1)"
        _require(is_positive, "temperature", self.temperature, wanted)
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "a number in (0, 1]")
        _require(self.top_k >= 0, "top_k", self.top_k, "0 (all tokens) or more")
        _require(0 <= self.min_p < 1, "min_p", self.min_p, "a number in [0, 1)")
        _require(self.max_new_tokens >= 1, "max_new_tokens", self.max_new_tokens, "at least 1")
        ids: Any = self.stop_token_ids
        strings: Any = self.stop_strings
        is_list = ids is None or isinstance(ids, Iterable)
        _require(is_list, "stop_token_ids", repr(ids), "a tuple of token ids, also for a single one")
        is_list = isinstance(strings, Iterable) and not isinstance(strings, str)
        _require(is_list, "stop_strings", repr(strings), "a tuple of strings, also for a single one")
        ids = None if ids is None else _token_ids(tuple(ids), "stop_token_ids")
        object.__setattr__(self, "stop_token_ids", ids)
        object.__setattr__(self, "stop_strings", tuple(self.stop_strings))
        _require(
            "" not in self.stop_strings, "stop_strings", self.stop_strings, "no empty string: it would stop at once"
        )

    @property
    def shape(self) -> tuple[float, float, int, float]:
        """What the distribution depends on: temperature, top-p, top-k, min-p."""
        return self.temperature, self.top_p, self.top_k, self.min_p


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and the completions wanted for it.

    Several requests may have one id, also while they run: their rollouts are of one group, and their indices differ.
    Eight rollouts and then 24 more are, token for token, 32 of one request:

        Request("s3/0/q", prompt_ids, 8, sampling)
        Request("s3/0/q", prompt_ids, 24, sampling, first_index=8)

    Raises:
        UsageError: no prompt tokens, tokens that are no integers (of Python's or NumPy's), fewer than one rollout, a
            negative `first_index`, or a start that cannot be gone on from.
    """

    id: str
    """Of the group that its rollouts belong to. It names the random numbers: with the generator's seed, a rollout's
    index and a token's position it decides every one of them, so the same id and index repeat a draw."""
    prompt_ids: tuple[int, ...]
    num_rollouts: int = 1
    sampling: Sampling = field(default_factory=Sampling)
    first_index: int = 0
    """The rollouts have the indices first_index .. first_index + num_rollouts - 1."""
    starts: Mapping[int, Rollout] = field(default_factory=dict)
    """Index -> what there is of that rollout, which goes on behind it; `Sampling.max_new_tokens` counts its tokens. A
    completion begins with them."""

    def __post_init__(self) -> None:
        ids, option = tuple(self.prompt_ids), f"prompt_ids of request {self.id!r}"
        _require(len(ids) > 0, option, "no tokens", "at least one token")
        object.__setattr__(self, "prompt_ids", _token_ids(ids, option))
        _require(self.num_rollouts >= 1, f"num_rollouts of request {self.id!r}", self.num_rollouts, "at least 1")
        _require(self.first_index >= 0, f"first_index of request {self.id!r}", self.first_index, "0 or more")
        for index, start in self.starts.items():
            option, most = f"starts[{index}] of request {self.id!r}", self.sampling.max_new_tokens - 1
            _require(index in self.indices and index == start.index, option, f"rollout {start.index}", "its own")
            _require(len(start.token_ids) <= most, option, f"{len(start.token_ids)} tokens", f"at most {most}")
            _require({*map(type, start.token_ids)} <= {int}, option, short(start.token_ids), "integers (token ids)")
            fault = fault_of(start)
            _require(not fault, option, short(start.token_ids), fault)

    @property
    def indices(self) -> range:
        """Of its rollouts."""
        return range(self.first_index, self.first_index + self.num_rollouts)


def nothing_of(request: Request, index: int) -> Rollout:
    """One of its rollouts before its first token."""
    return Rollout(group_id=request.id, index=index, token_ids=(), logprobs=(), version=0, status="open")


class Ending(NamedTuple):
    """How a rollout ends, as in `Rollout`; where it stands, if nothing is said."""

    status: Status = "open"
    finish_reason: FinishReason | None = None
    invalid_reason: str | None = None


BROKEN = Ending("failed", invalid_reason="the model's logits were no numbers")


def fault_of(begun: Rollout) -> str:
    """What is wanted of a rollout's columns and is not so; empty where all is."""
    length, bounds = len(begun.token_ids), [0, *(place for stretch in begun.given for place in stretch)]
    if len(begun.logprobs) != length or len(begun.versions) not in (0, length):
        there_are = f"{len(begun.versions)} versions, {len(begun.logprobs)} log-probs"
        return f"as many log-probs, and as many versions or none, not {there_are}"
    if bounds != sorted(bounds) or bounds[-1] > length or any(start == end for start, end in begun.given):
        return f"given as ascending stretches of 0 .. {length}, which {short(begun.given)} are not"
    if any(any(begun.logprobs[start:end]) for start, end in begun.given):
        return "the log-prob 0 of given tokens"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a generator is made for: the run's model and bounds. A generator takes of it what it needs."""

    load_model: Callable[[], Any]
    """Gives the torch module to sample from, with the weights of now. In the trainer's own process it may share its
    tensors with what is trained."""
    folder: str
    """Model folder in Hugging Face layout, with the weights and the tokenizer that the run began from."""
    revision: str | None = None
    """Of a name on the hub: branch, tag or commit; None: the main branch."""
    trust_remote_code: bool = False
    tokenizer: Any = None
    dtype: str = "float32"
    """Number format of the weights: "float32", "bfloat16" or "float16"."""
    device: str = "cpu"
    """Of the run's model, as torch names it."""
    seed: int = 0
    """With a group's id, a rollout's index and a token's position it decides every random number."""
    max_prompt_tokens: int = 512
    max_new_tokens: int = 64
    num_slots: int | None = None
    """Most rollouts at once; None: the generator decides."""
    kv_cache_bytes: int | None = None
    """Bound of the key-value memory; None: the generator decides."""
    scheduler: str = "continuous"
    """`rollouts.scheduler`."""


@dataclass(slots=True)
class EngineStats:
    """Counts of a generator since they were last replaced by new ones."""

    steps: int = 0
    """Decode steps: draws of one token for every running rollout."""
    tokens: int = 0
    """Tokens drawn."""
    forwarded: int = 0
    """Tokens computed by decode steps, one per row: fewer than `tokens` where rollouts share rows."""
    prompt_tokens: int = 0
    """Prompt tokens read."""
    recomputed_tokens: int = 0
    """Tokens computed again: of rollouts that start with tokens or come back without their keys and values, and of all
    that run when new weights come. The metric is `tokens/reread`."""
    slots_used: int = 0
    """Largest number of rollouts that ran at once."""
    rows_used: int = 0
    """Largest number of rows at once."""


def add_stats(stats: Iterable[EngineStats], largest: Collection[str] = ("slots_used", "rows_used")) -> EngineStats:
    """The counts of all together: the largest of those in `largest`, sums of the others.

    The default is for calls of one generator, one after the other; generators that work at the same time share their
    `steps`.

    Example:
        >>> add_stats([EngineStats(steps=3, tokens=5, rows_used=4), EngineStats(steps=2, tokens=1, rows_used=2)])
        EngineStats(steps=5, tokens=6, forwarded=0, prompt_tokens=0, recomputed_tokens=0, slots_used=0, rows_used=4)
    """
    rows = list(map(asdict, stats))
    counts = {each.name: [row[each.name] for row in rows] for each in fields(EngineStats)}
    return EngineStats(**{name: max(many) if name in largest else sum(many) for name, many in counts.items()})


class Generator(Protocol):
    """Turns requests into completions. It never needs to know what a reward is.

    Its verbs are `submit`, `poll`, `abort` and `load_weights`. A key is (group's id, index of the rollout); whatever is
    asked while other rollouts run, a completion names its own. A generator of your own may have `generate`, `abort`,
    `load_weights` and `version` alone: `OneCall` makes the other verbs of it. A class that inherits from this one has
    defaults for the rest.
    """

    version: int
    """Stamped on what is generated next."""
    abilities: frozenset[str] = frozenset()
    """What it can do beyond these methods:

    - "join": `Request.first_index`, so that a later request adds rollouts to a group
    - "start": `Request.starts`, so that a rollout goes on from tokens that it has
    - "abort_rollouts": `abort` takes (group's id, index) pairs beside ids
    - "partial": what `abort` ends comes with its tokens, so that a later request may go on with them
    - "watch": the argument `watch` of `submit`; in another process a `podsrl.control.Steering`
    - "load": `load_weights` while rollouts run
    - "beside": it generates while nobody polls
    - "proof": the method `first_logprob`, by which the trainer checks that new weights have arrived
    """
    peak_kv_bytes: int = 0
    """Largest key-value memory held since it was set to 0, in bytes; 0 where that is not known."""
    stats: EngineStats = EngineStats()
    """Counts since it was last replaced; zeros where nothing is counted."""

    num_unfinished: int = 0
    """Rollouts that were submitted, or forked, and that `poll` has not given yet."""

    def submit(self, requests: Iterable[Request], *, watch: Watch | None = None) -> None:
        """Start these, beside what runs.

        Args:
            requests: what is wanted. Those with an id that runs add other indices to its group.
            watch: sees the rollouts while they run; its forks come with the next indices of their groups. All that
                runs at a time has the same one, or none.

        Raises:
            UsageError: a request that it cannot serve, or rollouts that run already; nothing is submitted then.
        """
        raise UsageError(f"{type(self).__name__} has no submit: it has generate alone")

    def poll(self, seconds: float | None = None) -> Sequence[Rollout]:
        """Draw one token of every rollout that runs; with the ability "beside", wait until something has ended.

        Args:
            seconds: the longest wait; 0: none; None: until something has ended, or nothing is unfinished. A generator
                that works when it is polled needs no bound.

        Returns:
            What has ended since the last call, perhaps nothing.

        Raises:
            LostGenerator: it is gone, with what it was asked for.
        """
        raise UsageError(f"{type(self).__name__} has no poll: it has generate alone")

    def abort(self, ids: Iterable[str | Key]) -> None:
        """End rollouts: `poll` gives them soon, open and with their tokens so far; those that have ended stay.

        Args:
            ids: groups and, with the ability "abort_rollouts", (group's id, index) pairs. Those that do not run are
                passed over.
        """
        ...

    def load_weights(self, named_tensors: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Sample from these weights from now on, and stamp tokens with `version`.

        With the ability "load" also while rollouts run: it happens between two tokens, and they go on behind the keys
        and values that they have, those of the weights before.

        Each tensor is only valid until the next one is asked for. Where a generator has an attribute `model`, a torch
        module, its parameters must afterwards be these, by name and value.
        """
        ...

    def generate(self, requests: Iterable[Request], *, watch: Watch | None = None) -> Iterator[Rollout]:
        """Submit, and yield every completion as it ends, in any order; arguments and errors as of `submit`.

        A consumer that stops early ends the rollouts without completions.

        Raises:
            UsageError: others are unfinished.
        """
        if self.num_unfinished:
            raise UsageError(f"generate: {self.num_unfinished} rollouts are unfinished; add to them with submit()")
        wanted = list(requests)
        self.submit(wanted, watch=watch)
        return self._generated([request.id for request in wanted])

    def _generated(self, ids: Sequence[str]) -> Iterator[Rollout]:
        try:
            while self.num_unfinished:
                yield from self.poll()
        except GeneratorExit:
            self.abort(ids)
            while self.num_unfinished:
                self.poll()
            raise

    def describe(self, requests: Sequence[Request]) -> str:
        """What generates, and how requests like these share its memory, in one line.

        Raises:
            UsageError: one of them can never fit.
        """
        return type(self).__name__

    def first_logprob(self, prompt_ids: Sequence[int]) -> tuple[int, float]:
        """With the ability "proof": the likeliest token after a prompt, and its natural log-prob at temperature 1."""
        raise UsageError(f"{type(self).__name__} gives no log-prob of a prompt")

    def close(self) -> None:
        """Give back what it holds: processes, connections, files. Nothing is generated afterwards."""


class OneCall:
    """The verbs `submit` and `poll` of a generator that has `generate` alone: one call after the other.

    What is submitted while a call is open waits for the next one.

    Args:
        generator: of a user's own. Its `abort` ends what the open call asked for.
    """

    def __init__(self, generator: Any) -> None:
        self._generator = generator
        self._waiting: list[Request] = []
        self._open: set[Key] = set()
        self._found: Iterator[Rollout] | None = None
        self._is_watched = False

    @property
    def num_unfinished(self) -> int:
        num = len(self._open) + sum(request.num_rollouts for request in self._waiting)
        return num or int(self._found is not None)  # forks may follow

    def submit(self, requests: Iterable[Request], *, watch: Watch | None = None) -> None:
        self._waiting += requests
        if self._found is None:
            self._begin(watch)

    def poll(self, seconds: float | None = None) -> Sequence[Rollout]:
        if self._found is None:
            self._begin(None)
        completion = None if self._found is None else next(self._found, None)
        if completion is not None:
            if isinstance(completion, Rollout):  # else who asked says so
                self._open.discard((completion.group_id, completion.index))
            if self._open or self._is_watched or self._found is None:
                return [completion]
            if (more := next(self._found, None)) is not None:
                return [completion, more]
            self._found = None  # the next call begins when it is asked for
            return [completion]
        if self._open:
            first, index = min(self._open)
            name = type(self._generator).__name__
            raise PodsError(f"{name} ended without {len(self._open)} rollouts, such as {index} of group {first!r}")
        self._found = None
        return []

    def abort(self, ids: Iterable[str | Key]) -> None:
        self._generator.abort(ids)

    def _begin(self, watch: Watch | None) -> None:
        if self._waiting:
            options, self._is_watched = {} if watch is None else {"watch": watch}, watch is not None
            self._open = {(request.id, index) for request in self._waiting for index in request.indices}
            self._found, self._waiting = iter(self._generator.generate(self._waiting, **options)), []


Verbs = Generator | OneCall


def verbs_of(generator: Any) -> Verbs:
    """The generator, or what has the verbs of one that has `generate` alone."""
    has_verbs = getattr(type(generator), "submit", Generator.submit) is not Generator.submit
    return generator if has_verbs else OneCall(generator)


def abilities_of(generator: Generator) -> frozenset[str]:
    """What a generator can do; one that does not inherit from `Generator` may leave the attribute out."""
    return getattr(generator, "abilities", frozenset())


def _token_ids(ids: tuple[Any, ...], option: str) -> tuple[int, ...]:
    for kind in set(map(type, ids)):
        is_integer = issubclass(kind, (int, np.integer)) and kind is not bool
        _require(is_integer, option, f"{ids[:8]} (with a {kind.__name__})", "integers (token ids)")
    return tuple(map(int, ids))


def _require(is_ok: bool, option: str, got: object, wanted: str) -> None:
    if not is_ok:
        raise UsageError(f"{option} = {got}: wanted {wanted}")
