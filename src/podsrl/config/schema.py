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
    """Model folder in Hugging Face layout, hub name, "package:NAME" for a model that `pods models` fetched, or a small
    base model in this package: "builtin:arithmetic", "builtin:arithmetic-rare", "builtin:arithmetic-mixed" and
    "builtin:steps". "", as in recipes for any model: it has to be given."""
    revision: str | None = None
    """Branch, tag or commit of a hub model; default: the main branch."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model; use it only for a model whose code you have read."""
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    """Number format of weights and activations. float16 is for evaluation only, because gradients overflow in it.
    "auto": bfloat16 on a GPU that computes in it, else float32."""
    device: str = "auto"
    """"cpu", "cuda", "cuda:1" …, or "auto": CUDA if there is a GPU and the model is not tiny, else the CPU."""
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = "auto"
    """Attention kernel of the model's own forward pass; "auto": the one that transformers chooses."""
    matmul: Literal["auto", "mkl", "onednn"] = "auto"
    """Library for float32 matrix products on an x86 CPU: torch's own ("mkl"); "onednn" for products of a million
    multiplications or more; "auto": oneDNN on AMD's processors with AVX-512, else MKL."""
    dropout: Literal["off", "as_configured"] = "off"
    """The model's own dropout in the update: "off", as in generation, or as in the model's config. Adapters have
    `lora.dropout`."""
    gradient_checkpointing: bool = False
    """Store only each block's input in the update's forward pass and recompute the rest: less memory, more time."""
    load_in_4bit: bool = False
    """Hold the frozen base weights in 4 bits (NF4, bitsandbytes); needs [lora]."""


class LoraConfig(Section):
    """Low-rank adapters (PEFT) instead of full fine-tuning; any option of this section turns them on."""

    rank: Annotated[int, Field(ge=1, le=2**14)] = 64
    """Rank r of each adapter; at most the smaller side of the largest matrix that gets one."""
    alpha: Positive = 64.0
    """The adapter's product is scaled by alpha / rank."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Dropout on the adapter's input in the update."""
    targets: Annotated[tuple[str, ...], BeforeValidator(parse_words)] = ("all-linear",)
    """Ends of the names of the modules that get an adapter ("q_proj", …), or "all-linear": every linear layer but the
    output head."""


class TaskConfig(Section):
    """Where the questions come from, and how answers are judged."""

    name: Annotated[PathText, Names("podsrl.tasks:TASKS")] = "arithmetic"
    """A known task set (`podsrl.tasks.TASKS`), or "module:function"."""
    path: PathText | None = None
    """For "jsonl": a file with one JSON object per line. For "hub": the data set's name. For the named sets: a folder
    or file with the published rows, instead of the hub (or of the folder in the environment variable PODS_DATA)."""
    eval_path: PathText | None = None
    """For "jsonl": a second file with the held-out questions; default: rows of `path` are held out."""
    subset: str | None = None
    """For "hub": the data set's configuration."""
    train_split: str | None = None
    """For "hub": the split to train on; default "train"."""
    eval_split: str | None = None
    """For "hub": the held-out split; default: `num_eval` rows of the training split are held out."""
    prompt_column: str = "question"
    """For "jsonl" and "hub": the column with the prompt."""
    answer_column: str = "answer"
    """For "jsonl" and "hub": the column with the reference answer."""
    digits: OneOrSeveralDigits = 2
    """For "arithmetic" and "columns": digits of each addend, 1 to 3; a list, such as [1, 2, 3], mixes sums of each
    number of digits (`podsrl.tasks.arithmetic.load_arithmetic` says how many of each)."""
    levels: dict[int, float] | None = None
    """For "steps" (levels 1 to 4) and "functions" (1 to 3): level, 1 is the easiest, -> its share of the questions; the
    shares add up to 1. Default: of "steps" those of `podsrl/tasks/steps.py`, which says what a level is
    (docs/steps.md); of "functions" all questions."""
    chat: bool | None = None
    """Send text prompts as a chat message, through the tokenizer's chat template; default: as the task set says."""
    system_prompt: Annotated[str | None, Names("podsrl.tasks:SYSTEM_PROMPTS")] = None
    """System message of every chat: a known one (`podsrl.tasks.SYSTEM_PROMPTS`) or the text itself; default: none."""
    special_tokens: Literal["text", "tokens"] = "text"
    """How special tokens such as `<|im_end|>` in a question are encoded: as plain "text", or as "tokens", for prompts
    that were rendered with a chat template on purpose. In `system_prompt` they are always tokens."""
    rewards: Annotated[dict[str, float] | None, Names("podsrl.score:REWARDS")] = None
    """Reward functions (`podsrl.score.REWARDS`, or "module:function") and their weights; the reward is the weighted
    sum. Default: the task set's own."""
    correct: Annotated[str | None, Names("podsrl.score:REWARDS")] = None
    """The reward function, named as in `rewards`, that decides whether an answer is correct (value >= 1), for the
    accuracy. Default: the task set's own."""
    format: Annotated[str | None, Names("podsrl.score:REWARDS")] = None
    """The reward function that decides whether an answer has the wanted format (value >= 1), for the accuracy that
    counts correct answers in that format. Default: the task set's own if it is among the rewards, else none."""
    environment: Annotated[str | None, Names("podsrl.score.workers.turns:ENVIRONMENTS")] = None
    """What answers the model's turns: a function "module:function", `reply(task, turns)`; or a class or a function,
    `start(task)`, that gives each rollout an object with `hear(text)`. The model reads what is returned, and goes on
    behind it; None ends the rollout. A pair has a reward of the turn behind it, for the reward "environment"
    (docs/turns.md). Default: the task set's own, if any."""
    tools: Annotated[tuple[str, ...], BeforeValidator(parse_names)] = ()
    """Functions "module:function" that the model may call, in the form of its chat template, which shows them; it reads
    their results and goes on, and a turn without a call ends the rollout (docs/turns.md). They take the place of
    `environment`."""
    max_turns: Annotated[int, Field(ge=2, le=MAX_COUNT)] = 8
    """Most turns of the model in a rollout; `rollouts.max_new_tokens` bounds the tokens of all its turns and of what it
    reads between them."""
    reward_workers: Annotated[int, Field(ge=0, le=1024)] = 0
    """Processes for slow rewards (math, and your own functions of one completion), and as many for the environment or
    the tools; 0: one per core, at most 16."""
    reward_timeout_seconds: PositiveSeconds = 10.0
    """Time limit of a reward function for one completion. Beyond it an answer to a math reward counts as wrong; with
    a function of your own the rollout is invalid. It also limits each call of the environment (a reply, a start, each
    `hear`, a `close`), and the tool calls of a turn."""
    batch_timeout_seconds: PositiveSeconds = 300.0
    """Time limit of one call of a reward function in TRL's form, which gets all completions of a step; beyond it those
    rollouts are invalid. The limit also holds for loading its module."""
    num_eval: NonNegativeCount | None = None
    """Held-out questions for evaluation, never trained on; 0: all of the set's own test split. Default: 256, or all if
    there are fewer; of a single file or hub split a fifth of the rows, at most 256; all rows of `eval_path`."""


class RolloutConfig(Section):
    """How many completions are generated, and how they are sampled."""

    num_prompts: Count = 8
    """Questions (groups) per step."""
    num_rollouts: Annotated[int, Field(ge=2, le=MAX_COUNT)] = 64
    """Completions generated per question: the paper's n."""
    temperature: Temperature = 1.0
    """Softmax temperature in training."""
    top_p: Probability = 1.0
    """Nucleus sampling: sample from the smallest set of tokens with at least this total probability; 1: all tokens."""
    top_k: NonNegativeCount = 0
    """Sample from the k most likely tokens only; 0: from all."""
    min_p: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Drop tokens below this fraction of the most likely token's probability; 0: keep all."""
    max_new_tokens: Count = 64
    """Most tokens of a completion."""
    stop_strings: tuple[str, ...] = ()
    """A completion also ends with the token that completes one of these texts, in training and in evaluation."""
    num_slots: NonNegativeCount = 0
    """Most rollouts generated at once, in training and evaluation; 0: as many as `kv_cache_bytes` holds, or all."""
    kv_cache_bytes: Annotated[int, Field(ge=0, le=2**60), BeforeValidator(parse_bytes)] = 0
    """Limit of the KV cache of generation, in bytes or as text ("512MiB", "2GiB"); 0: on a CPU none while the run fits
    into 80 % of the machine's memory, else what fits, and on CUDA 80 % of the memory that is free at the start, less
    what the optimizer needs."""
    scheduler: Annotated[str, Names("podsrl.generate.schedule.scheduler:SCHEDULERS")] = "continuous"
    """Which rollouts run when not all fit in memory: "continuous" (a fixed number of slots) or "dynamic" (as many rows
    as the memory holds at the present longest one); "continuous+breadth" lets all groups grow alike. See
    docs/infinite-sampling.md. No scheduler changes a rollout's tokens."""
    max_prompt_tokens: Count = 512
    """Questions with a longer prompt are left out and counted, never truncated."""
    generator: Annotated[str, Names("podsrl.generate.kinds:GENERATORS")] = "engine"
    """What generates: "engine" (the one of this package), "vllm" (vLLM in this process), "vllm+http://HOST:PORT" (a
    vLLM server that runs already; several addresses are separated by commas), "auto" ("vllm" where it is installed and
    the model is on a GPU, else "engine"), "tinker" (a service that also trains; docs/tinker.md), or "module:function".
    Its options stand in `[options.NAME]`; see docs/generators.md."""


class CostsConfig(Section):
    """What the parts of a step cost, for `select.rule = "max_signal"` and the system "worth"; only ratios
    count. They are constants: `pods plan CONFIG --write FILE` measures them, and no run looks at its own clock. Without
    the section those of the device's kind hold, and the run names them; see docs/budgets.md."""

    group_ms: Positive
    """Milliseconds of one more group, without its rollouts: what a step takes at any group size, divided by its
    number of groups."""
    rollout_ms: Positive
    """Milliseconds of one more rollout of a group, until it has its reward."""
    row_ms: Positive
    """Milliseconds of one more row of the update."""
    spread: NonNegative = 0.0
    """How far single measurements lay from them, as a share; 0: not measured."""
    model: str = ""
    """The `model.path` that they were measured with; "": any."""
    source: str = ""
    """Where they are from, in words, such as the machine and its date."""

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
    """A known rule (`podsrl.select.RULES`), or "module:function" for a rule of rewards or of groups; see
    docs/selection.md."""
    options: dict[str, Any] = {}
    """Values for the rule's own options, such as `{margin = 0.5}`: its keyword-only parameters."""
    num_kept: NumKept = 16
    """Rollouts trained on per question (with "max_signal" at most): the paper's m, at most as many as are generated; or
    a share of each group, such as 0.25: of g rollouts max(2, round(0.25 · g)) are kept."""
    ties: Literal["position", "short", "likely", "unlikely"] = "position"
    """Which of equal rewards are kept: the first, those with the fewest drawn tokens, or those whose tokens were the
    likeliest or the least likely, by their mean. With "max_variance", "max_signal" and "drop_surplus"."""
    num_chunks: Count = 1
    """Divide each group into this many equal chunks of consecutive rollouts; select and normalise within each chunk
    (the paper's multi-GPU settings: 512 -> 128 as 4 chunks of 128 -> 32)."""

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
    """The algorithm: an advantage and a policy loss, by name, and any of its choices replaced."""

    name: Annotated[str, Names("podsrl.update:ALGORITHMS")] = "grpo"
    """A known algorithm (`podsrl.update.ALGORITHMS`); the fields below replace its own values where set."""
    advantage: Annotated[str | None, Names("podsrl.update:ADVANTAGES")] = None
    """How rewards of the kept rollouts become advantages: a known way (`podsrl.update.ADVANTAGES`), or
    "module:function" for f(rewards) or f(groups, selections); see docs/losses.md."""
    ratio: Literal["token", "sequence"] | None = None
    """Importance ratio per token or per sequence."""
    clip: Literal["ppo", "cispo", "none"] | None = None
    """How the importance ratio is bounded."""
    clip_low: NonNegative | None = None
    """The lower bound of the ratio is 1 - clip_low."""
    clip_high: NonNegative | None = None
    """The upper bound of the ratio is 1 + clip_high."""
    aggregate: Literal["sequence_mean", "token_mean", "constant", "group_mean"] | None = None
    """Mean over each sequence's tokens, then over sequences; mean over all tokens; sum over all tokens divided by
    (rows × rollouts.max_new_tokens); or mean over each sequence's tokens, over each group's sequences, then over
    groups."""
    kl_beta: NonNegative = 0.0
    """Weight of the KL penalty (k3 estimator) to the frozen starting model; 0: no penalty, and no second model."""


class CorrectConfig(Section):
    """Correction for tokens that other weights drew than those that train on them; docs/losses.md has the formula."""

    readers = {
        "cap": ("weight", ("truncate", "mask", "sequence")),
        "share": ("proximal", ("interpolated",)),
        "window": ("proximal", ("average",)),
        "reset": ("proximal", ("average",)),
        "max_kl": ("drop", ("far_negative",)),
    }

    proximal: Literal["behaviour", "step_start", "interpolated", "average"] = "behaviour"
    """Around which policy the importance ratio is bounded: "behaviour" (the one that drew the token), "step_start" (the
    weights at the start of the step's update), "interpolated" (between the one that drew it and the current one), or
    "average" (of the weights of the last versions)."""
    weight: Literal["none", "full", "truncate", "mask", "sequence"] = "none"
    """What the ratio of the proximal policy to the behaviour policy makes of a token's loss: nothing; the whole ratio;
    the ratio, at most `cap`; the ratio, 0 above `cap`; or the product of a row's ratios, at most `cap`."""
    cap: Positive = 5.0
    """Largest weight."""
    share: Probability = 0.5
    """With "interpolated": the share of the policy that drew the token, in the mean of the log-probs."""
    window: NonNegative = 2.0
    """With "average": how many versions of the weights it looks back; the decay is window / (window + 2)."""
    reset: Share = 0.9
    """With "average": it begins again after an update in which fewer tokens than this share were neither bounded nor
    capped; 0: never."""
    drop: Literal["none", "far_negative"] = "none"
    """Which tokens have no gradient: none, or those with a negative advantage in completions that have become
    unlikely."""
    max_kl: Positive = 50.0
    """With "far_negative": from which sum of log-prob differences on a completion is unlikely, in nats."""
    rate: Literal["constant", "effective"] = "constant"
    """What `optim.lr` is multiplied by: nothing, or the root of the share of the rows that is their effective sample
    size, which old rollouts lower."""
    baseline: Literal["none", "off_policy"] = "none"
    """What else is taken from the advantages of a question's rows: nothing, or the value that makes the variance of
    their weighted gradients least (VCPO), at the price of a backward pass per row. It wants loss.clip = "none"."""

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
    """Learning rate after warm-up: constant, or decaying to 0 along a half cosine that ends at `schedule_steps`."""
    schedule_steps: Steps = 0
    """For "cosine": optimizer steps after which the rate is 0, warm-up included."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.99)
    """Decay rates of the first and second moment."""
    eps: Positive = 1e-8
    """Added to the square root of the second moment."""
    weight_decay: NonNegative = 0.0
    """Decoupled weight decay."""
    max_grad_norm: Positive = 1.0
    """Gradients with a larger global norm are scaled down to this norm."""
    warmup_steps: Steps = 0
    """Optimizer steps of linear warm-up from 0; 0: none."""
    num_epochs: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Passes over the batch of a step (GRPO's mu)."""
    num_minibatches: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Optimizer steps of each pass: the step's groups are dealt out in turn to so many mini-batches, whole groups each.
    It divides `rollouts.num_prompts`."""
    micro_batch_tokens: Tokens = 8192
    """Most tokens of one forward-backward pass; gradients do not depend on it. On a GPU on which the engine
    generates too, a run doubles the default once or twice, where the memory allows that."""
    packing: Literal["auto", "on", "off"] = "auto"
    """Sequence packing: "on" puts the rows of a micro-batch one after another without padding, "off" pads them. "auto":
    packing if the model's forward allows it, which is checked at the start."""
    prefix_sharing: Literal["auto", "on", "off"] = "auto"
    """Forward each group's prompt once per micro-batch ("on") instead of once per row ("off"); the gradients are the
    same. "auto": "on" where packing is possible and it saves time."""
    logprob_chunk_tokens: Tokens = 2048
    """Tokens whose logits [tokens, vocabulary] are in memory at once."""

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
    """A process that waits longer than this for the others gives up; a generator of `generators` that sends nothing for
    so long is lost, and another takes its place."""
    generators: Annotated[int, Field(ge=0, le=1024)] = 0
    """Generators in processes of their own, over all processes of the run; 0: one within each process of the run."""
    ray: str = ""
    """Where these generators run: "" (on this machine), "HOST:PORT" (on this Ray cluster), or "local" (on a Ray cluster
    of this machine that the run starts)."""


class OrderConfig(Section):
    """Which groups are under way, which of them make a step, and what becomes of the others when new weights come;
    docs/orders.md."""

    ahead: Annotated[float, Field(ge=0, le=16)] = 0.0
    """Groups under way beyond those of a step, as a share of `rollouts.num_prompts`. 0: a step is generated, then
    trained on; 1: one more step is under way."""
    take: Literal["asked", "first"] = "asked"
    """A step trains on the groups that were asked for it, however long they take ("asked": `ahead` is a number of
    steps), or on the groups that are whole first ("first")."""
    rest: Literal["finish", "run", "put_off"] = "finish"
    """What happens to rollouts that run when new weights come. The weights wait until none runs ("finish"); or they
    come between two tokens, behind the keys and values of the old ones ("run"); or the rollouts stop and go on with
    their tokens, which the new weights read again ("put_off")."""
    most_age: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """No group is older than so many steps when it is trained on: it is not asked so early ("asked"), or a step waits
    for it ("first"). None: no bound but what `ahead` sets with "asked"."""

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
    """Training seconds between two evaluations; 0: do not evaluate by time."""
    every_steps: Steps = 0
    """Steps between two evaluations; 0: do not evaluate by steps."""
    num_samples: Count = 1
    """Completions per question; the accuracy is the mean over all of them."""
    temperature: Temperature = 1.0
    """Softmax temperature in evaluation; the least, 0.0001, draws the likeliest token."""
    top_p: Probability = 1.0
    """Nucleus sampling in evaluation."""


class StopConfig(Section):
    """When the run ends: at the first of these limits."""

    steps: Steps = 0
    """Training steps; 0: no limit of steps."""
    seconds: Seconds = 0.0
    """Training seconds, without evaluation; 0: no limit of time."""
    without_signal: Steps = 20
    """Steps from the start of which none taught anything (no reward differed from another of its group); the run then
    stops with the reason and exit code 1, and its checkpoint goes on with a larger number. 0: no such limit."""

    @model_validator(mode="before")
    @classmethod
    def _limit(cls, given: Any) -> Any:
        """The run ends after 100 steps where neither steps nor seconds are given."""
        is_without = isinstance(given, dict) and not given.keys() & {"steps", "seconds"}
        return {"steps": 100, **given} if is_without else given


class CheckpointConfig(Section):
    """Checkpoints, from which a run resumes. The end of a run and Ctrl-C always save one."""

    every_steps: Steps = 0
    """Steps between two checkpoints; 0: do not save by steps."""
    every_seconds: Seconds = 60.0
    """Wall-clock seconds between two checkpoints; 0: do not save by time."""
    keep: Annotated[int, Field(ge=2, le=MAX_COUNT)] = 2
    """How many of the newest checkpoints are kept: at least two, in case one is damaged."""


class RecordConfig(Section):
    """What is written besides the metrics."""

    groups_every_steps: Steps = 10
    """Steps between two records of whole groups (texts, rewards, advantages, kept or dropped); the first and the last
    step are recorded too; 0: never."""
    num_groups: Count = 2
    """Most groups in each such record."""
    trackers: Annotated[tuple[str, ...], BeforeValidator(parse_trackers)] = ()
    """Where metrics, figures and recorded groups also go: wandb, tensorboard, trackio, mlflow. Their files are in the
    run's folder, under `trackers`, unless the tool's own environment variable names another place."""
    project: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_. -]{0,127}$")] = "podsrl"
    """Project of the run in W&B and trackio, its experiment in MLflow: letters, digits, "_", "-", "." and spaces."""


class AboutConfig(Section):
    """What a recipe is; it decides nothing."""

    name: str = ""
    """The system's name, as its paper writes it."""
    idea: str = ""
    """In about ten words."""
    group: str = ""
    """Of a system: what it does about rollouts, such as "allocate"; `pods systems` has the list."""
    when: str = ""
    """The trouble that it is for: "use it when ..."."""
    cost: str = ""
    """What it takes beyond plain GRPO."""
    seen: str = ""
    """What was measured here, with a figure where there is a clear one."""
    source: str = ""
    """Paper and equation or section, and whether its code was read."""
    differs: str = ""
    """What is ours where the source is silent, or otherwise than there."""


class RunConfig(Section):
    """Everything that decides a training run."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of all random numbers: data order, sampling, selection, evaluation, dropout."""
    threads: Annotated[int, Field(ge=0, le=1024)] = 0
    """CPU threads of torch per process; 0: one for a model under ten million parameters, else one per core."""
    systems: Annotated[tuple[str, ...], BeforeValidator(parse_names), Names("podsrl.lib.moments:SYSTEMS")] = ()
    """What decides, beside the rules of `[select]`, `[loss]` and `[correct]`, which questions a step asks, how many
    rollouts of each, what becomes of them, and their advantages: published systems by their names (`pods systems`), or
    "module:Class" of your own (docs/write-a-system.md). The options of each stand in `[options.NAME]`."""
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
    """Options of a system, of `task.name`, or of `rollouts.generator`: its name -> a table."""

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
    """Name of the arm that the other arms are compared with."""
    fraction: Probability = 0.99
    """The speed-up compares the times to this fraction of the baseline's best mean accuracy (the paper: 0.99)."""
    metric: Literal["accuracy", "accuracy_and_format"] = "accuracy"
    """Which held-out accuracy is compared: of correct answers, or of correct answers in the wanted format."""
    prices: Annotated[tuple[Positive, ...], Field(min_length=1)] = (0.1, 0.3, 1.0, 2.3)
    """Cost is also compared as trained tokens + price × generated tokens: what a generated token costs, in trained
    ones. `pods plan` measures the price of a machine."""
    num_seeds: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Paired runs per arm: with the same seed, all arms see the same questions in the same order."""
    first_seed: Annotated[int, Field(ge=0, lt=2**62)] = 0
    """The seeds are first_seed, first_seed + 1, …"""
    jobs: Annotated[int, Field(ge=1, le=1024)] = 1
    """Runs at the same time, each in its own process; more runs than cores make every run slower."""
    slice_seconds: Seconds = 10.0
    """Training seconds after which a run gives way to another of its seed, so that all arms train while the machine is
    equally busy; 0: each run trains to its end. A run that waits keeps its memory, or, where that is too little, and on
    a GPU, is saved and resumed: then a slice lasts ten times as long as the run takes to start, at least."""
    base: dict[str, Any] = {}
    """The training config that all arms share."""
    arms: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@+-]*$")], dict[str, Any]]
    """Name of each arm and its changes to `base`. A name is part of a folder name: letters, digits and _.@+- only."""

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
