"""Algorithm: the record of one algorithm of a collective.

Engines, explanations, controls and tests read it; there is no second list.
"""

from collections.abc import Callable
from typing import Any

from lib_dlhpc.records import dataclass
from lib_dlhpc.schedules.network import Array, Cost, Network
from lib_dlhpc.schedules.rounds import Rounds


@dataclass(frozen=True)
class Algorithm:
    """One algorithm of a collective.

    rounds: (ranks, elements, **options) -> rounds of messages. cost: its closed form, (bytes, network) -> Cost;
    an algorithm without one can be scheduled, but not selected for an experiment. by_node: it takes the option
    `node_size`, the ranks of a node. options: its other options. library: MPI or NCCL implement it, so "auto"
    may select it. needs: what the network's switches must be able to do for that (Network.combines). phases: the
    reduce-scatter and the allgather of which it is composed, if any.
    """

    name: str
    goal: str  # a key of COLLECTIVES
    rounds: Callable[..., Rounds]
    cost: Callable[[Array, Network], Cost] | None = None
    label: str = ""  # of a control
    formula: str = ""  # of the cost, with its source
    by_node: bool = False
    options: tuple[str, ...] = ()
    library: bool = True
    needs: frozenset[str] = frozenset()
    phases: tuple[str, str] | None = None

    @property
    def legal_options(self) -> tuple[str, ...]:
        """The names of all options."""
        return (*self.options, *["node_size"] * self.by_node)

    def on_nodes(self, ranks: int, node_size: int) -> dict[str, Any]:
        """Return the options for nodes of `node_size` ranks, if it is hierarchical and nodes are complete."""
        return {"node_size": node_size} if self.by_node and ranks % node_size == 0 else {}

    def priced(self, n: Array, net: Network) -> Cost:
        """Return the cost of n bytes in closed form, or on the links of groups that do not fill nodes evenly."""
        if self.cost is None:
            raise TypeError(f"{self.name} has no closed form; price(schedule(...)) prices it.")
        if net.uneven is not None:
            cost: Cost = net.uneven.priced(self, n)
            return cost
        return self.cost(n, net)
