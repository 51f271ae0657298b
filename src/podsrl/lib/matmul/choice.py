"""The rule of this process: chosen once, before the first product, for engine and update."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podsrl.errors import UsageError
from podsrl.lib.matmul import cache
from podsrl.lib.matmul.measure import measure
from podsrl.lib.matmul.onednn import is_available
from podsrl.lib.matmul.rule import FEW_ROWS, FIXED, NEVER, Rule, rule_from, rule_of

_known: dict[str, Rule] = {}
"""Rules that this process has measured or read, by machine and setting."""
_rule: Rule | None = None
_lock = threading.RLock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A rule, and the machine on which it was measured."""

    rule: Rule
    machine: Mapping[str, str]
    """See `cache.machine`; empty for a fixed rule, which needs no measurement."""

    def to_json(self) -> dict[str, Any]:
        return {"rule": self.rule.to_json(), "machine": dict(self.machine)}

    @staticmethod
    def of_json(stored: Any) -> Choice | None:
        """The inverse of `to_json`; None for anything else."""
        if not isinstance(stored, dict) or not isinstance(stored.get("machine"), dict):
            return None
        rule = rule_from(stored.get("rule"))
        return None if rule is None else Choice(rule=rule, machine=stored["machine"])


def check_option(option: str) -> None:
    """UsageError: `model.matmul` names a library that this machine does not have."""
    if option == "onednn" and not is_available():
        raise UsageError(
            "model.matmul = 'onednn': oneDNN's products need an x86 processor and a torch built with oneDNN, which is "
            "not the case here; leave the option out"
        )


def choose(option: str = "auto") -> Choice:
    """The rule for "auto" or a key of `FIXED`: a fixed one, or one measured on this machine, now or earlier."""
    check_option(option)
    if option != "auto":
        return Choice(rule=FIXED[option], machine={})
    with _lock:
        machine = cache.machine()
        key = cache.digest_of(machine)
        if key not in _known:
            rule = (cache.read(machine) or cache.write(machine, rule_of(measure()))) if is_available() else NEVER
            _known[key] = rule
        return Choice(rule=_known[key], machine=machine)


def use(rule: Rule | None) -> None:
    """Use this rule from now on, in the whole process; None: choose again at the next product."""
    global _rule
    _rule = rule if rule is None or is_available() else NEVER


def current() -> Rule:
    """The rule in use; if there is none yet, that of "auto"."""
    with _lock:
        if _rule is None:
            use(choose().rule)
        assert _rule is not None
        return _rule


def in_use() -> Rule | None:
    """The rule in use; None if nothing has been chosen yet."""
    return _rule


def uses_onednn(rows: int, work: int) -> bool:
    """Whether oneDNN computes a float32 product without gradient; `work` is its multiplications, rows · in · out."""
    rule = _rule or current()
    return work >= (rule.few_rows if rows <= FEW_ROWS else rule.many_rows)
