"""Several processes against one, on the same global batch: the same numbers.

In float64 to six digits, because the log-probabilities of the sampled tokens are recorded in float32, to a relative
6e-8. In float32 a sum's order shows too: N terms differ by up to N * eps of their absolute sum, and
AdamW moves a weight by up to its rate whatever the size of its gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig
from podsrl.control import Ask, View
from podsrl.policy import load_model
from podsrl.run.metrics import step_metrics
from podsrl.run.saving.checkpoint import load_newest
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer

SMALL = (
    "rollouts.num_prompts=4",
    "rollouts.num_rollouts=12",
    "select.num_kept=6",
    "rollouts.max_new_tokens=24",
    "task.num_eval=7",
    "optim.micro_batch_tokens=200",
    "eval.every_seconds=0",
    "optim.lr=1e-6",
    f'task.rewards={{"{__name__}:partly" = 1.0}}',
)


def partly(prompts: list[str], completions: list[str]) -> list[float | None]:
    """Unequal groups: of some tasks far fewer answers are valid than are kept. In TRL's form: no worker processes."""
    rows = zip(prompts, completions, strict=True)
    is_invalid = [sum(map(ord, prompt)) % 3 == 0 and text[-2:-1] in "13579" for prompt, text in rows]
    return [None if bad else len(set(text)) / 10 for bad, text in zip(is_invalid, completions, strict=True)]


class MoreOfEveryOther:
    """Two more rollouts, then one more, of every other group: an odd number of asks, and groups of unequal size."""

    def rollouts(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        if view.round == 0 or view.round > 2:
            return asks
        chosen = view.groups[view.step % 2 :: 2]
        return [Ask(index=g.index, num_rollouts=3 - view.round, joins=g.id) for g in chosen if g.index is not None]


class HalfShown:
    """Another prompt for every other ask."""

    def guide(self, view: View, asks: Sequence[Ask]) -> Sequence[Ask]:
        prompts = [f"What is 1 + 1?\n2\n\n{view.tasks[ask.index].prompt}" for ask in asks]
        return [
            replace(ask, prompt=prompt, origin="shown") if place % 2 else ask
            for place, (ask, prompt) in enumerate(zip(asks, prompts, strict=True))
        ]


def small_config(*overrides: str) -> RunConfig:
    keys = {text.split("=")[0] for text in overrides}
    return load_config("pods", [*(text for text in SMALL if text.split("=")[0] not in keys), *overrides])


def train(overrides: tuple[str, ...], steps: int, *, save: str | None = None, resume: str | None = None) -> Any:
    """Metrics of each step, and the weights that the engine samples from after them; "float32": of such weights."""
    config = small_config(*(text for text in overrides if text != "float32"))
    model = None if "float32" in overrides else load_model(config.model).double()
    trainer = Trainer(config, model=model)
    if resume is not None:
        checkpoint = load_newest(Path(resume))
        assert checkpoint is not None
        trainer.load(checkpoint)
    lines = [step_metrics(training_step(trainer)) for _ in range(steps)]
    if save is not None:
        trainer.save(Path(save), {})
        trainer.processes.gather(None)  # wait until every process is here
    trainer.parts.close()
    return lines, {name: tensor.detach().double().numpy() for name, tensor in trainer.engine.model.named_parameters()}


@cache
def alone(overrides: tuple[str, ...], steps: int) -> Any:
    """One process of the same options; every way of sharing the work is compared with it."""
    return train(overrides, steps)


def assert_same(several: list[Any], one: Any, *, rel: float = 1e-6, weight_gap: float = 1e-6) -> None:
    """Every metric but the clock's and the memory's, and every weight that the engine samples from."""
    assert len({str([line["sync/weights_digest"] for line in lines]) for lines, _ in several}) == 1
    for lines, weights in several:
        for line, expected in zip(lines, one[0], strict=True):
            for name in expected:
                if isinstance(expected[name], float) and not name.startswith("seconds/"):
                    assert line[name] == pytest.approx(expected[name], rel=rel, abs=rel), name
                elif not name.startswith(("seconds/", "memory/", "sync/")):
                    assert line[name] == expected[name], name
        for name, expected in one[1].items():
            assert abs(weights[name] - expected).max() <= weight_gap, name


AHEAD = ("order.ahead=1", "rollouts.generator=beside:beside")
ROUNDS = f"systems={__name__}:MoreOfEveryOther"
PENALTY, LORA = "loss.kl_beta=0.05", "lora.rank=4"
CORRECTED = ("optim.num_epochs=2", "correct.proximal=step_start", "correct.weight=truncate", "correct.cap=1.0")
CASES = {
    "plain": (),
    "penalty": (PENALTY,),
    "clipped": ("optim.lr=3e-4", "optim.max_grad_norm=0.1", "optim.num_epochs=2"),
    "lora": (LORA, "optim.lr=1e-5"),
    "lora-penalty": (LORA, PENALTY, "optim.lr=3e-3", "loss.name=dr_grpo"),
    "rounds": (ROUNDS, "optim.lr=3e-4"),
    "guided": (f"{ROUNDS},{__name__}:HalfShown,podsrl.systems.xrpo:Novelty", "optim.lr=3e-4"),
    "ahead": (*AHEAD, "optim.lr=3e-4", "optim.num_epochs=2"),
    "corrected": (*CORRECTED, "optim.lr=3e-4"),
    "chunks": ("select.num_chunks=2", "loss.name=dapo", "optim.lr=3e-4"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2", "zero2"])
def test_two_processes_match_one(two: Any, strategy: str, case: str) -> None:
    options = CASES[case]
    one = alone(options, 5)
    assert any(line["rollouts/invalid"] for line in one[0])
    several = two.run(train, (f"scale.strategy={strategy}", *options), 5)
    assert_same(several, one)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_a_correction_is_of_all_processes_where_some_have_no_rows(three: Any, strategy: str) -> None:
    options = ("rollouts.num_prompts=3", "task.rewards={correct = 1.0}", "task.correct=correct", *CORRECTED)
    one = alone((*options, "optim.lr=3e-4"), 4)
    assert any(line["capped_fraction"] for line in one[0])
    assert_same(three.run(train, (*options, "optim.lr=3e-4", f"scale.strategy={strategy}"), 4), one)


def test_two_processes_close_the_groups_that_one_closes(two: Any) -> None:
    """With room for all rollouts at once what is generated in vain is the same, too."""
    options = ("task.rewards={correct = 1.0}", "task.correct=correct", "model.path=builtin:arithmetic-mixed")
    options += ("task.digits=1", "select.num_kept=4", "systems=certain", "options.certain.first=2", "optim.lr=3e-4")
    one = alone(options, 3)
    assert all(line["rollouts/all"] < 48 and line["tokens/pruned"] > 0 for line in one[0])
    assert_same(two.run(train, options, 3), one)


def test_two_processes_prune_and_branch_as_one_does(two: Any) -> None:
    options = (f"{ROUNDS},small_steering:Learned,small_steering:Forked", "optim.lr=3e-4")
    one = alone(options, 3)
    assert all(line["tokens/given"] == 4 and line["rollouts/all"] > 48 for line in one[0])
    assert any(line["rollouts/pruned"] for line in one[0])
    assert_same(two.run(train, options, 3), one)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2", "zero2"])
def test_two_processes_match_one_in_float32(two: Any, strategy: str) -> None:
    """A gradient here has up to 24 rows x 24 tokens; its terms cancel to no less than a hundredth of their sum."""
    lr, steps, terms = 1e-6, 5, 24 * 24
    one = alone(("float32", f"optim.lr={lr}"), steps)
    several = two.run(train, ("float32", f"optim.lr={lr}", f"scale.strategy={strategy}"), steps)
    assert_same(several, one, rel=100 * terms * 2.0**-24, weight_gap=2 * lr * steps)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_processes_without_rows_of_their_own_change_nothing(three: Any, strategy: str) -> None:
    """Right answers are rare: in most steps some process has no row with a gradient, in some none has."""
    options = ("rollouts.num_prompts=3", "task.rewards={correct = 1.0}", "task.correct=correct")
    one = alone((*options, "optim.weight_decay=0.1"), 8)
    trained = [line["tokens/trained"] for line in one[0]]
    signals = [3 - line["groups/zero_signal"] for line in one[0]]
    assert 0 in trained and any(0 < signal < 3 for signal in signals), signals
    several = three.run(train, (*options, "optim.weight_decay=0.1", f"scale.strategy={strategy}"), 8)
    assert_same(several, one)


@pytest.mark.parametrize("more", [(), (LORA,), AHEAD], ids=["full", "lora", "ahead"])
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_a_checkpoint_of_two_goes_on_with_one_and_three_and_two(
    two: Any, three: Any, tmp_path: Path, strategy: str, more: tuple[str, ...]
) -> None:
    options = ("optim.lr=3e-4", f"scale.strategy={strategy}", *more)
    whole = two.run(train, options, 5)
    first = two.run(partly_then_saved, options, str(tmp_path))
    for several in (
        [resumed(options, str(tmp_path))],
        three.run(resumed, options, str(tmp_path)),
        again := two.run(resumed, options, str(tmp_path)),
    ):
        assert_same(several, (whole[0][0][3:], whole[0][1]))
    digests = [[line["sync/weights_digest"] for line in lines] for lines, _ in (whole[0], first[0], again[0])]
    assert digests[0] == digests[1] + digests[2]  # bit for bit where the number of processes is the same
    assert all((again[0][1][name] == weight).all() for name, weight in whole[0][1].items())


def partly_then_saved(options: tuple[str, ...], folder: str) -> Any:
    return train(options, 3, save=folder)


def resumed(options: tuple[str, ...], folder: str) -> Any:
    return train(options, 2, resume=folder)
