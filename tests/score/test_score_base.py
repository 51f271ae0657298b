import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import torch

from loops import each
from podsrl.score.base import Fault, fault_of, read_value


@each(
    ("value", "number"),
    [
        (0.25, 0.25),
        (3, 3.0),
        (True, 1.0),
        (False, 0.0),
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (np.int64(-2), -2.0),
        (np.bool_(True), 1.0),
        (np.array(0.75), 0.75),
        (torch.tensor(0.75), 0.75),
        (torch.tensor(True), 1.0),
        (Fraction(1, 4), 0.25),
    ],
)
def test_numbers_of_every_kind_become_floats(value: object, number: float) -> None:
    read = read_value("f", value)
    assert type(read) is float
    assert read == number


@each(
    ("value", "kind", "reason"),
    [
        (None, "none", "reward 'f' returned None"),
        (math.nan, "not_finite", "reward 'f' returned nan, not a finite number"),
        (-math.inf, "not_finite", "reward 'f' returned -inf, not a finite number"),
        (np.float32("nan"), "not_finite", "reward 'f' returned nan, not a finite number"),
        (torch.tensor(math.inf), "not_finite", "reward 'f' returned inf, not a finite number"),
        (10**400, "not_finite", "reward 'f' returned inf, not a finite number"),
        ("1.0", "not_a_number", "reward 'f' returned '1.0' (str), not a number"),
        ([1.0], "not_a_number", "reward 'f' returned [1.0] (list), not a number"),
        (np.array([1.0]), "not_a_number", "reward 'f' returned array([1.]) (ndarray), not a number"),
        (np.str_("a"), "not_a_number", "reward 'f' returned np.str_('a') (str_), not a number"),
        (1j, "not_a_number", "reward 'f' returned 1j (complex), not a number"),
        (Decimal("0.5"), "not_a_number", "reward 'f' returned Decimal('0.5') (Decimal), not a number"),
        ("x" * 100, "not_a_number", f"reward 'f' returned '{'x' * 56}... (str), not a number"),
    ],
)
def test_what_is_no_finite_number_is_a_fault_with_its_reason(value: object, kind: str, reason: str) -> None:
    fault = read_value("f", value)
    assert isinstance(fault, Fault)
    assert (fault.kind, fault.reason) == (kind, reason)


def test_an_endless_message_of_an_exception_is_cut() -> None:
    whole, cut = (fault_of("f", ValueError("x " * count)).reason for count in (240, 400))
    assert whole == f"reward 'f' raised ValueError: {'x ' * 239}x"
    assert len(cut) == len("reward 'f' raised ") + 500 and cut.startswith("reward 'f' raised ValueError: x x")


def test_an_exception_that_cannot_be_shown_is_still_a_fault() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert fault_of("f", Odd()).reason == "reward 'f' raised Odd: its message cannot be read"
