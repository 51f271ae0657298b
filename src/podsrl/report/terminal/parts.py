"""Parts of the picture of `pods watch`: bars of time and tokens, and the newest recorded group."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from rich.console import Console
from rich.text import Text

from podsrl.errors import one_line
from podsrl.lib.stages import FATES, OTHER, SHOWN_STAGES
from podsrl.report import facts, numbers
from podsrl.report.read import Run
from podsrl.report.terminal.curve import block
from podsrl.run.group_log import RecordedGroup, RecordedRollout

_MAX_STRIPS = 3
"""Rows of bars that a group may take."""
_STAGE_COLORS = dict(zip((*SHOWN_STAGES, OTHER), ("cyan", "yellow", "magenta", "green", "red", "white"), strict=True))
_TOKEN_COLORS = dict(zip(FATES, ("magenta", "white", "yellow", "red", "cyan"), strict=True))
_PLAIN_CONSOLE = Console(width=80)


def draw_bars(run: Run, width: int) -> list[Text]:
    """Where a step's time goes, and what became of the generated tokens."""
    if not run.steps:
        return []
    stages, tokens = run.stage_seconds(), run.tokens()
    total = sum(stages.values())
    fates = {name: float(tokens[name]) for name in FATES}
    kept = run.option("select.num_kept")
    rule = f", {numbers.kept(kept)} of {run.option('rollouts.num_rollouts')} kept per question" if kept else ""
    time_bar, short_stages = _bar(stages, _STAGE_COLORS, width)
    token_bar, short_fates = _bar(fates, _TOKEN_COLORS, width)
    return [
        fit(Text.assemble((f"time of a step: {numbers.seconds(total)}", "bold"), (short_stages, "dim")), width),
        time_bar,
        fit(Text.assemble(("generated tokens", "bold"), one_line(rule), (short_fates, "dim")), width),
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


def draw_group(group: RecordedGroup, rule: str, width: int) -> list[Text]:
    """The newest recorded group: a bar per rollout, highest reward first, and what became of three of them."""
    sums = facts.group_summary(group)
    counts = f"{sums['num_kept']} of {sums['num_rollouts']} kept by {rule}, {sums['num_correct']} right"
    head = Text.assemble((f"newest recorded group: step {group.step}, {cut(one_line(group.question), 40)}", "bold"))
    strip = facts.reward_strip(group)
    lines = wrapped(head.append(f": {one_line(counts)}"), width)
    for start in range(0, min(len(strip), _MAX_STRIPS * width), width):
        bars, marks = Text(no_wrap=True), Text(no_wrap=True)
        for percent, is_kept in strip[start : start + width]:
            bars.append(block(percent), "bold magenta" if is_kept else "dim")
            marks.append("●" if is_kept else "·", "bold magenta" if is_kept else "dim")
        lines += [bars, marks]
    if len(strip) > _MAX_STRIPS * width:
        lines.append(Text(f"… and {len(strip) - _MAX_STRIPS * width} more rollouts", "dim"))
    return lines + [fit(_rollout(rollout, is_short=width < 60), width) for rollout in _examples(group)]


def _examples(group: RecordedGroup) -> list[RecordedRollout]:
    """The best and the worst of the kept, and the best of the dropped."""
    kept = [rollout for rollout in group.by_reward() if rollout.is_kept]
    dropped = [rollout for rollout in group.by_reward() if not rollout.is_kept]
    return [*kept[:1], *kept[1:][-1:], *dropped[:1]]


def _rollout(rollout: RecordedRollout, is_short: bool) -> Text:
    reason = rollout.invalid_reason or rollout.drop_reason or "no reason recorded"
    fate = "● kept" if rollout.is_kept else f"· dropped, {reason.replace('_', ' ')}"
    values = f" {'' if is_short else ' reward '}{numbers.number(rollout.reward)}"
    values += f", advantage {numbers.signed(rollout.mean_advantage)}" if rollout.is_kept and not is_short else ""
    values += f", asked: {one_line(rollout.origin.replace('_', ' '), 40)}" if rollout.origin and not is_short else ""
    style = "bold magenta" if rollout.is_kept else ""
    return Text.assemble((one_line(fate, 60), style), (values + "  ", "dim"), one_line(rollout.text, 300))


def wrapped(text: Text, width: int) -> list[Text]:
    lines = list(text.wrap(_PLAIN_CONSOLE, width)) or [text]
    for line in lines:
        line.rstrip()
    return lines


def fit(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    text.no_wrap = True
    return text


def cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
