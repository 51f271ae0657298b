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
    """Model folder in Hugging Face layout, name on the hub, "package:NAME" for a model that `pods models` fetched, or a
    small one that ships: "builtin:arithmetic", "builtin:arithmetic-rare", "builtin:arithmetic-mixed", "builtin:steps".
    "", as in recipes for any model: you have to give it."""
    revision: str | None = None
    """Branch, tag or commit of a model on the hub; default: its main branch."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model. Read that code first."""
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    """Number format of weights and activations; "auto": bfloat16 on a GPU that computes in it, else float32. Gradients
    overflow in float16, so it is for evaluation only."""
    device: str = "auto"
    """"cpu", "cuda", "cuda:1" …; "auto": CUDA if there is a GPU and the model is not tiny, else the CPU."""
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = "auto"
    """Attention kernel of the model's own forward; "auto": transformers' choice."""
    matmul: Literal["auto", "mkl", "onednn"] = "auto"
    """Library for float32 products on an x86 CPU: MKL, or oneDNN for large products; "auto": oneDNN on AMD's processors
    with AVX-512, else MKL."""
    dropout: Literal["off", "as_configured"] = "off"
    """The model's own dropout in the update. Adapters have `lora.dropout`."""
    gradient_checkpointing: bool = False
    """Recompute activations in the update instead of storing them: less memory, more time."""
    load_in_4bit: bool = False
    """Hold the frozen weights in 4 bits (NF4, bitsandbytes); needs [lora]."""


class LoraConfig(Section):
    """Low-rank adapters (PEFT) instead of full fine-tuning."""

    rank: Annotated[int, Field(ge=1, le=2**14)] = 64
    """Rank r of each adapter; at most the smaller side of the largest matrix that gets one."""
    alpha: Positive = 64.0
    """An adapter's product is scaled by alpha / rank."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Dropout on an adapter's input in the update."""
    targets: Annotated[tuple[str, ...], BeforeValidator(parse_words)] = ("all-linear",)
    """Ends of the names of the modules that get an adapter ("q_proj", …); "all-linear": every linear layer but the
    output head."""


class TaskConfig(Section):
    """Where the questions come from, and how answers are judged."""

    name: Annotated[PathText, Names("podsrl.tasks:TASKS")] = "arithmetic"
    """A known task set (`podsrl.tasks.TASKS`) or "module:function"."""
    path: PathText | None = None
    """For "jsonl": a file with one JSON object per line. For "hub": the data set's name. For named sets: a folder or
    file with their rows, in place of the hub or the folder in PODS_DATA."""
    eval_path: PathText | None = None
    """For "jsonl": a file with the held-out questions; default: rows of `path` are held out."""
    subset: str | None = None
    """For "hub": the data set's configuration."""
    train_split: str | None = None
    """For "hub": the split to train on; default: "train"."""
    eval_split: str | None = None
    """For "hub": the held-out split; default: `num_eval` rows of the training split."""
    prompt_column: str = "question"
    """For "jsonl" and "hub": the column with the prompt."""
    answer_column: str = "answer"
    """For "jsonl" and "hub": the column with the reference answer."""
    digits: OneOrSeveralDigits = 2
    """For "arithmetic" and "columns": digits of each addend; a list, such as [1, 2, 3], mixes sums of each."""
    levels: dict[int, float] | None = None
    """For "steps" (levels 1 to 4) and "functions" (1 to 3): level, 1 is the easiest, -> its share of the questions; the
    shares add up to 1. Default: the mixture of "steps" (docs/steps.md), all questions of "functions"."""
    chat: bool | None = None
    """Send prompts as chat messages, through the tokenizer's chat template; default: as the task set says."""
    system_prompt: Annotated[str | None, Names("podsrl.tasks:SYSTEM_PROMPTS")] = None
    """System message of every chat: a known one (`podsrl.tasks.SYSTEM_PROMPTS`) or the text itself; default: none."""
    special_tokens: Literal["text", "tokens"] = "text"
    """What special tokens such as `<|im_end|>` in a question are: "text", or "tokens", for prompts that were rendered
    with a chat template on purpose. In `system_prompt` they are always tokens."""
    rewards: Annotated[dict[str, float] | None, Names("podsrl.score:REWARDS")] = None
    """Reward functions (`podsrl.score.REWARDS` or "module:function") and their weights; the reward is the weighted sum.
    Default: the task set's own."""
    correct: Annotated[str | None, Names("podsrl.score:REWARDS")] = None
    """The reward function that decides whether an answer is correct (value >= 1). Default: the task set's own."""
    format: Annotated[str | None, Names("podsrl.score:REWARDS")] = None
    """The reward function that decides whether an answer has the wanted format (value >= 1). Default: the task set's
    own if it is among the rewards, else none."""
    environment: Annotated[str | None, Names("podsrl.score.workers.turns:ENVIRONMENTS")] = None
    """What answers the model's turns: "module:function", or "module:Class" for an object per rollout (docs/turns.md).
    Default: the task set's own, if any."""
    tools: Annotated[tuple[str, ...], BeforeValidator(parse_names)] = ()
    """Functions "module:function" that the model may call, in place of an environment (docs/turns.md)."""
    max_turns: Annotated[int, Field(ge=2, le=MAX_COUNT)] = 8
    """Most turns of the model in a rollout."""
    reward_workers: Annotated[int, Field(ge=0, le=1024)] = 0
    """Processes for slow rewards (math, and your own functions of one completion), and as many for the environment or
    the tools; 0: one per core, at most 16."""
    reward_timeout_seconds: PositiveSeconds = 10.0
    """Seconds for the reward of one completion, a call of the environment, or the tool calls of a turn. Beyond them an
    answer to a math reward counts as wrong; with a function of your own the rollout is invalid."""
    batch_timeout_seconds: PositiveSeconds = 300.0
    """Seconds for one call of a reward function in TRL's form, which gets all completions of a step, and for loading
    its module. Beyond them those rollouts are invalid."""
    num_eval: NonNegativeCount | None = None
    """Held-out questions, never trained on; 0: all of the set's test split. Default: 256, or all if there are fewer; of
    a single file or split a fifth of the rows, at most 256; all rows of `eval_path`."""


class RolloutConfig(Section):
    """How many completions are generated, and how they are sampled."""

    num_prompts: Count = 8
    """Questions (groups) per step."""
    num_rollouts: Annotated[int, Field(ge=2, le=MAX_COUNT)] = 64
    """Completions generated per question: the paper's n."""
    temperature: Temperature = 1.0
    """Softmax temperature in training."""
    top_p: Probability = 1.0
    """Nucleus sampling: only from the smallest set of tokens with at least this total probability; 1: all."""
    top_k: NonNegativeCount = 0
    """Sample from the k likeliest tokens only; 0: from all."""
    min_p: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Drop tokens below this share of the likeliest token's probability; 0: none."""
    max_new_tokens: Count = 64
    """Most tokens of a completion; of several turns, of all together with what is read between them."""
    stop_strings: tuple[str, ...] = ()
    """A completion also ends with the token that completes one of these texts."""
    num_slots: NonNegativeCount = 0
    """Most rollouts generated at once; 0: as many as `kv_cache_bytes` holds, or all."""
    kv_cache_bytes: Annotated[int, Field(ge=0, le=2**60), BeforeValidator(parse_bytes)] = 0
    """Most memory for keys and values in generation. 0: on CUDA 80 % of what is free at the start, less what the
    optimizer needs; on a CPU what fits into 80 % of the machine's memory."""
    scheduler: Annotated[str, Names("podsrl.generate.schedule.scheduler:SCHEDULERS")] = "continuous"
    """Which rollouts run when not all fit: "continuous" refills free slots; "dynamic" runs as many rows as the memory
    holds at the present longest one; "+breadth" behind either lets all groups grow alike. It changes no token
    (docs/engine.md)."""
    max_prompt_tokens: Count = 512
    """Questions with a longer prompt are left out and counted, never truncated."""
    generator: Annotated[str, Names("podsrl.generate.kinds:GENERATORS")] = "engine"
    """What generates: "engine" (of this package), "vllm" (in this process), "vllm+http://HOST:PORT" (servers, separated
    by commas), "auto" ("vllm" where it is installed and the model is on a GPU, else "engine"), "tinker" (a service that
    also trains), or "module:function". Its options stand in `[options.NAME]` (docs/generators.md)."""


class CostsConfig(Section):
    """What the parts of a step cost, for `select.rule = "max_signal"` and the system "worth" (docs/budgets.md); only
    ratios count. `pods plan CONFIG --write FILE` measures them. Without the section those of the device's kind hold."""

    group_ms: Positive
    """Milliseconds of one more group, without its rollouts."""
    rollout_ms: Positive
    """Milliseconds of one more rollout, until it has its reward."""
    row_ms: Positive
    """Milliseconds of one more row of the update."""
    spread: NonNegative = 0.0
    """How far single measurements lay from them, as a share; 0: not measured."""
    model: str = ""
    """The `model.path` that they were measured with; "": any."""
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
    """A known rule (`podsrl.select.RULES`) or "module:function" (docs/selection.md)."""
    options: dict[str, Any] = {}
    """Options of the rule, such as `{margin = 0.5}`."""
    num_kept: NumKept = 16
    """Rollouts trained on per question, with "max_signal" at most: the paper's m. A number below 1 is a share of each
    group: 0.25 keeps max(2, round(0.25 · g)) of g rollouts."""
    ties: Literal["position", "short", "likely", "unlikely"] = "position"
    """Which of equal rewards are kept: the first; those with the fewest drawn tokens; those whose tokens were the
    likeliest or the least likely, by their mean. With "max_variance", "max_signal" and "drop_surplus"."""
    num_chunks: Count = 1
    """Divide each group into so many equal chunks of consecutive rollouts; select and normalise within each (the
    paper's multi-GPU settings: 512 -> 128 as 4 chunks of 128 -> 32)."""

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
    """A known algorithm (`podsrl.update.ALGORITHMS`); the options below replace its own values."""
    advantage: Annotated[str | None, Names("podsrl.update:ADVANTAGES")] = None
    """How rewards of the kept rollouts become advantages: a known way (`podsrl.update.ADVANTAGES`) or
    "module:function"."""
    ratio: Literal["token", "sequence"] | None = None
    """Importance ratio per token or per sequence."""
    clip: Literal["ppo", "cispo", "none"] | None = None
    """How the importance ratio is bounded."""
    clip_low: NonNegative | None = None
    """Lower bound of the ratio: 1 - clip_low."""
    clip_high: NonNegative | None = None
    """Upper bound of the ratio: 1 + clip_high."""
    aggregate: Literal["sequence_mean", "token_mean", "constant", "group_mean"] | None = None
    """Mean over each sequence's tokens, then over sequences; over all tokens; sum over all tokens, divided by (rows ×
    rollouts.max_new_tokens); or mean over each sequence, each group, then groups."""
    kl_beta: NonNegative = 0.0
    """Weight of the KL penalty (k3 estimator) to the frozen starting model; 0: none, and no second model."""


class CorrectConfig(Section):
    """Correction for stale tokens, which older weights drew than those that train on them (docs/losses.md)."""

    readers = {
        "cap": ("weight", ("truncate", "mask", "sequence")),
        "share": ("proximal", ("interpolated",)),
        "window": ("proximal", ("average",)),
        "reset": ("proximal", ("average",)),
        "max_kl": ("drop", ("far_negative",)),
    }

    proximal: Literal["behaviour", "step_start", "interpolated", "average"] = "behaviour"
    """Around which policy the importance ratio is bounded: the one that drew the token; the weights at the start of the
    step's update; between the one that drew it and the current one; or an average of the last versions."""
    weight: Literal["none", "full", "truncate", "mask", "sequence"] = "none"
    """Weight of a token's loss, by the ratio of proximal to behaviour policy: 1; the ratio; the ratio, at most `cap`;
    the ratio, 0 above `cap`; or the product of a row's ratios, at most `cap`."""
    cap: Positive = 5.0
    """Largest weight."""
    share: Probability = 0.5
    """With "interpolated": share of the policy that drew the token, in the mean of the log-probs."""
    window: NonNegative = 2.0
    """With "average": how many versions of the weights it looks back; the decay is window / (window + 2)."""
    reset: Share = 0.9
    """With "average": it begins again after an update in which fewer tokens than this share were neither bounded nor
    capped; 0: never."""
    drop: Literal["none", "far_negative"] = "none"
    """Which tokens have no gradient: none, or those with a negative advantage in completions that have become
    unlikely."""
    max_kl: Positive = 50.0
    """With "far_negative": sum of log-prob differences, in nats, from which a completion is unlikely."""
    rate: Literal["constant", "effective"] = "constant"
    """What multiplies `optim.lr`: 1, or the root of the effective sample size as a share of the rows, which stale
    rollouts lower."""
    baseline: Literal["none", "off_policy"] = "none"
    """What else is subtracted from the advantages of a question: nothing, or the value that makes the variance of their
    weighted gradients least (VCPO). The latter takes a backward pass per row, and needs loss.clip = "none"."""

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
    """AdamW, or AdamW with 8-bit moments (bitsandbytes: `pip install 'podsrl[quantized]'`)."""
    lr: Positive = 3e-4
    """Learning rate."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Learning rate after warm-up: constant, or falling to 0 along half a cosine that ends at `schedule_steps`."""
    schedule_steps: Steps = 0
    """For "cosine": optimizer steps until the rate is 0, warm-up included."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.99)
    """Decay rates of the first and second moment."""
    eps: Positive = 1e-8
    """Added to the square root of the second moment."""
    weight_decay: NonNegative = 0.0
    """Decoupled weight decay."""
    max_grad_norm: Positive = 1.0
    """Gradients with a larger global norm are scaled down to it."""
    warmup_steps: Steps = 0
    """Optimizer steps of linear warm-up from 0."""
    num_epochs: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Passes over the batch of a step (GRPO's mu)."""
    num_minibatches: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Optimizer steps of each pass, each on whole groups; a divisor of `rollouts.num_prompts`."""
    micro_batch_tokens: Tokens = 8192
    """Most tokens of one forward and backward pass; gradients do not depend on it. On a GPU where the engine generates
    too, a run doubles the default once or twice if there is room."""
    packing: Literal["auto", "on", "off"] = "auto"
    """Rows of a micro-batch one after another without padding ("on"), or padded ("off"); "auto": "on" if the model's
    forward allows it."""
    prefix_sharing: Literal["auto", "on", "off"] = "auto"
    """Forward each group's prompt once per micro-batch ("on") or once per row ("off"), with the same gradients; "auto":
    "on" where rows are packed and it saves time."""
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
    """"ddp": every process holds all weights. "zero2": gradients and optimizer state are sharded. "fsdp2": weights
    too."""
    timeout_seconds: PositiveSeconds = 1800.0
    """Seconds after which a process gives up waiting for the others, and a generator of `generators` that sends nothing
    is replaced."""
    generators: Annotated[int, Field(ge=0, le=1024)] = 0
    """Generators in processes of their own, over all processes of the run; 0: one within each of these
    (docs/generators.md)."""
    ray: str = ""
    """Where these generators run: "" (this machine), "HOST:PORT" (a Ray cluster), or "local" (a Ray cluster that the
    run starts here)."""


class OrderConfig(Section):
    """Which groups are under way, which of them make a step, and what the others do when new weights come
    (docs/orders.md)."""

    ahead: Annotated[float, Field(ge=0, le=16)] = 0.0
    """Groups under way beyond a step's, as a share of `rollouts.num_prompts`. 0: a step is generated, then trained on;
    1: one more step is under way."""
    take: Literal["asked", "first"] = "asked"
    """A step trains on the groups that were asked for it (`ahead` is then a number of steps), or on those that are
    whole "first"."""
    rest: Literal["finish", "run", "put_off"] = "finish"
    """What rollouts do when new weights come: the weights wait for them ("finish"); they go on behind the keys and
    values of the old weights ("run"); or they stop, and go on later with their tokens, which the new weights read again
    ("put_off")."""
    most_age: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Most steps from asking a group to training on it. Default: no bound but what `ahead` sets with "asked"."""

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
    """Evaluation: held-out accuracy by sampling. It does not count as training time."""

    every_seconds: Seconds = 0.0
    """Training seconds between two evaluations; 0: not by time."""
    every_steps: Steps = 0
    """Steps between two evaluations; 0: not by steps."""
    num_samples: Count = 1
    """Completions per question; the accuracy is their mean."""
    temperature: Temperature = 1.0
    """Softmax temperature in evaluation; 0.0001 draws the likeliest token."""
    top_p: Probability = 1.0
    """Nucleus sampling in evaluation."""


class StopConfig(Section):
    """When the run ends: at the first of these limits."""

    steps: Steps = 0
    """Training steps; 0: no limit."""
    seconds: Seconds = 0.0
    """Training seconds, without evaluation; 0: no limit."""
    without_signal: Steps = 20
    """The run stops with exit code 1 if so many steps from its start taught nothing (no reward differed from another of
    its group); a resume may raise the number. 0: never."""

    @model_validator(mode="before")
    @classmethod
    def _limit(cls, given: Any) -> Any:
        """The run ends after 100 steps where neither steps nor seconds are given."""
        is_without = isinstance(given, dict) and not given.keys() & {"steps", "seconds"}
        return {"steps": 100, **given} if is_without else given


class CheckpointConfig(Section):
    """Checkpoints, from which a run resumes. The end of a run and Ctrl-C always save one."""

    every_steps: Steps = 0
    """Steps between two checkpoints; 0: not by steps."""
    every_seconds: Seconds = 60.0
    """Wall-clock seconds between two checkpoints; 0: not by time."""
    keep: Annotated[int, Field(ge=2, le=MAX_COUNT)] = 2
    """Newest checkpoints that are kept: at least two, in case one is damaged."""


class RecordConfig(Section):
    """What is written besides the metrics."""

    groups_every_steps: Steps = 10
    """Steps between two records of whole groups (texts, rewards, advantages, kept or dropped), beside the first and the
    last step; 0: no records."""
    num_groups: Count = 2
    """Most groups in each such record."""
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
    """What decides which questions a step asks, how many rollouts of each, what becomes of them, and their advantages:
    published systems by their names (`pods systems`), or "module:Class" of your own (docs/write-a-system.md)."""
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
    """Options of a system, of `task.name` or of `rollouts.generator`: its name -> a table."""

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
    """A comparison of arms: each arm is `base` with its own changes, run on the same seeds for equal training time."""

    baseline: str
    """The arm that the others are compared with."""
    fraction: Probability = 0.99
    """Share of the baseline's best mean accuracy that sets the target of the speed-up."""
    metric: Literal["accuracy", "accuracy_and_format"] = "accuracy"
    """Which held-out accuracy: of correct answers, or of those in the wanted format too."""
    prices: Annotated[tuple[Positive, ...], Field(min_length=1)] = (0.1, 0.3, 1.0, 2.3)
    """Prices of a generated token, in trained ones: cost is also compared as trained + price × generated tokens. `pods
    plan` measures a machine's."""
    num_seeds: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Paired runs per arm: with the same seed all arms see the same questions in the same order."""
    first_seed: Annotated[int, Field(ge=0, lt=2**62)] = 0
    """The seeds are first_seed, first_seed + 1, …"""
    jobs: Annotated[int, Field(ge=1, le=1024)] = 1
    """Runs at the same time, each in its own process; with more than the cores each run is slower."""
    slice_seconds: Seconds = 10.0
    """Training seconds after which a run gives way to another of its seed, so that all arms train while the machine is
    equally busy; 0: each trains to its end. On a GPU, or where memory is short, a waiting run is saved and resumed, and
    a slice lasts at least ten times as long as a start."""
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
