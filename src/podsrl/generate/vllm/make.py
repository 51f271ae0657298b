"""Make vLLM a generator for a run, and check beforehand what can be checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.generate.base import EngineStats, Sampling, Setting
from podsrl.generate.vllm import start
from podsrl.generate.vllm.generator import VLLM
from podsrl.generate.vllm.handover import read_config, tied_names
from podsrl.generate.vllm.sampling import check_drawing

OWN_OPTIONS = {
    "model": "model.path",
    "revision": "model.revision",
    "tokenizer_revision": "model.revision",
    "dtype": "model.dtype",
    "trust_remote_code": "model.trust_remote_code",
    "seed": "seed",
    "max_num_seqs": "rollouts.num_slots",
    "kv_cache_memory_bytes": "rollouts.kv_cache_bytes",
    "scheduling_policy": "rollouts.scheduler",
    "logprobs_mode": "",
    "distributed_executor_backend": "",
    "in_process": "scale.generators to 1 for vLLM in a process of its own",
    "tensor_parallel_size": "rollouts.generator to the address of a vLLM server that has the GPUs",
}
"""vLLM's options that other options of podsrl decide."""


def make_vllm(
    setting: Setting,
    *,
    gpu_memory_utilization: float = 0.0,
    max_model_len: int = 0,
    enforce_eager: bool | None = None,
    **options: Any,
) -> VLLM:
    """vLLM on the setting's model folder, in this process.

    Args:
        gpu_memory_utilization: share of the device's memory for weights and keys and values together, in (0, 1],
            instead of `rollouts.kv_cache_bytes`; 0: that decides.
        max_model_len: most tokens of a prompt with its completion; 0: what the run's limits add up to.
        enforce_eager: without CUDA graphs and compilation; by default so on a CPU.
        options: of `vllm.LLM`.

    Raises:
        UsageError: vLLM is not there, has no counterpart of an option, or did not start.
    """
    check_options_of_vllm(**options)
    _check_model(setting)
    with start.untouched():
        start.import_vllm()
        tied = tied_names(setting)
        on_cpu = start.is_on_cpu()
        kv_bytes = setting.kv_cache_bytes or (start.CPU_KV_BYTES if on_cpu else None)
        max_tokens = max_model_len or _max_tokens(setting)
        given: dict[str, Any] = {
            "model": setting.folder,
            "revision": setting.revision,
            "tokenizer_revision": setting.revision,
            "dtype": setting.dtype,
            "trust_remote_code": setting.trust_remote_code,
            "seed": 0,  # of what is not a rollout's; each of those has its own
            "max_model_len": max_tokens,
            "enforce_eager": on_cpu if enforce_eager is None else enforce_eager,
            "scheduling_policy": "priority",
            "logprobs_mode": "processed_logprobs",  # by default they are those before temperature and filters
            "use_tqdm_on_load": False,
            "distributed_executor_backend": "uni",
        }
        if gpu_memory_utilization:
            given["gpu_memory_utilization"] = gpu_memory_utilization
        elif kv_bytes is not None:
            given["kv_cache_memory_bytes"] = kv_bytes
        if setting.num_slots is not None:
            given["max_num_seqs"] = setting.num_slots
        if on_cpu:  # whose random generator cannot be moved on, as vLLM does for a prompt that is read in pieces
            given["enable_chunked_prefill"] = False
        llm = start.new_llm(given | options)
        generator = VLLM(llm, seed=setting.seed, scheduler=setting.scheduler, max_tokens=max_tokens, tied=tied)
        try:
            generator.first_logprob((0,))  # what it compiles for its first step is compiled here
        except BaseException:
            generator.close()
            raise
        generator.stats = EngineStats()
        return generator


def check_options_of_vllm(**options: Any) -> None:
    """Check what can be checked before any weights are read.

    Raises:
        UnavailableError: no vLLM here.
        UsageError: options that podsrl itself sets.
    """
    start.check_installed()
    for name in options:
        if name in OWN_OPTIONS:
            cure = f"set {OWN_OPTIONS[name]}" if OWN_OPTIONS[name] else "leave it out"
            raise UsageError(f"options.vllm.{name} = {options[name]!r}: podsrl sets it itself; {cure}")


def check_run(config: RunConfig) -> None:
    """UsageError: the run wants what vLLM has no counterpart of."""
    rollouts, evaluation = config.rollouts, config.eval
    for section, sampling in (
        ("rollouts", Sampling(temperature=rollouts.temperature, top_p=rollouts.top_p, min_p=rollouts.min_p)),
        ("eval", Sampling(temperature=evaluation.temperature, top_p=evaluation.top_p)),
    ):
        try:
            check_drawing(sampling)
        except UsageError as error:
            raise UsageError(f"{section}.{error}") from None
    if config.order.rest == "put_off" and rollouts.stop_strings:
        raise UsageError(
            f"order.rest = 'put_off' with rollouts.stop_strings = {list(rollouts.stop_strings)}: vLLM looks for them "
            "behind the tokens that a rollout goes on with; set order.rest = 'run', or rollouts.generator = 'engine'"
        )


def check_heads(head_dim: int) -> None:
    """UsageError: vLLM on this machine has no kernel for attention heads of so many numbers."""
    sizes = start.head_sizes()
    if sizes and head_dim not in sizes:
        raise UsageError(
            f"rollouts.generator = 'vllm' with model.path: the model's attention heads have {head_dim} numbers, and "
            f"vLLM takes {', '.join(map(str, sizes))} on a CPU: use rollouts.generator = 'engine', or another model"
        )


def _check_model(setting: Setting) -> None:
    if (Path(setting.folder) / "adapter_config.json").exists():
        raise UsageError(
            f"model.path = {setting.folder!r} is a folder of adapters, which vLLM cannot begin from: merge them "
            "and save the whole model, or use rollouts.generator = 'engine'"
        )
    number = setting.device.partition(":")[2]
    if number and int(number) > 0:
        raise UsageError(
            f"rollouts.generator = 'vllm' with model.device = {setting.device!r}: vLLM takes the first GPU that it "
            "sees; hide the others (CUDA_VISIBLE_DEVICES), or give every process its own vLLM server"
        )


def _max_tokens(setting: Setting) -> int:
    """Of the longest row, or of the model's window where that is shorter."""
    window = getattr(read_config(setting).get_text_config(), "max_position_embeddings", None)
    longest = setting.max_prompt_tokens + setting.max_new_tokens
    return min(longest, window) if window else longest
