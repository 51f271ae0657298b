"""Every recipe of the paper at toy size: it trains, stops, resumes to the same bits, and saves what others can load.

The model is a tiny Qwen2 or Llama with random weights, the tokenizer is trained here, the questions are a few rows.
What a CPU cannot run is replaced: four-bit weights and eight-bit moments where bitsandbytes has no kernels for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from podsrl.config.load import load_config
from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.generate import Sampling
from podsrl.policy.quantized import check_4bit, check_adam_8bit
from podsrl.run.session import resume, start
from podsrl.run.step.desk import new_group
from podsrl.run.step.trainer import Trainer
from podsrl.tasks import SYSTEM_PROMPTS
from podsrl.types import Open, Way
from runs import final_tensors, newest, numbers

BASELINES = {"a": "grpo", "b": "grpo", "c": "grpo", "d": "grpo_ga", "e": "grpo_ga"}
RECIPES = [f"{setting}-{arm}" for setting, other in BASELINES.items() for arm in (other, "pods")]
FAMILIES = {"a": "qwen2", "b": "qwen2", "c": "llama", "d": "qwen2", "e": "qwen2"}
TAGS = ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>")
"""On lines of their own, so that they are tags to the rewards of both kinds of settings."""
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
SIZES = {  # n and m of each arm at toy size; chunks as in the recipe
    "grpo": ("rollouts.num_rollouts=4", "select.num_kept=4"),
    "pods": ("rollouts.num_rollouts=8", "select.num_kept=4"),
    "d-grpo_ga": ("rollouts.num_rollouts=32", "select.num_kept=32"),  # 16 chunks of 2
    "d-pods": ("rollouts.num_rollouts=16", "select.num_kept=8"),  # 4 chunks of 4 -> 2
}
QUESTIONS = [(f"Ann has {a} pens and buys {b} more. How many has she?", a + b) for a in range(2, 6) for b in (3, 8)]


@pytest.fixture(scope="session")
def chat_tokenizer() -> Any:
    """A byte-level one of 320 tokens with a chat template; each of the four tags is one token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|pad|>", "<|end|>", "<|start|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    plain.train_from_iterator([*SYSTEM_PROMPTS.values(), *(question for question, _ in QUESTIONS)], trainer)
    plain.add_tokens(list(TAGS))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<|end|>", pad_token="<|pad|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@pytest.fixture(scope="session")
def models(
    make_model: Callable[..., Any], chat_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Family -> folder. A tag is made likelier than other tokens, so that rewards differ within a group."""
    folders = {}
    for family in set(FAMILIES.values()):
        folder = tmp_path_factory.mktemp("paper") / family
        rows = len(chat_tokenizer) + 8  # more rows than tokens, as the real models have
        model = make_model(family, vocab_size=rows, max_position_embeddings=512, initializer_range=0.2)
        with torch.no_grad():
            tags = chat_tokenizer.convert_tokens_to_ids(list(TAGS))
            model.get_output_embeddings().weight[tags] *= 2.0
        model.save_pretrained(folder)
        chat_tokenizer.save_pretrained(folder)
        folders[family] = folder
    return folders


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """gsm8k/ and math/ with six questions to train on and two held out, in the published sets' columns."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("gsm8k", "math"):
        (folder / name).mkdir()
        rows = [_row(name, question, answer) for question, answer in QUESTIONS]
        for split, part in (("train", rows[:6]), ("test", rows[6:])):
            (folder / name / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    return folder


def _row(name: str, question: str, answer: int) -> dict[str, str]:
    if name == "gsm8k":
        return {"question": question, "answer": f"They add up to <<{answer}>>{answer}.\n#### {answer}"}
    solution = f"The sum is $\\boxed{{{answer}}}$."
    return {"problem": question, "solution": solution, "level": "Level 1", "type": "Prealgebra"}


def toy_config(recipe: str, models: dict[str, Path], data: Path, *extra: str) -> RunConfig:
    """The recipe with all but its sizes, its clock and its hardware as it is."""
    setting, arm = recipe.split("-")
    task = "math" if setting == "b" else "gsm8k"
    overrides = [
        f"model.path={models[FAMILIES[setting]]}",
        f"task.path={data / task}",
        "task.reward_workers=1",
        *SIZES.get(f"d-{arm}" if setting in "de" else arm, ()),
        "rollouts.max_new_tokens=12",
        "rollouts.kv_cache_bytes=2MiB",
        "eval.every_seconds=0",
        "eval.every_steps=2",
        "stop.seconds=0",
        "stop.steps=3",
        "checkpoint.every_seconds=0",
        "record.groups_every_steps=1",
        "optim.lr=1e-3",
    ]
    if setting in "de":
        overrides += ["rollouts.num_prompts=2", "optim.warmup_steps=1", "optim.schedule_steps=9"]
    else:
        overrides += ["lora.rank=4", *_what_the_cpu_lacks()]
    last = {text.partition("=")[0]: text for text in (*overrides, *extra)}
    return load_config(f"paper/{recipe}", list(last.values()))


def _what_the_cpu_lacks() -> Iterator[str]:
    for check, override in ((check_4bit, "model.load_in_4bit=false"), (check_adam_8bit, "optim.name=adamw")):
        try:
            check(torch.device("cpu"))
        except UsageError:
            yield override


QUIET: dict[str, Any] = {"on_record": lambda record: None, "say": lambda text: None}


def steps_of(folder: Path) -> list[dict[str, Any]]:
    """Of steps alone: a shorter run is evaluated at its own end."""
    return [line for line in numbers(folder) if "loss" in line]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_trains_stops_and_resumes_to_the_same_bits(
    recipe: str, models: dict[str, Path], data: Path, tmp_path: Path
) -> None:
    """In the recipe's own bfloat16. Its rewards differ within groups, so the three steps have gradients."""
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    for folder, num_steps in ((whole, 3), (stopped, 1)):
        assert start(toy_config(recipe, models, data, f"stop.steps={num_steps}"), folder, **QUIET) == "finished"
    assert resume(stopped, ["--stop.steps=3"], **QUIET) == "finished"
    steps = steps_of(whole)
    assert [line["step"] for line in steps] == [1, 2, 3] and any(line["grad_norm"] > 0 for line in steps)
    assert steps_of(stopped) == steps
    assert final_tensors(stopped) == final_tensors(whole)
    assert (steps[0]["kl"] is None) == (not recipe.startswith("c"))
    assert (stopped / "groups.jsonl").read_text() == (whole / "groups.jsonl").read_text()


@pytest.mark.parametrize("recipe", RECIPES[1::2])
def test_a_recipe_s_checkpoint_generates_the_same_tokens_elsewhere(
    recipe: str, models: dict[str, Path], data: Path, tmp_path: Path
) -> None:
    """In float32, so that no two tokens are a rounding apart: plain transformers, or PEFT on the untouched base."""
    config = toy_config(recipe, models, data, "model.dtype=float32", "model.load_in_4bit=false")
    start(config, tmp_path / "run", **QUIET)
    checkpoint = newest(tmp_path / "run" / "checkpoints")
    assert checkpoint.path.name == "step-00000003"
    with closing(Trainer(config)) as trainer:
        untrained = greedy(trainer)
        trainer.load(checkpoint)
        ours = greedy(trainer)
    assert ours != untrained  # three steps have changed the weights that are sampled from
    plain = plainly_loaded(config, checkpoint.model)
    assert {prompt: generated(plain, prompt, trainer.stop_token_ids) for prompt in ours} == ours


def greedy(trainer: Trainer) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Prompt -> what the trainer's generator answers to each held-out question, always its likeliest token."""
    sampling = Sampling(temperature=1.0, top_k=1, max_new_tokens=12, stop_token_ids=trainer.stop_token_ids)
    tasks = list(trainer.tasks.eval)
    groups = trainer.desk.answer(
        [Open(group=new_group(f"greedy/{task.id}", task), ways=(Way(count=1),)) for task in tasks], sampling
    )
    return {group.prompt_ids: group.rollouts[0].token_ids for group in groups}


def plainly_loaded(config: RunConfig, folder: Path) -> Any:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert AutoTokenizer.from_pretrained(folder).chat_template == TEMPLATE
    if config.lora is None:
        return AutoModelForCausalLM.from_pretrained(folder).eval()
    base = AutoModelForCausalLM.from_pretrained(config.model.path)
    return PeftModel.from_pretrained(base, folder).eval()


def generated(model: Any, prompt: tuple[int, ...], stops: tuple[int, ...]) -> tuple[int, ...]:
    out = model.generate(
        input_ids=torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False,
        max_new_tokens=12,
        eos_token_id=list(stops),
    )
    return tuple(out[0, len(prompt) :].tolist())
