"""Float32 matrix products on an x86 processor by the faster of two libraries, MKL or oneDNN, as measured there.

Which is faster depends on the processor. One core, GFLOP/s, MKL / oneDNN, a layer in → out of so many rows:

    rows × in → out      512×64→64   512×64→160   256×256→704   2000×256→704   16×896→4864
    AMD Zen 5            86 / 114     91 / 151      95 / 200       87 / 178       45 / 80
    Intel Sapphire Rapids 76 / 50     89 / 69       97 / 84        96 / 81        38 / 41

So both are timed at first use, once per machine, and a rule follows: from which size on oneDNN computes (`rule.py`,
`measure.py`, `cache.py`). It holds for the whole process, as torch's number of threads does (`choice.py`).
"""

from podsrl.lib.matmul.choice import Choice, check_option, choose, current, use, uses_onednn
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
    "is_available",
    "onednn",
    "use",
    "uses_onednn",
]
