"""What went wrong while a model was read, in one line with a cure."""

from __future__ import annotations

from collections.abc import Iterator

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


def unreadable(config: ModelConfig, what: str, error: Exception) -> UsageError:
    """The error to raise for one that transformers or the hub's client raised.

    Args:
        config: what the user wanted.
        what: what could not be read: "" for config and tokenizer, "weights ".
        error: the library's.

    Returns:
        One line: for the hub's own refusals the reason and the cure, else the library's first line that says something.
    """
    reason = _hub_reason(config, error) or f"{what}cannot be read: {first_line(error)}"
    kind = UnavailableError if reason == _NO_HUB else UsageError
    return kind(f"model.path = {config.path!r}: {reason}")


def first_line(error: Exception) -> str:
    """An error of a library, in one line; a first line that ends in a colon says nothing without the next.

    Example:
        >>> first_line(ValueError("layer types do not fit:\\n  3 layers, 2 types\\nsee the manual"))
        'ValueError: layer types do not fit: 3 layers, 2 types'
    """
    lines = [line.strip() for line in f"{type(error).__name__}: {str(error).strip()}".splitlines()]
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])


def _hub_reason(config: ModelConfig, error: Exception) -> str | None:
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
