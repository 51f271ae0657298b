"""The records that flow through the stages, in the order of the data's life.

    Task -> Ask -> Open -> Rollout -> Group -> Selection -> Sample -> (update.batch.Batch)

Every record is frozen: a stage returns a new one and never writes into its input. Nothing here imports torch.

Shape letters used everywhere: P prompts (groups) per step, n rollouts per group, m kept rollouts per group,
B rows of a batch, T tokens of a row, V vocabulary. Suffixes on nested lists: `_P`, `_G` (rollout), `_K` (kept), `_T`.
Groups of one step may differ in size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal

from podsrl.errors import short
from podsrl.lib.notes import NO_NOTES as NO_NOTES
from podsrl.lib.notes import Notes as Notes
from podsrl.lib.text import html_table, prompt_text

Status = Literal["open", "done", "pruned", "failed"]
"""open: it goes on behind its tokens; done: it has its answer; pruned: a part ended it, so it has no reward and is no
failure; failed: there is no usable reward (`Rollout.invalid_reason`)."""

FinishReason = Literal["stop", "length"]
"""stop: the last token is a stop token or completes a stop string; length: the token limit."""

DropReason = Literal["not_selected", "invalid", "group_too_small", "pruned"]
"""not_selected: the rule preferred others; invalid: no usable reward; group_too_small: under two valid rollouts;
pruned: it was ended before it had a reward."""

Heard = tuple[tuple[bool, ...], float]
"""Calls and reward of a turn, as in `Turn`."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class TokenMarkup(str):
    """Prompt text in which a special token's text stands for that token, as in a prompt rendered with a chat template.

    In all other prompt text, such as a data set's, `<|im_end|>` is ten characters and ends no turn.

    Example:
        >>> TokenMarkup("<|im_start|>user") == "<|im_start|>user"
        True
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"TokenMarkup({super().__repr__()})"


@dataclass(frozen=True, slots=True)
class Parent:
    """The rollout of the same group with whose tokens another begins.

    Example: a fork of rollout 2 behind its first ten tokens has `Parent(index=2, num_tokens=10)`.
    """

    index: int
    """Of the other."""
    num_tokens: int
    """How many of its first tokens they share, those included that it has from its own parent; at least 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One question, with what is needed to judge an answer.

    Example:
        >>> Task(id="7+5", prompt="What is 7 + 5?", answer="12").answer
        '12'
    """

    id: str
    """Unique in its set; the group that answers it is named by it, never by the prompt's text."""
    prompt: str | tuple[Mapping[str, str], ...]
    """Plain text, or chat messages `{"role": ..., "content": ...}` for the tokenizer's chat template. Special tokens in
    them are text, except in `TokenMarkup`."""
    answer: str
    """The reference answer."""
    columns: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """Further columns of the data set, handed to rewards of TRL's form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A wish for rollouts of one task.

    Example: eight rollouts of question 3, then 24 more for the same group:

        Ask(index=3, num_rollouts=8)
        Ask.of(group, 24)
    """

    index: int
    """Place of the task in the training set."""
    num_rollouts: int
    """At least 1."""
    joins: str | None = None
    """Id of the group of this step, or of `View.waiting`, that the rollouts join, after those it has; None opens a new
    group; "" joins the group of the ask before it, so that rollouts of a new group can be asked in several ways."""
    prompt: str | tuple[Mapping[str, str], ...] | None = None
    """Shown in place of the task's own prompt, in the same forms: with a hint, say, or solved examples; None: the
    task's."""
    start: str = ""
    """Text of an answer; the rollouts begin with its first tokens, which no policy drew (`Begun.given`)."""
    start_share: float = 0.0
    """Of the tokens of `start`, 0 to below 1: the first ceil(start_share · T) of T, and never the last one."""
    parent: Parent | None = None
    """In place of `start`: a rollout of the group that is judged, whose first tokens they begin with, as given ones."""
    notes: Notes = NO_NOTES
    """That the rollouts begin with (`Rollout.notes`)."""
    origin: str = ""
    """Names another way of asking ("examples") for people; it becomes `Rollout.origin`."""
    is_trained: bool = True
    """False for a probe: its group is generated and scored, control parts see it, and no batch holds it."""

    @classmethod
    def of(cls, group: Group, num_rollouts: int, *, joins: bool = True) -> Ask:
        """More rollouts for the question of a group: they join it, or open a group of their own.

        Raises:
            ValueError: its task is not of the training set.

        Example:
            >>> task = Task(id="7+5", prompt="7+5=", answer="12")
            >>> group = Group(id="s12/0/7+5", task=task, prompt_ids=(), rollouts=(), index=3)
            >>> Ask.of(group, 24) == Ask(index=3, num_rollouts=24, joins="s12/0/7+5")
            True
        """
        if group.index is None:
            raise ValueError(f"group {group.id!r}: its task is not of the training set, so nothing can be asked of it")
        return cls(index=group.index, num_rollouts=num_rollouts, joins=group.id if joins else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A turn of the model: tokens that it drew one behind the other, and what came of them."""

    start: int
    """Place of its first token in the rollout's tokens; its last one is before `end`."""
    end: int
    calls: tuple[bool, ...] = ()
    """Of each tool call in it that was answered, whether the answer was a result, and no error."""
    reward: float = 0.0
    """What an environment gave for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One answer, from its first token to its reward.

    A generator is given what there is of it, adds tokens, and ends it; then it is judged, and a group holds it.

    Example: rollout 3 begins with a hint of two tokens, which no policy drew:

        Rollout(group_id="g", index=3, token_ids=(5, 6), logprobs=(0.0, 0.0), version=0, given=((0, 2),), status="open")
    """

    group_id: str
    """Of the group that it belongs to, which is the id of the request that asked for it."""
    index: int
    """Which rollout of the group, counted from 0 over all requests that added to it. With the group's id
    it decides every random number of the rollout."""
    token_ids: tuple[int, ...]
    """T tokens; a sampled stop token, or the token that completes a stop string, is included."""
    logprobs: tuple[float, ...]
    """T natural logs: the behaviour policy's probability of each token under the distribution it was sampled from
    (after temperature, top-k, top-p, min-p); 0 for a given token."""
    version: int
    """How many weight updates the policy that made its first token had seen."""
    versions: tuple[int, ...] = ()
    """T versions, one per token; empty where `version` made them all. A given token's is of no meaning."""
    given: tuple[tuple[int, int], ...] = ()
    """Tokens that no policy drew: ascending stretches (start, end) of 0 .. T. They are read as a prompt is, and no loss
    counts them."""
    status: Status = "done"
    finish_reason: FinishReason | None = None
    """What the sampler said at its end; None where it said nothing."""
    parent: Parent | None = None
    """The rollout of its group with whose first tokens it begins, if it does."""
    heard: tuple[Heard, ...] = ()
    """Of each turn, up to the last one of which an environment said anything of the kind."""
    notes: Notes = NO_NOTES
    """What parts keep with it (`podsrl.lib.watch.Note`)."""
    text: str = ""
    """Its tokens decoded without special ones, once it is judged."""
    reward: float = math.nan
    """Weighted sum of the parts; NaN where there is none."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Each reward function's own value, before its weight."""
    is_correct: bool = False
    """Whether the answer is right: what accuracy counts, whatever the reward's shape."""
    is_formatted: bool = True
    """Whether the answer has the form that was asked for; True where the task asks for none."""
    answer: str | None = None
    """The final answer found in the text, for majority votes; None where none was found or looked for."""
    invalid_reason: str | None = None
    """Why it failed, in one sentence (its environment broke, a reward function raised or returned NaN …); it is never
    trained on then."""
    prompt_ids: tuple[int, ...] | None = None
    """The prompt that it answers, where that is not the group's: it was asked in another way."""
    is_unguided: bool = False
    """Whether it was to be guided, by a prompt or a start that was too long, so that it was asked plainly."""
    origin: str = ""
    """How it was asked or made, for people, where that is not plainly."""

    def __repr__(self) -> str:
        if not self.is_open and not (self.is_valid and math.isnan(self.reward)):  # it is judged
            return f"Rollout({self.verdict}, {short(self.text, 60)})"
        end = self.finish_reason or self.status
        return f"Rollout({self.group_id!r}, index {self.index}, {len(self.token_ids)} tokens, {end})"

    @property
    def verdict(self) -> str:
        """Its reward, and whether it is right, in words."""
        if not self.is_valid:
            return self.invalid_reason or self.status
        return f"reward {self.reward:g}, {'correct' if self.is_correct else 'wrong'}"

    @property
    def is_open(self) -> bool:
        """Whether it goes on."""
        return self.status == "open"

    @property
    def is_pruned(self) -> bool:
        """Whether a part ended it: it has no reward and is no failure."""
        return self.status == "pruned"

    @property
    def is_valid(self) -> bool:
        """Whether its reward can be used."""
        return self.status == "done" and self.invalid_reason is None

    @property
    def is_repaired(self) -> bool:
        """Whether a part made its answer (`repair`): it ends with given tokens, and no sampler ended it."""
        is_given = len(self.given) > 0 and self.given[-1][1] == len(self.token_ids)
        return is_given and self.finish_reason is None and self.status in ("done", "failed")

    @property
    def drawn_logprobs(self) -> tuple[float, ...]:
        """Those of the tokens that a policy drew."""
        if not self.given:
            return self.logprobs
        return tuple(each for turn in self.turns for each in self.logprobs[turn.start : turn.end])

    @property
    def oldest_version(self) -> int:
        """Of its tokens."""
        return min(self.versions, default=self.version)

    @property
    def num_given(self) -> int:
        """Tokens that no policy drew."""
        return _within(self.given, len(self.token_ids))

    @property
    def num_drawn(self) -> int:
        """The other tokens."""
        return len(self.token_ids) - self.num_given

    @property
    def num_shared(self) -> int:
        """Of those, the tokens that were drawn for its parent."""
        size = 0 if self.parent is None else self.parent.num_tokens
        return size - _within(self.given, size)

    @property
    def num_own(self) -> int:
        """The others, which were drawn for this rollout: over all rollouts each drawn token counts once."""
        return self.num_drawn - self.num_shared

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The drawn tokens as turns of the model, which given tokens part.

        Example:
            >>> tokens, logprobs = (7, 5, 9), (-1.0, 0.0, -1.0)
            >>> one = Rollout(
            ...     group_id="g", index=0, token_ids=tokens, logprobs=logprobs, version=0, given=((1, 2),)
            ... )
            >>> [(turn.start, turn.end) for turn in one.turns]
            [(0, 1), (2, 3)]
        """
        bounds = [0, *chain.from_iterable(self.given), len(self.token_ids)]
        places = [(start, end) for start, end in zip(bounds[::2], bounds[1::2], strict=True) if start < end]
        heard = [*self.heard, *(((), 0.0),) * (len(places) - len(self.heard))]
        return tuple(
            Turn(start=start, end=end, calls=calls, reward=reward)
            for (start, end), (calls, reward) in zip(places, heard, strict=False)
        )


def _within(stretches: Sequence[tuple[int, int]], size: int) -> int:
    """How many of the first `size` places are in the stretches."""
    return sum(min(end, size) - start for start, end in stretches if start < size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """All rollouts of one task in one step, whatever the number of rounds that asked for them.

    Example: an ask for 8 rollouts of question 3, and in the next round one for 24 that join, give one group of 32
    whose completions have the indices 0 .. 31. A question that is asked twice without joining has two groups.
    """

    id: str
    """Unique over the run, e.g. "s12/0/7+5": the id of its first request, which names the random numbers of all."""
    task: Task
    prompt_ids: tuple[int, ...]
    rollouts: tuple[Rollout, ...]
    """n rollouts in the order of `Rollout.index`, which is their place here unless one is not done (`Open`)."""
    index: int | None = None
    """Place of the task in the training set; None for a task that is not of it, as in an evaluation."""
    step: int = 0
    """Step that first asked for it, from 0."""
    is_trained: bool = True
    """False for a probe, as in `Ask`."""
    num_first: int | None = field(default=None, compare=False)
    """Rollouts that it has whatever their outcomes are, where that is not all of them: those of the round that opened
    it, if later rounds added more, or with how many it may be closed; None: all. It is how they came, not what they
    are: 8 and then 24 equal the 32 of one round."""

    def __repr__(self) -> str:
        return f"Group({self.id!r}, {self._count})"

    def _repr_html_(self) -> str:
        """A table for a notebook."""
        prompt, answer = prompt_text(self.task.prompt), self.task.answer
        rows = [(rollout.verdict, rollout.text) for rollout in self.rollouts]
        return html_table(f"{prompt} → {answer}: {self._count}", ("reward", "text"), rows)

    @property
    def _count(self) -> str:
        return f"{len(self.rollouts)} rollouts, {sum(rollout.is_correct for rollout in self.rollouts)} correct"

    def with_more(self, rollouts: Sequence[Rollout]) -> Group:
        """The group with the rollouts of a further round, in the order of their indices."""
        first = self.num_first or len(self.rollouts) or None
        every = sorted((*self.rollouts, *rollouts), key=lambda rollout: rollout.index)
        return replace(self, rollouts=tuple(every), num_first=first)

    @property
    def is_mixed(self) -> bool:
        """Whether some of its valid rollouts are right, and some wrong."""
        return len({rollout.is_correct for rollout in self.rollouts if rollout.is_valid}) > 1

    @property
    def outcomes(self) -> list[bool]:
        """Right or wrong, of the rollouts that say how hard the question itself is: valid ones, with its own prompt.

        Those with a parent are none of them, since they share tokens with another.

        Of the first ones (`num_first`) alone: whether a group gets more may hang on what it had, and then the share of
        right ones among all of them is no estimate without bias.
        """
        first = self.rollouts[: self.num_first]
        own = [rollout for rollout in first if rollout.prompt_ids is None and rollout.parent is None]
        return [rollout.is_correct for rollout in own if rollout.is_valid]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Rollouts that are asked alike."""

    count: int
    prompt_ids: tuple[int, ...] | None = None
    """In place of the group's."""
    start_ids: tuple[int, ...] = ()
    """Tokens that they begin with, which no policy drew."""
    parent: Parent | None = None
    notes: Notes = NO_NOTES
    is_unguided: bool = False
    origin: str = ""
    """As in `Ask`, or `Rollout`; so are the three before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A group that is not done: rollouts are to be generated still, or to be judged.

    Example: of a group of eight, rollout 2 was put off while the others ended and were judged. The group has seven
    rollouts, ways is (Way(count=8),), and begun is what there is of rollout 2.
    """

    group: Group
    """With the rollouts that are judged."""
    ways: tuple[Way, ...]
    """How its rollouts are asked, those that it has included, in the order of their indices."""
    begun: tuple[Rollout, ...] = ()
    """Rollouts of other indices, in order: they have ended and are not judged, or they are open and go on."""
    pruned: tuple[int, ...] = ()
    """Tokens of rollouts that were begun and belong to it no more: it was closed before them."""

    @property
    def size(self) -> int:
        """Rollouts when it is done."""
        return sum(way.count for way in self.ways)

    @property
    def to_come(self) -> list[int]:
        """Indices of the rollouts that are still to be generated, those that go on included."""
        done = {one.index for one in self.rollouts if not one.is_open}
        return [index for index in range(self.size) if index not in done]

    @property
    def rollouts(self) -> tuple[Rollout, ...]:
        """What there is of its rollouts: first the judged ones."""
        return *self.group.rollouts, *self.begun

    @property
    def way_of(self) -> list[Way]:
        """The way of each index, of one rollout."""
        return [one for way in self.ways for one in [replace(way, count=1)] * way.count]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which rollouts of one group go to the update, and why the others do not.

    Example: of rewards (0, 1, 0, 0) with num_kept = 2, max-variance keeps (0, 1); 2 and 3 are "not_selected".
    """

    group_id: str
    kept: tuple[int, ...]
    """m ascending indices into `Group.rollouts`."""
    dropped: Mapping[int, DropReason]
    """Every other index, with its reason: kept and dropped partition 0 .. n-1."""
    chunks: tuple[tuple[int, ...], ...] = ()
    """A partition of 0 .. n-1: rollouts were chosen, and advantages are normalised, within each chunk alone. Empty
    where the whole group is the one chunk."""

    def __repr__(self) -> str:
        return f"Selection({self.group_id!r}, {len(self.kept)} of {len(self.kept) + len(self.dropped)} kept)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One kept rollout with its advantage: what a batch is made of.

    Example: a rollout of three tokens has the advantage 0.5, or (0.5, 0.5, 0.0) for one value per token.
    """

    group_id: str
    prompt_ids: tuple[int, ...]
    rollout: Rollout
    advantage: float | tuple[float, ...]
    """One value for the whole rollout, or T values, one per token."""
    chunk: int = 0
    """Which of the selection's chunks it was chosen in; 0 where the whole group is the one chunk."""
    bound: float | None = None
    """How far its ratio may be from 1, at least 0; None: as the loss says."""

    def __repr__(self) -> str:
        return f"Sample({self.group_id!r}, advantage {short(self.advantage, 40)}, {self.rollout})"

    @property
    def has_advantage(self) -> bool:
        """Whether the advantage of some token is not 0; a sample without one has no gradient but a KL penalty's."""
        return any(self.advantage) if isinstance(self.advantage, tuple) else self.advantage != 0


def made_up_group(name: str, size: int) -> Group:
    """A group that nothing generated, on which a user's own function is tried before a run.

    It has `size` ≥ 2 rollouts, whose rewards rise from 0 to 1, with completions of one to three tokens.
    """
    return group_of_rewards(name, [i / (size - 1) for i in range(size)])


def group_of_rewards(name: str, rewards: Sequence[float]) -> Group:
    """A made-up group for rules that go by rewards alone: a reward of NaN is that of an invalid rollout."""
    rollouts = []
    for i, reward in enumerate(rewards):
        tokens = tuple(range(1, 2 + i % 3))
        is_valid = not math.isnan(reward)
        rollout = Rollout(
            group_id=name,
            index=i,
            token_ids=tokens,
            logprobs=(-0.5,) * len(tokens),
            version=0,
            status="done" if is_valid else "failed",
            finish_reason="stop",
            text="7",
            reward=reward,
            parts={"correct": reward},
            is_correct=reward == 1,
            invalid_reason=None if is_valid else "no reward",
        )
        rollouts.append(rollout)
    task = Task(id=name, prompt="3 + 4 =", answer="7")
    return Group(id=name, task=task, prompt_ids=(1, 2), rollouts=tuple(rollouts), index=0)
