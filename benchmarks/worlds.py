"""Tasks on which published claims are measured: of each, its arms, and when a run of one ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.cells import AUTO, DEAR, SIGNAL
from benchmarks.runs import Marks
from podsrl.config.files import Tree, merge, read_changes, read_tree
from podsrl.config.load import apply_overrides, build
from podsrl.config.schema import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What is compared: what a recipe changes of its base, and changes of our own, over the recipe of a world."""

    system: str = ""
    """A recipe of `systems/`; "": none."""
    changes: Sequence[str] = ()
    """section.key=value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A task, its arms and the bounds of a run."""

    recipe: str
    arms: Mapping[str, Arm]
    """Name -> arm, in the order of their worth; the first is what the others are compared with."""
    claims: Mapping[str, tuple[str, str]]
    """Arm -> the clock of its paper's claim over the first arm, and the claim."""
    marks: Marks
    """At the last accuracy a run ends."""
    rates: Sequence[float]
    """Of which each arm has its best; the middle one comes first."""
    cpu_seconds: float
    """Of training, at which a run is given up."""
    steps: int = 800
    """At which a run that tunes is."""
    changes: Sequence[str] = ()
    """Of the recipe, for all arms."""
    curves: Sequence[str] = ()
    """Arms that are drawn."""

    @property
    def baseline(self) -> str:
        """The first arm."""
        return next(iter(self.arms))

    @property
    def target(self) -> float:
        """The last accuracy."""
        return self.marks.targets[-1]

    def config(self, arm: str, rate: float, seed: int, *changes: str) -> RunConfig:
        """Of a run on one thread of the CPU, with further changes."""
        own = ("threads=1", 'model.device="cpu"', "stop.without_signal=0", *self.changes)
        system = self.arms[arm].system
        tree: Tree = merge(read_tree(self.recipe), read_changes(f"systems/{system}") if system else {})
        tree = apply_overrides(tree, [*own, *self.arms[arm].changes, *changes, f"optim.lr={rate}", f"seed={seed}"])
        return build(RunConfig, tree, "claims")


COSTS = ("costs.group_ms=263", "costs.rollout_ms=9.9", "costs.row_ms=23.75")
"""Of the recipe `steps` on one core of an AMD Zen 4, by `pods plan steps --write`."""


def _grpo(n: int) -> Arm:
    return Arm(changes=(f"rollouts.num_rollouts={n}", f"select.num_kept={n}"))


def _pods(n: int, m: int, *changes: str) -> Arm:
    rule = () if SIGNAL[0] in changes else ('select.rule="max_variance"',)
    return Arm(changes=(f"rollouts.num_rollouts={n}", f"select.num_kept={m}", *rule, *changes))


_ARMS: Mapping[str, Arm] = {
    "GRPO 16": _grpo(16),
    "GRPO 64": _grpo(64),
    "GRPO 4": _grpo(4),
    "PODS 64 → 16": _pods(64, 16),
    "auto": _pods(64, 16, *AUTO, *COSTS),
    "GRPO 8": _grpo(8),
    "GRPO 32": _grpo(32),
    "DAPO": Arm(system="dapo"),
    "DARS": Arm(system="dars", changes=("options.dars.most=64",)),
    "DARS + PODS": Arm(system="dars_pods"),
    "DOTS": Arm(system="dots"),
    "XRPO": Arm(system="xrpo"),
    **{f"PODS {n} → {m}": _pods(n, m) for n in (32, 64, 128) for m in (16, 8, 4) if (n, m) != (64, 16)},
    "GRPO 16 + max_signal": _pods(16, 16, *SIGNAL, *COSTS),
    "auto at g = 1": _pods(64, 16, *DEAR),
}
"""GRPO-GA 64 is GRPO 64: the library accumulates gradients by itself."""
STORIES = World(
    recipe="steps",
    arms=_ARMS,
    claims={
        "DAPO": ("step", "half of the steps"),
        "DARS": ("rollouts", "more from the same rollouts"),
        "DARS + PODS": ("cpu_seconds", "ours: DARS, with a cheaper update"),
        "DOTS": ("cpu_seconds", "less time to the same accuracy"),
        "XRPO": ("step", "up to 2.7 times fewer steps"),
        **dict.fromkeys((arm for arm in _ARMS if arm.startswith("PODS")), ("cpu_seconds", "1.7 to 3 times sooner")),
    },
    marks=Marks(targets=(0.5, 0.65, 0.75), growth=1.15, patience=5),
    rates=(3e-4, 1.5e-4, 6e-4),
    cpu_seconds=200.0,
    changes=("task.num_eval=256",),
    curves=("GRPO 4", "GRPO 16", "GRPO 64", "PODS 64 → 16", "auto"),
)
"""`builtin:steps`."""

_SYSTEMS: Mapping[str, tuple[str, tuple[str, str]]] = {
    "DAPO": ("dapo", ("step", "half of the steps")),
    "Reinforce-Ada": ("reinforce_ada", ("step", "1.1 to 3.6 points more")),
    "VIGOR": ("vigor", ("rollouts", "up to 2.3 times fewer rollouts")),
    "DUET": ("duet", ("tokens", "more from the same tokens")),
    "AERO": ("aero", ("cpu_seconds", "as accurate for 0.52 of the compute")),
    "POISE": ("poise", ("cpu_seconds", "as accurate for 0.75 of the time of DAPO")),
    "ARRoL": ("arrol", ("cpu_seconds", "1.6 to 1.7 times sooner")),
    "LATR": ("latr", ("step", "learns 2.3 times as fast")),
    "TRACE": ("trace", ("rollouts", "more mixed groups at equal rollouts")),
    "NudgeRL": ("nudgerl", ("rollouts", "as good as GRPO with 8 times the rollouts")),
    "ADHint": ("adhint", ("step", "more right answers")),
    "SEELE": ("seele", ("step", "more right answers")),
    "PODS 32 → 8": ("pods", ("cpu_seconds", "1.7 to 3 times sooner")),
    "Pilot-Commit": ("pilot_commit", ("rollouts", "1.5 to 1.9 times fewer rollouts, 2.3 to 4 than DAPO")),
    "APRIL": ("april", ("decode_steps", "1.2 to 1.4 times the tokens per second")),
}
"""Arm -> its recipe, and its claim."""
SUMS = World(
    recipe="mixed",
    arms={
        "GRPO 8": Arm(system="grpo"),
        **{arm: Arm(system=system) for arm, (system, _) in _SYSTEMS.items()},
        "auto": Arm(changes=("rollouts.num_rollouts=32", "select.num_kept=8", *AUTO)),
    },
    claims={arm: claim for arm, (_, claim) in _SYSTEMS.items()},
    marks=Marks(targets=(0.5, 0.65, 0.8), growth=1.15, patience=5),
    rates=(1.5e-4, 3e-4, 7.5e-5),
    cpu_seconds=60.0,
    steps=200,
)
"""Sums of one to three digits."""
WORLDS: Mapping[str, World] = {"stories": STORIES, "sums": SUMS}
