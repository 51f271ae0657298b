"""The generation of this machine's processor, which names the folder of its results."""

from __future__ import annotations

import platform
from collections.abc import Mapping

_AMD = {
    23: (((0x30, 0x3F), "2"), ((0x60, 0x7F), "2"), ((0x90, 0xAF), "2"), ((0x00, 0x2F), "")),
    25: (((0x00, 0x0F), "3"), ((0x20, 0x5F), "3"), ((0x10, 0x1F), "4"), ((0x60, 0x7F), "4"), ((0xA0, 0xAF), "4")),
    26: (((0x00, 0x2F), "5"), ((0x40, 0x4F), "5"), ((0x60, 0x7F), "5")),
}
"""Family -> first and last model, and the generation of Zen, as Linux has them (arch/x86/kernel/cpu/amd.c)."""
_INTEL = {
    0x55: "Skylake server",
    0x6A: "Ice Lake server",
    0x8F: "Sapphire Rapids",
    0xAD: "Granite Rapids",
    0xCF: "Emerald Rapids",
}
"""Model of family 6 -> name, as Linux has them (arch/x86/include/asm/intel-family.h)."""


def processor_family(facts: Mapping[str, str]) -> str:
    """The generation of a processor, from `processor_facts`: what its speed depends on, where "model name" is silent.

    Example:
        >>> processor_family({"vendor_id": "AuthenticAMD", "cpu family": "26", "model": "17"})
        'AMD Zen 5'
        >>> processor_family({"vendor_id": "GenuineIntel", "cpu family": "6", "model": "60"})
        'Intel family 6 model 60'
    """
    if "cpu family" not in facts:  # not an x86 processor under Linux
        numbers = (facts[key] for key in ("CPU implementer", "CPU part") if key in facts)
        return " ".join([platform.machine(), *numbers])
    vendor = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}.get(facts["vendor_id"], facts["vendor_id"])
    family, model = int(facts["cpu family"]), int(facts["model"])
    if vendor == "AMD":
        for (first, last), generation in _AMD.get(family, ()):
            if first <= model <= last:
                return f"AMD Zen {generation}".rstrip()
    if vendor == "Intel" and family == 6 and model in _INTEL:
        return f"Intel {_INTEL[model]}"
    return f"{vendor} family {family} model {model}"
