"""Names of processors, from what Linux says of them."""

from __future__ import annotations

import platform

import pytest

from benchmarks.processor import processor_family


@pytest.mark.parametrize(
    ("facts", "family"),
    [
        ({"vendor_id": "AuthenticAMD", "cpu family": "26", "model": "17"}, "AMD Zen 5"),
        ({"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "17"}, "AMD Zen 4"),
        ({"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "1"}, "AMD Zen 3"),
        ({"vendor_id": "AuthenticAMD", "cpu family": "23", "model": "49"}, "AMD Zen 2"),
        ({"vendor_id": "AuthenticAMD", "cpu family": "23", "model": "1"}, "AMD Zen"),
        ({"vendor_id": "AuthenticAMD", "cpu family": "99", "model": "1"}, "AMD family 99 model 1"),
        ({"vendor_id": "GenuineIntel", "cpu family": "6", "model": "143"}, "Intel Sapphire Rapids"),
        ({"vendor_id": "GenuineIntel", "cpu family": "6", "model": "60"}, "Intel family 6 model 60"),
        ({"vendor_id": "Other", "cpu family": "1", "model": "2"}, "Other family 1 model 2"),
    ],
)
def test_the_family_of_a_processor_tells_what_its_name_does_not(facts: dict[str, str], family: str) -> None:
    assert processor_family({"model name": "AMD EPYC", **facts}) == family


def test_a_processor_without_an_x86_family_has_the_machine_s_name() -> None:
    found = processor_family({"CPU implementer": "0x41", "CPU part": "0xd40"})
    assert found.endswith(" 0x41 0xd40") and processor_family({}) == platform.machine()
