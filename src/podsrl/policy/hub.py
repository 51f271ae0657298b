"""What went wrong while a model was read, in one line with a cure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from podsrl.config.schema import ModelConfig
from podsrl.errors import UnavailableError, UsageError

_NO_HUB = (
    "no such folder here, not in the download cache, and the hub cannot be reached "
    "(no network, or HF_HUB_OFFLINE is set): connect, or give the folder of a downloaded copy"
)

_MAX_LINE = 600
"""Characters of a library's words in a message; some quote whole files."""


def unreadable(config: ModelConfig, what: str, error: BaseException) -> UsageError:
    """The error to raise for one that transformers or the hub's client raised.

    Args:
        config: what the user wanted.
        what: what could not be read: "" for config and tokenizer, "weights ".
        error: the library's.

    Returns:
        One line: for the hub's own refusals the reason and the cure, else the library's first line that says something.
    """
    reason = _code_reason(error) or _hub_reason(config, error) or f"{what}cannot be read: {first_line(error)}"
    kind = UnavailableError if reason == _NO_HUB else UsageError
    return kind(f"model.path = {config.path!r}: {reason}")


@contextmanager
def reading(config: ModelConfig, what: str = "") -> Iterator[None]:
    """Whatever the libraries raise inside becomes `unreadable`.

    A damaged file makes them raise KeyError, RuntimeError and types of their own; those written in Rust may panic,
    which is no `Exception`.
    """
    try:
        yield
    except UsageError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise unreadable(config, what, error) from None


def _code_reason(error: BaseException) -> str | None:
    if not any("trust_remote_code" in str(cause) for cause in _causes(error)):
        return None
    return (
        "it wants to run Python code of its own (auto_map in its JSON files), and model.trust_remote_code is false: "
        "read that code, then set model.trust_remote_code = true, or use a model that transformers knows by itself"
    )


def first_line(error: BaseException) -> str:
    """An error of a library, in one line; a first line that ends in a colon says nothing without the next.

    Example:
        >>> first_line(ValueError("layer types do not fit:\\n  3 layers, 2 types\\nsee the manual"))
        'ValueError: layer types do not fit: 3 layers, 2 types'
    """
    return one_line(f"{type(error).__name__}: {str(error).strip()}")


def one_line(text: str) -> str:
    """The first line of a text, with the second where the first ends in a colon; long ones are cut.

    Example:
        >>> one_line("one:\\ntwo\\nthree")
        'one: two'
    """
    lines = [line.strip() for line in text.splitlines()] or [""]
    line = " ".join(lines[: 2 if lines[0].endswith(":") else 1])
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]} …"


def _hub_reason(config: ModelConfig, error: BaseException) -> str | None:
    name = config.path
    for cause in _causes(error):
        if isinstance(cause, GatedRepoError):  # before its base class, an unknown name
            return f"is gated: accept its terms at https://huggingface.co/{name}, then run `hf auth login`"
        if isinstance(cause, RevisionNotFoundError):
            return f"has no revision {config.revision!r} on the hub: give a branch, tag or commit in model.revision"
        if isinstance(cause, RepositoryNotFoundError):
            return "no such folder here, and no such model on the hub (or a private one: run `hf auth login`)"
        if isinstance(cause, EntryNotFoundError) and not isinstance(cause, LocalEntryNotFoundError):
            return f"lacks a file on the hub: {first_line(error)}"
        if isinstance(cause, LocalEntryNotFoundError | OfflineModeIsEnabled | HfHubHTTPError | ConnectionError):
            return _NO_HUB
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
