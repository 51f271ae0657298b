"""PODS in TRL: its GRPOTrainer, but of every 64 answers only the 16 whose rewards vary most are trained on.

Three lines differ from a script for GRPOTrainer: the import, `PODSConfig` with `num_kept`, and `PODSTrainer`. The
questions are two-digit additions, and the model is the small one that comes with podsrl. docs/from-trl.md says more.

    pip install 'podsrl[trl]'
    python examples/04_trl.py
    python examples/04_trl.py --steps 2 --num-rollouts 8 --num-kept 4     a few seconds
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from transformers.utils.logging import disable_progress_bar

from podsrl.integrations.trl import PODSConfig, PODSTrainer
from podsrl.policy import model_folder
from podsrl.score import REWARDS
from podsrl.tasks import load_tasks
from podsrl.types import Task

NUM_ITERATIONS = 2  # optimizer steps on the same answers


def correct(completions: Sequence[str], answer: Sequence[str], **columns: Any) -> list[float]:
    """Whether each completion states the right answer."""
    return judge("correct", completions, answer)


def form(completions: Sequence[str], answer: Sequence[str], **columns: Any) -> list[float]:
    """Whether each completion ends as in "Answer: 12."."""
    return judge("format", completions, answer)


def judge(name: str, completions: Sequence[str], answers: Sequence[str]) -> list[float]:
    pairs = zip(completions, answers, strict=True)
    return [REWARDS[name](Task(id="", prompt="", answer=answer), text) for text, answer in pairs]


class Progress(TrainerCallback):
    """Prints a line per generation of answers."""

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **named: Any) -> None:
        if "reward" in logs:
            print(
                f"step {state.global_step // NUM_ITERATIONS:3}  reward {logs['reward']:.3f}  of the kept "
                f"{logs['pods/reward']:.3f}  accuracy {logs['rewards/correct/mean']:.1%}",
                flush=True,
            )


@torch.no_grad()
def accuracy(model: Any, tokenizer: Any, tasks: Sequence[Task]) -> float:
    """Share of right answers where the model always writes its most likely token."""
    model.eval()
    inputs = tokenizer([task.prompt for task in tasks], return_tensors="pt", padding=True, padding_side="left")
    tokens = model.generate(
        input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], max_new_tokens=48, do_sample=False
    )
    texts = tokenizer.batch_decode(tokens[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return sum(judge("correct", texts, [task.answer for task in tasks])) / len(tasks)


def main() -> None:
    parser = argparse.ArgumentParser(description="PODS on two-digit addition, in TRL.")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--num-prompts", type=int, default=8, help="questions per step (P)")
    parser.add_argument("--num-rollouts", type=int, default=64, help="answers generated per question (n)")
    parser.add_argument("--num-kept", type=int, default=16, help="answers trained on per question (m)")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore", FutureWarning)  # TRL still uses names that transformers has renamed
    disable_progress_bar()
    torch.set_num_threads(1)  # such a small model is no faster on more
    folder = model_folder("builtin:arithmetic")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tasks = load_tasks("arithmetic", digits=2)
    with tempfile.TemporaryDirectory() as output:
        config = PODSConfig(
            num_generations=options.num_rollouts,
            num_kept=options.num_kept,
            per_device_train_batch_size=options.num_prompts * options.num_rollouts,  # counts what is generated
            num_iterations=NUM_ITERATIONS,
            max_steps=options.steps * NUM_ITERATIONS,
            max_completion_length=48,
            loss_type="grpo",
            reward_weights=[1.0, 0.1],
            learning_rate=options.lr,
            lr_scheduler_type="constant",
            adam_beta2=0.99,
            logging_steps=NUM_ITERATIONS,
            seed=options.seed,
            output_dir=output,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
        )
        trainer = PODSTrainer(
            model=model,
            processing_class=tokenizer,
            reward_funcs=[correct, form],
            args=config,
            train_dataset=Dataset.from_list([{"prompt": task.prompt, "answer": task.answer} for task in tasks.train]),
            callbacks=[Progress()],
        )
        trainer.remove_callback(PrinterCallback)
        before = accuracy(model, tokenizer, tasks.eval)
        trainer.train()
    print(f"accuracy on {len(tasks.eval)} held-out questions: {before:.1%} before, "
          f"{accuracy(model, tokenizer, tasks.eval):.1%} after")  # fmt: skip


if __name__ == "__main__":
    main()
