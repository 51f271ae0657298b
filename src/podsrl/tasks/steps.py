"""Stories of one to eight exact steps: a task set that needs no download and in which signal is rare.

A story begins with a number of things; each of its sentences adds some, takes some away, or leaves them as they are.
Which of the three a sentence does is what its verb means. The question asks how many things are left, or whether
five or more are left over when they are put in tens:

    Ann has 47 pens. First she finds 5. Second she sells 3. Third she counts 2. How many pens are left?
    First 47+5=52. Second 52-3=49. Third 49+0=49. Answer: 49.

The base model (`builtin:steps`) can add, can read a story from sentence to sentence and knows the form; but it is
unsure what verbs mean: `Verb.known` says how often it reads each of them rightly. So training has as many separate
things to learn as there are verbs, and only the last number of a story tells whether all of them were read rightly. A
question for what is left over from tens is answered rightly by half of the wrong readings: the noise that guesses bring
into real runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np

from podsrl.errors import UsageError
from podsrl.lib.seeds import derive, hash_bits
from podsrl.tasks.base import TaskSet
from podsrl.tasks.split import MOST_HELD_OUT
from podsrl.types import Task

NUM_TRAIN, NUM_HELD_OUT = 4096, 512
"""Questions of a set, over all levels."""
MOST_OPERAND = 5
"""Of a sentence; the least is 2."""
_SET_SEED = 20_261_123
"""Fixed: runs with different seeds have the same questions."""
ORDINALS = ("First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth")
"""They begin the sentences of a story and the steps of its solution."""
_NAMES = ("Ann", "Beth", "Cleo", "Dora", "Eve", "Fay", "Gina", "Hope")
_THINGS = ("pens", "cups", "shells", "coins", "nuts", "stones", "cards", "keys")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """What a verb does to the number of things, and how well the base model knows it."""

    word: str
    sign: int
    """1: it adds; -1: it takes away; 0: it changes nothing."""
    known: float
    """Share of the readings of the pretraining texts that are right; the others are divided between the other two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Stories of one kind: how long they are, and which verbs they use. No verb belongs to two levels."""

    steps: tuple[int, int]
    """Fewest and most steps of a story."""
    verbs: tuple[Verb, ...]
    in_tens: float
    """Share of the questions that ask what is left over from tens: a guess answers half of them."""
    stated: float
    """Share of the pretraining texts that end in the form that `correct` asks for, `Answer: 49.`, right or wrong."""


def _level(steps: tuple[int, int], known: tuple[float, float], *words: str, in_tens: float, stated: float) -> Level:
    """Lines of words that add, take away and change nothing; `known` rises evenly, in an order without a rule."""
    low, high = known
    rows = [line.split() for line in words]
    size = sum(map(len, rows))
    order = np.argsort([derive(_SET_SEED, "known", word) for row in rows for word in row], kind="stable").argsort()
    shares = iter((low + (high - low) * order / (size - 1)).round(4).tolist())
    verbs = [
        Verb(word=word, sign=sign, known=next(shares))
        for row, sign in zip(rows, (1, -1, 0), strict=True)
        for word in row
    ]
    return Level(steps=steps, verbs=tuple(verbs), in_tens=in_tens, stated=stated)


LEVELS: Mapping[int, Level] = MappingProxyType(
    {
        1: _level((1, 2), (0.96, 0.99), "finds buys", "loses sells", "sees counts", in_tens=0, stated=0.99),
        2: _level((3, 4), (0.5, 0.8), "bakes earns", "breaks spends", "paints cleans", in_tens=0, stated=0.9),
        3: _level(
            (5, 6),
            (0.45, 0.65),
            "reaps digs plants",
            "feeds loads cuts",
            "waters stacks weighs",
            in_tens=0.5,
            stated=0.8,
        ),
        4: _level(
            (7, 8), (0.6, 0.75), "hauls lands tows", "ships sinks trades", "tars marks seals", in_tens=0.5, stated=0.8
        ),
    }
)
"""Number of a level -> its stories, from the easiest to the hardest."""
SHARES: Mapping[int, float] = MappingProxyType({1: 0.15, 2: 0.15, 3: 0.4, 4: 0.3})
"""Level -> default of its share of the questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What a question says.

    Example:
        >>> story = Story(name="Ann", things="pens", start=47, words=("finds", "sells"), operands=(5, 3))
        >>> story.question, story.totals, story.answer
        ('Ann has 47 pens. First she finds 5. Second she sells 3. How many pens are left?\\n', (52, 49), '49')
    """

    name: str
    things: str
    start: int
    """How many there are at first."""
    words: tuple[str, ...]
    """The verb of each sentence."""
    operands: tuple[int, ...]
    """The number of each sentence, 2 .. 5."""
    in_tens: bool = False
    """Whether the question is if five or more are left over from tens, and not how many are left."""

    @property
    def question(self) -> str:
        """The prompt."""
        rows = zip(ORDINALS, self.words, self.operands, strict=False)
        told = " ".join(f"{ordinal} she {word} {n}." for ordinal, word, n in rows)
        asked = "In tens, are five or more left over?" if self.in_tens else f"How many {self.things} are left?"
        return f"{self.name} has {self.start} {self.things}. {told} {asked}\n"

    @property
    def totals(self) -> tuple[int, ...]:
        """How many there are after each sentence."""
        return self.read([VERBS[word].sign for word in self.words])

    def read(self, signs: Sequence[int]) -> tuple[int, ...]:
        """How many there would be after each sentence, if the verbs had these meanings."""
        changes = [sign * n for sign, n in zip(signs, self.operands, strict=True)]
        return tuple(self.start + int(change) for change in np.cumsum(changes))

    def conclude(self, total: int) -> str:
        """The answer that follows from a last number: itself, or 1 for "yes" and 0 for "no"."""
        return str(int(total % 10 >= 5) if self.in_tens else total)

    @property
    def answer(self) -> str:
        """The right one."""
        return self.conclude(self.totals[-1])

    @property
    def key(self) -> str:
        """What two questions share that differ in names and things only."""
        told = " ".join(f"{word}{n}" for word, n in zip(self.words, self.operands, strict=True))
        return f"{self.start} {told}{' in tens' if self.in_tens else ''}"


VERBS: Mapping[str, Verb] = MappingProxyType({verb.word: verb for level in LEVELS.values() for verb in level.verbs})


def level_of(story: Story) -> int:
    """The level whose verbs a story uses."""
    return next(level for level, kind in LEVELS.items() if VERBS[story.words[0]] in kind.verbs)


def draw_story(level: int, rng: np.random.Generator) -> Story:
    """A random story of a level.

    No verb occurs twice; no reading of the verbs leaves 6 .. 94; and an answer that is no "yes" or "no" does not stand
    in the question.

    Example:
        >>> draw_story(1, np.random.default_rng(0)).question
        'Ann has 72 cups. First she sells 4. Second she loses 5. How many cups are left?\\n'
    """
    kind = LEVELS[level]
    while True:
        size = int(rng.integers(kind.steps[0], kind.steps[1] + 1))
        most = MOST_OPERAND * size
        chosen = rng.permutation(len(kind.verbs))[:size].tolist()
        name, things, start = rng.integers((0, 0, most + 6), (len(_NAMES), len(_THINGS), 95 - most)).tolist()
        operands = rng.integers(2, MOST_OPERAND + 1, size=size).tolist()
        in_tens = bool(rng.random() < kind.in_tens)
        total = start + sum(kind.verbs[i].sign * n for i, n in zip(chosen, operands, strict=True))
        if in_tens or total not in (start, *operands):
            return Story(
                name=_NAMES[name],
                things=_THINGS[things],
                start=start,
                words=tuple(kind.verbs[i].word for i in chosen),
                operands=tuple(operands),
                in_tens=in_tens,
            )


def is_held_out(story: Story) -> bool:
    """One story in eight, by a hash of what it says; names and things do not count."""
    return hash_bits(story.key.encode()) % 8 == 0


def load_steps(*, levels: Mapping[int, float] | None, num_eval: int | None) -> TaskSet:
    """Load `NUM_TRAIN` stories to train on, and `num_eval` of `NUM_HELD_OUT` that are held out.

    `levels` says which share of them each level has, on both sides; None: `SHARES`. The shares add up to 1. `num_eval`
    is `MOST_HELD_OUT` by default. The stories are the same in every run, and a smaller number of held-out ones is a
    prefix of a larger one. No two say the same with other names and things. UsageError: a share or `num_eval` is out of
    range.

    Example:
        >>> tasks = load_steps(levels={1: 0.5, 4: 0.5}, num_eval=None)
        >>> len(tasks.train), len(tasks.eval), tasks.name
        (4096, 256, 'steps, levels = {1: 0.5, 4: 0.5}')
    """
    shares = check_shares(SHARES if levels is None else levels)
    num_eval = MOST_HELD_OUT if num_eval is None else num_eval
    if not 1 <= num_eval <= NUM_HELD_OUT:
        raise UsageError(
            f"task.num_eval = {num_eval}; 'steps' has {NUM_HELD_OUT} held-out questions: choose 1 .. {NUM_HELD_OUT}"
        )
    train, held_out = (_shuffled(_of_levels(shares, size, side)) for side, size in enumerate((NUM_TRAIN, NUM_HELD_OUT)))
    shown = "" if levels is None else f", levels = {shares}"
    return TaskSet(
        name=f"steps{shown}",
        train=tuple(map(story_task, train)),
        eval=tuple(map(story_task, held_out[:num_eval])),
    )


def check_shares(levels: Mapping[int, float], known: Collection[int] = LEVELS) -> dict[int, float]:
    """Shares of known levels in their order. UsageError: unknown levels, negative shares, or their sum is not 1.

    Example:
        >>> check_shares({4: 0.25, 1: 0.75})
        {1: 0.75, 4: 0.25}
    """
    if strange := sorted(levels.keys() - {*known}):
        raise UsageError(f"task.levels names {strange}; wanted levels out of {[*known]}")
    if bad := [share for share in levels.values() if not 0 <= share <= 1]:
        raise UsageError(f"task.levels has the share {bad[0]:g}; wanted shares from 0 to 1")
    if abs(sum(levels.values()) - 1) > 1e-6:
        raise UsageError(
            f"task.levels = {dict(levels)}: the shares add up to {sum(levels.values()):g}; wanted 1: change one of them"
        )
    return {level: float(levels[level]) for level in sorted(levels)}


def story_task(story: Story) -> Task:
    """The question, named by what it says, with its level in the column "level".

    Example:
        >>> story = Story(name="Ann", things="pens", start=47, words=("finds", "sells"), operands=(5, 3))
        >>> story_task(story).id, story_task(story).answer, story_task(story).columns
        ('47 finds5 sells3', '49', {'level': 1})
    """
    return Task(id=story.key, prompt=story.question, answer=story.answer, columns={"level": level_of(story)})


def _of_levels(shares: Mapping[int, float], size: int, side: int) -> list[Story]:
    """The first stories of each level, in their shares of `size`; the rounding goes to the largest remainders."""
    exact = {level: share * size for level, share in shares.items()}
    counts = {level: int(number) for level, number in exact.items()}
    for level in sorted(exact, key=lambda level: counts[level] - exact[level])[: size - sum(counts.values())]:
        counts[level] += 1
    return [story for level, count in counts.items() for story in _stories(level, side, count)]


@lru_cache(maxsize=4 * len(LEVELS))
def _stories(level: int, side: int, count: int) -> tuple[Story, ...]:
    """The first stories of a level for training (side 0) or held out (1), without any two that say the same."""
    rng = np.random.Generator(np.random.PCG64([_SET_SEED, level, side]))
    found: dict[str, Story] = {}
    while len(found) < count:
        story = draw_story(level, rng)
        if is_held_out(story) == (side == 1):
            found.setdefault(story.key, story)
    return tuple(found.values())


def _shuffled(stories: list[Story]) -> list[Story]:
    """The same order every time, as the evaluation questions of a run do not depend on its seed."""
    order = np.random.Generator(np.random.PCG64(_SET_SEED)).permutation(len(stories))
    return [stories[place] for place in order.tolist()]
