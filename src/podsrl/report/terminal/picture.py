"""The picture of `pods watch`: lines of text that fit a terminal's width and height, readable on dark and on light.

The terminal's own colours are used: its default for text, and black on the bright ones for bars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from rich.text import Text

from podsrl.errors import one_line
from podsrl.report import numbers
from podsrl.report.follow import FollowedRun
from podsrl.report.read import Run
from podsrl.report.terminal.curve import Array, curve, sparkline
from podsrl.report.terminal.parts import cut, draw_bars, draw_group, fit, wrapped
from podsrl.report.terminal.standing import Standing, last_known, speed_texts, standing, state_text, step_text
from podsrl.run.health import HealthCheck, check_run

SIDE_BY_SIDE = 72
"""Columns from which on the two curves stand beside each other."""
_MIN_WIDTH = 30
"""In a narrower terminal the lines are cut."""
_MAX_PLOT, _MIN_PLOT = 9, 3
_LABEL = 7


def picture(runs: Sequence[FollowedRun], width: int, height: int | None) -> list[Text]:
    """The lines to show; at most `height` of them, None: as many as there are."""
    drawn = max(width, _MIN_WIDTH)
    lines = _one_run(runs[0], drawn, height) if len(runs) == 1 else _several(runs, drawn, height)
    return [fit(line, width) for line in lines]


def _one_run(followed: FollowedRun, width: int, height: int | None) -> list[Text]:
    """Head, curves, bars, checks and the newest group; where the height is short the least important go first."""
    run, at = followed.run, standing(followed)
    parts = {
        "head": _head(followed, at, width),
        "checks": _checks(run, width),
        "bars": draw_bars(run, width),
        "group": draw_group(run.groups[-1], str(run.option("select.rule") or ""), width) if run.groups else [],
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
    name_width = min(max(len(followed.name) for followed in runs), max(10, width // 3))
    rows, alarms = [], []
    for followed in runs:
        at, (_, accuracies) = standing(followed), followed.run.accuracy_curve()
        share = "    " if at.share is None else f"{at.share:4.0%}"
        accuracy = f"{accuracies[-1]:6.1%}" if accuracies.size else "     –"
        mark = {"finished": "✓", "training": "▶", "stopped": "■", "starting": "…"}[followed.state]
        row = Text.assemble((cut(followed.name, name_width).ljust(name_width), "bold"), f" {mark}{share}{accuracy} ")
        room = max(0, min(24, width - row.cell_len - 16))  # the step stands behind it
        row.append(sparkline(accuracies, room).ljust(room))
        row.append(
            " " + ", ".join([step_text(at), *speed_texts(at)]) if followed.state == "training" else f" {step_text(at)}"
        )
        rows.append(fit(row, width))
        alarms += [(followed.name, check) for check in check_run(followed.run) if check.is_alarm]
    num_done = sum(followed.state == "finished" for followed in runs)
    head = Text(f"{num_done} of {len(runs)} runs done", "bold")
    key = Text("done and held-out accuracy; ✓ done  ▶ training  ■ stopped", "dim")
    below = [line for name, check in alarms for line in wrapped(_alarm(check, name), width)]
    lines = [head, *wrapped(key, width), Text(), *rows]
    return [*lines, Text(), *below][:height] if below else lines[:height]


def _head(followed: FollowedRun, at: Standing, width: int) -> list[Text]:
    name = Text(cut(followed.name, max(10, width // 2)), "bold")
    state = Text.assemble(name, "  ", (state_text(followed, at), "" if not at.is_quiet else "bold red"))
    lines = wrapped(state, width)
    text = Text(", ".join([step_text(at), *speed_texts(at)]))
    if at.share is not None and followed.state != "finished":
        filled = round(16 * at.share)
        text = Text.assemble(("━" * filled, "bold"), ("─" * (16 - filled), "dim"), f" {at.share:.0%}  ", text)
    notes = [line for note in followed.run.notes for line in wrapped(Text(one_line(note), "dim"), width)]
    return lines + wrapped(text, width) + notes


def _curves(run: Run, width: int, height: int, is_wide: bool) -> list[Text]:
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
        if (last := last_known(y)) is not None:
            head.append(f" ━ {name} {y_text(last)}", style)
    known = [y[np.isfinite(y)] for _, y, *_ in lines]
    values = np.concatenate([np.empty(0), *known])
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    size = max(1.0, abs(high))
    if high - low < 1e-9 * size:
        low, high = low - 0.5 * size, high + 0.5 * size
    plot = curve([(x, y, style) for x, y, style, _ in lines], width - _LABEL - 1, height, (low, high))
    labels = {0: y_text(high), height - 1: y_text(low)}
    rows = [Text.assemble((labels.get(i, "").rjust(_LABEL), "dim"), ("│", "dim"), row) for i, row in enumerate(plot)]
    ends = np.concatenate([np.empty(0), *(x[np.isfinite(x)] for x, *_ in lines)])
    begin, end = (x_text(float(ends.min())), x_text(float(ends.max()))) if ends.size else ("", "")
    axis = Text(" " * (_LABEL + 1) + begin + end.rjust(width - _LABEL - 1 - len(begin)), "dim")
    return [fit(line, width) for line in (head, *rows, axis)]


def _checks(run: Run, width: int) -> list[Text]:
    checks = check_run(run)
    above = [check for check in checks if check.is_above]
    if above:
        return [line for check in above for line in wrapped(_alarm(check), width)]
    known = [f"{check.name} {_value(check, check.value)}" for check in checks if check.value is not None]
    return wrapped(Text.assemble(("✓ no warning: ", "bold"), (", ".join(known), "dim")), width) if known else []


def _alarm(check: HealthCheck, name: str = "") -> Text:
    if check.is_solved:
        return Text.assemble(("✓ solved", "bold"), f": {check.advice}")
    value, limit = _value(check, check.value), _value(check, check.limit)
    head = f"▲ {name + ': ' if name else ''}{check.name}: {value} (limit {limit})"
    return Text.assemble((head, "bold red"), f"; {check.advice}")


def _value(check: HealthCheck, value: float | None) -> str:
    return numbers.percent(value).replace(" ", "") if check.is_share else numbers.number(value)
