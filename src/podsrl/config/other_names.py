"""What the PODS paper, TRL, verl and OpenRLHF call the options of this package; for unknown keys and the docs.

TRL's names are those of `GRPOConfig`, its `TrainingArguments` and `ModelConfig`; verl's are the ends of its dotted keys
in `ppo_trainer.yaml`, so that "rollout.n" also stands for "actor_rollout_ref.rollout.n". OpenRLHF's are the flags of
`train_ppo_ray`, with dots as they are now and with underscores as they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

Origin = Literal["paper", "TRL", "verl", "OpenRLHF"]


@dataclass(frozen=True, slots=True)
class OtherName:
    """What another library or the paper calls an option."""

    origin: Origin
    theirs: str
    ours: str
    """Dotted key of `RunConfig`, or a flag such as "--out"."""
    difference: str = ""
    """How its values differ from ours, where they do."""


_COMPLETIONS = "theirs counts completions, ours counts questions"
_TOKENS = "theirs counts rows, ours counts tokens; gradients do not depend on it"
_STEPS = "theirs counts passes over the data, ours counts steps"
_BOTH_CLIPS = "loss.clip_high is an option of its own"
_OPTIMIZER_STEPS = "each epoch here is one optimizer step"
_FILE = 'with task.name = "jsonl" for a file, "hub" for a data set of the hub'
_LOSS_NAMES = "group_norm is grpo here, reinforce_baseline is reinforce_pp_baseline"
_REWARD_FILE = "a function instead of its file: reward_func:reward_func"
_RATIO = "theirs is a share of the steps, ours counts steps"
_RECIPE = '"mixed", as in the recipe systems/dapo'
_BYTES = "in bytes, of keys and values"
_TRACKER = "a list of trackers"
_AHEAD = '"ahead" instead of true'
_BOTH_LEN = "here prompts have an option of their own, rollouts.max_prompt_tokens"

OTHER_NAMES = (
    OtherName("paper", "n", "rollouts.num_rollouts"),
    OtherName("paper", "m", "select.num_kept"),
    OtherName("paper", "G", "rollouts.num_rollouts", "the group size in the GRPO paper"),
    OtherName("paper", "mu", "optim.num_epochs", "the GRPO paper's iterations on a batch"),
    OtherName("paper", "beta", "loss.kl_beta"),
    OtherName("paper", "group_size", "rollouts.num_rollouts"),
    OtherName("paper", "batch_size", "rollouts.num_prompts", "in questions per step"),
    OtherName("TRL", "num_generations", "rollouts.num_rollouts"),
    OtherName("TRL", "per_device_train_batch_size", "optim.micro_batch_tokens", _TOKENS),
    OtherName(
        "TRL",
        "gradient_accumulation_steps",
        "optim.micro_batch_tokens",
        "a step is divided into micro-batches of so many tokens",
    ),
    OtherName("TRL", "generation_batch_size", "rollouts.num_prompts", _COMPLETIONS),
    OtherName("TRL", "max_completion_length", "rollouts.max_new_tokens"),
    OtherName("TRL", "max_prompt_length", "rollouts.max_prompt_tokens", "longer prompts are left out, not cut"),
    OtherName("TRL", "learning_rate", "optim.lr"),
    OtherName("TRL", "lr_scheduler_type", "optim.schedule"),
    OtherName("TRL", "adam_beta1", "optim.betas", "a list of both"),
    OtherName("TRL", "adam_beta2", "optim.betas", "a list of both"),
    OtherName("TRL", "adam_epsilon", "optim.eps"),
    OtherName("TRL", "num_iterations", "optim.num_epochs"),
    OtherName("TRL", "beta", "loss.kl_beta"),
    OtherName("TRL", "epsilon", "loss.clip_low", _BOTH_CLIPS),
    OtherName("TRL", "epsilon_high", "loss.clip_high"),
    OtherName("TRL", "loss_type", "loss.name"),
    OtherName("TRL", "scale_rewards", "loss.advantage"),
    OtherName("TRL", "importance_sampling_level", "loss.ratio"),
    OtherName("TRL", "reward_funcs", "task.rewards"),
    OtherName("TRL", "reward_weights", "task.rewards"),
    OtherName("TRL", "dataset_name", "task.path", 'with task.name = "hub"'),
    OtherName("TRL", "model_name_or_path", "model.path"),
    OtherName("TRL", "model_revision", "model.revision"),
    OtherName("TRL", "attn_implementation", "model.attention"),
    OtherName("TRL", "torch_dtype", "model.dtype"),
    OtherName("TRL", "bf16", "model.dtype", '"bfloat16" instead of true'),
    OtherName("TRL", "use_peft", "lora.rank", "setting it turns adapters on"),
    OtherName("TRL", "lora_r", "lora.rank"),
    OtherName("TRL", "lora_alpha", "lora.alpha"),
    OtherName("TRL", "lora_dropout", "lora.dropout"),
    OtherName("TRL", "lora_target_modules", "lora.targets"),
    OtherName("TRL", "max_steps", "stop.steps"),
    OtherName("TRL", "num_train_epochs", "stop.steps", _STEPS),
    OtherName("TRL", "save_steps", "checkpoint.every_steps"),
    OtherName("TRL", "save_total_limit", "checkpoint.keep"),
    OtherName("TRL", "eval_steps", "eval.every_steps"),
    OtherName("TRL", "output_dir", "--out"),
    OtherName("verl", "rollout.n", "rollouts.num_rollouts"),
    OtherName("verl", "data.train_batch_size", "rollouts.num_prompts"),
    OtherName("verl", "data.max_prompt_length", "rollouts.max_prompt_tokens", "longer prompts are left out, not cut"),
    OtherName("verl", "data.max_response_length", "rollouts.max_new_tokens"),
    OtherName("verl", "data.train_files", "task.path"),
    OtherName("verl", "data.prompt_key", "task.prompt_column"),
    OtherName("verl", "model.enable_gradient_checkpointing", "model.gradient_checkpointing"),
    OtherName("verl", "model.use_remove_padding", "optim.packing"),
    OtherName("verl", "model.lora_rank", "lora.rank"),
    OtherName("verl", "actor.optim.lr", "optim.lr"),
    OtherName("verl", "actor.optim.lr_warmup_steps", "optim.warmup_steps"),
    OtherName("verl", "actor.ppo_epochs", "optim.num_epochs"),
    OtherName("verl", "actor.ppo_mini_batch_size", "optim.num_epochs", _OPTIMIZER_STEPS),
    OtherName("verl", "actor.ppo_micro_batch_size_per_gpu", "optim.micro_batch_tokens", _TOKENS),
    OtherName("verl", "actor.ppo_max_token_len_per_gpu", "optim.micro_batch_tokens"),
    OtherName("verl", "actor.grad_clip", "optim.max_grad_norm"),
    OtherName("verl", "actor.clip_ratio", "loss.clip_low", _BOTH_CLIPS),
    OtherName("verl", "actor.clip_ratio_low", "loss.clip_low"),
    OtherName("verl", "actor.clip_ratio_high", "loss.clip_high"),
    OtherName("verl", "actor.loss_agg_mode", "loss.aggregate"),
    OtherName("verl", "actor.use_kl_loss", "loss.kl_beta", "a weight above 0 instead of true"),
    OtherName("verl", "actor.kl_loss_coef", "loss.kl_beta"),
    OtherName("verl", "rollout.gpu_memory_utilization", "rollouts.kv_cache_bytes", _BYTES),
    OtherName("verl", "rollout.max_num_seqs", "rollouts.num_slots"),
    OtherName("verl", "algorithm.adv_estimator", "loss.name"),
    OtherName("verl", "algorithm.norm_adv_by_std_in_grpo", "loss.advantage"),
    OtherName("verl", "trainer.total_training_steps", "stop.steps"),
    OtherName("verl", "trainer.total_epochs", "stop.steps", _STEPS),
    OtherName("verl", "trainer.save_freq", "checkpoint.every_steps"),
    OtherName("verl", "trainer.test_freq", "eval.every_steps"),
    OtherName("verl", "trainer.max_actor_ckpt_to_keep", "checkpoint.keep"),
    OtherName("verl", "trainer.n_gpus_per_node", "--processes", "of pods launch"),
    OtherName("OpenRLHF", "rollout.n_samples_per_prompt", "rollouts.num_rollouts"),
    OtherName("OpenRLHF", "rollout.batch_size", "rollouts.num_prompts"),
    OtherName("OpenRLHF", "rollout_batch_size", "rollouts.num_prompts"),
    OtherName("OpenRLHF", "generate_max_len", "rollouts.max_new_tokens"),
    OtherName("OpenRLHF", "data.max_len", "rollouts.max_new_tokens", _BOTH_LEN),
    OtherName("OpenRLHF", "prompt_max_len", "rollouts.max_prompt_tokens", "longer prompts are left out, not cut"),
    OtherName("OpenRLHF", "actor.model_name_or_path", "model.path"),
    OtherName("OpenRLHF", "pretrain", "model.path"),
    OtherName("OpenRLHF", "ds.attn_implementation", "model.attention"),
    OtherName("OpenRLHF", "ds.param_dtype", "model.dtype", '"bfloat16" for bf16'),
    OtherName("OpenRLHF", "actor.gradient_checkpointing_enable", "model.gradient_checkpointing"),
    OtherName("OpenRLHF", "ds.packing_samples", "optim.packing"),
    OtherName("OpenRLHF", "ds.lora.target_modules", "lora.targets"),
    OtherName("OpenRLHF", "data.prompt_dataset", "task.path", _FILE),
    OtherName("OpenRLHF", "prompt_data", "task.path", _FILE),
    OtherName("OpenRLHF", "data.input_key", "task.prompt_column"),
    OtherName("OpenRLHF", "data.label_key", "task.answer_column"),
    OtherName("OpenRLHF", "data.apply_chat_template", "task.chat"),
    OtherName("OpenRLHF", "data.prompt_split", "task.train_split"),
    OtherName("OpenRLHF", "eval.dataset", "task.eval_path"),
    OtherName("OpenRLHF", "eval_dataset", "task.eval_path"),
    OtherName("OpenRLHF", "eval.steps", "eval.every_steps"),
    OtherName("OpenRLHF", "eval.n_samples_per_prompt", "eval.num_samples"),
    OtherName("OpenRLHF", "eval_n_samples_per_prompt", "eval.num_samples"),
    OtherName("OpenRLHF", "reward.remote_url", "task.rewards", _REWARD_FILE),
    OtherName("OpenRLHF", "remote_rm_url", "task.rewards", _REWARD_FILE),
    OtherName("OpenRLHF", "actor_learning_rate", "optim.lr"),
    OtherName("OpenRLHF", "actor.lr_scheduler", "optim.schedule"),
    OtherName("OpenRLHF", "actor.lr_warmup_ratio", "optim.warmup_steps", _RATIO),
    OtherName("OpenRLHF", "adam_betas", "optim.betas"),
    OtherName("OpenRLHF", "actor.max_norm", "optim.max_grad_norm"),
    OtherName("OpenRLHF", "train.max_epochs", "optim.num_epochs", _OPTIMIZER_STEPS),
    OtherName("OpenRLHF", "train.batch_size", "optim.num_epochs", _OPTIMIZER_STEPS),
    OtherName("OpenRLHF", "train.micro_batch_size", "optim.micro_batch_tokens", _TOKENS),
    OtherName("OpenRLHF", "micro_train_batch_size", "optim.micro_batch_tokens", _TOKENS),
    OtherName("OpenRLHF", "train.max_tokens_per_gpu", "optim.micro_batch_tokens"),
    OtherName("OpenRLHF", "algo.advantage.estimator", "loss.name", _LOSS_NAMES),
    OtherName("OpenRLHF", "advantage_estimator", "loss.name", _LOSS_NAMES),
    OtherName("OpenRLHF", "actor.policy_loss_type", "loss.name"),
    OtherName("OpenRLHF", "algo.advantage.no_std_norm", "loss.advantage", '"none" instead of true'),
    OtherName("OpenRLHF", "actor.eps_clip", "loss.clip_low", _BOTH_CLIPS),
    OtherName("OpenRLHF", "actor.eps_clip_low_high", "loss.clip_low", _BOTH_CLIPS),
    OtherName("OpenRLHF", "algo.kl.init_coef", "loss.kl_beta"),
    OtherName("OpenRLHF", "init_kl_coef", "loss.kl_beta"),
    OtherName("OpenRLHF", "algo.dynamic_filtering_enable", "budget.enough", _RECIPE),
    OtherName("OpenRLHF", "dynamic_filtering", "budget.enough", _RECIPE),
    OtherName("OpenRLHF", "train.num_episodes", "stop.steps", _STEPS),
    OtherName("OpenRLHF", "ckpt.output_dir", "--out"),
    OtherName("OpenRLHF", "save_path", "--out"),
    OtherName("OpenRLHF", "ckpt.save_steps", "checkpoint.every_steps"),
    OtherName("OpenRLHF", "ckpt.max_num", "checkpoint.keep"),
    OtherName("OpenRLHF", "use_wandb", "record.trackers", _TRACKER),
    OtherName("OpenRLHF", "logger.tensorboard_dir", "record.trackers", _TRACKER),
    OtherName("OpenRLHF", "vllm.gpu_memory_utilization", "rollouts.kv_cache_bytes", _BYTES),
    OtherName("OpenRLHF", "vllm_gpu_memory_utilization", "rollouts.kv_cache_bytes", _BYTES),
    OtherName("OpenRLHF", "vllm.num_engines", "scale.generators"),
    OtherName("OpenRLHF", "vllm_num_engines", "scale.generators"),
    OtherName("OpenRLHF", "train.async_enable", "steps.name", _AHEAD),
    OtherName("OpenRLHF", "async_train", "steps.name", _AHEAD),
    OtherName("OpenRLHF", "actor.num_gpus_per_node", "--processes", "of pods launch"),
)


def find_other_name(key: str) -> OtherName | None:
    """Find the entry of a key that is a name of the paper, TRL, verl or OpenRLHF; its last parts are enough.

    Example:
        >>> find_other_name("actor_rollout_ref.rollout.n").ours, find_other_name("learning-rate").ours
        ('rollouts.num_rollouts', 'optim.lr')
    """
    parts = key.replace("-", "_").split(".")
    ends = [".".join(parts[start:]) for start in range(len(parts))]
    for end in ends:
        for other in OTHER_NAMES:
            if end == other.theirs:
                return other
    return next((other for other in OTHER_NAMES if [other.theirs.rpartition(".")[2]] == parts), None)


def nearest_other_name(word: str) -> str:
    """Name what another library calls nearly so, and the option here; empty where nothing is near.

    Example:
        >>> nearest_other_name("num_generation")
        " Did you mean 'num_generations' (TRL), here rollouts.num_rollouts?"
    """
    names = {end: other for other in OTHER_NAMES for end in (other.theirs.rpartition(".")[2], other.theirs)}
    close = [
        near
        for end in (word, word.rpartition(".")[2])
        for near in get_close_matches(end.replace("-", "_"), names, n=1, cutoff=0.8)
    ]
    if not close:
        return ""
    other = names[close[0]]
    return f" Did you mean {close[0]!r} ({other.origin}){f', here {other.ours}' if other.ours else ''}?"
