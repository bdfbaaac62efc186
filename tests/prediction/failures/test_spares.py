"""Laws of spares and replicas: Erlang's formula, a simulated machine, and what a choice can gain at most."""

from dataclasses import replace
from itertools import pairwise
from math import factorial

import numpy as np
import pytest

from lib_dlhpc import SpecError
from lib_dlhpc.costs.checkpoints import CheckpointCost
from lib_dlhpc.costs.spares import NodePool
from lib_dlhpc.prediction.failures.intervals import goodput
from lib_dlhpc.prediction.failures.spares import (
    elastic_goodput,
    in_repair,
    waiting,
    waiting_goodput,
)
from lib_dlhpc.simulation.spares import REPAIRS, simulate_elastic, simulate_waiting

HOUR, DAY = 3600.0, 86400.0
POOL = NodePool(64, 3, 40 * DAY, 1.5 * DAY, 8)  # 2.4 nodes in repair on the mean
SAVED = CheckpointCost(0, 0, 60.0, restart=600.0)
EVERY, FAILURES = 1800.0, 4000  # goodput of a leg scatters by 1: its mean is known to 1.6%


def test_the_share_of_waiting_is_erlangs_formula():
    load, servers = 2.4, POOL.spares + 1
    terms = [load**k / factorial(k) for k in range(servers + 1)]
    assert waiting(POOL) == pytest.approx(terms[-1] / sum(terms))
    assert waiting(replace(POOL, spares=0)) == pytest.approx(2.4 / 3.4)  # MTBF + repair, one by one
    assert waiting(replace(POOL, spares=60)) < 1e-20


def test_nodes_in_repair_are_as_many_as_fail_in_the_time_of_a_repair():
    """Little's law, for those that fail while others wait."""
    for pool in (POOL, replace(POOL, replica=0), replace(POOL, spares=0, replica=1)):
        shares = in_repair(pool)
        failed = np.arange(len(shares))
        assert shares.sum() == pytest.approx(1)
        rate = float(shares @ pool.training(failed)) / pool.node_mtbf
        assert shares @ failed == pytest.approx(rate * pool.repair)


@pytest.mark.parametrize("repair", REPAIRS)
@pytest.mark.parametrize("spares", [0, 3])
def test_a_simulated_machine_waits_as_the_formula_says(spares, repair):
    pool = replace(POOL, spares=spares, replica=0)
    own = float(goodput(EVERY, SAVED, pool.node_mtbf / pool.nodes))
    found = simulate_waiting(pool, EVERY, SAVED, FAILURES, 1, repair)
    assert found == pytest.approx(waiting_goodput(pool, own), rel=0.05)
    alike = replace(pool, replica=8)  # which a run that needs all nodes has no use for
    assert found == simulate_waiting(alike, EVERY, SAVED, FAILURES, 1, repair)


@pytest.mark.parametrize("repair", REPAIRS)
@pytest.mark.parametrize("spares", [0, 3])
def test_a_simulated_machine_goes_on_as_the_formula_says(spares, repair):
    pool = replace(POOL, spares=spares)
    found = simulate_elastic(pool, 180.0, 600.0, FAILURES, 1, repair)
    assert found == pytest.approx(elastic_goodput(pool, 180.0, 600.0), rel=0.005)


def test_nodes_that_never_fail_all_train():
    never = replace(POOL, node_mtbf=np.inf)
    assert in_repair(never)[0] == 1 and waiting(never) == 0
    assert elastic_goodput(never, 180.0, 600.0) == pytest.approx(64 / 67)
    with pytest.raises(SpecError, match="node_mtbf = inf"):
        simulate_elastic(never, 1.0, 1.0, 1)


def test_one_replica_of_all_nodes_that_goes_on_is_one_that_waits():
    whole, plain = replace(POOL, replica=64), replace(POOL, replica=0)
    np.testing.assert_allclose(in_repair(whole), in_repair(plain))
    assert elastic_goodput(whole, 0.0, 0.0) == pytest.approx(waiting_goodput(plain, 1.0))


@pytest.mark.parametrize("spares", [0, 2, 8])
def test_smaller_replicas_leave_more_nodes_in_training(spares):
    found = [
        elastic_goodput(replace(POOL, spares=spares, replica=size), 60.0, 600.0)
        for size in (64, 32, 16, 8, 4, 2, 1)
    ]
    assert all(a < b for a, b in pairwise(found))
    busy = 1 - 2.4 / (64 + spares)  # those in repair cannot train
    assert found[-1] < max(busy, 64 / (64 + spares)) + 1e-9


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"nodes": 0}, "nodes = 0"),
        ({"spares": -1}, "spares = -1"),
        ({"replica": 7}, "replica = 7"),
        ({"repair": float("inf")}, "repair = inf"),
        ({"node_mtbf": 0.0}, "node_mtbf = 0"),
    ],
)
def test_what_is_no_pool_is_named(changes, name):
    with pytest.raises(SpecError, match=name):
        replace(POOL, **changes)


@pytest.mark.parametrize(
    ("failures", "repair", "words"),
    [
        (1, "never", "repair = 'never': expected one of exponential, fixed"),
        (0, "fixed", "failures = 0"),
        (-1, "fixed", "failures = -1"),
    ],
)
def test_what_cannot_be_simulated_is_named(failures, repair, words):
    with pytest.raises(SpecError, match=words):
        simulate_elastic(POOL, 1.0, 1.0, failures, repair=repair)
    with pytest.raises(SpecError, match=words):
        simulate_waiting(POOL, EVERY, SAVED, failures, repair=repair)
