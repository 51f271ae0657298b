"""The one typed tree of user options. A default stands once, here, with its meaning, unit and range in the line below.

Goes in: nothing. Comes out: pydantic models that check themselves at construction and are frozen afterwards.
Reading TOML and flags is `config/load.py`. Nothing here imports torch.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from podsrl.config.bounds import (
    MAX_COUNT,
    MAX_STEP_TOKENS,
    Count,
    NonNegative,
    NonNegativeCount,
    PathText,
    Positive,
    PositiveSeconds,
    Probability,
    Seconds,
    Steps,
    Temperature,
    Tokens,
    parse_bytes,
    parse_words,
)


class Section(BaseModel):
    """Base of every part of the tree: unknown keys are errors, values never change after checking."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class ModelConfig(Section):
    """Which weights are trained."""

    path: PathText = "builtin:arithmetic"
    """Folder in Hugging Face layout, a hub name, or "builtin:arithmetic" (the small base model inside this package)."""
    revision: str | None = None
    """Of a hub model: branch, tag or commit."""
    trust_remote_code: bool = False
    """Run the model folder's own Python code, where it has any: only for a folder whose code you have read."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Number format of weights and activations; float16 only in evaluation, since gradients do not fit into it."""
    device: str = "auto"
    """"auto" (CUDA where there is one and the model is not tiny, else CPU), "cpu", "cuda", "cuda:1" …"""
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = "auto"
    """Attention kernel of the model's own forward; "auto" is what transformers chooses."""
    matmul: Literal["auto", "mkl", "onednn"] = "auto"
    """Library of float32 matrix products on an x86 processor: "auto" (the faster one by size, timed once per machine
    and kept in the user's cache folder), torch's own ("mkl"), or "onednn" from a million multiplications on."""
    dropout: Literal["off", "as_configured"] = "off"
    """The model's own dropout in the update: "off", as in generation, or what its config says. Adapters have their own,
    `lora.dropout`."""
    gradient_checkpointing: bool = False
    """Keep only each block's input during the update's forward and compute the rest again: less memory, more time."""
    load_in_4bit: bool = False
    """Hold the frozen base weights in 4 bits (NF4, bitsandbytes); needs [lora]."""


class LoraConfig(Section):
    """Low-rank adapters (PEFT) instead of full fine-tuning; the section's presence turns them on."""

    rank: Annotated[int, Field(ge=1, le=2**14)] = 64
    """Rank r of each adapter."""
    alpha: Positive = 64.0
    """The adapter's product is scaled by alpha / rank."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Dropout on the adapter's input during the update."""
    targets: Annotated[tuple[str, ...], BeforeValidator(parse_words)] = ("all-linear",)
    """Ends of the names of the modules that get one ("q_proj", …), or "all-linear": every linear layer but the head."""


class TaskConfig(Section):
    """Where questions come from, and how answers are judged."""

    name: PathText = "arithmetic"
    """A known task set (`podsrl.tasks.TASKS`): arithmetic, gsm8k, math, math500, svamp, jsonl, hub; or
    "module:function"."""
    path: PathText | None = None
    """For "jsonl": file with one object per line. For "hub": the data set's name. For the named sets: a folder or file
    with the published rows, instead of the hub (or of the folder in the environment variable PODS_DATA)."""
    eval_path: PathText | None = None
    """For "jsonl": a second file, whose rows are the held-out questions; default: rows of `path` are held out."""
    subset: str | None = None
    """For "hub": the data set's configuration."""
    train_split: str | None = None
    """For "hub": the split to train on; default "train"."""
    eval_split: str | None = None
    """For "hub": the split held out; default: `num_eval` rows of the training split."""
    prompt_column: str = "question"
    """For "jsonl" and "hub": the column that holds the prompt."""
    answer_column: str = "answer"
    """For "jsonl" and "hub": the column that holds the reference answer."""
    digits: Annotated[int, Field(ge=1, le=3)] = 2
    """For "arithmetic": digits of each addend."""
    chat: bool | None = None
    """Ask text prompts as a chat message, through the tokenizer's template; default: what the task set says."""
    system_prompt: str | None = None
    """First message of every chat: a known one (`podsrl.tasks.SYSTEM_PROMPTS`: "pods_single_gpu", "pods_multi_gpu")
    or the text itself; default: none."""
    special_tokens: Literal["text", "tokens"] = "text"
    """What `<|im_end|>` and the like are in a question: "text", so many characters, or "tokens", for prompts that were
    rendered with a chat template on purpose. In `system_prompt` they are always tokens."""
    rewards: dict[str, float] | None = None
    """Reward function (`podsrl.score.REWARDS`, or "module:function") -> weight; the reward is the weighted sum.
    Default: the task set's own."""
    correct: str | None = None
    """Which reward function says whether the answer is right (value >= 1), for accuracy; named as in `rewards`.
    Default: the task set's own."""
    format: str | None = None
    """Which reward function says whether the answer has the wanted form (value >= 1), for the accuracy that asks for
    both; default: the task set's own."""
    reward_workers: Annotated[int, Field(ge=0, le=1024)] = 0
    """Processes that run slow rewards (math, and your own functions in the row form); 0: one per core, 16 at most."""
    reward_timeout_seconds: PositiveSeconds = 10.0
    """A reward that takes longer for one completion is stopped. For mathematics the answer is then wrong; for your own
    functions the rollout is invalid."""
    batch_timeout_seconds: PositiveSeconds = 300.0
    """A reward of TRL's form that takes longer for one call, with all completions of a step, is stopped, and those
    rollouts are invalid. Loading its module may take as long."""
    num_eval: NonNegativeCount | None = None
    """Held-out questions for evaluation, never trained on; 0: all of the set's own test split. Default: 256, or all
    where there are fewer; of one file, or of a hub set's one split, a fifth of the rows, 256 at most; all rows of
    `eval_path`."""


class RolloutConfig(Section):
    """How many completions are generated, and how they are sampled."""

    num_prompts: Count = 8
    """Questions (groups) per step."""
    num_rollouts: Annotated[int, Field(ge=2, le=MAX_COUNT)] = 64
    """Completions generated per question: the paper's n."""
    temperature: Temperature = 1.0
    """Softmax temperature while training."""
    top_p: Probability = 1.0
    """Nucleus sampling: smallest set of tokens with at least this probability; 1 keeps all."""
    top_k: NonNegativeCount = 0
    """Sample from the k likeliest tokens only; 0 keeps all."""
    min_p: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Drop tokens under this fraction of the likeliest one's probability; 0 keeps all."""
    max_new_tokens: Count = 64
    """Token limit of a completion."""
    stop_strings: tuple[str, ...] = ()
    """A completion also ends with the token that completes one of these texts, while training and in evaluation."""
    num_slots: NonNegativeCount = 0
    """Most rollouts generated at once, in training and evaluation; 0 for as many as `kv_cache_bytes` holds, or all."""
    kv_cache_bytes: Annotated[int, Field(ge=0, le=2**60), BeforeValidator(parse_bytes)] = 0
    """Bound of the key-value memory of generation, in bytes or as text ("512MiB", "2GiB"); 0 for none on a CPU, and on
    CUDA for 80 % of what is free at the start beside the optimizer's numbers."""
    scheduler: str = "continuous"
    """Which rollouts run when not all fit: "continuous", "dynamic", "micro" or "full", perhaps with a refill order
    ("continuous+ljf"); see docs/engine.md. No schedule changes a rollout's tokens, but orders that learn lengths may
    change the last bits of log-probabilities after a resume."""
    max_prompt_tokens: Count = 512
    """Questions with a longer prompt are left out, counted and shown; never truncated."""


class BudgetConfig(Section):
    """Which questions a step asks, and how many rollouts of each. A part's own options stand in `[options.NAME]`."""

    enough: str = "one_round"
    """How many new groups each round asks for: a known part (`podsrl.control.ENOUGH`: "one_round", all
    `rollouts.num_prompts` at once) or "module:function"."""
    questions: str = "stream"
    """Which questions: a known part (`podsrl.control.QUESTIONS`: "stream", the next ones of the data stream) or
    "module:function"."""
    rollouts: str = "equal"
    """How many rollouts of each: a known part (`podsrl.control.ROLLOUTS`: "equal", `rollouts.num_rollouts`) or
    "module:function"."""


class SelectConfig(Section):
    """Which rollouts of a group are worth an update."""

    rule: str = "max_variance"
    """A known rule (`podsrl.select.RULES`), or "module:function" for a rule of rewards or of groups; see
    docs/selection.md."""
    options: dict[str, Any] = {}
    """Values for the rule's own options, such as `{margin = 0.5}`: its keyword-only parameters."""
    num_kept: Annotated[int, Field(ge=2, le=MAX_COUNT)] = 16
    """Rollouts per question that are trained on: the paper's m, at most `rollouts.num_rollouts`."""
    num_chunks: Count = 1
    """Cut each group into this many equal chunks of consecutive rollouts, select and normalise in each alone (the
    paper's multi-GPU settings: 512 -> 128 as 4 chunks of 128 -> 32)."""


class LossConfig(Section):
    """The algorithm: an advantage and a policy loss, by name, and any of its choices replaced."""

    name: str = "grpo"
    """A known algorithm (`podsrl.update.ALGORITHMS`); the fields below replace its own values where set."""
    advantage: str | None = None
    """How rewards of the kept rollouts become advantages: a known way (`podsrl.update.ADVANTAGES`), or
    "module:function" for f(rewards) or f(groups, selections); see docs/losses.md."""
    ratio: Literal["token", "sequence"] | None = None
    """Importance ratio per token or per sequence."""
    clip: Literal["ppo", "cispo", "none"] | None = None
    """How the ratio is bounded."""
    clip_low: NonNegative | None = None
    """Lower bound of the ratio is 1 - clip_low."""
    clip_high: NonNegative | None = None
    """Upper bound of the ratio is 1 + clip_high."""
    aggregate: Literal["sequence_mean", "token_mean", "constant"] | None = None
    """Mean over a sequence's tokens, then sequences; mean over all tokens; sum / (rows × rollouts.max_new_tokens)."""
    kl_beta: NonNegative = 0.0
    """Weight of the k3 KL penalty to the frozen starting model; 0 loads no reference."""


class OptimConfig(Section):
    """The optimizer step (AdamW)."""

    name: Literal["adamw", "adamw_8bit"] = "adamw"
    """AdamW, or AdamW with 8-bit moments (bitsandbytes: `pip install 'podsrl[quantized]'`)."""
    lr: Positive = 3e-4
    """Learning rate."""
    schedule: Literal["constant", "cosine"] = "constant"
    """After warm-up: constant, or down to 0 along a half cosine that ends at `schedule_steps`."""
    schedule_steps: Steps = 0
    """For "cosine": optimizer steps, those of the warm-up included, after which the rate is 0."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.99)
    """Decay of the first and second moment."""
    eps: Positive = 1e-8
    """Added to the root of the second moment."""
    weight_decay: NonNegative = 0.0
    """Decoupled weight decay."""
    max_grad_norm: Positive = 1.0
    """Gradients with a larger global norm are scaled down to it."""
    warmup_steps: Steps = 0
    """Linear warm-up from 0."""
    num_epochs: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Optimizer steps on the same batch (GRPO's mu)."""
    micro_batch_tokens: Tokens = 8192
    """Tokens in one forward and backward pass; gradients do not depend on it."""
    packing: Literal["auto", "on", "off"] = "auto"
    """Rows of a micro-batch lie one behind the other without padding, where the model's forward allows it (checked at
    the start); "off": padded rows."""
    prefix_sharing: Literal["auto", "on", "off"] = "auto"
    """Forward each group's prompt once per micro-batch instead of once per row: the same gradients. "auto": where
    packing is possible and it saves time."""
    logprob_chunk_tokens: Tokens = 2048
    """Rows of [tokens, vocabulary] logits that exist at once."""


class ScaleConfig(Section):
    """How several processes (`pods launch`) share one run."""

    strategy: Literal["ddp", "fsdp2", "zero2"] = "ddp"
    """ddp: every process holds all weights. zero2: gradients and optimizer state are sharded. fsdp2: weights too."""
    timeout_seconds: PositiveSeconds = 1800.0
    """A process that waits longer than this for the others gives up."""


class EvalConfig(Section):
    """Held-out accuracy by sampling. Its time does not count as training time."""

    every_seconds: Seconds = 0.0
    """Evaluate each time this many training seconds have passed; 0: not by time."""
    every_steps: Steps = 0
    """Evaluate each time this many steps are done; 0: not by steps."""
    num_samples: Count = 1
    """Completions per question; accuracy is the mean over all."""
    temperature: Temperature = 1.0
    """Softmax temperature while evaluating."""
    top_p: Probability = 1.0
    """Nucleus sampling while evaluating."""


class StopConfig(Section):
    """When the run is done: whichever comes first."""

    steps: Steps = 0
    """Turns of the loop; 0: not by steps."""
    seconds: Seconds = 0.0
    """Training seconds, evaluation excluded; 0: not by time."""


class CheckpointConfig(Section):
    """What a killed run goes on from."""

    every_steps: Steps = 0
    """Save each time this many steps are done; 0: not by steps."""
    every_seconds: Seconds = 60.0
    """Save each time this many wall-clock seconds have passed; 0: not by time. A run's end and Ctrl-C always save."""
    keep: Annotated[int, Field(ge=2, le=MAX_COUNT)] = 2
    """Newest checkpoints kept; at least two, so that a damaged one leaves another."""


class RecordConfig(Section):
    """What is written besides metrics."""

    groups_every_steps: Steps = 10
    """Write whole groups (texts, rewards, advantages, kept or dropped) each time this many steps are done; 0: never."""
    num_groups: Count = 2
    """At most this many of a step's groups are then written."""


class RunConfig(Section):
    """Everything that decides a training run."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Of every random stream: data order, sampling, selection, evaluation, dropout."""
    threads: Annotated[int, Field(ge=0, le=1024)] = 0
    """CPU threads for torch; 0 chooses (one under ten million parameters, else one per core) and prints the choice."""
    model: ModelConfig = ModelConfig()
    lora: LoraConfig | None = None
    task: TaskConfig = TaskConfig()
    rollouts: RolloutConfig = RolloutConfig()
    budget: BudgetConfig = BudgetConfig()
    select: SelectConfig = SelectConfig()
    loss: LossConfig = LossConfig()
    optim: OptimConfig = OptimConfig()
    scale: ScaleConfig = ScaleConfig()
    eval: EvalConfig = EvalConfig()
    stop: StopConfig = StopConfig(steps=100)
    checkpoint: CheckpointConfig = CheckpointConfig()
    record: RecordConfig = RecordConfig()
    options: dict[str, dict[str, Any]] = {}
    """Options of a part that `[budget]` names: its name -> a table."""

    @model_validator(mode="after")
    def _check_between_sections(self) -> Self:
        n, m = self.rollouts.num_rollouts, self.select.num_kept
        if m > n:
            raise ValueError(
                f"select.num_kept = {m} is more than rollouts.num_rollouts = {n}; "
                f"keep at most as many as are generated: lower select.num_kept or raise rollouts.num_rollouts"
            )
        self._check_sizes()
        chunks = self.select.num_chunks
        if n % chunks or m % chunks or m // chunks < 2:
            raise ValueError(
                f"select.num_chunks = {chunks} does not divide rollouts.num_rollouts = {n} and select.num_kept = {m} "
                "into equal chunks with at least 2 kept; choose a common divisor"
            )
        if self.model.load_in_4bit and self.lora is None:
            raise ValueError("model.load_in_4bit without [lora]: 4-bit weights cannot be trained; set lora.rank")
        if (self.optim.schedule == "cosine") != (self.optim.schedule_steps > 0):
            raise ValueError(
                f"optim.schedule = {self.optim.schedule!r} with optim.schedule_steps = {self.optim.schedule_steps}: "
                "cosine wants the step at which the rate reaches 0, constant none"
            )
        if self.stop.steps == 0 and self.stop.seconds == 0:
            raise ValueError("stop.steps and stop.seconds are both 0, so the run would never end; set one of them")
        return self

    def _check_sizes(self) -> None:
        """Products of counts that each are possible."""
        rollouts, questions, samples = self.rollouts, self.task.num_eval or 1, self.eval.num_samples
        row = rollouts.max_prompt_tokens + rollouts.max_new_tokens
        for (first, a), (second, b) in (
            (("rollouts.num_prompts", rollouts.num_prompts), ("rollouts.num_rollouts", rollouts.num_rollouts)),
            (("task.num_eval", questions), ("eval.num_samples", samples)),  # or as many questions as the data has
        ):
            most = min(MAX_COUNT, MAX_STEP_TOKENS // row)
            if a * b > most:
                raise ValueError(
                    f"{first} = {a} times {second} = {b}, each of up to {row} tokens (rollouts.max_prompt_tokens + "
                    f"rollouts.max_new_tokens): memory holds all rollouts at once, at most {most}; lower one of them"
                )


class CompareConfig(Section):
    """Arms against each other: each is `base` with its own changes, run on the same seeds for equal training time."""

    baseline: str
    """Name of the arm that the others are measured against."""
    fraction: Probability = 0.99
    """Speed-up is the time to this fraction of the baseline's own best mean accuracy (the paper: 0.99)."""
    metric: Literal["accuracy", "accuracy_and_format"] = "accuracy"
    """Which held-out accuracy is compared: of right answers, or of right answers in the form that was asked for."""
    num_seeds: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Paired runs per arm: seed s of every arm sees the same questions in the same order."""
    first_seed: Annotated[int, Field(ge=0, lt=2**62)] = 0
    """Seeds are first_seed, first_seed + 1, …"""
    jobs: Annotated[int, Field(ge=1, le=1024)] = 1
    """Runs at the same time, each in its own process; more than the cores make every run slower."""
    base: dict[str, Any] = {}
    """What all arms share: a training config."""
    arms: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@+-]*$")], dict[str, Any]]
    """Arm name -> its changes to `base`. A name is part of a folder's: letters, digits and _.@+- only."""

    @model_validator(mode="after")
    def _check_arms(self) -> Self:
        if len(self.arms) < 2:
            raise ValueError(f"arms = {sorted(self.arms)}: wanted at least two to compare")
        if self.baseline not in self.arms:
            raise ValueError(f"baseline = {self.baseline!r} is none of the arms {sorted(self.arms)}")
        return self
