"""Small runs of TRL's GRPOTrainer and of PODSTrainer on a tiny model, with everything recorded that a test compares.

`python tests/integrations/trl_runs.py FOLDER SETTING ...`, started in several processes, does both runs of each setting
at m = n and one at m < n, and ends with an error where the first two differ in any bit.
"""

from __future__ import annotations

import os

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from datasets import Dataset
from transformers import PrinterCallback, Qwen2Config, Qwen2ForCausalLM, set_seed
from trl import GRPOConfig, GRPOTrainer

from podsrl.integrations.trl import PODSConfig, PODSMixin, PODSTrainer
from podsrl.tools.pretrain import character_tokenizer

N = 8
DATA = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(8) for b in range(8)]


def save_model(folder: Path) -> Path:
    """Save a tiny random model: with beta > 0 TRL loads the reference model from its path."""
    tokenizer = character_tokenizer()
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    set_seed(1)
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def score(completions: list[str], answer: list[str], **columns: Any) -> list[float]:
    """Differs between most rollouts of a group."""
    pairs = zip(completions, answer, strict=True)
    return [float(text[:1] == right[:1]) + 0.1 * (ord(text[-1:] or "a") % 7) for text, right in pairs]


def at_times(completions: list[str], **columns: Any) -> list[float | None]:
    return [None if ord(text[-1:] or "a") % 5 == 2 else 0.05 * (ord(text[:1] or "a") % 9) for text in completions]


def seldom(completions: list[str], **columns: Any) -> list[float | None]:
    """Few rollouts have a reward."""
    return [0.05 * (ord(text[-1:]) % 9) if text and ord(text[0]) % 4 == 0 else None for text in completions]


def with_a_column(completions: list[str], log_extra: Any, log_metric: Any, **columns: Any) -> list[float]:
    log_extra("last", [text[-1:] for text in completions])
    log_metric("mean_last", sum(ord(text[-1:] or "a") for text in completions) / len(completions))
    return [0.1 * (ord(text[-1:] or "a") % 7) for text in completions]


SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "reference model": {"loss_type": "grpo", "beta": 0.04},
    "steps and iterations": {
        "loss_type": "dr_grpo",
        "steps_per_generation": 2,
        "num_iterations": 2,
        "per_device_train_batch_size": 8,
    },
    "batch-scaled": {"gradient_accumulation_steps": 2, "scale_rewards": "batch"},
    "two rewards": {"rewards": [score, at_times], "reward_weights": [1.0, 0.5]},
    "rows without a reward": {"rewards": [seldom]},
    "normalize_then_sum": {"rewards": [score, at_times], "multi_objective_aggregation": "normalize_then_sum"},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "table": {"rewards": [with_a_column], "log_completions": True},
    "sampled elsewhere, by token": {"is_elsewhere": True, "vllm_importance_sampling_mode": "token_truncate"},
    "sampled elsewhere, by sequence": {"is_elsewhere": True, "vllm_importance_sampling_mode": "sequence_mask"},
}
"""Of which each takes another way through TRL."""


class SampledElsewhere:
    """The log-probabilities of the sampled tokens come from outside, as vLLM's do: TRL corrects for the difference."""

    def _generate_single_turn(self, *arguments: Any, **named: Any) -> Any:
        self.use_vllm = False
        ids, _, *rest = super()._generate_single_turn(*arguments, **named)  # type: ignore[misc]
        self.use_vllm = True
        return ids, [[-4.0 - 0.05 * (token % 9) for token in row] for row in ids], *rest


class Elsewhere(SampledElsewhere, GRPOTrainer): ...


class ElsewherePODS(PODSMixin, SampledElsewhere, GRPOTrainer): ...


def train(folder: Path, *, num_kept: int | None = None, steps: int = 10, **setting: Any) -> SimpleNamespace:
    """A run of GRPOTrainer, or with `num_kept` of PODSTrainer."""
    trainer = new_trainer(folder, num_kept=num_kept, max_steps=steps, **setting)
    seen: dict[str, list[int]] = {"rows": [], "rows_without_gradient": []}
    is_generating = []
    compute_loss, generate = trainer._compute_loss, trainer._generate

    def spy_loss(model: Any, inputs: Any) -> Any:
        seen["rows"].append(len(inputs["completion_ids"]))
        return compute_loss(model, inputs)

    def count(module: Any, arguments: Any, named: Any) -> None:
        if not torch.is_grad_enabled() and not is_generating:
            seen["rows_without_gradient"].append(len(named["input_ids"]))

    def spy_generate(prompts: Any) -> Any:
        is_generating.append(True)
        try:
            return generate(prompts)
        finally:
            is_generating.pop()

    trainer._compute_loss, trainer._generate = spy_loss, spy_generate
    for model in filter(None, (trainer.model, trainer.ref_model)):
        model.register_forward_pre_hook(count, with_kwargs=True)
    trainer.train()
    logs = [line for line in trainer.state.log_history if "loss" in line]
    return SimpleNamespace(
        trainer=trainer,
        weights=[weight.detach().clone() for weight in trainer.model.parameters()],
        losses=[line["loss"] for line in logs],
        logs=logs,
        rows=seen["rows"],
        num_without_gradient=sum(seen["rows_without_gradient"]),
        randomness=torch.get_rng_state(),
    )


def new_trainer(
    folder: Path,
    *,
    num_kept: int | None = None,
    rewards: Any = score,
    is_elsewhere: bool = False,
    trainer_class: Any = None,
    config_class: Any = None,
    rule: str | None = None,
    data: Any = None,
    rollout_func: Any = None,
    eval_dataset: Any = None,
    **options: Any,
) -> Any:
    set_seed(3)
    transformers.utils.logging.disable_progress_bar()
    settings: dict[str, Any] = {
        "output_dir": tempfile.mkdtemp(dir=folder),
        "per_device_train_batch_size": 2 * N,
        "num_generations": N,
        "max_completion_length": 6,
        "learning_rate": 1e-3,
        "seed": 3,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_steps": 1,
        "dataloader_pin_memory": False,
        **options,
    }
    if num_kept is not None:
        settings |= {"num_kept": num_kept, **({"rule": rule} if rule else {})}
    config = (config_class or (GRPOConfig, PODSConfig)[num_kept is not None])(**settings)
    classes = (Elsewhere, ElsewherePODS) if is_elsewhere else (GRPOTrainer, PODSTrainer)
    trainer = (trainer_class or classes[num_kept is not None])(
        model=Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32),
        processing_class=character_tokenizer(),
        reward_funcs=rewards,
        args=config,
        train_dataset=Dataset.from_list(data or DATA),
        eval_dataset=eval_dataset,
        rollout_func=rollout_func,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.use_vllm = is_elsewhere
    return trainer


def is_same(a: SimpleNamespace, b: SimpleNamespace) -> bool:
    """Whether all weights, losses and the state of torch's random numbers are equal, bit for bit."""
    same_weights = all(torch.equal(x, y) for x, y in zip(a.weights, b.weights, strict=True))
    return same_weights and a.losses == b.losses and torch.equal(a.randomness, b.randomness)


def main(folder: Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    for name in names:
        plain, all_kept, half = (train(folder, num_kept=m, steps=3, **SETTINGS[name]) for m in (None, N, N // 2))
        if not is_same(plain, all_kept):
            raise SystemExit(f"{name}: PODSTrainer at m = n is not GRPOTrainer")
        if [
            2 * rows for rows in half.rows
        ] != plain.rows or 2 * half.num_without_gradient != plain.num_without_gradient:
            raise SystemExit(f"{name}: rows {half.rows}, without a gradient {half.num_without_gradient}")
    divided = {"per_device_train_batch_size": N // 2}  # a group lies in both processes
    if not is_same(train(folder, steps=2, **divided), train(folder, num_kept=N, steps=2, **divided)):
        raise SystemExit("divided groups: PODSTrainer at m = n is not GRPOTrainer")
    chosen: list[list[int]] = []
    choose = PODSTrainer._choose

    def spy(self: Any, found: Any, batch: Any) -> None:
        choose(self, found, batch)
        chosen.append(found.rows)

    PODSTrainer._choose = spy
    train(folder, num_kept=3, steps=2, rule="random")
    of_all: list[Any] = [None, None]
    torch.distributed.all_gather_object(of_all, chosen)
    if of_all[0] != of_all[1] or chosen[0] == chosen[1] or len(chosen[0]) != 4 * 3:
        raise SystemExit(f"two processes chose {of_all}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
