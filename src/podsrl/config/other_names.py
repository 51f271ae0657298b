"""What the PODS paper, TRL, verl and OpenRLHF call the options of this package; for unknown keys and the docs.

TRL's names are those of `GRPOConfig`, its `TrainingArguments`, `ModelConfig` and the trainer's own arguments; verl's
are the ends of its dotted keys in `ppo_trainer.yaml`, so that "rollout.n" also stands for
"actor_rollout_ref.rollout.n". OpenRLHF's are the flags of `train_ppo_ray`, with dots as they are now and with
underscores as they were. What the examples of these three set is here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Literal

Origin = Literal["paper", "TRL", "verl", "OpenRLHF"]


@dataclass(frozen=True, slots=True)
class OtherName:
    """What another library or the paper calls an option."""

    origin: Origin
    theirs: str
    """With a "*" it stands for every name of that form that has no entry of its own."""
    ours: str
    """Dotted key of `RunConfig`, or a flag such as "--out"; empty: there is none here."""
    difference: str
    """How its values differ from ours, where they do; why there is none."""

    def __str__(self) -> str:
        return f"{self.origin}: {self.theirs}" + (f"; {self.difference}" if self.difference else "")


_COMPLETIONS = "theirs counts completions, ours counts questions"
_TOKENS = "theirs counts rows, ours counts tokens; gradients do not depend on it"
_ALWAYS_TOKENS = "always on"
_STEPS = "theirs counts passes over the data, ours counts steps"
_BOTH_CLIPS = "loss.clip_high is an option of its own"
_MINI_BATCHES = "ours counts the mini-batches of a step"
_FILE = 'with task.name = "jsonl" for a file, "hub" for a data set of the hub'
_LOSS_NAMES = "group_norm is grpo here, reinforce_baseline is reinforce_pp_baseline"
_REWARD_FILE = "a function instead of its file: reward_func:reward_func"
_REWARD_MODEL = 'functions, as "module:function"; one of yours may load a reward model'
_RATIO = "theirs is a share of the steps, ours counts steps"
_RECIPE = '"mixed", as in the recipe systems/dapo'
_BYTES = "in bytes, of keys and values; vLLM's own share of memory stands in [options.vllm]"
_TRACKER = "a list of trackers; keys and places come from their own environment variables"
_AHEAD = '"ahead" instead of true'
_BOTH_LEN = "here prompts have an option of their own, rollouts.max_prompt_tokens"
_LEFT_OUT = "longer prompts are left out, not cut"
_K3 = "always the k3 estimator in the loss, never in the reward"
_VLLM = '"vllm", whose own options stand in [options.vllm]'
_PROCESSES = "of pods launch"
_NODES = "several machines are torchrun's: torchrun --nnodes N ... -m podsrl.cli train my.toml, on each of them"
_SHARDS = '"zero2" or "fsdp2"; nothing is offloaded to the CPU'
_LOGITS = "no fused kernels; this bounds the memory of logits"
_WHOLE_GROUPS = "whole groups go into groups.jsonl"
_OWN_PROCESSES = "generators share the trainer's devices, or run in so many processes of their own"

_NO_CRITIC = "there is no critic: a rollout is compared with its group"
_NO_ENTROPY = "no loss has an entropy bonus"
_NO_DISCOUNT = "a completion has one reward, which is not discounted"
_TURNS = "a function reply(task, turns), which keeps nothing between its calls"
_NO_IMAGES = "prompts are text"
_NO_SLEEP = "what generates keeps its memory during the update"
_NO_CUT_ROWS = "a row is never divided over several GPUs"
_NO_FORWARD = "the generator's log-probs are used, so no forward makes them again"
_NO_CORRECTION = "ratios are taken to the generator's own log-probs, so there is no gap to correct"
_NO_COMPILING = "nothing is compiled"
_NO_BUCKETS = "new weights reach the generator by reference, through shared memory or a folder"
_REFERENCE = "the reference model has the update's device, shards and micro-batches (loss.kl_beta)"
_EVERY_STEP = "every step is logged, in metrics.jsonl"

_TABLE: tuple[tuple[Origin, str, str, str], ...] = (
    ("paper", "n group_size", "rollouts.num_rollouts", ""),
    ("paper", "m", "select.num_kept", ""),
    ("paper", "G", "rollouts.num_rollouts", "the group size in the GRPO paper"),
    ("paper", "mu", "optim.num_epochs", "the GRPO paper's iterations on a batch"),
    ("paper", "beta", "loss.kl_beta", ""),
    ("paper", "batch_size", "rollouts.num_prompts", "in questions per step"),
    ("TRL", "num_generations", "rollouts.num_rollouts", ""),
    ("TRL", "per_device_train_batch_size", "optim.micro_batch_tokens", _TOKENS),
    ("TRL", "gradient_accumulation_steps", "optim.micro_batch_tokens", "micro-batches hold so many tokens"),
    ("TRL", "steps_per_generation", "optim.num_minibatches", ""),
    ("TRL", "generation_batch_size", "rollouts.num_prompts", _COMPLETIONS),
    ("TRL", "max_completion_length", "rollouts.max_new_tokens", ""),
    ("TRL", "max_prompt_length", "rollouts.max_prompt_tokens", _LEFT_OUT),
    ("TRL", "use_vllm vllm_*", "rollouts.generator", _VLLM),
    ("TRL", "vllm_gpu_memory_utilization", "rollouts.kv_cache_bytes", _BYTES),
    ("TRL", "vllm_enable_sleep_mode", "", _NO_SLEEP),
    ("TRL", "use_transformers_continuous_batching", "rollouts.scheduler", 'on by default, as "continuous"'),
    ("TRL", "repetition_penalty", "", "the loss needs the probabilities that the policy itself gives"),
    ("TRL", "learning_rate", "optim.lr", ""),
    ("TRL", "lr_scheduler_type", "optim.schedule", ""),
    ("TRL", "optim", "optim.name", '"adamw" or "adamw_8bit"'),
    ("TRL", "adam_beta1 adam_beta2", "optim.betas", "a list of both"),
    ("TRL", "adam_epsilon", "optim.eps", ""),
    ("TRL", "num_iterations", "optim.num_epochs", ""),
    ("TRL", "use_liger_kernel", "optim.logprob_chunk_tokens", _LOGITS),
    ("TRL", "beta", "loss.kl_beta", "TRL multiplies the KL by the ratio, unless use_bias_correction_kl = false"),
    ("TRL", "use_bias_correction_kl", "", "the KL is never multiplied by the ratio, as with false"),
    ("TRL", "epsilon", "loss.clip_low", _BOTH_CLIPS),
    ("TRL", "epsilon_high", "loss.clip_high", ""),
    ("TRL", "loss_type", "loss.name", ""),
    ("TRL", "scale_rewards", "loss.advantage", ""),
    ("TRL", "importance_sampling_level", "loss.ratio", ""),
    ("TRL", "entropy_coef entropy_coef_* use_adaptive_entropy", "", _NO_ENTROPY),
    ("TRL", "mask_truncated_completions", "", "a completion that is cut is judged as any other"),
    ("TRL", "reward_funcs reward_weights", "task.rewards", ""),
    ("TRL", "dataset_name", "task.path", 'with task.name = "hub"'),
    ("TRL", "train_dataset", "task.path", _FILE),
    ("TRL", "dataset_train_split", "task.train_split", ""),
    ("TRL", "chat_template_kwargs", "", "a chat template gets the messages alone"),
    ("TRL", "max_tool_calling_iterations", "task.max_turns", "the turns of the model, the last one included"),
    ("TRL", "environment_factory", "task.environment", _TURNS),
    ("TRL", "model_name_or_path", "model.path", ""),
    ("TRL", "model_revision", "model.revision", ""),
    ("TRL", "model_init_kwargs", "", "each of them is an option of its own: pods config model"),
    ("TRL", "attn_implementation", "model.attention", ""),
    ("TRL", "torch_dtype", "model.dtype", ""),
    ("TRL", "bf16", "model.dtype", '"bfloat16" instead of true'),
    ("TRL", "fp16", "model.dtype", '"bfloat16": in float16 small gradients are lost'),
    ("TRL", "quantization_config", "model.load_in_4bit", ""),
    ("TRL", "use_peft peft_config", "lora.rank", "setting it turns adapters on"),
    ("TRL", "lora_r", "lora.rank", ""),
    ("TRL", "lora_alpha", "lora.alpha", ""),
    ("TRL", "lora_dropout", "lora.dropout", ""),
    ("TRL", "lora_target_modules", "lora.targets", ""),
    ("TRL", "max_steps", "stop.steps", ""),
    ("TRL", "num_train_epochs", "stop.steps", _STEPS),
    ("TRL", "save_steps", "checkpoint.every_steps", ""),
    ("TRL", "save_total_limit", "checkpoint.keep", ""),
    ("TRL", "eval_steps", "eval.every_steps", ""),
    ("TRL", "output_dir", "--out", ""),
    ("TRL", "run_name", "--out", "a run is called as its folder"),
    ("TRL", "resume_from_checkpoint", "--resume", ""),
    ("TRL", "report_to trackio_space_id", "record.trackers", _TRACKER),
    ("TRL", "logging_steps", "", _EVERY_STEP),
    ("TRL", "log_completions num_completions_to_print", "record.num_groups", _WHOLE_GROUPS),
    ("TRL", "push_to_hub", "", "nothing is uploaded; the model in a checkpoint is in Hugging Face's form"),
    ("verl", "rollout.n", "rollouts.num_rollouts", ""),
    ("verl", "data.train_batch_size train_batch_size", "rollouts.num_prompts", ""),
    ("verl", "data.max_prompt_length rollout.prompt_length", "rollouts.max_prompt_tokens", _LEFT_OUT),
    ("verl", "data.truncation data.filter_overlong_prompts*", "rollouts.max_prompt_tokens", _LEFT_OUT),
    ("verl", "data.max_response_length rollout.response_length", "rollouts.max_new_tokens", ""),
    ("verl", "data.train_files", "task.path", ""),
    ("verl", "data.val_files", "task.eval_path", ""),
    ("verl", "data.prompt_key", "task.prompt_column", ""),
    ("verl", "data.return_raw_chat", "task.chat", ""),
    ("verl", "data.shuffle", "", "questions are always shuffled, by the seed"),
    ("verl", "data.image_key data.image_patch_size", "", _NO_IMAGES),
    ("verl", "reward.*", "task.rewards", _REWARD_MODEL),
    ("verl", "model.enable_gradient_checkpointing", "model.gradient_checkpointing", ""),
    ("verl", "model.enable_activation_offload", "model.gradient_checkpointing", "nothing is offloaded to the CPU"),
    ("verl", "model.use_remove_padding", "optim.packing", ""),
    ("verl", "model.use_fused_kernels", "optim.logprob_chunk_tokens", _LOGITS),
    ("verl", "model.use_shm", "", "weights are read where they lie"),
    ("verl", "model.lora_rank", "lora.rank", ""),
    ("verl", "model.lora_alpha", "lora.alpha", ""),
    ("verl", "model.lora_adapter_path", "model.path", "a folder of adapters"),
    ("verl", "model.lora.merge", "", "a generator elsewhere always gets merged weights"),
    ("verl", "actor.optim.lr", "optim.lr", ""),
    ("verl", "actor.optim.lr_warmup_steps", "optim.warmup_steps", ""),
    ("verl", "actor.ppo_epochs", "optim.num_epochs", ""),
    ("verl", "actor.ppo_mini_batch_size", "optim.num_minibatches", _MINI_BATCHES),
    ("verl", "actor.ppo_micro_batch_size_per_gpu", "optim.micro_batch_tokens", _TOKENS),
    ("verl", "actor.ppo_max_token_len_per_gpu", "optim.micro_batch_tokens", ""),
    ("verl", "actor.use_dynamic_bsz", "optim.micro_batch_tokens", _ALWAYS_TOKENS),
    ("verl", "actor.use_prefix_grouper", "optim.prefix_sharing", ""),
    ("verl", "actor.grad_clip", "optim.max_grad_norm", ""),
    ("verl", "actor.entropy_from_logits_with_chunking", "optim.logprob_chunk_tokens", ""),
    ("verl", "actor.entropy_checkpointing fsdp_config.entropy_checkpointing", "optim.logprob_chunk_tokens", ""),
    ("verl", "actor.clip_ratio", "loss.clip_low", _BOTH_CLIPS),
    ("verl", "actor.clip_ratio_low", "loss.clip_low", ""),
    ("verl", "actor.clip_ratio_high", "loss.clip_high", ""),
    ("verl", "actor.clip_ratio_c", "loss.clip", "there is no dual clip"),
    ("verl", "actor.policy_loss.*", "loss.name", ""),
    ("verl", "actor.loss_agg_mode", "loss.aggregate", ""),
    ("verl", "actor.use_kl_loss", "loss.kl_beta", "a weight above 0 instead of true"),
    ("verl", "actor.kl_loss_coef", "loss.kl_beta", ""),
    ("verl", "actor.kl_loss_type algorithm.use_kl_in_reward algorithm.kl_*", "loss.kl_beta", _K3),
    ("verl", "actor.entropy_coeff", "", _NO_ENTROPY),
    ("verl", "actor.calculate_sum_pi_squared", "", "no advantage reads it"),
    ("verl", "use_torch_compile", "", _NO_COMPILING),
    ("verl", "ulysses_sequence_parallel_size", "", _NO_CUT_ROWS),
    ("verl", "actor.strategy fsdp_config.* fsdp.* megatron.*", "scale.strategy", _SHARDS),
    ("verl", "fsdp_config.model_dtype", "model.dtype", ""),
    ("verl", "nccl_timeout", "scale.timeout_seconds", ""),
    ("verl", "ray_kwargs.*", "scale.ray", ""),
    ("verl", "ref.*", "", _REFERENCE),
    ("verl", "critic.* trainer.critic_warmup", "", _NO_CRITIC),
    ("verl", "rollout.gpu_memory_utilization", "rollouts.kv_cache_bytes", _BYTES),
    ("verl", "rollout.max_num_seqs", "rollouts.num_slots", ""),
    ("verl", "rollout.name rollout.mode rollout.tensor_model_parallel_size", "rollouts.generator", _VLLM),
    ("verl", "rollout.enforce_eager rollout.enable_chunked_prefill", "rollouts.generator", _VLLM),
    ("verl", "rollout.max_num_batched_tokens rollout.load_format engine_kwargs.*", "rollouts.generator", _VLLM),
    ("verl", "rollout.enable_prefix_caching", "", "a group's prompt is always computed once"),
    ("verl", "rollout.free_cache_engine", "", _NO_SLEEP),
    ("verl", "rollout.checkpoint_engine.* rollout.layered_summon", "", _NO_BUCKETS),
    ("verl", "rollout.log_prob_* rollout.calculate_log_probs", "", _NO_FORWARD),
    ("verl", "rollout.ignore_eos", "", "a completion always ends with the end token"),
    ("verl", "val_kwargs.n", "eval.num_samples", ""),
    ("verl", "val_kwargs.temperature", "eval.temperature", ""),
    ("verl", "val_kwargs.do_sample", "eval.temperature", "always on; a low temperature is nearly greedy"),
    ("verl", "val_kwargs.top_p", "eval.top_p", ""),
    ("verl", "val_kwargs.top_k", "", "an evaluation is filtered by eval.top_p alone"),
    ("verl", "algorithm.adv_estimator", "loss.name", ""),
    ("verl", "algorithm.norm_adv_by_std_in_grpo", "loss.advantage", ""),
    ("verl", "algorithm.gdpo_reward_keys", "task.rewards", "rewards are summed, then normalised"),
    ("verl", "algorithm.gamma algorithm.lam", "", _NO_DISCOUNT),
    ("verl", "rollout_correction.*", "", _NO_CORRECTION),
    ("verl", "trainer.total_training_steps", "stop.steps", ""),
    ("verl", "trainer.total_epochs", "stop.steps", _STEPS),
    ("verl", "trainer.save_freq", "checkpoint.every_steps", ""),
    ("verl", "trainer.test_freq", "eval.every_steps", ""),
    ("verl", "trainer.val_before_train", "eval.every_steps", "a run always begins with an evaluation"),
    ("verl", "trainer.max_actor_ckpt_to_keep", "checkpoint.keep", ""),
    ("verl", "trainer.n_gpus_per_node", "--processes", _PROCESSES),
    ("verl", "trainer.nnodes", "", _NODES),
    ("verl", "trainer.balance_batch", "", "rollouts are always balanced over processes by their tokens"),
    ("verl", "trainer.default_local_dir", "--out", ""),
    ("verl", "trainer.experiment_name", "--out", "a run is called as its folder"),
    ("verl", "trainer.resume_from_path trainer.resume_mode", "--resume", ""),
    ("verl", "trainer.project_name", "record.project", ""),
    ("verl", "trainer.logger", "record.trackers", _TRACKER),
    ("OpenRLHF", "rollout.n_samples_per_prompt", "rollouts.num_rollouts", ""),
    ("OpenRLHF", "rollout.batch_size rollout_batch_size", "rollouts.num_prompts", ""),
    ("OpenRLHF", "generate_max_len", "rollouts.max_new_tokens", ""),
    ("OpenRLHF", "data.max_len", "rollouts.max_new_tokens", _BOTH_LEN),
    ("OpenRLHF", "prompt_max_len", "rollouts.max_prompt_tokens", _LEFT_OUT),
    ("OpenRLHF", "rollout.micro_batch_size rollout.max_tokens_per_gpu", "", _NO_FORWARD),
    ("OpenRLHF", "actor.model_name_or_path pretrain", "model.path", ""),
    ("OpenRLHF", "ds.attn_implementation", "model.attention", ""),
    ("OpenRLHF", "ds.param_dtype", "model.dtype", '"bfloat16" for bf16'),
    ("OpenRLHF", "actor.gradient_checkpointing_enable", "model.gradient_checkpointing", ""),
    ("OpenRLHF", "actor.freeze_visual_encoder data.image_key data.max_images_per_prompt", "", _NO_IMAGES),
    ("OpenRLHF", "ds.packing_samples", "optim.packing", ""),
    ("OpenRLHF", "ds.lora.target_modules", "lora.targets", ""),
    ("OpenRLHF", "ds.zero_stage ds.adam_offload", "scale.strategy", _SHARDS),
    ("OpenRLHF", "ds.ring_attn_*", "", _NO_CUT_ROWS),
    ("OpenRLHF", "data.prompt_dataset prompt_data", "task.path", _FILE),
    ("OpenRLHF", "data.max_samples", "", "all questions of the file are used"),
    ("OpenRLHF", "data.input_key", "task.prompt_column", ""),
    ("OpenRLHF", "data.label_key", "task.answer_column", ""),
    ("OpenRLHF", "data.apply_chat_template", "task.chat", ""),
    ("OpenRLHF", "data.prompt_split", "task.train_split", ""),
    ("OpenRLHF", "train.agent_func_path", "task.environment", _TURNS),
    ("OpenRLHF", "eval.dataset eval_dataset", "task.eval_path", ""),
    ("OpenRLHF", "eval.steps", "eval.every_steps", ""),
    ("OpenRLHF", "eval.n_samples_per_prompt eval_n_samples_per_prompt", "eval.num_samples", ""),
    ("OpenRLHF", "reward.remote_url remote_rm_url", "task.rewards", _REWARD_FILE),
    ("OpenRLHF", "reward.normalize_enable", "loss.advantage", "advantages are normalised, rewards are not"),
    ("OpenRLHF", "reward.*", "task.rewards", _REWARD_MODEL),
    ("OpenRLHF", "actor_learning_rate", "optim.lr", ""),
    ("OpenRLHF", "actor.lr_scheduler", "optim.schedule", ""),
    ("OpenRLHF", "actor.lr_warmup_ratio", "optim.warmup_steps", _RATIO),
    ("OpenRLHF", "adam_betas", "optim.betas", ""),
    ("OpenRLHF", "actor.max_norm", "optim.max_grad_norm", ""),
    ("OpenRLHF", "train.max_epochs", "optim.num_epochs", ""),
    ("OpenRLHF", "train.batch_size train_batch_size", "optim.num_minibatches", _MINI_BATCHES),
    ("OpenRLHF", "train.micro_batch_size micro_train_batch_size", "optim.micro_batch_tokens", _TOKENS),
    ("OpenRLHF", "train.max_tokens_per_gpu", "optim.micro_batch_tokens", ""),
    ("OpenRLHF", "train.dynamic_batch_enable", "optim.micro_batch_tokens", _ALWAYS_TOKENS),
    ("OpenRLHF", "algo.advantage.estimator advantage_estimator", "loss.name", _LOSS_NAMES),
    ("OpenRLHF", "actor.policy_loss_type", "loss.name", ""),
    ("OpenRLHF", "algo.advantage.no_std_norm", "loss.advantage", '"none" instead of true'),
    ("OpenRLHF", "algo.advantage.is_correction_*", "", _NO_CORRECTION),
    ("OpenRLHF", "algo.advantage.gamma algo.advantage.lambd gamma lambd", "", _NO_DISCOUNT),
    ("OpenRLHF", "actor.eps_clip actor.eps_clip_low_high", "loss.clip_low", _BOTH_CLIPS),
    ("OpenRLHF", "actor.entropy_coef", "", _NO_ENTROPY),
    ("OpenRLHF", "algo.kl.init_coef init_kl_coef", "loss.kl_beta", ""),
    ("OpenRLHF", "algo.kl.estimator algo.kl.use_loss", "loss.kl_beta", _K3),
    ("OpenRLHF", "algo.dynamic_filtering_* dynamic_filtering", "budget.enough", _RECIPE),
    ("OpenRLHF", "train.num_episodes", "stop.steps", _STEPS),
    ("OpenRLHF", "ckpt.output_dir ckpt.path save_path", "--out", ""),
    ("OpenRLHF", "ckpt.load_enable", "--resume", ""),
    ("OpenRLHF", "ckpt.save_steps", "checkpoint.every_steps", ""),
    ("OpenRLHF", "ckpt.max_num", "checkpoint.keep", ""),
    ("OpenRLHF", "ckpt.save_hf", "", "the model in a checkpoint is always in Hugging Face's form"),
    ("OpenRLHF", "use_wandb logger.wandb.* logger.tensorboard_dir", "record.trackers", _TRACKER),
    ("OpenRLHF", "logger.logging_steps", "", _EVERY_STEP),
    ("OpenRLHF", "vllm.gpu_memory_utilization vllm_gpu_memory_utilization", "rollouts.kv_cache_bytes", _BYTES),
    ("OpenRLHF", "vllm.num_engines vllm_num_engines", "scale.generators", ""),
    ("OpenRLHF", "vllm.*", "rollouts.generator", _VLLM),
    ("OpenRLHF", "vllm.enable_sleep ds.enable_sleep", "", _NO_SLEEP),
    ("OpenRLHF", "vllm.sync_backend", "", _NO_BUCKETS),
    ("OpenRLHF", "train.async_enable async_train", "steps.name", _AHEAD),
    ("OpenRLHF", "train.partial_rollout_enable", "replay.unfinished", '"keep"'),
    ("OpenRLHF", "train.colocate_*", "scale.generators", _OWN_PROCESSES),
    ("OpenRLHF", "actor.num_gpus_per_node", "--processes", _PROCESSES),
    ("OpenRLHF", "actor.num_nodes", "", _NODES),
    ("OpenRLHF", "ref.* ref_*", "", _REFERENCE),
    ("OpenRLHF", "critic.* critic_*", "", _NO_CRITIC),
)
"""Whose names they are; the names, which one answer fits; our option or flag, or none; how they differ, or why."""

OTHER_NAMES = tuple(
    OtherName(origin, theirs, ours, difference)
    for origin, names, ours, difference in _TABLE
    for theirs in names.split()
)


def find_other_names(key: str) -> list[OtherName]:
    """Entries of a key that is a name of the paper, TRL, verl or OpenRLHF; its last parts are enough.

    Several libraries may call different things so. An entry of the longest end counts, and a form such as "vllm.*" only
    where no entry has that name.

    Example:
        >>> [other.ours for other in find_other_names("actor_rollout_ref.rollout.n")]
        ['rollouts.num_rollouts']
        >>> [other.ours for other in find_other_names("train_batch_size")]
        ['rollouts.num_prompts', 'optim.num_minibatches']
    """
    parts = key.replace("-", "_").split(".")
    for end in (".".join(parts[start:]) for start in range(len(parts))):
        if found := [other for other in OTHER_NAMES if other.theirs == end]:
            return found
        if found := [other for other in OTHER_NAMES if "*" in other.theirs and fnmatchcase(end, other.theirs)]:
            return found
    return []


def find_last_parts(word: str) -> list[OtherName]:
    """Entries whose names end with a word, as "n_gpus_per_node" stands for "trainer.n_gpus_per_node"."""
    return [other for other in OTHER_NAMES if other.theirs.rpartition(".")[2] == word.replace("-", "_")]


def answer_of(others: Sequence[OtherName]) -> str:
    """What to say to someone who used such a name: our options, or why there is none."""
    options: dict[str, list[str]] = {}
    for other in others:
        if other.ours:
            options.setdefault(other.ours, []).append(str(other))
    if options:
        cures = [f"{ours!r} ({', '.join(says)})" for ours, says in options.items()]
        return f"Did you mean {' or '.join(cures)}?"
    return f"It has no option here ({others[0].origin}: {others[0].theirs}), because {others[0].difference}."


def nearest_other_name(word: str, known: Collection[str] | None = None) -> str:
    """What to say of a word that another library calls nearly so; empty where nothing is near.

    Args:
        word: an unknown key or a part of it.
        known: keys of ours that may be offered; None: all.

    Example:
        >>> nearest_other_name("num_generation")
        " Did you mean 'rollouts.num_rollouts' (TRL: num_generations)?"
    """
    offered = [other for other in OTHER_NAMES if other.ours and (known is None or other.ours in known)]
    names = [other.theirs for other in offered if "*" not in other.theirs]
    names += [name.rpartition(".")[2] for name in names]
    for end in (word, word.rpartition(".")[2]):
        if close := get_close_matches(end.replace("-", "_"), names, n=1, cutoff=0.8):
            return f" {answer_of(find_other_names(close[0]) or find_last_parts(close[0]))}"
    return ""
