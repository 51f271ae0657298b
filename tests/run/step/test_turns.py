"""Rollouts of several turns: against loops by hand, and whatever the environment does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import environments
import kitchen
import made
from beside import Beside
from environments import Direct
from podsrl.config.load import load_config
from podsrl.errors import UsageError
from podsrl.generate import Request, Sampling
from podsrl.policy import load_model, load_tokenizer, prompt_ids, with_tools
from podsrl.run.group_log import group_line
from podsrl.run.metrics import step_metrics
from podsrl.run.step.desk import new_group
from podsrl.run.step.step import training_step
from podsrl.run.step.trainer import Trainer
from podsrl.run.step.turns import EnvironmentTalks, no_talks
from podsrl.score import Reply, Tools, find_tools
from podsrl.tasks.columns import reply
from podsrl.types import Group, Open, Rollout, Selection, Task, Way
from runs import config_of

SIZES = ("rollouts.max_new_tokens=40", "model.path=builtin:arithmetic-mixed", "task.digits=1", "task.num_eval=4")


def trainer_of(
    function: Callable[[Task, list[str]], Any] | None, *overrides: str, max_turns: int = 4, tokenizer: Any = None
) -> Trainer:
    """In float64, so that other batches of the generator round below what is compared."""
    config = config_of(*SIZES, *overrides)
    trainer = Trainer(config, model=load_model(config.model).double(), tokenizer=tokenizer)
    if function is not None:
        direct: Any = Direct(function)
        trainer.desk._talks = EnvironmentTalks(direct, trainer.tokenizer, max_turns)
    return trainer


def answers(trainer: Trainer, **changes: Any) -> list[Group]:
    opens = [
        Open(group=new_group(f"g{i}", task), ways=(Way(count=8),)) for i, task in enumerate(trainer.tasks.eval[:2])
    ]
    return trainer.desk.answer(opens, replace(trainer.sampling, **changes))


def tokens_of(groups: list[Group]) -> list[tuple[int, ...]]:
    return [rollout.token_ids for group in groups for rollout in group.rollouts]


def test_turn_by_turn_is_one_uninterrupted_rollout_where_nothing_is_said() -> None:
    trainer = trainer_of(environments.silent)
    found = answers(trainer)
    trainer.desk._talks = no_talks
    whole = answers(trainer, stop_token_ids=())
    assert tokens_of(found) == tokens_of(whole)
    assert any(trainer.tokenizer.eos_token_id in tokens[:-1] for tokens in tokens_of(found))
    for one, other in zip(found, whole, strict=True):
        for a, b in zip(one.rollouts, other.rollouts, strict=True):
            assert a.given == () and a.finish_reason == b.finish_reason == "length"
            assert a.logprobs == pytest.approx(b.logprobs, abs=1e-6)


def test_what_is_said_is_read_as_in_a_loop_by_hand() -> None:
    """Of one rollout at a time: draw a turn, ask, encode, go on."""
    trainer = trainer_of(environments.echo, max_turns=3)
    decode, encode = trainer.tokenizer.decode, trainer.tokenizer.encode
    found, num_turns = answers(trainer), set[int]()
    for group in found:
        for rollout in group.rollouts:
            done, turns, given, tokens = rollout, list[str](), list[tuple[int, int]](), tuple[int, ...]()
            sampling = replace(trainer.sampling, max_new_tokens=40)
            while True:
                start = {done.index: replace(done, token_ids=tokens, logprobs=(0.0,) * len(tokens), given=())}
                request = Request(group.id, group.prompt_ids, 1, sampling, done.index, starts=start if tokens else {})
                [drawn] = trainer.engine.generate([request])
                turns.append(decode(drawn.token_ids[len(tokens) :], skip_special_tokens=True))
                tokens = drawn.token_ids
                reply = environments.echo(group.task, turns)
                if drawn.finish_reason == "length" or len(turns) == 3 or reply is None:
                    break
                said = tuple(encode(reply, add_special_tokens=False))
                if len(tokens) + len(said) >= 40:
                    break
                given.append((len(tokens), len(tokens) + len(said)))
                tokens += said
            assert (done.token_ids, done.given) == (tokens, tuple(given))
            assert [decode(tokens[t.start : t.end], skip_special_tokens=True) for t in done.turns] == turns
            num_turns.add(len(turns))
    assert num_turns == {1, 2, 3}


TEMPLATE = (
    "{% for m in messages %}{{ m['role'][0] }}: {{ m['content'] }}<eos>\\n{% endfor %}"
    "{% if add_generation_prompt %}a: {% endif %}"
)


def test_in_a_chat_prompt_turns_and_replies_are_the_whole_conversation_through_the_template() -> None:
    tokenizer = load_tokenizer(config_of(*SIZES).model)
    tokenizer.chat_template = TEMPLATE
    trainer = trainer_of(environments.echo, "task.chat=true", "rollouts.max_new_tokens=80", tokenizer=tokenizer)
    found, num_turns = answers(trainer), set[int]()
    for group in found:
        for rollout in group.rollouts:
            done = rollout
            turns = [tokenizer.decode(done.token_ids[t.start : t.end], skip_special_tokens=True) for t in done.turns]
            messages = list(group.task.prompt)
            for place, turn in enumerate(turns):
                messages.append({"role": "assistant", "content": turn})
                if place + 1 < len(turns):
                    reply = environments.echo(group.task, turns[: place + 1])
                    messages.append({"role": "user", "content": reply})
            whole = tokenizer.apply_chat_template(messages, tokenize=False)
            said = tokenizer.decode((*group.prompt_ids, *done.token_ids))
            assert whole.startswith(said.removesuffix("<eos>")) and len(whole) <= len(said) + len("<eos>\n")
            num_turns.add(len(turns))
    assert len(num_turns) > 1


def test_what_is_said_is_in_no_loss_and_counts_as_given() -> None:
    result = training_step(trainer_of(environments.echo))
    line = step_metrics(result)
    done = [rollout for group in result.groups for rollout in group.rollouts]
    assert line["tokens/given"] == sum(one.num_given for one in done) > 0
    assert line["tokens/generated"] == sum(one.num_drawn for one in done)
    assert line["tokens/trained"] == sum(sample.rollout.num_drawn for sample in result.samples)
    assert line["turns/mean"] == pytest.approx(sum(len(one.turns) for one in done) / len(done))
    assert line["turns/max"] == max(len(one.turns) for one in done) > 1
    assert line["logprob_gap"] < 1e-5
    assert all(logprob == 0 for one in done for start, end in one.given for logprob in one.logprobs[start:end])


def test_an_environment_that_fails_loses_that_rollout_alone() -> None:
    trainer = trainer_of(environments.fates, max_turns=3)
    result = training_step(trainer)
    reasons = {
        0: "environment 'direct' raised ValueError: no such door (environments.py, line ",
        1: "environment 'direct' returned b'",
        2: "environment 'direct' returned 10,485,760 characters, more than 1,048,576",
        3: "environment 'direct' returned half of a surrogate pair, not a text",
    }
    seen = set[int]()
    for group in result.groups:
        for rollout in group.rollouts:
            done, eos = rollout, trainer.tokenizer.eos_token_id
            last = trainer.tokenizer.decode(
                done.token_ids[done.turns[-1].start : done.turns[-1].end], skip_special_tokens=True
            )
            kind = environments.kind_of(last, 5) if done.token_ids[-1] == eos and len(done.turns) < 3 else 4
            seen.add(kind)
            assert (rollout.invalid_reason or "").startswith(reasons.get(kind, ""))
            assert rollout.is_valid == (kind == 4) and (done.status == "failed") == (kind < 4)
            for start, end in done.given:
                assert not {eos, 0} & set(done.token_ids[start:end])  # the text of a special token is none
    line = step_metrics(result)
    assert len(seen) >= 3 and line["rollouts/invalid"] == sum(
        not rollout.is_valid for group in result.groups for rollout in group.rollouts
    )
    kept = {(sample.group_id, sample.rollout.index) for sample in result.samples}
    lost = {(group.id, r.index) for group in result.groups for r in group.rollouts if r.invalid_reason}
    assert lost and not lost & kept


def test_rewards_of_turns_add_up_and_the_last_turn_is_heard_too() -> None:
    """What is said to a last turn is read by nobody; a turn that was cut earns nothing."""
    trainer = trainer_of(
        None,
        *("task.environment=environments:pays", "task.max_turns=3", "task.reward_workers=1"),
        *("task.rewards={environment=1.0,format=0.5}", "task.correct=environment"),
    )
    result, eos, num_heard = training_step(trainer), trainer.tokenizer.eos_token_id, set[int]()
    trainer.close()
    for rollout in (each for group in result.groups for each in group.rollouts):
        done = rollout
        decode = trainer.tokenizer.decode
        turns = [decode(done.token_ids[turn.start : turn.end], skip_special_tokens=True) for turn in done.turns]
        heard = turns if done.token_ids[-1] == eos else turns[:-1]
        gain = environments.paid(heard)
        assert sum(turn.reward for turn in done.turns) == rollout.parts["environment"] == gain
        assert rollout.is_correct == (gain >= 1)
        assert rollout.reward == gain + 0.5 * rollout.parts["format"]
        num_heard.add(len(heard))
    assert {2, 3} <= num_heard


def test_one_turn_is_as_without_an_environment() -> None:
    assert answers(trainer_of(environments.ends)) == answers(trainer_of(None))


def test_closed_groups_are_those_of_whole_ones() -> None:
    few = ("rollouts.num_rollouts=24", "select.num_kept=6", "task.rewards={correct=1.0}")
    plain = training_step(trainer_of(environments.echo, *few))
    closed = training_step(trainer_of(environments.echo, *few, "systems=certain", "options.certain.first=4"))
    kept = [[(s.group_id, s.rollout.token_ids, s.advantage) for s in each.samples] for each in (plain, closed)]
    assert kept[0] == kept[1]
    assert sum(len(group.rollouts) for group in closed.groups) < sum(len(group.rollouts) for group in plain.groups)
    assert step_metrics(closed)["tokens/pruned"] > 0


def test_a_recorded_rollout_says_which_of_its_text_was_given() -> None:
    trainer = trainer_of(environments.echo)
    [group] = answers(trainer)[:1]
    line = group_line(0, group, Selection(group_id=group.id, kept=(), dropped={}), [], trainer.tokenizer)
    for rollout, recorded in zip(group.rollouts, line["rollouts"], strict=True):
        done, text = rollout, rollout.text
        said = [trainer.tokenizer.decode(done.token_ids[a:b]) for a, b in done.given]
        assert [text[a:b] for a, b in recorded.get("given", [])] == said
    assert any("given" in recorded for recorded in line["rollouts"])


def test_what_an_answer_began_with_belongs_to_its_first_turn() -> None:
    heard: list[list[str]] = []
    trainer = trainer_of(lambda task, turns: heard.append(list(turns)), max_turns=2)
    ids = tuple(trainer.tokenizer.encode("1+1=2", add_special_tokens=False))
    group = new_group("g", trainer.tasks.eval[0])
    [found] = trainer.desk.answer([Open(group=group, ways=(Way(count=8, start_ids=ids),))], trainer.sampling)
    assert heard and all(first.startswith("1+1=2") for first, *_ in heard)
    assert all(rollout.given[0] == (0, len(ids)) for rollout in found.rollouts)


def test_the_workers_say_what_the_function_says() -> None:
    options = ("task.digits=2", "rollouts.num_prompts=2", "rollouts.num_rollouts=8", "select.num_kept=4")
    trainer = Trainer(load_config("columns", [*options, "task.num_eval=4", "task.reward_workers=1"]))
    found = trainer.sample().groups
    direct: Any = Direct(reply)
    trainer.desk._talks = EnvironmentTalks(direct, trainer.tokenizer, 8)
    assert trainer.sample().groups == found
    assert {len(rollout.turns) for group in found for rollout in group.rollouts} >= {3}
    trainer.close()


def test_a_lowered_time_limit_is_put_back_in_each_step_of_rollouts_that_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Direct] = []
    monkeypatch.setattr(Direct, "new_step", lambda self: steps.append(self))
    trainer = trainer_of(environments.echo, "order.ahead=1", "order.take=first", "order.rest=run")
    for _ in range(5):
        training_step(trainer)
    assert len(steps) >= 5


def test_tool_calls_and_results_are_the_whole_conversation_through_the_template() -> None:
    tokenizer = load_tokenizer(config_of(*SIZES).model)
    tokenizer.chat_template = kitchen.TEMPLATE.replace("<|im_end|>", "<eos>")
    names = ["kitchen:price", "kitchen:oven"]
    shown, direct = with_tools(tokenizer, find_tools(names)), Direct(Tools(names))
    task = Task(id="a", prompt=({"role": "user", "content": "What is it?"},), answer="0.5")
    turns: list[tuple[str, list[str]]] = [
        ('<tool_call>{"name": "price", "arguments": {"fruit": "fig"}}</tool_call>', ["0.5"]),
        (
            '<tool_call>{"name": "mix"}</tool_call>'
            '<tool_call>{"name": "oven", "arguments": {"program": "x"}}</tool_call>',
            ["Error: there is no tool 'mix'; there are: price, oven", "x<|im_end|><eos>"],
        ),
        ("It is 0.5.", []),
    ]
    messages: list[dict[str, str]] = [*map(dict, task.prompt)]
    done = Rollout(group_id="g", index=0, token_ids=(), logprobs=(), version=0, finish_reason="stop")
    sampling = Sampling(max_new_tokens=4000, stop_token_ids=())
    of_direct: Any = direct
    talk = EnvironmentTalks(of_direct, shown, 4)(sampling)
    talk.know(new_group("g", task))
    for turn, read in turns:
        tokens = (*done.token_ids, *tokenizer(f"{turn}<eos>", add_special_tokens=False)["input_ids"])
        assert talk.takes(replace(done, token_ids=tokens, logprobs=(0.0,) * len(tokens), finish_reason="stop"))
        [done] = talk.answers(is_idle=True)
        messages += [{"role": "assistant", "content": turn}, *({"role": "tool", "content": text} for text in read)]
        own = {"tools": shown.shown_tools, "tokenize": False, "add_generation_prompt": bool(read)}
        said = tokenizer.decode((*prompt_ids(shown, task), *done.token_ids))
        assert said == tokenizer.apply_chat_template(messages, **own).removesuffix("" if read else "\n")
    assert (
        done.finish_reason == "stop"
        and [call for turn in done.turns for call in turn.calls] == [True, False, True]
        and len(done.given) == 2
    )
    stops = [token for token in done.token_ids if token == tokenizer.eos_token_id]
    assert len(stops) == len(turns) + 1 + 2  # of the turns and of the results, and none that a result spells


def test_of_a_reply_that_has_no_room_only_the_beginning_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = load_tokenizer(config_of(*SIZES).model)
    sizes, call = list[int](), type(tokenizer).__call__

    def counted(self: Any, texts: Any, **options: Any) -> Any:
        sizes.extend(map(len, [texts] if isinstance(texts, str) else texts))
        return call(self, texts, **options)

    monkeypatch.setattr(type(tokenizer), "__call__", counted)
    tokens = (*tokenizer("1+2=3", add_special_tokens=False)["input_ids"], tokenizer.eos_token_id)
    for text, reason in (("1" * 1_000_000, "length"), ("1" * 200, "length"), ("1" * 20, "open")):
        sizes.clear()
        direct: Any = Direct(lambda task, turns, text=text: text)
        talks = EnvironmentTalks(direct, tokenizer, 4)
        task = Task(id="a", prompt="1+2=", answer="3")
        talk = talks(Sampling(max_new_tokens=40))
        talk.know(new_group("g", task))
        assert talk.takes(made.completion(tokens, group_id="g"))
        [done] = talk.answers(is_idle=True)
        assert made.end_of(done) == reason and sum(sizes) <= 32 * 40


def test_a_run_shows_its_tools_and_answers_calls_in_its_workers() -> None:
    tokenizer = load_tokenizer(config_of(*SIZES).model)
    tokenizer.chat_template = kitchen.TEMPLATE.replace("<|im_end|>", "<eos>").replace("t | tojson", "t.function.name")
    options = ("task.chat=true", "task.tools=kitchen:price", "rollouts.max_prompt_tokens=200")
    trainer = trainer_of(None, *options, "task.reward_workers=1", tokenizer=tokenizer)
    task = trainer.tasks.eval[0]
    assert "system\nprice\n" in tokenizer.decode(trainer.desk.prompt_ids(task))
    call = '<tool_call>{"name": "price", "arguments": {"fruit": "kiwi"}}</tool_call><eos>'
    tokens = tuple(tokenizer(call, add_special_tokens=False)["input_ids"])
    done = made.completion(tokens, group_id="g")
    talk = trainer.desk._talks(Sampling(stop_token_ids=()))
    talk.know(new_group("g", task))
    assert talk.takes(done)
    talk.wait(60.0)
    [found] = talk.answers(is_idle=True)
    trainer.close()
    assert found.turns[0].calls == (True,) and found.finish_reason == "length"  # no room for more
    assert tokenizer.chat_template == trainer.tokenizer.chat_template and not hasattr(tokenizer, "shown_tools")


def test_calls_and_those_that_failed_are_counted() -> None:
    tokenizer = load_tokenizer(config_of(*SIZES).model)
    tokenizer.chat_template = kitchen.TEMPLATE.replace("<|im_end|>", "<eos>")
    trainer = trainer_of(
        lambda task, turns: Reply(("?\n",), (len(turns) > 1,)),
        *("task.chat=true", "rollouts.max_new_tokens=160", "rollouts.max_prompt_tokens=400"),
        max_turns=3,
        tokenizer=tokenizer,
    )
    result = training_step(trainer)
    line, found = step_metrics(result), [rollout for group in result.groups for rollout in group.rollouts]
    calls = [[call for turn in done.turns for call in turn.calls] for done in found]
    for done, own in zip(found, calls, strict=True):
        more = len(own) - (len(done.turns) - 1)
        assert own == [False, True][: len(own)] and more <= (done.finish_reason == "length")
    assert line["tools/calls"] == sum(map(len, calls))
    assert 0 < line["tools/failed"] == sum(own[:1] == [False] for own in calls) < line["tools/calls"]
    assert "tools/calls" not in step_metrics(training_step(trainer_of(None)))


def test_a_generator_that_cannot_go_on_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Beside, "abilities", Beside.abilities - {"start"})
    with pytest.raises(UsageError, match=r"'environments:echo'.*lacks the ability 'start': use rollouts.generator"):
        Trainer(config_of("task.environment=environments:echo", "rollouts.generator=beside:beside"))
