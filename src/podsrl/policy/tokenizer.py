"""The tokenizer of a model, and prompts as tokens: plain text as it is, chat messages through the tokenizer's template.

Special tokens in the text of a data set are encoded as plain characters (`control_tokens`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import AutoConfig, AutoTokenizer

from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError
from podsrl.policy.adapter_folder import base_of, naming_base
from podsrl.policy.control_tokens import ControlTokens, control_tokens
from podsrl.policy.policy import Tokenizer
from podsrl.policy.render import Conversation, RenderError, render
from podsrl.policy.source import check_folder, code_options, has_tokenizer, model_folder, quiet_bars, reading
from podsrl.types import Task, TokenMarkup


def load_tokenizer(config: ModelConfig) -> Any:
    """Load the tokenizer of a model, with an end and a padding token.

    Args:
        config: names the model; a folder of adapters has its own tokenizer, or its base model's.

    Raises:
        UsageError: the folder does not exist, holds no model or no tokenizer; the hub has no such model or cannot be
            reached; the tokenizer names no end token, or has tokens beyond the model's.
    """
    base = base_of(config) or config
    own = config if base is config or has_tokenizer(model_folder(config.path)) else base
    with naming_base(config):
        check_folder(model_folder(base.path), base.path)
    options = code_options(base)
    with naming_base(config), reading(base), quiet_bars():
        model_config = AutoConfig.from_pretrained(model_folder(base.path), revision=base.revision, **options)
    with reading(own), quiet_bars():
        tokenizer = AutoTokenizer.from_pretrained(model_folder(own.path), revision=own.revision, **options)
        vocabulary = model_config.get_text_config().vocab_size
    if tokenizer.eos_token_id is None:
        raise UsageError(f"model.path = {config.path!r}: its tokenizer names no eos_token, so no answer would end")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    check_vocabulary(tokenizer, vocabulary, config.path)
    return tokenizer


def check_vocabulary(tokenizer: Tokenizer, num_rows: int, path: str) -> None:
    """UsageError: a token of the tokenizer has no row among the `num_rows` of the model's embedding."""
    token, number = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    for kind in ("pad_token", "eos_token"):
        if getattr(tokenizer, f"{kind}_id") >= num_rows:
            token, number = getattr(tokenizer, kind), getattr(tokenizer, f"{kind}_id")
    if number >= num_rows:
        raise UsageError(
            f"model.path = {path!r}: its tokenizer does not match: {token!r} is token {number}, but the model has "
            f"{num_rows} tokens; save the tokenizer that belongs to the model beside it"
        )


Ids = tuple[int, ...]


def prompt_ids(tokenizer: Tokenizer, task: Task) -> Ids:
    """A task's prompt as tokens; see `prompts_ids`."""
    return prompts_ids(tokenizer, [task])[0]


def prompts_ids(tokenizer: Tokenizer, tasks: Sequence[Task]) -> list[Ids]:
    """Token ids of the prompts of many tasks, with one call of the tokenizer per kind of prompt.

    Special tokens in the prompts are text, except in `TokenMarkup`. UsageError: a prompt is empty; the chat template is
    missing, rejects the messages, or takes more time or memory than allowed; a text holds special tokens that the
    tokenizer cannot encode as text.
    """
    control = control_tokens(tokenizer)
    texts = [i for i, task in enumerate(tasks) if isinstance(task.prompt, str)]
    chats = [i for i, task in enumerate(tasks) if not isinstance(task.prompt, str)]
    found = dict(zip(texts, _text_ids(tokenizer, control, [tasks[i] for i in texts]), strict=True))
    found |= dict(zip(chats, _chat_ids(tokenizer, control, [tasks[i] for i in chats]), strict=True))
    for i, task in enumerate(tasks):
        if not found[i]:
            raise UsageError(f"prompt of task {task.id!r} has 0 tokens: give it a text, or remove the task")
    return [found[i] for i in range(len(tasks))]


def special_token_in(tokenizer: Tokenizer, task: Task) -> tuple[str, bool] | None:
    """A special token whose text a question holds, and whether that text is encoded as plain characters.

    The system prompt of the config is not searched: its author may write special tokens.
    """
    control = control_tokens(tokenizer)
    for text in _texts(task):
        if token := control.find_token(text):
            return token, not isinstance(text, TokenMarkup)
    return None


def check_chat_template(tokenizer: Tokenizer, task: Task) -> None:
    """Check that a task's system prompt reaches the model.

    UsageError: the tokenizer has no chat template, or its template drops or rejects the system message.
    """
    if isinstance(task.prompt, str):
        return
    [rendered] = _rendered(tokenizer, [task], [task.prompt])
    for message in task.prompt:
        if message["role"] == "system" and message["content"].strip() not in rendered:
            raise UsageError(
                "the chat template of the model's tokenizer drops the system prompt, so the model would never see it: "
                "leave out task.system_prompt (and write it into the questions), or use a model whose template has one"
            )


def _text_ids(tokenizer: Tokenizer, control: ControlTokens, tasks: Sequence[Task]) -> list[Ids]:
    texts = [task.prompt for task in tasks if isinstance(task.prompt, str)]
    marked = [i for i, text in enumerate(texts) if control.find(text)]
    found = dict(zip(marked, control.encode_text([texts[i] for i in marked]), strict=True))
    return _with_plain(tokenizer, found, [*map(str, texts)], add_special_tokens=True)


def _chat_ids(tokenizer: Tokenizer, control: ControlTokens, tasks: Sequence[Task]) -> list[Ids]:
    chats: list[Conversation] = [task.prompt for task in tasks if not isinstance(task.prompt, str)]
    stand_ins: dict[int, Mapping[str, str]] = {}
    for i, messages in enumerate(chats):
        if any(control.find(text) for message in messages for text in message.values()):
            chats[i], stand_ins[i] = control.stand_in(messages)
    rendered = _rendered(tokenizer, tasks, chats)
    marked = control.encode_rendered([(rendered[i], characters) for i, characters in stand_ins.items()])
    found = dict(zip(stand_ins, marked, strict=True))
    return _with_plain(tokenizer, found, rendered, add_special_tokens=False)  # the template has written them already


def _with_plain(
    tokenizer: Tokenizer, found: dict[int, Ids], texts: Sequence[str], *, add_special_tokens: bool
) -> list[Ids]:
    """Token ids of all texts; of those at the places in `found` they are known."""
    plain = [i for i in range(len(texts)) if i not in found]
    encoded = tokenizer([texts[i] for i in plain], add_special_tokens=add_special_tokens)["input_ids"] if plain else []
    found |= {i: tuple(ids) for i, ids in zip(plain, encoded, strict=True)}
    return [found[i] for i in range(len(texts))]


def _texts(task: Task) -> list[str]:
    """All text of a question, without the config's system prompt."""
    if isinstance(task.prompt, str):
        return [task.prompt]
    own = [m for m in task.prompt if m["role"] != "system" or not isinstance(m["content"], TokenMarkup)]
    return [text for message in own for text in message.values()]


def _rendered(tokenizer: Tokenizer, tasks: Sequence[Task], chats: Sequence[Conversation]) -> list[str]:
    if not tasks:
        return []
    if tokenizer.chat_template is None:
        raise UsageError(
            f"task {tasks[0].id!r} is asked in chat messages, but the model's tokenizer has no chat template: "
            "use a model that has one (an instruct model), or ask in plain text with task.chat = false"
        )
    try:
        return render(tokenizer, chats)
    except RenderError as error:
        roles = ", ".join(message.get("role", "none") for message in chats[error.place])
        raise UsageError(
            f"the chat template of the model's tokenizer refuses task {tasks[error.place].id!r} (roles {roles}): "
            f"{error}; leave out task.system_prompt if it knows no system role"
        ) from None
