"""What is done from Python: `train`, `evaluate`, `compare`, `plan`, `check_reward`, and the `Run` of a run's folder.

They take the way of the commands of those names: the same checks, loop, folder and errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import typer

from podsrl.cli.check_reward import checks_of
from podsrl.cli.compare import reported_comparison
from podsrl.cli.console import new_folder, say
from podsrl.cli.evaluate import answers_of, target_of
from podsrl.cli.plan import measured_plan
from podsrl.cli.train import nothing_left, shown_run
from podsrl.config.load import as_overrides, load_comparison, load_config
from podsrl.config.schema import RunConfig
from podsrl.config.sections import CompareOptions, Named, Options, Rewards, Sections, TaskOptions
from podsrl.errors import UsageError
from podsrl.lib.user_function import GIVEN
from podsrl.plan.search import Plan
from podsrl.report.comparison import Comparison, read_comparison
from podsrl.report.html import write_report
from podsrl.report.read import Array, read_run
from podsrl.report.read import Run as Record
from podsrl.run.group_log import RecordedGroup
from podsrl.scale.launch import is_main_process
from podsrl.score.accuracy import Accuracy
from podsrl.tools.check_reward import RewardCheck


class Interrupted(KeyboardInterrupt):
    """`run` was asked to stop, by Ctrl-C or a notebook's stop button, and has finished its step and saved it."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"stopped, with a checkpoint; to go on: podsrl.Run({str(run.folder)!r}).resume()")
        self.run = run

    def _render_traceback_(self) -> list[str]:
        """What IPython prints."""
        return [str(self)]


class Run:
    """A run in its folder: what `train` gives, or an earlier one, `Run("runs/mine")`.

    Each call reads what the folder holds by then. Of several processes only the first needs the folder.

    Raises:
        UsageError: no run is there.

    Example:
        >>> run = Run("runs/mine")                                                      # doctest: +SKIP
        >>> run.curves()["eval/accuracy"][-1], run.groups[-1].by_reward()[0].text       # doctest: +SKIP
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._given = dict(GIVEN)  # as the run was trained with them, whatever gets their names later
        if is_main_process():
            self._read()

    def _read(self) -> Record:
        return read_run(self.folder)

    @property
    def config(self) -> RunConfig:
        """What the run was started with, or resumed."""
        return load_config(self.folder / "config.toml")

    @property
    def groups(self) -> tuple[RecordedGroup, ...]:
        """The recorded groups (`record.groups_every_steps`), oldest first; in a notebook each is a table."""
        return self._read().groups

    def curves(self) -> dict[str, Array]:
        """Every metric of docs/metrics.md by name, [rows] float64: one row per step, steps ascending.

        NaN stands where a step has no such number. What an evaluation measured stands with the step after which it did;
        step 0 is before training. `pandas.DataFrame(run.curves())` is a table.
        """
        record, by_step = self._read(), dict[float, dict[str, float]]()
        for line in (*record.evaluations, *record.steps):
            by_step.setdefault(line["step"], {}).update(line)
        rows = [by_step[step] for step in sorted(by_step)]
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: np.array([row.get(name, np.nan) for row in rows], dtype=np.float64) for name in names}

    def evaluate(
        self,
        *,
        task: str | None = None,
        num_questions: int = 0,
        out: str | Path | None = None,
        allow_changes: bool = False,
        **changes: Unpack[Sections],
    ) -> Accuracy:
        """Measure the newest checkpoint, as `podsrl.evaluate` does."""
        GIVEN.update(self._given)
        return evaluate(self, task=task, num_questions=num_questions, out=out, allow_changes=allow_changes, **changes)

    def report(self, out: str | Path | None = None) -> Path:
        """Write the page of `pods report`, report.html in the run's folder by default, and return its path."""
        return write_report([self.folder], out or self.folder / "report.html")

    def resume(self, *, allow_changes: bool = False, **changes: Unpack[Options]) -> Run:
        """Go on from the newest checkpoint, as `pods train --resume` does, and return this run.

        Args:
            allow_changes: go on although what the run reads has changed (data, chat template, tokenizer, weights of the
                start, files of own functions).
            changes: of options that do not change the run's numbers, such as `stop={"steps": 200}`.

        Raises:
            UsageError: an option that would change them, or a function that this process does not have.
            CheckpointError: there are checkpoints, and all are damaged.
            Interrupted: as of `train`.
        """
        GIVEN.update(self._given)
        overrides = as_overrides(changes)
        outcome, num_steps = shown_run(None, self.folder, overrides, allow_changes)
        if outcome == "finished" and num_steps == 0:
            say(nothing_left(self.folder, overrides))
        return _ended(self, outcome)

    def __repr__(self) -> str:
        record = self._read()
        percents = [f"{accuracy:.1%}" for accuracy in record.accuracy_curve()[1]]
        accuracy = [f"held-out accuracy {' → '.join((percents[0], percents[-1]))}"] if percents else []
        parts = (repr(str(self.folder)), record.state, f"{len(record.steps)} steps", *accuracy)
        return f"Run({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """The curves, for a notebook."""
        from podsrl.report.figures.run import curve_figures
        from podsrl.report.figures.svg import svg_image

        images = [svg_image(figure, name) for name, figure in curve_figures(self._read()).items()]
        return f"<p>{escape(repr(self))}</p>{''.join(images)}"


def train(
    config: str | Path | Mapping[str, Any] | RunConfig,
    *,
    out: str | Path | None = None,
    **changes: Unpack[Options],
) -> Run:
    """Train a model as `pods train` does, and return when the run has ended.

    Args:
        config: a recipe's name, a TOML file, a config, or the dict of one.
        out: folder for the run; default: runs/NAME-DATE-TIME.
        changes: as of `load_config`: `select={"num_kept": 8}`, `seed=1`. In place of the config's rewards `rewards`
            takes functions (docs/rewards.md) and names of rewards, each of weight 1, or with weights, {function:
            weight}. One that a notebook or script defines runs in this process, without time limit.

    Raises:
        UsageError: bad input, in the line that the command would print; nothing was written then.
        Interrupted: Ctrl-C, or a notebook's stop button.

    Example:
        >>> def brief(task, text):                                                      # doctest: +SKIP
        ...     return 1 / (1 + len(text))
        >>> run = train("pods", rewards={"correct": 1.0, brief: 0.1}, stop={"steps": 20})     # doctest: +SKIP
    """
    loaded = load_config(config, changes)
    name = Path(config).stem if isinstance(config, str | Path) else "run"
    folder = Path(out) if out is not None else new_folder(name)
    outcome, _ = shown_run(loaded, folder, [])
    return _ended(Run(folder), outcome)


def _ended(run: Run, outcome: str) -> Run:
    if outcome == "interrupted":
        raise Interrupted(run)
    return run


def evaluate(
    target: str | Path | Run,
    *,
    task: str | None = None,
    num_questions: int = 0,
    out: str | Path | None = None,
    allow_changes: bool = False,
    **changes: Unpack[Sections],
) -> Accuracy:
    """Measure held-out accuracy by sampling, as `pods eval` does.

    Args:
        target: a run or its folder (the newest checkpoint), a recipe or a TOML file (its base model), a model's folder,
            or its name on the hub.
        task: task set in place of the config's.
        num_questions: of the held-out ones, evenly spread over them; 0: all.
        out: a new file for all completions (JSONL).
        allow_changes: ask a run even questions that it may have been trained on.
        changes: of what an evaluation reads, as of `load_config`: `eval={"num_samples": 8}`.

    Raises:
        UsageError: no such target, or an option that no evaluation reads.
        KeyboardInterrupt: Ctrl-C, or a notebook's stop button.
    """
    name, path = str(target.folder if isinstance(target, Run) else target), None if out is None else Path(out)
    found = target_of(name, as_overrides(changes), task, path, allow_changes=allow_changes)
    answered = answers_of(found, num_questions, path)
    if not answered.is_whole:
        raise KeyboardInterrupt
    return answered.accuracy


def compare(
    config: str | Path | Mapping[str, Any],
    *,
    out: str | Path | None = None,
    **changes: Unpack[CompareOptions],
) -> Comparison:
    """Train several arms on the same seeds for the same time, and measure speed-ups, as `pods compare` does.

    Args:
        config: a recipe's name, a TOML file of arms, or the dict of one. Each run has a process of its own, so rewards
            and other functions stand in files (docs/python.md).
        out: folder for the comparison, which goes on where it holds this one; default: runs/NAME-DATE-TIME.
        changes: of the config: `num_seeds=3`, `base={"stop": {"seconds": 60}}`, `arms={"pods": {...}}`.

    Returns:
        What the folder holds: `speedups`, `gain` in words, `runs`, `curves()`. Its report.html is drawn.

    Raises:
        UsageError: bad input, in the line that the command would print.
        KeyboardInterrupt: Ctrl-C, or a notebook's stop button; every run has saved a checkpoint.
    """
    name = Path(config).stem if isinstance(config, str | Path) else "comparison"
    folder = Path(out) if out is not None else new_folder(name)
    try:
        reported_comparison(load_comparison(config, **changes), folder)
    except typer.Exit:  # its line says how to go on
        raise KeyboardInterrupt from None
    return read_comparison(folder)


def plan(
    config: str | Path | Mapping[str, Any] | RunConfig, *, measure: float = 60.0, **changes: Unpack[Options]
) -> Plan:
    """Suggest how many rollouts to generate and to keep on this machine, as `pods plan` does.

    Args:
        config: as of `train`.
        measure: seconds to measure, without loading.
        changes: as of `load_config`.

    Returns:
        `own` and `best` choice, all `candidates`, and the `flags` of the best: `load_config(config, found.flags)`.

    Raises:
        UsageError: bad input, in the line that the command would print.
    """
    return measured_plan(load_config(config, changes), measure)


def check_reward(
    completions: str | Path | Run,
    rewards: Rewards,
    *,
    correct: Named | None = None,
    workers: int = 0,
    timeout: float = 10.0,
) -> list[RewardCheck]:
    """Try rewards on stored completions before a run depends on them, as `pods check-reward` does.

    Args:
        completions: a file (JSONL), or a run, whose recorded groups are read.
        rewards: as of `train`.
        correct: which of them is compared with the labels; default: the first.
        workers: processes for rewards of one completion; 0: one per core.
        timeout: seconds that such a reward may take for one completion.

    Returns:
        What was found about each: `problems`, which would end a run, `warnings`, `agreement` with the labels, times.

    Raises:
        UsageError: no such file or reward, or a line of the file is none of a completion.
    """
    file = completions.folder / "groups.jsonl" if isinstance(completions, Run) else Path(completions)
    task: TaskOptions = {"rewards": rewards, "reward_workers": workers, "reward_timeout_seconds": timeout}
    if correct is not None:
        task["correct"] = correct
    checked = load_config(None, {"task": task}).task
    weights, limits = checked.rewards or {}, {"num_workers": workers, "timeout_seconds": timeout}
    if not weights:
        raise UsageError(f"rewards = {rewards!r}: wanted at least one reward, such as 'correct'")
    return checks_of(file, weights, checked.correct or next(iter(weights)), **limits)
