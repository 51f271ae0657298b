"""Where tests run, and fixtures for all: tiny models and a tokenizer, built here, without a network or a stored file.

Torch finds its devices once, so a process runs the tests of one kind (PODS_TEST_DEVICE) and skips the others:

    cpu        all but the two below; a GPU of this machine is hidden from them (make unit, make slow)
    pretended  tests/device, on a GPU that is not there (make device)
    gpu        what is marked `gpu`, on a GPU of this machine (make device)
"""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

DEVICE_FOLDER = Path(__file__).parent / "device"
DEVICE = os.environ.get("PODS_TEST_DEVICE", "cpu")
"""Of this process."""
WHY_NOT: str | None = None
"""What keeps its tests from running."""

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: a test that asks the hub fails at once
if DEVICE != "gpu":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # kernels run in its interpreter, where a test calls them
if DEVICE == "pretended":
    sys.path.insert(0, str(DEVICE_FOLDER))
    import pretend

    WHY_NOT = pretend.why_not()
    if WHY_NOT is None:
        pretend.start()

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup, all that a test starts would ignore it

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

import children  # noqa: E402
from podsrl.lib import matmul  # noqa: E402
from small_models import new_model  # noqa: E402

pytest_plugins = ["times", "leftovers"]
sys.path.append(str(Path(__file__).parent / "generate"))  # contract.py, which tests of several folders import
pytest.register_assert_rewrite("contract")

hypothesis.settings.register_profile("any_machine", deadline=None)  # on a busy one an example may take any time
hypothesis.settings.load_profile("any_machine")
NUM_THREADS = int(os.environ.get("PODS_TEST_THREADS", "1"))
torch.set_num_threads(NUM_THREADS)
if DEVICE not in ("cpu", "pretended", "gpu"):
    raise pytest.UsageError(f"PODS_TEST_DEVICE = {DEVICE!r}: wanted cpu, pretended or gpu")
if DEVICE == "gpu" and not torch.cuda.is_available():
    WHY_NOT = "torch sees no GPU"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All that is made while tests are found stays, so the garbage collector waits: half of the time it takes."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what this process is not for or cannot run."""
    for item in items:
        is_pretended = DEVICE_FOLDER in item.path.parents
        wanted = "gpu" if item.get_closest_marker("gpu") else "pretended" if is_pretended else "cpu"
        reason = WHY_NOT if wanted == DEVICE else f"for a process with PODS_TEST_DEVICE={wanted}"
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


_users_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
os.environ.setdefault("MPLCONFIGDIR", str(_users_cache / "matplotlib"))  # its list of fonts takes seconds to make
os.environ.setdefault("VLLM_CACHE_ROOT", str(_users_cache / "vllm"))  # what it finds out about models takes longer
os.environ.setdefault("PODS_MODELS", str(_users_cache / "podsrl" / "models"))  # fetched once, by one test
_own_cache = tempfile.TemporaryDirectory(prefix="podsrl-tests-")
os.environ["XDG_CACHE_HOME"] = _own_cache.name
os.environ["TORCHINDUCTOR_CACHE_DIR"] = _own_cache.name  # torch sets it when a part of it is imported

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in a shell's background jobs, whose children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

FAMILIES = ("qwen2", "qwen3", "llama")


@pytest.fixture(autouse=True)
def same_threads_and_matmul() -> Iterator[None]:
    """The number of threads and the library of matrix products are the whole process's: no test leaves its own."""
    before = matmul._library
    torch.set_num_threads(NUM_THREADS)
    yield
    matmul.use(before)


@pytest.fixture(scope="session", autouse=True)
def two_digit_sums_are_looked_at_once() -> Iterator[None]:
    import looked_at
    from podsrl.run.before import prompt_lengths

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prompt_lengths, "_look_at", looked_at.once(prompt_lengths._look_at))
        yield


@pytest.fixture(scope="session", autouse=True)
def children_are_forked() -> Iterator[None]:
    """What the package starts from a test is forked too; what a command starts that a test has started is not."""

    def popen(words: Sequence[str], **options: Any) -> Any:
        is_slow_to_import = any(re.search(r"podsrl\.(cli|scale)\b", word) for word in words)
        return (children if is_slow_to_import else subprocess).Popen(words, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("podsrl.lib.child.subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": popen}))
        yield


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Any]:
    """`new_model`, for a test that wants another configuration or changes the weights."""
    return new_model


@pytest.fixture(scope="session")
def qwen2() -> Any:
    """A tiny Qwen2; shared, so never changed."""
    return new_model("qwen2")


@pytest.fixture(scope="session", params=FAMILIES)
def tiny_model(request: pytest.FixtureRequest) -> Any:
    """A tiny model of each family in turn; shared, so never changed."""
    return new_model(request.param)


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """One token a character."""
    from podsrl.tools.pretrain import character_tokenizer

    return character_tokenizer()


@pytest.fixture(scope="session")
def tiny_model_folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    """A model and its tokenizer in Hugging Face layout, as `pods pretrain` writes them; copy it to change it."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    new_model("qwen2", max_position_embeddings=256, tie_word_embeddings=True).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


Pods = Callable[..., tuple[int, str, str]]


@pytest.fixture
def pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pods:
    """The command `pods` in this process, with `tmp_path` as its folder: exit code, standard output, standard error."""
    from podsrl.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # what the command changes is put back after the test
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    # How much is said while something loads depends on the machine's speed; tests of messages want none of it.
    monkeypatch.setattr("podsrl.cli.progress.FIRST_LINE_SECONDS", float("inf"))
    monkeypatch.setattr("podsrl.cli.dry_run.MOST_SECONDS", 0.0)  # a dry run measures no step, which takes a second

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pods", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        code = ended.value.code
        assert code is None or isinstance(code, int)
        return code or 0, said.out, said.err

    return run
