"""Closed forms of every allreduce: alpha (latency), beta (1 / bandwidth) and gamma (reduction) terms.

A machine has two levels: `inner.ranks` devices in a node, `outer.ranks` nodes. With one of the
two equal to 1 every form is that of the textbook (Thakur, Rabenseifner & Gropp 2005, section 4, and
Chan et al. 2007), symbol for symbol:

    ring                2 (p-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma
    recursive doubling  lg p (alpha + n beta + n gamma)
    Rabenseifner        2 lg p alpha + 2 (p-1)/p n beta + (p-1)/p n gamma
    binomial            2 lg p (alpha + n beta) + lg p n gamma

Each formula is next to the schedule whose cost it gives, in schedules/.
"""

from collections.abc import Callable, Iterator, Mapping

from lib_dlhpc.schedules import COLLECTIVES
from lib_dlhpc.schedules.doubling import rabenseifner_cost as rabenseifner
from lib_dlhpc.schedules.network import Array, Cost, Network
from lib_dlhpc.schedules.rings import ring_cost as ring
from lib_dlhpc.spec.strategy import ALLREDUCES

__all__ = ["ALGORITHMS", "Cost", "bus_bandwidth", "rabenseifner", "ring"]


class _ClosedForms(Mapping[str, Callable[[Array, Network], Cost]]):
    def __getitem__(self, name: str) -> Callable[[Array, Network], Cost]:
        return COLLECTIVES["allreduce"][name].priced

    def __iter__(self) -> Iterator[str]:
        return iter(ALLREDUCES)

    def __len__(self) -> int:
        return len(ALLREDUCES)


ALGORITHMS = _ClosedForms()


def bus_bandwidth(n: Array, time: Array, ranks: Array) -> Array:
    """Return the bus bandwidth n / time * 2 (p-1)/p in B/s, per link of a ring (the nccl-tests convention)."""
    return n / time * 2 * (ranks - 1) / ranks
