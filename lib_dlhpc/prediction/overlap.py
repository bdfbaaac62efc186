"""Gradient exchange against backward: how much of it sticks out.

Bucket k is ready at r_k and takes c_k on the network,
one after another, so the exchange ends at  max_k ( r_k + c_k + c_(k+1) + ... )  -- an exact closed form
of the queue (Li et al. 2020, "PyTorch Distributed", describes the buckets).
"""

from typing import Any

import numpy as np


def exposed_time(ready: Any, cost: Any, backward: Any) -> Any:
    """Return the seconds of exchange that stick out behind backward.

    ready, cost: (..., buckets) in s; backward: (...) in s. Nothing sticks out where nothing is sent.
    """
    remaining = np.cumsum(cost[..., ::-1], axis=-1)[..., ::-1]
    late = np.maximum(np.max(ready + remaining, axis=-1) - backward, 0.0)
    return np.minimum(late, remaining[..., 0])  # exactly: rounding leaves no dust
