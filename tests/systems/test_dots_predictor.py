"""The predictor of success: its attention, its calibration, and a linear toy on which nothing beats it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from podsrl.control.question_features import NUM_BUCKETS, NUM_FEATURES, features_of
from podsrl.systems.dots import MEMORY, Predictor, empty
from podsrl.types import Task

Floats = NDArray[np.float64]
K, n = 64, 8


def success_of(logits: Floats) -> Floats:
    return 1 / (1 + np.exp(-logits))


class Toy:
    """600 questions whose logit of success is linear in their features, up to a share that no feature shows."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.features = np.abs(self.rng.normal(size=(600, NUM_FEATURES)))
        centered = self.features - self.features.mean(axis=0)
        self.success = success_of(centered @ self.rng.normal(0, 0.5, NUM_FEATURES) + self.rng.normal(0, 0.3, 600))

    def probe(self) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
        """K questions with n rollouts each."""
        drawn = self.rng.choice(600, K, replace=False)
        return self.features[drawn], self.rng.binomial(n, self.success[drawn]), np.full(K, n)


def after(probes: list[tuple[Floats, NDArray[np.int64], NDArray[np.int64]]]) -> Predictor:
    predictor = empty()
    for probe in probes:
        predictor = predictor.after(*probe)
    return predictor


def others(toy: Toy, probe: tuple[Floats, NDArray[np.int64], NDArray[np.int64]]) -> dict[str, Floats]:
    """Other ways to predict from the same newest references."""
    features, right, valid = probe
    rates = right / valid
    scaled, known = (each / features.std(axis=0) for each in (toy.features, features))
    squared = ((scaled[:, None] - known[None]) ** 2).sum(-1)
    attention = np.exp(-(squared - squared.min(axis=1, keepdims=True)) / (2 * NUM_FEATURES) * K**0.4)
    with_one = np.column_stack([np.ones(K), features])
    line = np.linalg.lstsq(with_one, rates, rcond=None)[0]
    return {
        "mean": np.full(600, rates.mean()),
        "nearest reference": rates[squared.argmin(axis=1)],
        "attention to what looks alike": attention @ rates / attention.sum(axis=1),
        "straight line": np.clip(np.column_stack([np.ones(600), toy.features]) @ line, 0, 1),
    }


@pytest.mark.parametrize("seed", range(3))
def test_on_a_linear_toy_nothing_that_sees_the_same_probe_beats_it(seed: int) -> None:
    toy = Toy(seed)
    probe = toy.probe()
    error = {name: float(np.mean((p - toy.success) ** 2)) for name, p in others(toy, probe).items()}
    own = float(np.mean((after([probe])(toy.features) - toy.success) ** 2))
    assert own < min(error.values()), (own, error)


@pytest.mark.parametrize("seed", range(3))
def test_earlier_probes_make_it_better(seed: int) -> None:
    toy = Toy(seed)
    probes = [toy.probe() for _ in range(6)]
    first, last = (np.mean((after(each)(toy.features) - toy.success) ** 2) for each in (probes[-1:], probes))
    assert last < 0.6 * first
    assert np.corrcoef(after(probes)(toy.features), toy.success)[0, 1] > 0.9


def test_attention_sums_to_one_and_is_the_kernel_that_the_docstring_gives() -> None:
    toy = Toy(0)
    predictor = after([toy.probe(), toy.probe()])
    weights = predictor.weights(toy.features)
    assert weights.shape == (600, K) and weights.sum(axis=1) == pytest.approx(np.ones(600))
    beta = predictor.projection()
    z, own = toy.features @ beta, predictor.features @ beta
    assert own.std() == pytest.approx(1)
    kernel = np.exp(-((z[:, None] - own[None]) ** 2) / (2 * K**-0.4))
    assert weights == pytest.approx(kernel / kernel.sum(axis=1, keepdims=True), abs=1e-12)


def test_the_sums_are_those_of_all_probes_older_ones_less() -> None:
    toy = Toy(0)
    probes = [toy.probe() for _ in range(3)]
    products, targets = np.zeros((NUM_FEATURES, NUM_FEATURES)), np.zeros(NUM_FEATURES)
    for age, (features, right, _) in enumerate(reversed(probes)):
        y = np.log((right + 0.5) / (n - right + 0.5))
        for j in range(K):
            x = features[j] - features.mean(axis=0)
            products += MEMORY**age * np.outer(x, x)
            targets += MEMORY**age * x * (y[j] - y.mean())
    predictor = after(probes)
    assert predictor.products == pytest.approx(products) and predictor.targets == pytest.approx(targets)


def test_a_shift_of_all_questions_is_found_by_the_next_probe() -> None:
    toy = Toy(1)
    predictor = after([toy.probe() for _ in range(4)])
    toy.success = success_of(np.log(toy.success / (1 - toy.success)) + 1.5)
    assert np.mean(predictor(toy.features) - toy.success) < -0.15
    assert abs(np.mean(predictor.after(*toy.probe())(toy.features) - toy.success)) < 0.05


@pytest.mark.parametrize("right", [0, 3, 8])
def test_references_that_are_all_answered_alike_predict_the_same_of_all(right: int) -> None:
    toy = Toy(0)
    features, _, valid = toy.probe()
    for predictor in (
        empty().after(features, np.full(K, right), valid),
        after([toy.probe()]).after(features, np.full(K, right), valid),
    ):
        predicted = predictor(toy.features)
        assert np.isfinite(predicted).all() and np.ptp(predicted) < 1e-9
        assert abs(predicted[0] - right / n) < 0.01


@pytest.mark.parametrize("num", [1, 2])
def test_very_few_references(num: int) -> None:
    toy = Toy(0)
    features, right, valid = (each[:num] for each in toy.probe())
    predicted = empty().after(features, right, valid)(toy.features)
    assert ((predicted >= 0) & (predicted <= 1)).all()


def test_before_the_first_probe_all_are_half_solved() -> None:
    assert empty()(np.ones((3, NUM_FEATURES))).tolist() == [0.5] * 3


def test_references_that_look_alike_predict_their_mean() -> None:
    predictor = empty().after(np.ones((4, NUM_FEATURES)), np.array([8, 0, 8, 0]), np.full(4, 8))
    assert predictor(np.ones((2, NUM_FEATURES))) == pytest.approx([0.5, 0.5])


def tasks(*prompts: object) -> list[Task]:
    return [Task(id=str(place), prompt=prompt, answer="") for place, prompt in enumerate(prompts)]  # type: ignore[arg-type]


def test_features_of_a_prompt_do_not_depend_on_the_others() -> None:
    prompts = ["What is 7 + 5?", "", "x", "Ölpreis 3 €?", "What is 17 + 15?", "\ud800"]
    together = features_of(tasks(*prompts))
    alone = np.concatenate([features_of(tasks(prompt)) for prompt in prompts])
    assert (together == alone).all() and together.shape == (6, NUM_FEATURES)


def test_features_by_hand() -> None:
    [found] = features_of(tasks("a 10 b"))
    assert found[:3] == pytest.approx(np.log1p([6, 2, 2]))  # characters, spaces, digits
    assert (found[3:] ** 2).sum() == pytest.approx(1)
    counts = found[3:] / found[3:][found[3:] > 0].min()
    assert counts.sum() == pytest.approx(5 + 4) and len(counts) == NUM_BUCKETS  # pairs and triples


def test_a_chat_has_the_features_of_its_messages() -> None:
    chat = ({"role": "system", "content": "Add."}, {"role": "user", "content": "7 + 5"})
    assert (features_of(tasks(chat)) == features_of(tasks("Add.\n7 + 5"))).all()
