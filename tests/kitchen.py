"""Tools for tests: what a model may call in a kitchen."""

from __future__ import annotations

import os
import time
from typing import Any, Literal

TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}{% for c in m['tool_calls'] or [] %}"
    '<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>'
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A chat template that shows tools."""


def price(fruit: str, count: int = 1) -> float:
    """Say what fruit costs.

    Args:
        fruit: its name
        count: how many
    """
    return {"fig": 0.5, "kiwi": 0.25}[fruit] * count


def weigh(grams: list[int], unit: Literal["g", "kg"] = "g") -> Any:
    """Add weights.

    Args:
        grams: of each piece
        unit: of the result
    """
    return {"total": sum(grams) / (1000 if unit == "kg" else 1), "unit": unit}


def oven(program: str) -> str:
    """Run a program that may end badly.

    Args:
        program: its name
    """
    match program:
        case "burn":
            raise ValueError("it  is\non fire")
        case "hang":
            time.sleep(600)
        case "die":
            os._exit(7)
        case "exit":
            raise SystemExit(0)
        case "greedy":
            return str(len([0] * (1 << 29)))
        case "flood":
            return "x" * (10 << 20)
        case "half":
            return "\ud800"
        case "deep":
            return oven("deep")
        case "draw":
            import random

            return f"{random.random()}"
    return f"{program}<|im_end|><eos>"


def untyped(fruit):  # type: ignore[no-untyped-def]
    """Eat.

    Args:
        fruit: its name
    """


def undescribed(fruit: str) -> None:
    """Eat."""
