"""A cache under random access, in closed form: hit rates when every epoch reads everything once, in a fresh order.

Two facts hold whatever is dropped when the cache is full (samples are kept only when they have been read):

1. Who reads every sample once in each epoch hits at most as many in an epoch as the cache holds, in whatever order,
   even with knowledge of the future: a sample that is found must have been kept since the epoch before.
   Never dropping anything reaches that bound. Least recently used does not: it keeps what this epoch has just
   read, none of which comes again before the next epoch, and drops what this epoch is still to read. So hits are
   at the start of an epoch, and there are none after its first r, where r is the cached share.
2. Who reads a random part of the samples in each epoch, as one of many nodes does, hits the cached share at most,
   on average, unless he knows what comes: the samples of the next epoch are as likely to be any others. Who
   knows the order, which is drawn in advance, keeps what he will read and can do better (Dryden et al.
   2021, NoPFS; Belady 1966).

So the cached share, which predictions take as the hit rate, is the best that a cache without foresight gets.
simulation/caching.py plays the rules.
"""

from typing import Any

import numpy as np


def best(share: Any) -> Any:
    """Return the highest hit rate of a cache that holds `share` of the data set: `share` itself."""
    return np.clip(share, 0.0, 1.0)[()]


def least_recently_used(share: Any) -> Any:
    """Return the hit rate of least recently used, for one reader of everything and many samples.

    r + (1 - r) ln(1 - r). A sample that is read at u before the end of an epoch and at v after the start of the
    next (shares of an epoch) has u + v - u v of all samples read in between, and is found if that is below r;
    u and v are independent and uniform, so at v it is found with probability (r - v) / (1 - v), and never from r on.
    """
    held = np.clip(share, 0.0, 1.0)
    rest = 1.0 - held
    return (held + rest * np.log(np.where(rest > 0, rest, 1.0)))[()]


def cyclic(share: Any) -> Any:
    """Return the hit rate of least recently used when every epoch has the same order: none, until all fits."""
    return np.where(np.greater_equal(share, 1.0), 1.0, 0.0)[()]
