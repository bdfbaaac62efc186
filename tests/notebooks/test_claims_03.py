"""What module 03 says is what the library computes."""

import numpy as np
import pytest

from lib_dlhpc.explore.allreduce.sizes import Flat, winners
from lib_dlhpc.schedules.algorithms import schedule
from lib_dlhpc.spec.strategy import ALLREDUCES


def test_the_crossover_moves_as_the_answer_says():
    def first(latency: float, rate: float, reduction: float) -> float:
        found = winners(Flat(32, latency, rate / 8, reduction, 1e3).network)[0]
        assert found.algorithm == "recursive_doubling"
        return found.stop

    then, network, both = first(10e-6, 2e9, 1e9), first(1e-6, 400e9, 1e9), first(1e-6, 400e9, 1e12)
    assert network < then < both


def test_long_messages_go_to_the_torus_and_on_a_prime_number_of_ranks_to_the_ring():
    for ranks, algorithm in ((48, "torus_2d"), (31, "ring")):
        network = Flat(ranks, 10e-6, 2e9 / 8, 1e9, 1e3).network
        assert winners(network)[-1].algorithm == algorithm


def summed(algorithm: str, ranks: int) -> np.ndarray:
    """The buffers of all ranks after an allreduce of a thousand random numbers of fp32 each."""
    buffers = np.random.default_rng(1).standard_normal((ranks, 1000)).astype(np.float32)
    for part in schedule(algorithm, ranks, 1000):
        before = buffers.copy()
        messages = zip(part.source, part.target, part.offset, part.count, part.reduce, strict=True)
        for source, target, offset, count, reduce in messages:
            piece = slice(offset, offset + count)
            buffers[target, piece] = before[source, piece] + reduce * buffers[target, piece]
    return buffers


@pytest.mark.parametrize("ranks", [6, 7, 8])
@pytest.mark.parametrize("algorithm", [*ALLREDUCES, "double_binary_tree"])
def test_all_ranks_end_with_the_same_bits_and_in_every_run(algorithm, ranks):
    found = summed(algorithm, ranks)
    assert (found == found[0]).all() and (found == summed(algorithm, ranks)).all()


def test_another_algorithm_or_another_order_gives_other_bits():
    ring, doubling = (summed(each, 8)[0] for each in ("ring", "recursive_doubling"))
    assert 0.4 < np.mean(ring != doubling) < 0.6
    assert np.abs(ring - doubling).max() < 2e-6
