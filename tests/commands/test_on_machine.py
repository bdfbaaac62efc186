"""`dlhpc predict` and `dlhpc simulate` on a machine that was measured: uncertainty bands and their source."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lib_dlhpc.cli import main
from lib_dlhpc.explore.one_step.machines import MACHINE, SHIPPED
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.measured.bands import bands
from lib_dlhpc.spec.experiment import load

CALIBRATED = str(SHIPPED / MACHINE)
COMMANDS = ("predict", "simulate")
FROM = "90% bands: from the intervals of the machine's numbers, calibrated on 2026-"


pytestmark = pytest.mark.usefixtures("own_state")


@pytest.fixture
def digits(repository: Path) -> str:
    return str(repository / "labs" / "experiments" / "digits.toml")


@pytest.fixture
def prints(capsys: Any) -> Any:
    """A function: prints(*words) gives what the command prints."""

    def prints(*words: str) -> str:
        assert main(list(words)) == 0
        return str(capsys.readouterr().out)

    return prints


@pytest.mark.parametrize("command", COMMANDS)
def test_a_machine_that_was_not_measured_has_no_bands(command, digits, prints):
    output = json.loads(prints(command, digits, "--json"))
    assert not {"bands", "predicted_bands", "calibration"} & set(output)
    assert "90%" not in prints(command, digits)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_step_and_each_term_have_a_band_and_one_line_reports_from_where(
    command, digits, prints
):
    words = (command, digits, "--machine", CALIBRATED, "--set", "strategy.devices_per_node=2")
    output = json.loads(prints(*words, "--json"))
    assert set(output["bands"]) == {"one step", *output["terms"]}
    for name, seconds in {"one step": output["step_time"], **output["terms"]}.items():
        low, high = output["bands"][name]
        assert low * (1 - 1e-9) <= seconds <= high * (1 + 1e-9), name
    assert output["bands"]["one step"][0] < output["step_time"] < output["bands"]["one step"][1]
    text = prints(*words)
    assert text.count(FROM) == 1 and output["calibration"] in text
    (forward,) = [line for line in text.splitlines() if line.startswith("    forward")]
    assert " µs to " in forward or " ms to " in forward


def test_a_simulation_that_agrees_has_the_bands_of_the_prediction(digits, prints):
    still = ("--machine", CALIBRATED, "--set", "machine.jitter=0", "strategy.devices_per_node=2")
    predicted = json.loads(prints("predict", digits, *still, "--json"))["bands"]
    for fidelity in ("rounds", "events"):
        output = json.loads(prints("simulate", digits, *still, "--fidelity", fidelity, "--json"))
        assert output["predicted_bands"] == predicted
        for name, band in predicted.items():
            assert output["bands"][name] == pytest.approx(band, rel=1e-9), (fidelity, name)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_experiment_that_was_saved_keeps_its_bands(command, digits, prints, tmp_path):
    saved = str(tmp_path / "saved.toml")
    prints("predict", digits, "--machine", CALIBRATED, "--save", saved)
    assert load(saved).machine.measured is not None
    assert prints(command, saved) == prints(command, digits, "--machine", CALIBRATED)
    assert FROM in prints(command, saved)


def test_what_is_set_is_set_on_the_measured_machine(digits, prints):
    words = ("predict", digits, "--json", "--machine", CALIBRATED)
    before, slower = (
        json.loads(prints(*words, *more)) for more in ((), ("--set", "machine.device.slowdown=10"))
    )
    assert slower["step_time"] > 5 * before["step_time"]
    assert all(low > 5 * before["step_time"] for low in slower["bands"]["one step"])


def test_the_users_calibration_is_used_where_requested(digits, prints, capsys, tmp_path):
    bare = prints("predict", digits)
    assert main(["predict", digits, "--machine", "own"]) == 2
    assert "you have no calibration; `dlhpc calibrate`" in capsys.readouterr().err
    (tmp_path / "config" / "dlhpc").mkdir(parents=True)
    shutil.copy(CALIBRATED, tmp_path / "config" / "dlhpc" / "machine.toml")
    assert prints("predict", digits) == bare
    output = json.loads(prints("predict", digits, "--machine", "own", "--json"))
    named = json.loads(prints("predict", digits, "--machine", CALIBRATED, "--json"))
    assert output["bands"] == named["bands"]
    # Versions and processor of the shipped one are not those of whoever runs this test.
    assert all("the calibration may not hold" in note for note in output["notes"])


def test_a_rate_of_another_machine_is_no_rate_of_the_measured_one(prints):
    words = ("goyal-2017", "--machine", CALIBRATED, "--set", "strategy.nodes=2")
    output = json.loads(prints("predict", *words, "--json"))
    assert output["experiment"].get("calibration", {}).get("rate", 0.0) == 0.0
    assert output["bands"]["one step"][0] < output["step_time"] < output["bands"]["one step"][1]


def test_numbers_that_contradict_a_rate_are_reported_in_place_of_bands(
    prints, tmp_path, repository
):
    text = (repository / "labs" / "experiments" / "digits.toml").read_text()
    fast = tmp_path / "fast.toml"
    fast.write_text(text)
    saved = tmp_path / "saved.toml"
    many = ("strategy.devices_per_node=2", "strategy.bucket=1 kB")
    prints("predict", str(fast), "--machine", CALIBRATED, "--set", *many, "--save", str(saved))
    rate = 128 / (float(predict(load(saved)).communication.total) * 1.2)
    calibrated = ("--set", f"calibration.rate={rate}", "calibration.devices=2")
    output = prints("predict", str(saved), *calibrated)
    assert "no bands: calibration.rate" in output and FROM not in output


def test_bands_of_the_command_are_those_of_compare(digits, prints, tmp_path):
    saved = tmp_path / "saved.toml"
    output = prints("predict", digits, "--machine", CALIBRATED, "--json", "--save", str(saved))
    known = {name: list(band) for name, band in bands(load(saved)).items()}
    assert json.loads(output)["bands"] == {
        name: pytest.approx(band) for name, band in known.items()
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_a_rate_of_the_machine_that_the_file_names_is_dropped_and_that_is_reported(command, capsys):
    few = ("--set", "strategy.nodes=1", "strategy.devices_per_node=2", "storage.tier=")
    assert main([command, "goyal-2017", "--machine", CALIBRATED, *few]) == 0
    output = capsys.readouterr().err
    assert "calibration.rate = 1089.4 is dropped: it was measured on bigbasin" in output


def test_a_default_batch_that_nobody_trains_with_is_noticed(prints):
    said = "make 134 million tokens a step; published runs take 4 to 63 million"
    words = ("predict", "llama3-8b@h100-pod", "--quiet", "--set", "strategy.nodes=64")
    assert said in prints(*words)
    assert "million tokens" not in prints(*words, "strategy.batch=32")  # it was chosen
    assert "million tokens" not in prints(*words[:3], "--set", "strategy.nodes=16")
    assert "million tokens" not in prints("predict", "resnet50@summit", *words[2:])
