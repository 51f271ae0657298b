"""The sections of a config as dicts, for editors and type checkers: they mark an option that does not exist.

Made from `config/schema.py` by `python tests/config/test_sections.py > src/podsrl/config/sections.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

Named = str | Callable[..., Any]
"""The name of a function or a class, or the object itself."""
Rewards = Named | Sequence[Named] | Mapping[Any, float]
"""One reward or several, each of weight 1, or each with its weight."""


class ModelOptions(TypedDict, total=False):
    path: str | Path
    revision: str
    trust_remote_code: bool
    dtype: Literal["float32", "bfloat16", "float16", "auto"]
    device: str
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"]
    matmul: Literal["auto", "mkl", "onednn"]
    dropout: Literal["off", "as_configured"]
    gradient_checkpointing: bool
    load_in_4bit: bool


class LoraOptions(TypedDict, total=False):
    rank: int
    alpha: float
    dropout: float
    targets: Sequence[str]


class TaskOptions(TypedDict, total=False):
    name: Named
    path: str | Path
    eval_path: str | Path
    subset: str
    train_split: str
    eval_split: str
    prompt_column: str
    answer_column: str
    digits: int | Sequence[int]
    levels: Mapping[int, float]
    chat: bool
    system_prompt: str
    special_tokens: Literal["text", "tokens"]
    rewards: Rewards
    correct: Named
    format: Named
    environment: Named
    tools: Named | Sequence[Named]
    max_turns: int
    reward_workers: int
    reward_timeout_seconds: float
    batch_timeout_seconds: float
    num_eval: int


class RolloutOptions(TypedDict, total=False):
    num_prompts: int
    num_rollouts: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    max_new_tokens: int
    stop_strings: Sequence[str]
    num_slots: int
    kv_cache_bytes: int | str
    scheduler: str
    max_prompt_tokens: int
    generator: Named


class CostsOptions(TypedDict, total=False):
    group_ms: float
    rollout_ms: float
    row_ms: float
    spread: float
    model: str
    source: str


class SelectOptions(TypedDict, total=False):
    rule: Named
    options: Mapping[str, Any]
    num_kept: int | float
    ties: Literal["position", "short", "likely", "unlikely"]
    num_chunks: int


class LossOptions(TypedDict, total=False):
    name: str
    advantage: Named
    ratio: Literal["token", "sequence"]
    clip: Literal["ppo", "cispo", "none"]
    clip_low: float
    clip_high: float
    aggregate: Literal["sequence_mean", "token_mean", "constant", "group_mean"]
    kl_beta: float


class CorrectOptions(TypedDict, total=False):
    proximal: Literal["behaviour", "step_start", "interpolated", "average"]
    weight: Literal["none", "full", "truncate", "mask", "sequence"]
    cap: float
    share: float
    window: float
    reset: float
    drop: Literal["none", "far_negative"]
    max_kl: float
    rate: Literal["constant", "effective"]
    baseline: Literal["none", "off_policy"]


class OptimOptions(TypedDict, total=False):
    name: Literal["adamw", "adamw_8bit"]
    lr: float
    schedule: Literal["constant", "cosine"]
    schedule_steps: int
    betas: Sequence[float]
    eps: float
    weight_decay: float
    max_grad_norm: float
    warmup_steps: int
    num_epochs: int
    num_minibatches: int
    micro_batch_tokens: int
    packing: Literal["auto", "on", "off"]
    prefix_sharing: Literal["auto", "on", "off"]
    logprob_chunk_tokens: int


class ScaleOptions(TypedDict, total=False):
    strategy: Literal["ddp", "fsdp2", "zero2"]
    timeout_seconds: float
    generators: int
    ray: str


class OrderOptions(TypedDict, total=False):
    ahead: float
    take: Literal["asked", "first"]
    rest: Literal["finish", "run", "put_off"]
    most_age: int


class EvalOptions(TypedDict, total=False):
    every_seconds: float
    every_steps: int
    num_samples: int
    temperature: float
    top_p: float


class StopOptions(TypedDict, total=False):
    steps: int
    seconds: float
    without_signal: int


class CheckpointOptions(TypedDict, total=False):
    every_steps: int
    every_seconds: float
    keep: int


class RecordOptions(TypedDict, total=False):
    groups_every_steps: int
    num_groups: int
    trackers: Sequence[str]
    project: str


class AboutOptions(TypedDict, total=False):
    name: str
    idea: str
    group: str
    when: str
    cost: str
    seen: str
    source: str
    differs: str


class Sections(TypedDict, total=False):
    seed: int
    threads: int
    systems: Named | Sequence[Named]
    model: ModelOptions
    lora: LoraOptions
    rollouts: RolloutOptions
    costs: CostsOptions
    select: SelectOptions
    loss: LossOptions
    correct: CorrectOptions
    optim: OptimOptions
    scale: ScaleOptions
    order: OrderOptions
    eval: EvalOptions
    stop: StopOptions
    checkpoint: CheckpointOptions
    record: RecordOptions
    about: AboutOptions
    options: Mapping[str, Mapping[str, Any]]


class Options(Sections, total=False):
    task: TaskOptions
    rewards: Rewards


class ArmOptions(Options, total=False):
    extends: str


class CompareOptions(TypedDict, total=False):
    baseline: str
    fraction: float
    metric: Literal["accuracy", "accuracy_and_format"]
    prices: Sequence[float]
    num_seeds: int
    first_seed: int
    jobs: int
    slice_seconds: float
    base: ArmOptions
    arms: Mapping[str, ArmOptions]
