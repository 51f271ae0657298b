"""`pods eval --system-prompt`: a table of system prompts, whose rows are what an evaluation with each would give."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Pods = Callable[..., tuple[int, str, str]]
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
SIZES = ("--task.chat=true", "--task.digits=1", "--task.num_eval=5", "--rollouts.max_new_tokens=6", "--samples", "3")


@pytest.fixture
def model(tmp_path: Path, make_model: Callable[..., Any], tokenizer: Any) -> str:
    """A folder of a model with a chat template, and no config."""
    chatty = copy.deepcopy(tokenizer)
    chatty.chat_template = TEMPLATE
    for part in (make_model("qwen2"), chatty):
        part.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def asked(pods: Pods, model: str, *prompts: str, more: tuple[str, ...] = ()) -> tuple[int, str, str]:
    flags = [word for prompt in prompts for word in ("--system-prompt", prompt)]
    return pods("eval", model, "--task", "arithmetic", *SIZES, *flags, *more)


def test_each_row_is_what_an_evaluation_with_that_prompt_gives_and_the_own_one_comes_first(
    pods: Pods, model: str, tmp_path: Path
) -> None:
    more = ("--task.system_prompt=Own one.", "--json", "--out", str(tmp_path / "answers.jsonl"))
    code, printed, _ = asked(pods, model, "Be brief.", "", more=more)
    rows = json.loads(printed)["prompts"]
    assert code == 0
    assert [(row["system_prompt"], row["is_own"]) for row in rows] == [
        ("Own one.", True),
        ("Be brief.", False),
        (None, False),
    ]
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    texts = [[line["completion"] for line in lines[start : start + 15]] for start in (0, 15, 30)]
    assert texts[0] != texts[1] != texts[2]  # the prompts do change the answers
    for place, row in enumerate(rows):
        of_prompt = lines[15 * place : 15 * place + 15]
        system = [] if row["system_prompt"] is None else [{"role": "system", "content": row["system_prompt"]}]
        assert all([m for m in line["prompt"] if m["role"] == "system"] == system for line in of_prompt)
        own = () if row["system_prompt"] is None else (f"--task.system_prompt={row['system_prompt']}",)
        alone = json.loads(asked(pods, model, more=(*own, "--json"))[1])
        assert {name: row[name] for name in alone if name != "num_questions_wanted"} == {
            name: value for name, value in alone.items() if name != "num_questions_wanted"
        }


def test_the_table_names_each_prompt_once_and_the_form_only_where_one_is_wanted(pods: Pods, model: str) -> None:
    for rewards, has_form in (("{correct = 1.0, format = 0.1}", True), ("{correct = 1.0}", False)):
        code, printed, _ = asked(pods, model, "Be brief.", "", more=(f"--task.rewards={rewards}",))
        words = " ".join(printed.split())
        assert code == 0 and "5 questions, 3 answers each, temperature 0.9" in words
        assert words.count("'Be brief.'") == 1 and words.count("own: none") == 1
        assert ("in form" in words) == has_form


@pytest.mark.parametrize(
    ("prompts", "more", "wanted"),
    [
        (("Be brief.",), ("--task.chat=false",), ["--system-prompt 'Be brief.'", "task.chat = true"]),
        (("Be brief.", "Be brief."), (), ["--system-prompt 'Be brief.' is given twice", "keep one"]),
        (("pods_single_gpus",), (), ["--system-prompt 'pods_single_gpus'", "Did you mean 'pods_single_gpu'?"]),
        (("Be brief.",), ("--search", "majority"), ["--system-prompt", "leave it out, or leave --search out"]),
        (
            ("Be brief. " * 20,),
            ("--rollouts.max_prompt_tokens=100",),
            ["--system-prompt 'Be brief. Be", "rollouts.max_prompt_tokens = 100", "raise the limit"],
        ),
    ],
)
def test_what_cannot_be_compared_is_one_line_that_names_the_prompt(
    prompts: tuple[str, ...], more: tuple[str, ...], wanted: list[str], pods: Pods, model: str
) -> None:
    sizes = [word for word in SIZES if not more or not word.startswith(more[0].partition("=")[0])]
    flags = [word for prompt in prompts for word in ("--system-prompt", prompt)]
    code, _, errors = pods("eval", model, "--task", "arithmetic", *sizes, *flags, *more)
    last = errors.strip().splitlines()[-1]
    assert code == 2 and last.startswith("error: ") and all(text in last for text in wanted), last
