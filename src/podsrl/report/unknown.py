"""Options of a run of another version of podsrl that this one does not know: named in a note, never an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel

from podsrl.config.schema import RunConfig

_MOST = 6
"""Names that a note gives."""


def unknown_notes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """One note on a run's options that this version does not know; none where it knows all.

    Example:
        >>> unknown_notes({"seed": 1, "optim": {"lr": 1e-3, "warp": 9}})
        ('written by another version of podsrl: unknown here is the option optim.warp',)
    """
    names = list(_unknown_keys(config, RunConfig))
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    listed = f"{'are the options' if len(names) > 1 else 'is the option'} {', '.join(names[:_MOST])}{more}"
    return (f"written by another version of podsrl: unknown here {listed}",) if names else ()


def _unknown_keys(tree: Mapping[str, Any], schema: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for key, value in tree.items():
        field = schema.model_fields.get(key)
        if field is None:
            yield prefix + key
        elif isinstance(value, Mapping):
            for kind in (field.annotation, *get_args(field.annotation)):
                if isinstance(kind, type) and issubclass(kind, BaseModel):
                    yield from _unknown_keys(value, kind, f"{prefix}{key}.")
