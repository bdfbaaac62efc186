"""What module 03 and its notes say is what the library computes."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from lib_dlhpc.costs.network import flat
from lib_dlhpc.explore.allreduce.sizes import (
    RANKS,
    Flat,
    Nodes,
    buffers_out,
    costs,
    crossover,
    nic_wall,
    nics_view,
    winners,
)
from lib_dlhpc.prediction.collectives import ALGORITHMS
from lib_dlhpc.schedules import price, prove, schedule

CLUSTER_OF_2005 = Flat(32, 10e-6, 2e9 / 8, 1e9, 1e3)


def test_at_1_kb_on_the_cluster_of_2005_recursive_doubling_wins():
    assert winners(CLUSTER_OF_2005.network)[0].algorithm == "recursive_doubling"
    assert winners(CLUSTER_OF_2005.network)[0].stop > 1e3


def test_the_crossing_on_that_cluster_is_within_a_factor_of_two_of_mpichs_2_kib():
    changes = winners(CLUSTER_OF_2005.network)
    assert [i.algorithm for i in changes] == ["recursive_doubling", "rabenseifner"]
    assert 2048 / 2 < changes[0].stop < 2048 * 2
    assert changes[0].stop == pytest.approx(crossover(32, 10e-6, 2e9 / 8, 1e9))


def test_todays_network_moves_the_crossing_to_larger_messages():
    today = Flat(32, 1e-6, 400e9 / 8, 1e12, 1e3)
    assert winners(today.network)[0].stop > winners(CLUSTER_OF_2005.network)[0].stop


def test_a_ring_wins_only_for_long_messages_on_a_prime_number_of_ranks():
    for ranks in RANKS:
        found = winners(CLUSTER_OF_2005._replace(ranks=ranks).network)
        prime = ranks > 2 and all(ranks % k for k in range(2, ranks))
        halves = ranks & (ranks - 1) == 0
        longest = "ring" if prime else "rabenseifner" if halves else "torus_2d"
        assert found[-1].algorithm == longest
        assert "ring" not in {interval.algorithm for interval in found[:-1]}
    assert {7, 31, 127} < set(RANKS)


def test_on_a_flat_network_hierarchy_and_parameter_server_are_the_ring():
    sizes = np.geomspace(1, 1e9, 7)
    times = costs(sizes, flat(48, 1e-5, 1e-9, 1e-10), ("ring", "hierarchical", "parameter_server"))
    for cost in times.values():
        np.testing.assert_allclose(cost.total, times["ring"].total)


def test_a_ring_of_8_takes_14_rounds_and_rabenseifner_on_4_takes_4_where_it_takes_6():
    assert prove(schedule("ring", 8, 8)).rounds == 14
    assert prove(schedule("ring", 4, 8)).rounds == 6
    assert prove(schedule("rabenseifner", 4, 8)).rounds == 4


def test_what_leaves_a_node():
    assert buffers_out("recursive_doubling", 32, 8) == 8 * 5
    for name in ("rabenseifner", "ring", "hierarchical"):
        assert buffers_out(name, 32, 8) == pytest.approx(2 * 31 / 32, rel=0.05)


def test_there_is_a_message_for_which_the_ring_loses_to_the_torus_by_latency():
    short = Nodes(32, 8, 1, 100e9 / 8, 150e9, 1e6)
    times, _ = nics_view(short)
    assert times["ring"].total > 2 * times["torus_2d"].total
    assert times["ring"].latency > 0.5 * times["ring"].total
    assert "recursive doubling" in nic_wall(short, nics_view(short)[1])


def test_at_4_mb_on_4_ranks_ring_and_rabenseifner_are_close():
    here = flat(4, 5e-6, 1 / 5e9)
    ring, other = (float(ALGORITHMS[n](4e6, here).total) for n in ("ring", "rabenseifner"))
    assert 1 < ring / other < 1.05


def test_twice_the_bandwidth_hardly_helps_64_kb_on_1024_ranks():
    ring = [float(ALGORITHMS["ring"](64e3, flat(1024, 2e-6, 8 / r)).total) for r in (100e9, 200e9)]
    assert ring[1] > 0.95 * ring[0]


def test_the_formulas_of_the_text_are_those_of_the_library():
    p, n, a, b, c = 16, 1e6, 1e-5, 1e-9, 1e-10
    lg, share = np.log2(p), (p - 1) / p
    text = {
        "ring": 2 * (p - 1) * a + 2 * share * n * b + share * n * c,
        "recursive_doubling": lg * (a + n * b + n * c),
        "rabenseifner": 2 * lg * a + 2 * share * n * b + share * n * c,
        "binomial": 2 * lg * (a + n * b) + lg * n * c,
        "torus_2d": 2 * (4 - 1 + 4 - 1) * a + 2 * share * n * b + share * n * c,
    }
    for name, expected in text.items():
        assert float(ALGORITHMS[name](n, flat(p, a, b, c)).total) == pytest.approx(expected)
        assert price(schedule(name, p, 4096), a, b, c).latency == pytest.approx(
            float(ALGORITHMS[name](0.0, flat(p, a, b, c)).latency)
        )


def test_folding_costs_two_more_rounds_of_the_whole_buffer():
    for name in ("recursive_doubling", "rabenseifner"):
        cost = [ALGORITHMS[name](1.0, flat(p, 1.0, 1.0)) for p in (8, 9)]
        assert cost[1].latency - cost[0].latency == 2
        assert cost[1].bandwidth - cost[0].bandwidth == pytest.approx(2)


def test_every_part_of_a_module_is_there(repository: Path):
    cells = json.loads((repository / "modules" / "03_allreduce.ipynb").read_text("utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells)
    parts = [
        *["You will be able to", "You need", "The formula, opened", "It assumes", "Do it for real"],
        *[
            "Check yourself",
            "What surprised you",
            "In five lines",
            "Where the model fails",
            "doi.org",
        ],
    ]
    for part in parts:
        assert part in text
    assert len(re.findall(r"lesson\.predict", text)) == 5


def test_the_slow_network_crosses_where_its_answer_says():
    network = flat(4, 1e-3, 8 / 100e6)
    one, other = (
        ALGORITHMS[name](50e3, network).total for name in ("rabenseifner", "recursive_doubling")
    )
    assert one == pytest.approx(other)
