"""Which weights a server holds is told by its log-probs, also where rounding is larger than a step."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from logprob_server import logprob_server
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.policy import load_policy, load_tokenizer
from podsrl.tools.check_weights import (
    WeightsCheck,
    check_weights,
    judge,
    round_between_modules,
    round_weights,
    score_answers,
)
from podsrl.tools.served import PROMPTS, Answer, ask_server
from small_models import VOCABULARY, new_model

ROWS = [Answer((5, 9, 17), (30, 4), (0.0, 0.0)), Answer((3,), (60, 7, 80, 98), (0.0,) * 4)] * 5
"""More than are scored at once, of several lengths."""


def load(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def moved(folder: Path, by: float, to: Path) -> Path:
    """The same model with all weights moved, as by a step."""
    model, draw = load(folder), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(by * torch.randn(weight.shape, generator=draw))
    model.save_pretrained(to)
    AutoTokenizer.from_pretrained(folder).save_pretrained(to)
    return to


def served(folder: Path, wanted: list[Path], num_tokens: int = 8) -> WeightsCheck:
    """What is found of a server that computes with a folder's weights in bfloat16, as on a GPU."""
    tokenizer = AutoTokenizer.from_pretrained(wanted[0])
    with logprob_server(load(folder, torch.bfloat16), tokenizer) as server:
        answers = ask_server(server.url, tokenizer, vocabulary=VOCABULARY, num_tokens=num_tokens).answers
    return check_weights(answers, [str(path) for path in wanted])


def test_scores_are_those_of_a_plain_forward_pass_of_each_answer_alone(tiny_model: Any) -> None:
    found = score_answers(tiny_model, ROWS)
    twin = []
    for row in ROWS:
        ids = torch.tensor([row.prompt_ids + row.token_ids])
        with torch.no_grad():
            table = tiny_model(ids).logits[0].log_softmax(-1)
        twin += [float(table[len(row.prompt_ids) + i - 1, token]) for i, token in enumerate(row.token_ids)]
    assert len(found) == 30 and (found - torch.tensor(twin, dtype=torch.float64)).abs().max() < 1e-5


def test_rounding_is_about_as_large_as_that_of_a_model_in_bfloat16(tiny_model: Any) -> None:
    draw = torch.Generator().manual_seed(0)
    rows = [Answer((i,), tuple(torch.randint(3, 99, (30,), generator=draw).tolist()), ()) for i in range(3, 19)]
    ours, real = copy.deepcopy(tiny_model), copy.deepcopy(tiny_model)
    round_weights(ours, torch.bfloat16)
    exact = score_answers(ours, rows)
    round_between_modules(ours, torch.bfloat16)
    for weight in real.parameters():
        weight.data = weight.data.bfloat16()
    sizes = [float((score_answers(model, rows) - exact).abs().mean()) for model in (ours, real)]
    assert sizes[1] / 1.5 < sizes[0] < sizes[1] * 1.5


OWN = torch.tensor([-1.0, -2.0, -3.0, -4.0], dtype=torch.float64)
WAY = torch.tensor([0.5, 0.0, 0.0, -0.5], dtype=torch.float64)


def test_a_position_and_its_error_by_hand() -> None:
    gaps = torch.tensor([0.5, 0.1, 0.1, -0.4], dtype=torch.float64)
    found = judge(OWN + gaps, [2, 2], {"a": OWN, "b": OWN + WAY}, OWN + 0.1, [False, False])
    # position (0.25 + 0.2) / 0.5; what is left along the way: 0.5 · 0.05 in one answer, −0.5 · 0.05 in the other
    assert found.positions[0].position == pytest.approx(0.9)
    assert found.positions[0].error == pytest.approx(math.sqrt(2 * (0.025**2 + 0.025**2)) / 0.5)
    first, second = found.distances
    assert (first.mean, first.largest, first.share_within) == pytest.approx((0.275, 0.5, 0.5))
    assert (second.mean, second.largest, second.share_within) == pytest.approx((0.075, 0.1, 1.0))
    assert (found.rounding, found.verdict, found.nearest) == (pytest.approx(0.1), "other", "b")


def test_what_rounding_alone_moves_a_position_by_counts_as_an_error() -> None:
    for pull, verdict in ((0.1, "other"), (0.15, "undecided")):
        found = judge(OWN + 0.9 * WAY, [2, 2], {"a": OWN, "b": OWN + WAY}, OWN - pull * WAY, [False, False])
        assert (found.positions[0].position, found.positions[0].error) == pytest.approx((0.9, pull))
        assert found.verdict == verdict  # 0.4 from the middle


def test_twice_the_rounding_is_still_the_same_weights_and_more_is_not() -> None:
    for gap, verdict in ((0.1, "right"), (0.19, "right"), (0.21, "unknown")):
        assert judge(OWN - gap, [2, 2], {"a": OWN}, OWN + 0.1, [False]).verdict == verdict


def test_weights_that_give_the_same_log_probs_are_not_told_apart() -> None:
    found = judge(OWN, [2, 2], {"a": OWN, "b": OWN.clone()}, OWN + 0.1, [False, False])
    assert (found.verdict, found.nearest, found.positions[0].error) == ("undecided", "a", math.inf)


def test_one_answer_has_no_standard_error() -> None:
    assert judge(OWN, [4], {"a": OWN, "b": OWN + WAY}, OWN + 0.1, [False, False]).verdict == "undecided"


@pytest.fixture(scope="module")
def new(tiny_model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step behind `tiny_model_folder`, by less than rounding."""
    return moved(tiny_model_folder, 5e-4, tmp_path_factory.mktemp("weights") / "new")


def test_a_server_that_is_one_step_old_is_found_where_the_step_is_smaller_than_rounding(
    tiny_model_folder: Path, new: Path
) -> None:
    old = tiny_model_folder
    found = served(old, [new, old], num_tokens=16)
    assert (found.verdict, found.nearest) == ("other", str(old)), found
    assert abs(found.positions[0].position - 1) < 3 * found.positions[0].error < 0.5
    assert found.distances[0].mean < 2 * found.rounding, found  # so that the new weights alone would pass
    assert served(new, [new, old], num_tokens=16).verdict == "right"


def judged(by: float, seed: int, num_rows: int) -> list[tuple[bool, WeightsCheck]]:
    """Of servers in bfloat16 with a small model before and after a step: whether it is the one after, and what is found
    with that as the first weights, from rows of 8 tokens."""
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, VOCABULARY, (num_rows, 12), generator=draw).tolist()
    rows = [Answer(tuple(each[:4]), tuple(each[4:]), ()) for each in tokens]
    old = new_model("qwen2")
    new = copy.deepcopy(old)
    with torch.no_grad():
        for weight in new.parameters():
            weight.add_(by * torch.randn(weight.shape, generator=draw))
    servers = [score_answers(copy.deepcopy(model).bfloat16(), rows) for model in (old, new)]
    for model in (old, new):
        round_weights(model, torch.bfloat16)
    scores = {"new": score_answers(new, rows), "old": score_answers(old, rows)}
    round_between_modules(new, torch.bfloat16)
    rounded = score_answers(new, rows)
    return [
        (is_new, judge(server, [8] * num_rows, scores, rounded, [False, False]))
        for is_new, server in zip((False, True), servers, strict=True)
    ]


def test_no_verdict_is_wrong_where_the_nearest_weights_often_are() -> None:
    found = [each for seed in range(20) for each in judged(5e-5, seed, 8)]
    assert sum(check.nearest != ("new" if is_new else "old") for is_new, check in found) >= 2
    wrong = [check for is_new, check in found if check.verdict not in ("right" if is_new else "other", "undecided")]
    assert wrong == []


def test_a_step_that_shows_is_told_apart() -> None:
    found = [each for seed in range(6) for each in judged(1e-3, seed, 32)]
    assert [check.verdict for _, check in found] == ["other", "right"] * 6


def test_other_weights_are_none_of_these(tiny_model_folder: Path, tmp_path: Path) -> None:
    far = moved(tiny_model_folder, 0.05, tmp_path / "far")
    found = served(tiny_model_folder, [far])
    assert found.verdict == "unknown" and found.distances[0].mean > 5 * found.rounding
    assert found.num_tokens == 2 * len(PROMPTS) * 8


def test_an_adapter_that_was_not_loaded_is_found_without_being_asked_for(
    tiny_model_folder: Path, tmp_path: Path
) -> None:
    section = {"model": {"path": str(tiny_model_folder), "device": "cpu"}, "lora": {"rank": 4}}
    config = RunConfig.model_validate(section)
    policy, draw = load_policy(config, load_tokenizer(config.model)), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in policy.weights().values():
            weight.add_(0.02 * torch.randn(weight.shape, generator=draw))
    adapter, merged = tmp_path / "adapter", tmp_path / "merged"
    policy.save(adapter)
    merging = load(tiny_model_folder)
    merging.load_state_dict(dict(policy.sampled_weights()), strict=False)
    merging.save_pretrained(merged)
    found = served(tiny_model_folder, [adapter])
    assert (found.verdict, found.nearest) == ("no adapter", str(tiny_model_folder))
    assert served(merged, [adapter]).verdict == "right"


@pytest.mark.parametrize("form", ["token_id", "texts"])
def test_drawn_tokens_are_read_in_every_form(tiny_model_folder: Path, tokenizer: Any, form: str) -> None:
    found = {}
    for each in ("ids", form):
        with logprob_server(load(tiny_model_folder), tokenizer, each) as server:
            found[each] = ask_server(server.url, tokenizer, vocabulary=VOCABULARY, num_tokens=4).answers
    assert found[form] == found["ids"] and len(found["ids"]) == 2 * len(PROMPTS)


def test_of_texts_that_several_tokens_have_an_answer_is_read_up_to_the_first(
    tiny_model_folder: Path, tokenizer: Any
) -> None:
    class Blind(type(tokenizer)):  # type: ignore[misc]
        def batch_decode(self, sequences: Any, *args: Any, **kwargs: Any) -> list[str]:
            return ["?" for _ in sequences]

    blind = copy.copy(tokenizer)
    blind.__class__ = Blind
    with (
        logprob_server(load(tiny_model_folder), tokenizer, "texts") as server,
        pytest.raises(UsageError, match="texts that do not tell which token each is; wanted token_ids"),
    ):
        ask_server(server.url, blind, vocabulary=VOCABULARY, num_tokens=4)


@pytest.mark.parametrize("form", ["ids", "texts"])
def test_another_tokenizer_is_named(
    tiny_model_folder: Path, tokenizer: Any, form: str, make_model: Callable[..., Any]
) -> None:
    wider = copy.deepcopy(tokenizer)
    wider.add_tokens(["What is", "the"])
    model = make_model("qwen2", vocab_size=VOCABULARY + 2, max_position_embeddings=256)
    with logprob_server(model, wider, form) as server, pytest.raises(UsageError) as caught:
        ask_server(server.url, tokenizer, vocabulary=VOCABULARY, num_tokens=4)
    how = "'What is 17 + 25?' as [" if form == "ids" else "the prompts as "
    assert f"has another tokenizer than --weights: it reads {how}" in str(caught.value)
