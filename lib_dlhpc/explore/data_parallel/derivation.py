"""Derivation of module 02: what overlap hides of the allreduces."""

import numpy as np

from lib_dlhpc.explore.slides.derivation import Derivation, Step
from lib_dlhpc.prediction.overlap import exposed_time
from lib_dlhpc.spec.units import format_quantity as show

BACKWARD, BUCKETS, EACH = 0.150, 5, 0.020  # s, s of an allreduce
hidden = min((BUCKETS - 1) * EACH, (1 - 1 / BUCKETS) * BACKWARD)
ready = BACKWARD * np.arange(1, BUCKETS + 1) / BUCKETS
exposed = float(exposed_time(ready, np.full(BUCKETS, EACH), BACKWARD))

DERIVATIONS = [
    Derivation(
        "Derivation: what overlap hides",
        [
            Step(
                r"e_k = \max(r_k,\; e_{k-1}) + c_k",
                "Allreduce k takes c. It starts when its bucket is full, at r, and the one before has ended, at e.",
            ),
            Step(
                r"e_m = \max_k \Big(r_k + \sum_{j \ge k} c_j\Big)",
                "Unrolled: from some bucket k on, the network never pauses.",
            ),
            Step(
                r"e_m = \max\Big(t_b + c,\; \frac{t_b}{m} + m\,c\Big)",
                "With m equal buckets that fill steadily: the maximum of a straight line in k is at an end.",
            ),
            Step(
                r"m\,c - (e_m - t_b) = \min\Big((m-1)\,c,\; \frac{m-1}{m}\,t_b\Big)",
                "All allreduces less the exposed part: what is hidden.",
            ),
        ],
        f"Backward {show(BACKWARD, 's')}, {BUCKETS} buckets of {show(EACH, 's')}: {show(hidden, 's')} are hidden and"
        f" {show(exposed, 's')}, the last bucket, are exposed.",
        "For each bucket but one, overlap hides the smaller of communication and computation. Draw two lanes, backward"
        " and network, and let the class shift the buckets. Ask: which bucket can never be hidden, and why? Ask next:"
        " why not a thousand buckets? Each pays the latency of its allreduce, so c does not shrink in proportion to m.",
        hidden,
        BUCKETS * EACH - exposed,
    )
]
