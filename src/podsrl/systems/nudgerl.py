"""NudgeRL (arXiv 2605.15726, and its public code): hints behind some prompts, and advantages that know of them.

**Hints** (`Nudge`). A question has `count` hints, each for an equal part of its n rollouts, of which a rollout loses
the hint with probability `drop` and is asked plainly. The rollouts of one hint are a *context*.

**Advantages** (`Contexts`). With r̄ the mean reward of the group and r̄_c that of a context, a hinted rollout has

    A = (r - r̄_c) + weight · (r̄_c - r̄)

and a plain one r - r̄; then A is centred and divided by the standard deviation (ddof 0) + 1e-5. The weight 0 compares
rollouts of one hint alone, 1 all of the group as GRPO does, and more favours the better hint.

What is ours: the hints are a column of the data set or a function of the question, where the authors have a language
model write them once; the means run over the kept rollouts; a group without any hint keeps the advantages of
`loss.advantage`. The authors also train the answers behind the plain prompt, by -0.1 · A · mean log-prob. That is left
out: a row is trained behind the prompt that it answered, since no log-probs of another one are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from podsrl.control.base import View
from podsrl.errors import UsageError, short
from podsrl.lib.rounding import are_equal
from podsrl.tasks.references import reader
from podsrl.types import Ask, Group, Rollout, Selection, Task, TokenMarkup
from podsrl.update.shapes import rewrite_chunks

HINT = "{hint}"
_EPS = 1e-5
"""Added to a standard deviation (the authors' code)."""


class Nudge:
    """Asks some rollouts of each question behind one of its hints; it learns nothing.

    Args:
        hints: column with the hints of each question, a list of texts, or "module:function" of a task that makes them.
        count: the first so many are used.
        drop: probability with which a rollout is asked plainly all the same.
        form: what is put behind the question, with "{hint}" where the hint stands.
    """

    def __init__(
        self,
        *,
        hints: str = "hints",
        count: Annotated[int, Field(ge=1, le=64)] = 2,
        drop: Annotated[float, Field(ge=0, le=1)] = 0.5,
        form: str = f"Follow this approach as your main strategy: {HINT}\n",
    ) -> None:
        if HINT not in form:
            raise UsageError(f"options.nudgerl.form = {short(form)}; wanted a text with {HINT} in it")
        self._read = reader(
            hints,
            option="options.nudgerl.hints",
            wanted=f"a list of at least options.nudgerl.count = {count} texts",
            fits=lambda found: (
                isinstance(found, list | tuple) and len(found) >= count and all(isinstance(hint, str) for hint in found)
            ),
        )
        self._count, self._drop, self._form = count, drop, form
        self.abilities = () if drop == 1 else ("join",)

    def check_tasks(self, tasks: Sequence[Task]) -> None:
        """UsageError: a question has too few hints, or one cannot be put behind it."""
        for task in tasks:
            self._prompts(task)

    def most(self, num_prompts: int, num_rollouts: int) -> tuple[int, int]:
        """As many as without. UsageError: fewer rollouts than hints."""
        if num_rollouts < self._count:
            raise UsageError(
                f"options.nudgerl.count = {self._count} hints share rollouts.num_rollouts = {num_rollouts}; wanted at "
                "least one rollout for each: lower the one or raise the other"
            )
        return num_prompts, num_rollouts

    def guide(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        """The asks, each in several ways; probes, and what another part shows otherwise, as they are."""
        if self._drop == 1:
            return asks
        rng = view.rng("nudge")
        return [way for ask in asks for way in self._ways(ask, view.tasks[ask.index], rng)]

    def _ways(self, ask: Ask, task: Task, rng: np.random.Generator) -> Iterator[Ask]:
        if not ask.is_trained or ask.prompt is not None:
            yield ask
            return
        parts = [len(part) for part in np.array_split(np.arange(ask.num_rollouts), self._count)]
        hinted = rng.binomial(parts, 1 - self._drop).tolist()
        sizes = [ask.num_rollouts - sum(hinted), *hinted]
        prompts = [None, *self._prompts(task)]
        origins = [ask.origin, *(f"hint {i}" for i in range(1, len(prompts)))]
        joins = ask.joins
        for size, prompt, origin in zip(sizes, prompts, origins, strict=True):
            if size:
                yield replace(ask, num_rollouts=size, prompt=prompt, origin=origin, joins=joins)
                joins = ""

    def _prompts(self, task: Task) -> list[str | tuple[Mapping[str, str], ...]]:
        return [behind(task, self._form.replace(HINT, hint)) for hint in self._read(task)[: self._count]]


def behind(task: Task, text: str) -> str | tuple[Mapping[str, str], ...]:
    """A task's prompt with a text behind it; in a chat, on a line of its own in the last message.

    Example:
        >>> behind(Task(id="a", prompt="3+4=\\n", answer="7"), "Count on your fingers.")
        '3+4=\\nCount on your fingers.'
    """
    chat = () if isinstance(task.prompt, str) else task.prompt
    content = chat[-1]["content"] if chat else task.prompt
    if isinstance(content, TokenMarkup):
        raise UsageError(
            f"systems = 'nudgerl': question {task.id!r} is written with special tokens, and a hint behind it would "
            "be read as such too; ask in plain text or in messages"
        )
    return (*chat[:-1], {**chat[-1], "content": f"{content}\n{text}"}) if chat else f"{content}{text}"


class Contexts:
    """Advantages that compare rollouts within their hint, and hints with each other.

    Args:
        weight: λ, of what a hint's mean lies above that of all.
    """

    def __init__(self, *, weight: Annotated[float, Field(ge=0, le=1e6)] = 1.1) -> None:
        self._weight = weight

    def shape(
        self, groups: Sequence[Group], selections: Sequence[Selection], advantages: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """The advantages [m] of each group; those of groups without hints as they are."""
        return rewrite_chunks("nudgerl", self._compared, groups, selections, advantages)

    def _compared(self, rollouts: Sequence[Rollout], advantages: Tensor) -> Tensor:
        """[k] advantages that are linear in the rewards, centred at their mean, as every `loss.advantage` nearly is."""
        prompts = [rollout.prompt_ids for rollout in rollouts]
        if not any(prompts) or are_equal(advantages.min(), advantages.max()):
            return advantages
        places = {prompt: place for place, prompt in enumerate(dict.fromkeys(prompts))}
        context = torch.tensor([places[prompt] for prompt in prompts])
        means = torch.zeros(len(places), dtype=torch.float64).scatter_reduce_(
            0, context, advantages, "mean", include_self=False
        )
        is_hinted = torch.tensor([prompt is not None for prompt in prompts])
        beside = torch.where(is_hinted, means[context] - advantages.mean(), 0.0)
        found = advantages + (self._weight - 1) * beside
        return (found - found.mean()) / (found.std(correction=0) + _EPS)
