"""What is sampled is what is trained: the model's own dropout is off in the update unless it is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from policies import policy_of

from benchmarks.families.judge import family_names, small_model
from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig
from podsrl.policy import load_policy
from podsrl.policy.dropout import configured_dropout, is_alike_in_training, turn_off_dropout
from podsrl.run.step.trainer import Trainer
from podsrl.update import UpdateStats, to_samples

OPTIONS = ("rollouts.num_prompts=2", "rollouts.num_rollouts=4", "select.num_kept=4", "rollouts.max_new_tokens=16")


@pytest.fixture(scope="module")
def gpt2_folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    """GPT-2's own options have dropout of 0.1 in three places."""
    folder = tmp_path_factory.mktemp("dropout") / "gpt2"
    small_model("gpt2").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def first_update(model: Any, tokenizer: Any, *options: str) -> UpdateStats:
    """Of a trainer that is given a model: rollouts are sampled, and trained on before any weight has changed."""
    config = load_config("pods", [*OPTIONS, *options])
    trainer = Trainer(config, model=model, tokenizer=tokenizer)
    groups = trainer.sample().groups
    selections = trainer.choose(groups)
    advantages = [torch.ones(len(each.kept)) for each in selections]
    batch = trainer.make_batch(to_samples(groups, selections, advantages))
    assert batch is not None
    stats = trainer.forward_backward(batch)
    trainer.close()
    return stats


def test_the_first_update_sees_the_probabilities_that_were_sampled_with(tokenizer: Any) -> None:
    stats = first_update(small_model("gpt2"), tokenizer)
    assert stats.num_trained_tokens > 0 and stats.logprob_gap < 1e-5 and stats.ratio_max < 1 + 1e-4
    stats = first_update(small_model("gpt2"), tokenizer, "model.dropout=as_configured")
    assert stats.logprob_gap > 0.05 and stats.ratio_max > 1.1


def test_dropout_is_off_and_a_line_says_so(gpt2_folder: Path) -> None:
    policy = policy_of(gpt2_folder)
    assert is_alike_in_training(policy.model)
    (note,) = policy.notes
    assert note.startswith(
        "dropout of the model's config (resid_pdrop = 0.1, embd_pdrop = 0.1, attn_pdrop = 0.1) is off"
    )
    assert 'model.dropout = "as_configured" keeps it' in note


def test_dropout_that_is_asked_for_stays_and_is_warned_of(gpt2_folder: Path) -> None:
    policy = policy_of(gpt2_folder, dropout="as_configured")
    assert not is_alike_in_training(policy.model)
    (note,) = policy.notes
    assert note.startswith("warning: the update has dropout (resid_pdrop = 0.1,") and "generation has none" in note


def test_a_model_without_dropout_gets_no_line(tiny_model_folder: Path) -> None:
    assert policy_of(tiny_model_folder).notes == policy_of(tiny_model_folder, dropout="as_configured").notes == ()


def test_a_saved_config_has_its_dropout_again(gpt2_folder: Path, tmp_path: Path) -> None:
    policy = policy_of(gpt2_folder)
    policy.save(tmp_path)
    saved, before = (json.loads((folder / "config.json").read_text()) for folder in (tmp_path, gpt2_folder))
    assert saved["attn_pdrop"] == before["attn_pdrop"] == 0.1
    assert policy.model.config.attn_pdrop == 0.0


def test_dropout_of_adapters_is_their_own(gpt2_folder: Path) -> None:
    policy = policy_of(gpt2_folder, lora={"rank": 2, "dropout": 0.5})
    dropouts = {name: m.p for name, m in policy.model.named_modules() if isinstance(m, torch.nn.Dropout)}
    assert {p for name, p in dropouts.items() if "lora" in name} == {0.5}
    assert {p for name, p in dropouts.items() if "lora" not in name} == {0.0}


def test_a_model_that_is_given_is_changed_in_place_and_a_line_says_so(tokenizer: Any) -> None:
    model = small_model("opt")
    policy = load_policy(RunConfig(), tokenizer, model=model)
    assert "dropout = 0.1" in policy.notes[0]
    assert is_alike_in_training(model) and configured_dropout(model) == []


def test_other_noise_in_training_mode_is_warned_of(tokenizer: Any) -> None:
    model = small_model("qwen2")
    model.model.norm.register_forward_hook(lambda module, _, output: output + 0.1 if module.training else output)
    (note,) = load_policy(RunConfig(), tokenizer, model=model).notes
    assert note.startswith("warning: Qwen2ForCausalLM computes other numbers in training mode")


def test_trying_both_modes_draws_no_random_number_and_changes_no_mode() -> None:
    model = small_model("gpt2")
    model.transformer.h[0].train()
    before, modes = torch.get_rng_state(), [module.training for module in model.modules()]
    assert not is_alike_in_training(model)
    assert torch.equal(torch.get_rng_state(), before)
    assert [module.training for module in model.modules()] == modes


@pytest.mark.filterwarnings("ignore")
def test_no_family_draws_random_numbers_in_training_once_its_dropout_is_off() -> None:
    changed = []
    for family in family_names():
        try:
            model = small_model(family)
            was_alike = is_alike_in_training(model)
        except Exception:  # of any type, from the family's own code at these sizes
            continue
        turn_off_dropout(model)
        assert is_alike_in_training(model), family
        if not was_alike:
            changed.append(family)
    assert len(changed) > 30 and {"gpt2", "opt", "biogpt", "xglm"} <= set(changed)
