"""Laws of [calibration]: numbers round-trip through TOML, are consistent, and are never dropped silently."""

import pytest

from lib_dlhpc import Experiment, SpecError
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.measured.calibrated import compute_scale, link_efficiency
from lib_dlhpc.prediction.validation.replays import replay
from lib_dlhpc.simulation import simulate
from lib_dlhpc.simulation.step_terms import measure
from lib_dlhpc.spec.experiment import dumps, loads

GOYAL = replay("goyal-2017").experiment
ALL = {"calibration.compute_scale": 1.5, "calibration.link_efficiency": 0.4}
SCALED = GOYAL.set({"calibration.rate": 0.0, **ALL})

VOID = [
    ("model.name", "vgg16", "rate"),
    ("machine.name", "dlperf-v100", "rate compute_scale link_efficiency"),
    ("machine.device", "v100-sxm2-16gb", "rate compute_scale"),
    ("machine.device.memory_bandwidth", 1e12, "rate compute_scale"),
    ("strategy.precision", "fp16", "rate compute_scale"),
    ("machine.inter_node", "ib-edr", "link_efficiency"),
    ("machine.inter_node.bandwidth", 1e9, "link_efficiency"),
    ("machine.nics", 2, "link_efficiency"),
    ("dataset.name", "mnist-5k", ""),
    ("strategy.nodes", 4, ""),
    ("strategy.batch", 64, ""),
    ("strategy.allreduce", "binomial", ""),
    ("run.epochs", 3.0, ""),
]


@pytest.mark.parametrize(("field", "value", "void"), VOID, ids=lambda x: str(x))
@pytest.mark.parametrize("before", [GOYAL, SCALED], ids=["rate", "scale"])
def test_numbers_invalidated_by_a_change_are_dropped_and_reported(before, field, value, void):
    nodes = {"strategy.nodes": 4} if field == "machine.name" else {}
    tier = {"storage.tier": ""} if field == "machine.name" else {}
    after = before.set({field: value, **nodes, **tier})
    for name in ("rate", "compute_scale", "link_efficiency"):
        old, new = (getattr(each.calibration, name) for each in (before, after))
        said = [words for words in after.warnings if f"calibration.{name} = {old:g}" in words]
        assert new == (0 if name in void.split() else old)
        assert bool(said) == (name in void.split() and old > 0)
        assert all(field in words for words in said)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model.name", "resnet50"),
        ("machine.name", "bigbasin"),
        ("machine.device", "p100-sxm2"),
        ("strategy.precision", "fp32"),
    ],
)
def test_a_change_to_what_is_there_already_drops_nothing(field, value):
    assert GOYAL.set({field: value}).calibration == GOYAL.calibration
    assert GOYAL.set({field: value}).warnings == ()


@pytest.mark.parametrize(("one", "other"), [("bf16", "fp8"), ("fp8", "bf16")])
def test_between_bf16_and_fp8_the_ratio_to_the_roofline_is_retained_and_reported(one, other):
    """A rate is of one precision; so is a ratio of another device, or of a precision that shares no layers."""
    strategy = {"nodes": 1, "batch": 8, "precision": one, "optimizer": "adam"}
    run = Experiment(model="gpt-1536x16", machine="h100-pod", strategy=strategy)
    scaled = run.set({"calibration.compute_scale": 1.5})
    after = scaled.set({"strategy.precision": other})
    assert after.calibration.compute_scale == 1.5
    (said,) = after.warnings
    assert f"compute_scale = 1.5 is retained from strategy.precision = '{one}' to '{other}'" in said
    for change in ({"strategy.precision": "fp16"}, {"machine.device": "h200-sxm-141gb"}):
        lost = scaled.set({"strategy.precision": other, **change})
        assert lost.calibration.compute_scale == 0 and "is dropped" in lost.warnings[0]
    rated = run.set({"calibration.rate": 9.0}).set({"strategy.precision": other})
    assert rated.calibration.rate == 0 and "rate = 9 is dropped" in rated.warnings[0]


def test_a_new_measurement_answers_the_warning():
    dropped = GOYAL.set({"model.name": "vgg16"})
    assert dropped.warnings and not dropped.set({"calibration.rate": 9.0}).warnings
    assert dropped.set({"strategy.nodes": 2}).warnings == dropped.warnings


def test_warnings_are_no_part_of_the_file_nor_of_what_an_experiment_is():
    dropped = GOYAL.set({"model.name": "vgg16"})
    assert "warning" not in dumps(dropped)
    assert loads(dumps(dropped)) == dropped and loads(dumps(dropped)).warnings == ()


def test_measured_numbers_round_trip_through_toml():
    assert loads(dumps(SCALED)) == SCALED
    assert loads(dumps(SCALED)).calibration == SCALED.calibration
    assert "compute_scale = 1.5" in dumps(SCALED) and "link_efficiency = 0.4" in dumps(SCALED)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"calibration.link_efficiency": 1.5}, r"link_efficiency = 1.5: legal: .* at most 1"),
        ({"calibration.compute_scale": -1.0}, r"compute_scale = -1: legal: .* at least 0"),
        ({"calibration.compute_scale": "fast"}, r"compute_scale"),
        ({"calibration.compute_scale": 1.2}, r"compute_scale = 1.2 and calibration.rate = 1089.4"),
        ({"calibration.scale_from": "x"}, r"scale_from: unknown key; legal: .*compute_scale"),
    ],
)
def test_a_wrong_measurement_is_named_with_what_is_legal(changes, words):
    with pytest.raises(SpecError, match=words):
        GOYAL.set(changes)


@pytest.mark.parametrize("split", [{}, {"strategy.tensor": 2}, {"strategy.zero": 3}])
def test_compute_is_scaled_and_communication_has_the_link_efficiency(split):
    plain = GOYAL.set({"calibration.rate": 0.0, "strategy.overlap": False, **split})
    scaled = plain.set({"calibration.compute_scale": 2.0})
    assert predict(scaled).compute == pytest.approx(2 * predict(plain).compute)
    share = plain.machine.inter_node.efficiency / 2
    slower = predict(plain.set({"calibration.link_efficiency": share}))
    by_hand = predict(plain.set({"machine.inter_node.efficiency": share}))
    assert slower.step_time == pytest.approx(by_hand.step_time)
    assert slower.step_time > predict(plain).step_time


@pytest.mark.parametrize("split", [{}, {"strategy.tensor": 2}])
@pytest.mark.parametrize("fidelity", ["rounds", "events"])
def test_simulations_use_measured_numbers_as_predictions_do(split, fidelity):
    run = GOYAL.set(
        {"strategy.nodes": 2, "strategy.devices_per_node": 2, "strategy.overlap": False, **split}
        | {"machine.jitter": 0.0, "calibration.rate": 0.0, "storage.tier": "", **ALL}
        | {"model.name": "lenet5", "dataset.name": "digits"}
    )
    step = sum(measure(run, simulate(run, fidelity=fidelity)).terms.values())
    assert step == pytest.approx(predict(run).step_time, rel=0.02)


def test_a_measured_run_gives_both_numbers_back():
    """Of a run whose numbers are known, the public functions find these."""
    run = SCALED.set({"strategy.overlap": False})
    rate = float(predict(run).throughput)
    without = run.set({"calibration.link_efficiency": 0.0})
    assert link_efficiency(without, rate) == pytest.approx(0.4, rel=1e-6)
    known = {"calibration.compute_scale": 0.0, "calibration.rate": rate}
    measured = run.set({**known, "calibration.devices": 256, "calibration.batch": 32})
    assert compute_scale(measured) == pytest.approx(1.5, rel=1e-6)
    with pytest.raises(SpecError, match=r"rate = 1e\+09 samples/s: between 1% and 100%"):
        link_efficiency(run, 1e9)
