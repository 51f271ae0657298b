"""The one typed tree of user options: each default stands once, here, with its meaning, unit and range below it.

The sections are pydantic models that check themselves at construction and are frozen afterwards. Every stage may import
them; nothing here imports torch. `config/load.py` reads TOML files and flags.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from podsrl.config.bounds import (
    MAX_COUNT,
    MAX_STEP_TOKENS,
    Count,
    Names,
    NonNegative,
    NonNegativeCount,
    NumKept,
    OneOrSeveralDigits,
    PathText,
    Positive,
    PositiveSeconds,
    Probability,
    Seconds,
    Share,
    Steps,
    Temperature,
    Tokens,
    kept_of,
    parse_bytes,
    parse_names,
    parse_trackers,
    parse_words,
)


class Section(BaseModel):
    """Base of every section: unknown keys are errors, and values never change after checking."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)
    readers: ClassVar[Mapping[str, tuple[str, tuple[str, ...]]]] = {}
    """Option -> the option of the section that decides whether it is read, and with which of its values."""

    @model_validator(mode="after")
    def _check_read(self) -> Self:
        """What would be read by nothing is refused."""
        section = type(self).__name__.removesuffix("Config").lower()
        for name, (option, values) in self.readers.items():
            value, reader = getattr(self, name), getattr(self, option)
            if value != type(self).model_fields[name].default and reader not in values:
                raise ValueError(
                    f"{section}.{name} = {value} has no effect with {section}.{option} = {reader!r}: set "
                    f"{section}.{option} = {' or '.join(map(repr, values))}, or leave {section}.{name} out"
                )
        return self

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        """What differs from the defaults."""
        defaults = {
            name: field.get_default(call_default_factory=True) for name, field in type(self).model_fields.items()
        }
        return [(name, value) for name, value in super().__repr_args__() if value != defaults.get(name or "")]


class ModelConfig(Section):
    """Which weights are trained."""

    path: PathText = "builtin:arithmetic"
    """Folder in Hugging Face layout, name on the hub, "package:NAME" from `pods models`, or a model that ships:
    "builtin:arithmetic", "builtin:arithmetic-rare", "builtin:arithmetic-mixed", "builtin:steps". Where a recipe has "",
    you have to give one."""
    revision: str | None = None
    """Branch, tag or commit on the hub; default: the main branch."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model. Read it first."""
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    """Number format of weights and activations; "auto": "bfloat16" on a GPU that computes in it, else "float32".
    "float16" is for evaluation only, since gradients overflow in it."""
    device: str = "auto"
    """"cpu", "cuda", "cuda:1" …; "auto": CUDA if there is a GPU and the model is not tiny, else the CPU."""
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = "auto"
    """Attention of the model's own forward, not of packed rows: "sdpa", "eager" or "flash_attention_2"; "auto": the
    choice of transformers."""
    matmul: Literal["auto", "mkl", "onednn"] = "auto"
    """Library for float32 products on an x86 CPU: "mkl", or "onednn" for large ones; "auto": oneDNN on AMD's processors
    with AVX-512, else MKL."""
    dropout: Literal["off", "as_configured"] = "off"
    """"as_configured": the model's own dropout is on in the update."""
    gradient_checkpointing: bool = False
    """Recompute activations in the update: less memory, more time."""
    load_in_4bit: bool = False
    """Hold the frozen weights in 4 bits (NF4, bitsandbytes); needs [lora]."""


class LoraConfig(Section):
    """Low-rank adapters (PEFT) instead of full fine-tuning."""

    rank: Annotated[int, Field(ge=1, le=2**14)] = 64
    """Rank; at most the smaller side of the largest matrix with an adapter."""
    alpha: Positive = 64.0
    """Adapters are scaled by alpha / rank."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Dropout on an adapter's input."""
    targets: Annotated[tuple[str, ...], BeforeValidator(parse_words)] = ("all-linear",)
    """Ends of the names of modules with an adapter ("q_proj", …); "all-linear": every linear layer but the output
    head."""


class TaskConfig(Section):
    """Where the questions come from, and how answers are judged."""

    name: Annotated[PathText, Names("podsrl.tasks:TASKS")] = "arithmetic"
    """A known task set or "module:function" (docs/tasks.md)."""
    path: PathText | None = None
    """For "jsonl": a file with one JSON object per line; for "hub": the data set's name; else a folder or file of rows,
    in place of the hub or PODS_DATA."""
    eval_path: PathText | None = None
    """For "jsonl": a file of held-out questions; default: rows of `path`."""
    subset: str | None = None
    """For "hub": the data set's configuration."""
    train_split: str | None = None
    """For "hub": the split to train on; default: "train"."""
    eval_split: str | None = None
    """For "hub": the held-out split; default: `num_eval` rows of the training split."""
    prompt_column: str = "question"
    """For "jsonl" and "hub": column of the prompt."""
    answer_column: str = "answer"
    """For "jsonl" and "hub": column of the reference answer."""
    digits: OneOrSeveralDigits = 2
    """For "arithmetic" and "columns": digits of each addend; a list, such as [1, 2, 3], mixes them."""
    levels: dict[int, float] | None = None
    """For "steps" (levels 1 to 4) and "functions" (1 to 3, from the easiest): level -> share of the questions, adding
    up to 1. Default: the mixture of "steps" (docs/steps.md), all of "functions"."""
    chat: bool | None = None
    """Render prompts by the tokenizer's chat template; default: as the task set says."""
    system_prompt: Annotated[str | None, Names("podsrl.tasks:SYSTEM_PROMPTS")] = None
    """System message of every chat: a known one or the text itself."""
    special_tokens: Literal["text", "tokens"] = "text"
    """Read special tokens such as `<|im_end|>` in a question as "text", or as "tokens", for prompts that a chat
    template rendered. In `system_prompt` they are always tokens."""
    rewards: Annotated[dict[str, float] | None, Names("podsrl.score:REWARDS")] = None
    """Reward function (known or "module:function") -> its weight in the sum. Default: the task set's
    (docs/rewards.md)."""
    correct: Annotated[str | None, Names("podsrl.score:REWARDS")] = None
    """Reward function whose value >= 1 means a correct answer. Default: the task set's."""
    format: Annotated[str | None, Names("podsrl.score:REWARDS")] = None
    """Reward function whose value >= 1 means the wanted format. Default: the task set's if among the rewards, else
    none."""
    environment: Annotated[str | None, Names("podsrl.score.workers.turns:ENVIRONMENTS")] = None
    """What answers the model's turns: "module:function", or "module:Class" for an object per rollout (docs/turns.md).
    Default: the task set's."""
    tools: Annotated[tuple[str, ...], BeforeValidator(parse_names)] = ()
    """Functions "module:function" that the model may call, in place of an environment (docs/turns.md)."""
    max_turns: Annotated[int, Field(ge=2, le=MAX_COUNT)] = 8
    """Most turns of the model in a rollout."""
    reward_workers: Annotated[int, Field(ge=0, le=1024)] = 0
    """Processes for slow rewards (math, and yours of one completion), and as many for environment or tools; 0: one per
    core, at most 16."""
    reward_timeout_seconds: PositiveSeconds = 10.0
    """Seconds for the reward of a completion, a call of the environment, or the tool calls of a turn. Beyond them a
    math answer is wrong, and with your own function the rollout invalid."""
    batch_timeout_seconds: PositiveSeconds = 300.0
    """Seconds for a call of a reward function in TRL's form, with all completions of a step, and for loading its
    module. Beyond them these rollouts are invalid."""
    num_eval: NonNegativeCount | None = None
    """Held-out questions; 0: the whole test split. Default: all of `eval_path`; a fifth of a single file or split, at
    most 256; else up to 256."""


class RolloutConfig(Section):
    """How many completions are generated, and how they are sampled."""

    num_prompts: Count = 8
    """Prompts (groups) per step."""
    num_rollouts: Annotated[int, Field(ge=2, le=MAX_COUNT)] = 64
    """Rollouts generated per prompt: the paper's n."""
    temperature: Temperature = 1.0
    """Softmax temperature in training."""
    top_p: Probability = 1.0
    """Nucleus sampling: from the fewest tokens with at least this total probability; 1: all."""
    top_k: NonNegativeCount = 0
    """Sample from the k likeliest tokens only; 0: all."""
    min_p: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Drop tokens below this share of the likeliest one's probability; 0: none."""
    max_new_tokens: Count = 64
    """Most tokens of a completion; with several turns, of all together and what is read between them."""
    stop_strings: tuple[str, ...] = ()
    """A completion also ends with the token that completes one of these."""
    num_slots: NonNegativeCount = 0
    """Most rollouts generated at once; 0: as many as `kv_cache_bytes` holds, or all."""
    kv_cache_bytes: Annotated[int, Field(ge=0, le=2**60), BeforeValidator(parse_bytes)] = 0
    """Most memory for keys and values. 0: on CUDA 80 % of what is free at the start, less what the optimizer needs; on
    a CPU what fits into 80 % of the memory."""
    scheduler: Annotated[str, Names("podsrl.generate.schedule.scheduler:SCHEDULERS")] = "continuous"
    """Which rollouts run when not all fit, without a change of their tokens (docs/engine.md): "continuous" refills free
    slots; "dynamic" runs as many rows as the memory holds at the present longest one; "+breadth" behind either grows
    all groups alike."""
    max_prompt_tokens: Count = 512
    """Longer prompts are left out and counted, never truncated."""
    generator: Annotated[str, Names("podsrl.generate.kinds:GENERATORS")] = "engine"
    """"engine" (of this package), "vllm" (in this process), "vllm+http://HOST:PORT" (servers, separated by commas),
    "auto" ("vllm" where it is installed and the model is on a GPU, else "engine"), "tinker" (a service that also
    trains), or "module:function" (docs/generators.md)."""


class CostsConfig(Section):
    """What the parts of a step cost, for `select.rule = "max_signal"` and the system "worth" (docs/budgets.md); only
    ratios count. `pods plan CONFIG --write FILE` measures them; without it, defaults of the device's kind hold."""

    group_ms: Positive
    """Milliseconds per group, without its rollouts."""
    rollout_ms: Positive
    """Milliseconds per rollout, until it has its reward."""
    row_ms: Positive
    """Milliseconds per row of the update."""
    spread: NonNegative = 0.0
    """How far single measurements lay from these, as a share; 0: not measured."""
    model: str = ""
    """The `model.path` of the measurement; "": any."""
    source: str = ""
    """Where they are from, in words."""

    def overhead(self, num_rollouts: int) -> float:
        """What a group of so many rollouts has cost before its update, in rows."""
        return (self.group_ms + self.rollout_ms * num_rollouts) / self.row_ms


DEFAULT_COSTS = {
    "cpu": CostsConfig(
        group_ms=9.6, rollout_ms=0.05, row_ms=1.0, source="default: those of the demo on a core of an AMD Zen 4"
    ),
    "cuda": CostsConfig(
        group_ms=91.0,
        rollout_ms=2.7,
        row_ms=9.4,
        source="default: those of 3 billion weights with adapters, 8 questions per step, on an NVIDIA H200",
    ),
}
"""Kind of device -> the costs of a run without `[costs]`. On any other kind those of "cuda" hold."""


class SelectConfig(Section):
    """Which rollouts of a group are trained on."""

    rule: Annotated[str, Names("podsrl.select:RULES")] = "max_variance"
    """A known rule or "module:function" (docs/selection.md)."""
    options: dict[str, Any] = {}
    """Options of the rule, such as `{margin = 0.5}`."""
    num_kept: NumKept = 16
    """Rollouts trained on per prompt, with "max_signal" at most: the paper's m. Below 1: a share of each group,
    rounded, at least 2."""
    ties: Literal["position", "short", "likely", "unlikely"] = "position"
    """Which of equal rewards are kept, with "max_variance", "max_signal" and "drop_surplus": the first ("position"),
    those with the fewest drawn tokens ("short"), or with on average the likeliest ("likely") or least likely
    ("unlikely")."""
    num_chunks: Count = 1
    """Equal chunks of a group's rollouts in order, each selected and normalised by itself (the paper on several GPUs: 4
    chunks of 128 -> 32)."""

    @property
    def kept_of_chunk(self) -> float:
        """`num_kept` of each chunk, or the share."""
        return self.num_kept if isinstance(self.num_kept, float) else self.num_kept // self.num_chunks

    def most_kept(self, size: int) -> int:
        """Rollouts that are kept of a group of `size`, at most."""
        if self.rule == "keep_all":
            return size
        return min(size, self.num_chunks * kept_of(self.kept_of_chunk, size // self.num_chunks))


class LossConfig(Section):
    """The algorithm by its name, and any of its choices replaced (docs/losses.md)."""

    name: Annotated[str, Names("podsrl.update:ALGORITHMS")] = "grpo"
    """A known algorithm; the options below replace its values."""
    advantage: Annotated[str | None, Names("podsrl.update:ADVANTAGES")] = None
    """How rewards of kept rollouts become advantages: a known way or "module:function"."""
    ratio: Literal["token", "sequence"] | None = None
    """Importance ratio per "token" or per "sequence"."""
    clip: Literal["ppo", "cispo", "none"] | None = None
    """How the importance ratio is bounded."""
    clip_low: NonNegative | None = None
    """Lower bound of the ratio: 1 - clip_low."""
    clip_high: NonNegative | None = None
    """Upper bound of the ratio: 1 + clip_high."""
    aggregate: Literal["sequence_mean", "token_mean", "constant", "group_mean"] | None = None
    """"sequence_mean": mean over each sequence's tokens, then over sequences; "token_mean": over all tokens;
    "constant": sum over all tokens / (rows × rollouts.max_new_tokens); "group_mean": mean over each sequence, each
    group, then groups."""
    kl_beta: NonNegative = 0.0
    """Weight of the KL penalty (k3 estimator) to the frozen starting model; 0: no second model."""


class CorrectConfig(Section):
    """Correction for stale tokens, which older weights drew (docs/losses.md)."""

    readers = {
        "cap": ("weight", ("truncate", "mask", "sequence")),
        "share": ("proximal", ("interpolated",)),
        "window": ("proximal", ("average",)),
        "reset": ("proximal", ("average",)),
        "max_kl": ("drop", ("far_negative",)),
    }

    proximal: Literal["behaviour", "step_start", "interpolated", "average"] = "behaviour"
    """Policy around which the importance ratio is bounded: "behaviour", which drew the token; "step_start", with which
    the step's update begins; "interpolated" between behaviour and current policy; or the "average" of the last
    versions."""
    weight: Literal["none", "full", "truncate", "mask", "sequence"] = "none"
    """Weight of a token's loss, by the ratio of proximal to behaviour policy: 1 ("none"); the ratio ("full"), at most
    `cap` ("truncate"), or 0 above `cap` ("mask"); or the product of a row's ratios, at most `cap` ("sequence")."""
    cap: Positive = 5.0
    """Largest weight."""
    share: Probability = 0.5
    """With "interpolated": share of the behaviour policy in the mean of the log-probs."""
    window: NonNegative = 2.0
    """With "average": versions of the weights that it looks back; the decay is window / (window + 2)."""
    reset: Share = 0.9
    """With "average": share of tokens neither bounded nor capped in an update, below which it begins again; 0:
    never."""
    drop: Literal["none", "far_negative"] = "none"
    """"far_negative": tokens with a negative advantage have no gradient in completions that have become unlikely."""
    max_kl: Positive = 50.0
    """With "far_negative": sum of log-prob differences, in nats, from which a completion is unlikely."""
    rate: Literal["constant", "effective"] = "constant"
    """"effective": `optim.lr` times the root of the effective sample size as a share of the rows, which stale rollouts
    lower."""
    baseline: Literal["none", "off_policy"] = "none"
    """"off_policy": the value that makes the variance of a prompt's weighted gradients least is subtracted from its
    advantages (VCPO). It takes a backward pass per row, and needs loss.clip = "none"."""

    @model_validator(mode="after")
    def _check_weight(self) -> Self:
        if self.proximal == "behaviour" and self.weight != "none":
            raise ValueError(
                f"correct.weight = {self.weight!r} with correct.proximal = 'behaviour', whose ratio to itself is 1: "
                "set correct.proximal = 'step_start', or leave correct.weight out"
            )
        return self


class OptimConfig(Section):
    """The optimizer step (AdamW)."""

    readers = {"schedule_steps": ("schedule", ("cosine",))}

    name: Literal["adamw", "adamw_8bit"] = "adamw"
    """"adamw_8bit": its moments have 8 bits (bitsandbytes)."""
    lr: Positive = 3e-4
    """Learning rate."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Learning rate after warm-up; "cosine": it falls to 0 along half a cosine."""
    schedule_steps: Steps = 0
    """For "cosine": optimizer steps until the rate is 0, warm-up included."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.99)
    """Decay rates of the two moments."""
    eps: Positive = 1e-8
    """Added to the root of the second moment."""
    weight_decay: NonNegative = 0.0
    """Decoupled weight decay."""
    max_grad_norm: Positive = 1.0
    """Gradients with a larger global norm are scaled down to it."""
    warmup_steps: Steps = 0
    """Optimizer steps of linear warm-up from 0."""
    num_epochs: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Passes over the batch of a step (GRPO's mu)."""
    num_minibatches: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Optimizer steps per pass, each on whole groups; a divisor of `rollouts.num_prompts`."""
    micro_batch_tokens: Tokens = 8192
    """Most tokens of one forward and backward pass; gradients do not depend on it. On a GPU where the engine generates
    too, a run doubles the default once or twice if there is room."""
    packing: Literal["auto", "on", "off"] = "auto"
    """Rows of a micro-batch one after another without padding ("on"), or padded ("off"); "auto": "on" if the model
    allows it."""
    prefix_sharing: Literal["auto", "on", "off"] = "auto"
    """Forward each group's prompt once per micro-batch ("on") or once per row ("off"); "auto": "on" where rows are
    packed and it saves time."""
    logprob_chunk_tokens: Tokens = 2048
    """Tokens whose logits are in memory at once."""

    @property
    def num_updates(self) -> int:
        """Optimizer steps on the batch of a step."""
        return self.num_epochs * self.num_minibatches

    @model_validator(mode="after")
    def _check_schedule(self) -> Self:
        if self.schedule == "cosine" and self.schedule_steps <= self.warmup_steps:
            raise ValueError(
                f"optim.schedule_steps = {self.schedule_steps}: 'cosine' wants the step at which the rate reaches 0, "
                f"which is more than optim.warmup_steps = {self.warmup_steps}, since it counts them in"
            )
        return self


class ScaleConfig(Section):
    """How several processes (`pods launch`) share one run."""

    strategy: Literal["ddp", "fsdp2", "zero2"] = "ddp"
    """"ddp": every process holds all weights; "zero2": gradients and optimizer state are sharded; "fsdp2": weights
    too."""
    timeout_seconds: PositiveSeconds = 1800.0
    """Seconds after which a process gives up waiting for the others, and a silent one of `generators` is replaced."""
    generators: Annotated[int, Field(ge=0, le=1024)] = 0
    """Generators in processes of their own, in all; 0: one within each process of the run (docs/generators.md)."""
    ray: str = ""
    """Where `generators` run: "" (this machine), "HOST:PORT" (a Ray cluster), or "local" (a cluster that the run starts
    here)."""


class OrderConfig(Section):
    """Which groups are under way, which make a step, and what the others do when new weights come (docs/orders.md)."""

    ahead: Annotated[float, Field(ge=0, le=16)] = 0.0
    """Groups under way beyond a step's, as a share of `rollouts.num_prompts`. 0: a step is generated, then trained on;
    1: one more step is under way."""
    take: Literal["asked", "first"] = "asked"
    """A step trains on the groups that were "asked" for it (`ahead` is then a number of steps), or on those that are
    whole "first"."""
    rest: Literal["finish", "run", "put_off"] = "finish"
    """When new weights come, they wait for rollouts to "finish"; rollouts "run" on behind the keys and values of the
    old weights; or they are "put_off" and go on later, from tokens that the new weights read again."""
    most_age: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Most steps from asking a group to training on it. Default: only the bound that `ahead` sets with "asked"."""

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        """The values make one order."""
        ahead, take = f"order.ahead = {self.ahead:g}", f"order.take = {self.take!r}"
        rest = f"order.rest = {self.rest!r}"
        for key in ("take", "rest", "most_age"):
            value = getattr(self, key)
            if value != type(self).model_fields[key].default and not self.is_ahead:
                raise ValueError(
                    f"order.{key} = {value!r} has no effect with order.ahead = 0: set order.ahead above 0, or leave "
                    f"order.{key} out"
                )
        if self.take == "first" and self.rest == "finish":
            raise ValueError(
                f"{take} with {rest}, which waits for all groups: set order.rest = 'put_off' or 'run', or order.take = "
                "'asked'"
            )
        if self.take == "asked" and self.ahead % 1:
            raise ValueError(
                f"{ahead} with {take}, which asks whole steps: wanted a whole number, or order.take = 'first'"
            )
        if self.rest == "finish" and self.ahead > 1:
            raise ValueError(
                f"{ahead} with {rest}: while a further step runs, no new weights would come; set order.ahead = 1, or "
                "order.rest = 'run' or 'put_off'"
            )
        return self

    @property
    def is_ahead(self) -> bool:
        """Whether groups of later steps are under way."""
        return self.ahead > 0

    @property
    def largest_age(self) -> int | None:
        """Steps that a group may be old when it is trained on; None: any number.

        Example:
            >>> [OrderConfig(ahead=2, rest=rest).largest_age for rest in ("put_off", "run")]
            [2, 3]
        """
        if self.take == "first":
            return self.most_age
        age = int(self.ahead) + (self.rest == "run")  # a further step is asked before the update, beside which it runs
        return min(age, self.most_age or age)

    @property
    def steps_under_way(self) -> int:
        """Steps of `num_groups` that are under way at a time, at most."""
        if self.take == "first" or self.rest == "finish":
            return 1
        return 1 + min(int(self.ahead), self.most_age or int(self.ahead))

    def num_groups(self, num_prompts: int) -> int:
        """Groups that are asked for a step that trains on so many, those that are left for later steps included.

        Example:
            >>> OrderConfig(ahead=0.25, take="first", rest="put_off").num_groups(8), OrderConfig(ahead=1).num_groups(8)
            (10, 8)
        """
        if self.take == "asked":
            return num_prompts
        return math.ceil(num_prompts * (1 + min(self.ahead, self.most_age or math.inf)) - 1e-9)


class EvalConfig(Section):
    """Held-out accuracy by sampling. Evaluation does not count as training time."""

    every_seconds: Seconds = 0.0
    """Training seconds between evaluations; 0: off."""
    every_steps: Steps = 0
    """Steps between evaluations; 0: off."""
    num_samples: Count = 1
    """Completions per question; the accuracy is their mean."""
    temperature: Temperature = 1.0
    """Softmax temperature in evaluation; 0.0001 draws the likeliest token."""
    top_p: Probability = 1.0
    """Nucleus sampling in evaluation."""


class StopConfig(Section):
    """The run ends at the first of these limits."""

    steps: Steps = 0
    """Training steps; 0, or `stop.seconds` alone: no limit."""
    seconds: Seconds = 0.0
    """Training seconds, without evaluation; 0: no limit."""
    without_signal: Steps = 20
    """Stop with exit code 1 if so many steps from the start had no kept rollout with an advantage; 0: never."""

    @model_validator(mode="before")
    @classmethod
    def _limit(cls, given: Any) -> Any:
        """The run ends after 100 steps where neither steps nor seconds are given."""
        is_without = isinstance(given, dict) and not given.keys() & {"steps", "seconds"}
        return {"steps": 100, **given} if is_without else given


class CheckpointConfig(Section):
    """A run resumes from a checkpoint. Its end and Ctrl-C always save one."""

    every_steps: Steps = 0
    """Steps between checkpoints; 0: off."""
    every_seconds: Seconds = 60.0
    """Wall-clock seconds between checkpoints; 0: off."""
    keep: Annotated[int, Field(ge=2, le=MAX_COUNT)] = 2
    """Newest checkpoints that are kept."""


class RecordConfig(Section):
    """What is written besides the metrics."""

    groups_every_steps: Steps = 10
    """Steps between records of whole groups (texts, rewards, advantages, kept or dropped), beside the first and last;
    0: off."""
    num_groups: Count = 2
    """Most groups per record."""
    trackers: Annotated[tuple[str, ...], BeforeValidator(parse_trackers)] = ()
    """Where metrics, figures and recorded groups also go: wandb, tensorboard, trackio, mlflow (docs/trackers.md)."""
    project: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_. -]{0,127}$")] = "podsrl"
    """Project in W&B and trackio, experiment in MLflow: letters, digits, "_", "-", "." and spaces."""


class AboutConfig(Section):
    """What a recipe is; it decides nothing."""

    name: str = ""
    """The system's name, as its paper writes it."""
    idea: str = ""
    """In about ten words."""
    group: str = ""
    """Of a system: what it does about rollouts (`pods systems` has the list)."""
    when: str = ""
    """The trouble that it is for: "use it when ..."."""
    cost: str = ""
    """What it takes beyond plain GRPO."""
    seen: str = ""
    """What was measured here."""
    source: str = ""
    """Paper and section, and whether its code was read."""
    differs: str = ""
    """What is ours where the source is silent, or otherwise than there."""


class RunConfig(Section):
    """Everything that decides a training run."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of all random numbers."""
    threads: Annotated[int, Field(ge=0, le=1024)] = 0
    """CPU threads of torch per process; 0: one for a model under ten million parameters, else one per core."""
    systems: Annotated[tuple[str, ...], BeforeValidator(parse_names), Names("podsrl.lib.moments:SYSTEMS")] = ()
    """Published systems (docs/systems.md), or "module:Class" of your own (docs/write-a-system.md): they decide on
    prompts, numbers of rollouts, and advantages."""
    model: ModelConfig = ModelConfig()
    lora: LoraConfig | None = None
    task: TaskConfig = TaskConfig()
    rollouts: RolloutConfig = RolloutConfig()
    costs: CostsConfig | None = None
    select: SelectConfig = SelectConfig()
    loss: LossConfig = LossConfig()
    correct: CorrectConfig = CorrectConfig()
    optim: OptimConfig = OptimConfig()
    scale: ScaleConfig = ScaleConfig()
    order: OrderConfig = OrderConfig()
    eval: EvalConfig = EvalConfig()
    stop: StopConfig = StopConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    record: RecordConfig = RecordConfig()
    about: AboutConfig = AboutConfig()
    options: dict[str, dict[str, Any]] = {}
    """Options of a system, of `task.name` or of `rollouts.generator`: name -> table."""

    @model_validator(mode="after")
    def _check_between_sections(self) -> Self:
        n, m, chunks = self.rollouts.num_rollouts, self.select.num_kept, self.select.num_chunks
        if m > n and not self.systems:  # what these may ask for is known later
            raise ValueError(
                f"select.num_kept = {m} is more than rollouts.num_rollouts = {n}; "
                f"keep at most as many as are generated: lower select.num_kept or raise rollouts.num_rollouts"
            )
        self._check_sizes()
        kept, is_share = kept_of(self.select.kept_of_chunk, n // chunks), isinstance(m, float)
        if n % chunks or (not is_share and m % chunks) or min(kept, n // chunks) < 2:
            raise ValueError(
                f"select.num_chunks = {chunks} does not divide rollouts.num_rollouts = {n} and select.num_kept = {m} "
                "into equal chunks with at least 2 kept; choose a common divisor"
            )
        if self.rollouts.num_prompts % self.optim.num_minibatches:
            raise ValueError(
                f"optim.num_minibatches = {self.optim.num_minibatches} does not divide rollouts.num_prompts = "
                f"{self.rollouts.num_prompts}, and each mini-batch has whole groups; choose a divisor"
            )
        if self.model.load_in_4bit and self.lora is None:
            raise ValueError("model.load_in_4bit without [lora]: 4-bit weights cannot be trained; set lora.rank")
        if self.stop.steps == 0 and self.stop.seconds == 0:
            raise ValueError("stop.steps and stop.seconds are both 0, so the run would never end; set one of them")
        return self

    def _check_sizes(self) -> None:
        """Products of counts, each of which is possible by itself."""
        rollouts, questions, samples = self.rollouts, self.task.num_eval or 1, self.eval.num_samples
        for product, count in (
            (
                f"rollouts.num_prompts = {rollouts.num_prompts} times rollouts.num_rollouts = {rollouts.num_rollouts}",
                rollouts.num_prompts * rollouts.num_rollouts,
            ),
            (
                f"task.num_eval = {questions} times eval.num_samples = {samples}",
                questions * samples,  # or as many questions as the data has
            ),
        ):
            if problem := self.too_many(product, count):
                raise ValueError(problem)

    def too_many(self, product: str, count: int) -> str:
        """Why so many rollouts, the product of what the text names, cannot be held at once; empty where they can."""
        row = self.rollouts.max_prompt_tokens + self.rollouts.max_new_tokens
        most = min(MAX_COUNT, MAX_STEP_TOKENS // row)
        return (
            f"{product}, each of up to {row} tokens (rollouts.max_prompt_tokens + rollouts.max_new_tokens): memory "
            f"holds all rollouts at once, at most {most}; lower one of them"
            if count > most
            else ""
        )


class CompareConfig(Section):
    """Each arm is `base` with its own changes, run on the same seeds for equal training time."""

    baseline: str
    """The arm that the others are compared with."""
    fraction: Probability = 0.99
    """Share of the baseline's best mean accuracy that sets the target of the speed-up."""
    metric: Literal["accuracy", "accuracy_and_format"] = "accuracy"
    """Held-out accuracy; "accuracy_and_format" counts correct answers in the wanted format alone."""
    prices: Annotated[tuple[Positive, ...], Field(min_length=1)] = (0.1, 0.3, 1.0, 2.3)
    """Prices of a generated token, in trained ones: cost is also trained + price × generated tokens. `pods plan`
    measures a machine's."""
    num_seeds: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Paired runs per arm: per seed all arms see the same prompts in the same order."""
    first_seed: Annotated[int, Field(ge=0, lt=2**62)] = 0
    """The seeds are first_seed, first_seed + 1, …"""
    jobs: Annotated[int, Field(ge=1, le=1024)] = 1
    """Runs at the same time, each in a process; more than the cores slow each other."""
    slice_seconds: Seconds = 10.0
    """Training seconds after which a run gives way to another of its seed, so that all arms see the machine equally
    busy; 0: never. On a GPU, or where memory is short, a slice lasts at least ten times as long as a start."""
    base: dict[str, Any] = {}
    """The training config that all arms share."""
    arms: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@+-]*$")], dict[str, Any]]
    """Name of each arm (letters, digits and _.@+-) and its changes to `base`."""

    @model_validator(mode="after")
    def _check_arms(self) -> Self:
        if len(self.arms) < 2:
            raise ValueError(f"arms = {sorted(self.arms)}: wanted at least two to compare")
        if self.baseline not in self.arms:
            raise ValueError(f"baseline = {self.baseline!r} is none of the arms {sorted(self.arms)}")
        return self

    @model_validator(mode="after")
    def _check_prices(self) -> Self:
        if len({f"{price:g}" for price in self.prices}) < len(self.prices):  # as `compare.json` names them
            raise ValueError(f"prices = {[*self.prices]}: wanted each price once")
        return self
