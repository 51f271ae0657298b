"""Kept rollouts as a service's records, what a run refuses, and what a step costs: without a service."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import tensor

from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.generate import Kind, resolve_generator
from podsrl.integrations.tinker.costs import Prices, step_costs
from podsrl.integrations.tinker.datums import loss_name, to_logprobs, to_rows, token_shares
from podsrl.integrations.tinker.kind import check_config
from podsrl.integrations.tinker.service import check_address, vocabulary_difference
from podsrl.types import Group, Rollout, Sample, Task
from podsrl.update import LossSpec, make_batch


def sample(*token_ids: int, advantage: Any = 1.0, given: Any = (), prompt: Any = (5, 6), group: str = "a") -> Sample:
    logprobs = tuple(-0.5 * place for place in range(1, len(token_ids) + 1))
    for start, end in given:
        logprobs = (*logprobs[:start], *(0.0 for _ in range(start, end)), *logprobs[end:])
    done = Rollout(
        group_id=group, index=0, token_ids=token_ids, logprobs=logprobs, finish_reason="stop", version=0, given=given
    )
    return Sample(group_id=group, prompt_ids=prompt, rollout=done, advantage=advantage)


def spec(aggregate: Any, clip: Any = "ppo") -> LossSpec:
    return LossSpec(ratio="token", clip=clip, aggregate=aggregate, clip_low=0.25, clip_high=0.5)


# Rows of 1 and 3 targets, of a step of 4 rows with 10 tokens; completions have at most 8 tokens.
@pytest.mark.parametrize(
    ("aggregate", "wanted"),
    [
        ("sequence_mean", [1 / 4, 1 / 12]),
        ("token_mean", [1 / 10, 1 / 10]),
        ("constant", [1 / 32, 1 / 32]),
        ("group_mean", [2 / 4, 0.5 / 12]),
    ],
)
def test_the_sum_of_the_service_is_the_average_of_the_loss(aggregate: str, wanted: list[float]) -> None:
    batch = make_batch([sample(7), sample(7, 8, 9)], pad_token_id=0, row_weights=[2.0, 0.5])
    shares = token_shares(batch, spec(aggregate), rows=4, tokens=10, max_length=8)
    assert shares.squeeze(-1).tolist() == pytest.approx(wanted)


def test_a_row_holds_the_tokens_as_they_were_sampled() -> None:
    batch = make_batch([sample(7, 8, advantage=-2.0), sample(9, advantage=3.0, prompt=(4,))], pad_token_id=0)
    first, second = to_rows(batch, tensor([[0.25], [0.5]]))
    assert (first.tokens, first.target_tokens) == ([5, 6, 7], [6, 7, 8])
    assert (first.logprobs, first.advantages) == ([0.0, -0.5, -1.0], [0.0, -0.5, -0.5])
    assert (second.tokens, second.target_tokens) == ([4], [9])
    assert (second.logprobs, second.advantages) == ([-0.5], [1.5])


def test_given_tokens_are_read_and_not_learned() -> None:
    [row] = to_rows(make_batch([sample(7, 8, 9, given=((1, 2),))], pad_token_id=0), tensor([[1.0]]))
    assert row.target_tokens == [6, 7, 8, 9]
    assert row.advantages == [0.0, 1.0, 0.0, 1.0] and row.logprobs == [0.0, -0.5, 0.0, -1.5]


def test_an_advantage_per_token_stays_with_its_token() -> None:
    [row] = to_rows(make_batch([sample(7, 8, advantage=(1.0, -3.0))], pad_token_id=0), tensor([[0.5]]))
    assert row.advantages == [0.0, 0.5, -1.5]


def test_log_probs_of_the_service_come_back_to_their_places() -> None:
    batch = make_batch([sample(7, 8), sample(9, prompt=(4,))], pad_token_id=0)
    found = to_logprobs([[-9.0, -1.0, -2.0], [-3.0]], batch)
    assert torch.equal(found, tensor([[0.0, -9.0, -1.0, -2.0], [0.0, -3.0, 0.0, 0.0]]))


def test_losses_by_the_names_of_the_service() -> None:
    bounds = {"clip_low_threshold": 0.75, "clip_high_threshold": 1.5}
    assert loss_name(spec("token_mean")) == ("ppo", bounds)
    assert loss_name(spec("token_mean", "cispo")) == ("cispo", bounds)
    assert loss_name(spec("token_mean", "none")) == ("importance_sampling", {})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"lora": {"rank": 8}}, r"\[lora\].*options\.tinker\.rank"),
        ({"optim": {"micro_batch_tokens": 512}}, r"optim\.micro_batch_tokens = 512 \(default 8192\)"),
        ({"model": {"attention": "eager"}, "rollouts": {"num_slots": 4}}, r"attention = 'eager'.*num_slots = 4"),
        ({"rollouts": {"temperature": 0.7}}, r"rollouts\.temperature = 0\.7 \(default 1\.0\).*no counterpart"),
        ({"loss": {"kl_beta": 0.1}}, r"loss\.kl_beta = 0\.1.*no counterpart"),
        ({"correct": {"proximal": "step_start"}}, r"\[correct\].*no counterpart"),
        ({"loss": {"name": "gspo"}}, r"loss\.ratio = 'sequence'"),
    ],
)
def test_what_a_service_knows_nothing_of_is_refused(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        check_config(RunConfig.model_validate(changes))


def test_what_a_recipe_sets_for_this_process_is_left_out_at_a_service(tmp_path: Path) -> None:
    there, file = "--rollouts.generator=tinker", tmp_path / "mine.toml"
    assert load_config("pods").optim.micro_batch_tokens == 3072 and load_config("gsm8k").lora is not None
    for recipe in ("pods", "gsm8k", "systems/dapo"):
        check_config(config := load_config(recipe, [there]))
        assert config.optim.micro_batch_tokens == 8192 and config.lora is None
    file.write_text('extends = "pods"\n[rollouts]\ngenerator = "tinker"\n')
    check_config(load_config(file))
    assert load_config(file).rollouts.num_rollouts == 64


def test_what_somebody_wrote_for_this_process_is_refused_at_a_service(tmp_path: Path) -> None:
    there, file = "--rollouts.generator=tinker", tmp_path / "mine.toml"
    with pytest.raises(UsageError, match="micro_batch_tokens = 3072"):
        check_config(load_config("pods", [there, "--optim.micro_batch_tokens=3072"]))
    file.write_text('extends = "gsm8k"\n[lora]\nrank = 8\n')
    with pytest.raises(UsageError, match=r"\[lora\]"):
        check_config(load_config(file, [there]))


def test_a_plain_run_is_not_refused() -> None:
    check_config(RunConfig.model_validate({"loss": {"name": "dr_grpo"}, "select": {"rule": "random"}}))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"api_key": "k"}, "options.tinker.api_key = 'k': there is no such option"),
        ({"rank": 0}, "options.tinker.rank = 0: wanted a number of at least 1"),
        ({"price_sampled": -1.0}, "options.tinker.price_sampled = -1.0: wanted a number of at least 0"),
        ({"timeout_seconds": 0.0}, "options.tinker.timeout_seconds = 0.0"),
        ({"base_url": "localhost:8000"}, "wanted an address, such as https://HOST/PATH"),
        ({"base_url": "https://me:secret@host"}, "put the key into the environment variable TINKER_API_KEY"),
    ],
)
def test_options_are_checked_before_anything_is_asked(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_generator("tinker", {"tinker": options})
    assert named in str(caught.value) and "secret" not in str(caught.value)


def test_the_kind_trains_and_generates_beside() -> None:
    kind = resolve_generator("tinker", {"tinker": {"rank": 8}})
    assert isinstance(kind, Kind) and kind.training is not None and kind.is_beside and not kind.is_watching
    assert check_address("https://host/path/") == "https://host/path"


def tokenizer(*words: str, end: int = 0) -> Any:
    return SimpleNamespace(get_vocab=lambda: {word: number for number, word in enumerate(words)}, eos_token_id=end)


def test_another_tokenizer_is_told_by_its_first_other_token() -> None:
    own = tokenizer("<eos>", "a", "b")
    assert vocabulary_difference(own, tokenizer("<eos>", "a", "b")) == ""
    assert vocabulary_difference(own, tokenizer("<eos>", "b", "a")) == "'a' is token 1 of 3, there 2 of 3"
    assert vocabulary_difference(own, tokenizer("<eos>", "a")) == "'b' is token 2 of 3, there none of 2"
    assert vocabulary_difference(own, tokenizer("<eos>", "a", "b", "c")) == "it has 4 tokens, model.path 3"
    assert vocabulary_difference(own, tokenizer("<eos>", "a", "b", end=2)).startswith("its end token is 2")


def group(name: str, *rollouts: tuple[int, float]) -> Group:
    """Rollouts of so many tokens, each with its reward; the prompt has two tokens."""
    made = []
    for index, (length, reward) in enumerate(rollouts):
        done = Rollout(
            group_id=name,
            index=index,
            token_ids=(7,) * length,
            logprobs=(-1.0,) * length,
            finish_reason="stop",
            version=0,
        )
        made.append(replace(done, reward=reward, is_correct=reward == 1))
    return Group(id=name, task=Task(id=name, prompt="p", answer="a"), prompt_ids=(5, 6), rollouts=tuple(made))


def test_a_step_costs_what_was_sampled_and_what_was_sent() -> None:
    """Group a has signal: rows of 2 + 3 - 1, 2 + 1 - 1 and 2 + 2 - 1 tokens, of which the first and the last are kept.
    Group b has none: nothing of it is sent, with or without a selection. The budget leaves c out."""
    a, b, c = group("a", (3, 1.0), (1, 0.0), (2, 0.0)), group("b", (4, 0.0), (4, 0.0)), group("c", (1, 1.0))
    kept = [sample(7, 7, 7, advantage=1.0), sample(7, 7, advantage=-1.0), sample(7, 7, 7, 7, advantage=0.0)]
    result = SimpleNamespace(groups=(a, b), fresh=(a, b), left_out=(c,), probes=(), samples=kept)
    tokens = {
        "service/prompt_tokens": 6,
        "service/sampled_tokens": 3 + 1 + 2 + 4 + 4 + 1,
        "service/trained_tokens": 2 * (4 + 3),
        "service/trained_tokens_all": 2 * (4 + 2 + 3),
    }
    assert step_costs(result, Prices(), num_epochs=2) == tokens
    prices = Prices(prompt=1e6, sampled=2e6, trained=3e6)
    costs = {"service/cost": 6 + 2 * 15 + 3 * 14, "service/cost_all": 6 + 2 * 15 + 3 * 18}
    assert step_costs(result, prices, num_epochs=2) == tokens | costs
