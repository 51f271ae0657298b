"""ECHO (arXiv 2602.02150, ICML 2026, and its public code): learning from votes, on trees that confidence steers.

Nothing here reads a label. Token t of a rollout has the entropy H_t of what it was drawn from (in nats, at temperature
1, without filters) and the confidence C_t, the probability of the `top` likeliest tokens together. ΔH_t is H_t less the
mean of the four before; Ḡ_t and T̄_t are means of C over the last 4 and 8 tokens.

**Branches.** The first place behind four tokens at which

    H_t is above the `quantile` of the rollout's own entropies before    Ḡ_t <= unsure    ΔH_t >= 0.2

gets `width` - 1 rollouts more, which go on with the likeliest tokens that the rollout did not draw itself:

    width = clip(round(1 + 2 (H_t - 1) / 2.5 - (Ḡ_t - unsure) / unsure), 1, widest)

**Pruning.** A rollout ends when Ḡ falls below `floor`; when T̄ has fallen three times running and is at most `unsure`;
or when ΔH was above 0 three times running and is above `spike`.

**Reward** (`Votes`): 1 for the answer that most rollouts of the group give, 0 for others; of a tie nothing is learned.

**Advantages**: A (1 + weight · S), S = z(H) + z(1 - C), clipped at ±2, z over all tokens of the step's kept rollouts.

**Bounds**: the ratio of a rollout is within 1 ± ε, the wider the less sure its end was. With C̄ the mean of C over its
last 16 tokens, ε = narrow + (wide - narrow) · σ(steep · (1 - C̄)). It acts where a batch takes several steps.

The numbers 4, 8, 0.2, 1, 2.5 and 2 are the code's. Its confidence is not the paper's: there C is the *mean of -log p*
of the 5 likeliest tokens, which is at least log 5 = 1.61, and branches want C <= 1.2, pruning C < 0.4 or C <= 1; its
entropy is that of 10 tokens, at most log 10 = 2.30, and branches want 3.5. So in the released code no branch and no
pruning by confidence can be reached; entropy spikes alone can prune, after generation, and what is cut stays in its
group. Its update takes C as the mean of five probabilities, at most 0.2, so that its adaptive clip range of 0.05 .. 0.2
moves within 0.194 .. 0.197.

What is ours: C, the quantile, and bounds as shares; what is pruned leaves its group; branches do not branch. A rollout
keeps two numbers per token, so a long one costs more to watch: the notes are written anew with every token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from podsrl.errors import UsageError
from podsrl.lib.watch import Act, End, Fork, Live, Note
from podsrl.score import EXTRACTORS
from podsrl.types import Group, Notes, Selection
from podsrl.update.advantage import group_advantages

Share = Annotated[float, Field(ge=0, le=1)]
Floats = NDArray[np.float64]
DEPTH, ENTROPY_WINDOW, GROUP_WINDOW, TAIL_WINDOW, CLIP_WINDOW, RUN, RISE, CLIP = 4, 4, 4, 8, 16, 3, 0.2, 2.0
NONE, HAS_BRANCHED = -1, -2
"""In the note of marks, in place of a token."""
MARKS, TOLD = "echo/marks", "echo/told"
"""Notes of a rollout: the likeliest tokens of its last place if it is to branch there, [widest]; H and C of each token,
[T, 2]."""


class Confident:
    """Branches, prunes, weighs tokens and bounds ratios by confidence.

    Args:
        widest: of a branching place, with the rollout itself; 1: nothing branches.
        top: tokens whose probability is the confidence.
        unsure: mean confidence below which rollouts branch, and below which a falling one ends.
        floor: mean confidence below which a rollout ends; 0: none.
        spike: rise of the entropy at which a rollout ends, in nats; 0: none ends for its entropy or for a fall.
        quantile: of a rollout's own entropies, above which it branches.
        weight: a, of uncertain tokens.
        narrow, wide, steep: of the bounds of the ratio.

    Raises:
        UsageError: `narrow` is above `wide`.
    """

    def __init__(
        self,
        *,
        widest: Annotated[int, Field(ge=1, le=64)] = 4,
        top: Annotated[int, Field(ge=1, le=64)] = 5,
        unsure: Annotated[float, Field(gt=0, le=1)] = 0.5,
        floor: Share = 0.1,
        spike: Annotated[float, Field(ge=0)] = 0.5,
        quantile: Share = 0.8,
        weight: Annotated[float, Field(ge=0, lt=0.5)] = 0.1,
        narrow: Share = 0.05,
        wide: Share = 0.2,
        steep: Annotated[float, Field(ge=0, le=100)] = 4.0,
    ) -> None:
        if narrow > wide:
            raise UsageError(f"options.echo.narrow = {narrow} is more than options.echo.wide = {wide}")
        self._widest, self._top, self._unsure, self._floor = widest, top, unsure, floor
        self._spike, self._quantile, self._weight = spike, quantile, weight
        self._narrow, self._wide, self._steep = narrow, wide, steep
        if widest > 1:
            self.needs = frozenset({"whole_groups", "free_indices", "no_stop_strings"})
            self.breaks = frozenset({"settled_steps", "equal_groups"})
        self.at = () if (widest, floor, spike, weight) == (1, 0, 0, 0) else None

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        """Every rollout may branch once."""
        return num_prompts, self._widest * num_rollouts

    def look(self, live: Live) -> list[Act]:
        """Ends of those that are lost, by what the next token will be drawn from. Of the others notes of the next
        place, and forks at the last one where that was marked."""
        words = live.logits.topk(self._widest).indices.tolist()
        ends, acts = list[Act](), list[Act]()
        for i, (entropies, confidences) in enumerate(self._with_next(live)):
            key, row = live.keys[i], int(live.row_of[i])
            if self._is_lost(entropies, confidences):
                ends.append(End(key))
                continue
            marks = [int(mark) for mark in live.notes[i].get(MARKS, [NONE] * self._widest)]
            told = np.stack([entropies, confidences], axis=1)
            if marks[0] >= 0:
                place, newest = live.num_tokens[i] - 1, int(live.tokens(key)[-1])
                others = [word for word in marks if word not in (newest, NONE)][: sum(word >= 0 for word in marks) - 1]
                marks = [HAS_BRANCHED] * self._widest
                acts += [Note(key, MARKS, marks), Note(key, TOLD, told[:-1])]  # which the forks take over
                acts += [Fork(key, token=token, num_tokens=place) for token in others]
            elif marks[0] == NONE and (width := self._width(entropies, confidences)) > 1:
                found = words[row][:width]
                marks = [*found, *[NONE] * (self._widest - width)] if not live.stop_ids & {*found} else marks
            acts += [Note(key, MARKS, marks), Note(key, TOLD, told)]
        return [*ends, *acts]

    def shape(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """The advantages [m, T] of each group; as they are where the weight is 0 or nothing was watched."""
        if self._weight == 0:
            return advantages
        told = [
            [_told(group.rollouts[i].notes) for i in selection.kept]
            for group, selection in zip(groups, selections, strict=True)
        ]
        every = np.concatenate([np.zeros((0, 2)), *(each for of_group in told for each in of_group)])
        if len(every) < 2:
            return advantages
        scale = np.sqrt(every.var(axis=0, ddof=1) + 1e-8)
        found = []
        for of_group, group, selection, values in zip(told, groups, selections, advantages, strict=True):
            lengths = [len(group.rollouts[i].token_ids) for i in selection.kept]
            factors = torch.ones(len(lengths), max(lengths, default=0))
            for row, (length, each) in enumerate(zip(lengths, of_group, strict=True)):
                z = (each - every.mean(axis=0)) / scale
                score = np.clip(z[:, 0] - z[:, 1], -CLIP, CLIP)
                factors[row, length - len(each) : length] += self._weight * torch.from_numpy(score).float()
            found.append((values.unsqueeze(1) if values.ndim == 1 else values[:, : factors.shape[1]]) * factors)
        return found

    def bound(self, groups: Sequence[Group], selections: Sequence[Selection]) -> Sequence[Tensor]:
        """[m] of each group; a rollout that nobody watched counts as sure."""
        rows = [
            [_told(group.rollouts[i].notes)[-CLIP_WINDOW:, 1] for i in selection.kept]
            for group, selection in zip(groups, selections, strict=True)
        ]
        unsure = [torch.tensor([1 - float(own.mean()) if len(own) else 0.0 for own in of_group]) for of_group in rows]
        return [self._narrow + (self._wide - self._narrow) * (self._steep * each).sigmoid() for each in unsure]

    def _with_next(self, live: Live) -> list[tuple[Floats, Floats]]:
        """H and C of each rollout's tokens, the one that comes next included."""
        confidences = live.logprobs.exp().topk(min(self._top, live.logits.shape[1])).values.sum(dim=-1)
        rows = torch.stack([live.entropies, confidences], dim=1)[live.row_of].double().cpu().numpy()
        before = [_told(notes) for notes in live.notes]
        return [(each.T[0], each.T[1]) for each in (np.vstack(pair) for pair in zip(before, rows, strict=True))]

    def _width(self, entropies: Floats, confidences: Floats) -> int:
        """Of the next place, 1 where there is no branch."""
        mean = confidences[-GROUP_WINDOW:].mean()
        if len(entropies) <= DEPTH or mean > self._unsure or rise(entropies, 0) < RISE:
            return 1
        if entropies[-1] <= np.quantile(entropies[:-1], self._quantile):
            return 1
        raw = 1 + 2 * (entropies[-1] - 1) / 2.5 - (mean - self._unsure) / self._unsure
        return int(np.clip(np.round(raw), 1, self._widest))

    def _is_lost(self, entropies: Floats, confidences: Floats) -> bool:
        if confidences[-GROUP_WINDOW:].mean() < self._floor:
            return True
        if self._spike == 0 or len(entropies) <= RUN:
            return False
        tails = [confidences[: len(confidences) - back][-TAIL_WINDOW:].mean() for back in range(RUN + 1)]
        has_fallen = all(later < earlier for later, earlier in pairwise(tails))
        rises = [rise(entropies, back) for back in range(RUN)]
        return bool((has_fallen and tails[0] <= self._unsure) or (min(rises) > 0 and rises[0] > self._spike))


def _told(notes: Notes) -> Floats:
    return np.array(notes.get(TOLD, np.zeros((0, 2))), np.float64)


def rise(entropies: Floats, back: int) -> float:
    """ΔH so many tokens before the last: the entropy less the mean of the four before it; 0 at the first token.

    Example:
        >>> rise(np.array([1.0, 3.0, 4.0]), 0)
        2.0
    """
    place = len(entropies) - 1 - back
    before = entropies[max(0, place - ENTROPY_WINDOW) : place]
    return float(entropies[place] - before.mean()) if len(before) else 0.0


class Votes:
    """Advantages of the majority's answer in place of those of rewards."""

    def check_answers(self, correct: str, are_found: bool) -> None:
        """UsageError: no text has a final answer to vote for."""
        if not are_found:
            raise UsageError(
                f"systems = 'echo' counts final answers, and task.correct = {correct!r} finds none in a text: "
                f"wanted one of {', '.join(EXTRACTORS)}"
            )

    def shape(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """The advantages [m] of each group, by the votes of all of its rollouts: GRPO's, with the reward above."""
        return [self._voted(group, selection) for group, selection in zip(groups, selections, strict=True)]

    def _voted(self, group: Group, selection: Selection) -> Tensor:
        answers = [group.rollouts[i].answer for i in selection.kept]
        winner = majority(group)
        won = torch.tensor([float(winner is not None and answer == winner) for answer in answers])
        return group_advantages(won) if len(won) > 1 else torch.zeros(len(won))


def majority(group: Group) -> str | None:
    """The answer that most of the group's valid rollouts give; None where none gives one, or two are given as often."""
    votes = Counter(one.answer for one in group.rollouts if one.is_valid and one.answer is not None).most_common(2)
    if not votes or (len(votes) > 1 and votes[0][1] == votes[1][1]):
        return None
    return votes[0][0]
