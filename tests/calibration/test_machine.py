"""A calibration recovers a planted machine with intervals, and refuses illegal input."""

import json
import tomllib
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired

import numpy as np
import planted
import pytest
from planted import Planted

from lib_dlhpc.calibration.fit import Fit
from lib_dlhpc.calibration.machine import fit_machine, measure_machine
from lib_dlhpc.calibration.machine_report import as_dict, as_lines, as_toml
from lib_dlhpc.calibration.merge import merged
from lib_dlhpc.calibration.messages import protocol_step
from lib_dlhpc.calibration.programs import PROBE, STEPS, WORKER
from lib_dlhpc.calibration.robust import Points
from lib_dlhpc.calibration.worker import APART, MOST_TURNS, in_turn, rotating
from lib_dlhpc.calibration.workspace import CalibrationError
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.reports.explain import explain
from lib_dlhpc.spec.experiment import load
from lib_dlhpc.spec.machine import StorageTier, read_machine
from lib_dlhpc.spec.measured_machine import foreign, load_measured, measured_on

TRUE = {
    "device.launch": planted.CALL,
    "device.memory_bandwidth": planted.SUMMED,
    "device.overhead": planted.OVERHEAD,
    "intra_node.latency": planted.LATENCY,
    "intra_node.bandwidth": planted.BANDWIDTH,
    "host_link.latency": planted.OUT,
    "host_link.bandwidth": planted.BACK,
    "device.slowdown": 1.0,
}


def value(machine, key):
    for name in key.split("."):
        machine = machine[name] if isinstance(machine, dict) else getattr(machine, name)
    return machine


def test_without_noise_all_that_was_planted_is_found():
    found = fit_machine(Planted().raw())
    machine = found.machine
    for key, true in TRUE.items():
        assert value(machine, key) == pytest.approx(true, rel=1e-3), key
    rate = machine.device.peak["fp32"] * machine.device.efficiency
    assert rate == pytest.approx(planted.RATE, rel=0.02)
    assert machine.device.half_work == pytest.approx(
        (planted.FIXED - planted.CALL) * rate, rel=0.05
    )
    assert machine.jitter == pytest.approx(planted.JITTER, rel=0.2)
    assert machine.device.reserved_memory == 6e7
    assert machine.progress is False
    for kind in ("conv", "dense", "attention", "relu", "adam"):
        assert found.layers.errors[kind] == pytest.approx(0, abs=1e-6), kind
    dense, true = machine.device.layers["dense"], planted.layer_rate("dense")
    for name in vars(true):
        assert getattr(dense, name) == pytest.approx(getattr(true, name), rel=1e-3), name
    assert np.abs(found.layers.steps).max() < 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_noise_and_a_disturbed_round_move_it_little_and_stay_within_the_intervals(seed):
    machine = fit_machine(Planted(noise=0.05, seed=seed).raw()).machine
    for key, true in TRUE.items():
        low, high = machine.measured.intervals[key]
        assert low <= value(machine, key) <= high, key
        assert low <= true * 1.1 and true * 0.9 <= high, key
        assert value(machine, key) == pytest.approx(true, rel=0.25), key


def test_a_single_rank_measures_no_messages():
    found = fit_machine(Planted(ranks=1).raw())
    assert not [key for key in found.machine.measured.intervals if key.startswith("intra_node")]
    assert found.machine.jitter == 0
    assert any("messages not measured" in line for line in as_lines(found))


def test_without_offload_there_is_no_host_link():
    raw = Planted().raw()
    raw[PROBE]["away"] = []
    found = fit_machine(raw)
    assert not [key for key in found.machine.measured.intervals if key.startswith("host_link")]
    assert not any("out of memory" in line for line in as_lines(found))


def test_more_ranks_have_the_ring_s_own_coefficients():
    machine = fit_machine(Planted(ranks=3).raw()).machine
    assert machine.intra_node.latency == pytest.approx(planted.LATENCY, rel=1e-3)
    assert machine.intra_node.bandwidth == pytest.approx(planted.BANDWIDTH, rel=1e-3)


@pytest.mark.parametrize("step", [1024, 8192, 65536])
def test_the_step_of_a_protocol_is_found_where_it_is(step):
    found = fit_machine(Planted(step=step).raw()).messages
    assert found.step == step
    assert found.jump == pytest.approx(10 * planted.LATENCY, rel=0.2)


def test_a_straight_line_has_no_step():
    sizes = [2**k for k in range(3, 20)]
    assert protocol_step(sizes, [1e-6 + size / 1e9 for size in sizes]) == (0, 0.0)
    assert protocol_step(sizes[:2], [1e-6, 2e-6]) == (0, 0.0)


def test_intervals_hold_the_scatter_over_sizes_and_not_only_that_of_repeats():
    sizes = np.tile([2.0**k for k in range(10)], 10)
    bent = 1 + 0.3 * np.sin(np.arange(100))  # no line fits, and every repeat is the same
    terms, took = np.stack([np.ones(100), sizes], axis=1), (5 + sizes) * bent
    points = Points(terms, np.repeat(took[:, None], 5, axis=1))
    low, high = np.transpose(points.intervals(points.fit(), lambda values: values))
    assert np.mean((terms @ low <= took) & (took <= terms @ high)) >= 0.8


def test_the_table_goes_through_a_file_and_over_an_experiment(tmp_path, repository):
    found = fit_machine(Planted(noise=0.02).raw())
    path = tmp_path / "machine.toml"
    path.write_text(as_toml(found), encoding="utf-8")
    machine = load_measured(path)
    assert foreign(machine) == []
    for key in found.machine.measured.intervals:
        assert value(machine, key) == pytest.approx(value(found.machine, key), rel=1e-3), key
    assert machine.device.layers.keys() == found.machine.device.layers.keys()
    experiment = load(repository / "labs" / "experiments" / "digits.toml")
    here = experiment.set({"machine.nodes": 1})
    laid = measured_on(here.machine, machine)
    assert laid.device.layers == machine.device.layers
    assert laid.device.memory == here.machine.device.memory
    assert read_machine(tomllib.loads(path.read_text())["machine"]) == machine
    assert predict(experiment).step_time > 0


def test_bytes_that_seem_to_cost_nothing_leave_a_machine_that_is_legal(tmp_path):
    raw = Planted().raw()
    for point in raw[WORKER]["points"]:
        point["seconds"] = [1e-4] * 9
    found = fit_machine(raw)
    path = tmp_path / "machine.toml"
    path.write_text(as_toml(found), encoding="utf-8")
    machine = load_measured(path)
    assert machine.intra_node.bandwidth == pytest.approx((1 << 22) / 1e-4, rel=1e-3)
    assert 0 < machine.device.memory_bandwidth < np.inf
    assert 0 < machine.device.efficiency <= 1


def test_a_machine_that_was_busy_meanwhile_is_reported():
    planted_one = Planted()
    assert not any("NOTE" in line for line in as_lines(fit_machine(planted_one.raw())))
    planted_one.others = [1.5] * planted_one.rounds
    (note,) = (line for line in as_lines(fit_machine(planted_one.raw())) if "NOTE" in line)
    assert "kept 1.5 cores busy" in note


def test_storage_that_was_measured_beside_it_is_a_tier_of_the_machine(tmp_path):
    tier = StorageTier(1e9, "node", name="disk", servers="one", read_latency=6e-5, read_rate=5e4)
    ends = {"bandwidth": (8e8, 2e9), "read_latency": (5e-5, 7e-5), "read_rate": (1e4, np.inf)}
    found = fit_machine(Planted().raw(), Fit(tier, ends, (0.0,)))
    path = tmp_path / "machine.toml"
    path.write_text(as_toml(found), encoding="utf-8")
    laid = measured_on(read_machine("laptop"), load_measured(path))
    disk = laid.storage["disk"]
    assert (disk.scope, disk.servers, disk.bandwidth) == ("node", "one", 1e9)
    assert disk.read_latency == pytest.approx(6e-5)
    assert disk.read_rate == 5e4  # its interval has no upper end
    assert laid.measured.intervals["storage.disk.bandwidth"] == (8e8, 2e9)
    assert laid.storage["ssd"] == read_machine("laptop").storage["ssd"]


def test_what_is_shown_names_step_errors_and_intervals():
    found = fit_machine(Planted(step=8192).raw())
    text = "\n".join(as_lines(found))
    assert "eager to rendezvous switch at 8.19 kB" in text
    assert "message: latency" in text and "median error  gemm" in text
    assert "90% interval" in text and "25 networks" in text
    assert "messages and collectives from 4.1 kB on: linear fit off by" in text
    assert "capped at the GEMM peak rate" not in text
    result = json.loads(json.dumps(as_dict(found)), parse_constant=lambda name: pytest.fail(name))
    assert result["protocol_step"]["size"] == 8192
    assert result["machine"]["intra_node"]["latency"] == found.machine.intra_node.latency
    low, high = result["machine"]["measured"]["intervals"]["intra_node.latency"]
    assert low <= result["machine"]["intra_node"]["latency"] <= high
    assert set(result["raw"]) == {PROBE, WORKER}
    assert len(result["networks"]) == 25


def test_a_kind_is_not_given_more_flop_a_second_than_any_product_reaches():
    raw = Planted().raw()
    for point in raw[WORKER]["points"]:
        if point["what"].startswith("gemm"):
            point["seconds"] = [2 * each for each in point["seconds"]]
    found = fit_machine(raw)
    peak = found.machine.device.peak["fp32"]
    assert peak < planted.layer_rate("conv").rate
    assert {"conv", "dense"} <= set(found.layers.held)
    for kind in found.layers.held:
        pace = found.machine.device.layers[kind]
        assert pace.rate <= peak * 1.0001 and pace.backward_rate <= peak * 1.0001, kind
    assert any(line.startswith("dense, conv") and "capped at" in line for line in as_lines(found))


def test_a_layer_that_is_little_of_its_network_counts_little():
    raw = Planted().raw()
    large = raw[PROBE]["cases"][7]  # 720-640-440-10: its last layer is a hundredth of it
    for rank in large["rounds"]:
        for each in rank:
            each["forward"][-1] *= 3
    assert np.abs(fit_machine(raw).layers.steps).max() < 0.02


def test_reductions_and_messages_use_another_array_each_time():
    seen = []
    call = in_turn([partial(seen.append, number) for number in range(3)])
    call(2)
    call(5)
    assert seen == [0, 1, 2, 0, 1, 2, 0]
    large, small = rotating(1 << 22), rotating(1 << 10)
    assert sum(each.nbytes for each in large) == APART and len(small) == MOST_TURNS
    assert not np.shares_memory(large[0], large[1])


@cache
def told_by(ranks):
    return {**Planted(ranks=ranks).raw(), STEPS: {"ranks": ranks, "others": [0.0], "runs": []}}


def answering(asked=None, **changes):
    """A way to start ranks that writes what was planted; `asked`: a list of what was started."""
    asked = [] if asked is None else asked

    def run(ranks, *arguments, patience):
        _, module, file, seconds = arguments
        assert patience > float(seconds)
        started = changes.get("started", ranks)
        asked.append(module)
        raw = told_by(started)
        if changes.get("writes", True):
            with open(file, "w", encoding="utf-8") as out:
                json.dump(raw[module], out)
        status = changes.get("status", 0)
        return CompletedProcess(arguments, status, "", changes.get("stdout", ""))

    return run


def test_all_programs_run_on_all_ranks_and_full_steps_at_separate_times():
    asked, ended = [], []
    raw = measure_machine(2, 10.0, answering(asked), lambda *done: ended.append(done))
    assert ended == [(done, 5) for done in range(1, 6)]
    assert asked == [STEPS, PROBE, STEPS, WORKER, STEPS] and len(raw[STEPS]) == 3
    assert fit_machine(raw).machine.measured.ranks == 2
    asked.clear()
    assert set(measure_machine(2, 5.0, answering(asked))) == {PROBE, WORKER, STEPS}
    assert asked == [PROBE, WORKER]  # there is no time for more


def test_given_time_all_repeat_with_merged_results():
    asked, once = [], Planted().raw()
    raw = measure_machine(2, 60.0, answering(asked))
    assert asked == [STEPS, *[PROBE, STEPS, WORKER, STEPS] * 3]
    assert len(raw[PROBE]["others"]) == 3 * len(once[PROBE]["others"])
    for result, one in zip(raw[PROBE]["cases"], once[PROBE]["cases"], strict=True):
        assert result["rounds"] == [3 * of_rank for of_rank in one["rounds"]]
    for result, one in zip(raw[WORKER]["points"], once[WORKER]["points"], strict=True):
        assert result == {**one, "seconds": 3 * one["seconds"]}
    assert raw[PROBE]["run"]["seconds"] == [
        3 * of_rank for of_rank in once[PROBE]["run"]["seconds"]
    ]
    assert raw[PROBE]["resident"] == once[PROBE]["resident"]
    machine = fit_machine(raw).machine
    for key, true in TRUE.items():
        assert value(machine, key) == pytest.approx(true, rel=1e-3), key


@pytest.mark.parametrize("seconds", [2.0, 10.0, 60.0, 600.0])
def test_all_repeats_take_the_requested_seconds(seconds):
    spans = []

    def run(ranks, *arguments, patience):
        *_, file, span = arguments
        spans.append(float(span))
        Path(file).write_text(json.dumps({"ranks": ranks, "others": [0.0]}), encoding="utf-8")
        return CompletedProcess(arguments, 0, "", "")

    measure_machine(2, seconds, run)
    assert 0.4 * seconds < sum(spans) < 0.75 * seconds  # the rest is for starting


def test_a_turn_without_offload_measures_no_host_link():
    result = Planted().raw()[PROBE]
    assert merged([result, {**result, "away": []}])["away"] == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"started": 1}, "2 ranks were asked for, and 1 started"),
        ({"status": 1, "stdout": "first\nno room"}, "on 2 ranks failed: no room"),
        ({"writes": False}, "failed: no output"),
    ],
)
def test_what_goes_wrong_on_ranks_is_reported(changes, message):
    with pytest.raises(CalibrationError, match=message):
        measure_machine(2, 10.0, answering(**changes))


def test_ranks_that_hang_are_reported():
    def hangs(ranks, *arguments, patience):
        raise TimeoutExpired(arguments, patience)

    with pytest.raises(CalibrationError, match="did not end in time"):
        measure_machine(2, 10.0, hangs)


@pytest.mark.parametrize(("ranks", "seconds"), [(0, 10.0), (2, 0.0), (2, float("inf")), (2, 1.0)])
def test_numbers_that_make_no_sense_are_refused(ranks, seconds):
    with pytest.raises(CalibrationError, match="expected"):
        measure_machine(ranks, seconds, answering())


def test_a_prediction_reports_which_of_its_numbers_were_measured(repository):
    found = fit_machine(Planted().raw())
    experiment = load(repository / "labs" / "experiments" / "digits.toml")
    laid = replace(experiment, machine=measured_on(experiment.machine, found.machine))
    (result,) = (each for each in explain(predict(laid)) if each.name == "compute")
    inputs = {name: (shown, source) for name, shown, source in result.inputs}
    assert inputs["memory bandwidth"][1].startswith("measured on 2")
    assert "(calibration)" in inputs["overhead of a pass"][1]
    assert inputs["kinds with measured rates"][0].startswith("conv, dense, flatten")
    assert "with measured rates" in result.formula
    (plain,) = (each for each in explain(predict(experiment)) if each.name == "compute")
    assert "with measured rates" not in plain.formula and "calibration" not in str(plain.inputs)
