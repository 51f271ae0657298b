"""Evaluate a model without a trainer: a model, an engine and a scorer, but no updater, optimizer or second model."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from podsrl.config.schema import RunConfig
from podsrl.errors import UsageError
from podsrl.generate import Generator, Request, answers_of
from podsrl.lib.machine import configure_threads
from podsrl.lib.seeds import seed_globals
from podsrl.policy import load_model, load_policy, prompts_ids
from podsrl.run.checks import check_window
from podsrl.run.evaluate import eval_request_id, eval_sampling
from podsrl.run.generators import make_generator
from podsrl.run.matmul import settle_matmul
from podsrl.run.prepare import prepare
from podsrl.run.wiring import new_setting, num_words, stop_token_ids
from podsrl.scale.processes import Processes
from podsrl.score import ScoreStats
from podsrl.sync import sync_weights
from podsrl.types import Completion, Group, Task

_AHEAD = 4
"""Answered questions that wait before they are judged, so that reward workers have done so while others generate."""


class Evaluator:
    """Samples and judges `eval.num_samples` answers to each held-out question.

    The answers are those of an evaluation in a run with the same weights: random numbers depend on the seed and the
    question alone. Adapters are merged into their base once, by PEFT, which in 16 bits may round otherwise than a run.

    Args:
        config: of which model, task, eval, seed, threads and the token limits are read (`eval_target.find_target`).
        num_questions: of the held-out ones, evenly spread over them; 0: all.
        adapters: of a base in 4 bits.

    Raises:
        UsageError: what `prepare` and `load_model` raise, or more questions than there are.

    Example:
        >>> with Evaluator(load_config("pods"), num_questions=8) as evaluator:            # doctest: +SKIP
        ...     print(accuracy_of(list(evaluator.answers())).accuracy)
    """

    def __init__(self, config: RunConfig, *, num_questions: int = 0, adapters: Path | None = None) -> None:
        self.config = config
        self._parts = prepare(config, is_trained=False)
        self._generator: Generator | None = None
        self.scorer, self.tokenizer, self.warnings = self._parts.scorer, self._parts.tokenizer, self._parts.warnings
        try:
            self.questions = _spread(self._parts.tasks.eval, num_questions)
            """Place among all held-out questions -> the question."""
            model = self._load(adapters)
        except BaseException:
            self.close()
            raise
        self._num_words = num_words(model)
        self.threads = configure_threads(config.threads, model.num_parameters())
        settle_matmul(config.model.matmul, model, Processes())
        self.sampling = eval_sampling(config, stop_token_ids(model, self.tokenizer))

    def answers(self) -> Iterator[Group]:
        """Yield each question's judged answers (without their log-probabilities) soon after the last is generated."""
        seed_globals(self.config.seed, 0, "eval")
        self.scorer.stats = ScoreStats()
        requests = self._requests()
        tasks = dict(zip(requests, self.questions.values(), strict=True))
        found: dict[str, list[tuple[Completion, str]]] = {name: [] for name in requests}
        done: deque[str] = deque()
        assert self._generator is not None, "made with the evaluator"
        kind = self._parts.generator
        for completion in answers_of(self._generator, requests.values(), kind=kind, num_words=self._num_words):
            name = completion.request_id
            text = self.tokenizer.decode(completion.token_ids, skip_special_tokens=True)
            self.scorer.prefetch(tasks[name], text)
            found[name].append((replace(completion, logprobs=()), text))
            if len(found[name]) == self.config.eval.num_samples:
                done.append(name)
            while len(done) > _AHEAD:
                yield self._judge(requests[done[0]], tasks[done[0]], found.pop(done.popleft()))
        while done:
            yield self._judge(requests[done[0]], tasks[done[0]], found.pop(done.popleft()))

    def close(self) -> None:
        """End the generator and the scorer's worker processes."""
        if self._generator is not None:
            self._generator.close()
        self._parts.close()

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _load(self, adapters: Path | None) -> Any:
        """The plain model that the generator samples from; adapters of 4 bits are merged into dequantised matrices."""
        config, tokenizer = self.config, self.tokenizer
        policy = load_policy(config, tokenizer) if adapters else None
        model = policy.generator_model if policy else load_model(config.model).eval()
        check_window(model, self._parts.longest_prompt, config.rollouts.max_new_tokens)
        setting = new_setting(config, lambda: model, model.device, tokenizer)
        self._generator = make_generator(self._parts.generator, setting, Processes())
        if policy and adapters:
            policy.load(adapters)
            sync_weights(policy.sampled_weights(), self._generator, 0)
        else:
            sync_weights(model, self._generator, 0)
        return model

    def _requests(self) -> dict[str, Request]:
        prompts = prompts_ids(self.tokenizer, list(self.questions.values()))
        names = [eval_request_id(place, task.id) for place, task in self.questions.items()]
        return {
            name: Request(name, prompt, self.config.eval.num_samples, self.sampling)
            for name, prompt in zip(names, prompts, strict=True)
        }

    def _judge(self, request: Request, task: Task, found: list[tuple[Completion, str]]) -> Group:
        found = sorted(found, key=lambda pair: pair[0].index)
        completions, texts = [completion for completion, _ in found], [text for _, text in found]
        [rollouts] = self.scorer.score([task], [completions], [texts])
        return Group(id=request.id, task=task, prompt_ids=tuple(request.prompt_ids), rollouts=tuple(rollouts))


def _spread(tasks: tuple[Task, ...], count: int) -> dict[int, Task]:
    if not 0 <= count <= len(tasks):
        raise UsageError(
            f"--num-questions {count}: {len(tasks)} questions are held out; choose 1 .. {len(tasks)}; task.num_eval "
            "says how many are (0: all of a set's own test split)"
        )
    places = [i * len(tasks) // count for i in range(count)] if count else range(len(tasks))
    return {place: tasks[place] for place in places}
