"""How far predictions of runs like one were off: which published runs are like it, and what is said of them."""

import re
from dataclasses import asdict

import pytest
from published_rows import scored

from lib_dlhpc import load, loads
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.reports.report import as_dict, as_text
from lib_dlhpc.prediction.validation import trust
from lib_dlhpc.prediction.validation.trust import (
    FEW_WORDS,
    LEAST,
    NARROW_WORDS,
    Errors,
    caveat_of,
    errors_of,
    is_calibrated,
    kind_of,
    stored,
    tabulate,
    trust_words,
)
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.units import format_quantity

LLAMA = """
[model]
name = "{model}"
[dataset]
name = "webtext"
[machine]
name = "{machine}"
[strategy]
nodes = 8
batch = 8
precision = "bf16"
"""


def llama(model="llama3-8b", machine="h100-pod", **changes):
    """An experiment without a measured rate."""
    experiment = loads(LLAMA.format(model=model, machine=machine))
    return experiment.set({f"strategy.{name}": value for name, value in changes.items()})


def test_the_stored_errors_are_those_of_the_published_rows():
    """After a change: python -m lib_dlhpc.prediction.validation.trust, and the table of docs/guide/trust.md."""
    found = {each.kind: each for each in tabulate(scored())}
    assert found.keys() == stored().keys()
    for kind, each in found.items():
        known = stored()[kind]
        assert each.rows == known.rows >= LEAST
        for name in ("median", "worst", "low", "middle", "high"):
            assert getattr(each, name) == pytest.approx(getattr(known, name), abs=1.5e-3), kind


def test_the_guide_has_the_stored_errors(repository):
    text = (repository / "docs" / "guide" / "trust.md").read_text(encoding="utf-8")
    for of in stored().values():
        longer = f"{of.low:.2f} to {of.high:.2f}, median {of.middle:.2f}"
        assert f"| {of.kind} | {of.rows} | {of.median:.0%} | {of.worst:.0%} | {longer} |" in text


def test_uncalibrated_transformers_nearly_always_take_longer_than_predicted():
    kinds = [of for of in stored().values() if "convolutional" not in of.kind]
    # The one whose fastest runs beat their predictions, by 2%.
    low = {of.kind: of.low for of in kinds if of.low < 0.99}
    assert low == {
        "mixtures of experts, tensor or pipeline parallel": pytest.approx(0.977, abs=1e-3)
    }
    for of in stored().values():
        assert of.middle > 1.05
        assert of.median < of.middle - 1  # a measured rate helps


@pytest.mark.parametrize(
    ("experiment", "kind"),
    [
        (load("goyal-2017"), "convolutional networks, data parallel"),
        (load("narayanan-2021"), "dense transformers, tensor or pipeline parallel"),
        (llama(), "dense transformers, data parallel"),
        (llama(zero=1), "dense transformers, data parallel"),
        (llama(zero=3), "dense transformers, ZeRO 3"),
        (llama(zero=3, tensor=2), "dense transformers, tensor or pipeline parallel"),
        (llama(context=2, microbatches=8), "dense transformers, context parallel"),
        (llama("mixtral-8x7b", experts=8), "mixtures of experts, data parallel"),
        (
            llama("mixtral-8x7b", context=2, microbatches=8),
            "mixtures of experts, tensor or pipeline parallel",
        ),
        (load("cosmoflow-2018"), ""),
        (llama("nemotron-h-8b"), ""),
        (llama(offload="activations"), ""),
        (llama(lora=8), ""),
        (load("laptop"), ""),
    ],
)
def test_a_run_is_like_those_with_its_kind_of_network_and_layout(experiment, kind):
    assert kind_of(experiment) == kind
    assert errors_of(experiment) == stored().get(kind)


def test_a_measured_rate_is_what_calibrates():
    assert not is_calibrated(llama())
    assert is_calibrated(llama().set({"calibration.compute_scale": 1.2}))
    assert is_calibrated(load("goyal-2017"))


def test_without_a_measured_rate_the_report_says_how_long_the_step_may_take():
    experiment = llama(zero=3)
    prediction = predict(experiment)
    of, step = stored()["dense transformers, ZeRO 3"], float(prediction.step_time)
    (line,) = re.findall("TRUST  (.*)", as_text(prediction))
    low, high = (format_quantity(step * factor, "s") for factor in (of.low, of.high))
    assert line.startswith(f"No measured rate: of {of.rows} published runs like this")
    assert f"here {low} to {high}" in line
    assert as_dict(prediction)["trust"] == {"calibrated": False, **asdict(of)}


def test_with_one_it_says_how_far_such_predictions_were_off():
    words = trust_words(load("goyal-2017"), 0.25)
    of = stored()["convolutional networks, data parallel"]
    assert words == (
        f"Calibrated: {of.rows} published runs like this ({of.kind}) were {of.median:.0%} off in the median,"
        f" {of.worst:.0%} at worst."
    )


def test_four_bits_are_not_covered_by_published_runs():
    run = load("llama3-8b@gb200-nvl72").set({"strategy.precision": "nvfp4-all"})
    assert caveat_of(run) == NARROW_WORDS and NARROW_WORDS in trust_words(run, 1.0)


@pytest.mark.parametrize(
    ("experiment", "few"),
    [
        (load("narayanan-2021"), False),
        (load("narayanan-2021").set({"strategy.tensor": 4}), True),
        (llama(tensor=2, zero=1), True),
        (llama(pipeline=2, microbatches=8), True),
        (llama(tensor=8), False),
        (llama(tensor=2, nodes=1), False),
        (llama(zero=3), False),
    ],
)
def test_few_tensor_ranks_on_many_nodes_carry_what_is_known_against_them(experiment, few):
    """The figures are those of tests/prediction/validation/test_vtrain.py."""
    assert caveat_of(experiment) == (FEW_WORDS if few else "")
    assert trust_words(experiment, 1.0).endswith(FEW_WORDS) == few
    assert as_dict(predict(experiment))["trust"].get("caveat", "") == caveat_of(experiment)


def test_the_limits_say_the_same_of_few_tensor_ranks(repository):
    text = (repository / "docs" / "limits.md").read_text(encoding="utf-8")
    assert "all 24 runs with fewer than 8 tensor ranks are predicted too short, by 3 to 40%" in text
    for each in ("all 24 runs", "fewer than 8 tensor ranks", "too short, by 3 to 40%"):
        assert each in FEW_WORDS


def test_where_no_run_is_like_it_no_number_is_given():
    for experiment in (load("cosmoflow-2018"), llama(lora=8)):
        assert not re.search(r"\d", trust_words(experiment, 1.0))
        assert "rows" not in as_dict(predict(experiment))["trust"]


def test_the_laptop_of_the_catalog_stands_for_an_unmeasured_machine():
    assert "`dlhpc calibrate`" in trust_words(load("laptop"), 1.0)


def test_errors_are_quantiles_of_the_rows_of_a_kind():
    """Ten copies of one row have its numbers; nine are too few."""
    row = next(
        each for each in scored() if each.group == "3-D" and each.quantity in ("achieved_per_gpu",)
    )
    (of,) = tabulate([row] * LEAST)
    bare = row.experiment.set({"calibration.compute_scale": 0.0})
    longer = float(predict(bare).throughput / predict(row.experiment).throughput) / (
        row.published / row.predicted
    )
    assert of == Errors(
        *(kind_of(row.experiment), LEAST),
        *[round(abs(row.error), 3)] * 2,
        *[pytest.approx(longer, abs=1e-3)] * 3,
    )
    assert tabulate([row] * (LEAST - 1)) == []


def test_errors_of_published_runs_do_not_hold_for_a_device_that_reaches_its_peak():
    stated, ideal = llama(), llama().set({"machine.device.efficiency": 1.0})
    assert errors_of(stated) and not errors_of(ideal)
    assert "has efficiency 1, the default" in trust_words(ideal, 1.0)
    assert "median" not in as_dict(predict(ideal))["trust"]
    rates = [catalog.read("devices", name)["efficiency"] for name in catalog.names("devices")]
    assert min(rates) > 0.35 and max(rates) <= 0.9  # as the sentence says
    measured = ideal.set({"calibration.compute_scale": 1.2})
    assert errors_of(measured) and "Calibrated" in trust_words(measured, 1.0)


def test_what_the_module_writes_is_printed(tmp_path, monkeypatch, capsys):
    row = next(iter(stored().values()))
    monkeypatch.setattr(trust, "TABLE", tmp_path / "errors.csv")
    monkeypatch.setattr(trust, "tabulate", lambda rows: [row])
    monkeypatch.setattr("lib_dlhpc.prediction.validation.validate.validate", list)
    trust.main()
    rows = f"errors of {row.rows} published rows, in 1 kind."
    assert capsys.readouterr().out == f"{tmp_path / 'errors.csv'}: {rows}\n"
    assert row.kind in (tmp_path / "errors.csv").read_text()
