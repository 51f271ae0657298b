"""What processes say to each other."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from podsrl.config.schema import LoraConfig, ModelConfig, OptimConfig, RunConfig, ScaleConfig
from podsrl.errors import UsageError
from podsrl.run.before.checks import check_processes
from podsrl.scale.gradients import sum_gradients
from podsrl.scale.launch import launch
from podsrl.scale.processes import LostProcess, Processes, join_processes, uses_gpus
from podsrl.scale.shard import decoder_blocks
from podsrl.scale.update import combine_stats
from podsrl.update import UpdateStats


def talk() -> Any:
    processes = join_processes("cpu")
    rank = processes.rank
    return {
        "who": (rank, processes.num_processes, processes.is_main),
        "gathered": processes.gather({"rank": rank, "third": 1 / 3 + rank, "text": "ß" * rank}),
        "first": processes.broadcast([0.1, None, True] if rank == 0 else "something else entirely"),
        "bytes": processes.gather_bytes(b"\x00" * rank),
        "shared": list(processes.share("abcde")),
        "nothing": math.isnan(processes.gather(math.nan)[0]),
        "sum": processes.sum(torch.tensor([1.0, float(rank)])).tolist(),
    }


def test_every_process_hears_the_same(three: Any) -> None:
    answers = three.run(talk)
    for rank, answer in enumerate(answers):
        assert answer["who"] == (rank, 3, rank == 0)
        assert answer["gathered"] == [{"rank": r, "third": 1 / 3 + r, "text": "ß" * r} for r in range(3)]
        assert answer["first"] == [0.1, None, True]
        assert answer["bytes"] == [b"", b"\x00", b"\x00\x00"]
        assert answer["shared"] == [["a", "d"], ["b", "e"], ["c"]][rank]
        assert answer["nothing"] and answer["sum"] == [3.0, 3.0]


def summed(max_bytes: int) -> Any:
    """Rank r's gradient of a layer is r + 1; one layer has a gradient in process 1 alone, one nowhere."""
    import podsrl.scale.gradients as gradients

    gradients.BUCKET_BYTES = max_bytes
    processes = join_processes("cpu")
    model = nn.ModuleList([nn.Linear(3, 2), nn.Linear(2, 2).bfloat16(), nn.Linear(2, 1), nn.Linear(1, 1)])
    model[3].requires_grad_(False)
    for parameter in [*model[0].parameters(), *model[1].parameters()]:
        parameter.grad = torch.full_like(parameter, processes.rank + 1)
    if processes.rank == 1:
        model[2].weight.grad = torch.full_like(model[2].weight, 7)
    sum_gradients(model, processes)
    return [None if parameter.grad is None else parameter.grad.flatten().tolist() for parameter in model.parameters()]


@pytest.mark.parametrize("max_bytes", [4, 64 << 20])
def test_gradients_add_up_and_an_unused_parameter_has_none(three: Any, max_bytes: int) -> None:
    for answer in three.run(summed, max_bytes):
        assert answer == [[6.0] * 6, [6.0] * 2, [6.0] * 4, [6.0] * 2, [7.0] * 2, None, None, None]


def test_stats_of_processes_combine_by_tokens() -> None:
    one = UpdateStats(
        loss=0.25, entropy=1.0, kl=0.5, clip_fraction=0.0, logprob_gap=0.1, ratio_max=1.5, num_sequences=2,
        num_tokens=30, num_trained_rows=1, num_trained_tokens=10, num_micro_batches=1,
    )  # fmt: skip
    idle = UpdateStats(
        loss=0.0, entropy=0.0, kl=0.0, clip_fraction=0.0, logprob_gap=0.0, ratio_max=0.0, num_sequences=1,
        num_tokens=5, num_trained_rows=0, num_trained_tokens=0, num_micro_batches=0,
    )  # fmt: skip
    other = UpdateStats(
        loss=0.5, entropy=2.0, kl=1.0, clip_fraction=0.3, logprob_gap=0.4, ratio_max=1.1, num_sequences=3,
        num_tokens=40, num_trained_rows=3, num_trained_tokens=20, num_micro_batches=2,
    )  # fmt: skip
    both = combine_stats([one, idle, other])
    assert (both.loss, both.ratio_max) == (0.75, 1.5)
    means = (both.entropy, both.kl, both.clip_fraction, both.logprob_gap)
    assert means == pytest.approx((50 / 30, 25 / 30, 0.2, 0.3))
    counts = (both.num_sequences, both.num_tokens, both.num_trained_rows, both.num_trained_tokens)
    assert counts == (6, 75, 4, 30) and both.num_micro_batches == 3
    assert combine_stats([idle, idle]).entropy == 0.0


def test_a_ray_cluster_of_one_machine_is_no_cluster_of_several() -> None:
    config = RunConfig(scale=ScaleConfig(generators=2, ray="local"))
    check_processes(config, 2)
    with pytest.raises(UsageError, match=r"scale\.ray = 'local'.*HOST:PORT"):
        check_processes(config, 2, is_one_machine=False)


LEAVING = """
import os, sys, time
from podsrl.scale.processes import join_processes
processes = join_processes("cpu", 60)
time.sleep(2 * processes.rank)
open(f"{sys.argv[1]}/{processes.rank}", "w").close()
processes.close()
assert len(os.listdir(sys.argv[1])) == 2
"""


def test_processes_leave_together(tmp_path: Path) -> None:
    """Process 0 may hold what a slower one still uses."""
    (tmp_path / "here").mkdir()
    end = launch([sys.executable, "-c", LEAVING, str(tmp_path / "here")], 2, tmp_path / "logs")
    assert end.code == 0, end


def test_bytes_that_are_no_plain_numbers_are_not_shared_out() -> None:
    sharded, adapters = ScaleConfig(strategy="zero2"), LoraConfig()
    four_bits = RunConfig(scale=sharded, lora=adapters, model=ModelConfig(load_in_4bit=True))
    for config, name in (
        (RunConfig(scale=sharded, optim=OptimConfig(name="adamw_8bit")), "adamw_8bit"),
        (four_bits, r"model\.load_in_4bit"),
    ):
        check_processes(config, 1)
        with pytest.raises(UsageError, match=f"'zero2' shares out weights, which .*{name}"):
            check_processes(config, 2)


def test_a_device_that_only_one_process_can_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not uses_gpus("cpu", 64)
    with pytest.raises(UsageError, match="each takes a GPU of its own"):
        uses_gpus("cuda:1", 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert uses_gpus("auto", 2)
    with pytest.raises(UsageError, match="3 processes on this machine, but torch sees 2 GPUs"):
        uses_gpus("auto", 3)


def test_the_libraries_errors_about_a_lost_process_are_told_from_others() -> None:
    several = Processes(1, 2)
    with pytest.raises(LostProcess, match="process 1: another process"), several.watching():
        raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:6")
    with pytest.raises(RuntimeError, match="shapes"), several.watching():
        raise RuntimeError("shapes do not fit")
    with pytest.raises(RuntimeError, match="gloo"), Processes().watching():
        raise RuntimeError("gloo")


def test_the_blocks_of_a_model_are_its_decoder_layers(tiny_model: Any) -> None:
    assert decoder_blocks(tiny_model) == list(tiny_model.get_decoder().layers)
    with pytest.raises(UsageError, match="Linear has no list of decoder blocks"):
        decoder_blocks(nn.Linear(1, 1))


def test_a_single_process_talks_to_nobody() -> None:
    alone, value = Processes(), object()  # which no message could carry
    assert alone.broadcast(alone.gather(value)[0]) is value
    alone.close()
