"""Overlap of gradient exchange and backward: the exposed time.

Bucket k is ready at r_k and takes c_k on the network,
serially, so the exchange ends at  max_k ( r_k + c_k + c_(k+1) + ... )  -- an exact closed form
of the queue (Li et al. 2020, "PyTorch Distributed", describes the buckets).
"""

from typing import Any

import numpy as np


def exposed_time(ready: Any, cost: Any, backward: Any) -> Any:
    """Return the exposed seconds of exchange.

    ready, cost: (..., buckets) in s; backward: (...) in s. Without messages it is 0.
    """
    remaining = np.cumsum(cost[..., ::-1], axis=-1)[..., ::-1]
    late = np.maximum(np.max(ready + remaining, axis=-1) - backward, 0.0)
    return np.minimum(late, remaining[..., 0])  # exact 0, without rounding errors
