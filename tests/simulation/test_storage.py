"""Laws of queues: what the simulated ones wait is what the closed forms say, open and closed."""

import numpy as np
import pytest
from queueing import closed_rate, open_wait, saturation

from lib_dlhpc import SpecError
from lib_dlhpc.costs.storage_reads import limits, reader_time
from lib_dlhpc.prediction.storage.profile import slides_run
from lib_dlhpc.simulation.storage import Station, StoragePath, arrivals, clients

SLOW = {
    "machine.storage.lustre.operation_latency": 1e-3,
    "machine.storage.lustre.read_latency": 8e-3,
    "storage.decode": 5e-3,
}
# Where nothing but the servers takes time, they never stand still.
AT_ONCE = {**dict.fromkeys(SLOW, 0.0), "machine.storage.lustre.reader_bandwidth": np.inf}


@pytest.mark.parametrize("load", [0.1, 0.3, 0.5])
def test_requests_at_random_wait_what_pollaczek_and_khinchine_say(load):
    """Within 2% over 400,000 requests."""
    played = arrivals(load / 3e-4, 3e-4, 400_000, seed=1)
    assert played.waits["server"] == pytest.approx(open_wait(load / 3e-4, 3e-4), rel=0.02)
    assert played.use["server"] == pytest.approx(load, rel=0.02)


@pytest.mark.slow
def test_near_saturation_it_takes_longer_to_see():
    """Within 2% over 3 million requests: one long queue is many waits that are alike."""
    played = arrivals(0.9, 1.0, 3_000_000, seed=2)
    assert played.waits["server"] == pytest.approx(open_wait(0.9, 1.0), rel=0.02)


def test_every_single_wait_is_lindleys():
    """W(n+1) = max(0, W(n) + s - gap), Lindley 1952."""
    gaps = np.random.default_rng(3).exponential(1.0, 1000)
    station, now, wait, total = Station(), 0.0, 0.0, 0.0
    for k, gap in enumerate(gaps):
        now, wait = now + gap, max(0.0, wait + 0.8 - gap) if k else 0.0
        assert station.take(now, 0.8) - now == pytest.approx(wait, abs=1e-9)
        total += wait
    assert station.mean_wait == pytest.approx(total / 1000)


def test_more_servers_take_more_at_a_time():
    station = Station(2)
    assert [station.take(0.0, 1.0) for _ in range(5)] == [0, 0, 1, 1, 2]
    assert station.busy == 5


def test_an_open_queue_beyond_its_server_has_no_mean():
    with pytest.raises(SpecError, match="below 1"):
        open_wait(1.1, 1.0)
    with pytest.raises(SpecError, match="above 0"):
        arrivals(0.0, 1.0, 10, seed=0)


@pytest.mark.parametrize("readers", [1, 8, 64, 100, 256, 2000])
def test_readers_get_what_they_ask_for_until_the_metadata_servers_are_the_limit(readers):
    """Within 2% over 20,000 files: N / alone below saturation, the servers' rate above it."""
    run = slides_run().set(SLOW)
    alone, service = sum(reader_time(run).values()), limits(run)["metadata servers"]
    played = clients(run, 20_000, readers)
    assert played.rate == pytest.approx(closed_rate(readers, alone, service), rel=0.02)
    assert 64 < saturation(alone, service) < 256


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({}, "metadata servers"),
        (
            {"storage.format": "packed", "machine.storage.lustre.bandwidth": 1e9},
            "storage bandwidth",
        ),
        ({"storage.format": "packed", "machine.inter_node.bandwidth": 1e7}, "network"),
        ({"machine.storage.lustre.read_rate": 1e3}, "storage bandwidth"),
        ({**AT_ONCE, "machine.storage.lustre.servers": "one"}, "storage bandwidth"),
        ({"storage.decode": 0.2}, "readers"),
        ({"storage.decode": 0.2, "storage.workers": 8}, "readers"),
        ({"storage.compression": 3.0, "storage.decompress": 1e6}, "readers"),
    ],
)
def test_whatever_the_limit_is_a_loaded_storage_gives_its_rate(changes, limit):
    run = slides_run().set({**SLOW, **changes})
    allowed = limits(run)
    assert max(allowed, key=allowed.get) == limit
    assert clients(run, 40_000).rate == pytest.approx(1 / allowed[limit], rel=0.02)


def test_where_one_server_does_both_short_requests_stand_behind_long_ones():
    """Readers move in convoys, and the server idles until the next is back: the rate is no more than a bound."""
    run = slides_run().set({**SLOW, "machine.storage.lustre.servers": "one"})
    most = 1 / limits(run)["storage bandwidth"]
    few, more = (clients(run, 40_000, readers).rate / most for readers in (256, 512))
    assert few < 0.75 < more < 0.9


@pytest.mark.parametrize("replication", [1, 4, 16])
def test_a_cooperative_store_gives_each_reader_what_the_round_trips_leave(replication):
    run = slides_run(access="cooperative").set(
        {
            "machine.storage.ssd.read_latency": 1e-4,
            "machine.inter_node.latency": 5e-3,
            "storage.decode": 5e-3,
            "storage.replication": replication,
        }
    )
    rate = 64 / sum(reader_time(run).values())
    assert clients(run, 40_000, readers=64).rate == pytest.approx(rate, rel=0.02)


def test_a_cache_keeps_its_share_of_the_requests_away():
    run = slides_run().set({"storage.cache": 70e9, "run.epochs": 1e9})
    assert clients(run, 40_000).rate == pytest.approx(
        2 / limits(slides_run())["metadata servers"], rel=0.02
    )


def test_the_same_seed_gives_the_same_run():
    run = slides_run(access="cooperative")
    assert clients(run, 2000, seed=4) == clients(run, 2000, seed=4)
    assert clients(run, 2000, seed=4) != clients(run, 2000, seed=5)


def test_who_cannot_read_is_reported_why():
    with pytest.raises(SpecError, match="at least 1"):
        clients(slides_run().set({"storage.workers": 0}))
    with pytest.raises(SpecError, match="in memory"):
        clients(slides_run().set({"storage.tier": ""}), readers=1)


def test_who_reads_elsewhere_reads_on_any_other_node_alike():
    way = StoragePath(slides_run(nodes=4, access="cooperative"), seed=6)
    for node in range(4):
        drawn = np.bincount([way._elsewhere(node) for _ in range(3000)], minlength=4)
        assert drawn[node] == 0
        assert (abs(np.delete(drawn, node) - 1000) < 5 * 1000**0.5).all()
