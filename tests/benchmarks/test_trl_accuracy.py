"""`python -m benchmarks trl-accuracy`: turns by hand; its arms; and a small run of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.timing import Taken
from benchmarks.trl_accuracy import seeds
from benchmarks.trl_accuracy.turns import Curve, Stepwise, train_in_turns
from podsrl.config.files import read_tree
from podsrl.errors import PodsError


class FakeArm:
    """Its model is its accuracy, which the next of some values replaces in each step."""

    def __init__(self, name: str, seconds: float, accuracies: list[float], order: list[str]) -> None:
        self._name, self._seconds, self._order = name, seconds, order
        self._later = iter(accuracies)
        self.model = next(self._later)

    def step(self) -> Taken:
        self._order.append(self._name)
        self.model = next(self._later)
        return Taken(self._seconds, self._seconds / 2)

    def close(self) -> None:
        pass


def test_arms_train_in_turns_of_their_own_seconds_until_the_target_or_the_budget() -> None:
    order: list[str] = []
    arms = {
        "slow": FakeArm("s", 5.0, [0.0, 0.5, 0.8, 0.9, 0.9], order),
        "fast": FakeArm("f", 1.0, [0.1, 0.5, 0.6, 0.7, 0.99, 1.0], order),
        "done": FakeArm("d", 1.0, [1.0], order),
    }
    curves = train_in_turns(arms, lambda model: model, target=0.99, budget=15.0, turn_seconds=2.0)
    # Rounds end at 2, 4, 6 … seconds: after its first step, to 5 s, "slow" misses the round that ends at 4 s.
    assert "".join(order) == "sff" + "ff" + "s" + "s"
    assert curves["slow"] == Curve([0.0, 0.5, 0.8, 0.9], [0.0, 5.0, 10.0, 15.0], [0.0, 2.5, 5.0, 7.5], [0, 1, 2, 3])
    assert curves["fast"].accuracy[-1] == 0.99 and curves["fast"].seconds[-1] == 4.0
    assert curves["done"] == Curve([1.0])


def test_an_arm_is_evaluated_after_so_many_of_its_seconds_and_when_its_budget_ends() -> None:
    arms = {
        "often": FakeArm("o", 1.0, [0.0, 0.9, 0.2, 0.3, 0.8, 0.5, 0.6, 0.7], []),
        "slow": FakeArm("s", 4.0, [0.0, 0.5, 0.6], []),
    }
    curves = train_in_turns(arms, lambda model: model, target=0.9, budget=7.0, turn_seconds=2.0, every_seconds=3.0)
    # The 0.9 after its first second is never seen; the budget ends a second after the evaluation at 6 s.
    assert curves["often"] == Curve([0.0, 0.3, 0.6, 0.7], [0.0, 3.0, 6.0, 7.0], [0.0, 1.5, 3.0, 3.5], [0, 3, 6, 7])
    assert curves["slow"] == Curve([0.0, 0.5, 0.6], [0.0, 4.0, 8.0], [0.0, 2.0, 4.0], [0, 1, 2])


def test_the_arm_that_is_first_rotates() -> None:
    order: list[str] = []
    arms = {name: FakeArm(name, 1.0, [0.0] * 5, order) for name in "abc"}
    train_in_turns(arms, lambda model: model, target=0.9, budget=4.0, turn_seconds=1.0, first=1)
    assert "".join(order) == "bca" + "cab" + "abc" + "bca"


def test_a_function_runs_from_pause_to_pause_with_random_numbers_of_its_own() -> None:
    drawn: list[float] = []

    def function() -> None:
        torch.manual_seed(3)
        for _ in range(3):
            drawn.append(float(torch.rand(())))
            stepwise.pause()

    stepwise = Stepwise(function, "drawing")
    for count in (1, 2, 3):
        torch.manual_seed(0)  # between the pauses others draw
        stepwise.go_on()
        assert len(drawn) == count and float(torch.rand(())) == float(torch.rand((), generator=_seeded(0)))
    assert drawn == torch.rand(3, generator=_seeded(3)).tolist()
    with pytest.raises(PodsError, match="drawing"):
        stepwise.go_on()  # it has no further pause
    stepwise.close()


def test_a_function_that_is_closed_ends_at_its_pause() -> None:
    left: list[str] = []

    def function() -> None:
        try:
            stepwise.pause()
            left.append("too far")
        finally:
            left.append("left")

    stepwise = Stepwise(function, "waiting")
    stepwise.go_on()
    stepwise.close()
    assert left == ["left"] and not stepwise._thread.is_alive()
    never = Stepwise(function, "never begun")
    never.close()
    assert left == ["left"] and not never._thread.is_alive()


def test_an_arm_has_the_rate_of_the_demos_arm_with_as_many_rollouts() -> None:
    pytest.importorskip("trl")
    from benchmarks.trl_accuracy.arms import Sizes, demo_config, rate_of

    assert [rate_of(Sizes("TRL", *sizes)) for sizes in ((16, 16), (64, 64), (64, 16), (4, 2))] == [
        1.5e-4, 3e-4, 3e-4, 3e-4
    ]  # fmt: skip
    assert demo_config(Sizes("podsrl", 16, 16)).optim.lr == 1.5e-4


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Makes a TRL arm of 2 questions per step and 4 rollouts each, of which `kept` are trained on."""
    pytest.importorskip("trl")
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    from benchmarks.trl_accuracy import arms

    whole = arms.demo_config
    smaller = {"rollouts__num_prompts": 2, "model__path": "builtin:arithmetic"}  # of four rollouts some are right here
    monkeypatch.setattr(arms, "demo_config", lambda sizes, **own: whole(sizes, **own, **smaller))
    made: list[Any] = []

    def make(kept: int, rows: int) -> Any:
        made.append(arms.TrlArm(arms.Sizes("TRL", 4, kept), arms.Way(rows), seed=0, budget=0.06))
        return made[-1]

    yield make
    for arm in made:
        arm.close()


def test_trl_trains_the_same_alone_and_in_turns_with_another(tiny: Callable[..., Any]) -> None:
    def weights(arm: Any) -> list[torch.Tensor]:
        return [weight.detach().clone() for weight in arm.model.parameters()]

    alone = tiny(4, 8)
    before = weights(alone)
    for _ in range(3):
        assert alone.step().seconds > 0
    arm, other = tiny(4, 8), tiny(2, 4)
    for _ in range(3):
        arm.step()
        torch.rand(5)
        other.step()
    assert all(map(torch.equal, weights(arm), weights(alone)))
    assert not all(map(torch.equal, before, weights(alone)))
    assert not all(map(torch.equal, before, weights(other)))
    with pytest.raises(PodsError):  # the data set has the questions of three steps
        arm.step()


def test_trl_gets_the_questions_rewards_and_options_of_podsrl() -> None:
    pytest.importorskip("trl")
    from benchmarks.trl.setup import quiet
    from benchmarks.trl_accuracy.arms import Sizes, Way, demo_config, trl_trainer
    from podsrl.policy import prompts_ids
    from podsrl.run.step.trainer import Trainer

    config = demo_config(Sizes("podsrl", 4, 4), seed=5)
    ours = Trainer(config)
    groups = ours.sample().groups
    ours.close()
    with quiet():
        trainer = trl_trainer(Sizes("TRL", 4, 4), Way(32), seed=5, num_steps=2)
    rows = next(iter(trainer.get_train_dataloader()))
    assert [row["prompt"] for row in rows] == [group.task.prompt for group in groups for _ in range(4)]
    assert [tuple(ids) for ids in trainer._tokenize_prompts([group.task.prompt for group in groups])[0]] == [
        tuple(ids) for ids in prompts_ids(ours.tokenizer, [group.task for group in groups])
    ]
    texts = [rollout.text for group in groups for rollout in group.rollouts]
    answers = [group.task.answer for group in groups for _ in range(4)]
    given = [function([""] * 32, texts, answer=answers) for function in trainer.reward_funcs]
    weighted = [
        sum(weight * value for weight, value in zip(trainer.args.reward_weights, values, strict=True))
        for values in zip(*given, strict=True)
    ]
    assert weighted == pytest.approx([rollout.reward for group in groups for rollout in group.rollouts])
    assert (trainer.args.temperature, trainer.args.top_k, trainer.args.top_p) == (1.0, 0, 1.0)
    assert trainer.args.beta == read_tree("demo")["base"]["loss"]["kl_beta"] > 0
    assert (trainer.args.max_completion_length, trainer.args.gradient_accumulation_steps) == (48, 1)


def test_a_short_run_measures_every_arm_and_goes_on_from_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("trl")
    from benchmarks.trl_accuracy import ways

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    monkeypatch.setattr(ways, "ways", lambda num_rollouts: [ways.Way(8 * num_rollouts)])
    monkeypatch.setattr(seeds, "WHOLE", seeds.Size(seeds=1, seconds=0.5, questions=16))
    arguments = ["trl_accuracy", "--json", "--out", str(tmp_path)]
    assert main(arguments) == 0
    first = json.loads(capsys.readouterr().out)
    assert list(first["arms"]) == list(first["curves"][0]) == list(seeds.ARMS)
    for curve in first["curves"][0].values():
        assert curve["seconds"][-1] >= 0.5 and curve["cpu_seconds"][-1] > 0 and len(curve["accuracy"]) >= 2
    monkeypatch.setattr(seeds, "_trained", lambda *arguments: pytest.fail("is finished"))
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["curves"] == first["curves"]
    monkeypatch.setattr(seeds, "WHOLE", seeds.Size(seeds=1, seconds=0.5, questions=16, turn=1.0))
    with pytest.raises(pytest.fail.Exception):  # other settings are another measurement
        main(arguments)


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
