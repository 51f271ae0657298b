"""What podsrl.integrations.trl uses of TRL. A failure here names in one line what the installed TRL has changed."""

from __future__ import annotations

import inspect
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

from trl import GRPOConfig, GRPOTrainer
from trl_runs import DATA, N, new_trainer

from podsrl.integrations.trl.version import VERSION

pytestmark = pytest.mark.slow  # its import takes longer than the tests

METHODS = {
    "_generate_and_score_completions": ["inputs"],
    "_generate": ["prompts"],
    "_calculate_rewards": ["inputs", "prompts", "completions", "completion_ids_list"],
    "_get_per_token_logps_and_entropies": ["model", "input_ids", "attention_mask", "logits_to_keep"],
    "_log_completion_extra": ["column", "values"],
}
"""Method of GRPOTrainer -> its first parameters."""
ATTRIBUTES = ("num_generations", "reward_weights", "accelerator", "state", "args", "_step")
OPTIONS = (
    "num_generations",
    "per_device_train_batch_size",
    "steps_per_generation",
    "gradient_accumulation_steps",
    "beta",
)
NAME = f"TRL {version('trl')}"


@pytest.fixture(scope="module")
def trainer(trl_model: Path) -> Any:
    trainer = new_trainer(trl_model)
    trainer.model.train()
    return trainer


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_its_name_and_parameters(name: str) -> None:
    assert hasattr(GRPOTrainer, name), f"{NAME}: GRPOTrainer has no {name}"
    wanted = METHODS[name]
    found = list(inspect.signature(getattr(GRPOTrainer, name)).parameters)[1:]
    assert found[: len(wanted)] == wanted, f"{NAME}: GRPOTrainer.{name} takes {found}, not {wanted}"


def test_the_trainer_s_own_arguments_have_their_names() -> None:
    found = inspect.signature(GRPOTrainer.__init__).parameters
    missing = {"model", "args", "tools", "environment_factory", "peft_config"} - set(found)
    assert not missing, f"{NAME}: GRPOTrainer takes no {missing}"


def test_attributes_options_and_logs_are_there(trainer: Any) -> None:
    missing = [name for name in ATTRIBUTES if not hasattr(trainer, name)]
    assert not missing, f"{NAME}: GRPOTrainer has no attributes {missing}"
    missing = [name for name in OPTIONS if not hasattr(trainer.args, name)]
    assert not missing, f"{NAME}: GRPOConfig has no options {missing}"
    assert "train" in trainer._metrics, f"{NAME}: GRPOTrainer._metrics has no 'train'"
    missing = {"prompt", "completion", "rewards", "advantages", "extra"} - set(trainer._logs)
    assert not missing, f"{NAME}: GRPOTrainer._logs has no {missing}"
    assert "model_init_kwargs" in GRPOConfig._VALID_DICT_FIELDS, f"{NAME}: _VALID_DICT_FIELDS is something else"


def test_generate_returns_what_it_did(trainer: Any) -> None:
    returned = trainer._generate([row["prompt"] for row in DATA[:4]])
    assert len(returned) in (7, 8, 9), f"{NAME}: GRPOTrainer._generate returns {len(returned)} values, not 7, 8 or 9"
    kinds = [type(value).__name__ for value in returned]
    assert all(isinstance(returned[i], list) and len(returned[i]) == 4 for i in (0, 1, 3)), (
        f"{NAME}: prompt ids, completion ids and completions are {kinds}, not lists at 0, 1 and 3"
    )
    assert kinds.count("dict") == 1, f"{NAME}: {kinds} has no single dict, the columns of a rollout function"
    assert (kinds[4] == "Tensor") == (len(returned) != 8), f"{NAME}: value 4 of {kinds}: the number of tokens, or none"


def test_a_step_calls_the_methods_once_each_in_their_order(trl_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    for name in METHODS:
        method = getattr(GRPOTrainer, name)

        def spy(self: Any, *positional: Any, _name: str = name, _method: Any = method, **named: Any) -> Any:
            called.append(_name)
            return _method(self, *positional, **named)

        monkeypatch.setattr(GRPOTrainer, name, spy)
    trainer = new_trainer(trl_model, beta=0.1)
    trainer.model.train()
    batch = trainer._generate_and_score_completions([dict(DATA[0]) for _ in range(N)])
    wanted = [name for name in METHODS if name != "_log_completion_extra"]
    wanted[2:] = wanted[:1:-1]  # the reference model's log-probabilities come before the rewards
    assert called == wanted, f"{NAME}: a step calls {called}, not {wanted}"
    assert "num_items_in_batch" in batch and "advantages" in batch, f"{NAME}: a step returns {sorted(batch)}"


def test_log_probabilities_have_as_many_values_as_this_version_should(trainer: Any) -> None:
    import torch

    ids = torch.ones(2, 5, dtype=torch.long)
    found = trainer._get_per_token_logps_and_entropies(trainer.model, ids, torch.ones_like(ids), 3)
    wanted = 2 if VERSION < (1, 7) else 3
    assert len(found) == wanted, f"{NAME}: _get_per_token_logps_and_entropies returns {len(found)} values, not {wanted}"
    assert found[0].shape == (2, 3), f"{NAME}: log-probabilities have the shape {tuple(found[0].shape)}"
