import itertools
import time

import pytest

from podsrl.errors import UsageError
from podsrl.tasks import Stream, task_indices


@pytest.mark.parametrize("num_train", [1, 2, 7, 100])
def test_every_epoch_holds_each_index_once(num_train: int) -> None:
    for epoch in range(5):
        stream = task_indices(num_train, seed=3, start=epoch * num_train, count=num_train)
        assert sorted(stream) == list(range(num_train))


def test_any_slice_of_the_stream_is_what_a_resumed_run_reads() -> None:
    whole = task_indices(7, seed=11, start=0, count=40)
    for start, stop in itertools.combinations(range(41), 2):
        assert task_indices(7, seed=11, start=start, count=stop - start) == whole[start:stop]


def test_epochs_and_seeds_give_different_orders() -> None:
    orders = {tuple(task_indices(50, seed=seed, start=epoch * 50, count=50)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_the_stream_is_the_same_as_last_year() -> None:
    assert task_indices(5, seed=0, start=0, count=10) == [2, 4, 3, 0, 1, 1, 4, 3, 0, 2]


def test_each_index_comes_first_about_equally_often() -> None:
    firsts = [task_indices(4, seed=seed, start=0, count=1)[0] for seed in range(400)]
    # Binomial(400, 1/4): mean 100, standard deviation 8.7; five of them.
    assert all(57 <= firsts.count(index) <= 143 for index in range(4))


def test_indices_are_plain_integers_and_none_are_given_for_a_count_of_zero() -> None:
    assert {type(index) for index in task_indices(3, seed=0, start=1, count=5)} == {int}
    assert task_indices(3, seed=0, start=5, count=0) == []


def test_a_million_tasks_cost_one_permutation_an_epoch() -> None:
    """A thousand calls within an epoch cost less than ten that begin one each."""

    def cost(starts: range, seed: int) -> float:
        begun = time.process_time()
        for start in starts:
            task_indices(810_000, seed=seed, start=start, count=8)
        return time.process_time() - begun

    assert cost(range(0, 8000, 8), seed=0) < cost(range(0, 10 * 810_000, 810_000), seed=1)


@pytest.mark.parametrize(
    ("option", "value", "least"), [("num_train", 0, 1), ("seed", -1, 0), ("start", -1, 0), ("count", -1, 0)]
)
def test_a_stream_argument_out_of_range_is_refused(option: str, value: int, least: int) -> None:
    arguments = {"num_train": 3, "seed": 0, "start": 0, "count": 1} | {option: value}
    with pytest.raises(UsageError, match=f"{option} = {value}; wanted at least {least}"):
        task_indices(arguments.pop("num_train"), **arguments)


def test_a_cursor_gives_the_stream_in_pieces_and_counts_what_it_gave() -> None:
    whole = task_indices(7, seed=11, start=0, count=40)
    stream = Stream(7, seed=11, position=5)
    drawn = [index for count in (3, 0, 9, 1) for index in stream.draw(count)]
    assert drawn == whole[5:18]
    assert stream.position == 18


@pytest.mark.parametrize(("option", "value", "least"), [("num_tasks", 0, 1), ("seed", -1, 0), ("position", -1, 0)])
def test_a_cursor_argument_out_of_range_is_an_error(option: str, value: int, least: int) -> None:
    with pytest.raises(UsageError, match=f"{option} = {value}; wanted at least {least}"):
        Stream(**{"num_tasks": 3, "seed": 0, "position": 0} | {option: value})


def test_a_cursor_stays_where_it_is_when_the_count_is_out_of_range() -> None:
    stream = Stream(3, seed=0, position=2)
    with pytest.raises(UsageError, match="count = -1"):
        stream.draw(-1)
    assert stream.position == 2
