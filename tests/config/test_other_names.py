"""What others call an option: their names are real, ours too, and an unknown key is answered with ours."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

from loops import each
from podsrl.config.load import all_keys, load_config, unknown_key
from podsrl.config.options import SCHEMAS
from podsrl.config.other_names import OTHER_NAMES, find_other_name
from podsrl.config.schema import CompareConfig, RunConfig
from podsrl.errors import UsageError

FORMER = {"max_prompt_length", "torch_dtype"}
"""Of TRL before 0.26 and 0.24."""


def test_every_cure_is_an_option_or_a_flag() -> None:
    assert {other.ours for other in OTHER_NAMES if not other.ours.startswith("--")} <= set(all_keys(RunConfig))
    assert {other.ours for other in OTHER_NAMES if other.ours.startswith("--")} == {"--out", "--processes"}
    names = [(other.origin, other.theirs) for other in OTHER_NAMES]
    assert len(names) == len(set(names))


def test_no_name_of_others_hides_one_of_ours() -> None:
    """A key with one of our last parts is answered with ours, unless theirs is longer and means another thing."""
    ours = {key.rpartition(".")[2] for key in all_keys(RunConfig)}
    clashes = {other.theirs.rpartition(".")[2] for other in OTHER_NAMES} & ours
    assert {(name, find_other_name(name).ours) for name in clashes} == {  # type: ignore[union-attr]
        ("lr", "optim.lr"),
        ("steps", "eval.every_steps"),  # a section's name here, so that it never is an unknown key
    }


def fields_of(package: str, *files: str) -> set[str]:
    """Names of all class attributes with a type, read without importing the package."""
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None
    names: set[str] = set()
    for file in files:
        tree = ast.parse((Path(spec.origin).parent / file).read_text())
        names |= {
            node.target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.AnnAssign)
            if isinstance(node.target, ast.Name)
        }
    return names


@pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed")
def test_trl_has_the_names_that_are_called_its() -> None:
    known = fields_of("trl", "trainer/grpo_config.py", "trainer/model_config.py", "trainer/grpo_trainer.py")
    known |= fields_of("trl", "scripts/utils.py") | fields_of("transformers", "training_args.py")
    theirs = {other.theirs for other in OTHER_NAMES if other.origin == "TRL"} - FORMER - {"reward_funcs"}
    assert theirs <= known, theirs - known


@each(
    ("flag", "ours"),
    [
        ("select.m=8", "select.num_kept"),
        ("m=8", "select.num_kept"),
        ("n=8", "rollouts.num_rollouts"),
        ("G=8", "rollouts.num_rollouts"),
        ("group_size=8", "rollouts.num_rollouts"),
        ("rollouts.num_generations=8", "rollouts.num_rollouts"),
        ("learning_rate=1e-5", "optim.lr"),
        ("optim.learning-rate=1e-5", "optim.lr"),
        ("beta=0.04", "loss.kl_beta"),
        ("max_completion_length=256", "rollouts.max_new_tokens"),
        ("per_device_train_batch_size=8", "optim.micro_batch_tokens"),
        ("rollout.n=8", "rollouts.num_rollouts"),
        ("actor_rollout_ref.rollout.n=8", "rollouts.num_rollouts"),
        ("actor_rollout_ref.actor.optim.lr=1e-6", "optim.lr"),
        ("actor_rollout_ref.model.path=x", "model.path"),
        ("data.train_batch_size=8", "rollouts.num_prompts"),
        ("train_batch_size=8", "rollouts.num_prompts"),
        ("trainer.n_gpus_per_node=8", "--processes"),
        ("output_dir=x", "--out"),
        ("rollout.n_samples_per_prompt=8", "rollouts.num_rollouts"),
        ("n_samples_per_prompt=8", "rollouts.num_rollouts"),
        ("rollout_batch_size=8", "rollouts.num_prompts"),
        ("rollout.batch_size=8", "rollouts.num_prompts"),
        ("data.input_key=q", "task.prompt_column"),
        ("label_key=a", "task.answer_column"),
        ("eval.steps=5", "eval.every_steps"),
        ("eval.n_samples_per_prompt=2", "eval.num_samples"),
        ("remote_rm_url=reward_func.py", "task.rewards"),
        ("algo.kl.init_coef=0.01", "loss.kl_beta"),
        ("ds.lora.rank=8", "lora.rank"),
        ("actor.adam.lr=1e-6", "optim.lr"),
        ("rollout.temperature=1", "rollouts.temperature"),
    ],
)
def test_names_from_elsewhere_are_answered_with_ours(flag: str, ours: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_config(None, [f"--{flag}"])
    assert f"unknown key {flag.partition('=')[0]!r}" in str(caught.value) and f"Did you mean {ours!r}" in str(
        caught.value
    )


def test_what_the_value_means_elsewhere_is_said_where_it_differs() -> None:
    assert "theirs counts rows, ours counts tokens" in unknown_key(RunConfig, "per_device_train_batch_size")
    assert "TRL: num_generations" in unknown_key(RunConfig, "num_generations")


def test_other_schemas_are_only_offered_what_they_have() -> None:
    assert "Did you mean 'lr'" in unknown_key(SCHEMAS["pretrain"], "optim.lr")
    assert "Known:" in unknown_key(CompareConfig, "G") and "num_rollouts" not in unknown_key(CompareConfig, "G")
