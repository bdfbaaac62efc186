"""Metadata of a calibration: it round-trips, is applied to a machine, and detects another host."""

import tomllib
from dataclasses import replace
from datetime import date, timedelta

import pytest
import tomli_w

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec import measured_machine
from lib_dlhpc.spec.experiment import Experiment, dumps, load, loads
from lib_dlhpc.spec.host import KERNELS, host_class, kernels, versions
from lib_dlhpc.spec.machine import field_of, load_machine, read_machine
from lib_dlhpc.spec.measured_machine import (
    OLD,
    default_machine,
    default_path,
    foreign,
    load_measured,
    measured_on,
    slowed,
)

TODAY = date(2026, 2, 28)


class Day(date):
    """A day that does not end while tests are collected and run."""

    @classmethod
    def today(cls):
        return TODAY


@pytest.fixture(autouse=True)
def _today(monkeypatch):
    monkeypatch.setattr(measured_machine, "date", Day)


def table(**changes):
    measured = {
        "date": TODAY.isoformat(),
        "host": host_class(),
        "ranks": 2,
        "cores": 2,
        "versions": versions() | kernels(),
        "intervals": {
            "device.launch": ["2 us", "4 us"],
            "device.peak.fp32": [9e10, "0.1 TFLOP/s"],
            "intra_node.latency": [1e-6, 2e-6],
            "jitter": [0.01, 0.05],
        },
    } | changes
    return {
        "name": "laptop",
        "device": {"launch": 3e-6, "peak": {"fp32": 9.5e10}, "memory": "3 GB"},
        "intra_node": {"latency": 1.5e-6},
        "jitter": 0.02,
        "measured": measured,
    }


def written(tmp_path, machine):
    path = tmp_path / "machine.toml"
    path.write_text(tomli_w.dumps({"machine": machine}))
    return path


def test_it_round_trips_through_an_experiment():
    experiment = Experiment(model="lenet5", dataset="mnist-5k", machine=table())
    again = loads(dumps(experiment))
    assert again == experiment
    assert again.machine.measured.intervals["device.launch"] == (2e-6, 4e-6)
    assert again.machine.measured.intervals["device.peak.fp32"] == (9e10, 1e11)
    assert read_machine("laptop").measured is None
    assert (
        "measured"
        not in tomllib.loads(dumps(replace(experiment, machine=read_machine("laptop"))))["machine"]
    )


def test_a_change_of_the_experiment_keeps_it():
    experiment = Experiment(model="lenet5", dataset="mnist-5k", machine=table())
    changed = experiment.set({"machine.device.launch": 1e-6})
    assert changed.machine.measured == experiment.machine.measured
    assert changed.set({"machine.name": "summit"}).machine.measured is None


def test_only_what_was_measured_is_laid_over_a_machine(tmp_path):
    measured = load_measured(written(tmp_path, table()))
    own = read_machine({"name": "laptop", "devices_per_node": 8, "device": {"memory": "160 MB"}})
    machine = measured_on(own, measured)
    assert machine.devices_per_node == 8 and machine.device.memory == 160e6
    assert machine.device.launch == 3e-6 and machine.device.peak["fp32"] == 9.5e10
    assert machine.device.peak["fp64"] == own.device.peak["fp64"]
    assert machine.intra_node.latency == 1.5e-6
    assert machine.intra_node.bandwidth == own.intra_node.bandwidth
    assert machine.jitter == 0.02 and machine.measured == measured.measured
    assert measured_on(machine, measured) == machine
    with pytest.raises(SpecError, match="no measured numbers"):
        measured_on(own, load_machine("summit"))


def test_processor_cores_have_no_rate_in_the_narrow_formats_of_a_gpu(tmp_path):
    cores = load_measured(written(tmp_path, table()))
    run = load("llama3-8b@h100-pod")
    run = replace(run, machine=measured_on(run.machine, cores))
    assert run.machine.device.peak.keys() == {"fp64", "fp32"} and loads(dumps(run)) == run
    both = {"device.peak.fp32": [9e10, 1e11], "device.peak.bf16": [8e10, 2e11]}
    gpu = table(intervals=both) | {"device": {"peak": {"fp32": 9.5e10, "bf16": 1e11}}}
    gpu = measured_on(load_machine("h100-pod"), load_measured(written(tmp_path, gpu))).device
    assert gpu.peak["bf16"] == 1e11 and "fp8" in gpu.peak


def test_a_measured_tier_has_its_numbers(tmp_path):
    tier = {"bandwidth": 1e9, "scope": "node", "read_latency": 1e-4}
    ends = {"storage.disk.bandwidth": [1e9, 2e9], "storage.ssd.read_latency": [1e-4, 2e-4]}
    machine = table(intervals=ends) | {"storage": {"disk": tier, "ssd": {"read_latency": 1.5e-4}}}
    laid = measured_on(read_machine("laptop"), load_measured(written(tmp_path, machine)))
    assert laid.storage["disk"].bandwidth == 1e9
    assert laid.storage["ssd"].read_latency == 1.5e-4
    assert laid.storage["ssd"].bandwidth == read_machine("laptop").storage["ssd"].bandwidth


def test_here_and_today_it_is_at_home(tmp_path):
    assert foreign(load_measured(written(tmp_path, table()))) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"host": "Linux riscv64, 3 cores"}, "measured on another machine: Linux riscv64, 3 cores"),
        ({"date": (TODAY - timedelta(OLD + 1)).isoformat()}, f"measured {OLD + 1} days ago"),
        ({"date": (TODAY + timedelta(1)).isoformat()}, "a date in the future"),
        ({"versions": versions() | kernels() | {"numpy": "1.0"}}, "measured with numpy 1.0; here:"),
        (
            {"versions": versions() | kernels() | {"other": "2"}},
            "measured with other 2; here: (none)",
        ),
    ],
)
def test_another_host_or_an_old_date_is_reported(tmp_path, changes, said):
    (sentence,) = foreign(load_measured(written(tmp_path, table(**changes))))
    assert said in sentence


def test_other_kernels_than_those_of_the_calibration_are_reported(tmp_path, monkeypatch):
    """A variable of the shell may halve the speed of products: a calibration without it does not hold."""
    monkeypatch.setenv(KERNELS, "Haswell")
    (sentence,) = foreign(load_measured(written(tmp_path, table(versions=dict(versions())))))
    assert sentence == f"It was measured with {KERNELS} (none); here: Haswell."
    monkeypatch.delenv(KERNELS)
    recorded = dict(versions()) | {KERNELS: "Haswell"}
    (sentence,) = foreign(load_measured(written(tmp_path, table(versions=recorded))))
    assert sentence == f"It was measured with {KERNELS} Haswell; here: (none)."


def test_an_unmeasured_machine_is_reported():
    (sentence,) = foreign(read_machine("laptop"))
    assert "not measured" in sentence


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"date": "yesterday"}, "machine.measured.date = 'yesterday': expected a day"),
        ({"date": 3}, "machine.measured.date = 3: expected text"),
        ({"ranks": 0}, "machine.measured.ranks = 0: legal: a whole number above 0"),
        ({"cores": True}, "machine.measured.cores = True: legal"),
        ({"versions": []}, "machine.measured.versions = []: expected a table"),
        ({"versions": {"numpy": 2}}, "machine.measured.versions.numpy = 2: expected text"),
        ({"intervals": {"device.lunch": [1, 2]}}, "Did you mean 'device.launch'?"),
        ({"intervals": {"gpu.launch": [1, 2]}}, "a machine has no such number"),
        ({"intervals": {"device.launch": [2, 1]}}, "expected the lower end first"),
        ({"intervals": {"device.launch": [2]}}, "expected two ends"),
        ({"intervals": {"device.launch": ["2 B", 3]}}, "not a quantity in s"),
        ({"intervals": {"device.efficiency": [0.5, 1.5]}}, "at most 1"),
        ({"who": "me"}, "machine.measured.who: unknown key"),
    ],
)
def test_a_mistake_is_named_with_its_place(changes, said):
    with pytest.raises(SpecError) as error:
        read_machine(table(**changes))
    assert said in str(error.value)


def test_what_is_missing_is_named():
    whole = table()
    del whole["measured"]["intervals"]
    with pytest.raises(SpecError, match=r"machine\.measured\.intervals: missing"):
        read_machine(whole)


def test_a_file_that_is_no_calibration_is_refused_by_name(tmp_path):
    bare = table()
    del bare["measured"]
    with pytest.raises(SpecError, match=r"\[machine.measured\] is missing"):
        load_measured(written(tmp_path, bare))
    with pytest.raises(SpecError, match="no such file"):
        load_measured(tmp_path / "gone.toml")
    (tmp_path / "broken.toml").write_text("[machine")
    with pytest.raises(SpecError, match=r"broken.toml: not valid TOML"):
        load_measured(tmp_path / "broken.toml")
    (tmp_path / "more.toml").write_text("[model]\nname = 'lenet5'\n")
    with pytest.raises(SpecError, match=r"it is an experiment, with \[model\], and no machine"):
        load_measured(tmp_path / "more.toml")
    (tmp_path / "other.toml").write_text("[colour]\nname = 'red'\n")
    with pytest.raises(SpecError, match="unknown key"):
        load_measured(tmp_path / "other.toml")


@pytest.mark.parametrize(
    ("key", "value", "ends", "said"),
    [
        ("peak", {"fp32": 108.7e9}, ["200 GFLOP/s", "300 GFLOP/s"], "outside its own interval"),
        ("launch", 3e-6, [1e-6, 2e-6], r"device.launch = 3 µs: outside .* = 1 µs to 2 µs"),
        ("slowdown", 1e30, [0.9, 1.1], r"slowdown = 1e\+30: outside .* = 0.9 to 1.1"),
        ("slowdown", 1e30, [1, 1e30], r"slowdown = 1e\+30.*legal .* from 0.01 to 100"),
        ("slowdown", 1.0, [1, 1e30], r"slowdown = 1e\+30.*legal .* from 0.01 to 100"),
        ("slowdown", 1e-30, None, r"slowdown = 1e-30.*legal .* from 0.01 to 100"),
        ("efficiency", 1e-9, [1e-9, 1.0], r"efficiency = 1e-09.*legal .* from 0.001 to 1"),
    ],
)
def test_a_calibration_that_cannot_be_is_refused(tmp_path, key, value, ends, said):
    name = "device.peak.fp32" if key == "peak" else f"device.{key}"
    machine = table(intervals={name: ends} if ends else {})
    machine["device"][key] = value
    with pytest.raises(SpecError, match=said):
        load_measured(written(tmp_path, machine))


def test_an_interval_of_what_the_machine_does_not_have_is_refused(tmp_path):
    machine = table(intervals={"device.peak.fp8": [1e9, 2e9]})
    with pytest.raises(SpecError, match=r"the machine in the file has no machine.device.peak.fp8"):
        load_measured(written(tmp_path, machine))


def test_a_number_may_be_the_end_of_its_interval_and_rounded(tmp_path):
    machine = table(intervals={"device.launch": [3.001e-6, 4e-6], "jitter": [0.01, 0.02]})
    assert load_measured(written(tmp_path, machine)).device.launch == 3e-6


def test_the_user_s_own_is_where_the_system_keeps_such_files(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert default_path() == tmp_path / "dlhpc" / "machine.toml"
    assert default_machine() is None
    (tmp_path / "dlhpc").mkdir()
    machine = load_measured(written(tmp_path / "dlhpc", table()))
    assert default_machine() == machine


def test_an_experiment_never_uses_it_implicitly(tmp_path, monkeypatch, repository):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "dlhpc").mkdir()
    written(tmp_path / "dlhpc", table())
    assert load(repository / "labs" / "experiments" / "digits.toml").machine.measured is None


def test_names_of_numbers_lead_to_their_units():
    assert field_of("device.half_work")["unit"] == "FLOP"
    assert field_of("storage.any.read_rate")["unit"] == "op/s"
    assert field_of("jitter")["most"] == 1.0
    with pytest.raises(SpecError, match="no such number"):
        field_of("device.name")


def test_a_class_of_machines_is_no_machine():
    import socket

    assert socket.gethostname() not in host_class()
    assert " core" in host_class()


def test_a_slowdown_affects_only_devices_and_intra_node_links():
    ends = {"device.slowdown": [0.9, 1.2], "device.launch": [1e-7, 1e-3]}
    machine = read_machine(
        {"name": "laptop", "measured": table()["measured"] | {"intervals": ends}}
    )
    slower = slowed(machine, 1.5, 3.0)
    assert slower.device.slowdown == pytest.approx(1.5 * machine.device.slowdown)
    assert slower.intra_node.latency == pytest.approx(3 * machine.intra_node.latency)
    assert slower.device.launch == pytest.approx(2 * machine.device.launch)
    assert slower.device.overhead == pytest.approx(2 * machine.device.overhead)
    assert slower.intra_node.bandwidth == pytest.approx(machine.intra_node.bandwidth / 1.5)
    intervals = slower.measured.intervals
    assert intervals["device.slowdown"] == pytest.approx((1.35, 1.8))
    assert intervals["device.launch"] == pytest.approx((2e-7, 2e-3))
    assert (slower.storage, slower.inter_node) == (machine.storage, machine.inter_node)
    again = slowed(slower, 1 / 1.5, 1 / 3)
    assert again.device.slowdown == pytest.approx(machine.device.slowdown)
