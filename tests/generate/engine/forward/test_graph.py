"""The GPU's decode step in Triton's interpreter, without graphs, beside the step of the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode

from podsrl.errors import UsageError
from podsrl.generate import Engine, Request, Sampling
from podsrl.generate.engine.forward import graph
from podsrl.generate.engine.forward.base import Step
from podsrl.generate.engine.forward.choose import choose_forward, why_no_graph
from podsrl.generate.engine.forward.graph import GraphForward, graph_rows, why_not_graph
from podsrl.generate.engine.kv_pool import KVPool
from small_models import new_model

pytest.importorskip("triton", reason="Triton is not installed (make device)")
SMALL = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 1, "head_dim": 16, "intermediate_size": 48}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"num_key_value_heads": 4}),
    "llama": (
        "llama",
        {"attention_bias": True, "mlp_bias": True, "num_attention_heads": 6, "hidden_size": 48, "head_dim": 32},
    ),
}


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "why_no_kernels", lambda device: None)


def small(name: str = "qwen2") -> Any:
    family, changes = MODELS[name]
    return new_model(family, **SMALL | changes)


@pytest.mark.parametrize("name", MODELS)
def test_states_and_logits_are_those_of_the_cpus_step(name: str) -> None:
    """Rows of 6 to 68 tokens, while the pool moves and is divided anew."""
    model, found = small(name), []
    prompts: list[Sequence[int]] = [[3 + i % 30 for i in range(length)] for length in (66, 5)]
    for forward in (choose_forward(model, "graph"), choose_forward(model, "fast")):
        pool = KVPool(forward.layout)
        pool.reserve(2, 66)
        forward.read(prompts, pool, range(2))
        for step in range(2):
            pool.reserve(2 + step, 67 + 40 * step)
            positions = torch.tensor([len(prompt) + step for prompt in prompts])
            output = forward(Step(torch.tensor([3, 4 + step]), positions, 67 + step, want_hidden=True), pool)
            assert output.hidden is not None
            found.append((output.logits, output.hidden))
    for ours, theirs in zip(found[:2], found[2:], strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-5)


def test_rollouts_get_the_cpus_tokens() -> None:
    """Rows split, end and are refilled, and prompts are shared."""
    model, tokens = small(), []
    requests = [
        Request("a", (3, 4, 5), 3, Sampling(max_new_tokens=4)),
        Request("b", (9,), 2, Sampling(max_new_tokens=3)),
    ]
    for name in ("graph", "fast"):
        done = Engine(model, seed=0, num_slots=4, forward=name).generate(requests)  # type: ignore[arg-type]
        tokens.append({(each.group_id, each.index): each.token_ids for each in done})
    assert tokens[0] == tokens[1]


def test_joined_weights_are_the_models_own(tmp_path: Path) -> None:
    """What trains the model reaches the step, and a saved model has every weight."""
    model = small()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    forward = choose_forward(model, "graph")
    assert isinstance(forward, GraphForward)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    engines = Engine(model, seed=0, forward="graph"), Engine(model, seed=0, forward="fast")
    request = Request("a", (3, 4, 5), 2, Sampling(max_new_tokens=2))
    one, two = ([each.token_ids for each in engine.generate([request])] for engine in engines)
    assert one == two
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    assert saved
    for name, value in saved.items():
        assert torch.equal(value, before[name] * 1.5), name


def test_weights_that_move_are_joined_again() -> None:
    model = small()
    forward = choose_forward(model, "graph")
    attention = model.model.layers[0].self_attn
    attention.k_proj.weight.data = attention.k_proj.weight.data.clone()
    forward.refresh()
    starts = [getattr(attention, name).weight.data_ptr() for name in ("q_proj", "k_proj", "v_proj")]
    assert starts[1] - starts[0] == attention.q_proj.weight.nbytes
    assert starts[2] - starts[1] == attention.k_proj.weight.nbytes


@pytest.mark.parametrize("rows", [1, 8, 9, 64, 65, 100, 128, 129, 500, 513, 1025])
def test_a_graph_has_few_rows_too_many(rows: int) -> None:
    assert rows <= graph_rows(rows) < rows + max(8, rows / 4 + 1)
    assert graph_rows(graph_rows(rows)) == graph_rows(rows)


def test_what_it_does_not_cover_has_a_reason() -> None:
    assert "no power of 2" in str(why_not_graph(new_model("qwen2", head_dim=8)))
    assert "gpt2" in str(why_not_graph(new_model("gpt2"))).lower()
    assert "float64" in str(why_not_graph(small().double()))
    with pytest.raises(UsageError, match="forward = 'graph'"):
        choose_forward(new_model("qwen2", head_dim=8), "graph")


def test_where_it_fails_the_next_step_runs_and_the_reason_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, rows: int) -> Any:
        raise RuntimeError("no PTX for this GPU")

    model = small()
    monkeypatch.setattr(GraphForward, "_run", fail)
    assert choose_forward(model).name == "fast"
    assert "no PTX for this GPU" in str(why_no_graph(model))
    with pytest.raises(UsageError, match="no PTX"):
        choose_forward(model, "graph")


def test_a_step_that_computes_something_else_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    own = GraphForward._run
    monkeypatch.setattr(GraphForward, "_run", lambda self, rows: own(self, rows) * 1.5)
    model = small()
    assert choose_forward(model).name == "fast"
    assert "is not its plain forward" in str(why_no_graph(model))


class Counted(TorchDispatchMode):
    """Counts what computes: no views and no new memory."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        if not function.is_view and "empty" not in str(function):
            self.names.append(str(function))
        return found


def test_a_step_is_nine_operations_per_layer_and_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five kernels and four products; beside them the embedding, the last norm and the head."""
    from podsrl.generate.engine.forward import kernels

    launched, counts = list[str](), dict[int, tuple[int, int]]()
    forwards = {
        layers: choose_forward(new_model("qwen2", **SMALL | {"num_hidden_layers": layers}), "graph")
        for layers in (1, 2)
    }
    for name in ("_add_norm", "_turn", "_attend", "_gate"):

        class Launches:
            def __getitem__(self, grid: Any, name: str = name) -> Any:
                launched.append(name)
                return lambda *args, **options: None  # what it computes has tests of its own

        monkeypatch.setattr(kernels, name, Launches())
    for layers, forward in forwards.items():
        pool = KVPool(forward.layout)
        pool.reserve(1, 8)
        forward(Step(torch.tensor([3]), torch.tensor([4]), 5, want_hidden=False), pool)
        launched.clear()
        with torch.inference_mode(), Counted() as counted:
            forward._run(8)  # type: ignore[attr-defined]
        counts[layers] = len(launched), len(counted.names)
    assert counts == {1: (6, 6), 2: (11, 10)}  # kernels, and operations of torch
