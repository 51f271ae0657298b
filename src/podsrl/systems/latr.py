"""LATR (arXiv 2510.24302, and its public code): a group is a tree that branches where the next token is ambiguous.

Of n rollouts a share grows as a tree from one *root*. Before a token is drawn, with p1 and p2 the largest probabilities
(at temperature 1, without filters), the place is ambiguous if

    p2 > least    and    p1 - p2 < gap

and while the tree has fewer rollouts than its share of the group, a *branch* goes on from there with the other of the
two tokens. A branch that is r tokens old, for each r of `look`, is ended with all of its own branches if its last r
tokens are too like those of the rollout that it left: an edit distance / r below `edits`, a common suffix / r above
`suffix` (the longest suffix of one that stands anywhere in the other), or a ROUGE-L above `rouge`. What is still
missing when the tree has ended is asked as plain rollouts.

The rule `p1 - p2 > gap`, with `as_released`, is that of the public code until 2026-01-23, with which the curves were
probably made; the paper and the code since then have `<`.

What is ours. The code writes the likelier token to the source and the other one to the branch, and draws nothing while
a tree grows; all of that is trained on as if it had been drawn. Here every source draws its tokens as in GRPO, and the
branch gets the likeliest of the two that its source did not draw; that one token counts as given, so no loss sees it.
A branch is made one step later, and no branch begins with a token that ends the answer. A rollout whose source has
ended is not compared. Missing rollouts are plain ones, where the code copies its first row. At most as many rollouts
are ended as the tree may have. With fewer slots than rollouts other branches may find room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from podsrl.control.base import View
from podsrl.errors import UsageError
from podsrl.lib.watch import End, Fork, Key, Live, Note
from podsrl.types import Ask, Group, Notes

Share = Annotated[float, Field(ge=0, le=1)]
Lengths = tuple[Annotated[int, Field(ge=1)], ...]
Shares = Annotated[tuple[tuple[Annotated[int, Field(ge=0)], Share], ...], Field(min_length=1)]
BIRTH, PAIR, LINE = "latr/birth", "latr/pair", "latr/line"
"""Notes of a rollout of a tree: the first place that its source does not share; the two tokens of its last place, where
that was ambiguous; indices of the rollouts that it comes from, the root first."""


class Ambiguous:
    """Asks for the root of each group's tree and for what is missing, and lets the trees branch and end.

    Args:
        until: token count up to which trees branch and are looked at, below `rollouts.max_new_tokens`.
        least: of the second probability; 1: nothing branches, and every group is a plain one.
        gap: of the two probabilities.
        look: ages at which a branch is compared, in tokens.
        edits: a branch with fewer edits per token ends; 0: none.
        suffix: a branch with a longer common suffix, as a share, ends; 1: none.
        rouge: a branch with a higher ROUGE-L ends; 1: none.
        shares: pairs of (step, share of a group that is a tree from there on), in order.
        as_released: whether a place is ambiguous where the probabilities lie further apart than `gap`.
    """

    needs = frozenset({"whole_groups", "free_indices", "no_stop_strings"})
    breaks = frozenset({"settled_steps"})

    def __init__(
        self,
        *,
        until: Annotated[int, Field(ge=1)],
        least: Share = 0.25,
        gap: Share = 0.15,
        look: Lengths = (20, 30, 50),
        edits: Share = 0.4,
        suffix: Share = 1.0,
        rouge: Share = 1.0,
        shares: Shares = ((0, 1.0),),
        as_released: bool = False,
    ) -> None:
        if [step for step, _ in shares] != sorted({0, *(step for step, _ in shares)}):
            raise UsageError(f"options.latr.shares = {shares}; wanted pairs of ascending steps, the first of them 0")
        self.at = range(0) if least == 1 else range(until + 1)
        self._least, self._gap, self._as_released = least, gap, as_released
        self._look, self._bounds, self._shares = look, (edits, suffix, rouge), shares
        self._size = 0
        self._trees: dict[str, list[int]] = {}
        """Group -> rollouts that its tree has, and rollouts of it that were ended."""

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        """Twice the rollouts of a group, since those that are ended keep their places."""
        return num_prompts, (2 if self.at else 1) * num_rollouts

    def rollouts(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        """The root and the plain rollouts of new groups, and what others lack of n."""
        if not self.at:
            return asks
        share = [share for step, share in self._shares if step <= view.step][-1]
        self._size = max(1, round(share * view.num_rollouts))
        roots = [replace(ask, num_rollouts=view.num_rollouts - self._size + 1) for ask in asks]
        return [*roots, *(self._missing(group, view.num_rollouts) for group in view.groups if lacks(group, view))]

    def _missing(self, group: Group, num_rollouts: int) -> Ask:
        return Ask.of(group, num_rollouts - alive(group))

    def look(self, live: Live) -> list[End | Fork | Note]:
        """The ends of branches that are too like their sources, then the forks and notes of the others."""
        ends = self._ends(live)
        if ended := {end.key for end in ends}:
            live = live.only([i for i, key in enumerate(live.keys) if key not in ended])
        return [*ends, *self._forks(live)]

    def _ends(self, live: Live) -> list[End]:
        """Branches of an age at which they are too like their sources, with what branched from them."""
        ages, ended = dict(zip(live.keys, live.num_tokens, strict=True)), list[End]()
        for key, group, notes in zip(live.keys, live.groups, live.notes, strict=True):
            if not (line := read(notes, LINE)):
                continue
            source, [birth] = (group, line[-1]), read(notes, BIRTH)
            if ages[key] - birth not in self._look or ages.get(source, 0) < ages[key]:
                continue
            own, other = live.tokens(key)[birth:].tolist(), live.tokens(source)[birth : ages[key]].tolist()
            if not is_alike(own, other, *self._bounds):
                continue
            found = {End(each) for each, of in zip(live.keys, live.notes, strict=True) if descends(each, of, key)}
            found -= {*ended}
            tree = self._trees.setdefault(group, [1, 0])
            if tree[1] + len(found) <= self._size:
                tree[0], tree[1] = tree[0] - len(found), tree[1] + len(found)
                ended += sorted(found, key=lambda end: end.key)
        return ended

    def _forks(self, live: Live) -> list[Fork | Note]:
        """A fork of each rollout whose last place was ambiguous, while there is room, and notes of those places."""
        tops, words = (each.tolist() for each in live.logprobs.exp().topk(2))
        acts = list[Fork | Note]()
        rows = zip(live.keys, live.groups, live.num_tokens, live.notes, live.row_of.tolist(), strict=True)
        for key, group, count, notes, row in sorted(rows, key=lambda each: each[0][1]):
            if BIRTH not in notes and key[1] > 0:
                continue  # a plain rollout
            birth, pair, line = read(notes, BIRTH) or [0], read(notes, PAIR), read(notes, LINE)
            tree = self._trees.setdefault(group, [1, 0])
            if pair and tree[0] < self._size:
                token = pair[1] if live.tokens(key)[-1] == pair[0] else pair[0]
                acts += [
                    *(Note(key, BIRTH, [count - 1]), Note(key, PAIR, []), Note(key, LINE, [*line, key[1]])),
                    Fork(key, token=token, num_tokens=count - 1),  # which has these notes
                    *(Note(key, BIRTH, birth), Note(key, LINE, line)),
                ]
                tree[0] += 1
            is_branching = self._is_ambiguous(*tops[row]) and not live.stop_ids & {*words[row]}
            if pair or is_branching:
                acts.append(Note(key, PAIR, words[row] if is_branching else []))
        return acts

    def _is_ambiguous(self, first: float, second: float) -> bool:
        is_near = first - second > self._gap if self._as_released else first - second < self._gap
        return second > self._least and is_near

    def learn(self, groups: Sequence[Group]) -> None:
        """Forget the trees of groups that are done."""
        for group in groups:
            self._trees.pop(group.id, None)

    def state(self) -> Mapping[str, Any]:
        """How many rollouts a tree may have in this step."""
        return {"size": self._size}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._size = state["size"]


def alive(group: Group) -> int:
    """Rollouts that were not ended."""
    return sum(not rollout.is_pruned for rollout in group.rollouts)


def lacks(group: Group, view: View) -> bool:
    """Whether a group that is trained on has fewer than n."""
    return group.is_trained and alive(group) < view.num_rollouts


def read(notes: Notes, name: str) -> list[int]:
    """The integers of a note; none where there is none."""
    return [int(number) for number in notes.get(name, ())]


def descends(key: Key, notes: Notes, source: Key) -> bool:
    """Whether a rollout is another, or comes from it."""
    return key == source or (key[0] == source[0] and source[1] in read(notes, LINE))


def is_alike(one: Sequence[int], other: Sequence[int], edits: float, suffix: float, rouge: float) -> bool:
    """Whether two lists of r tokens are alike by any of the three bounds."""
    length = len(one)
    return bool(
        edit_distance(one, other) < edits * length
        or common_suffix(one, other) > suffix * length
        or common_subsequence(one, other) > rouge * length
    )


def edit_distance(one: Sequence[int], other: Sequence[int]) -> int:
    """Fewest tokens that are to be put in, taken out or replaced.

    Example:
        >>> edit_distance([1, 2, 3, 4], [2, 3, 9, 4])
        2
    """
    before = list(range(len(other) + 1))
    for i, token in enumerate(one, start=1):
        line = [i]
        for j, word in enumerate(other):
            line.append(min(line[j] + 1, before[j + 1] + 1, before[j] + (token != word)))
        before = line
    return before[-1]


def common_suffix(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest suffix of either that stands anywhere in the other.

    Example:
        >>> common_suffix([1, 2, 3], [9, 2, 3, 4])
        2
    """
    found = 0
    for ending, whole in ((one, other), (other, one)):
        for size in range(found + 1, min(len(ending), len(whole)) + 1):
            last = list(ending[len(ending) - size :])
            if any(list(whole[i : i + size]) == last for i in range(len(whole) - size + 1)):
                found = size
    return found


def common_subsequence(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the longest common subsequence; by r it is ROUGE-L, for lists of r tokens each.

    Example:
        >>> common_subsequence([1, 2, 3, 4], [2, 9, 4, 1])
        2
    """
    before = [0] * (len(other) + 1)
    for token in one:
        line = [0]
        for j, word in enumerate(other):
            line.append(before[j] + 1 if token == word else max(line[j], before[j + 1]))
        before = line
    return before[-1]
