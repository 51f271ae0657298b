"""What `steer.prune` and `steer.branch` refuse, in one line and before a model is read."""

from __future__ import annotations

import pytest

from podsrl.errors import UsageError
from podsrl.run.before.prepare import prepare
from podsrl.run.before.sizes import at_most
from runs import config_of

RANDOM, FORKED = "steer.prune=random", "steer.branch=small_steering:Forked"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            (RANDOM, "options.random.at=16"),
            r"steer\.prune = 'random' is shown .* 16 tokens, .*max_new_tokens = 16.*most 15",
        ),
        ((RANDOM,), r"options\.random"),
        ((RANDOM, "options.random={at=3,share=1.0}"), r"options\.random\.share"),
        ((FORKED, "steer.close=until_mixed"), r"steer\.branch = .* with steer\.close = 'until_mixed'"),
        ((FORKED, "select.num_chunks=2"), r"steer\.branch = 'small_steering:Forked' makes unequal ones, of up to 11"),
        (
            (FORKED, "rollouts.generator=vllm+http://127.0.0.1:9"),
            r"steer\.branch = .* rollouts\.generator = 'vllm\+.*lacks the ability 'watch': set rollouts\.generator",
        ),
        ((RANDOM, "options.random.at=3", "rollouts.generator=vllm"), r"steer\.prune = 'random' sees .*'watch'"),
        (("steer.prune=small_steering:nothing",), r"steer\.prune = .* no 'nothing' in 'small_steering'"),
    ],
)
def test_what_cannot_be_is_refused(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        prepare(config_of(*overrides)).close()
    assert "\n" not in str(error.value)


def test_an_evaluation_is_not_watched_so_any_generator_does() -> None:
    config = config_of(RANDOM, "options.random.at=3", "rollouts.generator=beside:beside")
    prepare(config, is_trained=False).close()


def test_the_largest_group_is_that_with_its_forks() -> None:
    assert at_most(config_of(FORKED)).rollouts.num_rollouts == 8 + 3
    assert at_most(config_of(RANDOM, "options.random.at=3")).rollouts.num_rollouts == 8
