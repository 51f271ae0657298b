"""What `pods eval` can be pointed at: a run, a config, or a model alone; each becomes a config that only evaluates."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podsrl.config.files import read_tree, recipe_names
from podsrl.config.load import apply_overrides, build, with_values
from podsrl.config.schema import RolloutConfig, RunConfig, TaskConfig
from podsrl.errors import UsageError, nearest
from podsrl.run.saving.folder import wanted_run

if TYPE_CHECKING:
    from podsrl.run.saving.checkpoint import Checkpoint

Tree = dict[str, Any]

MODEL_DEFAULTS: Tree = {
    "rollouts": {"max_new_tokens": 512, "max_prompt_tokens": 2048},
    "eval": {"num_samples": 1, "temperature": 0.9},
}
"""For a model without a config: the token limit and the temperature of arXiv 2504.13818."""
MODEL_FILES = ("config.json", "adapter_config.json")
"""One of them is in every folder of a model, or of adapters."""
OWN_TEST_SPLIT = ("gsm8k", "math", "math500", "svamp")
"""Task sets of which all held-out questions are asked by default."""
NUM_SLOTS = 256
"""Rollouts at once where the config bounds neither them nor their memory: a test set's would be thousands."""
_OF_ANY_TASK = ("chat", "system_prompt", "reward_workers", "reward_timeout_seconds", "batch_timeout_seconds")
"""Options of the task section that stay when another task set is asked for."""
_FIXED_SPLIT = (*OWN_TEST_SPLIT, "arithmetic", "columns", "steps", "functions")
"""Task sets whose held-out questions no run is trained on, however many are asked."""
_NOT_OF_ROWS = {"chat", "system_prompt", "special_tokens", "num_eval"}
"""Options of the task section that, like those of rewards, do not say out of which rows questions are taken."""
READ_ROLLOUTS = (
    *("max_new_tokens", "max_prompt_tokens", "stop_strings", "num_slots", "kv_cache_bytes"),
    *("scheduler", "generator"),
)
"""Options of the rollouts section that an evaluation reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The model and questions of an evaluation."""

    config: RunConfig
    """Holds what an evaluation reads; everything that only training reads has its default."""
    adapters: Path | None = None
    """A checkpoint's adapters, which go into a base in 4 bits; otherwise `config.model` names all there is."""
    notes: tuple[str, ...] = ()
    """Lines to print before the evaluation."""


def find_target(name: str, overrides: Sequence[str], task: str | None = None, *, allow_changes: bool = False) -> Target:
    """Find out what `name` is.

    Args:
        name: a run's folder (its newest checkpoint), a recipe or a TOML file (its base model), or a model: a folder in
            Hugging Face or PEFT layout, a name on the hub, "builtin:NAME".
        task: a task set instead of the config's own.
        allow_changes: ask a run even questions that it may have been trained on; a note says so.

    Raises:
        UsageError: nothing by that name, a run without a checkpoint, one that may have been trained on the questions,
            or a model without a task set.
        CheckpointError: there are checkpoints, and all are damaged.
    """
    task = _task_name(task, overrides)
    folder = Path(name).expanduser()
    if (folder / "config.toml").is_file():
        return _run_target(folder, overrides, task, is_allowed=allow_changes)
    is_config = folder.is_file() or name in recipe_names()
    tree = read_tree(folder if folder.is_file() else name) if is_config else _model_tree(name, task)
    from podsrl.run.before.settle import settle  # imports torch

    config, notes = settle(build(RunConfig, apply_overrides(_with_task(tree, task), overrides), name))
    return Target(config=_for_evaluation(config), notes=notes)


def _task_name(task: str | None, overrides: Sequence[str]) -> str | None:
    """The wanted task set, however it was given."""
    pairs = [text.removeprefix("--").partition("=") for text in overrides]
    values = [value for key, _, value in pairs if key == "task.name"]
    if task is not None and values:
        raise UsageError(f"--task {task} and --task.name={values[0]} set the same value: keep one")
    return next((value.strip("\"'") for value in values), task)


def _run_target(folder: Path, overrides: Sequence[str], task: str | None, *, is_allowed: bool) -> Target:
    tree = read_tree(folder / "config.toml")
    trained = build(RunConfig, tree, str(folder))
    config = build(RunConfig, apply_overrides(_with_task(tree, task), overrides), str(folder))
    from podsrl.run.saving.checkpoint import load_newest  # imports torch

    checkpoint = load_newest(folder / "checkpoints")
    if checkpoint is None:
        raise UsageError(f"{folder}: has no checkpoint yet; let it train until it saves one")
    notes = [f"warning: {line}; using the checkpoint before it" for line in checkpoint.damaged]
    if doubt := _doubt(trained, config.task, checkpoint):
        if not is_allowed:
            raise UsageError(f"{doubt}, or ask them knowingly: --allow-changes")
        notes.append(f"warning: {doubt}")
    return Target(
        config=_of_checkpoint(config, checkpoint),
        adapters=checkpoint.model if config.model.load_in_4bit else None,
        notes=(*notes, f"evaluating {checkpoint.path}"),
    )


def _of_checkpoint(config: RunConfig, checkpoint: Checkpoint) -> RunConfig:
    if config.model.load_in_4bit:
        return _for_evaluation(config)
    config = with_values(config, model={"path": str(checkpoint.model), "revision": None})
    return _for_evaluation(config.model_copy(update={"lora": None}))


def _model_tree(name: str, task: str | None) -> Tree:
    is_folder = Path(name).expanduser().is_dir()
    is_local = name.startswith((".", "/", "~", "runs/"))
    if not is_folder and (is_local or ("/" not in name and not name.startswith(("builtin:", "package:")))):
        hint = nearest(name, recipe_names())
        cure = hint if "Did you mean" in hint else ""  # all names of recipes would hide what is wanted
        raise UsageError(
            f"pods eval {name}: no such folder, file or recipe, and a name on the hub has an owner, as in "
            f"Qwen/Qwen2.5-3B-Instruct.{cure}"
        )
    if is_folder and not any((Path(name).expanduser() / file).is_file() for file in MODEL_FILES):
        cure = wanted_run(Path(name).expanduser())
        raise UsageError(f"pods eval {name}: neither a run nor a model (it has no file config.json); {cure}")
    if task is None:
        raise UsageError(f"pods eval {name}: a model alone has no questions; name a task set, e.g. --task gsm8k")
    return {**MODEL_DEFAULTS, "model": {"path": name}}


def _with_task(tree: Tree, task: str | None) -> Tree:
    """The tree with another task set, and nothing left of the old one's own options."""
    section = tree.get("task", {})
    if task is None or task == section.get("name"):
        return tree
    kept = {key: value for key, value in section.items() if key in _OF_ANY_TASK}
    num_eval = {"num_eval": 0} if task in OWN_TEST_SPLIT else {}
    return {**tree, "task": {**kept, "name": task, **num_eval}}


def _rows(task: TaskConfig) -> Tree:
    """The options that say out of which rows questions are taken; one path may be written in several ways."""
    from podsrl.run.before.data import OF_REWARDS  # imports numpy

    path = None if task.path is None else str(Path(task.path).resolve())
    return {**task.model_dump(exclude={*OF_REWARDS, *_NOT_OF_ROWS}), "path": path}


def _doubt(trained: RunConfig, asked: TaskConfig, checkpoint: Checkpoint) -> str | None:
    """Why a run may have been trained on the questions, and the cure; None: it held them out, or has other data."""
    has_own_split = asked.name in _FIXED_SPLIT and not str(asked.path).endswith(".jsonl")
    has_own_split |= asked.eval_path is not None or (asked.name == "hub" and asked.eval_split is not None)
    if has_own_split or _rows(asked) != _rows(trained.task):
        return None
    inputs = checkpoint.state["inputs"]
    num_held_out = trained.task.num_eval or inputs["eval"]["questions"]  # else the data decided how many
    if (asked.num_eval or 0) > num_held_out:
        return (
            f"task.num_eval = {asked.num_eval}: the run held out {num_held_out} questions and was trained on the "
            "others; ask for no more"
        )
    change = _change(_of_checkpoint(trained, checkpoint), inputs)
    return change and (
        f"{checkpoint.path}: the data changed since then: {change}, so the run may have been trained on what is asked "
        "now; restore the data, name other questions"
    )


def _change(config: RunConfig, inputs: Any) -> str | None:
    """What differs between the questions that a run held out and those that its config holds out now."""
    from podsrl.run.before.data import load_task_set  # imports torch, as all of these
    from podsrl.run.before.offline import skip_unreachable_hub
    from podsrl.run.before.prepare import prepare
    from podsrl.run.saving.inputs import held_out_change

    skip_unreachable_hub(config.model, config.task)
    if held_out_change(inputs, load_task_set(config.task, config.options).eval) is None:
        return None
    with closing(prepare(config, is_trained=False)) as parts:  # leaves out long prompts, as the run did
        return held_out_change(inputs, parts.tasks.eval)


def _for_evaluation(config: RunConfig) -> RunConfig:
    rollouts = {name: getattr(config.rollouts, name) for name in READ_ROLLOUTS}
    if not rollouts["num_slots"] and not rollouts["kv_cache_bytes"]:
        rollouts["num_slots"] = NUM_SLOTS
    return RunConfig(
        seed=config.seed,
        threads=config.threads,
        model=config.model.model_copy(update={"gradient_checkpointing": False}),
        lora=config.lora if config.model.load_in_4bit else None,
        task=config.task,
        rollouts=RolloutConfig(**rollouts),
        eval=config.eval,
        options=_of_others(config),
    )


def _of_others(config: RunConfig) -> dict[str, dict[str, Any]]:
    """The options of the generator and of the task set."""
    from podsrl.generate import resolve_generator  # imports torch

    names = (resolve_generator(config.rollouts.generator, config.options).options_name, config.task.name)
    return {name: config.options[name] for name in names if name in config.options}
