"""Algorithm: all that anyone needs to know of one way to carry out a collective, in one record.

Engines, explanations, controls and tests read it; nothing is listed a second time elsewhere.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lib_dlhpc.schedules.network import Array, Cost, Network
from lib_dlhpc.schedules.rounds import Rounds


@dataclass(frozen=True)
class Algorithm:
    """One way to carry out a collective.

    rounds: (ranks, elements, **options) -> rounds of messages. cost: its closed form, (bytes, network) -> Cost;
    without one it can be scheduled, but not be chosen for an experiment. by_node: it takes the option
    `node_size`, the ranks of a node. options: the others that it takes. library: libraries of collectives have
    it, so that "auto" may choose it. halves: the reduce-scatter and the allgather that it consists of, where it
    does. one_pace: links of both levels are in use in a round, and the closed form takes the worse of each.
    """

    name: str
    goal: str  # a key of COLLECTIVES
    rounds: Callable[..., Rounds]
    cost: Callable[[Array, Network], Cost] | None = None
    label: str = ""  # a few words for a control
    formula: str = ""  # of the price, with its source
    by_node: bool = False
    options: tuple[str, ...] = ()
    library: bool = True
    halves: tuple[str, str] | None = None
    one_pace: bool = False

    @property
    def legal_options(self) -> tuple[str, ...]:
        """The names of all options."""
        return (*self.options, *["node_size"] * self.by_node)

    def on_nodes(self, ranks: int, node_size: int) -> dict[str, Any]:
        """Return the options with which it knows of nodes of `node_size` ranks, if it can and they are whole."""
        return {"node_size": node_size} if self.by_node and ranks % node_size == 0 else {}

    def priced(self, n: Array, net: Network) -> Cost:
        """Return the cost of n bytes in closed form."""
        if self.cost is None:
            raise TypeError(f"{self.name} has no closed form; price(schedule(...)) prices it.")
        return self.cost(n, net)
