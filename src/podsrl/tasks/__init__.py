"""Where questions come from. Goes in: the options of the config's task section. Comes out: a `TaskSet`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

from podsrl.errors import UsageError, nearest
from podsrl.lib.user_function import import_function
from podsrl.tasks.arithmetic import load_arithmetic
from podsrl.tasks.base import TaskSet
from podsrl.tasks.chat import SYSTEM_PROMPTS, ask
from podsrl.tasks.gsm8k import load_gsm8k
from podsrl.tasks.hub import load_hub
from podsrl.tasks.jsonl import load_jsonl
from podsrl.tasks.math import load_math, load_math500
from podsrl.tasks.split import MOST_HELD_OUT
from podsrl.tasks.stream import Stream, task_indices
from podsrl.tasks.svamp import load_svamp

__all__ = ["MOST_HELD_OUT", "SYSTEM_PROMPTS", "TASKS", "Loader", "Stream", "TaskSet", "load_tasks", "task_indices"]

Loader = Callable[..., TaskSet]
"""Takes the options it reads as keyword parameters, under the names of `load_tasks`, and no others."""

TASKS: dict[str, Loader] = {
    "arithmetic": load_arithmetic,
    "gsm8k": load_gsm8k,
    "math": load_math,
    "math500": load_math500,
    "svamp": load_svamp,
    "jsonl": load_jsonl,
    "hub": load_hub,
}

_PATH_CURES = {"jsonl": "set task.path to a file", "hub": "set task.path to a data set's name on the hub"}


def load_tasks(
    name: str,
    *,
    path: str | None = None,
    eval_path: str | None = None,
    subset: str | None = None,
    train_split: str | None = None,
    eval_split: str | None = None,
    prompt_column: str = "question",
    answer_column: str = "answer",
    digits: int = 2,
    chat: bool | None = None,
    system_prompt: str | None = None,
    special_tokens: Literal["text", "tokens"] = "text",
    num_eval: int | None = None,
    seed: int = 0,
) -> TaskSet:
    """Load a task set by name.

    A loader reads the options that its signature names. An option it does not name may not be changed from its default;
    only `seed` may, because it belongs to the whole run. `chat`, `system_prompt` and `special_tokens` are
    applied to what it returns.

    Args:
        name: of a known set (`TASKS`), or "module:function" for a loader of your own, for example
            `def load(*, path: str, num_eval: int, seed: int) -> TaskSet`.
        path: see `load_jsonl`, `load_hub` and `load_published`; for `eval_path` the first.
        subset, train_split, eval_split: see `load_hub`.
        prompt_column, answer_column: see `load_jsonl`.
        digits: see `load_arithmetic`.
        chat, system_prompt, special_tokens: see `ask`.
        num_eval: held-out questions; 0: all of the set's own test split; None: see `TaskConfig.num_eval`.
        seed: of the run, at least 0.

    Raises:
        UsageError: unknown name, an option that the set does not read, a missing `path`, a system prompt without chat,
            or what the loader finds.

    Example:
        >>> load_tasks("arithmetic", digits=1, num_eval=4).train[0].prompt
        'What is 1 + 1?\\n'
    """
    options = {
        "path": path,
        "eval_path": eval_path,
        "subset": subset,
        "train_split": train_split,
        "eval_split": eval_split,
        "prompt_column": prompt_column,
        "answer_column": answer_column,
        "digits": digits,
        "num_eval": num_eval,
        "seed": seed,
    }
    loader = TASKS[name] if name in TASKS else _import_loader(name)
    tasks = loader(**_options_read(name, loader, options))
    if not isinstance(tasks, TaskSet):
        raise UsageError(f"task.name = '{name}' returned a {type(tasks).__name__}; wanted a podsrl.tasks.TaskSet")
    return ask(tasks, chat=chat, system_prompt=system_prompt, special_tokens=special_tokens)


def _options_read(name: str, loader: Loader, options: Mapping[str, Any]) -> dict[str, Any]:
    try:
        parameters = inspect.signature(loader).parameters
    except ValueError as error:  # some functions written in C
        raise UsageError(f"task.name = '{name}': {error}; wanted a Python function that returns a TaskSet") from error
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return _in_numbers(name, options)
    if strange := [key for key, parameter in parameters.items() if key not in options and _is_required(parameter)]:
        raise UsageError(f"task.name = '{name}' wants {strange}; a loader can be given {list(options)}")
    defaults = inspect.signature(load_tasks).parameters
    for key, value in options.items():
        if key not in parameters and key != "seed" and value != defaults[key].default:
            raise UsageError(f"task.{key} = {value!r}, but task set '{name}' does not read task.{key}: leave it out")
    if "path" in parameters and _is_required(parameters["path"]) and options["path"] is None:
        raise UsageError(f"task.path is not set, but task set '{name}' reads it: {_PATH_CURES.get(name, 'set it')}")
    return _in_numbers(name, {key: value for key, value in options.items() if key in parameters})


def _in_numbers(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, where a loader of the user's own gets a number of held-out questions in any case."""
    is_open = name not in TASKS and options.get("num_eval", 0) is None
    return {**options, "num_eval": MOST_HELD_OUT} if is_open else dict(options)


def _is_required(parameter: inspect.Parameter) -> bool:
    has_many = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    return parameter.default is parameter.empty and not has_many


def _import_loader(name: str) -> Loader:
    if ":" not in name:
        raise UsageError(f"task.name = '{name}' is unknown.{nearest(name, TASKS)} Your own loader: 'module:function'")
    return import_function(name, where=f"task.name = '{name}'", wanted="a function that returns a TaskSet")
