"""What the papers of the systems report, and what was measured of it here: a table of docs/systems.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from benchmarks.figures.markdown import NOT_MEASURED, newest, percent, table, where
from benchmarks.files import Files, Result
from podsrl.compare.systems import needed


@dataclass(frozen=True, slots=True)
class Claim:
    """A paper's own figure."""

    system: str
    title: str
    reported: str
    """As the paper of the system's recipe reports it, on its own models and tasks."""
    cost: str
    """Of the comparison here, which comes nearest to it."""
    seen: Callable[[Seen], str]
    """What else was measured, and why it falls short, as far as that is known."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The newest results that the sentences below take their figures from."""

    systems: Result
    choosers: Result
    mass: Result

    def signal(self, system: str, name: str, digits: int = 0) -> str:
        """A share of a system's groups."""
        return percent(self.systems["signal"][system][name], digits)

    def accuracy(self, system: str) -> str:
        """At the end."""
        return percent(self.systems["last_accuracy"][system], 1)

    def steps(self, system: str) -> int:
        """Of the mean run."""
        own = self.systems["arms"][system]
        return int(
            self.systems["costs"]["rollouts"][system]["total"] / (own["num_prompts"] * own["num_rollouts"]) + 0.5
        )

    def simulated(self, arm: str, key: str, of: str = "stream") -> str:
        """Medians of an arm's ratios to another's with the same seeds, one per kind of questions."""
        found: dict[str, dict[str, list[float]]] = {}
        for case in self.choosers["cases"]:
            found.setdefault(case["population"], {})[case["arm"]] = case[key]
        both = ((by_arm[arm], by_arm[of]) for by_arm in found.values())
        medians = [median(a / b for a, b in zip(own, other, strict=True) if b) for own, other in both]
        return ", ".join(f"{value:.2f}×" for value in medians)

    def gaining(self, num_rollouts: int) -> str:
        """Share of random policies that gain by a step of plain GRPO's kind."""
        cases = self.mass["cases"]
        return percent(next(case["centred"] for case in cases if case["num_rollouts"] == num_rollouts))


CLAIMS = (
    Claim(
        "dapo",
        "DAPO",
        "half the steps",
        "steps",
        lambda seen: (
            f"{seen.signal('dapo', 'zero_signal')} of its groups have no signal, GRPO's "
            f"{seen.signal('grpo', 'zero_signal')}; "
            "the groups that are left out were generated too"
        ),
    ),
    Claim(
        "dars",
        "DARS",
        "more rollouts where few are right",
        "rollouts",
        lambda seen: (
            f"all-wrong groups in the first rollouts {seen.signal('dars', 'all_wrong_early')}, GRPO "
            f"{seen.signal('grpo', 'all_wrong_early')}. Simulated at equal rollouts: all-wrong groups "
            f"{seen.simulated('DARS', 'all wrong')} of the stream's, and "
            f"{seen.simulated('DARS, HW', 'all wrong')} with "
            '`mode = "HW"`'
        ),
    ),
    Claim(
        "dps",
        "DPS",
        "0.25 to 0.4 of the rollouts of dynamic sampling",
        "rollouts",
        lambda seen: (
            f"simulated, rollouts for as many mixed groups: {seen.simulated('DAPO', 'mixed groups', of='DPS')} of "
            "those of dynamic sampling. On the task a question's success probably changes with what other questions "
            "teach, which its own history does not show"
        ),
    ),
    Claim(
        "dots",
        "DOTS",
        "fewer steps",
        "steps",
        lambda seen: (
            f"groups without signal {seen.signal('dots', 'zero_signal')}, GRPO {seen.signal('grpo', 'zero_signal')}; "
            "its probes are rollouts too"
        ),
    ),
    Claim(
        "sgpo",
        "sGPO",
        "0.32 to 0.4 of the compute",
        "rollouts",
        lambda seen: (
            "the profile at the start, 8 probes of each question, costs as much as many steps of GRPO, and GRPO needs "
            f"{seen.systems['costs']['steps']['grpo']['to_target']:.0f} steps to the target"
        ),
    ),
    Claim(
        "brorl",
        "BroRL",
        "gains where more steps bring none",
        "rollouts",
        lambda seen: (
            f"the time is {seen.steps('brorl')} steps, from a model that is not saturated. The argument behind it "
            f"holds: {seen.gaining(4)} of random policies gain with 4 rollouts, {seen.gaining(512)} with 512"
        ),
    ),
    Claim(
        "gdro_prompts",
        "GDRO, prompts",
        "more right answers of hard questions",
        "rollouts",
        lambda seen: (
            f"{seen.accuracy('gdro_prompts')} right at the end, GRPO {seen.accuracy('grpo')}; not by difficulty"
        ),
    ),
    Claim(
        "gdro_rollouts",
        "GDRO, rollouts",
        "+10 % pass@8",
        "rollouts",
        lambda seen: (
            "it plays equal sizes until a question has been met, and here each is met a few times. Simulated: p(1-p) "
            f"per rollout {seen.simulated('GDRO rollouts', 'p(1-p)')} of the stream's"
        ),
    ),
    Claim(
        "xrpo",
        "XRPO",
        "2.7 times fewer steps",
        "steps",
        lambda seen: (
            f"{seen.accuracy('xrpo')} right at the end, GRPO {seen.accuracy('grpo')}: the base model was never shown "
            "examples and cannot use them; `--budget.guide=none` leaves them out. Simulated: p(1-p) per rollout "
            f"{seen.simulated('XRPO', 'p(1-p)')} of the stream's"
        ),
    ),
    Claim(
        "pods",
        "PODS",
        "1.7 to 3 times sooner",
        "seconds",
        lambda seen: (
            f"groups of 8 are mixed already here (GRPO without signal: {seen.signal('grpo', 'zero_signal')}), and an "
            "update of this model is cheap. [When PODS helps](when-pods-helps.md) has tasks on which it pays"
        ),
    ),
)


def papers(files: Files) -> str:
    """A row per system: what is reported, and what it needed here with the interval."""
    found = [newest(files(name)) for name in ("systems", "choosers", "mass-balance")]
    if None in found:
        return NOT_MEASURED
    seen = Seen(*(result for result in found if result is not None))
    rows = [
        [
            claim.title,
            claim.reported,
            f"{claim.cost} {text(seen.systems, claim)}",
            claim.seen(seen),
        ]
        for claim in CLAIMS
    ]
    head = ("system", "its paper reports", "needed here", "what else was seen")
    measured = "; ".join(dict.fromkeys(where(result) for result in found if result is not None))
    return f"{table(head, rows, num_left=len(head))}\n\nMeasured on {measured}."


def text(systems: Result, claim: Claim) -> str:
    """What the system needed of a cost, over what GRPO needed, with the interval."""
    found = needed(systems, claim.system, claim.cost)
    return found.text if found else "–"


PARTS: dict[str, Callable[..., str]] = {"systems-papers": papers}
