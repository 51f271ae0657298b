"""What goes with what: an option or a system needs that something holds, and another one breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from podsrl.config.schema import RunConfig
from podsrl.control.steer import counts_of
from podsrl.errors import UsageError
from podsrl.lib.moments import WORDS
from podsrl.lib.parts import Parts
from podsrl.score import Environment, Scorer
from podsrl.select.ties import KEEP_FIRST
from podsrl.update.advantage import Advantage, reads_groups


@dataclass(frozen=True, slots=True)
class Claim:
    """What one option or system needs and breaks: words of `podsrl.lib.moments.WORDS`."""

    who: str
    """For messages: "order.ahead = 1"."""
    needs: frozenset[str] = frozenset()
    breaks: frozenset[str] = frozenset()


def check_exclusions(config: RunConfig, parts: Parts, advantage: Advantage, num_processes: int = 1) -> None:
    """Check all that is known without the questions.

    Raises:
        UsageError: something needs what another breaks; or rollouts are never as long as a part wants to see them.
    """
    check_claims([*_of_parts(parts), *_of_options(config, advantage, num_processes)])
    limit = config.rollouts.max_new_tokens
    for part in parts["look"]:
        if (late := max(counts_of(part) or (), default=0)) >= limit:
            raise UsageError(
                f"{part.option} is shown rollouts that have {late} tokens, and rollouts.max_new_tokens = {limit} ends "
                f"them: wanted at most {limit - 1}"
            )


def check_pieces(parts: Parts, scorer: Scorer, environment: Environment | None) -> None:
    """Check what is known with the rewards and the environment.

    Raises:
        UsageError: something needs what these break.
    """
    found = [*_of_parts(parts)]
    if scorer.batches:
        found.append(Claim(f"the reward function {scorer.batches[0]!r}, f of a batch", breaks=_words("judged_singly")))
    if environment is not None:
        found.append(Claim(environment.option, breaks=_words("one_turn")))
    check_claims(found)


def check_claims(claims: list[Claim]) -> None:
    """UsageError: one needs what another breaks."""
    for one in claims:
        for other in claims:
            if one is not other and (both := one.needs & other.breaks):
                word = min(both)
                raise UsageError(
                    f"{one.who} wants that {WORDS[word]}, and with {other.who} that is not so: leave one of them out"
                )


def _of_parts(parts: Parts) -> Iterator[Claim]:
    return (Claim(*each) for each in parts.words())


def _of_options(config: RunConfig, advantage: Advantage, num_processes: int) -> Iterator[Claim]:
    order, select, rollouts = config.order, config.select, config.rollouts
    if order.is_ahead:
        yield Claim(f"order.ahead = {order.ahead:g}", breaks=_words("settled_steps"))
    if order.take == "first":
        yield Claim("order.take = 'first'", _words("asked_once whole_groups one_process"))
    if order.rest != "finish":
        yield Claim(f"order.rest = {order.rest!r}", breaks=_words("one_version"))
    if select.num_chunks > 1:
        yield Claim(f"select.num_chunks = {select.num_chunks}", _words("equal_groups"))
    if rollouts.stop_strings:
        yield Claim(f"rollouts.stop_strings = {list(rollouts.stop_strings)}", breaks=_words("no_stop_strings"))
    if num_processes > 1:
        yield Claim(f"{num_processes} processes", breaks=_words("one_process"))
    if select.rule not in ("max_variance", "max_signal"):
        yield Claim(f"select.rule = {select.rule!r}", breaks=_words("kept_alone"))
    if select.rule not in KEEP_FIRST:
        yield Claim(f"select.rule = {select.rule!r}", breaks=_words("first_of_equals"))
    if select.ties != "position":
        yield Claim(f"select.ties = {select.ties!r}", _words("first_of_equals"), _words("free_ties kept_alone"))
    if isinstance(select.num_kept, float) or select.num_kept >= rollouts.num_rollouts:
        who = f"select.num_kept = {select.num_kept} of rollouts.num_rollouts = {rollouts.num_rollouts}"
        yield Claim(who, breaks=_words("kept_alone"))
    if ":" in (name := config.loss.advantage or "") and reads_groups(advantage):
        yield Claim(f"loss.advantage = {name!r}, which reads whole groups", breaks=_words("kept_alone"))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())
