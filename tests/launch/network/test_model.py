"""Time of a schedule over TCP: the fit recovers given parameters; without acknowledgements it equals the textbook's."""

import numpy as np
import pytest

from lib_dlhpc.launch.network import NetworkError
from lib_dlhpc.launch.network.crossover import Crossover, Row, predicted
from lib_dlhpc.launch.network.model import Messages, crossing, fit, seconds
from lib_dlhpc.schedules import price, schedule

ALPHA, BETA, ACK, SHORT = 1.2e-3, 8e-8, 1.1e-3, 128
SIZES = np.array([8, 64, 128, 256, 1024, 4096, 16_384, 65_536, 262_144])


def points(ack=ACK, short_alpha=1e-3):
    long = SIZES > SHORT
    one_way = np.where(long, ALPHA, short_alpha) + BETA * SIZES
    both = one_way + np.where(long, ack, 0.0)
    return [
        {"size": int(s), "one_way": a, "exchange": b}
        for s, a, b in zip(SIZES, one_way, both, strict=True)
    ]


def test_a_fit_finds_what_was_put_in():
    found = fit(points(), gamma=1e-11)
    assert found == pytest.approx((ALPHA, BETA, 1e-3, SHORT, ACK, 1e-11), rel=1e-6)


def test_without_acknowledgements_none_are_found():
    found = fit(points(ack=0.0, short_alpha=ALPHA))
    assert found.alpha == pytest.approx(ALPHA) and found.beta == pytest.approx(BETA)
    assert found.acknowledgement == 0.0


@pytest.mark.parametrize("algorithm", ["ring", "recursive_doubling", "rabenseifner"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("elements", [64, 4096])
def test_a_synchronized_schedule_takes_the_modeled_time(algorithm, ranks, elements):
    plan = schedule(algorithm, ranks, elements)
    gamma = 1e-9
    free = Messages(ALPHA, BETA, ALPHA, 0, 0.0, gamma)
    textbook = price(plan, ALPHA, BETA, gamma).total
    assert seconds(plan, free) == pytest.approx(textbook)
    assert seconds(plan, free, calls=5) == pytest.approx(textbook)
    waits = free._replace(acknowledgement=ACK)
    rounds = sum(1 for part in plan if len(part))
    assert seconds(plan, waits) == pytest.approx(textbook + rounds * ACK)


def test_short_messages_do_not_queue():
    plan = schedule("ring", 4, 4 * SHORT // 4)
    found = Messages(ALPHA, BETA, ALPHA / 2, SHORT, ACK)
    assert seconds(plan, found) == pytest.approx(price(plan, ALPHA / 2, BETA).total)


def test_a_rank_that_only_receives_waits_for_no_acknowledgement():
    plan = schedule("binomial_broadcast", 2, 4096)
    found = Messages(ALPHA, BETA, ALPHA, 0, ACK)
    once = ALPHA + BETA * 4096 * 4
    assert seconds(plan, found) == pytest.approx(once + ACK)  # the sender's
    assert seconds(plan, found, calls=100) == pytest.approx(once + ACK)


def test_a_crossing_is_where_two_lines_cross():
    sizes = [1e3, 1e5, 1e6]
    one, other = ([a + b * s for s in sizes] for a, b in ((1e-3, 2e-8), (3e-3, 1e-8)))
    assert crossing(sizes, one, other) == pytest.approx(2e5)
    assert crossing(sizes, other, one) == pytest.approx(2e5)
    assert crossing(sizes[:2], one[:2], other[:2]) is None
    assert crossing(sizes, one, [1.01 * t for t in one]) is None  # nearly the same decide nothing


def test_other_programs_are_reported_where_they_counted():
    rows = [{"algorithm": "ring", "size": 4096, "calls": 3, "right": True, "measured": 1e-2}]
    results = {"ranks": 4, "points": points(), "gamma": 0.0, "rows": rows}
    quiet = predicted(results | {"load": 0.0}, 12.5e6, 1e-3).as_text()
    busy = predicted(results | {"load": 3.0}, 12.5e6, 1e-3).as_text()
    assert "other processes" not in quiet and "About 3.0 other processes" in busy


def test_a_wrong_sum_is_an_error():
    rows = [{"algorithm": "ring", "size": 4096, "calls": 3, "right": False, "measured": 1e-2}]
    results = {"ranks": 4, "points": points(), "gamma": 0.0, "rows": rows}
    with pytest.raises(NetworkError, match="ring at 4096 B"):
        predicted(results, 12.5e6, 1e-3)


def test_an_error_that_rounds_to_zero_has_no_minus():
    row = Row("ring", 4096, 1.0, 0.999, 0.998)  # -0.1% and -0.2%
    shown = Crossover(4, 1e7, 1e-3, fit(points(), gamma=1e-11), (row,), ()).as_text()
    assert "+0%" in shown and "-0%" not in shown
