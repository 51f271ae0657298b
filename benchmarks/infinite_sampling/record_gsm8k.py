"""Record how long GSM8K's questions and solutions are: benchmarks/infinite_sampling/gsm8k_lengths.npz.

    PODS_DATA=DIR python -m benchmarks record-gsm8k-lengths

DIR holds gsm8k/train.jsonl and gsm8k/test.jsonl (`question`, `answer`). A byte-level BPE of 8,192 tokens with single
digits is trained on the train split. The file holds numbers only, no text: for the first 2,048 train rows and all test
rows the tokens of the question, the tokens of the solution (with an end token), and a few counts known from the
question and from the solution's first 32 tokens.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from benchmarks import command
from podsrl.errors import UsageError

NUM_TRAIN = 2048
NUM_FIRST = 32
OUT = Path(__file__).with_name("gsm8k_lengths.npz")
HINTS = ("%", "each", "every", "twice", "times", "half", "total", "more", "less", "left")


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("record-gsm8k-lengths", __doc__)
    parser.add_argument("--out", type=Path, default=OUT, help="another file")
    out = parser.parse_args(arguments).out
    if "PODS_DATA" not in os.environ:
        raise UsageError("PODS_DATA is not set: wanted a folder with gsm8k/ as JSON lines")
    folder = Path(os.environ["PODS_DATA"]) / "gsm8k"
    train, test = (read(folder / f"{split}.jsonl") for split in ("train", "test"))
    tokenizer = train_tokenizer([text for row in train for text in (row["question"], row["answer"])])
    arrays: dict[str, Any] = {}
    for split, rows in (("train", train[:NUM_TRAIN]), ("test", test)):
        records = np.array([record(tokenizer, row) for row in rows], dtype=np.uint16)
        arrays |= {
            f"{split}_prompt": records[:, 0],
            f"{split}_length": records[:, 1],
            f"{split}_known_at_prompt": records[:, 2:5],
            f"{split}_known_at_{NUM_FIRST}": records[:, 5:],
        }
    np.savez_compressed(out, **arrays)
    print(f"{out}: {out.stat().st_size:,} bytes; {', '.join(arrays)}")


def read(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def train_tokenizer(texts: list[str]) -> Any:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=8192, initial_alphabet=alphabet, show_progress=False)
    )
    return tokenizer


def record(tokenizer: Any, row: dict[str, str]) -> list[int]:
    """Question tokens, solution tokens; counts in the question; counts in the solution's first tokens."""
    question, ids = row["question"], tokenizer.encode(row["answer"]).ids
    first = tokenizer.decode(ids[:NUM_FIRST])
    asked, used = numbers(question), numbers(first)
    return [
        len(tokenizer.encode(question).ids),
        len(ids) + 1,
        len(asked),
        len(re.findall(r"[.?!]", question)),
        sum(hint in question for hint in HINTS),
        first.count("<<"),
        first.count("\n"),
        len(re.findall(r"[a-zA-Z]+", first)),
        len(set(used) & set(asked)),
        len(used),
    ]


def numbers(text: str) -> list[float]:
    return [float(found.replace(",", "")) for found in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]
