"""Encode special tokens in the text of a data set as plain characters.

A tokenizer finds its special tokens in any text, so a question that holds `<|im_end|>` could end the user's turn and
begin another. Such a question is encoded with a copy of the tokenizer in which the special tokens have other names;
only a chat template and `TokenMarkup` are translated to these names. Questions without such text are encoded as usual.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from tokenizers import Tokenizer

from podsrl.errors import UsageError
from podsrl.policy.render import Conversation
from podsrl.policy.source import first_line
from podsrl.types import TokenMarkup

_FIRST_STAND_IN, _LAST_STAND_IN = 0x100000, 0x10FFFD
"""A plane of Unicode for private use: in a template, such a character stands for one special token of the data."""
_NOTHING = re.compile(r"(?!)")


class ControlTokens:
    """The tokens by which a chat template structures a conversation, and which no data may write.

    They are the tokenizer's special tokens, and the other added tokens that its chat template writes (except words and
    white space).
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        added = {str(token): (number, token) for number, token in tokenizer.added_tokens_decoder.items()}
        template = _template_text(tokenizer)
        special = {*tokenizer.all_special_tokens, *(text for text, (_, token) in added.items() if token.special)}
        self._ids = {
            text: number
            for text, (number, _) in added.items()
            if text and (text in special or (text in template and not _is_plain(text)))
        }
        self._text_of = {number: text for text, number in self._ids.items()}
        self._raw = _any_of(self._ids)
        self._normal = _any_of(map(self._normalised, (text for text in self._ids if added[text][1].normalized)))
        self._twin: Tokenizer | None = None
        self._aliases: dict[str, str] = {}

    def find(self, text: str) -> str | None:
        """The first special token that the tokenizer would find in a text of the data; None for `TokenMarkup`."""
        if isinstance(text, TokenMarkup):
            return None
        return self.find_token(text)

    def find_token(self, text: str) -> str | None:
        """The first special token that the tokenizer would find in any text."""
        found = self._raw.search(text) or self._find_normal(text)
        return found[0] if found else None

    def stand_in(self, messages: Conversation) -> tuple[list[dict[str, str]], dict[str, str]]:
        """Replace special tokens in the data by private characters; also give character -> the text it stands for."""
        used = {character for message in messages for text in message.values() for character in text}
        free = (chr(code) for code in range(_FIRST_STAND_IN, _LAST_STAND_IN) if chr(code) not in used)
        stands_for: dict[str, str] = {}

        def character_for(text: str) -> str:
            character = next(free)
            stands_for[character] = text
            return character

        changed = [{key: self._replaced(text, character_for) for key, text in message.items()} for message in messages]
        return changed, stands_for

    def encode_text(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Token ids of plain prompts; the only special tokens are those that the tokenizer adds around a text."""
        if not texts:
            return []
        return [tuple(encoding.ids) for encoding in self._named_otherwise().encode_batch(list(texts))]

    def encode_rendered(self, rendered: Sequence[tuple[str, Mapping[str, str]]]) -> list[tuple[int, ...]]:
        """Token ids of rendered texts, each with its private characters from `stand_in`; the data's tokens are text."""
        if not rendered:
            return []
        twin = self._named_otherwise()
        texts = [self._translated(text, stands_for) for text, stands_for in rendered]
        return [tuple(encoding.ids) for encoding in twin.encode_batch(texts, add_special_tokens=False)]

    def _replaced(self, text: str, character_for: Callable[[str], str]) -> str:
        if isinstance(text, TokenMarkup):
            return text
        text = self._raw.sub(lambda found: character_for(found[0]), text)
        return self._changed(text, lambda _, found: character_for(found)) if self._find_normal(text) else text

    def _translated(self, text: str, stands_for: Mapping[str, str]) -> str:
        """Rename the special tokens that the tokenizer finds, then put the data's own text back."""
        text = self._changed(text, lambda name, _: self._aliases[name])
        return _any_of(stands_for).sub(lambda found: stands_for[found[0]], text)

    def _changed(self, text: str, new: Callable[[str, str], str]) -> str:
        """Replace each place where the tokenizer finds one of these tokens by `new(name, the text there)`.

        A search for the name would not find the same places, because normalisers change the text first.
        """
        parts, done = [], 0
        encoding = self._tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
        for number, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if (name := self._text_of.get(number)) and (place := self._place(name, text[start:end])):
                first, last = start + place[0], start + place[1]
                parts += [text[done:first], new(name, text[first:last])]
                done = last
        return "".join((*parts, text[done:]))

    def _place(self, name: str, span: str) -> tuple[int, int] | None:
        """Start and end of a token's name in the text it was found in, which may have white space around it.

        None: the name is not in the text, as when an unknown character became the token for unknown ones.
        """
        if name in span:
            return span.index(name), span.index(name) + len(name)
        if self._normalised(name) in self._normalised(span):
            return len(span) - len(span.lstrip()), len(span.rstrip())
        return None

    def _find_normal(self, text: str) -> re.Match[str] | None:
        return None if self._normal is _NOTHING else self._normal.search(self._normalised(text))

    def _normalised(self, text: str) -> str:
        normalizer = getattr(getattr(self._tokenizer, "backend_tokenizer", None), "normalizer", None)
        return text if normalizer is None else str(normalizer.normalize_str(text))

    def _named_otherwise(self) -> Tokenizer:
        """The same tokenizer with names for these tokens that no data can contain."""
        if self._twin is None:
            self._twin = self._renamed()
        return self._twin

    def _renamed(self) -> Tokenizer:
        word = secrets.token_hex(8)  # data that was written before cannot hold it
        self._aliases = {text: f"\U000f0000{word}{number}\U000f0001" for text, number in self._ids.items()}
        try:
            tree = json.loads(self._tokenizer.backend_tokenizer.to_str())
            twin = Tokenizer.from_str(json.dumps(_renamed_tree(tree, self._aliases)))
            twin.encode_special_tokens = self._tokenizer.split_special_tokens
        except Exception as error:  # no tokenizer of the library, or one that cannot be written and read again
            raise self._cannot(first_line(error)) from None
        twin.no_truncation()
        twin.no_padding()
        for text, alias in self._aliases.items():
            wanted = self._tokenizer.encode(text, add_special_tokens=False)
            if twin.token_to_id(alias) != self._ids[text] or (
                wanted == [self._ids[text]] and twin.encode(alias, add_special_tokens=False).ids != wanted
            ):
                raise self._cannot(f"{text!r} cannot be renamed")
        return twin

    def _cannot(self, reason: str) -> UsageError:
        return UsageError(
            "questions hold the text of special tokens, and the model's tokenizer "
            f"({type(self._tokenizer).__name__}) cannot encode that as text ({reason}): remove these questions, or set "
            'task.special_tokens = "tokens" if they are meant as tokens'
        )


_known: WeakKeyDictionary[Any, tuple[Any, ControlTokens]] = WeakKeyDictionary()


def control_tokens(tokenizer: Any) -> ControlTokens:
    """The control tokens of a tokenizer; cached until its vocabulary or template changes."""
    state = len(tokenizer), tokenizer.chat_template
    known = _known.get(tokenizer)
    if known is None or known[0] != state:
        known = _known[tokenizer] = state, ControlTokens(tokenizer)
    return known[1]


def _template_text(tokenizer: Any) -> str:
    template = tokenizer.chat_template or ""
    return template if isinstance(template, str) else "\0".join(map(str, template.values()))


def _is_plain(text: str) -> bool:
    """Whether a text is a word or white space, which a template may hold for other reasons."""
    return all(character.isalnum() or character.isspace() for character in text)


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """A pattern for any of the texts. Longer ones come first, because a tokenizer takes the longest match."""
    found = sorted({text for text in texts if text}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, found))) if found else _NOTHING


def _renamed_tree(tree: dict[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """A tokenizer.json with the tokens renamed, in the vocabulary too, where its model could find them."""
    model = tree["model"]
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        model["vocab"] = {aliases.get(text, text): number for text, number in vocabulary.items()}
    elif vocabulary is not None:  # of a unigram model: text and score
        model["vocab"] = [[aliases.get(text, text), score] for text, score in vocabulary]
    if model.get("unk_token") in aliases:
        model["unk_token"] = aliases[model["unk_token"]]
    for token in tree["added_tokens"]:
        token["content"] = aliases.get(token["content"], token["content"])
    return tree
