"""A stop string is found with the very token that completes it, however it is cut into tokens."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from loops import each
from podsrl.errors import UsageError
from podsrl.generate.engine.stop_strings import StopStrings

TEXTS = ["the answer is 42</answer>\n\n", "naïve café 你好吗 🙂🙃 the end. ", " a  b   the the\n\n\nanswer</a>"]
STRINGS = ["</answer>", "\n\n", "好", "🙂🙃", "é 你", "the", "e ", " ", ".", "  b"]


@cache
def byte_level() -> Any:
    """As in GPT-2 and Qwen: every byte is a token, some runs of bytes are too."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@cache
def byte_fallback() -> Any:
    """As in Llama 2: a space is part of a word's token, the text's first one is dropped, rare characters are bytes."""
    vocabulary = ["<unk>", *(f"<0x{i:02X}>" for i in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyz<>/.\n0123456789"]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "t"), ("▁", "a"), ("<", "/"), ("▁", "▁"), ("e", "r")]
    vocabulary += ["".join(pair) for pair in merges]
    tokenizer = Tokenizer(
        models.BPE({token: i for i, token in enumerate(vocabulary)}, merges, unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@cache
def words() -> Any:
    """As in BERT: lower case, whole words, unknown ones lost."""
    vocabulary = {token: i for i, token in enumerate(["[UNK]", "stop", "here", ".", "a"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


TOKENIZERS = {"byte level": byte_level, "byte fallback": byte_fallback}


def pieces(tokenizer: Any, text: str, rng: random.Random) -> list[int]:
    """The text's tokens, here and there replaced by those of a random cut of it, down to single bytes."""
    ids: list[int] = []
    while text:
        size = rng.randrange(1, 6)
        part, text = text[:size], text[size:]
        ids += single_bytes(tokenizer, part) if rng.random() < 0.5 else tokenizer.encode(part, add_special_tokens=False)
    return ids


def single_bytes(tokenizer: Any, text: str) -> list[int]:
    """A token a byte."""
    if tokenizer is byte_fallback():
        return [tokenizer.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in text.encode()]
    alphabet = [*range(33, 127), *range(161, 173), *range(174, 256)]  # bytes written as themselves; others follow 255
    others = {byte: 256 + i for i, byte in enumerate(b for b in range(256) if b not in alphabet)}
    return [tokenizer.convert_tokens_to_ids(chr(others.get(byte, byte))) for byte in text.encode()]


def check_up_to_the_first_hit(tokenizer: Any, strings: list[str], ids: list[int]) -> bool:
    """Ask after every token, as an engine does; the twin decodes everything."""
    stop = StopStrings(tokenizer, strings)
    for t in range(1, len(ids) + 1):
        text = tokenizer.decode(ids[:t], skip_special_tokens=False)
        is_hit = any(string in text for string in strings)
        assert stop.hits([ids[:t]]) == [is_hit], (strings, text, ids[:t])
        if is_hit:
            return True
    return False


@each("name", TOKENIZERS)
@pytest.mark.parametrize("seed", range(150))
def test_hits_equal_a_twin_that_decodes_everything_on_texts_cut_at_random(name: str, seed: int) -> None:
    rng = random.Random(seed)
    tokenizer = TOKENIZERS[name]()
    words = [*STRINGS, "the", " ", "answ", "</", "x", "7", "é", "你", "🙃"]
    text = "".join(rng.choice(words)[: rng.randrange(1, 10)] for _ in range(12))
    check_up_to_the_first_hit(tokenizer, rng.sample(STRINGS, rng.randrange(1, 3)), pieces(tokenizer, text, rng))


@each("seed", range(100), few=27)
def test_hits_equal_the_twin_on_random_tokens_full_of_broken_bytes(seed: int) -> None:
    rng = random.Random(seed)
    tokenizer = byte_level()
    ids = [rng.randrange(len(tokenizer)) for _ in range(60)]
    check_up_to_the_first_hit(tokenizer, rng.choices(["a", "é", "e ", " ", "</", "th"], k=2), ids)


@each("seed", range(60), few=21)
def test_hits_equal_the_twin_on_random_bytes_that_are_broken_as_a_run(seed: int) -> None:
    rng = random.Random(seed)
    tokenizer = byte_fallback()
    ids = rng.choices(tokenizer.convert_tokens_to_ids(["<0x7C>", "<0x94>", "<0xC3>", "<0xA9>", "<0x26>", "a"]), k=60)
    check_up_to_the_first_hit(tokenizer, rng.choices(["|", "é", "||", "a|", "|a", "&"], k=2), ids)


def test_a_byte_that_is_a_character_by_itself_is_none_in_a_broken_run() -> None:
    """The bytes 26 94 7C 7C … are no text as a whole; the tail 7C 7C … would be."""
    tokenizer = byte_fallback()
    ids = tokenizer.convert_tokens_to_ids(["<0x26>", "<0x94>", *["<0x7C>"] * 9])
    assert "|" not in tokenizer.decode(ids)
    assert StopStrings(tokenizer, ["|"]).hits([ids[:t] for t in range(1, len(ids) + 1)]) == [False] * len(ids)
    assert StopStrings(tokenizer, ["|"]).hits([[*ids[:2], tokenizer.convert_tokens_to_ids("a"), ids[2]]]) == [True]


@each("name", TOKENIZERS)
@pytest.mark.parametrize("string", STRINGS)
def test_a_string_spelled_byte_by_byte_after_any_number_of_tokens_is_found_with_its_last_byte(
    name: str, string: str
) -> None:
    tokenizer = TOKENIZERS[name]()
    stop = StopStrings(tokenizer, [string])
    for before in ("", "x", "é", "🙃", "你x", "x🙃é", "🙃" * 9, "xyz" * 20):
        start = single_bytes(tokenizer, before)
        ids = start + single_bytes(tokenizer, string)
        text = tokenizer.decode(ids)
        if string not in text:
            assert text == string[1:] and before == ""  # the text's first space is dropped
            continue
        hits = stop.hits([ids[:t] for t in range(len(start) + 1, len(ids) + 1)])
        assert hits == [False] * (len(hits) - 1) + [True], before


def test_a_special_token_can_be_named_and_ends_every_other_match() -> None:
    tokenizer = byte_level()
    end = tokenizer.convert_tokens_to_ids("<|end|>")
    letters = {letter: tokenizer.convert_tokens_to_ids(letter) for letter in "ab"}
    assert StopStrings(tokenizer, ["a<|end|>"]).hits([[letters["a"], end]]) == [True]
    assert StopStrings(tokenizer, ["ab"]).hits([[letters["a"], end, letters["b"]]]) == [False]


def test_ids_beyond_the_tokenizer_have_no_text() -> None:
    tokenizer = byte_level()
    a, b = tokenizer.convert_tokens_to_ids(["a", "b"])
    unknown = len(tokenizer) + 5
    assert StopStrings(tokenizer, ["ab"]).hits([[a, unknown, b], [a, unknown], [unknown]]) == [True, False, False]


def test_only_rollouts_whose_newest_token_can_end_a_string_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = byte_level()
    stop = StopStrings(tokenizer, ["ab"])
    a, b, x = tokenizer.convert_tokens_to_ids(["a", "b", "x"])
    tails = [[a, x], [a, b], [b, a], [x, b]]
    assert stop.hits(tails) == [False, True, False, False]
    decoded: list[list[int]] = []
    batch_decode = tokenizer.batch_decode
    watched = lambda rows, **options: decoded.extend(rows) or batch_decode(rows, **options)  # noqa: E731
    monkeypatch.setattr(tokenizer, "batch_decode", watched)
    assert stop.hits(tails) == [False, True, False, False]
    assert decoded == [[a, b], [x, b]]


@pytest.mark.parametrize(
    ("string", "back"), [("STOP", "stop"), ("halt", "[UNK]"), ("stop  here", "stop here"), ("stop\n", "stop")]
)
def test_a_string_that_the_tokenizer_changes_is_refused_with_what_becomes_of_it(string: str, back: str) -> None:
    with pytest.raises(UsageError) as caught:
        StopStrings(words(), ["stop here", string])
    assert f"stop string {string!r}: the tokenizer turns it into {back!r}" in str(caught.value)


def test_a_string_with_a_leading_space_is_taken_where_the_tokenizer_drops_only_a_texts_first_space() -> None:
    tokenizer = SentencePieceLike()
    assert tokenizer.decode(tokenizer.encode(" ab")) == "ab"
    stop = StopStrings(tokenizer, [" ab"])
    assert stop.hits([tokenizer.encode("x ab"), tokenizer.encode("xab")]) == [True, False]


class SentencePieceLike:
    """Characters as tokens; decoding drops a text's first space, as Llama-2-like tokenizers do."""

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return "".join(map(chr, ids)).removeprefix(" ")

    def batch_decode(self, rows: list[list[int]], skip_special_tokens: bool = False) -> list[str]:
        return [self.decode(row) for row in rows]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_mark_of_broken_bytes_is_no_stop_string(name: str) -> None:
    with pytest.raises(UsageError, match=r"U\+FFFD"):
        StopStrings(TOKENIZERS[name](), ["a\ufffd"])
