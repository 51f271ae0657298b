"""Where a training step's time goes, beside the time of its matrix products alone.

    python -m benchmarks floor            the recipe `pods` and a model of 2.8 million weights, about two minutes
    python -m benchmarks floor --quick    three steps of each, half a minute

A step's floor is the time of its matrix products, each measured alone at its shape by the faster library; those of
attention count too. Steps take turns: one is timed as it is, and in the next every operation of torch is timed. The
time that no operation takes is Python, and torch's way from a call to its kernel. Bookkeeping is what is neither
generating nor updating: tokenising, decoding, rewards, selection, advantages, the batch, sync, metrics and logs. All
times are CPU seconds.

The recipe's step is that of a real run, whose logs are written. The larger model's is made up: 8 prompts with 64
rollouts each, of which 16 are trained with made-up advantages.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, get_args

from benchmarks import command
from benchmarks.generators import WatchedGenerator
from benchmarks.models import batch_of, shaped_model, skewed_workload
from benchmarks.operations import Floor, Kind, Operations, Part, Product, peak_rate
from benchmarks.timing import Clock, Say, spread, titled

WARM_UP = 2
PARTS: tuple[Part, ...] = get_args(Part)
NUM_PROMPTS, NUM_ROLLOUTS, NUM_KEPT = 8, 64, 16


def main(arguments: Sequence[str]) -> None:
    parser = command.new_parser("floor", __doc__)
    parser.add_argument("--quick", action="store_true", help="three steps of each model")
    command.measure(parser, arguments, lambda options, say: run(3 if options.quick else 20, say))


def run(rounds: int, say: Say) -> dict[str, Any]:
    """Measure both models' steps, `rounds` of each kind."""
    cases: dict[str, Callable[[], AbstractContextManager[Step]]] = {"demo": demo, "s256": partial(made_up, "s256")}
    found = {}
    for name, case in cases.items():
        with case() as step:
            found[name] = measure(step, rounds, titled(say, name))
    return {"rounds": rounds, "peak_operations_per_second": peak_rate(), "models": found}


@dataclass(slots=True)
class Step:
    """Something to measure."""

    take: Callable[[], object]
    """Takes one step."""
    num_weights: int
    cpu_seconds: dict[Part, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    """Of generating and of updating, so far."""

    def add(self, part: Part, cpu_seconds: float) -> None:
        """Count what a part of a step took."""
        self.cpu_seconds[part] += cpu_seconds


@contextmanager
def demo() -> Iterator[Step]:
    """The step of the recipe `pods`."""
    from podsrl.config.load import dump, load_config
    from podsrl.run.loop import record
    from podsrl.run.saving.folder import RunFolder
    from podsrl.run.step.step import training_step
    from podsrl.run.step.trainer import Trainer

    trainer = Trainer(load_config("pods"))
    engine = trainer.engine = WatchedGenerator(trainer.engine)
    with tempfile.TemporaryDirectory() as path:
        folder = RunFolder(Path(path))
        folder.create(dump(trainer.config))

        def take() -> None:
            before = engine.cpu_seconds
            record(folder, training_step(trainer))
            step.add("generate", engine.cpu_seconds - before)

        def update(batch: Any) -> Any:
            clock = Clock()
            result = learn(batch)
            step.add("update", clock.read().cpu_seconds)
            return result

        learn, trainer.update = trainer.update, update  # type: ignore[method-assign]
        step = Step(take, trainer.model.num_parameters())
        yield step
    trainer.close()


@contextmanager
def made_up(shape: str) -> Iterator[Step]:
    """Generate and update with a random model, whose weights hardly move."""
    from podsrl.config.schema import OptimConfig
    from podsrl.generate import Engine, Request, Sampling
    from podsrl.update import ALGORITHMS, Updater

    model = shaped_model(shape)
    work = skewed_workload(NUM_PROMPTS, NUM_ROLLOUTS)
    sampling = Sampling(max_new_tokens=work.max_new_tokens, stop_token_ids=work.stop_token_ids)
    requests = [Request(str(i), prompt, NUM_ROLLOUTS, sampling) for i, prompt in enumerate(work.prompts)]
    engine = Engine(model)
    updater = Updater(model, OptimConfig(lr=1e-7), loss=ALGORITHMS["grpo"].loss)

    def take() -> None:
        clock = Clock()
        done = sorted(engine.generate(requests), key=lambda each: (int(each.group_id), each.index))
        step.add("generate", clock.read().cpu_seconds)
        kept = [each for each in done if each.index < NUM_KEPT]
        prompts = [work.prompts[int(each.group_id)] for each in kept]
        batch = batch_of(prompts, kept, [1.0 if each.index % 2 else -1.0 for each in kept])
        clock = Clock()
        updater.forward_backward(batch)
        updater.optim_step()
        step.add("update", clock.read().cpu_seconds)
        engine.load_weights(model.named_parameters(), engine.version + 1)

    step = Step(take, model.num_parameters())
    yield step


def measure(step: Step, rounds: int, say: Say) -> dict[str, Any]:
    """Steps as they are and steps whose operations are timed, in turn."""
    for _ in range(WARM_UP):
        step.take()
    wholes: dict[str, list[float]] = {name: [] for name in ("step", "bookkeeping", *PARTS)}
    overheads, timed = [], list[Operations]()
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        before, clock = step.cpu_seconds.copy(), Clock()
        step.take()
        whole = clock.read().cpu_seconds
        of_parts = {part: step.cpu_seconds[part] - before[part] for part in PARTS}
        rest = whole - sum(of_parts.values())
        overheads.append(rest / whole)
        for name, taken in (("step", whole), ("bookkeeping", rest), *of_parts.items()):
            wholes[name].append(taken)
        with Operations() as found:
            step.take()
        timed.append(found)
    say("products alone")
    floor = Floor()
    floors = {part: statistics.median(floor.seconds(_of(part, each.products)) for each in timed) for part in PARTS}
    operations = [sum(n * product.operations for (_, product), n in each.products.items()) for each in timed]
    seconds = {name: statistics.median(values) for name, values in wholes.items()}
    return {
        "num_weights": step.num_weights,
        "cpu_seconds": seconds,
        "floor_seconds": {**floors, "step": sum(floors.values())},
        "ratio": seconds["step"] / sum(floors.values()),
        "product_operations": statistics.median(operations),
        "calls": {part: statistics.median(each.num_calls[part] for each in timed) for part in PARTS},
        "seconds_by_kind": {
            part: {kind: statistics.median(each.seconds[part, kind] for each in timed) for kind in get_args(Kind)}
            for part in PARTS
        },
        "overhead": spread(overheads),
    }


def _of(part: Part, products: Mapping[tuple[Part, Product], int]) -> dict[Product, int]:
    return {product: count for (of_part, product), count in products.items() if of_part == part}
