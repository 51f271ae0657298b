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
    figure = new_figure(10, 2.9)
    panel = figure.subplots()
    for row, (question, right) in enumerate(RIGHT.items()):
        rewards = [float(i in right) for i in range(NUM_ROLLOUTS)]
        kept = max_variance(torch.tensor(rewards), NUM_KEPT).tolist()
        _draw_row(panel, -row, question, rewards, kept)
    panel.text(7.5, 1.0, f"generate n = {NUM_ROLLOUTS} rollouts per question, score each", TEXT, ha="center")
    panel.text(22.5, 1.0, f"keep the m = {NUM_KEPT}\nwhose rewards vary most", TEXT, ha="center", va="center")
    panel.annotate("", (28.2, -1), (25.4, -1), arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.5})
    panel.text(28.6, -1, "update\nthe policy", TEXT, va="center", fontweight="bold")
    for x, colour, label in ((0, KEPT_RIGHT, "kept, correct"), (6.4, KEPT_WRONG, "kept, wrong")):
        panel.scatter(x, -2.95, s=90, color=colour)
        panel.text(x + 0.6, -2.95, label, TEXT, va="center")
    panel.scatter([13.0, 13.9], [-2.95] * 2, s=90, facecolors=[DROPPED, PAPER], edgecolors=DROPPED, linewidths=1.5)
    panel.text(14.6, -2.95, "dropped: correct, wrong", TEXT, va="center")
    panel.set(xlim=(-5, 33), ylim=(-3.3, 1.6))
    panel.axis("off")
    save_svg(figure, Path(__file__).with_suffix(".svg"))


def _draw_row(panel: Axes, y: float, question: str, rewards: list[float], kept: list[int]) -> None:
    panel.text(-0.9, y, question, TEXT, ha="right", va="center")
    for i, reward in enumerate(rewards):
        colour = (KEPT_RIGHT if reward else KEPT_WRONG) if i in kept else DROPPED
        face = colour if reward or i in kept else PAPER
        panel.scatter(i, y, s=90, facecolors=face, edgecolors=colour, linewidths=1.5)
    panel.annotate("", (19.8, y), (16.2, y), arrowprops={"arrowstyle": "-|>", "color": DROPPED, "lw": 1.2})
    for place, i in enumerate(kept):
        panel.scatter(20.8 + 1.1 * place, y, s=90, color=KEPT_RIGHT if rewards[i] else KEPT_WRONG)


if __name__ == "__main__":
    main()
