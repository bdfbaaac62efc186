"""A cache under random access, in closed form: hit rates when every epoch reads everything once, in a new order.

Two facts hold for every eviction policy (a sample is cached only after it was read):

1. A reader of every sample in each epoch has at most as many hits per epoch as the cache holds, in any order,
   even with knowledge of the future: a hit must have been cached since the previous epoch.
   A cache that never evicts reaches that bound. Least recently used (LRU) does not: it caches what this epoch
   has just read, which is not needed before the next epoch, and evicts what this epoch has yet to read. So hits
   occur at the start of an epoch, and none after its first r, where r is the cached share.
2. A reader of a random part of the samples in each epoch, as one of many nodes is, hits at most the cached share,
   on average, without knowledge of the order: all samples are equally likely in the next epoch. The order is
   drawn in advance; a reader that knows it can cache what it will read, and does better (Dryden et al.
   2021, NoPFS; Belady 1966).

So the cached share, which predictions take as the hit rate, is the best that a cache without foresight gets.
simulation/caching.py simulates the policies.
"""

from typing import Any

import numpy as np


def best(share: Any) -> Any:
    """Return the highest hit rate of a cache that holds `share` of the data set: `share` itself."""
    return np.clip(share, 0.0, 1.0)[()]


def least_recently_used(share: Any) -> Any:
    """Return the hit rate of least recently used (LRU), for one reader of everything and many samples.

    r + (1 - r) ln(1 - r). A sample that is read at u before the end of an epoch and at v after the start of the
    next (shares of an epoch) has u + v - u v of all samples read in between, and is a hit if that is below r;
    u and v are independent and uniform, so at v it is a hit with probability (r - v) / (1 - v), and never from r on.
    """
    held = np.clip(share, 0.0, 1.0)
    rest = 1.0 - held
    return (held + rest * np.log(np.where(rest > 0, rest, 1.0)))[()]
