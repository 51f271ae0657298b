"""`python -m benchmarks trl-accuracy`: turns and ratios by hand; what TRL gets; and a small run of it."""

from __future__ import annotations

import json
from pathlib import Path

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
