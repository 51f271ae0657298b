"""What vLLM is asked for and what it answers: no vLLM is needed here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
import torch
from transformers import AutoConfig

from podsrl.config.load import load_config
from podsrl.errors import UnavailableError, UsageError
from podsrl.generate import Request, Sampling, Setting, resolve_generator
from podsrl.generate.vllm.handover import tied_names, with_tied
from podsrl.generate.vllm.make import OWN_OPTIONS, make_vllm
from podsrl.generate.vllm.order import Priorities
from podsrl.generate.vllm.sampling import check_requests, drawn_prompt, new_completion, rollout_options, rollout_seed
from podsrl.generate.vllm.start import check_installed
from podsrl.lib.seeds import derive
from podsrl.run.before.checks import check_generator
from podsrl.run.step.generators import new_setting
from podsrl.types import Parent, Rollout

Pods = Any
REQUEST = Request("q", (5, 6), 3, Sampling(max_new_tokens=9, stop_token_ids=(1, 4), stop_strings=("x",)))


def test_a_rollouts_seed_depends_on_seed_group_and_index_alone() -> None:
    joined = Request("q", (7,), 1, first_index=2)
    assert rollout_seed(3, REQUEST, 2) == rollout_seed(3, joined, 2)
    seeds = {rollout_seed(seed, REQUEST, index) for seed in range(3) for index in range(3)}
    assert len(seeds) == 9 and all(0 <= seed < 2**63 for seed in seeds)
    assert rollout_seed(3, REQUEST, 2) == 4886566788724128277  # in every process, on every machine


START = Rollout(group_id="g", status="open", index=1, token_ids=(7, 8), logprobs=(-1.0, -2.0), version=3)
HINT = replace(START, logprobs=(0.0, 0.0), given=((0, 2),))


def test_a_rollout_that_goes_on_is_read_behind_its_prompt_with_random_numbers_of_its_own() -> None:
    plain = Request("q", (5, 6), 3, Sampling(max_new_tokens=9))
    request = replace(
        plain, starts={1: START, 2: Rollout(group_id="g", status="open", index=2, token_ids=(), logprobs=(), version=0)}
    )
    assert [drawn_prompt(request, index) for index in range(3)] == [[5, 6], [5, 6, 7, 8], [5, 6]]
    found, before = ([rollout_options(each, index, 3) for index in range(3)] for each in (request, plain))
    assert [each["max_tokens"] for each in found] == [9, 7, 9]
    assert [a["seed"] == b["seed"] for a, b in zip(found, before, strict=True)] == [True, False, True]
    assert found[1]["seed"] == derive(3, "q>2", 1)


@pytest.mark.parametrize(
    ("start", "drawn", "version", "versions"),
    [
        (START, (4, 4), 3, (3, 3, 4, 4)),  # new weights continue it
        (START, (4, 5), 3, (3, 3, 4, 5)),
        (START, (3, 3), 3, ()),
        (replace(START, versions=(1, 3)), (3, 3), 1, (1, 3, 3, 3)),
        (HINT, (4, 4), 4, ()),
        (HINT, (4, 5), 4, (4, 4, 4, 5)),
    ],
)
def test_a_completion_is_what_there_was_of_it_and_what_vllm_drew(
    start: Rollout, drawn: tuple[int, ...], version: int, versions: tuple[int, ...]
) -> None:
    start = replace(start, heard=(((True, False), 0.5),), parent=Parent(2, 1))
    request = Request("q", (5, 6), 3, Sampling(max_new_tokens=9), starts={1: start})
    found = new_completion(request, 1, (9, 10), (-0.5, -0.25), "stop", 4, drawn)
    assert (found.token_ids, found.logprobs) == ((7, 8, 9, 10), (*start.logprobs, -0.5, -0.25))
    assert (found.version, found.versions, found.given) == (version, versions, start.given)
    assert (found.heard, found.parent) == (start.heard, start.parent)
    broken = new_completion(request, 1, (9, 10), (None, -0.25), "stop", 4, drawn)
    assert (broken.token_ids, broken.status) == ((7, 8), "failed")
    never = new_completion(request, 1, (), (), None, 4)
    assert (never.token_ids, never.logprobs, never.status) == ((7, 8), start.logprobs, "open")


@pytest.mark.parametrize(
    ("requests", "wanted"),
    [
        ([replace(REQUEST, starts={1: START})], r"request 'q' has starts and stop_strings = \('x',\)"),
        ([REQUEST, replace(REQUEST, first_index=2)], "rollout 2 of request 'q' runs already, or is asked for twice"),
        ([replace(REQUEST, first_index=6)], "rollout 7 of request 'q' runs already"),
        ([replace(REQUEST, sampling=Sampling(max_new_tokens=63))], "2 prompt tokens .* max_model_len of 64: .* cure"),
        ([replace(REQUEST, sampling=Sampling(temperature=2.5))], "temperature = 2.5"),
    ],
)
def test_what_vllm_cannot_serve_is_one_line(requests: list[Request], wanted: str) -> None:
    with pytest.raises(UsageError, match=wanted) as found:
        check_requests(requests, 64, "a cure", running={("q", 7)})
    assert "\n" not in str(found.value)
    check_requests([REQUEST, replace(REQUEST, first_index=3)], 64, "a cure", running={("q", 7)})


@pytest.mark.parametrize(("sizes", "code"), [([32, 64], 2), ([16], 0), ([], 0)])
def test_the_size_of_heads_is_checked_before_weights_are_read(
    pods: Pods, monkeypatch: pytest.MonkeyPatch, sizes: list[int], code: int
) -> None:
    monkeypatch.setattr("podsrl.generate.vllm.start.head_sizes", lambda: sizes)
    monkeypatch.setattr("podsrl.generate.vllm.start.check_installed", lambda: None)
    found, _, err = pods("train", "pods", "--rollouts.generator=vllm", "--dry-run")
    assert found == code and ("have 16 numbers, and vLLM takes 32, 64" in err) == (code == 2)


# --- the refill order ---


def test_arrival_is_the_default_order_and_goes_on_from_call_to_call() -> None:
    priorities = Priorities("dynamic")
    first = priorities.of([Request("a", (5,), 2), Request("b", (5,), 1)])
    assert first == {("a", 0): 0, ("a", 1): 1, ("b", 0): 2}
    assert priorities.of([Request("c", (5,), 1)]) == {("c", 0): 3}


def test_breadth_lets_all_groups_grow_alike() -> None:
    ranks = Priorities("continuous+breadth").of([Request("a", (5,), 2), Request("b", (5,), 2)])
    assert ranks == {("a", 0): 0, ("b", 0): 1, ("a", 1): 2, ("b", 1): 3}


# --- weights for other processes ---


def test_tied_weights_go_under_all_their_names(tmp_path: Path, make_model: Any) -> None:
    make_model("qwen2", tie_word_embeddings=True).save_pretrained(tmp_path / "tied")
    make_model("qwen2", tie_word_embeddings=False).save_pretrained(tmp_path / "apart")
    tied, apart = (tied_names(Setting(load_model=list, folder=str(tmp_path / name))) for name in ("tied", "apart"))
    assert tied == {"model.embed_tokens.weight": ("lm_head.weight",)} and apart == {}
    given = [("model.embed_tokens.weight", torch.ones(1)), ("x", torch.zeros(1))]
    assert [name for name, _ in with_tied(given, tied)] == ["model.embed_tokens.weight", "lm_head.weight", "x"]


def test_model_and_tokenizer_are_those_of_the_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    read, start = Mock(wraps=AutoConfig.from_pretrained), MagicMock(**{"new_llm.side_effect": KeyError})
    monkeypatch.setattr(AutoConfig, "from_pretrained", read)
    monkeypatch.setattr("podsrl.generate.vllm.make.start", start)
    setting = new_setting(load_config("pods", ["model.revision=then"]), list, torch.device("cpu"), None)
    with pytest.raises(KeyError):
        make_vllm(setting)
    [given] = start.new_llm.call_args.args
    seen = [given["revision"], given["tokenizer_revision"], *(call.kwargs["revision"] for call in read.call_args_list)]
    assert seen == ["then"] * 4


# --- before any weights are read ---


@pytest.mark.parametrize(
    "changes",
    [
        ("rollouts.temperature=2.5",),
        ("eval.temperature=0.001",),
        ("rollouts.min_p=0.1", "rollouts.top_p=0.9"),
        ('rollouts.stop_strings=["x"]', "order.rest=put_off", "order.ahead=1"),
    ],
)
def test_what_vllm_has_no_counterpart_of_is_an_error(changes: tuple[str, ...]) -> None:
    config = load_config("pods", ["rollouts.generator=vllm", *changes])
    kind = resolve_generator(config.rollouts.generator, config.options)
    name, value = changes[0].replace('"', "'").split("=")
    with pytest.raises(UsageError) as caught:
        kind.check_run(config)
    message = str(caught.value)
    assert name in message and value in message and "\n" not in message


@pytest.mark.parametrize("scheduler", ["continuous", "dynamic", "continuous+breadth"])
def test_what_vllm_has_a_counterpart_of_is_none(scheduler: str) -> None:
    config = load_config("pods", ["rollouts.generator=vllm", f"rollouts.scheduler={scheduler}"])
    resolve_generator("vllm", {}).check_run(config)


def test_beside_other_processes_of_the_run_it_wants_processes_of_its_own() -> None:
    config, apart = (load_config("pods", ["rollouts.generator=vllm", f"scale.generators={num}"]) for num in (0, 2))
    kind = resolve_generator("vllm", {})
    with pytest.raises(UsageError, match=r"scale\.generators = 2"):
        check_generator(kind, config, 2)
    check_generator(kind, config, 1)
    check_generator(kind, apart, 2)


@pytest.mark.parametrize("name", OWN_OPTIONS)
def test_options_that_podsrl_sets_are_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podsrl.generate.vllm.start.check_installed", lambda: None)
    kind = resolve_generator("vllm", {"vllm": {name: "anything"}})
    with pytest.raises(UsageError, match=rf"options\.vllm\.{name} = 'anything'"):
        kind.check()


def test_options_of_another_kind_are_an_error() -> None:
    with pytest.raises(UsageError, match=r"options\.vllm\.gpu_memory_utilization"):
        resolve_generator("vllm", {"vllm": {"gpu_memory_utilization": "half"}})


def test_without_vllm_the_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, pods: Pods) -> None:
    monkeypatch.setattr("podsrl.generate.vllm.start.find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match=r"pip install 'podsrl\[vllm\]'"):
        check_installed()
    code, _, err = pods("train", "pods", "--rollouts.generator=vllm", "--stop.steps=1", "--out=run")
    assert code == 2 and "podsrl[vllm]" in err and len(err.strip().splitlines()) == 1
