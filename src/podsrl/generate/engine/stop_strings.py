"""Stop strings: find rollouts whose newest token completes one in their text.

Text is what the tokenizer makes of all tokens so far, special tokens spelled out; so a stop string may name a special
token, and none is found across one. Only a bounded tail is decoded, and only where the newest token can be the last of
a stop string. The prompt's text is never looked at.

Why the tail is long enough: every token but the first and the last of those that hold a string of m bytes lies inside
it with at least one byte, and those two share at least one byte each with it; so it spans at most m tokens. What is cut
off before the tail can change the text of the first token left (a leading space is dropped) and can cut a character,
whose remaining bytes are at most three tokens; some tokenizers then show the bytes beside them as broken too, until the
cut is at the start of a character again. Hence four tokens more, and up to three tried without. (Tokens without any
text, such as ids beyond the tokenizer's vocabulary, come on top: a string with many of them inside can be missed.)
A cut can also produce text that does not exist: some tokenizers show a run of bytes as broken as a whole, and what
is left of it may be sound. So what a cut tail is found to hold counts where the whole text holds it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from podsrl.errors import UsageError

Tokens = Sequence[int] | npt.NDArray[np.int32]

_CUT_TOKENS = 3
"""A UTF-8 character has at most four bytes."""
_BROKEN = "\ufffd"
"""What decoders write for bytes that are no character."""


class StopStrings:
    """Finds the rollouts whose newest token completes one of these strings.

    Args:
        tokenizer: a Hugging Face tokenizer.
        strings: at least one, none empty.

    Raises:
        UsageError: no tokenizer, or a string that the tokenizer does not give back as it is (lower-cased, unknown
            characters …), since it could never be found.
    """

    def __init__(self, tokenizer: Any, strings: Sequence[str]) -> None:
        if tokenizer is None:
            raise UsageError(
                f"stop_strings = {tuple(strings)}: the engine has no tokenizer: Engine(model, tokenizer=…)"
            )
        for string in strings:
            _check(tokenizer, string)
        self.strings = tuple(strings)
        self.num_tokens = max(len(string.encode()) for string in strings) + 1 + _CUT_TOKENS
        """How many of a rollout's newest tokens `hits` looks at first."""
        self._tokenizer = tokenizer
        self._can_end: dict[int, bool] = {}

    def hits(self, tokens: Sequence[Tokens]) -> list[bool]:
        """Whether each rollout's text, given all of its new tokens, has just come to contain a stop string.

        Call it after every token: a string completed by an earlier token may count too.
        """
        found = [False] * len(tokens)
        places = [i for i, own in enumerate(tokens) if len(own) > 0 and self._may_end(int(own[-1]))]
        tails = [[int(token) for token in tokens[i][-self.num_tokens :]] for i in places]
        for i, tail, text in zip(places, tails, self._decode(tails), strict=True):
            is_whole = len(tail) == len(tokens[i])
            found[i] = self._has(text) if is_whole else self._has_cut(tokens[i], tail, text)
        return found

    def _has_cut(self, tokens: Tokens, tail: list[int], text: str) -> bool:
        """Whether the tail holds a string, or what is left behind a character that it may start within; and all do."""
        shorter = [tail[k:] for k in range(1, _CUT_TOKENS + 1)] if _BROKEN in text else []
        if not (self._has(text) or any(map(self._has, self._decode(shorter)))):
            return False
        return self._has(self._decode([[int(token) for token in tokens]])[0])

    def _has(self, text: str) -> bool:
        return any(string in text for string in self.strings)

    def _may_end(self, token: int) -> bool:
        """Whether a string can end in this token: it holds a last character, or broken bytes that may be part of one.

        Twice in a row, since the first token of a text may lose its leading space.
        """
        known = self._can_end.get(token)
        if known is None:
            text = self._decode([[token, token]])[0]
            known = self._can_end[token] = _BROKEN in text or any(string[-1] in text for string in self.strings)
        return known

    def _decode(self, tails: list[list[int]]) -> list[str]:
        texts: list[str] = self._tokenizer.batch_decode(tails, skip_special_tokens=False) if tails else []
        return texts


def _check(tokenizer: Any, string: str) -> None:
    if _BROKEN in string:
        raise UsageError(f"stop string {string!r}: U+FFFD stands for broken bytes in decoded text; leave it out")
    back, twice = (_there_and_back(tokenizer, text) for text in (string, string + string))
    if back != string and string not in twice:  # twice, because some tokenizers drop a text's first space
        raise UsageError(
            f"stop string {string!r}: the tokenizer turns it into {back!r}, so no text would ever contain it; "
            "write it as the tokenizer spells it, or use stop_token_ids"
        )


def _there_and_back(tokenizer: Any, text: str) -> str:
    back: str = tokenizer.decode(tokenizer.encode(text, add_special_tokens=False), skip_special_tokens=False)
    return back
