"""The explorer on a machine that was measured: it can be chosen, and every prediction of it has its band."""

import asyncio
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from experiment_page import Now
from planted import Planted

from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.charts import between
from lib_dlhpc.explore.explorer.choice import Choice, experiment_of
from lib_dlhpc.explore.explorer.measured import OTHER, OWN
from lib_dlhpc.explore.explorer.moves import moved
from lib_dlhpc.explore.explorer.page import Explorer
from lib_dlhpc.explore.explorer.panel import wanted
from lib_dlhpc.explore.explorer.presets import of_file, preset
from lib_dlhpc.explore.explorer.run import calibration
from lib_dlhpc.explore.one_step.machines import MACHINE, SHIPPED, example
from lib_dlhpc.launch.local import JobError
from lib_dlhpc.prediction.measured.bands import bands
from lib_dlhpc.spec.experiment import dumps, load
from lib_dlhpc.spec.measured_machine import measured_on

FROM = "90% bands: by the intervals of the machine&#x27;s numbers, calibrated on"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: Any) -> Path:
    """Where the user's own calibration would be."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "dlhpc").mkdir()
    return tmp_path / "dlhpc" / "machine.toml"


@pytest.fixture
def calibrated(home: Path) -> Path:
    shutil.copy(SHIPPED / MACHINE, home)
    return home


@pytest.fixture
def digits(repository: Path) -> Any:
    return load(repository / "labs" / "experiments" / "digits.toml").set(
        {"strategy.devices_per_node": 2}
    )


def machines(page: Explorer) -> Any:
    return next(c for c in page.panel.state["controls"] if c["field"] == "machine.name")


def standing(page: Explorer) -> Any:
    row = machines(page)
    return wanted(page.choice, "machine.name", row["options"][row["at"]])


def notices(page: Explorer) -> str:
    return str(page.words["notices"].value)


def test_without_a_calibration_nothing_is_offered_and_nothing_has_a_band(digits):
    page = Explorer(digits)
    assert not any("calibrated" in label for label in machines(page)["options"])
    assert "90%" not in notices(page) + page.figures["step"].summary
    with pytest.raises(SpecError, match="This machine is not calibrated"):
        moved(page.choice, "machine.name", OWN)


def test_a_broken_calibration_is_not_offered(home, digits):
    home.write_text("[machine")
    assert not any("calibrated" in label for label in machines(Explorer(digits))["options"])


def test_ones_own_machine_can_be_chosen_and_left_again(calibrated, digits):
    page = Explorer(digits)
    assert standing(page) == "laptop" and "calibrated" in machines(page)["options"][0]
    page.move("machine.name", OWN)
    assert page.experiment.machine == measured_on(digits.machine, example())
    assert standing(page) == OWN and FROM in notices(page)
    page.move("strategy.batch", 32)  # another move keeps it
    assert standing(page) == OWN and FROM in notices(page)
    page.move("machine.name", "laptop")
    assert page.experiment.machine.measured is None and FROM not in notices(page)


@pytest.mark.parametrize("name", ["goyal-2017", "you-2018", "narayanan-2021"])
def test_it_can_be_chosen_from_a_supercomputer(calibrated, name):
    choice, prediction, _ = moved(Choice(preset(name)), "machine.name", OWN)
    there = experiment_of(choice)
    assert there.machine.measured == example().measured and there.calibration.rate == 0
    assert prediction.experiment == there


def test_the_step_and_the_simulation_show_their_bands(calibrated, digits):
    page = Explorer(digits)
    page.move("machine.name", OWN)
    known = bands(page.experiment)
    figure = page.figures["step"]
    assert f"90% band: {between(known['one step'])}" in figure.summary
    span = figure.data["span"]
    assert (span["low"], span["high"]) == tuple([end] for end in known["one step"])
    page.simulation.opened.value = True
    assert "90% band" in page.simulation.table.value
    forward = re.search(r">forward</th>(.*?)</tr>", page.simulation.table.value)
    assert forward and " to " in forward.group(1)


def test_a_file_with_a_measured_machine_is_named_as_such(digits):
    page = Explorer()
    page.file.loaded = [1, dumps(replace(digits, machine=measured_on(digits.machine, example())))]
    assert page.file.problem == "" and FROM in notices(page)
    assert standing(page) == OTHER
    page.move("machine.name", OTHER)
    assert standing(page) == OTHER
    page.move("machine.name", "laptop")
    assert page.experiment.machine.measured is None


def test_an_old_calibration_is_said_to_be_old(calibrated, digits):
    text, date = calibrated.read_text(), example().measured.date
    calibrated.write_text(text.replace(f'"{date}"', '"2020-01-31"'))
    page = Explorer(digits)
    page.move("machine.name", OWN)
    assert "The calibration may not hold. It was measured" in notices(page)
    assert "days ago" in notices(page)


def test_a_split_network_waits_for_its_bands_until_the_controls_rest(calibrated, repository):
    words = load(repository / "labs" / "experiments" / "words.toml")
    words = replace(words, machine=measured_on(words.machine, example()))

    async def moves() -> None:
        page = Explorer(words)
        page.move("strategy.batch", 32)
        assert FROM not in notices(page)
        while FROM not in notices(page):
            await asyncio.sleep(0.01)
        assert int(page.experiment.strategy.batch) == 32
        low = bands(page.experiment)["one step"][0]
        assert page.figures["step"].data["span"]["low"] == [low]

    with ThreadPoolExecutor(1) as own:  # browser tests may have left this thread a loop that runs
        own.submit(asyncio.run, asyncio.wait_for(moves(), 180)).result()


def test_a_machine_from_elsewhere_survives_as_a_preset(digits):
    elsewhere = replace(digits, machine=measured_on(digits.machine, example()))
    choice = Choice(of_file(elsewhere))
    assert moved(choice, "machine.name", OTHER)[0] == choice


def test_the_button_calibrates_and_can_be_cancelled(home):
    known: list[bool] = []

    def measured(ranks: int, seconds: float, run: Any) -> dict[str, Any]:
        return Planted().raw()

    runner = calibration(lambda: known.append(home.exists()), measured, Now)
    assert "not calibrated" in runner.said.value
    runner.run.click()
    assert known == [True] and "This machine was calibrated" in runner.said.value
    assert not runner.run.disabled and runner.cancel.disabled

    def cancelled(*_: Any) -> dict[str, Any]:
        runner.cancel.click()
        raise JobError("The measurement was cancelled.")

    runner = calibration(lambda: known.append(False), cancelled, Now)
    runner.run.click()
    assert "Cancelled." in runner.said.value and known == [True]
