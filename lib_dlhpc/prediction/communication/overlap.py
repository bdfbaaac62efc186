"""Overlap of gradient exchange and backward: the exposed time.

Bucket k is ready at r_k and takes c_k on the network,
serially, so the exchange ends at  max_k ( r_k + c_k + c_(k+1) + ... )  -- an exact closed form
of the queue (Li et al. 2020, "PyTorch Distributed", describes the buckets).
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from lib_dlhpc.prediction.explanation import Explanation
from lib_dlhpc.spec.units import format_quantity as show

if TYPE_CHECKING:
    from lib_dlhpc.prediction.breakdown import Breakdown


def exposed_time(ready: Any, cost: Any, backward: Any) -> Any:
    """Return the exposed seconds of exchange.

    ready, cost: (..., buckets) in s; backward: (...) in s. Without messages it is 0.
    """
    remaining = np.cumsum(cost[..., ::-1], axis=-1)[..., ::-1]
    late = np.maximum(np.max(ready + remaining, axis=-1) - backward, 0.0)
    return np.minimum(late, remaining[..., 0])  # exact 0, without rounding errors


def explain_exposed(p: "Breakdown") -> Explanation:
    """Return the explanation of the exposed communication of a scalar prediction."""
    after = "the last of H updates" if p.experiment.strategy.update == "local" else "backward"
    low, high = (float(bound) for bound in p.step_time_bounds)
    return Explanation(
        "exposed communication",
        show(float(p.exposed_communication), "s"),
        "max over buckets k of (r_k + c_k + c_(k+1) + ...) - backward: each bucket starts when its last layer and"
        " the previous bucket are done"
        if p.experiment.overlaps
        else f"all of the communication: the exchange starts after {after}",
        (
            ("all communication", show(float(p.communication.total), "s"), "see above"),
            ("backward", show(float(p.backward), "s"), "see above"),
            ("step, all hidden (bound)", show(low, "s"), "computed"),
            ("step, neither communication nor input hidden (bound)", show(high, "s"), "computed"),
        ),
        "exact for one queue; buckets as in Li et al. 2020 (PyTorch Distributed)",
        "The exchange does not slow down the computation that it overlaps.",
    )
