"""An attack on rewards: makes the hacks, judges them beside honest completions, and says which pay."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from podsrl.lib.callbacks import Progress, no_progress
from podsrl.score.base import Rows
from podsrl.score.panel import Panel
from podsrl.tools.attack.families import FAMILIES, Hack, make_hacks
from podsrl.tools.attack.forms import BLOCK, FORMS, Form, filled
from podsrl.tools.attack.programs import CONFINED, ROUGH, places
from podsrl.tools.attack.result import AttackResult, FamilyCount, Finding, RewardAttack
from podsrl.tools.attack.target import Target, target_of
from podsrl.tools.attack.verdict import Baseline, Nature, baseline_of, mean_baseline, nature_of, paid_forms
from podsrl.tools.completions import Stored
from podsrl.types import Task

OWN_FORM = "as in the file"
WHOLE = "the whole reward"
_PART = 64
"""Rows that a function of TRL's form gets in one call: the limit, or a crash, makes all of them fail."""
_Outcome = float | str
"""A value, of which more is better for the policy, or why there is none."""
_Honest = dict[int, dict[tuple[str, bool], float | None]]
"""id of a target -> (form, is right) -> value of the honest completion."""


def attack_rewards(
    rewards: Mapping[str, float],
    tasks: Sequence[Task],
    *,
    num_workers: int = 0,
    timeout_seconds: float = 10.0,
    batch_timeout_seconds: float = 300.0,
    own_form: Form | None = None,
    progress: Progress = no_progress,
) -> AttackResult:
    """Try all hacks on all rewards.

    Args:
        tasks: questions, at least one.
        num_workers, timeout_seconds, batch_timeout_seconds: as in `check_rewards`.
        own_form: a further form in which answers are written.
        progress: judgements done, out of all.

    Raises:
        UsageError: a name is unknown, or a function has neither form.
        RewardError: a function breaks its contract, or cannot be loaded by a worker process.
    """
    targets = [target_of(task) for task in tasks]
    has_programs = any(target.kind == "program" for target in targets)
    forms = {**FORMS, **(BLOCK if has_programs else {}), **({OWN_FORM: own_form} if own_form else {})}
    honest = [(target, form, is_right) for target in targets for form in forms for is_right in (True, False)]
    honest_texts = [
        filled(forms[form], target.answer if is_right else target.wrong[0]) for target, form, is_right in honest
    ]
    with (
        Panel(
            dict.fromkeys(rewards, "--reward"),
            num_workers=num_workers,
            timeout_seconds=timeout_seconds,
            batch_timeout_seconds=batch_timeout_seconds,
        ) as panel,
        places() as words,
    ):
        progress(0, 1, "honest completions")
        honest_rows = _rows([target for target, _, _ in honest], honest_texts)
        judged = _judge_all(panel, rewards, honest_rows, lambda done: None)
        known = {name: _honest_values(honest, outcomes) for name, outcomes in judged.items()}
        paid = _paid(known)
        in_use = {name: form for name, form in forms.items() if name in paid}
        left_out = () if CONFINED.issuperset(rewards) else ROUGH
        hacks = make_hacks(targets, in_use, words=words, left_out=left_out)
        rows = _rows([hack.target for hack in hacks], [hack.text for hack in hacks])
        what = f"{len(hacks):,} hacks"
        found = _judge_all(panel, rewards, rows, lambda done: progress(done, len(hacks) * len(rewards), what))
    for warning in panel.warnings:
        warnings.warn(warning, stacklevel=2)
    attacks = [
        _reward_attack(name, rewards.get(name), known[name], judged[name], hacks, outcomes)
        for name, outcomes in found.items()
    ]
    return AttackResult(
        rewards=tuple(attacks),
        num_hacks=len(hacks),
        num_questions=len(targets),
        stored=tuple(map(_stored, sorted(attacks[-1].paid + attacks[-1].escaped, key=lambda one: one.number))),
    )


def _rows(targets: Sequence[Target], texts: Sequence[str]) -> Rows:
    return Rows(tasks=[target.task for target in targets], texts=texts, token_ids=[()] * len(texts))


def _judge_all(
    panel: Panel, weights: Mapping[str, float], rows: Rows, tell: Callable[[int], None]
) -> dict[str, list[_Outcome]]:
    """What each reward says about each row; `WHOLE`, their weighted sum, comes last where several have a weight."""
    found = dict[str, list[_Outcome]]()
    for name, weight in weights.items():

        def told(done: int, before: int = len(found) * len(rows)) -> None:
            tell(before + done)

        values = panel.judge_in_parts(name, rows, _PART, told)
        sign = -1.0 if weight < 0 else 1.0
        found[name] = [
            values.faults[row].reason if row in values.faults else sign * value
            for row, value in enumerate(values.values)
        ]
    sizes = {name: abs(weight) for name, weight in weights.items() if weight}  # the signs are in the values already
    if len(sizes) > 1:
        columns = zip(*(found[name] for name in sizes), strict=True)
        found[WHOLE] = [_whole(column, list(sizes.values())) for column in columns]
    return found


def _whole(outcomes: Sequence[_Outcome], sizes: Sequence[float]) -> _Outcome:
    """The weighted sum; what fails for one reward has none."""
    total = 0.0
    for size, outcome in zip(sizes, outcomes, strict=True):
        if isinstance(outcome, str):
            return outcome
        total += size * outcome
    return total


def _honest_values(honest: Sequence[tuple[Target, str, bool]], outcomes: Sequence[_Outcome]) -> _Honest:
    values: _Honest = {}
    for (target, form, is_right), outcome in zip(honest, outcomes, strict=True):
        values.setdefault(id(target), {})[form, is_right] = None if isinstance(outcome, str) else outcome
    return values


def _paid(known: Mapping[str, _Honest]) -> set[str]:
    """Forms to place answers in: all that the last reward pays (the whole one), and each other one's first."""
    wanted: set[str] = set()
    for place, values in enumerate(known.values(), start=1):
        paid = [paid_forms(one) for one in values.values()]
        wanted |= {form for forms in paid for form in (forms if place == len(known) else forms[:1])}
    return wanted


def _reward_attack(
    name: str,
    weight: float | None,
    known: _Honest,
    honest: Sequence[_Outcome],
    hacks: Sequence[Hack],
    outcomes: Sequence[_Outcome],
) -> RewardAttack:
    nature, baselines = _worth(known)
    limits = {target: baseline.limit(nature) for target, baseline in baselines.items()}
    tried = [
        Finding(number=number, hack=hack, outcome=outcomes[number], limit=limits[id(hack.target)])
        for number, hack in enumerate(hacks)
        if id(hack.target) in limits and hack.family.concerns(nature)
    ]
    escaped = [one for one in tried if one.value is None]
    above = [one for one in tried if one.value is not None and one.value > one.limit]
    places = Counter(one.hack.place for one in above)
    paid = [
        one
        for one in above
        if (nature == "correctness" or one.hack.family.is_for_forms)
        and (not one.hack.family.has_places or places[one.hack.place] > 1)
    ]
    counts = [Counter(one.hack.family.name for one in findings) for findings in (tried, paid, escaped)]
    return RewardAttack(
        name=name,
        weight=weight,
        nature=nature,
        honest=mean_baseline(list(baselines.values())) if baselines else None,
        num_questions=len(known),
        num_unjudged=len(known) - len(baselines),
        unjudged_reason=next((outcome for outcome in honest if isinstance(outcome, str)), None),
        families=tuple(
            FamilyCount(family, *(count[family.name] for count in counts))
            for family in FAMILIES
            if counts[0][family.name]
        ),
        paid=tuple(paid),
        escaped=tuple(escaped),
    )


def _worth(known: _Honest) -> tuple[Nature, dict[int, Baseline]]:
    """What a reward looks at, and what honest completions are paid for each question that it can judge."""
    found = {target: baseline_of(values) for target, values in known.items()}
    baselines = {target: baseline for target, baseline in found.items() if baseline is not None}
    nature = nature_of(list(baselines.values()))
    return nature, {target: baseline for target, baseline in baselines.items() if baseline.is_judged_as(nature)}


def _stored(one: Finding) -> Stored:
    """A hack as a completion that is known to be wrong."""
    task, family = one.hack.target.task, one.hack.family
    about = {"family": family.name, "name": one.hack.name, "why": family.why}
    return Stored(
        task=replace(task, columns={**task.columns, "hack": about}),
        text=one.hack.text,
        reward=one.value,
        is_correct=False,
        label=False,
        invalid_reason=one.reason,
    )
