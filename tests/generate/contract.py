"""What every generator must do, as tests: the built-in engine, vLLM in this process or on a server, a pool …

A test module makes a subclass of `GeneratorContract` whose fixture `generator` gives the generator to be tested, made
from the model folder `models.folder` with `SEED`, at most `LONGEST` tokens for a prompt and its completion, and the
folder's tokenizer; `left_nothing` looks for what it leaves behind:

    class TestMyGenerator(GeneratorContract):
        @pytest.fixture(scope="class")
        @classmethod
        def generator(cls, models: Models) -> Iterator[Generator]:
            with left_nothing():
                generator = ...
                yield generator
                generator.close()

All tests of a class share the generator: each leaves it with the first weights and nothing running.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor

from podsrl.errors import UsageError
from podsrl.generate import Generator, Request, Sampling, Setting, abilities_of
from podsrl.types import Parent, Rollout
from waiting import is_alive, wait_for, words_of

SEED = 4
LONGEST = 256
"""Tokens of the longest prompt with its completion: the model's window."""
MAX_GAP = 2e-4
"""Largest difference to log-probs of Hugging Face's own forward, in float32."""
PROMPT = (5, 7, 9)
LONG_PROMPT = tuple(3 + (7 * i + i // 5) % 90 for i in range(200))
"""Long enough for caches that keep whole blocks of a prompt's keys and values."""
PLAIN = Sampling(temperature=0.9, max_new_tokens=24, stop_token_ids=())
LONG = Sampling(max_new_tokens=200, stop_token_ids=())
SHAPES = {
    "plain": Sampling(max_new_tokens=24, stop_token_ids=()),
    "temperature": Sampling(temperature=0.7, max_new_tokens=24, stop_token_ids=()),
    "filtered": Sampling(temperature=0.8, top_k=20, top_p=0.9, max_new_tokens=24, stop_token_ids=()),
    "min_p": Sampling(temperature=1.1, min_p=0.05, max_new_tokens=24, stop_token_ids=()),
}


@dataclass(frozen=True)
class Models:
    """A model, another of the same shape, and the first one's folder."""

    folder: Path
    first: Any
    second: Any
    tokenizer: Any


def new_models(folder: Path) -> Models:
    """Random Qwen2 models whose probabilities are far from uniform."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from podsrl.tools.pretrain import character_tokenizer

    config = Qwen2Config(
        vocab_size=99,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,  # among the sizes of vLLM's kernels
        max_position_embeddings=LONGEST,
        initializer_range=0.2,
        tie_word_embeddings=True,  # as in most small models: the head's weights come under the embedding's name
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    first = Qwen2ForCausalLM(config).eval()
    second = copy.deepcopy(first)
    with torch.no_grad():
        for weight in second.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    tokenizer = character_tokenizer()
    first.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Models(folder, first, second, tokenizer)


def setting_of(models: Models, **changes: Any) -> Setting:
    """Of a generator that loads the folder by itself."""
    given = {"seed": SEED, "max_prompt_tokens": LONGEST - 32, "max_new_tokens": 32, **changes}
    return Setting(load_model=lambda: models.first, folder=str(models.folder), tokenizer=models.tokenizer, **given)


STAYING = ("resource_tracker", "forkserver", "nursery")
"""Helpers of `multiprocessing` and of the tests, which stay."""


@contextmanager
def left_nothing(folder: Path | None = None) -> Iterator[None]:
    """Check that no child process is left that was not there before, and no file in `folder`."""
    before = children()
    yield
    wait_for(lambda: children() <= before, "a process was left", 60)
    assert folder is None or list(folder.iterdir()) == []


def children() -> set[str]:
    """Process id and command of this process's children, but for helpers that stay."""
    found = {
        f"{child.pid}: {' '.join(words_of(child.pid))}" for child in psutil.Process().children() if is_alive(child.pid)
    }
    return {each for each in found if not any(name in each for name in STAYING)}


def tables_of(model: Any, prompt: Sequence[int], ids: Sequence[int], sampling: Sampling) -> Tensor:
    """[T, V] log-probs before each of the tokens by Hugging Face's forward; -inf for what the filters drop."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].double()
    return torch.stack([filtered(row / sampling.temperature, sampling) for row in logits])


def filtered(logits: Tensor, sampling: Sampling) -> Tensor:
    """[V] log-probs of one distribution."""
    if sampling.top_k:
        logits[logits < logits.topk(sampling.top_k).values[-1]] = -torch.inf
    ordered, order = logits.softmax(-1).sort(descending=True)
    logits[order[ordered.cumsum(-1) - ordered >= sampling.top_p]] = -torch.inf
    probs = logits.softmax(-1)
    logits[probs < sampling.min_p * probs.max()] = -torch.inf
    return logits.log_softmax(-1)


def first_table(model: Any, prompt: Sequence[int]) -> Tensor:
    """[V] log-probs of the first token, as the model has them."""
    return tables_of(model, prompt, [0], Sampling())[0]


def largest_gap(model: Any, prompt: Sequence[int], done: Rollout, sampling: Sampling) -> float:
    """Between the completion's log-probs and Hugging Face's; infinite for a token that could not be drawn."""
    table = tables_of(model, prompt, done.token_ids, sampling)
    wanted = table.gather(1, torch.tensor(done.token_ids)[:, None])[:, 0]
    return float((wanted - torch.tensor(done.logprobs, dtype=torch.float64)).abs().max())


def behind_old_keys(old: Any, new: Any, prompt: Sequence[int], ids: Sequence[int], place: int) -> Tensor:
    """[T] log-probs of the tokens: the old weights draw the first `place` ones, the new ones the others.

    The new weights see keys and values that the old ones made of all that was read before; they read the newest token.
    """
    read = torch.tensor([[*prompt, *ids]])
    length = len(prompt) + place - 1
    with torch.no_grad():
        before = old(read[:, :length], use_cache=True)
        after = new(read[:, length:-1], past_key_values=before.past_key_values).logits[0]
    table = torch.cat([before.logits[0, len(prompt) - 1 :], after]).double().log_softmax(-1)
    return table.gather(1, torch.tensor(ids)[:, None])[:, 0]


def greedy(model: Any, prompt: Sequence[int], count: int) -> tuple[int, ...]:
    """Hugging Face's greedy completion, end tokens and all."""
    ids = torch.tensor([list(prompt)])
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count, eos_token_id=None
    )
    return tuple(made[0, len(prompt) :].tolist())


def by_place(completions: Iterable[Rollout]) -> dict[tuple[str, int], Rollout]:
    completions = list(completions)
    found = {(done.group_id, done.index): done for done in completions}
    assert len(found) == len(completions), "a completion came twice"
    return found


def tokens_of(completions: Iterable[Rollout]) -> dict[tuple[str, int], tuple[int, ...]]:
    return {place: done.token_ids for place, done in by_place(completions).items()}


def drain(generator: Generator) -> dict[tuple[str, int], Rollout]:
    """What ends until no rollout is left."""
    found = list[Rollout]()
    while generator.num_unfinished > 0:
        found += generator.poll()
    return by_place(found)


def begun(done: Rollout, length: int, given: tuple[tuple[int, int], ...] = ()) -> Rollout:
    """The first tokens of a completion."""
    return Rollout(
        group_id="g",
        status="open",
        index=done.index,
        token_ids=done.token_ids[:length],
        logprobs=done.logprobs[:length],
        version=done.version,
        versions=done.versions[:length],
        given=given,
    )


def going_on(done: Rollout, request: Request) -> Request:
    """For what is behind the tokens of a completion."""
    return replace(request, num_rollouts=1, first_index=done.index, starts={done.index: done})


def next_turn(done: Rollout) -> Request:
    """Of a conversation: two tokens that an environment gives, and then as many drawn ones as there is room for."""
    count = len(done.token_ids)
    start = Rollout(
        group_id="g",
        status="open",
        index=done.index,
        token_ids=(*done.token_ids, 11, 30),
        logprobs=(*done.logprobs, 0.0, 0.0),
        version=done.version,
        given=((count, count + 2),),
    )
    return Request(done.group_id, PROMPT, 1, PLAIN, first_index=done.index, starts={done.index: start})


def temporary(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Its weights, each in memory that is written over when the next is asked for."""
    for name, weight in model.named_parameters():
        copied = weight.detach().clone()
        yield name, copied
        copied.fill_(torch.nan)


def num_tries(generator: Generator) -> int:
    """How often the order of what happens may be tried: once where the generator works in this process."""
    return 10 if "beside" in abilities_of(generator) else 1


def begin_with_short(generator: Generator, *long: Request) -> None:
    """Leave long requests running, when one that is asked last has come first.

    On a busy machine an engine of another process may read the last request late, but not every time.
    """
    for _ in range(num_tries(generator)):
        generator.submit(long)
        generator.submit([Request("short", PROMPT, 1, Sampling(max_new_tokens=2))])
        while not (found := generator.poll()):
            pass
        if [done.group_id for done in found] == ["short"]:
            return
        generator.abort([request.id for request in long])
        drain(generator)
    raise AssertionError("a short completion came after a long one, each time")


class GeneratorContract:
    """See the module."""

    @pytest.fixture(scope="class")
    @classmethod
    def models(cls, tmp_path_factory: pytest.TempPathFactory) -> Models:
        return new_models(tmp_path_factory.mktemp("contract") / "model")

    @pytest.fixture(scope="class")
    @classmethod
    def generator(cls, models: Models) -> Iterator[Generator]:
        raise NotImplementedError("of the subclass")

    @pytest.fixture
    def needs(self, generator: Generator) -> Callable[[str], None]:
        """Skips the test where the generator has not an ability."""

        def check(ability: str) -> None:
            if ability not in abilities_of(generator):
                pytest.skip(f"{type(generator).__name__} has not the ability {ability!r}")

        return check

    # --- tokens and log-probs ---

    def test_greedy_tokens_are_hugging_faces(self, generator: Generator, models: Models) -> None:
        prompts = {"a": PROMPT, "b": (11,), "c": LONG_PROMPT[:50]}
        sampling = Sampling(top_k=1, max_new_tokens=20, stop_token_ids=())
        found = by_place(generator.generate([Request(name, ids, 1, sampling) for name, ids in prompts.items()]))
        assert {name: found[name, 0].token_ids for name in prompts} == {
            name: greedy(models.first, ids, 20) for name, ids in prompts.items()
        }
        assert all(max(map(abs, done.logprobs)) < 1e-6 for done in found.values())

    @pytest.mark.parametrize("shape", SHAPES)
    def test_behaviour_logprobs_are_those_of_what_was_sampled_from(
        self, generator: Generator, models: Models, shape: str, record_property: Callable[[str, object], None]
    ) -> None:
        sampling = SHAPES[shape]
        completions = list(generator.generate([Request("a", PROMPT, 6, sampling), Request("b", (30, 31), 6, sampling)]))
        prompts = {"a": PROMPT, "b": (30, 31)}
        gap = max(largest_gap(models.first, prompts[done.group_id], done, sampling) for done in completions)
        record_property("largest gap of log-probs", gap)
        assert gap < MAX_GAP

    def test_rollouts_differ_and_are_drawn_from_the_whole_distribution(
        self, generator: Generator, models: Models
    ) -> None:
        """400 first tokens: each of the three likeliest comes about as often as it should."""
        drawn = [
            done.token_ids[0] for done in generator.generate([Request("many", PROMPT, 400, Sampling(max_new_tokens=1))])
        ]
        table = first_table(models.first, PROMPT).exp()
        for token in table.topk(3).indices.tolist():
            share = float(table[token])
            assert abs(drawn.count(token) / 400 - share) < 4.5 * (share * (1 - share) / 400) ** 0.5

    # --- random numbers ---

    def test_the_same_id_gives_the_same_tokens_and_another_gives_others(self, generator: Generator) -> None:
        first = tokens_of(generator.generate([Request("a", PROMPT, 8, PLAIN), Request("b", PROMPT, 8, PLAIN)]))
        again = tokens_of(generator.generate([Request("b", PROMPT, 8, PLAIN), Request("a", PROMPT, 8, PLAIN)]))
        assert again == first
        assert {ids for (name, _), ids in first.items() if name == "a"} != {
            ids for (name, _), ids in first.items() if name == "b"
        }

    def test_eight_rollouts_and_24_that_join_are_the_32_of_one_request(
        self, generator: Generator, needs: Callable[[str], None]
    ) -> None:
        needs("join")
        whole = tokens_of(generator.generate([Request("q", PROMPT, 32, PLAIN)]))
        found = list(generator.generate([Request("q", PROMPT, 8, PLAIN)]))
        later = list(generator.generate([Request("q", PROMPT, 24, PLAIN, first_index=8)]))
        assert tokens_of([*found, *later]) == whole
        assert len(set(whole.values())) > 16

    def test_a_rollout_goes_on_behind_what_there_is_of_it(
        self, generator: Generator, models: Models, needs: Callable[[str], None]
    ) -> None:
        needs("start")
        before = by_place(generator.generate([Request("q", PROMPT, 4, PLAIN)]))
        starts = {i: begun(before["q", i], length) for i, length in ((1, 9), (2, 23))}
        starts[2] = replace(starts[2], heard=(((True, False), 0.5),), parent=Parent(0, 4))
        starts[3] = Rollout(
            group_id="g", status="open", index=3, token_ids=(11, 30), logprobs=(0.0, 0.0), version=0, given=((0, 2),)
        )
        found = by_place(generator.generate([Request("q", PROMPT, 4, PLAIN, starts=starts)]))
        assert found["q", 0].token_ids == before["q", 0].token_ids
        for index, start in starts.items():
            done, length = found["q", index], len(start.token_ids)
            assert (done.token_ids[:length], done.given) == (start.token_ids, start.given)
            assert (done.heard, done.parent) == (start.heard, start.parent)
            assert done.logprobs[:length] == start.logprobs
            assert (len(done.token_ids), done.finish_reason) == (24, "length")
            drawn = replace(done, token_ids=done.token_ids[length:], logprobs=done.logprobs[length:])
            assert largest_gap(models.first, (*PROMPT, *start.token_ids), drawn, PLAIN) < MAX_GAP

    # --- which completions come ---

    def test_every_completion_comes_once(self, generator: Generator) -> None:
        counts = {"a": (1, 5), "b": (40, 3), "c": (7, 9), "d": (24, 1)}
        requests = [
            Request(name, PROMPT, n, Sampling(max_new_tokens=k, stop_token_ids=())) for name, (k, n) in counts.items()
        ]
        found = by_place(generator.generate(requests))
        assert found.keys() == {(name, index) for name, (_, n) in counts.items() for index in range(n)}
        assert all(len(done.token_ids) == counts[done.group_id][0] for done in found.values())
        assert {done.finish_reason for done in found.values()} == {"length"}

    def test_no_requests_give_no_completions(self, generator: Generator) -> None:
        assert list(generator.generate([])) == []

    def test_a_short_one_comes_before_the_long_ones_end(self, generator: Generator) -> None:
        begin_with_short(generator, Request("long", PROMPT, 16, LONG))
        assert len(drain(generator)) == 16

    def test_a_caller_may_stop_early_and_ask_again(self, generator: Generator) -> None:
        wanted = tokens_of(generator.generate([Request("x", PROMPT, 4, PLAIN)]))
        half_read = generator.generate([Request("x", PROMPT, 32, LONG), Request("y", PROMPT, 2, PLAIN)])
        next(iter(half_read))
        half_read.close()  # type: ignore[attr-defined]
        assert generator.num_unfinished == 0
        assert tokens_of(generator.generate([Request("x", PROMPT, 4, PLAIN)])) == wanted

    # --- submit and poll ---

    def test_what_is_submitted_in_pieces_while_others_run_is_what_one_call_gives(self, generator: Generator) -> None:
        requests = [Request(name, PROMPT, n, PLAIN) for name, n in (("a", 3), ("b", 1), ("c", 4))]
        wanted = tokens_of(generator.generate(requests))
        found = list[Rollout]()
        for i, request in enumerate(requests):
            generator.submit([request])
            assert generator.num_unfinished == sum(one.num_rollouts for one in requests[: i + 1]) - len(found)
            found += generator.poll(0)
        found += drain(generator).values()
        assert tokens_of(found) == wanted
        assert generator.num_unfinished == 0 and list(generator.poll()) == list(generator.poll(0)) == []

    def test_requests_with_one_id_run_at_the_same_time_if_their_indices_differ(
        self, generator: Generator, needs: Callable[[str], None]
    ) -> None:
        needs("join")
        wanted = tokens_of(generator.generate([Request("q", PROMPT, 12, PLAIN)]))
        generator.submit([Request("q", PROMPT, 2, PLAIN, first_index=first) for first in (4, 0, 10)])
        found = list(generator.poll(0))
        generator.submit([Request("q", PROMPT, 2, PLAIN, first_index=first) for first in (6, 2)])
        generator.submit([Request("q", PROMPT, 2, PLAIN, first_index=8)])
        assert tokens_of([*found, *drain(generator).values()]) == wanted

    def test_a_rollout_that_is_unfinished_is_not_submitted_again(
        self, generator: Generator, needs: Callable[[str], None]
    ) -> None:
        needs("join")
        long = Request("long", PROMPT, 4, LONG)
        wanted = tokens_of(generator.generate([long]))
        begin_with_short(generator, long)
        for twice in ([replace(long, first_index=3)], [Request("x", PROMPT, 2, PLAIN)] * 2):
            with pytest.raises(UsageError, match=f"'{twice[0].id}'"):
                generator.submit([Request("y", PROMPT, 2, PLAIN), *twice])
        assert tokens_of(drain(generator).values()) == wanted, "nothing was submitted"

    def test_a_turn_goes_on_while_the_others_of_its_group_run(
        self, generator: Generator, needs: Callable[[str], None]
    ) -> None:
        """A rollout that has ended is submitted again with its tokens, and tokens that an environment gave."""
        needs("start")
        needs("join")
        turn = replace(PLAIN, max_new_tokens=6)
        generator.submit([Request("q", PROMPT, 6, turn), Request("long", PROMPT, 2, LONG)])
        found, first = list[Rollout](), dict[int, Rollout]()
        while generator.num_unfinished:
            for done in generator.poll():
                if done.group_id == "q" and done.index not in first:
                    first[done.index] = done
                    generator.submit([next_turn(done)])
                else:
                    found.append(done)
        later = [next_turn(done) for done in first.values()]
        whole = [*generator.generate(later), *generator.generate([Request("long", PROMPT, 2, LONG)])]
        assert len(first) == 6 and tokens_of(found) == tokens_of(whole)

    def test_generate_is_refused_while_rollouts_are_unfinished(self, generator: Generator) -> None:
        wanted = tokens_of(generator.generate([Request("x", PROMPT, 2, PLAIN)]))
        generator.submit([Request("x", PROMPT, 2, PLAIN)])
        with pytest.raises(UsageError, match=r"2 rollouts are unfinished; add to them with submit\(\)"):
            generator.generate([Request("y", PROMPT, 2, PLAIN)])
        assert tokens_of(drain(generator).values()) == wanted

    # --- how a completion ends ---

    def test_a_stop_token_is_the_last_one(self, generator: Generator) -> None:
        whole = tokens_of(generator.generate([Request("s", PROMPT, 12, PLAIN)]))
        stops = tuple({ids[4] for ids in whole.values()} | {ids[9] for ids in whole.values()})[:5]
        self.check_ends(generator, whole, replace(PLAIN, stop_token_ids=stops), lambda ids: ids[-1] in stops)

    def test_where_no_stop_tokens_are_named_the_model_s_end_token_is_one(self, generator: Generator) -> None:
        """Token 1, in the folder's tokenizer and generation config; 64 rollouts, so that some draw it."""
        whole = tokens_of(generator.generate([Request("e", PROMPT, 64, PLAIN)]))
        found = tokens_of(generator.generate([Request("e", PROMPT, 64, replace(PLAIN, stop_token_ids=None))]))
        assert found == {place: ids[: ids.index(1) + 1] if 1 in ids else ids for place, ids in whole.items()}
        assert 0 < sum(ids[-1] == 1 for ids in found.values()) < 64

    def test_a_stop_string_ends_with_the_token_that_completes_it(self, generator: Generator, models: Models) -> None:
        decode = models.tokenizer.decode
        whole = tokens_of(generator.generate([Request("s", PROMPT, 12, PLAIN)]))
        texts = [decode(ids) for ids in whole.values()]
        strings = (texts[0][6:8], texts[1][3:4], "<eos>")
        is_end = lambda ids: any(string in decode(ids) for string in strings)  # noqa: E731
        assert self.check_ends(generator, whole, replace(PLAIN, stop_strings=strings), is_end) >= 2

    def check_ends(self, generator: Generator, whole: Any, sampling: Sampling, is_end: Callable[[Any], bool]) -> int:
        """Each rollout ends with the first token behind which it may; how many do so before their last."""
        found = by_place(generator.generate([Request("s", PROMPT, 12, sampling)]))
        for place, ids in whole.items():
            end = next((k for k in range(1, len(ids) + 1) if is_end(ids[:k])), None)
            wanted = (ids, "length") if end is None else (ids[:end], "stop")
            assert (found[place].token_ids, found[place].finish_reason) == wanted
            assert len(found[place].logprobs) == len(found[place].token_ids)
        num_stopped = sum(done.finish_reason == "stop" for done in found.values())
        assert num_stopped > 0
        return num_stopped

    # --- steering ---

    def test_a_group_is_aborted_and_the_others_are_not(self, generator: Generator) -> None:
        self.check_abort(generator, ["long"], {("long", index) for index in range(24)})

    def test_a_rollout_is_aborted_and_the_others_are_not(
        self, generator: Generator, needs: Callable[[str], None]
    ) -> None:
        needs("abort_rollouts")
        wanted = {("long", 3), ("long", 20)}
        self.check_abort(generator, wanted, wanted)

    def test_nothing_is_aborted_by_an_empty_list_or_by_an_id_that_does_not_run(self, generator: Generator) -> None:
        self.check_abort(generator, [], set())
        self.check_abort(generator, ["unknown", "short"], set())

    def test_what_is_aborted_goes_on_from_its_tokens_while_others_run(
        self, generator: Generator, models: Models, needs: Callable[[str], None]
    ) -> None:
        for ability in ("partial", "abort_rollouts", "start", "join"):
            needs(ability)
        long = Request("long", PROMPT, 6, LONG)
        wanted = tokens_of(generator.generate([long]))
        begin_with_short(generator, long)
        keys = {("long", 1), ("long", 4)}
        generator.abort(keys)
        found, before = list[Rollout](), dict[tuple[str, int], Rollout]()
        while generator.num_unfinished:
            for done in generator.poll():
                if done.status == "open":
                    before[done.group_id, done.index] = done
                    generator.submit([going_on(done, long)])
                else:
                    found.append(done)
        assert before.keys() <= keys and {done.finish_reason for done in found} == {"length"}
        for place, done in by_place(found).items():
            if place in before:
                length = len(before[place].token_ids)
                assert (done.token_ids[:length], len(done.token_ids)) == (before[place].token_ids, 200)
                assert largest_gap(models.first, PROMPT, done, LONG) < MAX_GAP
            else:
                assert done.token_ids == wanted[place]

    def test_an_abort_that_comes_late_ends_nothing_of_what_is_submitted_then(self, generator: Generator) -> None:
        wanted = tokens_of(generator.generate([Request("x", PROMPT, 4, PLAIN)]))
        generator.abort(["x"])
        found = list(generator.generate([Request("x", PROMPT, 4, PLAIN)]))
        assert tokens_of(found) == wanted
        assert {done.finish_reason for done in found} == {"length"}

    def check_abort(self, generator: Generator, ids: Any, wanted: set[tuple[str, int]]) -> None:
        """Abort after the first completion; those that end by it have the tokens that they had, or none.

        On a busy machine an engine of another process may hear of it when some have ended, but not every time.
        """
        long, other = Request("long", PROMPT, 24, LONG), Request("other", PROMPT, 3, LONG)
        whole = tokens_of(generator.generate([long, other]))
        aborted = None
        for _ in range(num_tries(generator)):
            begin_with_short(generator, long, other)
            generator.abort(ids)
            places = drain(generator)
            assert places.keys() == whole.keys()
            aborted = {place for place, done in places.items() if done.status == "open"}
            assert aborted <= wanted
            for place, whole_ids in whole.items():
                tokens = places[place].token_ids
                assert tokens == (whole_ids[: len(tokens)] if place in aborted else whole_ids)
                assert len(places[place].logprobs) == len(tokens)
            if aborted == wanted:
                return
        assert aborted == wanted

    # --- weights ---

    def test_new_weights_are_used_and_their_version_is_stamped(
        self, generator: Generator, models: Models, record_property: Callable[[str, object], None]
    ) -> None:
        """A prompt that was read with the old weights is read again with the new ones."""
        request = Request("w", LONG_PROMPT, 4, Sampling(max_new_tokens=6, stop_token_ids=()))
        old = list(generator.generate([request]))
        try:
            generator.load_weights(temporary(models.second), 7)
            new = list(generator.generate([request]))
            assert {done.version for done in new} == {generator.version} == {7}
            assert all(set(done.versions) <= {7} for done in new)
            gap = max(largest_gap(models.second, LONG_PROMPT, done, request.sampling) for done in new)
            record_property("largest gap of log-probs under new weights", gap)
            assert gap < MAX_GAP
            assert min(largest_gap(models.first, LONG_PROMPT, done, request.sampling) for done in new) > 100 * MAX_GAP
        finally:
            generator.load_weights(temporary(models.first), 8)
        assert tokens_of(generator.generate([request])) == tokens_of(old)

    def test_a_load_of_equal_weights_in_the_middle_changes_no_token(
        self, generator: Generator, models: Models, needs: Callable[[str], None]
    ) -> None:
        needs("load")
        long = Request("long", PROMPT, 6, LONG)
        wanted = tokens_of(generator.generate([long]))
        begin_with_short(generator, long)
        generator.load_weights(temporary(models.first), 9)
        generator.submit([Request("x", PROMPT, 2, PLAIN)])
        found = drain(generator)
        assert tokens_of(done for done in found.values() if done.group_id == "long") == wanted
        assert all(set(done.versions or (done.version,)) == {9} for (name, _), done in found.items() if name == "x")

    def test_rollouts_that_run_draw_from_new_weights_behind_the_keys_and_values_of_the_old(
        self, generator: Generator, models: Models, needs: Callable[[str], None]
    ) -> None:
        """The twin is Hugging Face's model with `past_key_values` that the old weights made."""
        needs("load")
        long = Request("long", LONG_PROMPT[:20], 4, LONG)
        before = generator.version
        for _ in range(num_tries(generator)):
            begin_with_short(generator, long)
            generator.load_weights(temporary(models.second), before + 1)
            try:
                found = drain(generator)
            finally:
                generator.load_weights(temporary(models.first), before)
            if all(done.versions for done in found.values()):
                break  # none had ended before the new weights came
        for done in found.values():
            place = done.versions.index(before + 1)
            assert done.versions == (before,) * place + (before + 1,) * (200 - place) and done.version == before
            wanted = behind_old_keys(models.first, models.second, long.prompt_ids, done.token_ids, place)
            assert (wanted - torch.tensor(done.logprobs, dtype=torch.float64)).abs().max() < MAX_GAP
            assert largest_gap(models.second, long.prompt_ids, done, LONG) > 10 * MAX_GAP

    def test_what_starts_after_new_weights_reads_its_prompt_with_them_while_others_of_its_group_run_on(
        self, generator: Generator, models: Models, needs: Callable[[str], None]
    ) -> None:
        needs("load")
        needs("join")
        sampling, before = Sampling(max_new_tokens=6, stop_token_ids=()), generator.version
        begin_with_short(generator, Request("long", LONG_PROMPT[:50], 2, LONG))
        try:
            generator.load_weights(temporary(models.second), before + 1)
            generator.submit([Request("long", LONG_PROMPT[:50], 3, sampling, first_index=2)])
            found = drain(generator)
        finally:
            generator.load_weights(temporary(models.first), before)
        for index in (2, 3, 4):
            done = found["long", index]
            assert (done.version, set(done.versions)) in [(before + 1, set()), (before + 1, {before + 1})]
            assert largest_gap(models.second, LONG_PROMPT[:50], done, sampling) < MAX_GAP

    def test_the_same_version_with_other_weights_is_not_mistaken_for_the_old_ones(
        self, generator: Generator, models: Models
    ) -> None:
        request = Request("w", LONG_PROMPT, 2, Sampling(max_new_tokens=4, stop_token_ids=()))
        for model in (models.second, models.first):
            generator.load_weights(model.named_parameters(), 8)
            for done in generator.generate([request]):
                assert largest_gap(model, LONG_PROMPT, done, request.sampling) < MAX_GAP

    def test_the_first_logprob_is_that_of_the_present_weights(
        self, generator: Generator, models: Models, needs: Callable[[str], None]
    ) -> None:
        needs("proof")
        for model in (models.second, models.first):
            generator.load_weights(model.named_parameters(), 9)
            token, logprob = generator.first_logprob(LONG_PROMPT)
            table = first_table(model, LONG_PROMPT)
            assert token == int(table.argmax())
            assert logprob == pytest.approx(float(table.max()), abs=MAX_GAP)

    def test_it_says_in_one_line_what_generates(self, generator: Generator) -> None:
        line = generator.describe([Request("a", PROMPT, 4, PLAIN)])
        assert line and "\n" not in line
