"""Draw docs/images/overview.svg: n rollouts per question are generated and scored, and the update sees m of them.

Run: python docs/images/overview.py        (always draws the same picture)
"""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib.axes import Axes

from podsrl.report.figures.svg import save_svg
from podsrl.report.figures.theme import INK, PAPER, SERIES, new_figure
from podsrl.select import max_variance

NUM_ROLLOUTS, NUM_KEPT = 16, 4
RIGHT = {"question 1": (3, 9), "question 2": (0, 2, 5, 6, 8, 11, 12, 14), "question 3": (7,)}
"""Which of a question's rollouts are correct: their reward is 1, that of the others 0."""
KEPT_RIGHT, KEPT_WRONG, DROPPED = SERIES[0], SERIES[1], "#bbbbbb"  # the colour-blind tell them apart
TEXT = {"fontsize": 11, "color": INK}


def main() -> None:
    figure = new_figure(6.4, 3.4)  # narrow, so that its text is legible on a phone
    panel = figure.subplots()
    for row, (question, right) in enumerate(RIGHT.items()):
        rewards = [float(i in right) for i in range(NUM_ROLLOUTS)]
        kept = max_variance(torch.tensor(rewards), NUM_KEPT).tolist()
        _draw_row(panel, -row, question, rewards, kept)
    panel.text(
        7.5, 1.0, f"generate n = {NUM_ROLLOUTS} rollouts\nper question, score each", TEXT, ha="center", va="center"
    )
    panel.text(20.6, 1.0, f"keep the m = {NUM_KEPT} whose\nrewards vary most", TEXT, ha="center", va="center")
    panel.annotate("", (20.6, -3.1), (20.6, -2.35), arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.5})
    panel.text(20.6, -3.35, "update the policy", TEXT, ha="center", va="center", fontweight="bold")
    for x, colour, label in ((-4.6, KEPT_RIGHT, "kept: correct"), (1.6, KEPT_WRONG, "wrong")):
        panel.scatter(x, -4.2, s=60, color=colour)
        panel.text(x + 0.6, -4.2, label, TEXT, va="center")
    panel.scatter([6.0, 7.0], [-4.2] * 2, s=60, facecolors=[DROPPED, PAPER], edgecolors=DROPPED, linewidths=1.5)
    panel.text(7.6, -4.2, "dropped: correct, wrong", TEXT, va="center")
    panel.set(xlim=(-5.4, 24.6), ylim=(-4.6, 1.6))
    panel.axis("off")
    save_svg(figure, Path(__file__).with_suffix(".svg"))


def _draw_row(panel: Axes, y: float, question: str, rewards: list[float], kept: list[int]) -> None:
    panel.text(-0.8, y, question, TEXT, ha="right", va="center")
    for i, reward in enumerate(rewards):
        colour = (KEPT_RIGHT if reward else KEPT_WRONG) if i in kept else DROPPED
        face = colour if reward or i in kept else PAPER
        panel.scatter(i, y, s=60, facecolors=face, edgecolors=colour, linewidths=1.5)
    panel.annotate("", (18.3, y), (15.8, y), arrowprops={"arrowstyle": "-|>", "color": DROPPED, "lw": 1.2})
    for place, i in enumerate(kept):
        panel.scatter(19.1 + 1.0 * place, y, s=60, color=KEPT_RIGHT if rewards[i] else KEPT_WRONG)


if __name__ == "__main__":
    main()
