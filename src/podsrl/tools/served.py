"""Answers of a server to fixed prompts, with the log-prob of each token: over `/v1/completions`, as vLLM and SGLang do.

The prompts are sent as texts, so that the server's tokenizer reads them. Of the drawn tokens a server gives ids, the
texts "token_id:7", or their texts, whichever it can.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from podsrl.errors import UnavailableError, UsageError, short
from podsrl.generate.vllm.link import Link, Options, Refused, Unreachable
from podsrl.lib.callbacks import Progress, no_progress

OPTIONS = Options("--sync", "--key-from", "http://HOST:PORT or https://HOST:PORT")
TEMPERATURES = (0.0, 1.0)
SEED = 46
LEAST_TOKENS = 64
"""Of all answers together: of fewer, nothing is said."""
PROMPTS = (
    "What is 17 + 25?",
    "The capital of Norway is",
    "def is_prime(n):\n    ",
    "Once upon a time, a small fox",
    "List three fruits:\n1.",
    "Translate into French: The library opens at nine.",
    "Solve for x: 3x + 7 = 31.\n",
    "Question: Tom has 12 apples and gives away 5. How many are left?\nAnswer:",
    "SELECT name FROM people WHERE",
    '{"city": "Lisbon", "country":',
    "Water boils when",
    "Ein Zug fährt um acht Uhr ab und",
    "Good morning! 今天的天气",
    "Dear colleagues,\n\nI write to",
    "Proof. Let n be an even number. Then",
    "import math\n\nprint(math.sqrt(",
)
"""Of several kinds, since weights that differ a little differ more in some texts than in others."""
_NO_SERVER = "wanted a server with /v1/models and /v1/completions (vllm serve, SGLang, trl vllm-serve, verl's servers)"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server drew behind a prompt."""

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """One per token, under the server's weights."""


@dataclass(frozen=True, slots=True)
class Served:
    """A server's answers."""

    model: str
    """The name that was asked for."""
    models: tuple[str, ...]
    """All names that the server has."""
    answers: tuple[Answer, ...]


def ask_server(
    url: str,
    tokenizer: Any,
    *,
    vocabulary: int,
    model: str = "",
    key_from: str = "",
    num_tokens: int = 32,
    progress: Progress = no_progress,
) -> Served:
    """Let a server answer all `PROMPTS`, at each of `TEMPERATURES`.

    Args:
        url: "http://HOST:PORT".
        tokenizer: of the weights that the server should have.
        vocabulary: tokens that these weights know, at least the tokenizer's.
        model: by the server's name for it; "": the first.
        key_from: environment variable that holds the server's API key; "": none.
        num_tokens: of each answer; end tokens do not end it.

    Raises:
        UnavailableError: nothing answers.
        UsageError: it answers with an error, without log-probs, or has another tokenizer or no such model.
    """
    link = Link(url, key_from=key_from, timeout_seconds=600, options=OPTIONS)
    try:
        models = _models(link)
        name = model or models[0]
        if name not in models:
            raise UsageError(f"--model {name}: the server at {link.url} has no such model; it has {_joined(models)}")
        found: list[Answer] = []
        for place, temperature in enumerate(TEMPERATURES):
            progress(place, len(TEMPERATURES), f"{link.url} answers at temperature {temperature:g}")
            body = _body(name, temperature, num_tokens)
            found += _answers(link, tokenizer, _ask(link, "/v1/completions", body), vocabulary)
    finally:
        link.close()
    if sum(len(answer.token_ids) for answer in found) < LEAST_TOKENS:
        raise UsageError(
            f"--sync: the server at {link.url} gives drawn tokens as texts that do not tell which token each is; "
            "wanted token_ids, as newer releases of vLLM and SGLang give them"
        )
    return Served(name, models, tuple(found))


def _joined(names: Sequence[str]) -> str:
    return ", ".join(short(name) for name in names[:8]) + (" …" if len(names) > 8 else "")


def _models(link: Link) -> tuple[str, ...]:
    answer = _ask(link, "/v1/models")
    try:
        names = tuple(str(entry["id"]) for entry in answer["data"])
    except (KeyError, TypeError):
        names = ()
    if not names:
        raise UsageError(f"--sync: what answers at {link.url} names no model under /v1/models; {_NO_SERVER}")
    return names


def _body(model: str, temperature: float, num_tokens: int) -> dict[str, Any]:
    """What it leaves out would be taken from the model's generation config."""
    return {
        "model": model,
        "prompt": list(PROMPTS),
        "max_tokens": num_tokens,
        "temperature": temperature,
        "seed": SEED,
        "logprobs": 1,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "ignore_eos": True,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    }


def _answers(link: Link, tokenizer: Any, answer: Any, vocabulary: int) -> list[Answer]:
    prompts = [tuple(tokenizer(text)["input_ids"]) for text in PROMPTS]
    try:
        choices = sorted(answer["choices"], key=lambda choice: int(choice.get("index", 0)))
        num_read = (answer.get("usage") or {}).get("prompt_tokens")
    except (KeyError, TypeError, AttributeError, ValueError):
        choices, num_read = [], None
    if len(choices) != len(PROMPTS):
        raise UsageError(
            f"--sync: the server at {link.url} gives {len(choices)} answers to {len(PROMPTS)} prompts "
            f"({short(answer)}); {_NO_SERVER}"
        )
    read = [choice.get("prompt_token_ids") for choice in choices]
    if None in read and isinstance(num_read, int) and num_read != sum(map(len, prompts)):
        raise _other_tokenizer(link, f"it reads the prompts as {num_read} tokens, not {sum(map(len, prompts))}")
    for text, own, its in zip(PROMPTS, prompts, read, strict=True):
        if its is not None and tuple(its) != own:
            raise _other_tokenizer(link, f"it reads {text!r} as {short(list(its), 60)}, not {short(list(own), 60)}")
    return [_answer(link, tokenizer, own, choice, vocabulary) for own, choice in zip(prompts, choices, strict=True)]


def _answer(link: Link, tokenizer: Any, prompt_ids: tuple[int, ...], choice: Any, vocabulary: int) -> Answer:
    try:
        values = choice["logprobs"]["token_logprobs"]
        ids = choice.get("token_ids")
        ids = _ids_of(tokenizer, choice["logprobs"]["tokens"]) if ids is None else ids
        logprobs = [float(value) for value in values][: len(ids)]
    except (KeyError, TypeError, ValueError):
        raise UsageError(
            f"--sync: the server at {link.url} gives no log-probs of its tokens; {_NO_SERVER}, itself and no proxy "
            "that leaves them out"
        ) from None
    if len(logprobs) < len(ids) or not all(map(math.isfinite, logprobs)):
        raise UsageError(
            f"--sync: the server at {link.url} gives {len(ids)} tokens and the log-probs {short(values)}; wanted a "
            "finite one of each: its weights may hold NaN"
        )
    if beyond := [id for id in ids if type(id) is not int or not 0 <= id < vocabulary]:
        raise _other_tokenizer(link, f"it draws token {short(beyond[0])}, and {vocabulary} tokens are known here")
    return Answer(prompt_ids, tuple(ids), tuple(logprobs))


def _ids_of(tokenizer: Any, texts: Sequence[str]) -> list[int]:
    """The tokens with these texts, up to the first text that several tokens or none have."""
    prefix = "token_id:"
    if all(text.startswith(prefix) for text in texts):
        return [int(text.removeprefix(prefix)) for text in texts]
    table = _table(tokenizer)
    found = [table.get(text, -1) for text in texts]
    return found[: found.index(-1)] if -1 in found else found


@lru_cache(maxsize=1)
def _table(tokenizer: Any) -> dict[str, int]:
    """Text -> the one token that has it."""
    texts = tokenizer.batch_decode([[id] for id in range(len(tokenizer))])
    counts = Counter(texts)
    return {text: id for id, text in enumerate(texts) if counts[text] == 1}


def _other_tokenizer(link: Link, how: str) -> UsageError:
    return UsageError(
        f"--sync: the server at {link.url} has another tokenizer than --weights: {how}; start it with the tokenizer "
        "that stands beside the weights, or name the folder that it serves"
    )


_CURES = {
    401: "it wants a key: name the environment variable that holds it in --key-from",
    403: "it wants another key: name the environment variable that holds it in --key-from",
    404: f"{_NO_SERVER}; older releases of trl vllm-serve have no such route: start vllm serve",
    429: "it has too much to do: ask again later, or name the server behind the proxy",
}


def _ask(link: Link, path: str, body: Any = None) -> Any:
    try:
        return link.ask(path, body)
    except Refused as error:
        is_its_own = error.status >= 500
        cure = _CURES.get(error.status) or ("see its log, and ask again" if is_its_own else _NO_SERVER)
        kind = UnavailableError if is_its_own else UsageError
        raise kind(f"--sync: the server at {link.url} answers {path} with {error}; {cure}") from error
    except Unreachable as error:
        cure = "start it, or name its address" if body is None else "see its log, and ask again"
        raise UnavailableError(f"--sync: no answer from {link.url}{path} ({error}); {cure}") from error
