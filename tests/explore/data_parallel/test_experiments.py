"""The lesson on data parallelism: every control moves something, walls stand where they say, laws hold."""

import json
from typing import Any

import numpy as np
import pytest
from experiment_page import Now, click, words
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.explore.allreduce.measured import MpiMissing
from lib_dlhpc.explore.data_parallel import here as data_parallel_here
from lib_dlhpc.explore.data_parallel.bowl import most_stale_rate
from lib_dlhpc.explore.data_parallel.buckets import (
    BUCKETS,
    bucket_count,
    bucket_wall,
    goyal,
    step_of,
)
from lib_dlhpc.explore.data_parallel.drawings import LINES
from lib_dlhpc.explore.data_parallel.questions import lesson
from lib_dlhpc.explore.data_parallel.race import LASTS, RATES, Race, courses, the_race
from lib_dlhpc.explore.data_parallel.real import exchange_here, exchange_words
from lib_dlhpc.explore.data_parallel.scaling import (
    GPUS,
    Scaling,
    published,
    strong,
    weak,
    weak_and_strong,
)
from lib_dlhpc.explore.data_parallel.updates import averaged, predicted, served
from lib_dlhpc.explore.data_parallel.waiting import (
    Ranks,
    factors,
    ranks_chart,
    slowest_chart,
    the_slowest,
    waiting_share,
)
from lib_dlhpc.launch.mpi import run_to_end
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.simulation import simulate
from lib_dlhpc.timeline import breakdown

ROWS = [
    {"size": size, "buckets": n, "low": 1e-2, "median": 2e-2, "high": 3e-2, "price": 1e-2}
    for size, n in ((1e5, 315), (1e8, 1))
]
RUN = {"ranks": 4, "alpha": 1e-5, "beta": 1e-9, "gamma": 1e-10, "rows": ROWS}
SETTING = Scaling()


@pytest.mark.parametrize(
    "together",
    [
        ("during backward", "after backward"),
        ("weak", "strong", "ideal"),
        ("synchronous", "asynchronous", "local"),
    ],
)
def test_no_two_lines_of_a_chart_look_alike_without_color(together):
    assert len({json.dumps(LINES[name][1]) for name in together}) == len(together)
    assert len({LINES[name][2] for name in together}) == len(together)


# one step -------------------------------------------------------------------------------------------


def test_leaving_storage_out_does_not_change_the_published_run():
    there = replay("goyal-2017").experiment
    assert predict(goyal()).step_time == pytest.approx(
        float(predict(goyal().set({"strategy.nodes": there.strategy.nodes})).step_time)
    )
    assert predict(goyal()).step_time == pytest.approx(float(predict(there).step_time))


@given(
    st.sampled_from([8, 64, 256]),
    st.sampled_from([1, 32]),
    st.sampled_from(BUCKETS),
    st.booleans(),
    st.sampled_from(["hierarchical", "rabenseifner"]),
)
def test_what_is_simulated_is_what_is_predicted(gpus, images, bucket, overlap, allreduce):
    experiment = step_of(gpus, images, bucket, overlap, allreduce)
    simulated = breakdown(simulate(experiment)).step_time
    assert simulated == pytest.approx(float(predict(experiment).step_time), rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "wall"),
    [
        ({}, ""),
        ({"overlap": False}, "Nothing is hidden"),
        ({"bucket": 200e6}, "Bucket too large"),
        ({"bucket": 10e3, "allreduce": "ring"}, "Buckets too small: 58"),
        ({"nic": 10e9 / 8}, "The network"),
        ({"bucket": 50e6, "allreduce": "ring"}, "The last bucket"),
    ],
)
def test_each_wall_of_a_step_says_its_reason(changes, wall):
    reason = bucket_wall(predict(step_of(**changes)))
    assert reason.startswith(wall) and bool(reason) == bool(wall)


def test_with_a_ring_the_best_bucket_is_neither_the_smallest_nor_the_largest():
    times = [float(predict(step_of(allreduce="ring", bucket=b)).step_time) for b in BUCKETS]
    assert 0 < int(np.argmin(times)) < len(times) - 1
    assert bucket_count(step_of(bucket=200e6)) == 1


# waiting --------------------------------------------------------------------------------------------


def test_the_draws_are_those_of_the_simulator():
    setting = Ranks(ranks=16, steps=1, seed=5)
    timeline = simulate(goyal(0.03).set({"strategy.nodes": 2}), seed=5)
    rows = timeline.where("compute", "forward")
    forward = (timeline.stop - timeline.start)[rows][np.argsort(timeline.rank[rows])]
    drawn = factors(setting)[0]
    np.testing.assert_allclose(forward / forward.mean(), drawn / drawn.mean(), rtol=1e-9)


@pytest.mark.parametrize("ranks", [4, 32, 256, 2048])
def test_bloms_formula_meets_what_is_drawn(ranks):
    data, _ = slowest_chart(Ranks(ranks=ranks, jitter=0.05, steps=1000))
    at = list(data["line"]["x"]).index(ranks)
    assert data["points"]["y"][at] - 1 == pytest.approx(data["line"]["y"][at] - 1, rel=0.08)


def test_the_last_bar_is_the_slowest_alone_and_the_bars_hold_all_ranks():
    for ranks in (1, 2, 129, 130, 2048):
        times = factors(Ranks(ranks=ranks, slow=2.0))[-1]
        bars = ranks_chart(times)[0]["bars"]
        width = np.subtract(bars["stop"], bars["start"])
        assert width[-1] == 1 and width.sum() == ranks and bars["time"][-1] == times.max()
        assert (width * bars["time"]).sum() == pytest.approx(times.sum())


def test_one_slow_gpu_of_two_is_a_wall_and_equal_ones_wait_for_nobody():
    assert waiting_share(Ranks(jitter=0.0)) == 0
    assert waiting_share(Ranks(ranks=256, jitter=0.0, slow=2.0)) == pytest.approx(0.5, abs=0.01)
    assert "One slow GPU among 256" in the_slowest.view(Ranks(slow=2.0)).wall
    assert "The jitter of" in the_slowest.view(Ranks(jitter=0.2)).wall


# the race -------------------------------------------------------------------------------------------


@given(st.sampled_from([1, 2, 8]), st.sampled_from([1.0, 2.0]), st.sampled_from([0.2, 0.8, 1.6]))
def test_one_local_step_is_synchronous_training(workers, slow, rate):
    runs = list(courses(Race(workers, slow=slow, local_steps=1, rate=rate)).values())
    np.testing.assert_array_equal(runs[0].time, runs[2].time)
    np.testing.assert_array_equal(runs[0].loss, runs[2].loss)


def test_with_one_worker_nothing_is_stale_and_with_p_the_others_come_in_between():
    assert served(workers=1).staleness.max() == 0
    for workers in (4, 16):
        stale = served(workers, servers=4).staleness
        assert np.median(stale) == workers - 1


@pytest.mark.parametrize("stale", [0, 1, 3, 7, 15])
def test_the_largest_rate_of_stale_gradients_is_where_the_roots_leave_the_circle(stale):
    edge = most_stale_rate(stale + 1) / (stale + 1)
    for factor, inside in ((0.999, True), (1.001, False)):
        polynomial = np.zeros(stale + 2)  # z^(tau + 1) - z^tau + eta h
        polynomial[:2] = 1, -1
        polynomial[-1] += factor * edge
        assert (np.abs(np.roots(polynomial)).max() < 1) == inside


def test_a_slow_worker_delays_the_synchronous_and_not_the_asynchronous():
    equal, slow = (courses(Race(slow=s)) for s in (1.0, 4.0))
    assert slow["synchronous"].gradients < 0.3 * equal["synchronous"].gradients
    assert slow["asynchronous"].gradients > 0.85 * equal["asynchronous"].gradients
    assert slow["asynchronous"].reached < slow["synchronous"].reached


def test_beside_a_slow_worker_asynchronous_is_first_and_among_equals_at_the_best_rates_it_is_not():
    gradients = {name: run.gradients for name, run in courses(Race(slow=2.0)).items()}
    assert gradients["asynchronous"] / gradients["synchronous"] == pytest.approx(1.7, abs=0.05)
    for rate in (0.2, 0.4, 0.8, 1.2):
        reached = {name: run.reached for name, run in courses(Race(slow=2.0, rate=rate)).items()}
        assert min(reached, key=lambda name: reached[name]) == "asynchronous"
    best = [{name: run.reached for name, run in courses(Race(rate=rate)).items()} for rate in RATES]
    own = {name: min(each[name] for each in best) for name in best[0]}
    assert min(own, key=lambda name: own[name]) == "synchronous"
    check = lesson.texts["asynchronous"]["check"]
    assert "One of eight workers is half as fast" in check and "1.7 times as many" in check


def test_stale_gradients_diverge_first_and_one_server_is_a_wall_for_sixteen():
    fast = courses(Race(rate=1.9))
    assert fast["asynchronous"].loss[-1] > 1 > fast["synchronous"].loss[-1]
    assert "asynchronous diverges" in the_race.view(Race(rate=1.9)).wall
    assert "The servers: 16 workers" in the_race.view(Race(workers=16, servers=1)).wall
    assert the_race.view(Race()).wall == ""


@pytest.mark.parametrize("workers", [1, 2, 8, 16])
def test_prediction_and_simulation_meet_for_equal_workers(workers):
    runs, known = courses(Race(workers, servers=4)), predicted(workers, servers=4, local_steps=4)
    for (name, run), rate in zip(runs.items(), known, strict=True):
        near = 0.05 if name == "asynchronous" else 0.02
        assert run.gradients == pytest.approx(rate, rel=near)


def test_averages_come_in_order_and_last_the_whole_race():
    for steps in (1, 4, 16):
        times = averaged(8, 1.0, steps)
        assert (np.diff(times) > 0).all() and times[-1] > LASTS


# scaling --------------------------------------------------------------------------------------------


def test_efficiency_is_one_in_one_node_and_weak_scaling_only_loses():
    curve = weak(SETTING)
    assert curve.left[0] == pytest.approx(1)
    assert (np.diff(curve.left) < 0).all()


def test_strong_scaling_begins_where_memory_allows_and_ends_at_one_image_each():
    curve = strong(SETTING)
    assert curve.gpus[0] == 64 and curve.gpus[-1] == SETTING.batch
    assert 0 < int(np.argmax(curve.rate)) < len(curve.rate) - 1


@pytest.mark.parametrize(
    ("gpus", "wall"),
    [
        (8, "Memory: 1,024 images"),
        (256, ""),
        (2048, "The communication floor: 4 images"),
        (16384, "8,192 images on 16,384 GPUs: less than one each"),
    ],
)
def test_each_wall_of_scaling_says_its_reason(gpus, wall):
    reason = weak_and_strong.view(SETTING._replace(gpus=gpus)).wall
    assert reason.startswith(wall) and bool(reason) == bool(wall)


@given(st.sampled_from(GPUS), st.sampled_from([256, 8192]), st.sampled_from([4, 64]))
def test_any_scaling_can_be_shown(gpus, batch, images):
    for _, summary in weak_and_strong.view(Scaling(gpus, images, batch)).charts.values():
        assert summary.endswith(".")


def test_the_published_points_are_those_of_the_catalog():
    assert [(gpus, round(left, 3)) for gpus, left, _ in published()] == [(256, 0.9), (352, 0.893)]


# for real -------------------------------------------------------------------------------------------


def test_the_buckets_of_a_step_hold_all_gradients_once():
    whole = {
        sum(data_parallel_here.sizes_of_a_step(bucket)) for bucket in data_parallel_here.BUCKETS
    }
    assert len(whole) == 1
    assert len(data_parallel_here.sizes_of_a_step(data_parallel_here.BUCKETS[-1])) == 1


ENDS = """
from lib_dlhpc.explore.data_parallel import here
here.BUCKETS = here.BUCKETS[-2:]
here.measured.be_a_rank(here._steps)
"""


def test_four_ranks_exchange_the_gradients_of_a_step():
    """In the largest buckets only: the page's own test has all."""
    pytest.importorskip("mpi4py")
    result = data_parallel_here.measure(lambda n, *_, **rest: run_to_end(n, "-c", ENDS, **rest))
    assert len(result["rows"]) == 2
    for row in result["rows"]:
        assert 0 < row["low"] <= row["median"] <= row["high"] and row["price"] > 0
        assert row["buckets"] == len(data_parallel_here.sizes_of_a_step(row["size"]))


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("/bin/false", "ended with an error"),
        ("/bin/true", "ended with an error"),
        ("/nowhere/mpiexec", "could not be started"),
    ],
)
def test_ranks_that_do_not_come_through_are_explained(command, reason, monkeypatch):
    monkeypatch.setattr("lib_dlhpc.launch.mpi.mpiexec", lambda: command)
    with pytest.raises(MpiMissing, match=reason):
        data_parallel_here.measure()


def test_a_latency_that_is_the_schedulers_is_called_so():
    assert "scheduler" in exchange_words({**RUN, "alpha": 2e-3})
    assert "scheduler" not in exchange_words(RUN)


@pytest.mark.parametrize("fails", [False, True])
def test_the_button_comes_back_and_says_what_was_measured_or_why_not(fails):
    def measured(**_: Any) -> dict[str, Any]:
        if fails:
            raise MpiMissing("There is no mpiexec.")
        return RUN

    box = exchange_here(measured, Now)
    assert not click(box, "Exchange on 4 MPI ranks").disabled
    assert ("no mpiexec" in words(box)) == fails
    assert ("315 buckets take 20 ms" in words(box)) != fails
