import pytest

from pace import assert_at_most


def proportional(size: int) -> int:
    return sum(range(size))


def by_the_square(size: int) -> int:
    return sum(proportional(size) for _ in range(size // 100))


def test_growth_by_the_square_is_told_from_growth_in_proportion() -> None:
    assert_at_most(24, lambda: proportional(80_000), lambda: proportional(10_000))
    with pytest.raises(AssertionError, match="at most 24 wanted"):
        assert_at_most(24, lambda: by_the_square(8_000), lambda: by_the_square(1_000))
