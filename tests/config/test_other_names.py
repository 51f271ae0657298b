"""What others call an option: their names are real, ours too, and an unknown key is answered with ours."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

from loops import each
from podsrl.config.load import all_keys, load_config, meant_by, unknown_key
from podsrl.config.options import SCHEMAS
from podsrl.config.other_names import find_other_names, other_names
from podsrl.config.schema import CompareConfig, RunConfig
from podsrl.errors import UsageError

FORMER = {"max_prompt_length", "torch_dtype"}
"""Of TRL before 0.26 and 0.24."""

TRL = """
model_name_or_path output_dir push_to_hub use_vllm vllm_mode max_completion_length report_to log_completions
max_steps num_generations use_peft learning_rate dtype lora_target_modules per_device_train_batch_size
gradient_accumulation_steps importance_sampling_level epsilon epsilon_high beta loss_type steps_per_generation
chat_template_kwargs logging_steps num_completions_to_print trackio_space_id vllm_enable_sleep_mode save_steps fp16
bf16 num_train_epochs model_init_kwargs optim use_liger_kernel warmup_steps max_grad_norm
vllm_gpu_memory_utilization vllm_max_model_length save_total_limit gradient_checkpointing temperature top_k run_name
reward_funcs eval_dataset train_dataset tools environment_factory peft_config quantization_config lora_r lora_alpha
lora_dropout model_revision attn_implementation vllm_server_host dataset_train_split use_adaptive_entropy
entropy_coef use_transformers_continuous_batching
"""
"""What its scripts and notebooks with GRPOTrainer set, at the commit of 2026-07-24; the others likewise."""
VERL = """
trainer.total_epochs trainer.project_name trainer.logger trainer.experiment_name data.val_files data.truncation
data.train_files data.train_batch_size data.max_response_length data.max_prompt_length algorithm.adv_estimator
rollout.name model.path actor.ppo_mini_batch_size actor.optim.lr trainer.test_freq trainer.save_freq trainer.nnodes
trainer.n_gpus_per_node rollout.tensor_model_parallel_size rollout.n rollout.gpu_memory_utilization
data.filter_overlong_prompts ref.fsdp_config.param_offload model.use_remove_padding actor.use_kl_loss
actor.fsdp_config.param_offload actor.fsdp_config.optimizer_offload algorithm.use_kl_in_reward
model.enable_gradient_checkpointing actor.use_dynamic_bsz actor.entropy_coeff trainer.balance_batch
rollout.log_prob_use_dynamic_bsz ref.log_prob_use_dynamic_bsz rollout.log_prob_max_token_len_per_gpu
ref.log_prob_max_token_len_per_gpu actor.ppo_max_token_len_per_gpu trainer.critic_warmup actor.kl_loss_type
actor.kl_loss_coef trainer.val_before_train rollout.log_prob_micro_batch_size_per_gpu
actor.ppo_micro_batch_size_per_gpu actor.strategy rollout.enforce_eager ref.strategy
ref.log_prob_micro_batch_size_per_gpu rollout.free_cache_engine
rollout.checkpoint_engine.update_weights_bucket_megabytes ref.fsdp_config.ulysses_sequence_parallel_size
actor.use_torch_compile actor.policy_loss.loss_mode actor.fsdp_config.ulysses_sequence_parallel_size
algorithm.kl_ctrl.kl_coef rollout.enable_chunked_prefill ref.use_torch_compile
actor.entropy_from_logits_with_chunking rollout.max_num_batched_tokens rollout.load_format
ref.entropy_from_logits_with_chunking actor.fsdp_config.fsdp_size actor.clip_ratio_low actor.clip_ratio_high
data.shuffle data.image_key algorithm.kl_penalty rollout.layered_summon rollout.ignore_eos
rollout.enable_prefix_caching rollout.calculate_log_probs ref.fsdp_config.reshard_after_forward
ref.fsdp_config.offload_policy actor.fsdp_config.reshard_after_forward actor.fsdp_config.offload_policy
actor.fsdp_config.model_dtype actor.fsdp_config.entropy_checkpointing trainer.resume_from_path
reward.custom_reward_function.path reward.custom_reward_function.name
algorithm.rollout_correction.rollout_rs_threshold algorithm.rollout_correction.rollout_rs
algorithm.rollout_correction.rollout_is_threshold algorithm.rollout_correction.rollout_is_batch_normalize
algorithm.rollout_correction.rollout_is algorithm.rollout_correction.loss_type
algorithm.rollout_correction.bypass_mode algorithm.gamma rollout.val_kwargs.top_p rollout.val_kwargs.temperature
rollout.val_kwargs.n model.lora_rank model.lora_alpha actor.ppo_epochs actor.policy_loss.tau_pos
actor.policy_loss.tau_neg actor.fsdp_config.forward_prefetch actor.entropy_checkpointing actor.clip_ratio_c
trainer.default_local_dir reward.reward_manager.name ray_kwargs.ray_init.runtime_env.env_vars.TRANSFER_QUEUE_ENABLE
ray_kwargs.ray_init.num_gpus data.return_raw_chat data.image_patch_size data.filter_overlong_prompts_workers
critic.use_dynamic_bsz critic.ppo_max_token_len_per_gpu critic.optim.lr critic.model.use_remove_padding
critic.model.path critic.model.enable_gradient_checkpointing critic.fsdp.param_offload critic.fsdp.optimizer_offload
algorithm.gdpo_reward_keys rollout.val_kwargs.top_k rollout.val_kwargs.do_sample rollout.top_p rollout.top_k
rollout.temperature rollout.response_length rollout.prompt_length rollout.mode
rollout.engine_kwargs.vllm.mm_processor_cache_gb rollout.engine_kwargs.sglang.attention_backend
ref.megatron.vanilla_mbridge ref.megatron.use_megatron_fsdp ref.megatron.use_mbridge
ref.megatron.tensor_model_parallel_size ref.megatron.pipeline_model_parallel_size
ref.megatron.override_transformer_config.gradient_accumulation_fusion ref.fsdp_config.optimizer_offload
ref.fsdp_config.model_dtype ref.fsdp_config.forward_prefetch ref.entropy_checkpointing nccl_timeout model.use_shm
model.use_fused_kernels model.lora_adapter_path model.lora.merge model.enable_activation_offload
actor.use_prefix_grouper actor.ulysses_sequence_parallel_size actor.optim.lr_warmup_steps
actor.megatron.vanilla_mbridge actor.megatron.use_megatron_fsdp actor.megatron.use_mbridge
actor.megatron.tensor_model_parallel_size actor.megatron.pipeline_model_parallel_size
actor.megatron.override_transformer_config.gradient_accumulation_fusion actor.loss_agg_mode
actor.fsdp_config.use_orig_params actor.fsdp_config.mixed_precision.reduce_dtype actor.calculate_sum_pi_squared
"""
"""Of its 28 scripts for text models with FSDP, at the commit of 2026-08-22; "actor_rollout_ref." is left out."""
OPENRLHF = """
actor.adam.lr actor.entropy_coef actor.eps_clip_low_high actor.freeze_visual_encoder
actor.gradient_checkpointing_enable actor.model_name_or_path actor.num_gpus_per_node actor.num_nodes
algo.advantage.estimator algo.advantage.gamma algo.advantage.is_correction_enable
algo.advantage.is_correction_threshold algo.advantage.is_correction_type algo.dynamic_filtering_enable
algo.dynamic_filtering_range algo.kl.estimator algo.kl.init_coef algo.kl.use_loss ckpt.load_enable ckpt.max_num
ckpt.output_dir ckpt.path ckpt.save_hf ckpt.save_steps critic.adam.lr critic.num_gpus_per_node critic.num_nodes
data.apply_chat_template data.image_key data.input_key data.label_key data.max_images_per_prompt data.max_len
data.max_samples data.prompt_dataset ds.adam_offload ds.attn_implementation ds.enable_sleep ds.packing_samples
ds.param_dtype ds.ring_attn_head_stride ds.ring_attn_size ds.zero_stage eval.dataset eval.n_samples_per_prompt
eval.steps eval.temperature logger.logging_steps logger.tensorboard_dir logger.wandb.key ref.num_gpus_per_node
ref.num_nodes reward.model_name_or_path reward.normalize_enable reward.num_gpus_per_node reward.num_nodes
reward.remote_url reward.stop_properly_penalty_coef rollout.batch_size rollout.max_new_tokens
rollout.max_tokens_per_gpu rollout.micro_batch_size rollout.n_samples_per_prompt train.agent_func_path
train.async_enable train.batch_size train.colocate_actor_ref train.colocate_all train.colocate_critic_reward
train.dynamic_batch_enable train.max_epochs train.max_tokens_per_gpu train.micro_batch_size train.num_episodes
train.partial_rollout_enable vllm.enable_sleep vllm.enforce_eager vllm.gpu_memory_utilization vllm.num_engines
vllm.sync_backend vllm.tensor_parallel_size
"""
"""Of its 8 scripts with train_ppo_ray, at the commit of 2026-08-13."""


def test_every_cure_is_an_option_or_a_flag() -> None:
    cures = {other.ours for other in other_names() if other.ours}
    assert {cure for cure in cures if not cure.startswith("--")} <= set(all_keys(RunConfig))
    assert {cure for cure in cures if cure.startswith("--")} == {"--out", "--resume", "--processes"}
    assert all(other.difference for other in other_names() if not other.ours)
    names = [(other.origin, other.theirs) for other in other_names()]
    assert len(names) == len(set(names))


def test_no_name_of_others_hides_one_of_ours() -> None:
    assert [key for key in all_keys(RunConfig) if find_other_names(key.rpartition(".")[2])] == []


@each("names", [TRL, VERL, OPENRLHF])
def test_all_that_their_examples_set_is_answered(names: str) -> None:
    ours = {part for key in all_keys(RunConfig) for part in key.split(".")}  # `pods config` shows these without a table
    for name in set(names.split()) - ours:
        assert any(meant_by(RunConfig, name)), name


@each(
    ("name", "answer"),
    [
        ("actor_rollout_ref.rollout.val_kwargs.n", {"eval.num_samples"}),
        ("actor_rollout_ref.rollout.val_kwargs.temperature", {"eval.temperature"}),
        ("train_batch_size", {"rollouts.num_prompts", "optim.num_minibatches"}),
        ("train.batch_size", {"optim.num_minibatches"}),
        ("critic.optim.lr", {""}),
        ("critic_learning_rate", {""}),
        ("fsdp_config.model_dtype", {"model.dtype"}),
        ("actor_rollout_ref.ref.fsdp_config.param_offload", {""}),
        ("gamma", {""}),
        ("repetition_penalty", {""}),
        ("steps.name", {"order.ahead"}),
        ("steps.lag", {"order.ahead"}),
        ("replay.unfinished", {"order.rest"}),
        ("replay.surplus", {"order.ahead"}),
        ("replay.most_age", {"order.most_age"}),
        ("max_head_offpolicyness", {"order.ahead"}),
        ("max_staleness", {"order.ahead"}),
        ("async_level", {"order.ahead"}),
        ("max_off_policy_steps", {"order.most_age"}),
        ("async_training.staleness_threshold", {"order.ahead"}),
        ("train.partial_rollout_enable", {"order.rest"}),
        ("over_sampling_batch_size", {"order.ahead"}),
        ("nothing_of_this_name", set()),
    ],
)
def test_a_name_means_here(name: str, answer: str | set[str]) -> None:
    cure, others = meant_by(RunConfig, name)
    assert (cure or {other.ours for other in others}) == answer


def fields_of(package: str, *files: str) -> set[str]:
    """Names of all arguments, and class attributes with a type, read without importing the package."""
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
        } | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return names


@pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed")
def test_trl_has_the_names_that_are_called_its() -> None:
    known = fields_of("trl", "trainer/grpo_config.py", "trainer/model_config.py", "trainer/grpo_trainer.py")
    known |= fields_of("trl", "scripts/utils.py") | fields_of("transformers", "training_args.py")
    theirs = {other.theirs for other in other_names() if other.origin == "TRL" and "*" not in other.theirs} - FORMER
    assert theirs <= known, theirs - known


@each(
    ("flag", "ours"),
    [
        ("select.m=8", "select.num_kept"),
        ("n=8", "rollouts.num_rollouts"),
        ("G=8", "rollouts.num_rollouts"),
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
