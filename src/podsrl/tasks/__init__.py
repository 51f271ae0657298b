"""Where questions come from: the options of the config's task section become a `TaskSet`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from inspect import Parameter, signature
from typing import Any, Literal

from podsrl.config.schema import TaskConfig
from podsrl.errors import UsageError
from podsrl.lib.options import check_options, parameters_of
from podsrl.lib.resolve import Table, resolve
from podsrl.lib.user_function import calling
from podsrl.tasks.base import TaskSet
from podsrl.tasks.chat import SYSTEM_PROMPTS, ask
from podsrl.tasks.split import MOST_HELD_OUT, held_apart
from podsrl.tasks.stream import Stream, task_indices

__all__ = ["MOST_HELD_OUT", "SYSTEM_PROMPTS", "TASKS", "Loader", "Stream", "TaskSet", "load_tasks", "task_indices"]

Loader = Callable[..., TaskSet]
"""Takes the options it reads as keyword parameters, under the names of `load_tasks`; its other keyword-only parameters
are its own options, `[options.NAME]`."""

TASKS: Table[Loader] = Table(
    {
        "arithmetic": "podsrl.tasks.arithmetic:load_arithmetic",
        "columns": "podsrl.tasks.columns:load_columns",
        "steps": "podsrl.tasks.steps:load_steps",
        "functions": "podsrl.tasks.functions:load_functions",
        "gsm8k": "podsrl.tasks.gsm8k:load_gsm8k",
        "math": "podsrl.tasks.math:load_math",
        "math500": "podsrl.tasks.math:load_math500",
        "svamp": "podsrl.tasks.svamp:load_svamp",
        "jsonl": "podsrl.tasks.jsonl:load_jsonl",
        "hub": "podsrl.tasks.hub:load_hub",
        "reasoning_gym": "podsrl.integrations.reasoning_gym:load_reasoning_gym",
    }
)
"""Name of a task set, as in `task.name` -> its loader."""

_DEFAULT = TaskConfig()
_PATH_CURES = {"jsonl": "set task.path to a file", "hub": "set task.path to a data set's name on the hub"}


def load_tasks(
    name: str,
    *,
    path: str | None = None,
    eval_path: str | None = None,
    subset: str | None = None,
    train_split: str | None = None,
    eval_split: str | None = None,
    prompt_column: str = _DEFAULT.prompt_column,
    answer_column: str = _DEFAULT.answer_column,
    digits: int | Sequence[int] = _DEFAULT.digits,
    levels: Mapping[int, float] | None = None,
    chat: bool | None = None,
    system_prompt: str | None = None,
    special_tokens: Literal["text", "tokens"] = _DEFAULT.special_tokens,
    num_eval: int | None = None,
    seed: int = 0,
    own: Mapping[str, Any] | None = None,
) -> TaskSet:
    """Load a task set by name.

    A loader reads the options that its signature names. An option that it does not name must keep its default; only
    `seed` may differ, because it belongs to the whole run. `chat`, `system_prompt` and `special_tokens` are applied to
    what the loader returns. All defaults are those of `TaskConfig`.

    Args:
        name: a known set (`TASKS`), or "module:function" for a loader of your own, for example
            `def load(*, path: str, num_eval: int, seed: int) -> TaskSet`.
        path: see `load_jsonl`, `load_hub` and `load_published`.
        eval_path, prompt_column, answer_column: see `load_jsonl`.
        subset, train_split, eval_split: see `load_hub`.
        digits: see `load_arithmetic`.
        levels: see `load_steps`.
        chat, system_prompt, special_tokens: see `ask`.
        num_eval: held-out questions; 0: all of the set's own test split; None: see `TaskConfig.num_eval`.
        seed: of the run, at least 0.
        own: options that only this loader has, `[options.NAME]`.

    Raises:
        UsageError: unknown name, or a file in its place; an option that the set does not read; a missing `path`; a
            system prompt without chat; an id in both parts (in one that is made on demand, when it is read); or what
            the loader finds.

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
        "levels": levels,
        "num_eval": num_eval,
        "seed": seed,
    }
    if name.endswith(".jsonl"):
        raise UsageError(f"task.name = '{name}' is a file: set task.name = 'jsonl' and task.path = '{name}'")
    loader = resolve(name, TASKS, option="task.name", kind="task set", wanted="a function that returns a TaskSet")
    read = _options_read(name, loader, options)
    read |= check_options(loader, own or {}, where=f"options.{name}", given=tuple(options))
    with calling(f"task.name = '{name}'") if name not in TASKS else nullcontext():
        tasks = loader(**read)
    if not isinstance(tasks, TaskSet):
        raise UsageError(f"task.name = '{name}' returned a {type(tasks).__name__}; wanted a podsrl.tasks.TaskSet")
    return held_apart(ask(tasks, chat=chat, system_prompt=system_prompt, special_tokens=special_tokens))


def _options_read(name: str, loader: Loader, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a loader reads. A loader of the user's own gets a number of held-out questions in any case."""
    parameters = parameters_of(loader, where=f"task.name = '{name}'")
    takes_all = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    if not takes_all:
        _check_parameters(name, parameters, options)
    read = {key: value for key, value in options.items() if takes_all or key in parameters}
    if name not in TASKS and read.get("num_eval", 0) is None:
        read["num_eval"] = MOST_HELD_OUT
    return read


def _check_parameters(name: str, parameters: Mapping[str, Parameter], options: Mapping[str, Any]) -> None:
    if strange := [key for key, parameter in parameters.items() if key not in options and _is_missing(parameter)]:
        raise UsageError(f"task.name = '{name}' wants {strange}; a loader can be given {list(options)}")
    defaults = signature(load_tasks).parameters
    for key, value in options.items():
        if key not in parameters and key != "seed" and value != defaults[key].default:
            others = ", ".join(other for other, loader in TASKS.items() if key in signature(loader).parameters)
            raise UsageError(
                f"task.{key} = {value!r}, but task set '{name}' does not read task.{key}: leave it out, or set "
                f"task.name to one that does ({others})"
            )
    if "path" in parameters and _is_required(parameters["path"]) and options["path"] is None:
        raise UsageError(f"task.path is not set, but task set '{name}' reads it: {_PATH_CURES.get(name, 'set it')}")


def _is_missing(parameter: Parameter) -> bool:
    return _is_required(parameter) and parameter.kind is not Parameter.KEYWORD_ONLY  # else an option of its own


def _is_required(parameter: Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind is not Parameter.VAR_POSITIONAL
