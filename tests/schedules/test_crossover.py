"""Where one algorithm overtakes another: the sizes worked out by hand are where prices are equal.

The formulas are those of Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations
in MPICH" (2005), sections 3 and 4, with ceil(lg p) trees and, for p = 2^q + surplus, ranks that fold. Two
prices a alpha + n (b beta + c gamma) are equal at n = (a2 - a1) alpha / ((b1 - b2) beta + (c1 - c2) gamma).
"""

from math import ceil, floor, log2

import pytest

from lib_dlhpc.schedules import price, schedule

# A cluster of that time: 10 us, Myrinet of 2 Gb/s, a reduction of 1 GB/s. Round figures, not the paper's fit.
ALPHA, BETA, GAMMA = 10e-6, 4e-9, 1e-9
POWERS = (8, 16, 32, 64)
OTHERS = (5, 6, 7, 9, 12, 24, 31, 48, 63)


def symbols(name, p):
    """Coefficients of alpha, n beta and n gamma."""
    q, fold = floor(log2(p)), p != 2 ** floor(log2(p))
    depth, share, part = ceil(log2(p)), (p - 1) / p, 1 - 0.5**q
    return {
        "ring": (2 * (p - 1), 2 * share, share),
        "recursive_doubling": (q + 2 * fold, q + 2 * fold, q + fold),
        "rabenseifner": (2 * (q + fold), 2 * (part + fold), part + fold),
        "binomial": (2 * depth, 2 * depth, depth),
        "binomial_broadcast": (depth, depth, 0),
        "van_de_geijn_broadcast": (depth + p - 1, 2 * share, 0),
    }[name]


def by_hand(short, long, p):
    """The size in B at which `long` overtakes `short`."""
    (a, b, c), (a2, b2, c2) = symbols(short, p), symbols(long, p)
    return (a2 - a) * ALPHA / ((b - b2) * BETA + (c - c2) * GAMMA)


def total(name, p, n):
    return price(schedule(name, p, n), ALPHA, BETA, GAMMA, itemsize=1).total


def by_price(short, long, p):
    """The same from prices at two sizes: between sizes of equal blocks they are straight lines."""
    unit = p * 2 ** floor(log2(p))
    first, second = (total(short, p, n) - total(long, p, n) for n in (0, 1000 * unit))
    return -first / (second - first) * 1000 * unit


CASES = [
    *(("recursive_doubling", "rabenseifner", p) for p in POWERS),
    *(("recursive_doubling", "ring", p) for p in POWERS + OTHERS),
    *(("rabenseifner", "ring", p) for p in OTHERS),
    *(("binomial_broadcast", "van_de_geijn_broadcast", p) for p in (4, *POWERS, *OTHERS)),
]


@pytest.mark.parametrize(("short", "long", "p"), CASES)
def test_prices_cross_at_the_size_worked_out_by_hand(short, long, p):
    size = by_hand(short, long, p)
    assert by_price(short, long, p) == pytest.approx(size, rel=1e-9)
    unit = p * 2 ** floor(log2(p))
    before = floor(size / unit) * unit
    assert total(short, p, before) <= total(long, p, before) * (1 + 1e-12)
    assert total(long, p, before + unit) < total(short, p, before + unit)


@pytest.mark.parametrize("p", POWERS)
def test_on_a_power_of_two_a_ring_never_overtakes_rabenseifner(p):
    """Both move and combine the same; the ring's 2 (p-1) - 2 lg p more latencies remain at any size."""
    for n in (0, p * p, 10**6 * p):
        behind = total("ring", p, n) - total("rabenseifner", p, n)
        assert behind == pytest.approx(2 * (p - 1 - log2(p)) * ALPHA, rel=1e-6)


@pytest.mark.parametrize("p", POWERS + OTHERS)
def test_reduce_and_broadcast_never_win(p):
    for n in (0, 1, 1000, 10**6):
        assert total("recursive_doubling", p, n) <= total("binomial", p, n) * (1 + 1e-12)


# --- MPICH's switch points: an order of magnitude, as they are one number for all networks and ranks ---

ALLREDUCE_SHORT = 2048  # B, MPIR_CVAR_ALLREDUCE_SHORT_MSG_SIZE: up to here recursive doubling
BROADCAST_SHORT = 12288  # B, MPIR_CVAR_BCAST_SHORT_MSG_SIZE: below, a binomial tree


@pytest.mark.parametrize("p", POWERS)
def test_mpich_leaves_recursive_doubling_within_a_factor_of_three_of_the_crossover(p):
    """From 8 ranks on; on 4 the lines meet at 6 kB."""
    size = by_price("recursive_doubling", "rabenseifner", p)
    assert ALLREDUCE_SHORT / 3 < size < ALLREDUCE_SHORT * 3


@pytest.mark.parametrize("p", [p for p in OTHERS if p > 8])
def test_mpich_leaves_the_binomial_broadcast_within_a_factor_of_four_of_the_crossover(p):
    """From 8 ranks on; for powers of two it has another allgather in between, which is not made here."""
    size = by_price("binomial_broadcast", "van_de_geijn_broadcast", p)
    assert BROADCAST_SHORT / 4 < size < BROADCAST_SHORT * 4
