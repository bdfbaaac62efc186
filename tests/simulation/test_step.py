"""Laws of a simulated step: predict's terms without jitter, physics with it, the same bytes for a seed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_runs import EQUAL, split

from lib_dlhpc import Experiment, SpecError
from lib_dlhpc.costs.network import network_of
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.schedules.choice import plan
from lib_dlhpc.simulation import simulate, simulate_terms
from lib_dlhpc.simulation.events import finish_times
from lib_dlhpc.simulation.simulation import Traffic
from lib_dlhpc.simulation.watchdog import Cancelled
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.strategy import ALLREDUCES
from lib_dlhpc.timeline import STREAMS, breakdown, critical_path, exposed, idle, span, waits
from lib_dlhpc.timeline.table import COLUMNS

GOYAL = replay("goyal-2017").experiment
QUIET = GOYAL.set({"machine.jitter": 0.0})
SMALL = Experiment(
    model="resnet18",
    dataset={"samples": 1_000_000, "bytes": "100 GB", "files": 1_000_000},
    machine={
        "name": "summit",
        "jitter": 0.0,
        "storage": {"fast": {"scope": "node", "bandwidth": "2 GB/s", "write_bandwidth": "1 GB/s"}},
    },
    strategy={"nodes": 2, "bucket": "10 MB"},
)


def allreduce_of(experiment, size=25e6):
    way = experiment.strategy.allreduce
    return plan("allreduce", size, network_of(experiment), int(experiment.devices), name=way)


def assert_equals_prediction(experiment, steps=1, fidelity="rounds"):
    found = breakdown(simulate(experiment, fidelity, steps=steps))
    expected = predict(experiment).terms
    total = sum(float(seconds) for seconds in expected.values())
    for terms in (found.terms, found.slowest_terms):
        assert set(terms) == set(expected)
        for name, seconds in expected.items():
            if name != "checkpoint":
                assert terms[name] == pytest.approx(float(seconds), rel=1e-9, abs=1e-9 * total)
    saving = float(expected["checkpoint"])
    assert found.step_time == pytest.approx(total - saving, rel=1e-9)


# --- without jitter: the prediction ---


REPLAYS = {name: replay(name).experiment for name in catalog.names("replays")}
PIPELINES = sorted(name for name, run in REPLAYS.items() if run.strategy.pipeline > 1)


@pytest.mark.parametrize("name", PIPELINES)
def test_historical_pipelines_without_jitter_take_what_is_predicted(name):
    run = REPLAYS[name].set({"machine.jitter": 0.0})
    # Without the rows of thousands of ranks: that terms are those of the rows is tested in tests/parallel.
    taken = (simulate_terms(run) if run.devices > 1024 else breakdown(simulate(run))).step_time
    predicted = float(predict(run).step_time)
    if run.strategy.experts > 1:
        # Ranks leave a sum over all replicas one by one, and those that hold the same experts may begin theirs.
        assert (1 - 3e-5) * predicted < taken < (1 + 1e-12) * predicted
    else:
        assert taken == pytest.approx(predicted, rel=1e-9)


@pytest.mark.parametrize("name", sorted(set(REPLAYS) - set(PIPELINES)))
def test_historical_runs_without_jitter_are_as_predicted(name):
    changes = {"machine.jitter": 0.0, "machine.topology": "single-switch"}  # rounds: no congestion
    assert_equals_prediction(REPLAYS[name].set(changes))


@pytest.mark.parametrize("allreduce", ALLREDUCES)
@pytest.mark.parametrize(
    "overlap, bucket", [(True, 1e6), (True, 25e6), (False, 25e6), (False, 1e9)]
)
def test_goyal_at_256_ranks_is_as_predicted(allreduce, overlap, bucket):
    changes = {
        "strategy.allreduce": allreduce,
        "strategy.overlap": overlap,
        "strategy.bucket": bucket,
        "machine.topology": "single-switch",
    }
    if allreduce == "parameter_server":  # predict lets the host of a node sum
        changes |= {
            "machine.nodes": 256,
            "machine.devices_per_node": 1,
            "strategy.nodes": 256,
            "calibration.devices": 1,
        }
    assert_equals_prediction(QUIET.set(changes))


@pytest.mark.parametrize(
    "allreduce", ["auto", *(name for name in ALLREDUCES if name != "parameter_server")]
)
@pytest.mark.parametrize("nodes", [1, 2, 3, 6])
@pytest.mark.parametrize("here", [1, 3, 6])
def test_any_number_of_ranks_is_as_predicted(allreduce, nodes, here):
    changes = {
        "strategy.nodes": nodes,
        "strategy.devices_per_node": here,
        "strategy.allreduce": allreduce,
        "machine.topology": "single-switch",
    }
    assert_equals_prediction(SMALL.set(changes), steps=3)


@pytest.mark.parametrize("topology", ["fat-tree", "rails", "rails-pxn", "dragonfly", "torus"])
def test_links_between_switches_slow_the_exchange_down_as_predicted(topology):
    """With one group of replicas, and with two beside each other."""
    machine = {"topology": topology, "nodes_per_switch": 2, "oversubscription": 4.0}
    one, two = split(EQUAL, data=8), split(EQUAL, data=4, tensor=2, zero=1, allreduce="ring")
    for run in (one, two):
        on = run.set({f"machine.{name}": value for name, value in machine.items()})
        assert simulate_terms(on).step_time == pytest.approx(predict(on).step_time, rel=1e-9)


@pytest.mark.parametrize("rate", ["1 kop/s", "10 Mop/s"])
@pytest.mark.parametrize("steps", [1, 4])
def test_a_late_batch_stalls_as_predicted(rate, steps):
    changes = {"storage.tier": "fast", "machine.storage.fast.metadata_rate": rate}
    experiment = SMALL.set({**changes, "run.checkpoint_interval": "1 h"})
    assert (float(predict(experiment).input_stall) > 0) == (rate == "1 kop/s")
    assert_equals_prediction(experiment, steps)


def test_one_device_has_nothing_to_exchange():
    timeline = simulate(SMALL.set({"strategy.nodes": 1, "strategy.devices_per_node": 1}))
    assert not timeline.where("communication").any() and not timeline.where("", "wait").any()


def test_a_model_without_parameters_exchanges_nothing():
    free = {"family": "sequential", "input": [4], "layers": [{"kind": "relu"}]}
    experiment = replace(SMALL, model=read_model(free))
    assert_equals_prediction(experiment)
    assert not simulate(experiment).where("communication").any()


# --- with jitter ---


@settings(max_examples=25)
def each_stream_does_one_thing_at_a_time(timeline, close):
    for rank in range(timeline.ranks):
        for stream in STREAMS:
            mine = timeline.select(timeline.where(stream) & (timeline.rank == rank))
            turns = np.lexsort((mine.stop, mine.start))  # what takes no time precedes the next row
            assert (mine.start[turns][1:] >= mine.stop[turns][:-1] - close).all()


@given(
    allreduce=st.sampled_from(ALLREDUCES),
    jitter=st.floats(0, 0.5),
    seed=st.integers(0, 99),
    steps=st.integers(1, 3),
    overlap=st.booleans(),
    bucket=st.sampled_from([1e6, 10e6, 1e9]),
    tier=st.sampled_from(["", "fast"]),
)
def test_a_step_obeys_cause_and_effect(allreduce, jitter, seed, steps, overlap, bucket, tier):
    experiment = SMALL.set(
        {
            "machine.jitter": jitter,
            "strategy.allreduce": allreduce,
            "strategy.overlap": overlap,
            "strategy.bucket": bucket,
            "storage.tier": tier,
            "machine.storage.fast.metadata_rate": "10 kop/s",
        }
    )
    timeline = simulate(experiment, seed=seed, steps=steps)
    close = 1e-12 * span(timeline)
    each_stream_does_one_thing_at_a_time(timeline, close)
    exchange = timeline.select(timeline.where("communication"))
    for number in np.unique(exchange.name):  # nobody has the sum before all have joined
        one = exchange.select(exchange.name == number)
        start, stop = (x.reshape(timeline.ranks, steps) for x in (one.start, one.stop))
        assert (stop.min(axis=0) >= start.max(axis=0)).all()
    sent = exchange.bytes.reshape(timeline.ranks, -1).sum(axis=1)
    assert (sent == 4 * experiment.model.parameters * steps).all()
    update = timeline.select(timeline.where("", "update"))
    last = exchange.stop.reshape(timeline.ranks, steps, -1).max(axis=-1)
    assert (update.start.reshape(timeline.ranks, steps) >= last).all()
    found = breakdown(timeline)
    assert all((seconds >= 0).all() for seconds in found.per_rank.values())
    np.testing.assert_allclose(sum(found.per_rank.values()), found.step_time, rtol=1e-9)
    assert found.step_time * steps == pytest.approx(span(timeline), rel=1e-12)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others():
    noisy = SMALL.set({"machine.jitter": 0.1})

    def all_bytes(timeline):
        return b"".join(getattr(timeline, column).tobytes() for column in COLUMNS)

    assert all_bytes(simulate(noisy, seed=3, steps=2)) == all_bytes(
        simulate(noisy, seed=3, steps=2)
    )
    assert all_bytes(simulate(noisy, seed=3)) != all_bytes(simulate(noisy, seed=4))
    assert all_bytes(simulate(noisy.set({"run.seed": 3}))) == all_bytes(simulate(noisy, seed=3))


def test_many_jittered_steps_come_near_the_prediction():
    experiment = GOYAL.set({"machine.jitter": 0.03})
    found, expected = breakdown(simulate(experiment, steps=100)), predict(experiment)
    assert found.step_time == pytest.approx(float(expected.step_time), rel=0.01)
    waiting = found.terms["waiting for the slowest"]
    assert waiting == pytest.approx(float(expected.straggler_wait), rel=0.05)


def test_a_straggler_in_the_exchange_is_waited_for_by_all():
    noisy = simulate(SMALL.set({"machine.jitter": 0.3}), seed=1)
    compute = noisy.where("compute", "backward")
    slowest = noisy.stop[compute].max()
    assert noisy.start[noisy.where("", "update")].min() >= slowest


# --- events ---


CROWDED = SMALL.set(
    {
        "machine.topology": "fat-tree",
        "machine.nodes_per_switch": 3,
        "machine.oversubscription": 8.0,
        "machine.inter_node.bandwidth": "0.1 GB/s",
        "strategy.nodes": 7,
        "strategy.devices_per_node": 1,
        "strategy.allreduce": "recursive_doubling",
        "strategy.bucket": "1 MB",
    }
)


@pytest.mark.parametrize("allreduce", ALLREDUCES)
@pytest.mark.parametrize(
    "nodes, here, overlap",  # each pair of two of them
    [
        (1, 1, False),
        (1, 2, True),
        (2, 1, True),
        (2, 2, False),
        (3, 1, False),
        (3, 2, True),
        (8, 1, True),
        (8, 2, False),
    ],
)
def test_events_without_contention_are_as_predicted(allreduce, nodes, here, overlap):
    if allreduce == "parameter_server" and here > 1:
        return  # predict lets the host of a node sum
    changes = {
        "strategy.nodes": nodes,
        "strategy.devices_per_node": here,
        "strategy.allreduce": allreduce,
        "strategy.overlap": overlap,
        "machine.topology": "single-switch",
    }
    assert_equals_prediction(SMALL.set(changes), steps=3, fidelity="events")


@settings(max_examples=20)
@given(st.sampled_from(ALLREDUCES), st.floats(0, 0.5), st.integers(0, 99), st.integers(1, 3))
def test_a_step_in_events_obeys_cause_and_effect(allreduce, jitter, seed, steps):
    experiment = CROWDED.set({"machine.jitter": jitter, "strategy.allreduce": allreduce})
    timeline = simulate(experiment, "events", seed, steps)
    close = 1e-12 * span(timeline)
    each_stream_does_one_thing_at_a_time(timeline, close)
    exchange = timeline.select(timeline.where("communication"))
    start, stop = (x.reshape(timeline.ranks, -1) for x in (exchange.start, exchange.stop))
    # Nobody has the sum before all have joined.
    assert (stop.min(axis=0) >= start.max(axis=0)).all()
    found = breakdown(timeline)
    assert all((seconds >= 0).all() for seconds in found.per_rank.values())
    assert found.step_time * steps == pytest.approx(span(timeline), rel=1e-12)


def test_a_late_ranks_bucket_and_the_next_of_the_others_share_the_links():
    """Seven ranks on two leaf switches fold unevenly: some begin a bucket while others end the last."""
    experiment = CROWDED.set({"machine.jitter": 0.5})
    timeline = simulate(experiment, "events", seed=1)
    exchange = timeline.select(timeline.where("communication"))
    joined, done, size = (x.reshape(7, -1) for x in (exchange.start, exchange.stop, exchange.bytes))
    alone = np.array(
        [
            finish_times(
                allreduce_of(experiment),
                experiment.machine,
                7,
                1,
                b / allreduce_of(experiment).elements,
                j,
            )
            for b, j in zip(size[0], joined.T, strict=True)
        ]
    ).T
    assert (joined[:, 1:].min(axis=0) < done[:, :-1].max(axis=0)).any()
    assert (done >= alone * (1 - 1e-9)).all() and (done > alone * 1.01).any()


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_more_steps_do_not_change_the_first(fidelity):
    noisy = CROWDED.set({"machine.jitter": 0.3})
    one, three = (simulate(noisy, fidelity, 5, steps) for steps in (1, 3))
    for kind in ("forward", "backward", "communication", "wait", "update"):
        first = [three.select(three.where("", kind) & (three.rank == r)) for r in range(7)]
        alone = [one.select(one.where("", kind) & (one.rank == r)) for r in range(7)]
        for short, long in zip(alone, first, strict=True):
            np.testing.assert_allclose(long.stop[: len(short)], short.stop, rtol=1e-12)
    update = three.select(three.where("", "update"))
    forward = three.select(three.where("", "forward"))
    assert (forward.start.reshape(7, 3)[:, 1:] == update.stop.reshape(7, 3)[:, :-1]).all()


# --- ranks that differ ---


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_a_slow_rank_computes_longer_and_all_wait_for_it(fidelity):
    speed = np.ones(12)
    speed[5] = 0.5
    even, uneven = (breakdown(simulate(SMALL, fidelity, speed=s)) for s in (1.0, speed))
    for kind in ("forward", "backward", "update"):
        np.testing.assert_allclose(uneven.per_rank[kind], even.per_rank[kind] / speed, rtol=1e-9)
    assert uneven.slowest == 5
    work = sum(even.terms[kind] for kind in ("forward", "backward", "update"))
    assert uneven.step_time >= 2 * work
    others = np.delete(uneven.per_rank["waiting for the slowest"], 5)
    np.testing.assert_allclose(others, work, rtol=1e-9)
    assert uneven.per_rank["waiting for the slowest"][5] == 0


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_all_twice_as_fast_compute_twice_as_fast(fidelity):
    timeline = simulate(SMALL, fidelity, speed=2.0)
    twice, once = breakdown(timeline).terms, breakdown(simulate(SMALL, fidelity)).terms
    for kind in ("forward", "backward", "update"):
        assert twice[kind] == pytest.approx(once[kind] / 2, rel=1e-9)


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
@pytest.mark.parametrize("speed", [[1.0] * 11, 0.0, [1.0] * 11 + [-1.0], float("nan")])
def test_a_speed_that_cannot_be_is_reported(fidelity, speed):
    with pytest.raises(SpecError, match="speed"):
        simulate(SMALL, fidelity, speed=speed)


# --- others on the same links ---


def test_background_traffic_goes_on_from_step_to_step():
    """An endless flow that starts with the second step halves what the exchange has from then on."""
    slow = SMALL.set({"machine.inter_node.bandwidth": "1 GB/s", "strategy.devices_per_node": 1})
    alone = simulate(slow, "events", steps=3)
    begin = float(np.unique(alone.start[alone.where("", "forward")])[1])
    others = [Traffic(0, 1, np.inf, start=begin)]
    shared = simulate(slow, "events", steps=3, background=others)
    lengths = [
        np.diff(np.unique(t.stop[t.where("", "update") & (t.rank == 0)])) for t in (alone, shared)
    ]
    np.testing.assert_allclose(lengths[0], lengths[0][0])
    assert (lengths[1] > 1.5 * lengths[0]).all()
    first = [t.stop[t.where("", "update") & (t.rank == 0)].min() for t in (alone, shared)]
    assert first[0] == first[1]


def test_rounds_know_no_background_and_no_message():
    with pytest.raises(SpecError, match=r"background: .*'events' only"):
        simulate(SMALL, background=[Traffic(0, 1, 8.0)])
    with pytest.raises(SpecError, match=r"messages: .*'events' only"):
        simulate(SMALL, messages=10)
    with pytest.raises(SpecError, match="background: target = 12: expected a rank, 0 to 11"):
        simulate(SMALL, "events", background=[Traffic(0, 12, 8.0)])


# --- models of input and checkpoints ---


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_a_constant_input_is_what_the_tier_gives(fidelity):
    experiment = SMALL.set(
        {
            "machine.jitter": 0.1,
            "storage.tier": "fast",
            "machine.storage.fast.metadata_rate": "1 kop/s",
        }
    )
    seconds = float(predict(experiment.set({"machine.jitter": 0.0})).step_time)  # it is what counts
    constant = simulate(experiment, fidelity, steps=3)
    fetch = constant.where("input")
    each = (constant.stop - constant.start)[fetch]
    np.testing.assert_allclose(each, each[0], rtol=1e-12)
    assert each[0] == pytest.approx(seconds, rel=1e-9)
    hooked = simulate(
        SMALL.set({"machine.jitter": 0.1}), fidelity, steps=3, input=lambda *_: each[0]
    )
    np.testing.assert_allclose(hooked.stop, constant.stop, rtol=1e-12)


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_a_late_batch_of_one_rank_in_one_step_is_waited_for_by_all(fidelity):
    quiet = simulate(SMALL, fidelity, steps=3)
    length = quiet.stop[quiet.where("", "update")].min()
    late = simulate(
        SMALL, fidelity, steps=3, input=lambda step, rank: 3 * length * ((step, rank) == (1, 4))
    )
    stalls = [row for row in late if row.stream == "compute" and row.kind == "input"]
    (stall,) = stalls
    assert stall.rank == 4 and stall.stop - stall.start == pytest.approx(2 * length, rel=0.01)
    # The others begin step 2, and wait for rank 4 in its exchange.
    assert span(late) == pytest.approx(span(quiet) + 2 * length, rel=0.01)
    assert breakdown(late).terms["input stall"] == 0


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_all_ranks_wait_for_a_checkpoint(fidelity):
    quiet = simulate(SMALL, fidelity, steps=4)
    saved = simulate(SMALL, fidelity, steps=4, checkpoint=lambda step: 0.5 * (step % 2))
    assert span(saved) == pytest.approx(span(quiet) + 1.0, rel=1e-9)
    found, expected = breakdown(saved), breakdown(quiet)
    assert found.terms["checkpoint"] == pytest.approx(1.0 / 4, rel=1e-9)
    for name in set(expected.terms) - {"checkpoint"}:
        assert found.terms[name] == pytest.approx(expected.terms[name], rel=1e-9, abs=1e-12)
    for stream in ("compute", "checkpoint"):
        rows = saved.select(saved.where(stream, "checkpoint"))
        assert len(rows) == 2 * 12
        np.testing.assert_allclose(rows.stop - rows.start, 0.5, rtol=1e-9)


def test_what_takes_no_time_leaves_no_row_and_what_cannot_be_is_reported():
    plain = simulate(SMALL, steps=2)
    same = simulate(SMALL, steps=2, input=lambda *_: 0.0, checkpoint=lambda _: 0.0)
    for column in COLUMNS:
        np.testing.assert_array_equal(getattr(same, column), getattr(plain, column))
    with pytest.raises(SpecError, match="checkpoint returned -1: expected s"):
        simulate(SMALL, checkpoint=lambda _: -1.0)
    with pytest.raises(SpecError, match="input returned nan"):
        simulate(SMALL, input=lambda *_: float("nan"))


def test_no_checkpoint_is_written_without_a_model_of_it():
    timeline = simulate(
        SMALL.set({"storage.tier": "fast", "run.checkpoint_interval": 1e-3}), steps=3
    )
    assert not timeline.where("", "checkpoint").any()


# --- messages ---


def test_messages_are_rows_within_their_bucket_and_change_no_measure():
    noisy = CROWDED.set({"machine.jitter": 0.3})
    plain, full = (simulate(noisy, "events", 1, 2, messages=n) for n in (0, 10**6))
    sent = full.peer >= 0
    for column in COLUMNS:
        if column != "name":
            np.testing.assert_array_equal(getattr(full, column)[~sent], getattr(plain, column))
    assert critical_path(full).stop.tolist() == critical_path(plain).stop.tolist()
    assert [row.name for row in critical_path(full)] == [row.name for row in critical_path(plain)]
    for measure in (exposed, idle, waits):
        np.testing.assert_allclose(measure(full), measure(plain), rtol=1e-12)
    assert span(full) == span(plain)
    found, expected = breakdown(full), breakdown(plain)
    for name, seconds in expected.per_rank.items():
        np.testing.assert_array_equal(found.per_rank[name], seconds)
    rows, plan = full.select(sent), allreduce_of(noisy)
    assert len(rows) == 2 * 12 * sum(map(len, plan))
    assert (rows.rank != rows.peer).all() and (rows.stop > rows.start).all()
    elements = sum(int(part.count.sum()) for part in plan)
    moved = 2 * 4 * noisy.model.parameters * elements / plan.elements
    assert rows.bytes.sum() == pytest.approx(moved, rel=1e-6)
    for rank in range(7):
        mine = rows.select(rows.rank == rank)
        bucket = plain.select(plain.where("communication") & (plain.rank == rank))
        at = np.searchsorted(bucket.start, mine.start, side="right") - 1
        assert (mine.stop <= bucket.stop[at]).all()
        assert (mine.start[1:] >= mine.stop[:-1]).all()  # the port is serial


def test_of_too_many_messages_the_first_to_arrive_are_kept():
    every, few = (simulate(CROWDED, "events", messages=n) for n in (10**6, 50))
    kept = few.stop[few.peer >= 0]
    assert len(kept) == 50
    assert sorted(kept) == sorted(every.stop[every.peer >= 0])[:50]


# --- progress ---


@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_progress_is_reported_up_to_the_last_message_and_may_cancel(fidelity):
    reports = []
    timeline = simulate(CROWDED, fidelity, steps=2, progress=lambda *row: reports.append(row))
    seconds, delivered, total = zip(*reports, strict=True)
    assert list(delivered) == sorted(delivered) and list(seconds) == sorted(seconds)
    assert delivered[-1] == total[-1] and len(set(total)) == 1
    passes_and_buckets, sent = 2 * (2 + 12), 2 * 12 * allreduce_of(CROWDED).messages
    assert total[0] == (passes_and_buckets if fidelity == "rounds" else sent)
    last_bucket = timeline.stop[timeline.where("communication")].max()
    assert seconds[-1] == pytest.approx(last_bucket if fidelity == "rounds" else span(timeline))
    with pytest.raises(Cancelled) as caught:
        simulate(CROWDED, fidelity, steps=50, progress=lambda time, n, all: n < 100)
    assert 100 <= caught.value.messages < 50 * total[0] / 2


# --- mistakes ---


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"fidelity": "round"}, "Did you mean 'rounds'"),
        ({"steps": 0}, "steps = 0"),
        (
            {"experiment": SMALL.set({"strategy.nodes": np.array([1, 2])})},
            r"strategy\.nodes: an array",
        ),
        ({"experiment": SMALL.set({"strategy.spatial": 2, "model.name": "mlp-digits"})}, "rows"),
        (
            {
                "experiment": SMALL.set(
                    {"strategy.precision": "fp64", "machine.device.name": "tpu-v3"}
                )
            },
            "fp64",
        ),
        (
            {"experiment": SMALL.set({"machine.inter_node.bandwidth": np.array([1e9, 1e10])})},
            r"machine\.inter_node\.bandwidth: an array",
        ),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_a_mistake_is_reported(arguments, words):
    with pytest.raises(SpecError, match=words):
        simulate(**{"experiment": SMALL, **arguments})
