"""Float32 matrix products on an x86 processor by the faster of two libraries: MKL or oneDNN.

torch's own linear layers use MKL, but torch also contains oneDNN. Which one is faster depends on the processor: oneDNN
on AMD's Zen 5, mostly MKL on Intel's Sapphire Rapids (figures in docs/engine.md). So both are timed at first use, once
per machine, which gives a rule: the product size from which oneDNN is used (`rule.py`, `measure.py`, `cache.py`). The
rule holds for the whole process, like torch's number of threads (`choice.py`).
"""

from podsrl.lib.matmul.choice import Choice, check_option, choose, current, in_use, use, uses_onednn
from podsrl.lib.matmul.onednn import OnednnLinear, is_available, onednn
from podsrl.lib.matmul.rule import FIXED, Rule

__all__ = [
    "FIXED",
    "Choice",
    "OnednnLinear",
    "Rule",
    "check_option",
    "choose",
    "current",
    "in_use",
    "is_available",
    "onednn",
    "use",
    "uses_onednn",
]
