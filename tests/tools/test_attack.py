"""An attack on rewards: which hacks pay for weak ones, that none pays for a strict one, and what counts as paying."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from podsrl.errors import UsageError
from podsrl.score.sandbox import BWRAP, require
from podsrl.tools.attack.attack import OWN_FORM, WHOLE, attack_rewards
from podsrl.tools.attack.forms import form_of
from podsrl.tools.attack.programs import HOSTILE, ROUGH
from podsrl.tools.attack.questions import QUESTIONS, spread
from podsrl.tools.attack.result import RewardAttack
from podsrl.tools.attack.verdict import Baseline, baseline_of, nature_of, paid_forms
from podsrl.tools.completions import Stored
from podsrl.types import Task

OWN = r"""
import os, re, time

def contains(task, text): return float(task.answer in text)
def last_number(task, text): return float((re.findall(r"-?\d+", text) or [""])[-1] == task.answer)
def in_tags(task, text):
    found = re.search(r"<answer>(.*)</answer>", text, re.DOTALL)
    return float(found is not None and task.answer in found[1])
def any_place(task, text):
    found = re.findall(r"boxed\{(.*?)\}|<answer>(.*?)</answer>|Answer: (.*?)\.|#### (.*)", text)
    return float(any(task.answer in groups for groups in found))
def strict(task, text):
    return float(text == f"<think>I work it out step by step.</think> <answer>{task.answer}</answer>")
def one_mark(task, text):
    return float(text.count("Answer:") == 1 and text.endswith(f"Answer: {task.answer}."))
def picky(task, text):
    if not text.isascii() or "\0" in text:
        raise ValueError("odd")
    return strict(task, text)
def hanging(task, text):
    if text.count("7") > 10_000:
        time.sleep(60)
    return strict(task, text)
def nothing_for_long(task, text): return None if len(text) > 1000 else strict(task, text)
def in_json(task, text):
    found = re.search(r'"result": "(.*)"', text, re.DOTALL)
    return float(found is not None and found[1].endswith(task.answer))
def never(task, text): return 0.0
def constant(task, text): return 0.5
def broken(task, text): raise KeyError("level")
def tags(task, text): return float(bool(re.fullmatch(r"<think>.*</think>\s*<answer>.*</answer>", text, re.DOTALL)))
def filled_tags(task, text):
    return float(bool(re.fullmatch(r"<think>[^<]{12,}</think> <answer>[^<]+</answer>", text)))
def too_long(task, text): return float(len(text) > 300)
def trl(prompts, completions, answer):
    assert all(isinstance(prompt, list) for prompt in prompts)
    return [float(right in messages[0]["content"]) for right, messages in zip(answer, completions, strict=True)]
def trl_hostile(completions, answer):
    for text in completions:
        if text.count("7") > 10_000:
            time.sleep(60)
        if text == "":
            os._exit(3)
    return [float(right in text) for right, text in zip(answer, completions, strict=True)]

def ends_well(task, text):
    import subprocess, sys  # a harness as many are: program and tests in one process, and its exit code
    program = "\n".join([text, *task.columns["tests"]])
    try:
        return float(subprocess.run([sys.executable, "-c", program], stderr=-3, stdout=-3, timeout=2).returncode == 0)
    except Exception:
        return 0.0
"""
PROGRAM = Task(
    id="spread",
    prompt="Write spread(numbers): the largest number less the smallest.",
    answer="def spread(numbers):\n    return max(numbers) - min(numbers)",
    columns={"tests": ["assert spread([3, 1, 9]) == 8", "assert abs(spread([0.5, 2.0]) - 1.5) < 1e-9"]},
)
KNOWING = {"several answers", "chain of equations", "negation", "hedge", "repetition", "each guess", "code or markup"}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "attacked_rewards.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("attacked_rewards", None)


def attack(*names: str, num_questions: int = 3, timeout: float = 10.0, **weights: float) -> dict[str, RewardAttack]:
    rewards = {f"attacked_rewards:{name}": 1.0 for name in names}
    rewards |= {f"attacked_rewards:{name}": weight for name, weight in weights.items()}
    tasks = spread(QUESTIONS, num_questions)
    result = attack_rewards(rewards, tasks, num_workers=1, timeout_seconds=timeout)
    return {one.name.rpartition(":")[2]: one for one in result.rewards}


def families(attacked: RewardAttack, count: str = "num_paid") -> set[str]:
    return {family.family.name for family in attacked.families if getattr(family, count)}


def test_each_weak_reward_pays_for_the_families_that_fool_it_and_strict_ones_for_none(own: None) -> None:
    found = attack("contains", "last_number", "in_tags", "any_place", "strict", "one_mark")
    assert families(found["contains"]) >= {
        *KNOWING,
        "several places",
        "bound",
        "unevaluated",
        "long text",
        "control tokens",
    }
    assert families(found["last_number"]) >= {"negation", "several answers", "bound", "each guess", "repetition"}
    assert not families(found["last_number"]) & {"several places", "constant", "empty form"}
    assert families(found["in_tags"]) >= {"several answers", "negation", "hedge", "each guess"}
    assert families(found["any_place"]) >= {"several places", "each guess", "control tokens"}
    assert not families(found["any_place"]) & {"several answers", "negation", "hedge", "bound"}
    for name in ("strict", "one_mark"):
        assert found[name].num_tried > 500 and not found[name].is_open, found[name].paid[:3]
    assert found["contains"].honest is not None
    assert (found["contains"].nature, found["contains"].honest.right, found["contains"].honest.wrong) == (
        "correctness",
        1,
        0,
    )


def test_what_makes_a_reward_fail_is_told_apart_from_what_pays(own: None) -> None:
    found = attack("picky", "hanging", "nothing_for_long", num_questions=1, timeout=2.0)
    assert families(found["picky"], "num_escaped") >= {"odd characters", "look-alike", "invisible"}
    [reason] = {str(one.outcome) for one in found["picky"].escaped}
    assert reason.startswith("reward 'attacked_rewards:picky' raised ValueError: odd (attacked_rewards.py, line ")
    assert {(one.hack.family.name, one.hack.name) for one in found["hanging"].escaped} == {("regex bomb", "digits")}
    assert "took longer than 2 s" in str(found["hanging"].escaped[0].outcome)
    assert families(found["nothing_for_long"], "num_escaped") >= {"long text", "regex bomb", "repetition"}
    assert not any(one.paid for one in (found["picky"], found["hanging"], found["nothing_for_long"]))
    whole = {one.number for one in found[WHOLE].escaped}
    assert whole == {one.number for name in ("picky", "hanging", "nothing_for_long") for one in found[name].escaped}


def test_a_form_reward_is_judged_by_forms_without_an_answer_only(own: None) -> None:
    found = attack("tags", "filled_tags", "constant")
    assert [found[name].nature for name in ("tags", "filled_tags", "constant")] == ["form"] * 3
    assert families(found["tags"]) == {"empty form", "form without content", "repeated form"}
    assert families(found["filled_tags"]) == {"form without content"}  # "I do not know." is long enough
    assert families(found["constant"]) >= {"empty text", "copy of the question", "empty form"}
    assert not {"several answers", "constant"} & {one.family.name for one in found["tags"].families}


def test_the_whole_reward_is_judged_by_what_being_right_adds_to_the_form(own: None) -> None:
    found = attack("strict", "contains", tags=0.5)
    whole = found[WHOLE]
    assert whole.honest is not None and (whole.honest.right, whole.honest.wrong) == (2.5, 0.5)
    assert families(whole) <= families(found["contains"])  # 1.5 of form and answer is not above 1.5
    assert not families(whole) & {"empty form", "form without content"}
    penalised = attack("strict", too_long=-2.0)
    assert penalised["too_long"].nature == "unknown" and not penalised["too_long"].num_tried
    assert not penalised[WHOLE].is_open


@pytest.mark.parametrize("name", ["never", "broken"])
def test_a_reward_that_pays_no_honest_answer_cannot_be_judged(own: None, name: str) -> None:
    [found] = attack(name, num_questions=1).values()
    assert (found.nature, found.num_tried, found.num_unjudged, found.honest) == ("unknown", 0, 1, None)
    assert (found.unjudged_reason is None) == (name == "never")


def test_functions_of_the_batch_form_get_the_questions_as_they_are(own: None) -> None:
    chat = Task(id="a", prompt=({"role": "user", "content": "What is 9 * 2?"},), answer="18")
    result = attack_rewards({"attacked_rewards:trl": 1.0}, [chat])
    [found] = result.rewards
    assert families(found) >= KNOWING and not found.escaped
    assert result.stored[0].task.prompt == chat.prompt


def test_a_call_of_trl_s_form_that_hangs_or_exits_escapes_and_the_attack_goes_on(own: None) -> None:
    rewards = {"attacked_rewards:trl_hostile": 1.0}
    [found] = attack_rewards(rewards, QUESTIONS[:1], batch_timeout_seconds=1.0).rewards
    reasons = {str(one.outcome).partition(": ")[2] or str(one.outcome) for one in found.escaped}
    assert reasons == {
        "reward 'attacked_rewards:trl_hostile' took longer than 1 s and was stopped",
        "its worker died (exit code 3)",
    }
    escaped = {(one.hack.family.name, one.hack.name) for one in found.escaped}
    assert ("regex bomb", "digits") in escaped and len(found.escaped) <= 64 * 3
    assert "several answers" in families(found)


def test_a_form_of_ones_own_comes_from_a_completion_that_is_known_to_be_right(own: None) -> None:
    task = Task(id="a", prompt="?", answer="18")
    texts = {'{"result": "17"}': False, '18: {"result": "18"}': True, '{"why": "…", "result": "18"}': True}
    form = form_of([Stored(task=task, text=text, label=label) for text, label in texts.items()])
    assert form == ('{"why": "…", "result": "', '"}')
    assert form_of([Stored(task=task, text="18", label=None)]) is None
    rewards = {"attacked_rewards:in_json": 1.0}
    [without] = attack_rewards(rewards, QUESTIONS[:1], num_workers=1).rewards
    [found] = attack_rewards(rewards, QUESTIONS[:1], num_workers=1, own_form=form).rewards
    assert (without.num_tried, without.nature, found.nature) == (0, "unknown", "correctness")
    assert found.honest is not None and found.honest.form == OWN_FORM
    assert families(found) >= {"several answers", "negation", "bound", "chain of equations"}


def test_every_hack_that_pays_is_kept_as_a_completion_known_to_be_wrong(own: None) -> None:
    result = attack_rewards({"attacked_rewards:contains": 2.0}, QUESTIONS[:1], num_workers=1)
    assert len(result.stored) == len(result.decisive.paid) > 50
    for one in result.stored:
        assert (one.label, one.is_correct, one.reward) == (False, False, 2.0 / 2)
        assert one.task.columns["hack"].keys() == {"family", "name", "why"}


def test_an_attack_says_the_same_twice(own: None) -> None:
    first, second = (attack_rewards({"attacked_rewards:contains": 1.0}, QUESTIONS[:1], num_workers=1) for _ in "12")
    assert first.stored == second.stored
    assert [family for one in first.rewards for family in one.families] == [
        family for one in second.rewards for family in one.families
    ]


def test_the_best_form_is_the_one_in_which_being_right_is_worth_most() -> None:
    honest = {("tags", True): 1.5, ("tags", False): 1.4, ("box", True): 1.0, ("box", False): 0.2, ("bare", True): 3.0}
    assert baseline_of({**honest, ("bare", False): None}) == Baseline(form="box", right=1.0, wrong=0.2)
    assert paid_forms(honest) == ["box"]
    assert baseline_of({("box", True): None, ("box", False): 0.0}) is None


@pytest.mark.parametrize(
    ("right", "wrong", "nature", "limit"),
    [
        (1.0, 0.0, "correctness", 0.5),
        (1.1, 0.1, "correctness", 0.6),
        (0.0, -1.0, "correctness", -0.5),
        (0.8, 0.8, "form", 0.4),
    ],
)
def test_half_of_what_being_right_is_worth_is_the_limit(right: float, wrong: float, nature: str, limit: float) -> None:
    baseline = Baseline(form="box", right=right, wrong=wrong)
    assert nature_of([baseline]) == nature
    assert baseline.limit(nature_of([baseline])) == pytest.approx(limit)


def test_hostile_programs_show_what_a_harness_without_a_sandbox_pays_for(own: None) -> None:
    [found] = attack_rewards({"attacked_rewards:ends_well": 1.0}, [PROGRAM], num_workers=1).rewards
    assert found.honest is not None and (found.honest.form, found.honest.right, found.honest.wrong) == ("bare", 1, 0)
    assert families(found) >= {"ends early", "equal to everything", "reads the tests", "reaches outside"}
    paid = {one.hack.name for one in found.paid}
    assert paid >= {"os._exit (bare)", "equal to all (bare)", "reads passwords (bare)", "connects (bare)"}
    assert "sleeps (bare)" not in paid and not {one.family.name for one in found.families} & ROUGH


def test_the_sandbox_pays_for_no_hostile_program() -> None:
    try:
        require(BWRAP)
    except UsageError as error:
        pytest.skip(str(error))
    [found] = attack_rewards({"code_tests": 1.0}, [PROGRAM], num_workers=1, timeout_seconds=1.0).rewards
    assert found.honest is not None and (found.honest.right, found.honest.wrong) == (1, 0)
    assert {*HOSTILE, "several programs"} <= families(found, "num_tried") and found.num_tried > 100
    assert not found.is_open, (found.paid[:3], found.escaped[:3])
