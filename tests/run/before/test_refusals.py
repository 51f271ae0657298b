"""What a run refuses before a model is read: in one line, which names both options, the numbers and the cure.

Options and systems of which one needs what another breaks stand in test_exclusions.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from loops import each
from podsrl.config.load import load_config
from podsrl.errors import UsageError
from podsrl.run.before.prepare import prepare
from runs import config_of

SMALL = ("rollouts.num_rollouts=32", "select.num_kept=8", "task.reward_workers=1")
OWN = ('task.rewards={"light_rewards:slow" = 1.0}', "task.correct=correct")
BATCH = ('task.rewards={"light_rewards:varied" = 1.0}', "task.correct=correct")
RANDOM, FORKED = ("systems=random", "options.random.at=3"), ("systems=small_steering:Forked",)
CERTAIN, MIXED = ("systems=certain",), ("systems=until_mixed",)
FIRST = ("order.ahead=1", "order.take=first", "order.rest=put_off")
RUNS = ("order.ahead=2", "order.rest=run")
ECHO = ("task.environment=environments:echo",)
AHEAD = ("order.ahead=1",)
BESIDE = "rollouts.generator=beside:beside"
TOOLS = ("task.tools=kitchen:price",)


REFUSED = [
    # groups that are closed when their outcome is certain
    ((*CERTAIN, *OWN), "set options.certain.lowest and"),
    ((*CERTAIN, "options.certain.lowest=1", "options.certain.highest=0"), "wanted lowest < highest"),
    ((*CERTAIN, "options.certain.middle=1"), "options.certain.middle = 1: there is no such option"),
    ((*CERTAIN, "options.certain.first=1"), "options.certain.first = 1: wanted at least 2"),
    (("systems=certian",), "systems = 'certian'", "'certain'"),
    # rollouts that are watched, and forks
    (
        (*FORKED, "select.num_chunks=2"),
        "select.num_chunks = 2",
        "systems = small_steering:Forked",
        "of up to 35 rollouts",
    ),
    (("systems=random", "options.random.at=16"), "16 tokens", "max_new_tokens = 16", "at most 15"),
    (("systems=random",), "options.random.at is not set"),
    (("systems=random", "options.random={at=3,share=1.0}"), "options.random.share = 1.0: wanted less than 1"),
    (("systems=small_steering:nothing",), "systems = 'small_steering:nothing'", "no 'nothing' in 'small_steering'"),
    (("systems=random,random", "options.random.at=3"), "systems", "random"),
    # what a generator cannot
    ((*FORKED, "rollouts.generator=vllm+http://127.0.0.1:9"), "Forked'", "vllm+http", "'watch'", "'engine'"),
    ((*RANDOM, "rollouts.generator=vllm"), "systems = 'random'", "'vllm'", "'watch'", "'engine'"),
    ((*FIRST, "rollouts.generator=vllm", "rollouts.stop_strings=['x']"), "order.rest = 'put_off'", "['x']", "'engine'"),
    (AHEAD, "order.ahead = 1 ", "'engine'", "'beside'", "scale.generators = 1", "set order.ahead = 0"),
    # what is under way
    (("order.take=first",), "order.take = 'first' has no effect with order.ahead = 0: set order.ahead above 0"),
    (("order.rest=run",), "order.rest = 'run' has no effect with order.ahead = 0"),
    (("order.most_age=2",), "order.most_age = 2 has no effect with order.ahead = 0"),
    (("order.ahead=0.5", "order.take=first"), "order.take = 'first' with order.rest = 'finish'", "'put_off' or 'run'"),
    (("order.ahead=0.5", "order.rest=run"), "order.ahead = 0.5 with order.take = 'asked'", "a whole number"),
    (("order.ahead=2", BESIDE), "order.ahead = 2 with order.rest = 'finish'", "set order.ahead = 1, or", "'run'"),
    ((*FIRST, "order.most_age=0"), "order.most_age"),
    (("order.ahead=-1",), "order.ahead"),
    (("order.ahead=17", "order.rest=run"), "order.ahead"),
    (("order.rest=keep",), "order.rest", "put_off"),
    # names of earlier versions
    (("steps.name=ahead",), "unknown key 'steps.name'. Did you mean 'order.ahead' (formerly: ", '1 for "ahead"'),
    (("steps.lag=0",), "'order.ahead' (formerly: steps.lag; the number of steps)"),
    (("replay.unfinished=keep",), "'order.rest' (formerly: ", '"put_off" for "keep"'),
    (("replay.surplus=1.25",), "'order.ahead' (formerly: ", "0.25 for 1.25"),
    (("replay.most_age=4",), "'order.most_age' (formerly: replay.most_age)"),
    # tools, environments
    ((*TOOLS, *ECHO), "task.tools", "task.environment = 'environments:echo'", "leave one of them out"),
    (TOOLS, "task.tools", "set task.chat = true"),
    (("task.tools=kitchen:spoon", "task.chat=true"), "no 'spoon' in 'kitchen'"),
    (("task.rewards={environment = 1.0}", "task.correct=environment"), "'environment'", "task.environment"),
    # what is kept
    (("select.num_kept=33",), "select.num_kept = 33 is more than rollouts.num_rollouts = 32"),
    (("select.num_kept=33", "select.rule=keep_all"), "select.num_kept = 33 is more than rollouts.num_rollouts = 32"),
    (("select.rule=keep_all",), "keep_all got num_kept = 8 of 32 rollouts"),
    (("select.rule=keep_all", "select.num_kept=0.25"), "keep_all got num_kept = 8 of 32 rollouts"),
    (("select.num_kept=1",), "select.num_kept = 1: wanted a whole number 2 ..", "or a share"),
    *(((f"select.num_kept={m}",), f"select.num_kept = {m}: wanted") for m in ("1.0", "1.5", "0.0", "nan")),
    (("select.num_kept=true",), "select.num_kept = True: wanted"),
    (("select.num_kept=a_quarter",), "select.num_kept = 'a_quarter': wanted"),
    (("select.num_kept=0.5", "select.num_chunks=3"), "select.num_chunks = 3 does not divide"),
    (("select.num_kept=0.5", "select.num_chunks=32"), "select.num_chunks = 32", "at least 2 kept"),
]


@each("case", REFUSED, few=30)
def test_what_does_not_go_together_is_refused(case: tuple[Sequence[str], ...]) -> None:
    overrides, *named = case
    with pytest.raises(UsageError) as error:
        prepare(config_of(*SMALL, *overrides))
    text = str(error.value)
    assert "\n" not in text and all(part in text for part in named), text


@each(
    "overrides",
    [
        (*AHEAD, BESIDE),
        RUNS,
        (*RUNS, BESIDE, *MIXED),
        FIRST,
        (*FIRST, *BATCH),
        (*FIRST, *ECHO),
        (*FIRST, "scale.generators=1"),
        ("order.ahead=0.25", "order.take=first", "order.rest=run", "order.most_age=3", "scale.generators=1"),
    ],
)
def test_orders_that_go_with_the_rest_of_a_run(overrides: Sequence[str]) -> None:
    prepare(config_of(*SMALL, *overrides)).close()


@each(
    "overrides",
    [
        CERTAIN,
        (*CERTAIN, "select.num_kept=7"),
        (*CERTAIN, "select.rule=max_signal"),
        (*CERTAIN, "loss.advantage=leave_one_out"),
        (*CERTAIN, *OWN, "options.certain.lowest=0", "options.certain.highest=9"),
        ("systems=until_mixed,dapo", "select.rule=max_signal"),
    ],
)
def test_closing_goes_with_what_reads_kept_rewards_alone(overrides: Sequence[str]) -> None:
    prepare(config_of(*SMALL, *overrides)).close()


def test_an_evaluation_is_not_watched_so_any_generator_does() -> None:
    config = config_of(*SMALL, *RANDOM, "rollouts.generator=beside:beside")
    prepare(config, is_trained=False).close()


@each(
    "system, overrides, named",
    [
        ("dots", ("options.dots.num_references=505",), ("num_references = 505", "504")),
        ("dots", ("rollouts.num_prompts=505",), ("num_prompts = 505", "'dots'", "504")),
        ("dps", ("rollouts.num_prompts=505",), ("num_prompts = 505", "'dps'", "504")),
    ],
)
def test_a_part_may_refuse_a_set_that_is_too_small(system: str, overrides: Sequence[str], named: Sequence[str]) -> None:
    with pytest.raises(UsageError) as error:
        prepare(load_config(f"systems/{system}", overrides))
    assert all(part in str(error.value) for part in named)
