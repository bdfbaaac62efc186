"""Laws of asynchronous updates: every gradient once, the servers' limit, staleness and its bound."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib_dlhpc import Experiment, SpecError
from lib_dlhpc.prediction import predict
from lib_dlhpc.simulation import simulate
from lib_dlhpc.simulation.asynchronous import asynchronous_sgd, serve_experiment
from lib_dlhpc.simulation.compare import NOTABLE, why
from lib_dlhpc.simulation.simulation import Traffic
from lib_dlhpc.simulation.staleness import as_dict, report, updates
from lib_dlhpc.simulation.step import conditions_of, worker_of
from lib_dlhpc.simulation.step_terms import measure
from lib_dlhpc.simulation.watchdog import Cancelled
from lib_dlhpc.spec.machine import Device, Link, Machine
from lib_dlhpc.timeline import span

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


# --- of an experiment ---

RUN = Experiment(
    model="resnet18",
    dataset={"samples": 1_000_000, "bytes": "100 GB", "files": 1_000_000},
    machine={
        "name": "summit",
        "topology": "single-switch",
        "jitter": 0.0,
        "storage": {"fast": {"scope": "node", "bandwidth": "2 GB/s", "write_bandwidth": "1 GB/s"}},
    },
    strategy={"nodes": 6, "devices_per_node": 1, "update": "asynchronous"},
)


def cycle(experiment, steps=40, **options):
    """Seconds from step to step of each worker when the start is over, (workers,)."""
    return cycle_of(simulate(experiment, "events", steps=steps, **options), steps)


def cycle_of(timeline, steps):
    """The same of a simulated timeline."""
    made = timeline.select(timeline.where("compute", "update")).sorted().stop
    made = made.reshape(timeline.ranks, steps)
    return (made[:, -1] - made[:, steps // 2]) / (steps - 1 - steps // 2)


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
@pytest.mark.parametrize("servers", [1, 2, 7])
def test_one_worker_takes_compute_push_and_pull_exactly(fidelity, servers):
    alone = RUN.set({"strategy.nodes": 1, "strategy.servers": servers})
    timeline = simulate(alone, fidelity, steps=3)
    found, expected = measure(alone, timeline), predict(alone)
    assert found.steps == 3
    for name, seconds in expected.terms.items():
        assert found.terms[name] == pytest.approx(float(seconds), rel=1e-9, abs=1e-12)
    run = updates(timeline)
    assert run.histogram.tolist() == [3]
    assert run.rate * float(expected.step_time) == pytest.approx(1.0, rel=0.2)  # the last pull


@pytest.mark.parametrize(("nodes", "here"), [(2, 1), (6, 1), (2, 6), (24, 1), (40, 1)])
@pytest.mark.parametrize("servers", [1, 2, 4])
def test_the_steady_state_is_predicted(nodes, here, servers):
    changes = {"strategy.nodes": nodes, "strategy.devices_per_node": here}
    run = RUN.set({**changes, "strategy.servers": servers})
    expected, timeline = predict(run), simulate(run, "events", steps=40)
    found = cycle_of(timeline, 40).mean()
    assert found >= float(expected.step_time) * (1 - 1e-9)  # a bound
    assert found == pytest.approx(float(expected.step_time), rel=0.06)
    late = updates(timeline).staleness[20 * nodes * here :]
    assert late.mean() == pytest.approx(float(expected.staleness), rel=0.02)


def test_a_straggler_slows_nobody_else_down_but_everyone_in_step():
    speed = np.array([1.0, 1.0, 1.0, 0.5, 1.0, 1.0])
    run = RUN.set({"strategy.batch": 256})
    before, with_it = cycle(run), cycle(run, speed=speed)
    others = speed == 1
    assert with_it[others] == pytest.approx(before[others], rel=0.02)
    assert with_it[~others] == pytest.approx(2 * before[~others], rel=0.1)
    together = run.set({"strategy.update": "synchronous"})
    assert cycle(together, speed=speed) == pytest.approx(2 * cycle(together), rel=0.1)


@pytest.mark.parametrize("bound", [1, 2, 4])
@pytest.mark.parametrize("servers", [1, 3])
def test_no_gradient_is_staler_than_the_bound_allows(bound, servers):
    speed = np.array([1.0, 1.2, 0.9, 0.4, 1.0, 1.1])
    changes = {"strategy.staleness": bound, "strategy.servers": servers, "machine.jitter": 0.3}
    run = RUN.set(changes)
    timeline = simulate(run, steps=30, speed=speed)
    found = updates(timeline)
    assert found.staleness.max() <= 5 * (2 * bound + 1)
    made = np.zeros(6, int)
    for worker in found.worker:
        made[worker] += 1
        assert made.max() - made.min() <= bound + 1  # begun at most `bound` ahead, then completed
    free = updates(simulate(run.set({"strategy.staleness": 0}), steps=30, speed=speed))
    assert free.staleness.max() > found.staleness.max()
    assert measure(run, timeline).terms["waiting for the slowest"] > 0


def test_with_a_bound_the_slowest_sets_everyones_pace():
    speed = np.array([1.0, 1.0, 1.0, 0.5, 1.0, 1.0])
    found = cycle(RUN.set({"strategy.staleness": 3, "strategy.batch": 256}), speed=speed)
    assert found == pytest.approx(found[3], rel=0.02)


def test_what_a_bound_costs_under_jitter_is_near_the_prediction():
    run = RUN.set({"strategy.nodes": 16, "strategy.servers": 4, "strategy.staleness": 1})
    run = run.set({"strategy.batch": 256, "machine.jitter": 0.2})
    found = measure(run, simulate(run, "events", steps=120))
    waiting = float(predict(run).straggler_wait)
    assert found.terms["waiting for the slowest"] == pytest.approx(waiting, rel=0.35)


@settings(max_examples=25)
@given(
    jitter=st.floats(0, 0.5),
    seed=st.integers(0, 99),
    servers=st.integers(1, 4),
    bound=st.integers(0, 3),
    here=st.integers(1, 3),
    tier=st.sampled_from(["", "fast"]),
)
def test_the_timeline_obeys_cause_and_effect_and_tells_of_every_update(
    jitter, seed, servers, bound, here, tier
):
    run = RUN.set(
        {
            "machine.jitter": jitter,
            "strategy.servers": servers,
            "strategy.staleness": bound,
            "strategy.devices_per_node": here,
            "strategy.nodes": 4,
            "storage.tier": tier,
            "machine.storage.fast.metadata_rate": "10 kop/s",
        }
    )
    steps = 5
    timeline = simulate(run, seed=seed, steps=steps)
    assert timeline.ranks == 4 * here
    close = 1e-12 * span(timeline)
    for rank in range(timeline.ranks):
        for stream in ("compute", "input"):  # a stream does one thing at a time
            mine = timeline.select(timeline.where(stream) & (timeline.rank == rank))
            assert (mine.start[1:] >= mine.stop[:-1] - close).all()
    sent = timeline.select(timeline.where("communication"))
    assert len(sent) == 2 * steps * timeline.ranks
    assert set(sent.bytes) == {4 * run.model.parameters}
    found = measure(run, timeline)
    np.testing.assert_allclose(sum(found.per_rank.values()), found.step_time, rtol=1e-9)
    assert all((seconds >= 0).all() for seconds in found.per_rank.values())
    conditions = conditions_of(run, seed, steps, np.ones(timeline.ranks))
    # as counted where it happens
    direct = serve_experiment(run, conditions, worker_of(run), "rounds").run
    told = updates(timeline)
    for name in ("time", "worker", "staleness"):
        np.testing.assert_array_equal(getattr(told, name), getattr(direct, name))


def test_the_timeline_has_the_same_bytes_for_a_seed():
    run = RUN.set({"machine.jitter": 0.1})
    shown = [simulate(run, seed=seed, steps=3).stop.tobytes() for seed in (1, 1, 2)]
    assert shown[0] == shown[1] != shown[2]


def test_fidelity_events_knows_the_uplinks_and_rounds_only_the_nics():
    tree = {"machine.topology": "fat-tree", "machine.nodes_per_switch": 2}
    run = RUN.set({**tree, "machine.oversubscription": 8.0, "strategy.servers": 2})
    nics, links = (span(simulate(run, fidelity, steps=5)) for fidelity in ("rounds", "events"))
    assert links > 1.2 * nics
    assert nics == span(simulate(run.set({"machine.topology": "single-switch"}), steps=5))


def test_hooks_and_others_traffic_have_their_rows_and_their_price():
    base = span(simulate(RUN, "events", steps=4))
    saved = simulate(RUN, "events", steps=4, checkpoint=lambda step: 0.5 * (step == 1))
    assert saved.where("checkpoint").sum() == 6 and span(saved) > base + 0.4
    fetched = simulate(RUN, "events", steps=4, input=lambda step, rank: 1.0 * (rank == 2))
    still = fetched.select(fetched.where("compute", "input"))
    assert set(still.rank) == {2} and span(fetched) > base + 2
    crowd = [Traffic(source, 6, np.inf) for source in range(3)]  # rank 6 is the server
    assert span(simulate(RUN, "events", steps=4, background=crowd)) > base * 1.1


def test_it_can_be_watched_and_cancelled():
    seen = []
    simulate(RUN, steps=3, progress=lambda *at: seen.append(at))
    assert seen[-1][1:] == (36, 36)  # 6 workers, 3 steps, a push and a pull
    with pytest.raises(Cancelled):
        simulate(RUN.set({"strategy.nodes": 64}), steps=40, progress=lambda *at: False)


def test_what_is_said_of_staleness_adds_up():
    timeline = simulate(RUN.set({"strategy.nodes": 40}), steps=20)
    told, plain = report(timeline), as_dict(timeline)
    run = updates(timeline)
    assert "800 updates" in told and f"largest {run.staleness.max()}" in told
    shares = [int(part.split(":")[1].strip("% \n")) for part in told.split("\n")[1].split(",")]
    assert sum(shares) == pytest.approx(100, abs=4) and len(shares) <= 8
    assert sum(plain["histogram"]) == 800 and plain["mean"] == pytest.approx(run.staleness.mean())


@pytest.mark.parametrize("nodes", [1, 6])
@pytest.mark.parametrize("topology", ["single-switch", "fat-tree"])
@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_where_terms_differ_from_the_prediction_it_says_why(nodes, topology, fidelity):
    run = RUN.set({"strategy.nodes": nodes, "machine.topology": topology})
    run = run.set({"machine.nodes_per_switch": 2, "machine.oversubscription": 4.0})
    found = measure(run, simulate(run, fidelity, steps=2)).terms
    expected = {name: float(seconds) for name, seconds in predict(run).terms.items()}
    notable = NOTABLE * sum(expected.values())
    differs = any(abs(found[name] - expected[name]) > notable for name in expected)
    reasons = why(run, fidelity, found, expected)
    assert bool(reasons) == differs and differs >= (nodes > 1)
    assert any("only the NICs" in reason for reason in reasons) == (
        differs and fidelity == "rounds" and topology == "fat-tree"
    )
