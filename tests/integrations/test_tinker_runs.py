"""Runs at a service of Tinker's API that answers here (`tinker_service.py`), over the service's own client."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("tinker", reason="tinker is not installed (make test-peers)")

import tinker_service

import children
from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig
from podsrl.errors import LostGenerator, PodsError, UnavailableError, UsageError
from podsrl.generate import Request, Sampling
from podsrl.integrations.tinker.datums import Row
from podsrl.integrations.tinker.generator import TinkerGenerator
from podsrl.integrations.tinker.service import Service
from podsrl.policy import load_policy
from podsrl.run.before.prepare import prepare
from podsrl.run.session import resume, start
from podsrl.run.step.trainer import Trainer
from podsrl.run.step.wiring import new_learner
from podsrl.types import Rollout, Sample
from runs import lines_of, numbers

MODEL = str(resources.files("podsrl") / "models" / "arithmetic")
OPTIONS = (
    *("rollouts.num_prompts=2", "rollouts.num_rollouts=16", "select.num_kept=4", "rollouts.max_new_tokens=16"),
    *("task.num_eval=4", "eval.every_seconds=0", "stop.seconds=0", "stop.steps=4"),
    *("checkpoint.every_seconds=0", "checkpoint.every_steps=2", "optim.lr=1e-3"),
    *("rollouts.generator=tinker", f"options.tinker.base_model={tinker_service.NAME}"),
)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", tinker_service.KEY)
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    monkeypatch.delenv("TINKER_BASE_URL", raising=False)


@contextmanager
def service(**options: Any) -> Iterator[tuple[tinker_service.Service, tuple[str, ...]]]:
    """A service, and the options of a run at it."""
    made = tinker_service.Service(MODEL, **options)
    with tinker_service.serving(made) as url:
        yield made, (*OPTIONS, f"options.tinker.base_url={url}", "options.tinker.timeout_seconds=20")


def config_of(*options: str) -> RunConfig:
    return load_config("pods", list({text.partition("=")[0]: text for text in options}.values()))


def run(path: Path, *options: str) -> list[dict[str, Any]]:
    """A run's lines, without what the clock says."""
    assert start(config_of(*options), path, on_record=lambda line: None, say=lambda line: None) == "finished"
    return numbers(path)


def go_on(path: Path, *overrides: str) -> list[dict[str, Any]]:
    assert resume(path, overrides, on_record=lambda line: None, say=lambda line: None) == "finished"
    return numbers(path)


def dead_after(route: str, number: int, first: Any) -> Callable[[str, int], Any]:
    """A service that is gone from a request on; the first one ends as `first` says."""
    is_dead = False

    def fault(asked: str, count: int) -> Any:
        nonlocal is_dead
        if is_dead:
            return "dead"
        is_dead = asked == route and count == number
        return first if is_dead else None

    return fault


def trained_here(config: RunConfig, samples: list[Sample]) -> dict[str, torch.Tensor]:
    """The weights after an update on these samples by this process's own learner."""
    here = RunConfig.model_validate(
        {
            **config.model_dump(exclude={"options", "rollouts"}),
            "rollouts": {**config.rollouts.model_dump(), "generator": "engine"},
        }
    )
    parts = prepare(here)
    with torch.random.fork_rng():
        policy = load_policy(here, parts.tokenizer)
    trainer = Trainer(here, parts=parts)
    try:
        learner = new_learner(here, policy, parts, trainer.processes)
        learner.update(learner.make_batch(samples))
        return {name: value.detach().clone() for name, value in policy.weights().items()}
    finally:
        trainer.close()


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("loss.name=dapo", "optim.betas=[0.8,0.95]", "optim.eps=1e-3"),
        ("loss.name=dr_grpo", "optim.max_grad_norm=0.01"),
        ("loss.name=cispo", "optim.num_epochs=2", "optim.warmup_steps=1"),
        ("loss.clip=none", "loss.aggregate=group_mean", "optim.num_minibatches=2"),
    ],
    ids=["grpo", "dapo", "dr_grpo", "cispo, two epochs", "unbounded, two mini-batches"],
)
def test_a_step_at_the_service_gives_the_weights_of_our_own_learner(more: tuple[str, ...]) -> None:
    """The same kept rollouts and advantages: two programs, one gradient and one AdamW."""
    with service() as (made, options):
        config = config_of(*options, "optim.eps=1e-4", *more)
        trainer = Trainer(config)
        try:
            for _ in range(20):  # until a step has both right and wrong answers
                collected = trainer.sample()
                samples = trainer.credit(collected.groups, trainer.choose(collected.groups))
                if sum(sample.has_advantage for sample in samples) >= 4:
                    break
                trainer.finish_step(collected)
            result = trainer.update(trainer.make_batch(samples))
        finally:
            trainer.close()
        [model] = made.models.values()
        theirs = model.module.state_dict()
    ours = trained_here(config, samples)
    before = tinker_service.Service(MODEL)._base.state_dict()
    assert ours.keys() <= theirs.keys()
    moved = max(float((ours[name] - before[name]).abs().max()) for name in ours)
    gap = max(float((ours[name] - theirs[name]).abs().max()) for name in ours)
    assert moved > 1e-5 and gap < 1e-3 * moved, (moved, gap)
    assert result.stats.num_trained_rows == sum(sample.has_advantage for sample in samples)
    assert result.grad_norm > 0 and made.trained_rows == result.stats.num_trained_rows * config.optim.num_epochs


def test_a_run_whose_service_goes_after_an_unconfirmed_step_counts_it_once(tmp_path: Path) -> None:
    """The service takes the third optimizer step, and nobody hears of it. The resumed run goes back to the state that
    was saved after the second step, and ends with the numbers of a run that nothing happened to."""
    with service() as (_, options):
        whole = run(tmp_path / "whole", *options)
    done = [line["step"] for line in whole if line.get("service/trained_tokens", 0) > 0]
    assert len(done) >= 3, "wanted steps that teach, so that there is something to count twice"
    number = sum(step <= 3 for step in done)  # of the optimizer step that is taken in step 3, or in the one before
    with service() as (made, options):
        made.fault = dead_after("optim_step", number, "drop")
        with pytest.raises(LostGenerator, match=r"optim_step") as caught:
            run(tmp_path / "lost", *options, "options.tinker.timeout_seconds=3")
        assert "\n" not in str(caught.value) and tinker_service.KEY not in str(caught.value)
        made.fault = lambda route, count: None
        again = go_on(tmp_path / "lost")
    assert again == whole
    assert lines_of(tmp_path / "lost")[-1]["step"] == 4


def test_a_lost_answer_and_a_busy_service_change_no_number(tmp_path: Path) -> None:
    """The client asks again; the service does not do it again, and a busy one is waited for."""
    with service() as (_, options):
        whole = run(tmp_path / "whole", *options, "stop.steps=2")
    faults = {("optim_step", 1): "drop", ("asample", 1): 429, ("forward_backward", 1): 500}
    with service(fault=lambda route, number: faults.get((route, number))) as (made, options):
        assert run(tmp_path / "rough", *options, "stop.steps=2") == whole
    assert {route for route, _ in faults} <= made.counts.keys()
    assert all(made.counts[route] > 1 for route, _ in faults)


def test_rollouts_join_a_group_and_go_on_behind_their_tokens() -> None:
    def drawn(*requests: Request) -> dict[tuple[str, int], Rollout]:
        generator.submit(requests)
        found = list[Rollout]()
        while generator.num_unfinished:
            found += generator.poll()
        return {(each.group_id, each.index): each for each in found}

    sampling = Sampling(max_new_tokens=6, stop_token_ids=())
    with service() as (made, options):
        own = Service(base_url=options[-2].partition("=")[2], base_model=tinker_service.NAME, timeout_seconds=20.0)
        generator = TinkerGenerator(own, seed=0, timeout_seconds=20.0)
        first = drawn(Request("g", (5, 6), 3, sampling))
        assert drawn(Request("g", (5, 6), 3, sampling)) == first
        head = first["g", 0]
        start = replace(head, index=3, token_ids=head.token_ids[:2], logprobs=head.logprobs[:2], status="open")
        more = drawn(
            Request("g", (5, 6), 2, sampling, first_index=3, starts={3: start}), Request("h", (5, 6), 3, sampling)
        )
        generator.close()
    assert more.keys() == {("g", 3), ("g", 4), ("h", 0), ("h", 1), ("h", 2)}
    assert more["g", 3].token_ids[:2] == head.token_ids[:2] and more["g", 3].logprobs[:2] == head.logprobs[:2]
    of_groups = [[found[name, index].token_ids for index in range(3)] for found, name in ((first, "g"), (more, "h"))]
    assert of_groups[0] != of_groups[1], "groups have random numbers of their own"
    assert len(set(map(tuple, of_groups))) == 2 and len(set(of_groups[0] + of_groups[1])) > 2
    for done in (head, more["g", 3], more["h", 1]):
        assert len(done.token_ids) == 6 and done.finish_reason == "length"
        with torch.no_grad():
            logits = made._base(torch.tensor([[5, 6, *done.token_ids]])).logits[0, 1:-1]
        wanted = logits.log_softmax(-1).gather(-1, torch.tensor(done.token_ids)[:, None])[:, 0]
        assert list(done.logprobs) == pytest.approx(wanted.tolist(), abs=1e-4)


def test_after_a_fault_nothing_is_trained_or_saved_until_a_saved_state_is_loaded() -> None:
    with service() as (made, options):
        url = options[-2].partition("=")[2]
        own = Service(base_url=url, base_model=tinker_service.NAME, timeout_seconds=2.0)
        path = own.save("before")
        made.fault = lambda route, count: 500 if route == "optim_step" else None
        with pytest.raises(LostGenerator, match=r"no answer to optim_step within options\.tinker\.timeout_seconds = 2"):
            own.optim_step(learning_rate=1e-3)
        made.fault = lambda route, count: None
        for call in (own.sampler, lambda: own.save("after"), lambda: own.optim_step(learning_rate=1e-3)):
            with pytest.raises(PodsError, match=r"optim_step was not confirmed.*--resume"):
                call()
        own.load(path)
        own.save("after")
        own.close()


def test_no_state_is_saved_while_gradients_wait() -> None:
    with service() as (_, options):
        own = Service(base_url=options[-2].partition("=")[2], base_model=tinker_service.NAME, timeout_seconds=20.0)
        row = Row(tokens=[5, 6], target_tokens=[6, 7], logprobs=[-1.0, -1.0], advantages=[0.5, 0.5])
        [found] = own.forward_backward([row], "importance_sampling", {})
        assert len(found) == 2 and all(value < 0 for value in found)
        with pytest.raises(PodsError, match="save_state between forward_backward and optim_step"):
            own.save("between")
        own.optim_step(learning_rate=1e-3)
        assert own.save("after").startswith("tinker://")
        own.close()


def test_a_wrong_key_ends_the_run_before_anything_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-of-somebody-else")
    with service() as (made, options):
        with pytest.raises(UsageError, match=r"AuthenticationError.*401.*TINKER_API_KEY") as caught:
            run(tmp_path / "run", *options)
        assert "tml-of" not in str(caught.value) and not made.counts["create_model"]
    assert not (tmp_path / "run").exists()


def test_a_model_that_the_service_does_not_have(tmp_path: Path) -> None:
    with service() as (_, options):
        wrong = (*options, "options.tinker.base_model=tiny/modle")
        with pytest.raises(UsageError, match=re.escape("no such model. Did you mean 'tiny/model'?")):
            run(tmp_path / "run", *wrong)


def test_nothing_answers(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"at http://127\.0\.0\.1:9: no answer"):
        run(tmp_path / "run", *OPTIONS, "options.tinker.base_url=http://127.0.0.1:9")


def test_another_tokenizer_is_refused_before_a_token_is_sampled(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("tokenizer_config.json", "config.json"):
        (other / name).write_text((Path(MODEL) / name).read_text())
    tokenizer = json.loads((Path(MODEL) / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with service(tokenizer=str(other)) as (made, options):
        with pytest.raises(UsageError, match=r"tokenizer '.*other' is not that of model\.path: 'a' is token 15 of"):
            run(tmp_path / "run", *options)
        assert not made.counts["asample"]


def test_the_key_is_in_no_file_of_a_run(tmp_path: Path) -> None:
    with service() as (_, options):
        run(tmp_path / "run", *options, "stop.steps=1")
    texts = [path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert texts and not any(tinker_service.KEY.encode() in text for text in texts)


def test_a_run_that_is_killed_ends_with_the_numbers_of_one_that_was_not(tmp_path: Path) -> None:
    """The service has trained beyond the saved state when the process is killed."""
    with service() as (made, options):
        flags = [f"--{text}" for text in {each.partition("=")[0]: each for each in (*options, "stop.steps=6")}.values()]
        whole, killed = tmp_path / "whole", tmp_path / "killed"
        assert pods("train", "pods", *flags, "--out", str(whole)).wait() == 0
        process = pods("train", "pods", *flags, "--out", str(killed))
        log = killed / "metrics.jsonl"
        while process.poll() is None and not (log.exists() and '"step": 3,' in log.read_text()):
            time.sleep(0.01)
        process.kill()
        process.wait()
        assert lines_of(killed)[-1]["step"] < 6, "it was killed too late"
        assert pods("train", "--resume", str(killed)).wait() == 0
    assert numbers(killed) == numbers(whole)
    assert len({path for path in made.saved if path.endswith("/podsrl-step-00000006")}) == 2


def pods(*arguments: str) -> children.Popen:
    return children.Popen([sys.executable, "-m", "podsrl.cli", *arguments], stderr=children.DEVNULL)
