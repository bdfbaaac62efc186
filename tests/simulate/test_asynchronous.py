"""Asynchronous and local SGD: staleness, the server's limit, and what local steps save."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc.schedules import schedule
from lib_dlhpc.simulate.asynchronous import asynchronous_sgd, local_sgd
from lib_dlhpc.simulate.events import finish_times
from lib_dlhpc.spec.errors import SpecError
from lib_dlhpc.spec.machine import Device, Link, Machine

DEVICE = Device({"fp32": 1e13}, 1e10, 9e11, 100.0, 300.0)
MACHINE = Machine(DEVICE, Link(2e-6, 100e9), Link(5e-6, 12.5e9), nodes=1024)


@settings(max_examples=20)
@given(st.integers(1, 8), st.integers(1, 3), st.integers(0, 100))
def test_every_gradient_is_applied_once_and_staleness_adds_up(workers, servers, seed):
    run = asynchronous_sgd(MACHINE, workers, 1e6, 1e-2, 10, servers, jitter=0.2, seed=seed)
    assert (np.bincount(run.worker, minlength=workers) == 10).all()
    assert (np.diff(run.time) >= 0).all()
    assert run.histogram.sum() == len(run.time) == 10 * workers
    # Between two of its own updates a worker misses exactly those of the others.
    for worker in range(workers):
        own = np.flatnonzero(run.worker == worker)
        np.testing.assert_array_equal(run.staleness[own], np.diff(own, prepend=-1) - 1)


def test_one_worker_is_never_stale():
    assert asynchronous_sgd(MACHINE, 1, 1e6, 1e-2).histogram.tolist() == [20]


def test_equal_workers_miss_the_update_of_every_other():
    run = asynchronous_sgd(MACHINE, 6, 1e6, 1e-2)
    assert set(run.staleness[6:]) == {5}


def test_a_slow_worker_is_stale_and_holds_up_nobody():
    speed = np.array([1.0, 1.0, 1.0, 0.25])
    run = asynchronous_sgd(MACHINE, 4, 1e4, 1e-2, 40, speed=speed)
    early = run.time < 0.4
    assert run.staleness[early & (run.worker == 3)].mean() > 8
    assert run.staleness[early & (run.worker != 3)].mean() < 3
    assert np.diff(run.time[run.worker == 0]).max() < 1.1e-2


def test_one_server_is_the_limit_and_more_servers_lift_it():
    size, few = 12.5e6, {}
    for servers in (1, 2, 4):
        few[servers] = asynchronous_sgd(MACHINE, 16, size, 1e-3, 10, servers).rate
    assert few[1] <= 12.5e9 / size  # one NIC in, one NIC out
    assert few[2] == pytest.approx(2 * few[1], rel=0.15)
    assert few[4] == pytest.approx(4 * few[1], rel=0.25)


def test_the_same_seed_gives_the_same_bytes():
    runs = [asynchronous_sgd(MACHINE, 5, 1e6, 1e-2, jitter=0.1, seed=s) for s in (1, 1, 2)]
    assert runs[0].time.tobytes() == runs[1].time.tobytes() != runs[2].time.tobytes()


def test_errors_name_what_is_wrong():
    with pytest.raises(SpecError, match="servers = 0"):
        asynchronous_sgd(MACHINE, 2, 1e6, 1e-2, servers=0)


def test_local_steps_without_jitter_are_steps_and_an_exchange():
    plan = schedule("ring", 8, 1 << 20)
    exchange = finish_times(plan, MACHINE, 8, 1).max()
    ends = local_sgd(plan, MACHINE, 8, 1, 1e-2, local_steps=5, rounds=3)
    np.testing.assert_allclose(ends[:, 0], np.arange(1, 4) * (5e-2 + exchange), rtol=1e-9)


def test_local_steps_save_exchanges_and_waiting_for_stragglers():
    plan = schedule("ring", 16, 1 << 20)
    every = local_sgd(plan, MACHINE, 16, 1, 1e-2, 1, rounds=32, jitter=0.1)[-1].max()
    eighth = local_sgd(plan, MACHINE, 16, 1, 1e-2, 8, rounds=4, jitter=0.1)[-1].max()
    exchange = finish_times(plan, MACHINE, 16, 1).max()
    assert eighth < every - 28 * exchange
