"""What `pods eval` can be pointed at: a run, a config, or a model alone; each becomes a config that only evaluates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podsrl.config.files import read_tree, recipe_names
from podsrl.config.load import apply_overrides, build, with_values
from podsrl.config.schema import RolloutConfig, RunConfig, TaskConfig
from podsrl.errors import UsageError, nearest
from podsrl.run.saving.folder import wanted_run

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


def find_target(name: str, overrides: Sequence[str], task: str | None = None) -> Target:
    """Find out what `name` is.

    Args:
        name: a run's folder (its newest checkpoint), a recipe or a TOML file (its base model), or a model: a folder in
            Hugging Face or PEFT layout, a name on the hub, "builtin:NAME".
        task: a task set instead of the config's own.

    Raises:
        UsageError: nothing by that name, a run without a checkpoint, or a model without a task set.
        CheckpointError: there are checkpoints, and all are damaged.
    """
    task = _task_name(task, overrides)
    folder = Path(name).expanduser()
    if (folder / "config.toml").is_file():
        return _run_target(folder, overrides, task)
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


def _run_target(folder: Path, overrides: Sequence[str], task: str | None) -> Target:
    tree = _with_task(read_tree(folder / "config.toml"), task)
    config = build(RunConfig, apply_overrides(tree, overrides), str(folder))
    trained = build(RunConfig, tree, str(folder)).task
    _check_held_out(trained, config.task, trained.num_eval)
    from podsrl.run.saving.checkpoint import load_newest  # imports torch

    checkpoint = load_newest(folder / "checkpoints")
    if checkpoint is None:
        raise UsageError(f"{folder}: has no checkpoint yet; let it train until it saves one")
    if trained.num_eval is None:  # the data decided how many
        _check_held_out(trained, config.task, checkpoint.state["inputs"]["eval"]["questions"])
    damaged = tuple(f"warning: {line}; using the checkpoint before it" for line in checkpoint.damaged)
    notes = (*damaged, f"evaluating {checkpoint.path}")
    if config.model.load_in_4bit:
        return Target(config=_for_evaluation(config), adapters=checkpoint.model, notes=notes)
    config = with_values(config, model={"path": str(checkpoint.model), "revision": None})
    return Target(config=_for_evaluation(config.model_copy(update={"lora": None})), notes=notes)


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


def _spelled_alike(task: TaskConfig) -> TaskConfig:
    """One path may be written in several ways."""
    return task if task.path is None else task.model_copy(update={"path": str(Path(task.path).resolve())})


def _check_held_out(trained: TaskConfig, asked: TaskConfig, num_held_out: int | None) -> None:
    """More held-out questions than the run had may be ones that it was trained on; None: not known yet."""
    if num_held_out is None or asked.num_eval is None:
        return
    is_own_split = asked.name in (*OWN_TEST_SPLIT, "arithmetic", "columns") and not str(asked.path).endswith(".jsonl")
    is_own_split |= asked.name == "hub" and asked.eval_split is not None
    is_own_split |= asked.eval_path is not None
    is_same_data = _spelled_alike(asked) == _spelled_alike(trained.model_copy(update={"num_eval": asked.num_eval}))
    if asked.num_eval > num_held_out and is_same_data and not is_own_split:
        raise UsageError(
            f"task.num_eval = {asked.num_eval}: the run held out {num_held_out} questions and was trained on the "
            "others; ask for no more"
        )


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
