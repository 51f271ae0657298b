"""A generator whose tensors cannot be looked at proves by a log-prob that new weights have arrived."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from podsrl.config.load import load_config
from podsrl.generate import Engine, Generator, Setting
from podsrl.run.step.trainer import Trainer
from podsrl.sync import SyncError, prove_arrival


class Hidden(Generator):
    """The built-in engine on a copy of the model, seen only from outside."""

    def __init__(self, setting: Setting) -> None:
        self._engine = Engine(copy.deepcopy(setting.load_model()), seed=setting.seed)
        self._version, self.is_deaf = 0, False
        self.abilities = frozenset({"proof"})

    @property
    def version(self) -> int:  # type: ignore[override]
        return self._version

    def generate(self, requests: Any) -> Any:
        return self._engine.generate(requests)

    def abort(self, ids: Any) -> None:
        self._engine.abort(ids)

    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        self._version = version
        tensors = [(name, tensor.clone()) for name, tensor in named_tensors]
        if not self.is_deaf:
            self._engine.load_weights(tensors, version)

    def first_logprob(self, prompt_ids: Sequence[int]) -> tuple[int, float]:
        with torch.no_grad():
            table = self._engine.model(torch.tensor([list(prompt_ids)])).logits[0, -1].log_softmax(-1)
        return int(table.argmax()), float(table.max())


def new_trainer(*changes: str) -> Trainer:
    return Trainer(
        load_config(
            "pods",
            ["task.num_eval=4", "rollouts.num_rollouts=8", "select.num_kept=4", "optim.lr=0.01", *changes],
        )
    )


def change(trainer: Trainer, by: float) -> None:
    """As an optimizer step does."""
    with torch.no_grad():
        for weight in trainer.model.parameters():
            if weight.requires_grad:
                weight.add_(by * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("changes", [(), ("--lora.rank=4",)], ids=["all weights", "adapters"])
def test_a_generator_that_drops_weights_is_found(changes: tuple[str, ...]) -> None:
    trainer = new_trainer(*changes)
    hidden = Hidden(Setting(load_model=lambda: trainer.policy.generator_model, folder="unused"))
    trainer.learner.publish(hidden)
    change(trainer, 0.05)
    trainer.learner.publish(hidden)
    assert prove_arrival(hidden, trainer.model) < 1e-4
    hidden.is_deaf = True
    trainer.learner.publish(hidden)  # the same weights once more: there is nothing to find
    change(trainer, 0.05)
    with pytest.raises(SyncError) as caught:
        trainer.learner.publish(hidden)
    token, found = hidden.first_logprob(tuple(int(part) for part in bracket(str(caught.value)).split(",")))
    assert f"token {token} the log-prob {found:.6g}" in str(caught.value) and "\n" not in str(caught.value)


def bracket(text: str) -> str:
    return text.partition("[")[2].partition("]")[0]


def test_no_number_is_no_proof(make_model: Callable[..., Any]) -> None:
    class Broken:
        def first_logprob(self, prompt_ids: Sequence[int]) -> tuple[int, float]:
            return 3, float("nan")

    with pytest.raises(SyncError, match="nan"):
        prove_arrival(Broken(), make_model("qwen2"))


def test_a_generator_without_the_ability_is_not_asked() -> None:
    trainer = new_trainer()
    hidden = Hidden(Setting(load_model=lambda: trainer.policy.generator_model, folder="unused"))
    hidden.abilities = frozenset()
    hidden.is_deaf = True
    change(trainer, 0.05)
    trainer.learner.publish(hidden)
