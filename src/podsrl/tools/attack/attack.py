"""An attack on rewards: makes the hacks, judges them beside honest completions, and says which pay."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from podsrl.lib.callbacks import Progress, no_progress
from podsrl.score.base import Rows
from podsrl.score.panel import Panel
from podsrl.tools.attack.families import FAMILIES, Family, Hack, asked, make_hacks
from podsrl.tools.attack.forms import FORMS, Form, filled
from podsrl.tools.attack.judges import Judged, judge_all
from podsrl.tools.attack.result import SLOW_SECONDS, AttackResult, FamilyCount, Finding, RewardAttack
from podsrl.tools.attack.target import Target, target_of
from podsrl.tools.attack.verdict import Baseline, Nature, baseline_of, mean_baseline, nature_of, paid_forms
from podsrl.tools.completions import Stored
from podsrl.types import Task

OWN_FORM = "as in the file"
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
    forms = {**FORMS, **({OWN_FORM: own_form} if own_form else {})}
    honest = [(target, form, is_right) for target in targets for form in forms for is_right in (True, False)]
    honest_texts = [
        filled(forms[form], target.answer if is_right else target.wrong[0]) for target, form, is_right in honest
    ]
    with Panel(
        dict.fromkeys(rewards, "--reward"),
        num_workers=num_workers,
        timeout_seconds=timeout_seconds,
        batch_timeout_seconds=batch_timeout_seconds,
        has_quick_here=False,
    ) as panel:
        progress(0, 1, "honest completions")
        honest_rows = _rows([target for target, _, _ in honest], honest_texts)
        judged = judge_all(panel, rewards, honest_rows, lambda done: None)
        known = {name: _honest_values(honest, one) for name, one in judged.items()}
        paid = _paid(known)
        hacks = make_hacks(targets, {name: form for name, form in forms.items() if name in paid})
        rows = _rows([hack.target for hack in hacks], [hack.text for hack in hacks])
        what = f"{len(hacks):,} hacks"
        found = judge_all(panel, rewards, rows, lambda done: progress(done, len(hacks) * len(rewards), what))
    for warning in panel.warnings:
        warnings.warn(warning, stacklevel=2)
    attacks = [
        _reward_attack(name, rewards.get(name), known[name], judged[name], targets, hacks, found[name])
        for name in found
    ]
    return AttackResult(
        rewards=tuple(attacks),
        num_hacks=len(hacks),
        num_questions=len(targets),
        stored=tuple(_stored(hacks, attacks, found[attacks[-1].name])),
    )


def _honest_values(honest: Sequence[tuple[Target, str, bool]], judged: Judged) -> _Honest:
    values: _Honest = {}
    for (target, form, is_right), value in zip(honest, judged.values, strict=True):
        values.setdefault(id(target), {})[form, is_right] = value
    return values


def _paid(known: Mapping[str, _Honest]) -> set[str]:
    """Forms to place answers in: all that the last reward pays (the whole one), and each other one's first."""
    wanted: set[str] = set()
    for place, values in enumerate(known.values(), start=1):
        paid = [paid_forms(one) for one in values.values()]
        wanted |= {form for forms in paid for form in (forms if place == len(known) else forms[:1])}
    return wanted


def _rows(targets: Sequence[Target], texts: Sequence[str]) -> Rows:
    return Rows(tasks=[target.task for target in targets], texts=texts, token_ids=[()] * len(texts))


def _reward_attack(
    name: str,
    weight: float | None,
    known: _Honest,
    honest: Judged,
    targets: Sequence[Target],
    hacks: Sequence[Hack],
    judged: Judged,
) -> RewardAttack:
    nature, baselines = _worth(known)
    limits = {target: baseline.limit(nature) for target, baseline in baselines.items()}
    tried = [
        _finding(number, hack, judged, limits[id(hack.target)])
        for number, hack in enumerate(hacks)
        if id(hack.target) in limits and _concerns(hack.family, nature)
    ]
    above = [one for one in tried if one.value is not None and one.value > one.limit]
    places = Counter(_places(hacks[one.number]) for one in above)
    paid = tuple(
        one
        for one in above
        if (nature == "correctness" or hacks[one.number].family.is_for_forms)
        and (not hacks[one.number].family.has_places or places[_places(hacks[one.number])] > 1)
    )
    escaped = tuple(one for one in tried if one.value is None)
    slow = sorted((one for one in tried if one.seconds > SLOW_SECONDS), key=lambda one: -one.seconds)
    return RewardAttack(
        name=name,
        weight=weight,
        nature=nature,
        honest=mean_baseline(list(baselines.values())) if baselines else None,
        num_questions=len(targets),
        num_unjudged=len(targets) - len(baselines),
        unjudged_reason=next(iter(honest.faults.values()), None),
        families=tuple(_counts(hacks, targets, tried, paid, escaped)),
        paid=paid,
        escaped=escaped,
        slow=tuple(slow),
    )


def _concerns(family: Family, nature: Nature) -> bool:
    return nature == "correctness" or family.is_for_forms or family.may_break


def _places(hack: Hack) -> tuple[str, int, str]:
    """The same for hacks that differ only in where the right answer stands."""
    return hack.family.name, id(hack.target), hack.name.partition(":")[0]


def _worth(known: _Honest) -> tuple[Nature, dict[int, Baseline]]:
    """What a reward looks at, and what honest completions are paid for each question that it can judge."""
    found = {target: baseline_of(values) for target, values in known.items()}
    baselines = {target: baseline for target, baseline in found.items() if baseline is not None}
    nature = nature_of(list(baselines.values()))
    return nature, {target: baseline for target, baseline in baselines.items() if baseline.is_judged_as(nature)}


def _counts(
    hacks: Sequence[Hack],
    targets: Sequence[Target],
    tried: Sequence[Finding],
    paid: Sequence[Finding],
    escaped: Sequence[Finding],
) -> Iterator[FamilyCount]:
    for family in FAMILIES:
        num_tried, num_paid, num_escaped = (
            sum(one.family == family.name for one in findings) for findings in (tried, paid, escaped)
        )
        if num_tried:
            with_hacks = {id(hack.target) for hack in hacks if hack.family is family}
            yield FamilyCount(
                family=family.name,
                why=family.why,
                knows_answer=family.knows_answer,
                num_tried=num_tried,
                num_paid=num_paid,
                num_escaped=num_escaped,
                num_without=sum(id(target) not in with_hacks for _, target in asked(family, targets)),
            )


def _finding(number: int, hack: Hack, judged: Judged, limit: float) -> Finding:
    return Finding(
        number=number,
        family=hack.family.name,
        hack=hack.name,
        why=hack.family.why,
        knows_answer=hack.family.knows_answer,
        task_id=hack.target.task.id,
        answer=hack.target.answer,
        text=hack.text,
        value=judged.values[number],
        limit=limit,
        reason=judged.faults.get(number),
        seconds=judged.seconds[number],
    )


def _stored(hacks: Sequence[Hack], attacks: Sequence[RewardAttack], decisive: Judged) -> Iterator[Stored]:
    """Each hack that some reward pays for or fails on, with its value in the whole reward."""
    paid: dict[int, list[str]] = {}
    escaped: dict[int, list[str]] = {}
    for attack in attacks:
        for found, findings in ((paid, attack.paid), (escaped, attack.escaped)):
            for one in findings:
                found.setdefault(one.number, []).append(attack.name)
    for number in sorted(paid.keys() | escaped.keys()):
        hack = hacks[number]
        about = {"family": hack.family.name, "name": hack.name, "why": hack.family.why}
        rewards = {"paid_by": paid.get(number, []), "escapes": escaped.get(number, [])}
        task = replace(hack.target.task, columns={**hack.target.task.columns, "hack": {**about, **rewards}})
        yield Stored(
            task=task,
            text=hack.text,
            reward=decisive.values[number],
            is_correct=False,
            label=False,
            invalid_reason=decisive.faults.get(number),
        )
