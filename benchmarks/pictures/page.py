"""The ten pictures of docs/pictures.md, and what their captions say: every number of that page."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure

from benchmarks import command
from benchmarks.figures.markdown import NOT_MEASURED, newest, percent
from benchmarks.files import Files, Result, read_all
from benchmarks.paired import over_text
from benchmarks.pictures import draw
from podsrl.report.figures.svg import save_svg

FOLDER = command.ROOT / "docs" / "images" / "pictures"
CSS_PIXELS_PER_INCH = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A drawing with its caption."""

    draw: Callable[[Result], Figure]
    """Its name is that of the file, and its docstring is shown where no picture is."""
    caption: Callable[[Result], str]
    benchmark: str = "pictures"
    """Whose result both read."""
    group: str | None = None
    """Of that result, what both read; None: all of it."""

    def data(self, files: Files) -> Result | None:
        """What is drawn, of the newest result."""
        result = newest(files(self.benchmark))
        return result if result is None or self.group is None else result[self.group]


def part(files: Files, name: str) -> str:
    """A picture of the page with its caption."""
    picture = PICTURES[name]
    data = picture.data(files)
    if data is None:
        return NOT_MEASURED
    instead = (picture.draw.__doc__ or "").splitlines()[0].removesuffix(".")
    return f"![{instead}](images/pictures/{name}.svg)\n\n*{picture.caption(data)}*"


def publish(result: Result) -> None:
    """Draw all pictures, those of other benchmarks from their newest results."""
    FOLDER.mkdir(exist_ok=True)
    for name, picture in PICTURES.items():
        data = picture.data(lambda asked: {"": result} if asked == "pictures" else read_all(asked))
        if data is not None:
            save_svg(picture.draw(data), FOLDER / f"{name}.svg", pixels_per_inch=CSS_PIXELS_PER_INCH)


def captions(result: Result) -> str:
    """What the pictures of a result say, for a terminal."""
    own = [picture for picture in PICTURES.values() if picture.benchmark == "pictures"]
    return "\n".join(picture.caption(result[picture.group] if picture.group else result) for picture in own)


def _question(shown: Result) -> str:
    return f"The prompt, in step {shown['step']} of the run, and the first answer of each kind."


def _answers(shown: Result) -> str:
    return f"What each of the {len(shown['texts'])} answers says, in the order of sampling. Which are correct?"


def _rewards(shown: Result) -> str:
    counts = sorted(Counter(map(float, shown["rewards"])).items(), reverse=True)
    each = ", ".join(f"{count} × {reward:g}" for reward, count in counts)
    return f"{sum(shown['correct'])} of {len(shown['texts'])} are correct. Rewards: {each}."


def _sort(shown: Result) -> str:
    return "Each dot is an answer, placed by its reward and by the rank of its reward."


def _split(shown: Result) -> str:
    best, m = draw.best_split(shown), len(shown["kept"])
    variance = max(draw.split_variances(shown["rewards"], m))
    return f"Full dots are kept: {best} from the top and {m - best} from the bottom, with a variance of {variance:.3f}."


def _advantages(shown: Result) -> str:
    found = {shown["rewards"][i]: value for i, value in draw.kept_advantages(shown).items()}
    each = ", ".join(f"{reward:g} → {value:+.2f}" for reward, value in sorted(found.items(), reverse=True))
    return f"Reward → advantage: {each}.".replace("-", "−")


def _update(shown: Result) -> str:
    factors: dict[int, list[float]] = {}
    for i, way in enumerate(draw.ways(shown)):
        factors.setdefault(way, []).append(draw.factor(shown, i))
    each = (
        f"{draw.WAYS[way]} {statistics.median(own):.2f}×".replace("\n", " ") for way, own in sorted(factors.items())
    )
    return f"Full dots were trained on. Medians: {'; '.join(each)}."


def _ends(result: Result) -> str:
    n, m = len(result["rare"]["texts"]), len(result["rare"]["kept"])
    odds = f"a random choice of {m} contains the odd one out with a probability of {percent(m / n)}"
    return f"Full dots are kept, {m} of {n}; {odds}."


def _costs(demo: Result) -> str:
    few, some, all_ = (draw.stages(demo, arm) for arm in ("grpo", "pods", "grpo_ga"))
    generate, update = some["generate"] - few["generate"], all_["update"] - some["update"]
    return (
        f"Generating 64 answers per prompt instead of 16 takes {generate:.2f} s more per step; training on all 64 "
        f"takes {update:.2f} s more than on 16 of them. Eight prompts per step; {demo['processor']}, one thread."
    )


def _limits(found: Result) -> str:
    rare = over_text(draw.speedup(found, "0.9%", 0.04))
    return (
        "How many times sooner PODS 64 → 16 answers 90 % correctly than GRPO 16 → 16, in CPU seconds, with 95 % "
        f"intervals. From 0.9 % correct, with a KL penalty: {rare}."
    )


PICTURES = {
    picture.draw.__name__: picture
    for picture in (
        Picture(draw=draw.question, caption=_question, group="shown"),
        Picture(draw=draw.answers, caption=_answers, group="shown"),
        Picture(draw=draw.rewards, caption=_rewards, group="shown"),
        Picture(draw=draw.sort, caption=_sort, group="shown"),
        Picture(draw=draw.split, caption=_split, group="shown"),
        Picture(draw=draw.advantages, caption=_advantages, group="shown"),
        Picture(draw=draw.update, caption=_update, group="shown"),
        Picture(draw=draw.ends, caption=_ends),
        Picture(draw=draw.costs, caption=_costs, benchmark="demo"),
        Picture(draw=draw.limits, caption=_limits, benchmark="when-pods-helps"),
    )
}
"""Name -> picture, in the order of the page."""
