"""Whole steps: slowdown over the sum of the parts, and the spread from run to run."""

from dataclasses import replace

import numpy as np
import pytest
from planted import Planted

from lib_dlhpc.calibration.machine import fit_machine
from lib_dlhpc.calibration.machine_report import as_lines
from lib_dlhpc.calibration.programs import STEPS
from lib_dlhpc.calibration.step_fit import LEAST, expected, slowdown_factors
from lib_dlhpc.prediction import predict
from lib_dlhpc.spec.experiment import read_experiment
from lib_dlhpc.spec.measured_machine import slowed
from lib_dlhpc.timeline import from_rows
from lib_dlhpc.training.optimizers import RULES
from lib_dlhpc.training.probe import NETWORKS, STREAMED, Case
from lib_dlhpc.training.probe_steps import WARM_UP, by_step, experiments, tiny


@pytest.fixture(scope="module")
def parts():
    return fit_machine(Planted().raw()).machine


def moment(machine, slowdown=1.0, efficiency=1.0, others=0.1, ranks=2, alone=None):
    """The results of a moment with slower compute and a fraction of the bandwidth.

    alone: compute slowdown of an isolated rank, also reported. Tiny runs take the sum of their parts, since their
    overhead is fitted to such runs.
    """
    runs = []
    tables = [(table, slowdown) for table in experiments(ranks)] + [(tiny(ranks), 1.0)]
    tables += [(table, alone) for table in experiments(1) if alone] + [(tiny(1), 1.0)] * bool(alone)
    for table, slowdown in tables:
        work, cost = expected(read_experiment(table), machine)
        wait = cost.latency + cost.reduction + cost.bandwidth / efficiency
        steps = {"busy": slowdown * work, "behind": 1e-5, "wait": wait + 1e-5}
        about = {"experiment": table, "tiny": table in (tiny(1), tiny(ranks))}
        runs.append(about | {name: [took] * 20 for name, took in steps.items()})
    return {"ranks": ranks, "others": [others], "runs": runs}


def found(moments, ranks=2):
    return fit_machine(Planted(ranks=ranks).raw() | {STEPS: moments})


@pytest.fixture(scope="module")
def slower(parts):
    """The machine whose steps take 1.2 times their parts."""
    return found([moment(parts, 1.2, alone=1.2)] * 3).machine


def test_what_a_step_adds_to_its_parts_is_found(parts):
    one = found([moment(parts, 1.2)] * 3)
    assert one.machine.device.slowdown == pytest.approx(1.2)
    assert np.abs(one.whole.errors).max() < 1e-9 and len(one.whole.errors) == 24
    assert any(line.startswith("whole steps of 24 real runs") for line in as_lines(one))
    assert one.machine.measured.intervals["intra_node.efficiency"] == pytest.approx((1.0, 1.0))


def test_what_slows_all_steps_has_slowed_the_tiny_run_s_and_does_not_count_twice(parts):
    one = found([moment(parts, 1.05)] * 3)
    tiny, device = one.layers.tiny, one.machine.device
    assert device.slowdown == pytest.approx(1.05) and 0 < device.overhead < parts.device.overhead
    assert device.slowdown * (device.overhead + tiny.inside) == pytest.approx(tiny.steps[1])
    low, high = one.machine.measured.intervals["device.overhead"]
    assert low <= device.overhead <= high


@pytest.mark.parametrize("share", [0.9, 0.5, 0.25])
def test_compute_slowdown_and_bandwidth_in_a_step_are_distinguished(parts, share):
    """A rank by itself has no exchange, others have more or less of it; shares are tried in steps of 2.8%."""
    machine = found([moment(parts, 1.2, share, alone=1.2)] * 3).machine
    assert machine.intra_node.efficiency == pytest.approx(share, rel=0.03)
    assert machine.device.slowdown == pytest.approx(1.2, rel=0.01)


def test_tensor_parallel_runs_only_widen_the_interval(parts):
    results = moment(parts, 1.1)
    for run in results["runs"]:
        if "tensor" in run["experiment"]["strategy"]:
            run["wait"] = [wait + 0.2 * np.median(run["busy"]) for wait in run["wait"]]
    machine = found([results] * 3).machine
    assert machine.device.slowdown == pytest.approx(1.1)
    assert machine.intra_node.efficiency == 1.0
    assert machine.measured.intervals["device.slowdown"][1] == pytest.approx(1.32)


def test_an_exchange_that_is_priced_too_low_does_not_pass_for_computing(parts):
    """A rank by itself has none: it and the runs with a small one outvote one with a large one."""
    results = moment(parts, 1.1, alone=1.08)
    results["runs"][0]["wait"] = [
        wait + 0.3 * np.median(results["runs"][0]["busy"]) for wait in results["runs"][0]["wait"]
    ]
    machine = found([results] * 3).machine
    assert 1.08 <= machine.device.slowdown <= 1.1
    low, high = machine.measured.intervals["device.slowdown"]
    assert low <= 1.08 and high >= 1.35


def test_intervals_hold_the_runs_of_all_moments(parts):
    machine = found([moment(parts, slow) for slow in (1.0, 1.1, 1.5)]).machine
    assert machine.device.slowdown == pytest.approx(1.1)
    low, high = machine.measured.intervals["device.slowdown"]
    assert low <= 1.0 and high == pytest.approx(1.5)
    machine = found([moment(parts, efficiency=share) for share in (0.6, 0.5, 0.3)]).machine
    assert machine.intra_node.efficiency == pytest.approx(0.5, rel=0.03)
    assert machine.measured.intervals["intra_node.efficiency"] == pytest.approx((0.3, 0.6))


def test_moments_with_load_by_other_processes_do_not_count(parts):
    machine = found([moment(parts, 1.1), moment(parts, 3.0, 0.1, others=1.0)]).machine
    assert machine.device.slowdown == pytest.approx(1.1)
    none = found([moment(parts, 3.0, 0.1, others=1.0)])
    assert none.machine == parts and not none.whole.errors
    assert any("fitted to the parts alone" in line for line in as_lines(none))


def test_what_cannot_be_the_step_s_own_doing_is_not_believed(parts):
    machine = found([moment(parts, 9.0, 0.01)]).machine
    assert machine.device.slowdown == pytest.approx(1.6)
    assert machine.measured.intervals["intra_node.efficiency"][0] == pytest.approx(0.2)


def test_a_single_rank_measures_no_messages(parts):
    assert [table["strategy"].get("zero") for table in experiments(1)] == [None] * 6
    machine = found([moment(parts, 1.1, ranks=1)], ranks=1).machine
    assert machine.device.slowdown == pytest.approx(1.1)
    assert "intra_node.efficiency" not in machine.measured.intervals


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("work", "calls"),
    [(1.0, 1.0), (1.3, 1.3), (0.8, 0.8), (1.0, 2.0), (1.5, 1.0), (1.0, 0.6), (1.2, 2.5)],
)
def test_slowdown_factors_of_a_moment_are_those_of_work_and_of_calls(
    parts, slower, work, calls, ranks
):
    """To 3%: a tiny run's overhead enters a second time beside a slowdown."""
    results = moment(slowed(parts, work, calls), 1.2, alone=1.2)["runs"]
    assert slowdown_factors(results, slower, ranks) == pytest.approx((work, calls), rel=0.03)


def test_concurrent_ranks_have_their_own_slowdown_factors(parts, slower):
    slow = moment(slowed(parts, 1.25, 1.0), 1.2, ranks=1)["runs"]
    results = moment(parts, 1.2)["runs"] + slow
    assert slowdown_factors(results, slower, 2) == pytest.approx((1.0, 1.0), rel=0.03)
    assert slowdown_factors(results, slower, 1) == pytest.approx((1.25, 1.0), rel=0.03)


@pytest.mark.parametrize("number", range(len(experiments(2))))
def test_expected_equals_the_prediction(parts, number):
    experiment = read_experiment(experiments(2)[number])
    work, cost = expected(experiment, parts)
    laid = replace(experiment, machine=replace(parts, devices_per_node=4, jitter=0.0))
    prediction = predict(laid)
    assert work == pytest.approx(prediction.compute)
    assert cost.total == pytest.approx(prediction.communication.total, rel=0.02)
    assert experiments(4)[number]["strategy"]["devices_per_node"] == 4


def test_a_step_is_busy_where_it_does_not_wait_and_behind_where_another_computes():
    rows = []
    for step in range(WARM_UP + 4):
        for rank, (work, wait) in enumerate([(0.3, 0.5), (0.5, 0.3)]):
            begin = float(step)
            for kind, took in (
                ("forward", 0.1),
                ("backward", work - 0.2),
                ("wait", wait),
                ("update", 0.1),
            ):
                rows.append((rank, "compute", kind, kind, begin, begin + took, 0, -1))
                begin += took
    found = by_step(from_rows(rows, 2, "measured").sorted())
    assert {name: len(each) for name, each in found.items()} == dict.fromkeys(found, 3)
    assert found["wait"] == pytest.approx([0.4] * 3)
    assert found["behind"] == pytest.approx([0.1] * 3)  # 0.2 s of rank 0, none of rank 1
    assert found["busy"] == pytest.approx([0.6] * 3)


@pytest.mark.parametrize("number", [0, -1])
def test_updates_are_timed_and_move_nothing(number):
    table, batches = NETWORKS[number]
    case = Case(table, batches[0])
    before, seen = case.network.weights.copy(), set()
    with np.errstate(over="raise", invalid="raise"):
        for _ in range(3 * len(STREAMED)):
            (name,) = case.once()[3]
            seen.add(name)
    assert seen == {*STREAMED} == {*RULES} - {"muon"}
    assert np.array_equal(case.network.weights, before)
    one, other = (case.optimizers[name].state for name in ("adam", "momentum"))
    assert np.shares_memory(one["first"], other["velocity"])


def with_core_wait(results, share, of=0):
    """Return runs whose ranks had no core for some of each step from the `of`-th on, longer by that."""
    runs = []
    for run in results["runs"]:
        lost = np.zeros(len(run["busy"]))
        lost[of:] = share * np.add(run["busy"], run["wait"])[of:]
        runs.append({**run, "busy": list(run["busy"] + lost), "core_wait": list(lost)})
    return runs


def alone_and_together(parts, ranks=2):
    return moment(slowed(parts, 1.3, 1.1), ranks=ranks, alone=1.0)


def test_slowdown_factors_hold_no_time_in_which_a_single_rank_had_no_core(parts):
    idle = slowdown_factors(moment(slowed(parts, 1.3, 1.1), ranks=1)["runs"], parts, 1)
    for share in (0.0, 0.5, 3.0):
        results = moment(slowed(parts, 1.3, 1.1), ranks=1)
        assert slowdown_factors(with_core_wait(results, share), parts, 1) == pytest.approx(idle)


def test_of_several_ranks_only_undisturbed_steps_count(parts):
    idle = slowdown_factors(alone_and_together(parts)["runs"], parts, 2)
    for disturbed_from in (LEAST, 19, 20):
        results = with_core_wait(alone_and_together(parts), 5.0, disturbed_from)
        assert slowdown_factors(results, parts, 2) == pytest.approx(idle)


def test_with_too_few_of_them_a_single_rank_counts_or_none(parts):
    results = with_core_wait(alone_and_together(parts), 5.0, LEAST - 1)
    assert slowdown_factors(results, parts, 2) == slowdown_factors(results, parts, 1) is not None
    together = [run for run in results if int(read_experiment(run["experiment"]).devices) == 2]
    assert slowdown_factors(together, parts, 2) is None


def test_steps_of_a_run_have_the_core_waits_of_all_ranks():
    rows = [
        (rank, "compute", kind, kind, step + start, step + stop)
        for rank in range(2)
        for step in range(10)
        for kind, start, stop in (("forward", 0.0, 0.5), ("update", 0.5, 1.0))
    ]
    waits = [[float(step) for step in range(10)], [0.5] * 10]
    results = by_step(from_rows(rows, 2, "measured"), waits)
    assert results["core_wait"] == pytest.approx([step + 0.5 for step in range(1 + WARM_UP, 10)])
    assert by_step(from_rows(rows, 2, "measured"))["core_wait"] == [0.0] * (9 - WARM_UP)
