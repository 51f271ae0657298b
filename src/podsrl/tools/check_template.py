"""What a model's chat template does to a conversation, tried on a few.

A trainer of several turns has two ways to the prompt of the next turn: the tokens so far, as they were read and drawn,
or the whole conversation rendered anew. Where the template writes earlier turns otherwise than the model drew them, the
second way trains on tokens that were never sampled. `check_template` renders conversations and says where.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from os.path import commonprefix
from pathlib import Path
from typing import Any, Literal

from transformers import AutoTokenizer

from podsrl.config.schema import ModelConfig
from podsrl.errors import UsageError
from podsrl.lib.tool_calls import calls_in
from podsrl.policy import generation_config
from podsrl.policy.adapter_folder import base_of
from podsrl.policy.control_tokens import control_tokens
from podsrl.policy.render import RenderError, render
from podsrl.policy.source import check_local, code_options, has_tokenizer, model_folder, quiet_bars, reading

Verdict = Literal["ok", "look", "wrong"]
Message = dict[str, Any]
Token = tuple[int, str]
"""Id and text."""
_MARK = "\U000f0000"
"""A character for private use, which no template writes."""
_THOUGHT = "<think>\nTwo and two.\n</think>\n\n"
_CALL_ID = "call00001"  # some templates want nine letters or digits
_TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {name: {"type": "integer", "description": "A number."} for name in "ab"},
            "required": ["a", "b"],
        },
    },
}
_CALL = {"id": _CALL_ID, "type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2}}}
_RESULT = {"role": "tool", "name": "add", "tool_call_id": _CALL_ID, "content": "4"}
_ASKED = {"role": "user", "content": "What is 2 + 2?"}
_AGAIN = {"role": "user", "content": "And 3 + 3?"}
_AROUND = 3
"""Tokens that are shown before the first difference, and from it on."""


@dataclass(frozen=True, slots=True)
class Break:
    """Where the rendered history leaves the tokens that were read and drawn."""

    place: int
    """Index of the first token that differs."""
    before: tuple[Token, ...]
    """The last tokens that are the same."""
    drawn: tuple[Token, ...]
    rendered: tuple[Token, ...]
    is_same_text: bool
    """Whether the text is the same, in other tokens."""


@dataclass(frozen=True, slots=True)
class History:
    """One conversation, whose later prompts should begin with what was read and drawn before."""

    name: str
    verdict: Verdict
    at: Break | None = None
    refusal: str = ""
    """Why the template does not render it."""


@dataclass(frozen=True, slots=True)
class Property:
    """One thing that a template does, or a tokenizer with it."""

    name: str
    verdict: Verdict
    text: str


@dataclass(frozen=True, slots=True)
class TemplateCheck:
    """What was found."""

    model: str
    properties: tuple[Property, ...]
    histories: tuple[History, ...]
    end_of_turn: Token | None
    stop_tokens: dict[str, tuple[Token, ...]] = field(default_factory=dict)
    """Who names them -> tokens that end an answer."""
    tool_call: str = ""
    """As the template writes one; "" if it shows no tools."""


def check_template(path: str) -> TemplateCheck:
    """Try the chat template of a model.

    Args:
        path: as `model.path`; a folder needs no weights.

    Raises:
        UsageError: no such model, no tokenizer, no chat template, or one that refuses a single question.
    """
    config = ModelConfig(path=path)
    tokenizer = _load(config)
    if tokenizer.chat_template is None:
        raise UsageError(f"{path}: its tokenizer has no chat template; give an instruct model, or ask in plain text")
    try:
        return _Trial(tokenizer, path, _ends(config)).run()
    except RenderError as error:
        raise UsageError(f"{path}: its chat template refuses one question of a user: {error}") from None


def _load(config: ModelConfig) -> Any:
    own = config if has_tokenizer(model_folder(config.path)) else base_of(config) or config
    folder = Path(model_folder(own.path))
    if folder.is_dir() and not has_tokenizer(str(folder)):
        raise UsageError(f"{own.path}: a folder without a tokenizer; save one in it with tokenizer.save_pretrained")
    if not folder.exists() and (own.path.startswith((".", "/", "~")) or own.path.count("/") > 1):
        raise UsageError(f"{own.path}: no such folder")
    check_local(own.path)
    with reading(own), quiet_bars():
        return AutoTokenizer.from_pretrained(folder if folder.is_dir() else own.path, **code_options(own))


def _ends(config: ModelConfig) -> list[int]:
    """The end tokens that the model's files name; none where there are no such files."""
    try:
        found = generation_config(config).eos_token_id
    except UsageError:
        return []
    return [] if found is None else found if isinstance(found, list) else [found]


class _Trial:
    def __init__(self, tokenizer: Any, path: str, ends: Sequence[int]) -> None:
        self._tokenizer, self._path, self._ends = tokenizer, path, ends
        self._with_tool = copy.copy(tokenizer)
        self._with_tool.shown_tools = [_TOOL]
        self._prompt = self._render([_ASKED])
        self._opens_thought = self._prompt.rstrip().endswith("<think>")

    def run(self) -> TemplateCheck:
        end = self._end_of_turn()
        call = self._call()
        stops = {
            "tokenizer": self._tokens([i for i in [self._tokenizer.eos_token_id] if i is not None]),
            "generation config": self._tokens(self._ends),
        }
        properties = [
            self._stopping(end, stops),
            self._padding(end),
            *self._opening(),
            *self._system(),
            self._white_space(),
            self._beginning(),
            self._calling(call),
            self._injection(),
        ]
        histories = [self._history(name, messages, end) for name, messages in self._conversations(call)]
        return TemplateCheck(self._path, tuple(properties), tuple(histories), end, stops, call or "")

    # --- rendering ---

    def _render(self, messages: Sequence[Message], *, has_tool: bool = False) -> str:
        plain = [{key: value for key, value in message.items() if key != "drawn"} for message in messages]
        return render(self._with_tool if has_tool else self._tokenizer, [plain])[0]

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def _tokens(self, ids: Sequence[int]) -> tuple[Token, ...]:
        return tuple((id, self._tokenizer.decode([id])) for id in ids)

    def _behind_turn(self) -> str:
        """What follows an assistant's message."""
        text = self._render([_ASKED, {"role": "assistant", "content": _MARK}])
        return text.rpartition(_MARK)[2] if _MARK in text else ""

    def _end_of_turn(self) -> Token | None:
        """The token that closes an assistant's message; None where text does, or nothing."""
        first = self._encode(self._behind_turn().lstrip())[:1]
        is_control = bool(first) and control_tokens(self._tokenizer).find_token(self._tokenizer.decode(first))
        return self._tokens(first)[0] if is_control else None

    def _call(self) -> str | None:
        """A tool call as the template writes it behind the prompt; None if it writes none."""
        answer = {"role": "assistant", "content": "", "tool_calls": [_CALL]}
        try:
            prompt, called = render(self._with_tool, [[_ASKED], [_ASKED, answer]])
        except RenderError:
            return None
        if "Add two numbers." not in prompt:
            return None
        written = called[len(commonprefix([prompt, called])) :]  # noqa: RUF071  (of texts, as is meant)
        return written.removesuffix(self._behind_turn()).strip() or None

    # --- conversations ---

    def _conversations(self, call: str | None) -> list[tuple[str, list[Message]]]:
        def said(text: str, **more: Any) -> Message:
            return {"role": "assistant", "content": text, "drawn": text, **more}

        thought = _THOUGHT.removeprefix("<think>\n") if self._opens_thought else _THOUGHT
        found = [
            ("an answer", [_ASKED, said("It is 4."), _AGAIN]),
            ("an answer that ends in a newline", [_ASKED, said("It is 4.\n"), _AGAIN]),
            ("an answer that begins with a newline", [_ASKED, said("\nIt is 4."), _AGAIN]),
            ("two answers", [_ASKED, said("It is 4."), _AGAIN, said("It is 6."), _ASKED]),
            ("a thought and an answer", [_ASKED, said(f"{thought}It is 4."), _AGAIN]),
        ]
        if call is not None:
            calling = {"tool_calls": [_CALL]}
            tight = call.replace('": ', '":').replace('", "', '","').replace(', "', ',"')
            result = [_RESULT, said("It is 4."), _AGAIN]
            found.append(("a tool call", [_ASKED, said("", **calling) | {"drawn": call}, *result]))
            if tight != call:
                drawn = said("", **calling) | {"drawn": tight}
                found.append(("a tool call without spaces", [_ASKED, drawn, *result]))
            drawn = said(thought.strip(), **calling) | {"drawn": thought + call}
            found.append(("a thought and a tool call", [_ASKED, drawn, _RESULT]))
            found.append(("the same, and a further question", [_ASKED, drawn, *result]))
        return found

    def _history(self, name: str, messages: list[Message], end: Token | None) -> History:
        turns = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
        has_tool = any("tool_calls" in message for message in messages)
        try:
            for place, until in zip(turns, [*turns[1:], len(messages)], strict=True):
                prompt, later = (self._render(messages[:to], has_tool=has_tool) for to in (place, until))
                drawn = messages[place]["drawn"]
                ids = self._encode(prompt) + self._encode(drawn) + ([] if end is None else [end[0]])
                text = prompt + drawn + ("" if end is None else end[1])
                if (at := self._first_break(ids, self._encode(later), later.startswith(text))) is not None:
                    return History(name, "look", at)
        except RenderError as error:
            return History(name, "look", refusal=str(error))
        return History(name, "ok")

    def _first_break(self, drawn: list[int], rendered: list[int], is_same_text: bool) -> Break | None:
        if rendered[: len(drawn)] == drawn:
            return None
        pairs = enumerate(zip(drawn, rendered, strict=False))
        at = next((place for place, (one, other) in pairs if one != other), min(len(drawn), len(rendered)))
        return Break(
            at,
            self._tokens(drawn[max(0, at - _AROUND) : at]),
            self._tokens(drawn[at : at + _AROUND]),
            self._tokens(rendered[at : at + _AROUND]),
            is_same_text,
        )

    # --- properties ---

    def _stopping(self, end: Token | None, stops: dict[str, tuple[Token, ...]]) -> Property:
        named = "; ".join(f"{who}: {_listed(tokens)}" for who, tokens in stops.items())
        name = "end of a turn"
        if end is None:
            text = (
                f"no token ends a turn, but the text {self._behind_turn()[:24]!r}: stop at it as a stop string. {named}"
            )
            return Property(name, "look", text)
        naming = [who for who, tokens in stops.items() if end in tokens]
        if not naming:
            text = f"{_listed([end])} is no stop token, so answers run on to their limit: stop at it. {named}"
            return Property(name, "wrong", text)
        if len(naming) < len(stops) and all(stops.values()):
            text = (
                f"{_listed([end])} is named by the {naming[0]} alone; what asks the other runs on, or takes the answer "
            )
            return Property(name, "look", f"{text}for one that was cut. {named}")
        return Property(name, "ok", f"{_listed([end])} is a stop token. {named}")

    def _padding(self, end: Token | None) -> Property:
        pad = self._tokenizer.pad_token_id
        if end is not None and pad == end[0]:
            text = (
                f"the padding token is the end of a turn, {_listed([end])}: a loss that leaves out padding by its id "
            )
            return Property("padding", "look", f"{text}never teaches the model to stop")
        return Property("padding", "ok", "none" if pad is None else _listed(self._tokens([pad])))

    def _opening(self) -> list[Property]:
        if not self._opens_thought:
            return []
        return [Property("opening", "look", "the prompt ends in <think>: an answer begins in the middle of a thought")]

    def _system(self) -> list[Property]:
        name = "system prompt"
        try:
            before, mark, behind = self._render([{"role": "system", "content": _MARK}, _ASKED]).partition(_MARK)
        except RenderError as error:
            return [Property(name, "look", f"the template refuses a system message: {error}")]
        if not mark:
            return [Property(name, "wrong", "the template drops a system message without a word")]
        dated = ["strftime_now" in str(self._tokenizer.chat_template)]
        found = []
        if self._prompt.startswith(before) and behind in self._prompt[len(before) :]:
            own = self._prompt[len(before) : self._prompt.index(behind, len(before))]
            if own:
                found.append(Property(name, "look", f"where none is given, the template adds {own!r}"))
        if any(dated):
            found.append(Property(name, "look", "the template may write the day's date: a prompt changes with the day"))
        return found or [Property(name, "ok", "as it is given, and none where none is")]

    def _white_space(self) -> Property:
        text = "  2 + 2?\n"
        if text in self._render([{"role": "user", "content": text}]):
            return Property("white space", "ok", "a question keeps what stands around it")
        return Property("white space", "look", "the template trims questions")

    def _beginning(self) -> Property:
        name, plain = "beginning", self._encode(self._prompt)
        added = list(self._tokenizer(self._prompt, verbose=False)["input_ids"])
        extra = added[: len(added) - len(plain)] if added[len(added) - len(plain) :] == plain else []
        if extra and plain and extra[-1] == plain[0]:
            text = f"tokenizer(text) writes {_listed(self._tokens(extra))} a second time: use add_special_tokens=False"
            return Property(name, "wrong", text)
        if added != plain:
            text = "tokenizer(text) adds tokens that the template does not write: use add_special_tokens=False"
            return Property(name, "look", text)
        return Property(name, "ok", f"a prompt begins with {_listed(self._tokens(plain[:1]))}, once")

    def _calling(self, call: str | None) -> Property:
        if call is None:
            return Property("tool calls", "look", "the template shows no tools, or writes no calls")
        if calls_in(call) != [("add", {"a": 2, "b": 2})]:
            return Property("tool calls", "look", f"{call!r}, which task.tools cannot read")
        return Property("tool calls", "ok", repr(call))

    def _injection(self) -> Property:
        """Which of the tokens that structure a prompt a user can write."""
        control = control_tokens(self._tokenizer)
        ids = self._encode(self._prompt)
        names = {id: text for id, text in self._tokens(sorted(set(ids))) if control.find_token(text) == text}
        written = []
        for id, text in names.items():
            asked = self._render([{"role": "user", "content": f"{_ASKED['content']}{text}"}])
            if self._encode(asked).count(id) > ids.count(id):
                written.append((id, text))
        if not written:
            return Property("forged turns", "ok", "special tokens in a question stay text")
        text = f"in a question, these texts become tokens of the template: {_listed(written)}; encode questions as text"
        return Property("forged turns", "look", f"{text} (pods train does), or refuse such questions")


def _listed(tokens: Sequence[Token]) -> str:
    return ", ".join(f"{text!r} ({id})" for id, text in tokens) or "none"
