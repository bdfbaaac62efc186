"""Spares or fewer replicas: how much of a machine trains while failed nodes are in repair.

A node fails once in M_node s of training and is back after T s of repair, however many others are in
repair. With k of them there n_k nodes train, so the next fails at the rate n_k / M_node: a birth-death
process, with shares of the time p_k ~ prod_(j<k) n_j T / (M_node (j + 1)). They depend on the mean of T
only, not on its distribution.

If all nodes train, or none, n_k is N up to k = S spares, then 0, and the share of the time without a spare
is Erlang's B formula, with S + 1 servers and a = N T / M_node nodes in repair on the mean.

Source: Erlang 1917 (loss formula); Sevastyanov 1957 (any distribution). An idle spare does not fail.
"""

from dataclasses import replace
from math import exp, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.costs.spares import NodePool


def in_repair(pool: NodePool) -> NDArray[np.float64]:
    """Return the shares of the time with 0, 1, 2, ... nodes in repair; they add up to 1."""
    mean = pool.nodes * pool.repair / pool.node_mtbf
    failed = np.arange(min(pool.nodes + pool.spares, int(mean + 40 * (1 + sqrt(mean)))))
    training = pool.training(failed)
    failed = failed[training > 0]
    grows = training[failed] * pool.repair / (pool.node_mtbf * (failed + 1))
    with np.errstate(divide="ignore"):  # no node fails
        logs = np.concatenate([[0.0], np.cumsum(np.log(grows))])
    shares = np.exp(logs - logs.max())
    return shares / shares.sum()


def waiting(pool: NodePool) -> float:
    """Return the share of the time in which all wait for a repaired node, if all nodes train or none: Erlang's B."""
    shares = in_repair(replace(pool, replica=0))
    return float(shares[pool.spares + 1]) if len(shares) > pool.spares + 1 else 0.0


def waiting_share(nodes: Any, spares: Any, node_mtbf: Any, repair: Any) -> Any:
    """Return `waiting` for arrays; 0 where nothing fails or a repair takes no time."""

    def share(count: int, more: int, mtbf: float, time: float) -> float:
        never = np.isinf(mtbf) or time == 0
        return 0.0 if never else waiting(NodePool(int(count), int(more), float(mtbf), float(time)))

    if not np.any(repair):
        return 0.0
    return np.vectorize(share, otypes=[float])(nodes, spares, node_mtbf, repair)[()]


def waiting_goodput(pool: NodePool, goodput: float) -> float:
    """Return the share of nodes and time, spares included, that becomes training if all nodes train or none.

    goodput: of the run while it does not wait, with its checkpoints and restarts. Exact, as nothing fails
    during a wait.
    """
    return pool.nodes / (pool.nodes + pool.spares) * (1 - waiting(pool)) * goodput


def elastic_goodput(pool: NodePool, stall: float, rejoin: float) -> float:
    """Return the share if the other replicas continue: sum_k p_k n_k / (N + S) e^(-n_k s / M_node) e^(-r R / M_node).

    s: stall of all in s after a failure, in which another one begins it anew; R: rejoin, s until the
    replica of r nodes trains again. What the stall includes is all the work that is lost, since each of
    the other replicas has the whole state. To first order in R / M_node.
    """
    shares = in_repair(pool)
    training = pool.training(np.arange(len(shares)))
    quiet = np.exp(-training * stall / pool.node_mtbf)
    joined = exp(-pool.replica * rejoin / pool.node_mtbf)
    return float(shares @ (training * quiet)) * joined / (pool.nodes + pool.spares)
