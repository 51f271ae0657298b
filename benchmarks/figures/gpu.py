"""Tables of what was measured on a GPU: tokens per second of engines, and the two halves of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.figures.markdown import per_processor, percent, table
from benchmarks.figures.speed import OURS, PEER, times
from benchmarks.files import Files, Result
from benchmarks.timing import spread_text

HF = "HF generate"
VLLM = "vLLM"
NOTHING = "–"


def engines(files: Files) -> str:
    """Every engine on every model, by the number of rollouts that run at once."""
    head = (
        "model",
        "rollouts at once",
        "podsrl, tokens/s",
        VLLM,
        "HF `generate`",
        PEER,
        f"podsrl over {VLLM}",
        "over HF `generate`",
        "over continuous batching",
        "podsrl, ms per decode step",
        "podsrl, share of the bound",
    )

    def row(shape: str, n: str, found: dict[str, Any]) -> list[str]:
        rates, over = found["tokens_per_second"], found["ratio_of_podsrl_to"]
        return [
            shape.upper(),
            n,
            *(spread_text(rates[name], ",.0f") if name in rates else NOTHING for name in (OURS, VLLM, HF, PEER)),
            *(times(over[name], ".1f") if name in over else NOTHING for name in (VLLM, HF, PEER)),
            f"{1000 * int(n) / rates[OURS]['median']:.1f}",
            percent(found["share_of_floor"][OURS], 1),
        ]

    def text(result: Result) -> str:
        options = result["options"]
        rows = [row(shape, n, found) for shape in options["shapes"] for n, found in result[shape]["rollouts"].items()]
        return (
            f"{table(head, rows)}\n\n"
            f"Random weights in {options['dtype']}, prompts of {options['prompt_tokens']} tokens, completions of "
            f"{options['new_tokens']}; {options['repeats']} rounds; vLLM and transformers with their defaults. The "
            "time of a decode step includes its share of reading the prompts. The bound is what a copy's bandwidth "
            f"allows, {result['bandwidth_bytes_per_second'] / 1e12:.1f} TB/s."
        )

    return per_processor(files("engine-gpu"), text)


def halves(files: Files) -> str:
    """What generating n rollouts per prompt and training on them costs, and the steps that come of it."""
    head = (
        "n",
        "seconds to generate n",
        "seconds to train on n",
        "its micro-batch, tokens",
        "its peak memory, GiB",
        "GRPO n → n, seconds",
        "PODS n → n/4, seconds",
        "GRPO over PODS",
        "price of a rollout, in trained rows",
    )

    def row(n: int, found: dict[str, Any]) -> list[str]:
        generated, update = found["generation_seconds"].get(str(n)), found["updates"].get(str(n))
        step = found["steps"].get(str(n), {})
        forms = {"grpo": ".2f", "pods": ".2f", "ratio": ".2f", "price": ".2f"}
        return [
            str(n),
            spread_text(generated) if generated else NOTHING,
            spread_text(update["seconds"]) if update else NOTHING,
            f"{update['micro_batch_tokens']:,}" if update else NOTHING,
            f"{update['peak_bytes'] / 2**30:.1f}" if update else NOTHING,
            *(f"{step[key]:{form}}" if key in step else NOTHING for key, form in forms.items()),
        ]

    def model(shape: str, found: dict[str, Any]) -> str:
        trained = "adapters are trained (LoRA)" if found["adapters"] else "all weights are trained"
        numbers = sorted({int(n) for n in (*found["generation_seconds"], *found["updates"])})
        return (
            f"{shape.upper()} ({found['num_parameters'] / 1e6:,.0f} M parameters, {trained}), "
            f"n rollouts for each of {found['num_prompts']} prompts:\n\n"
            f"{table(head, (row(n, found) for n in numbers), num_left=0)}"
        )

    def text(result: Result) -> str:
        options = result["options"]
        tried = " and ".join(f"{tokens:,}" for tokens in options["micro_batches"])
        return (
            "\n\n".join(model(shape, found) for shape, found in result["shapes"].items())
            + f"\n\nRandom weights, prompts of {options['prompt_tokens']} tokens, completions of "
            f"{options['new_tokens']}; {options['repeats']} rounds. Micro-batches of {tried} tokens were tried: "
            "seconds and peak memory of an update are those of the faster one that fits. The seconds of a step are "
            "those of generation and update alone."
        )

    return per_processor(files("halves"), text)


PARTS: dict[str, Callable[..., str]] = {"engine-gpu-table": engines, "halves-table": halves}
