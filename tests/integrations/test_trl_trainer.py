"""PODSTrainer keeps what its rule says, and is GRPOTrainer bit for bit where it keeps everything."""

from __future__ import annotations

import itertools
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import children

pytest.importorskip("trl")

import trl_runs
from datasets import Dataset
from pandas import DataFrame, read_parquet
from transformers import Qwen2ForCausalLM
from trl_runs import DATA, SETTINGS, N, is_same, new_trainer, train

from podsrl.errors import PodsError, RewardError, UsageError
from podsrl.integrations.trl import PODSConfig, PODSMixin, PODSTrainer
from podsrl.integrations.trl.version import VERSION
from podsrl.tools.pretrain import character_tokenizer

pytestmark = pytest.mark.slow  # its import takes longer than the tests

OF_ALL = ("reward", "frac_reward_zero_std", "completions/", "num_tokens", "mean_last")
"""Beginnings of metrics that describe all n rollouts."""


@pytest.mark.parametrize("name", SETTINGS)
def test_with_every_rollout_kept_the_run_is_grpo_s(name: str, trl_model: Path) -> None:
    plain, pods = (train(trl_model, num_kept=m, steps=10, **SETTINGS[name]) for m in (None, N))
    assert is_same(plain, pods)
    assert plain.rows == pods.rows and plain.num_without_gradient == pods.num_without_gradient
    start = Qwen2ForCausalLM.from_pretrained(trl_model).parameters()
    assert not any(torch.equal(a, b) for a, b in zip(plain.weights, start, strict=True))  # all are trained


@pytest.mark.parametrize("name", SETTINGS)
def test_metrics_describe_all_rollouts_and_those_of_the_kept_stand_beside(name: str, trl_model: Path) -> None:
    plain, pods = (train(trl_model, num_kept=m, steps=2, **SETTINGS[name]) for m in (None, N // 4 * 2))
    first, ours = plain.logs[0], pods.logs[0]
    names = [metric for metric in first if metric.startswith(OF_ALL)]
    assert len(names) > 10
    assert {metric: ours[metric] for metric in names} == {metric: first[metric] for metric in names}
    beside = {metric.removeprefix("pods/") for metric in ours if metric.startswith("pods/")}
    assert beside == {metric for metric in first if metric.startswith(("reward", "frac_reward"))}
    assert ours["pods/reward_std"] >= ours["reward_std"]  # the rule keeps what varies most
    assert [2 * rows for rows in pods.rows] == plain.rows
    assert 2 * pods.num_without_gradient == plain.num_without_gradient
    if "elsewhere" in name:  # of the kept, for which alone there are log-probabilities
        gap = "sampling/sampling_logp_difference/mean"
        assert {metric for metric in ours if "sampling" in metric} == {
            metric for metric in first if "sampling" in metric
        }
        assert ours[gap] != first[gap] and ours[gap] == pytest.approx(first[gap], rel=0.2)


def table_of(run: SimpleNamespace, step: int = 1) -> DataFrame:
    return read_parquet(f"{run.trainer.args.output_dir}/completions/completions_{step:05d}.parquet")


def test_the_kept_of_each_prompt_vary_most_and_have_trl_s_advantages(trl_model: Path) -> None:
    options = {**SETTINGS["table"], "rewards": [trl_runs.with_a_column, trl_runs.seldom], "reward_weights": [1.0, 2.0]}
    run = train(trl_model, num_kept=3, steps=2, **options)
    for step in (1, 2):
        table = table_of(run, step)
        assert len(table) == 2 * N
        assert [text[-1:] for text in table["completion"]] == list(table["last"])
        for _, group in table.groupby(table.index // N):
            rewards = group["with_a_column"] + 2 * group["seldom"].fillna(0)
            kept = rewards[group["pods/kept"]]
            largest = max(torch.tensor(found).var() for found in itertools.combinations(rewards.tolist(), 3))
            assert len(kept) == 3 and kept.var() == pytest.approx(float(largest), rel=1e-5)
            advantages = (kept - kept.mean()) / (kept.std() + 1e-4)
            assert group["advantage"][group["pods/kept"]].tolist() == pytest.approx(advantages.tolist(), rel=1e-4)
            assert group["advantage"][~group["pods/kept"]].isna().all()


def test_a_rollout_without_a_reward_is_kept_last_and_has_no_advantage(trl_model: Path) -> None:
    def only_two(completions: list[str], **columns: Any) -> list[float | None]:
        return [float(i % N) if i % N in (3, 6) else None for i in range(len(completions))]

    run = train(trl_model, num_kept=4, steps=1, rewards=only_two, log_completions=True)
    table = table_of(run)
    assert [i for i in table.index if table["pods/kept"][i]] == [0, 1, 3, 6, N, N + 1, N + 3, N + 6]
    if VERSION < (1, 6):
        return  # there TRL counts such a rollout as one with the reward 0
    assert table["advantage"][[0, 1, N, N + 1]].tolist() == [0.0] * 4
    assert run.logs[0]["reward"] == run.logs[0]["pods/reward"] == 4.5
    assert all(weight.isfinite().all() for weight in run.weights)


BROKEN = {
    "is a dict; wanted a list of 16 numbers": lambda completions, **columns: dict.fromkeys(range(2 * N), 1.0),
    "is a set; wanted": lambda completions, **columns: {*range(len(completions))},
    "is a list of 15; wanted": lambda completions, **columns: [0.0] * (len(completions) - 1),
    "is '1' (str), not a number; wanted": lambda completions, **columns: ["1"] * len(completions),
    "is inf, not a finite number; wanted": lambda completions, **columns: [float("inf")] * len(completions),
    "is a coroutine; wanted": lambda **columns: patient(**columns),
}


async def patient(completions: list[str], **columns: Any) -> list[float | None]:
    return [None if i % N == 1 else float(i % N) for i in range(len(completions))]


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("what", BROKEN)
def test_a_reward_that_returns_no_list_of_numbers_is_refused(what: str, trl_model: Path) -> None:
    trainer = new_trainer(trl_model, num_kept=4, max_steps=1, rewards=BROKEN[what])
    with pytest.raises(RewardError, match=re.escape(what.replace("is", "returned", 1))):
        trainer.train()


def test_an_asynchronous_reward_is_awaited(trl_model: Path) -> None:
    run = train(trl_model, num_kept=4, steps=1, rewards=[patient, OpenRLHF()], log_completions=True)
    table = table_of(run)
    assert table["patient"].isna().tolist() == [i % N == 1 for i in range(2 * N)]
    assert table["patient"].fillna(1.0).tolist() == [float(i % N) for i in range(2 * N)]
    assert table["OpenRLHF"].tolist() == [2.0] * 2 * N


class OpenRLHF:
    def __call__(self, completions: list[str], **columns: Any) -> dict[str, Any]:
        return {"rewards": torch.full((len(completions),), 2.0), "scores": 0}


def test_max_signal_trains_on_fewer_and_fills_each_group_with_rollouts_without_an_advantage(trl_model: Path) -> None:
    def one_right(completions: list[str], **columns: Any) -> list[float]:
        return [float(i % N == 2 and i < N) for i in range(len(completions))]

    options = {"rule": "max_signal", "rule_options": {"overhead": 3.0}, "rewards": one_right, "log_completions": True}
    run = train(trl_model, num_kept=4, steps=1, **options)
    table = table_of(run)
    # one right of k kept at an overhead of 3: 2/3/6 at k = 3 is above 3/4/7 at 4 and 1/2/5 at 2; no signal keeps 2
    assert [i for i in table.index if table["pods/kept"][i]] == [0, 1, 2, N, N + 1]
    trained = table["advantage"].dropna()
    assert len(trained) == 2 * 4 and (trained != 0).sum() == 3 and sum(trained) == pytest.approx(0, abs=1e-5)
    assert run.logs[0]["pods/reward"] == pytest.approx(1 / 5)
    assert all(weight.isfinite().all() for weight in run.weights)


def test_the_random_rule_follows_the_seed_and_the_step(trl_model: Path) -> None:
    runs = [
        train(trl_model, num_kept=4, steps=2, rule="random", log_completions=True, data_seed=3, seed=seed)
        for seed in (3, 3, 4)
    ]
    tables = [[list(table_of(run, step)["pods/kept"]) for step in (1, 2)] for run in runs]
    assert is_same(runs[0], runs[1]) and tables[0] == tables[1]
    assert tables[0] != tables[2] and tables[0][0] != tables[0][1]
    assert tables[0][0][:N] != tables[0][0][N:]
    assert all(sum(kept) == 2 * 4 for run in tables for kept in run)


def test_an_evaluation_is_trl_s_own(trl_model: Path) -> None:
    held_out = Dataset.from_list(DATA[:4])
    options = {"eval_dataset": held_out, "log_completions": True, "per_device_eval_batch_size": 2 * N}
    losses = []
    for num_kept in (None, 4):
        trainer = new_trainer(trl_model, num_kept=num_kept, max_steps=1, **options)
        torch.manual_seed(0)
        losses.append(trainer.evaluate())
        if num_kept is not None:
            trainer.train()  # rows of an evaluation and of a step stand in one table
            assert len(set(map(len, (*trainer._logs["extra"].values(), trainer._logs["prompt"])))) == 1
    assert not any("pods" in name for name in losses[1])
    plain, pods = ({name: value for name, value in found.items() if not name.endswith(("time", "second"))}
                   for found in losses)  # fmt: skip
    assert plain == pods and "eval_loss" in plain


def test_columns_of_a_rollout_function_reach_the_rewards_and_its_tokens_are_the_ones_trained_on(
    trl_model: Path,
) -> None:
    def rollouts(prompts: list[str], trainer: Any) -> dict[str, Any]:
        rows = len(prompts)
        return {
            "prompt_ids": [[5, 6]] * rows,
            "completion_ids": [[10 + i, 30 + i] for i in range(rows)],
            "logprobs": None,
            "from_outside": [i * i for i in range(rows)],
            "shared": "one for all",
        }

    def score(completions: list[str], from_outside: list[int], shared: list[str], **columns: Any) -> list[float]:
        assert set(shared) == {"one for all"}
        return [float(i) for i in from_outside]

    trainer = new_trainer(trl_model, num_kept=2, rewards=score, rollout_func=rollouts)
    trainer.model.train()
    batch = trainer._generate_and_score_completions([dict(DATA[i // N]) for i in range(2 * N)])
    assert batch["completion_ids"].tolist() == [[10, 30], [17, 37], [18, 38], [25, 45]]
    assert batch["prompt_ids"].tolist() == [[5, 6]] * 4
    assert batch["advantages"].tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5] * 2, rel=1e-3)
    assert int(batch["num_items_in_batch"]) == 8  # the denominator of the loss counts the kept


def test_normalised_rewards_are_chosen_by_their_normalised_sum(trl_model: Path) -> None:
    """By the raw sum rows 0 and 7 would be kept, which are alike in the reward of 0 and 1."""

    def is_right(completions: list[str], **columns: Any) -> list[float]:
        return [float(i % N in (3, 4)) for i in range(len(completions))]

    def length(completions: list[str], **columns: Any) -> list[float]:
        return [100.0 * (i % N) for i in range(len(completions))]

    options = {"num_kept": 2, "rewards": [is_right, length]}
    trainer = new_trainer(trl_model, multi_objective_aggregation="normalize_then_sum", **options)
    assert kept_rows(trainer) == [0, 4, 8, 12]  # -0.54 - 1.43 and 1.62 + 0.20, the smallest and the largest
    assert kept_rows(new_trainer(trl_model, **options)) == [0, 7, 8, 15]


def kept_rows(trainer: Any) -> list[int]:
    trainer.model.train()
    trainer._generate_and_score_completions([dict(DATA[i // N]) for i in range(2 * N)])
    return [i for i, is_kept in enumerate(trainer._logs["extra"]["pods/kept"]) if is_kept]


@pytest.mark.parametrize("why", ["is cut", "has no token of the policy"])
def test_a_rollout_without_a_gradient_is_kept_last(why: str, trl_model: Path) -> None:
    end = character_tokenizer().eos_token_id

    def rollouts(prompts: list[str], trainer: Any) -> dict[str, Any]:
        is_last = [i % N in (0, 7) for i in range(len(prompts))]
        found = {"prompt_ids": [[5, 6]] * len(prompts), "logprobs": None}
        if why == "is cut":
            return {**found, "completion_ids": [[10, 11 if bad else end] for bad in is_last]}
        masks = [[0 if bad else 1] * 2 for bad in is_last]
        return {**found, "completion_ids": [[10, end]] * len(prompts), "env_mask": masks}

    def score(completions: list[str], **columns: Any) -> list[float]:
        return [float(i % N) for i in range(len(completions))]

    options = {"num_kept": 2, "rewards": score, "rollout_func": rollouts}
    trainer = new_trainer(trl_model, mask_truncated_completions=why == "is cut", **options)
    assert kept_rows(trainer) == [1, 6, 9, 14]


def test_a_failing_reward_leaves_the_trainer_as_it_was(trl_model: Path) -> None:
    def fail(**columns: Any) -> list[float]:
        raise RuntimeError("no reward")

    trainer = new_trainer(trl_model, num_kept=2, rewards=fail)
    trainer.model.train()
    with pytest.raises(RuntimeError, match="no reward"):
        trainer._generate_and_score_completions([dict(DATA[0]) for _ in range(N)])
    assert (trainer._chosen, trainer.num_generations) == (None, N)


def test_a_trl_that_returns_something_else_is_named(trl_model: Path) -> None:
    trainer = new_trainer(trl_model, num_kept=2)
    trainer.model.train()
    with pytest.raises(PodsError, match=r"_generate of TRL .* 9 values .* lists of \[3\]"):
        trainer._kept_of(([1, 2, 3],) * 9, [0], 4)
    with pytest.raises(PodsError, match="6 values"):
        trainer._kept_of(([1],) * 6, [0], 1)


def test_what_the_batch_size_counts_is_said_once(trl_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new_trainer(trl_model, num_kept=2)
    [line] = [line for line in capsys.readouterr().err.splitlines() if "PODS" in line]
    assert all(text in line for text in ("per_device_train_batch_size = 16", "every 8", "max_variance", "4 at once"))
    new_trainer(trl_model, num_kept=N, rule="random")
    [line] = [line for line in capsys.readouterr().err.splitlines() if "PODS" in line]
    assert all(text in line for text in ("num_kept = num_generations = 8", "GRPO", "random"))


def test_tools_and_environments_are_refused(trl_model: Path) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    config = PODSConfig(output_dir=str(trl_model), use_cpu=True, bf16=False, report_to=[])
    for extra in ({"tools": [add]}, {"environment_factory": object}):
        with pytest.raises(UsageError, match=next(iter(extra))):
            PODSTrainer(model="nowhere", reward_funcs=trl_runs.score, args=config, **extra)


def test_other_arguments_and_a_reference_without_a_path_are_refused(trl_model: Path) -> None:
    with pytest.raises(UsageError, match="args is a dict; wanted a PODSConfig"):
        PODSTrainer("nowhere", trl_runs.score, {"num_kept": 4})
    model = Qwen2ForCausalLM(Qwen2ForCausalLM.from_pretrained(trl_model).config)
    model.config._name_or_path = ""
    options = {"output_dir": str(trl_model), "use_cpu": True, "bf16": False, "report_to": []}
    with pytest.raises(UsageError, match=r"beta = 0\.04"):
        PODSTrainer(model, trl_runs.score, PODSConfig(beta=0.04, **options), processing_class=character_tokenizer())


def test_a_trainer_without_args_has_those_of_a_podsconfig(
    trl_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As TRL's first example, which names neither a config nor a folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trl_runs.PODSConfig, "__init__", on_a_cpu(PODSConfig.__init__))
    trainer = PODSTrainer(str(trl_model), trl_runs.score, train_dataset=Dataset.from_list(DATA))
    assert (trainer.args.num_kept, trainer.args.rule) == (N, "max_variance")


def on_a_cpu(make: Any) -> Any:
    return lambda self, *given, **named: make(self, *given, **named, use_cpu=True, bf16=False, report_to=[])


def test_a_resumed_run_chooses_at_random_what_the_uninterrupted_one_chose(trl_model: Path) -> None:
    options = {"num_kept": 4, "rule": "random", "max_steps": 4, "gradient_accumulation_steps": 2}
    options |= {"steps_per_generation": 1, "log_completions": True, "num_completions_to_print": 0}
    tables = []
    folder = ""
    for _ in range(2):
        trainer = new_trainer(trl_model, **options, save_strategy="steps", save_steps=2)
        trainer.train(resume_from_checkpoint=f"{folder}/checkpoint-2" if folder else None)
        folder = trainer.args.output_dir
        tables.append(
            [list(read_parquet(f"{folder}/completions/completions_{i:05d}.parquet")["pods/kept"]) for i in (3, 4)]
        )
    assert tables[0] == tables[1] and tables[0][0] != tables[0][1]


def test_a_trainer_that_derives_from_grpo_s_takes_the_mixin(trl_model: Path) -> None:
    gmpo = pytest.importorskip("trl.experimental.gmpo", reason="this TRL has no GMPO")

    @dataclass
    class Config(PODSConfig, gmpo.GMPOConfig): ...

    class Trainer(PODSMixin, gmpo.GMPOTrainer): ...

    sizes = {"config_class": gmpo.GMPOConfig, "trainer_class": gmpo.GMPOTrainer}
    plain = train(trl_model, steps=3, **sizes)
    sizes = {"config_class": Config, "trainer_class": Trainer}
    all_kept, half = (train(trl_model, num_kept=m, steps=3, **sizes) for m in (N, N // 2))
    assert is_same(plain, all_kept) and not is_same(plain, train(trl_model, steps=3))
    assert [2 * rows for rows in half.rows] == plain.rows


def test_two_processes_choose_the_same_and_train_as_grpo_does(trl_model: Path, tmp_path: Path) -> None:
    names = ["default", "reference model", "table", "two rewards", "steps and iterations"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    script = str(Path(trl_runs.__file__))
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    done = children.run(
        [*launch, script, str(trl_model), *names], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
