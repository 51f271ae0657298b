"""The picture of `pods watch`: lines of text that fit a terminal's width and height, readable on dark and on light."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from rich.console import Console
from rich.text import Text

from podsrl.errors import cut, one_line
from podsrl.lib.stages import FATES
from podsrl.report import facts, numbers
from podsrl.report.read import Array, Run
from podsrl.report.standing import Standing, name_of, standing, state_text
from podsrl.run.group_log import RecordedGroup, RecordedRollout
from podsrl.run.health import HealthCheck, check_run

_MIN_WIDTH = 30
"""In a narrower terminal the lines are cut."""
_MAX_SPARKLINE = 60
_NAME = 14
_BLOCKS = "▁▂▃▄▅▆▇█"
_MARKS = {"finished": "✓", "training": "▶", "stopped": "■", "starting": "…"}
_CONSOLE = Console(width=80)
"""Only for rich, which breaks lines by the options of a console; each call gives the width."""


def picture(runs: Sequence[Run], width: int, height: int | None) -> list[Text]:
    """The lines to show, the most important first; at most `height` of them, None: as many as there are."""
    drawn = max(width, _MIN_WIDTH)
    parts = _one_run(runs[0], drawn) if len(runs) == 1 else _several(runs, drawn)
    lines = [line for part in parts if part for line in (Text(), *part)][1:]
    return [_fit(line, width) for line in lines[:height]]


def _one_run(run: Run, width: int) -> list[list[Text]]:
    groups = run.groups
    newest = newest_group(groups[-1], str(run.option("select.rule") or ""), width) if groups else []
    return [_head(run, standing(run), width), _curves(run, width), _checks(run, width), _sums(run, width), newest]


def _several(runs: Sequence[Run], width: int) -> list[list[Text]]:
    """One row per run: how far it is and its held-out accuracy; below them what is wrong."""
    name_width = min(max(len(name_of(run)) for run in runs), max(10, width // 3))
    rows, alarms = [], []
    for run in runs:
        at, (_, accuracies) = standing(run), run.accuracy_curve()
        share = "    " if at.share is None else f"{at.share:4.0%}"
        accuracy = f"{accuracies[-1]:6.1%}" if accuracies.size else "     –"
        name = Text(cut(name_of(run), name_width).ljust(name_width), "bold")
        row = Text.assemble(name, f" {_MARKS[run.state]}{share}{accuracy} ")
        room = max(0, min(24, width - row.cell_len - 16))  # the step stands behind it
        speed = at.speed_texts if run.state == "training" else ()
        row.append(sparkline(accuracies, room).ljust(room) + f" {', '.join([at.text, *speed])}")
        rows.append(row)
        alarms += [_alarm(check, name_of(run)) for check in check_run(run) if check.is_alarm]
    num_done = sum(run.state == "finished" for run in runs)
    head = Text(f"{num_done} of {len(runs)} runs done", "bold")
    key = Text("done and held-out accuracy; ✓ done  ▶ training  ■ stopped", "dim")
    return [[head, *_wrapped(key, width)], rows, [line for alarm in alarms for line in _wrapped(alarm, width)]]


def _head(run: Run, at: Standing, width: int) -> list[Text]:
    name = Text(cut(name_of(run), max(10, width // 2)), "bold")
    state = Text.assemble(name, "  ", (state_text(run, at), "" if not at.is_quiet else "bold red"))
    text = Text(", ".join([at.text, *at.speed_texts]))
    if at.share is not None and run.state != "finished":
        filled = round(16 * at.share)
        text = Text.assemble(("━" * filled, "bold"), ("─" * (16 - filled), "dim"), f" {at.share:.0%}  ", text)
    notes = [Text(one_line(note), "dim") for note in run.notes]
    return [line for part in (state, text, *notes) for line in _wrapped(part, width)]


def _curves(run: Run, width: int) -> list[Text]:
    """Held-out and training accuracy, and the mean reward of all and of the kept rollouts: first value, curve, last."""
    share: Callable[[float], str] = "{:.1%}".format
    rows = (
        ("held out", run.accuracy_curve()[1], share),
        ("training", run.series("accuracy/all"), share),
        ("reward, all", run.series("reward/all"), numbers.number),
        ("reward, kept", run.series("reward/kept"), numbers.number),
    )
    lines = []
    for name, values, text in rows:
        if (known := values[np.isfinite(values)]).size:
            drawn = sparkline(known, max(1, min(_MAX_SPARKLINE, width - _NAME - 18)))
            first, last = text(float(known[0])).rjust(7), text(float(known[-1]))
            lines.append(Text.assemble((name.ljust(_NAME), "dim"), first, (f" {drawn} ", "bold magenta"), last))
    return lines


def sparkline(values: Array, width: int) -> str:
    """The values as blocks between the lowest and the highest; at most `width` characters, of which each is a mean.

    Example:
        >>> sparkline(np.array([0.0, 0.5, 1.0]), 10)
        '▁▄█'
    """
    known = values[np.isfinite(values)]
    if not width or not known.size:
        return ""
    if known.size > width:
        known = np.array([part.mean() for part in np.array_split(known, width)])
    low, spread = known.min(), float(np.ptp(known))
    return "".join(_BLOCKS[int((value - low) / spread * 7.99)] if spread else _BLOCKS[0] for value in known)


def _checks(run: Run, width: int) -> list[Text]:
    checks = check_run(run)
    if above := [check for check in checks if check.is_above]:
        return [line for check in above for line in _wrapped(_alarm(check), width)]
    known = [f"{check.name} {_value(check, check.value)}" for check in checks if check.value is not None]
    return _wrapped(Text.assemble(("✓ no warning: ", "bold"), (", ".join(known), "dim")), width) if known else []


def _alarm(check: HealthCheck, name: str = "") -> Text:
    if check.is_solved:
        return Text.assemble(("✓ solved", "bold"), f": {check.advice}")
    value, limit = _value(check, check.value), _value(check, check.limit)
    head = f"▲ {name + ': ' if name else ''}{check.name}: {value} (limit {limit})"
    return Text.assemble((head, "bold red"), f"; {check.advice}")


def _value(check: HealthCheck, value: float | None) -> str:
    return numbers.percent(value).replace(" ", "") if check.is_share else numbers.number(value)


def _sums(run: Run, width: int) -> list[Text]:
    """Where a step's time goes, and what became of the generated tokens."""
    if not run.steps:
        return []
    stages, tokens = run.stage_seconds(), run.tokens()
    rule = f", {facts.sizes(run)} per question" if run.option("select.num_kept") else ""
    rows = (
        (f"time of a step: {numbers.seconds(sum(stages.values()))}", stages),
        (f"generated tokens{one_line(rule)}", {fate: tokens[fate] for fate in FATES}),
    )
    return [
        line for name, parts in rows for line in _wrapped(Text.assemble((name, "bold"), (_shares(parts), "dim")), width)
    ]


def _shares(parts: Mapping[str, float]) -> str:
    total = sum(parts.values())
    return (
        f" ({', '.join(f'{name} {value / total:.0%}' for name, value in parts.items() if value)})" if total > 0 else ""
    )


def newest_group(group: RecordedGroup, rule: str, width: int) -> list[Text]:
    """What became of the newest recorded group, and of three of its rollouts."""
    sums = facts.group_summary(group)
    counts = f"{sums['num_kept']} of {sums['num_rollouts']} kept by {rule}, {sums['num_correct']} correct"
    head = Text(f"newest recorded group: step {group.step}, {cut(one_line(group.question), 40)}", "bold")
    return [*_wrapped(head.append(f": {one_line(counts)}"), width), *map(_rollout, _examples(group))]


def _examples(group: RecordedGroup) -> list[RecordedRollout]:
    """The best and the worst of the kept, and the best of the dropped."""
    kept = [rollout for rollout in group.by_reward() if rollout.is_kept]
    dropped = [rollout for rollout in group.by_reward() if not rollout.is_kept]
    return [*kept[:1], *kept[1:][-1:], *dropped[:1]]


def _rollout(rollout: RecordedRollout) -> Text:
    reason = rollout.invalid_reason or rollout.drop_reason or "no reason recorded"
    fate = "● kept" if rollout.is_kept else f"· dropped, {reason.replace('_', ' ')}"
    values = f"  reward {numbers.number(rollout.reward)}"
    values += f", advantage {numbers.signed(rollout.mean_advantage)}" if rollout.is_kept else ""
    values += f", asked: {one_line(rollout.origin.replace('_', ' '), 40)}" if rollout.origin else ""
    style = "bold magenta" if rollout.is_kept else ""
    return Text.assemble((one_line(fate, 60), style), (values + "  ", "dim"), one_line(rollout.text, 300))


def _wrapped(text: Text, width: int) -> list[Text]:
    lines = list(text.wrap(_CONSOLE, width)) or [text]
    for line in lines:
        line.rstrip()
    return lines


def _fit(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    text.no_wrap = True
    return text
