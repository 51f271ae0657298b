"""How alike the texts of steps are, without a model: the cosine of their counts of three characters in a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]


def likeness(texts: Sequence[str]) -> Matrix:
    """[L, L] cosines of L texts, 0 .. 1; an empty text is like no other.

    Example:
        >>> likeness(["47+5", "47+5=52", ""]).round(2).tolist()
        [[1.0, 0.57, 0.0], [0.57, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    counts = [Counter(f" {text} "[i : i + 3] for i in range(len(text))) for text in texts]
    column = {part: place for place, part in enumerate(dict.fromkeys(part for each in counts for part in each))}
    rows = np.zeros((len(texts), max(len(column), 1)))
    for row, each in zip(rows, counts, strict=True):
        row[[column[part] for part in each]] = list(each.values())
    lengths = np.linalg.norm(rows, axis=1)
    cosines: Matrix = rows @ rows.T / np.maximum(np.outer(lengths, lengths), 1)
    np.fill_diagonal(cosines, 1)
    return cosines


def clusters(texts: Sequence[str], distance: float) -> list[int]:
    """A cluster for each text: the nearest two are joined, by the mean distance 1 - cosine of their members, while that
    is at most `distance`.

    Example:
        >>> clusters(["47+5=52.", "47-5=42.", "47+5=52."], 0.05)
        [0, 1, 0]
    """
    away = 1 - likeness(texts)
    members = [[place] for place in range(len(texts))]
    while len(members) > 1:
        means = {
            (i, j): float(away[np.ix_(members[i], members[j])].mean()) for j in range(len(members)) for i in range(j)
        }
        (i, j), nearest = min(means.items(), key=lambda item: item[1])
        if nearest > distance:
            break
        members[i] += members.pop(j)
    cluster_of = {place: number for number, own in enumerate(sorted(members, key=min)) for place in own}
    return [cluster_of[place] for place in range(len(texts))]
