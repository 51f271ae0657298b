"""The picture of `pods watch`: lines of text that fit a terminal's width and height, readable on dark and on light.

The terminal's own colours are used: its default for text, and black on the bright ones for bars.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from podsrl.cli.curve import Array, block, curve, sparkline
from podsrl.cli.progress import TimeLeft, share_done, time_text
from podsrl.errors import one_line
from podsrl.report import facts, numbers
from podsrl.report.follow import FollowedRun
from podsrl.report.health import HealthCheck, check_run
from podsrl.run.group_log import RecordedGroup, RecordedRollout

QUIET_SECONDS = 60.0
"""A run that trains and writes no line for longer than this, and than ten of its steps, has it said."""
SIDE_BY_SIDE = 72
"""Columns from which on the two curves stand beside each other."""
_MAX_PLOT, _MIN_PLOT = 9, 3
_LABEL = 7
_MAX_STRIPS = 3
"""Rows of bars that a group may take."""
_STAGE_COLORS = {
    "generate": "cyan",
    "score": "yellow",
    "select": "magenta",
    "update": "green",
    "sync": "red",
    "other": "white",
}
_TOKEN_COLORS = {"trained": "magenta", "discarded": "white", "skipped": "yellow"}
_PLAIN_CONSOLE = Console(width=80)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a run is."""

    step: int
    steps: int
    """At which it ends; 0: at no step."""
    share: float | None
    """Done, 0 .. 1; None where nothing is known yet."""
    seconds_per_step: float | None
    rollouts_per_second: float | None
    seconds_left: float | None
    """Of training, evaluations not counted; None where too little was seen for an estimate."""
    is_quiet: bool
    """No new line for long, though a process trains."""


def standing(followed: FollowedRun) -> Standing:
    """Where a run stands; speed is the mean of the newest ten steps, the time left comes from the whole run."""
    run, lines = followed.run, followed.run.steps
    steps, seconds = (_limit(run.option(f"stop.{name}")) for name in ("steps", "seconds"))
    recent = lines[-10:]
    totals = [line.get("seconds/total", np.nan) for line in recent]
    rollouts = [line.get("rollouts/all", np.nan) for line in recent]
    pace = float(np.mean(totals)) if recent else None
    if pace is not None and not pace > 0:
        pace = None
    marks = [line for line in (*run.evaluations[:1], *lines[:1], *lines[-1:]) if "seconds/train_elapsed" in line]
    share = share_done(marks[-1], int(steps), seconds) if marks else None
    is_quiet = followed.state == "training" and followed.quiet_seconds > max(QUIET_SECONDS, 10 * (pace or 0.0))
    return Standing(
        step=int(max((line["step"] for line in (*lines[-1:], *run.evaluations[-1:])), default=0)),
        steps=int(steps),
        share=share,
        seconds_per_step=pace,
        rollouts_per_second=None if pace is None else float(np.nanmean(rollouts)) / pace,
        seconds_left=None if followed.state == "finished" else _seconds_left(marks, int(steps), seconds),
        is_quiet=is_quiet,
    )


def as_json(followed: FollowedRun) -> dict[str, Any]:
    """What the picture says, as an object."""
    run, at, result = followed.run, standing(followed), facts.outcome(followed.run)
    return {
        "run": str(followed.path),
        "state": followed.state,
        "quiet_seconds": round(followed.quiet_seconds, 1),
        "step": at.step,
        "steps": at.steps or None,
        "share_done": at.share,
        "seconds/train_elapsed": result.train_seconds,
        "seconds_per_step": at.seconds_per_step,
        "rollouts_per_second": at.rollouts_per_second,
        "seconds_left": at.seconds_left,
        "accuracy": {
            "start": result.start_accuracy,
            "best": result.best_accuracy,
            "last": result.last_accuracy,
            "training": _last(run.series("accuracy/all")),
        },
        "reward": {"all": _last(run.series("reward/all")), "kept": _last(run.series("reward/kept"))},
        "stage_seconds": run.stage_seconds(),
        "tokens": run.tokens(),
        "warnings": [
            {"name": check.name, "value": check.value, "limit": check.limit, "advice": check.advice}
            for check in check_run(run)
            if check.is_alarm
        ],
    }


def plain_line(followed: FollowedRun) -> str:
    """Where a run stands, in one line."""
    at, run = standing(followed), followed.run
    accuracies = run.accuracy_curve()[1]
    held_out = f"held out {accuracies[-1]:.1%}" if accuracies.size else ""
    training, reward = _last(run.series("accuracy/all")), _last(run.series("reward/all"))
    parts = [f"{followed.path.name}: {_state_text(followed, at)}", _step_text(at), *_speed(at)]
    parts += [f"training {training:.1%}"] * (training is not None) + [held_out] * bool(held_out)
    parts += [f"mean reward {reward:.3f}"] * (reward is not None)
    return ", ".join(parts)


def picture(runs: Sequence[FollowedRun], width: int, height: int | None) -> list[Text]:
    """The lines to show; at most `height` of them, None: as many as there are."""
    return _one_run(runs[0], width, height) if len(runs) == 1 else _several(runs, width, height)


def _one_run(followed: FollowedRun, width: int, height: int | None) -> list[Text]:
    """Head, curves, bars, checks and the newest group; where the height is short the least important go first."""
    run, at = followed.run, standing(followed)
    parts = {
        "head": _head(followed, at, width),
        "checks": _checks(run, width),
        "bars": _bars(run, width),
        "group": _group(run.groups[-1], str(run.option("select.rule") or ""), width) if run.groups else [],
    }
    order = [part for part in ("bars", "checks", "group") if parts[part]]
    has_curves = len(run.steps) + len(run.evaluations) > 1
    is_wide = width >= SIDE_BY_SIDE
    least = (_MIN_PLOT + 2) * (1 if is_wide else 2) + 1 if has_curves else 0

    def used() -> int:
        return len(parts["head"]) + sum(1 + len(parts[part]) for part in order)

    if height is not None:
        for part in ("group", "bars", "checks"):
            if used() + least > height and part in order:
                parts[part] = parts[part][: max(0, len(parts[part]) - (used() + least - height))]
                if len(parts[part]) < (3 if part == "group" else 1):
                    order.remove(part)
    lines = list(parts["head"])
    if has_curves:
        room = _MAX_PLOT if height is None else (height - used() - 1) // (1 if is_wide else 2) - 2
        lines += [Text(), *_curves(run, width, max(_MIN_PLOT, min(_MAX_PLOT, room)), is_wide)]
    for part in order:
        lines += [Text(), *parts[part]]
    return lines[:height]


def _several(runs: Sequence[FollowedRun], width: int, height: int | None) -> list[Text]:
    """One row per run: how far it is and its held-out accuracy; below them what is wrong."""
    name_width = min(max(len(followed.path.name) for followed in runs), max(10, width // 3))
    rows, alarms = [], []
    for followed in runs:
        at, (_, accuracies) = standing(followed), followed.run.accuracy_curve()
        share = "    " if at.share is None else f"{at.share:4.0%}"
        accuracy = f"{accuracies[-1]:6.1%}" if accuracies.size else "     –"
        mark = {"finished": "✓", "training": "▶", "stopped": "■", "starting": "…"}[followed.state]
        row = Text.assemble(
            (_cut(followed.path.name, name_width).ljust(name_width), "bold"), f" {mark}{share}{accuracy} "
        )
        room = max(0, min(24, width - row.cell_len))
        row.append(sparkline(accuracies, room).ljust(room))
        row.append(
            " " + ", ".join([_step_text(at), *_speed(at)]) if followed.state == "training" else f" {_step_text(at)}"
        )
        rows.append(_fit(row, width))
        alarms += [(followed.path.name, check) for check in check_run(followed.run) if check.is_alarm]
    num_done = sum(followed.state == "finished" for followed in runs)
    head = Text(f"{num_done} of {len(runs)} runs done", "bold")
    key = Text("done and held-out accuracy; ✓ done  ▶ training  ■ stopped", "dim")
    below = [line for name, check in alarms for line in _wrapped(_alarm(check, name), width)]
    lines = [head, *_wrapped(key, width), Text(), *rows]
    return [*lines, Text(), *below][:height] if below else lines[:height]


def _head(followed: FollowedRun, at: Standing, width: int) -> list[Text]:
    name = Text(_cut(one_line(followed.path.name), max(10, width // 2)), "bold")
    state = Text.assemble(name, "  ", (_state_text(followed, at), "" if not at.is_quiet else "bold red"))
    lines = _wrapped(state, width)
    text = Text(", ".join([_step_text(at), *_speed(at)]))
    if at.share is not None and followed.state != "finished":
        filled = round(16 * at.share)
        text = Text.assemble(("━" * filled, "bold"), ("─" * (16 - filled), "dim"), f" {at.share:.0%}  ", text)
    return lines + _wrapped(text, width)


def _state_text(followed: FollowedRun, at: Standing) -> str:
    quiet = time_text(followed.quiet_seconds)
    if followed.state == "starting":
        return f"starting, no step yet ({quiet})"
    if followed.state == "stopped":
        cure = f"go on with pods train --resume {followed.path}"
        return f"stopped: no new line for {quiet}, and no process of this machine trains in it; {cure}"
    if at.is_quiet:
        return f"training, but no new line for {quiet}: an evaluation, a long step, or a process that hangs"
    return followed.state


def _step_text(at: Standing) -> str:
    return f"step {at.step:,}" + (f" of {at.steps:,}" if at.steps else "")


def _speed(at: Standing) -> list[str]:
    parts = []
    if at.seconds_per_step is not None:
        parts.append(f"{numbers.duration(at.seconds_per_step)} per step")
    if at.rollouts_per_second is not None and np.isfinite(at.rollouts_per_second):
        parts.append(f"{at.rollouts_per_second:,.0f} rollouts/s")
    if at.seconds_left is not None:
        parts.append(f"{time_text(at.seconds_left)} left")
    return parts


def _curves(run: Any, width: int, height: int, is_wide: bool) -> list[Text]:
    """Held-out and training accuracy, and the mean reward of all and of the kept rollouts."""
    panel = (width - 3) // 2 if is_wide else width
    elapsed = run.series("seconds/train_elapsed")
    times, held_out = run.accuracy_curve()
    accuracy = [(times, held_out, "bold magenta", "held out"), (elapsed, run.series("accuracy/all"), "dim", "training")]
    steps = run.series("step")
    reward = [
        (steps, run.series("reward/all"), "bold magenta", "all"),
        (steps, run.series("reward/kept"), "dim", "kept"),
    ]
    left = _panel("accuracy", accuracy, panel, height, "{:.0%}".format, numbers.duration)
    right = _panel("mean reward", reward, panel, height, numbers.number, lambda step: f"step {step:,.0f}")
    if not is_wide:
        return [*left, *right]
    rows = []
    for one, other in zip(left, right, strict=True):
        one.append(" " * (panel + 3 - one.cell_len))
        rows.append(one + other)
    return rows


def _panel(
    title: str,
    lines: Sequence[tuple[Array, Array, str, str]],
    width: int,
    height: int,
    y_text: Callable[[float], str],
    x_text: Callable[[float], str],
) -> list[Text]:
    """A title with the key, rows of dots between the lowest and the highest value, and both ends of the x axis."""
    head = Text(title, "bold")
    for _, y, style, name in lines:
        if (last := _last(y)) is not None:
            head.append(f" ━ {name} {y_text(last)}", style)
    known = [y[np.isfinite(y)] for _, y, *_ in lines]
    values = np.concatenate([np.empty(0), *known])
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    plot = curve([(x, y, style) for x, y, style, _ in lines], width - _LABEL - 1, height, (low, high))
    labels = {0: y_text(high), height - 1: y_text(low)}
    rows = [Text.assemble((labels.get(i, "").rjust(_LABEL), "dim"), ("│", "dim"), row) for i, row in enumerate(plot)]
    ends = np.concatenate([np.empty(0), *(x[np.isfinite(x)] for x, *_ in lines)])
    begin, end = (x_text(float(ends.min())), x_text(float(ends.max()))) if ends.size else ("", "")
    axis = Text(" " * (_LABEL + 1) + begin + end.rjust(width - _LABEL - 1 - len(begin)), "dim")
    return [_fit(line, width) for line in (head, *rows, axis)]


def _bars(run: Any, width: int) -> list[Text]:
    """Where a step's time goes, and what became of the generated tokens."""
    if not run.steps:
        return []
    stages, tokens = run.stage_seconds(), run.tokens()
    total = sum(stages.values())
    fates = {name: float(tokens[name]) for name in ("trained", "discarded", "skipped")}
    kept = run.option("select.num_kept")
    rule = f", {kept} of {run.option('rollouts.num_rollouts')} kept per question" if kept else ""
    time_bar, short_stages = _bar(stages, _STAGE_COLORS, width)
    token_bar, short_fates = _bar(fates, _TOKEN_COLORS, width)
    return [
        _fit(Text.assemble((f"time of a step: {numbers.seconds(total)}", "bold"), (short_stages, "dim")), width),
        time_bar,
        _fit(Text.assemble(("generated tokens", "bold"), one_line(rule), (short_fates, "dim")), width),
        token_bar,
    ]


def _bar(parts: Mapping[str, float], colors: Mapping[str, str], width: int) -> tuple[Text, str]:
    """Pieces as long as their shares, each with its name where it has room; and a text of those without a name."""
    total = sum(parts.values())
    if not total > 0:
        return Text("–", "dim"), ""
    edges = np.round(np.cumsum([0.0, *parts.values()]) / total * width).astype(int).tolist()
    bar, nameless = Text(no_wrap=True), []
    for (name, value), start, end in zip(parts.items(), edges, edges[1:], strict=False):
        texts = (f" {name} {value / total:.0%}", f" {name}", "")
        text = next(text for text in texts if len(text) < end - start or not text)
        nameless += [f"{name} {value / total:.0%}"] * (not text and value > 0)
        bar.append(text.ljust(end - start)[: end - start], f"black on {colors[name]}")
    return bar, f" ({', '.join(nameless)})" if nameless else ""


def _checks(run: Any, width: int) -> list[Text]:
    checks = check_run(run)
    alarms = [check for check in checks if check.is_alarm]
    if alarms:
        return [line for check in alarms for line in _wrapped(_alarm(check), width)]
    known = [f"{check.name} {_value(check, check.value)}" for check in checks if check.value is not None]
    return _wrapped(Text.assemble(("✓ no warning: ", "bold"), (", ".join(known), "dim")), width) if known else []


def _alarm(check: HealthCheck, name: str = "") -> Text:
    value, limit = _value(check, check.value), _value(check, check.limit)
    head = f"▲ {name + ': ' if name else ''}{check.name}: {value} (limit {limit})"
    return Text.assemble((head, "bold red"), f"; {check.advice}")


def _value(check: HealthCheck, value: float | None) -> str:
    return numbers.percent(value).replace(" ", "") if check.is_share else numbers.number(value)


def _group(group: RecordedGroup, rule: str, width: int) -> list[Text]:
    """The newest recorded group: a bar per rollout, highest reward first, and what became of three of them."""
    sums = facts.group_summary(group)
    counts = f"{sums['num_kept']} of {sums['num_rollouts']} kept by {rule}, {sums['num_correct']} right"
    head = Text.assemble((f"newest recorded group: step {group.step}, {_cut(one_line(group.task_id), 24)}", "bold"))
    strip = facts.reward_strip(group)
    lines = _wrapped(head.append(f": {one_line(counts)}"), width)
    for start in range(0, min(len(strip), _MAX_STRIPS * width), width):
        bars, marks = Text(no_wrap=True), Text(no_wrap=True)
        for percent, is_kept in strip[start : start + width]:
            bars.append(block(percent), "bold magenta" if is_kept else "dim")
            marks.append("●" if is_kept else "·", "bold magenta" if is_kept else "dim")
        lines += [bars, marks]
    if len(strip) > _MAX_STRIPS * width:
        lines.append(Text(f"… and {len(strip) - _MAX_STRIPS * width} more rollouts", "dim"))
    return lines + [_fit(_rollout(rollout, is_short=width < SIDE_BY_SIDE), width) for rollout in _examples(group)]


def _examples(group: RecordedGroup) -> list[RecordedRollout]:
    """The best and the worst of the kept, and the best of the dropped."""
    kept = [rollout for rollout in group.by_reward() if rollout.is_kept]
    dropped = [rollout for rollout in group.by_reward() if not rollout.is_kept]
    return [*kept[:1], *kept[1:][-1:], *dropped[:1]]


def _rollout(rollout: RecordedRollout, is_short: bool) -> Text:
    reason = rollout.invalid_reason or rollout.drop_reason or "no reason recorded"
    fate = "● kept" if rollout.is_kept else f"· dropped, {reason.replace('_', ' ')}"
    told = f" {'' if is_short else ' reward '}{numbers.number(rollout.reward)}"
    told += f", advantage {numbers.signed(rollout.mean_advantage)}" if rollout.is_kept and not is_short else ""
    style = "bold magenta" if rollout.is_kept else ""
    return Text.assemble((one_line(fate, 60), style), (told + "  ", "dim"), one_line(rollout.text, 300))


def _wrapped(text: Text, width: int) -> list[Text]:
    return list(text.wrap(_PLAIN_CONSOLE, width)) or [text]


def _fit(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    text.no_wrap = True
    return text


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _last(values: Array) -> float | None:
    known = values[np.isfinite(values)]
    return float(known[-1]) if known.size else None


def _limit(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _seconds_left(marks: Sequence[Mapping[str, float]], steps: int, seconds: float) -> float | None:
    """By the run's own clock, which counts training alone."""
    now = 0.0
    left = TimeLeft(lambda: now)
    for line in marks:
        now = line["seconds/train_elapsed"]
        left.report(share_done(line, steps, seconds))
    return left.seconds
