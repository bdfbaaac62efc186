"""The explorer on a machine that was measured: it can be chosen, and says what every number of it may be off by."""

import asyncio
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lib_dlhpc.comparison.bands import bands
from lib_dlhpc.errors import SpecError
from lib_dlhpc.explore.blocks.charts import between
from lib_dlhpc.explore.explorer.controls import change, show
from lib_dlhpc.explore.explorer.measured import OTHER, OWN
from lib_dlhpc.explore.explorer.page import Explorer
from lib_dlhpc.explore.explorer.views import views
from lib_dlhpc.explore.one_step.machines import MACHINE, SHIPPED, example
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.replays import replay
from lib_dlhpc.spec.experiment import dumps, load
from lib_dlhpc.spec.measured_machine import measured_on

FROM = "90 % bands: by the intervals of the machine&#x27;s numbers, calibrated on"


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


def offered(page: Explorer) -> list[str]:
    return [value for _, value in page.controls["machine"].options]


def test_without_a_calibration_nothing_is_offered_and_nothing_has_a_band(digits: Any) -> None:
    page = Explorer(digits)
    assert OWN not in offered(page)
    assert "90 %" not in page.walls.value + page.headline.value
    assert page.figures["step"].data["span"]["low"] == []
    with pytest.raises(SpecError, match="no calibration of this machine"):
        change(digits, "machine", OWN)


def test_a_broken_calibration_is_not_offered(home: Path, digits: Any) -> None:
    home.write_text("[machine")
    assert OWN not in offered(Explorer(digits))


def test_ones_own_machine_can_be_chosen_and_left_again(calibrated: Path, digits: Any) -> None:
    page = Explorer(digits)
    assert page.controls["machine"].value == "laptop" and offered(page)[0] == OWN
    page.controls["machine"].value = OWN
    assert page.experiment.machine == measured_on(digits.machine, example())
    assert page.controls["machine"].value == OWN and FROM in page.walls.value
    page.controls["batch"].value = 32  # another move keeps it
    assert page.controls["machine"].value == OWN and FROM in page.walls.value
    page.controls["machine"].value = "laptop"
    assert page.experiment.machine.measured is None and FROM not in page.walls.value


@pytest.mark.parametrize("name", ["goyal-2017", "you-2018"])
def test_it_can_be_chosen_from_a_supercomputer(calibrated: Path, name: str) -> None:
    there = change(replay(name).experiment, "machine", OWN)
    assert there.machine.measured == example().measured and there.calibration.rate == 0
    assert views(predict(there), None, bands(there)).headline


def test_the_step_each_term_and_the_simulation_show_their_bands(
    calibrated: Path, digits: Any
) -> None:
    page = Explorer(change(digits, "machine", OWN))
    known = bands(page.experiment)
    step = between(known["one step"])
    assert f"90 % band {step}" in page.headline.value
    figure = page.figures["step"]
    assert f"({step})" in figure.summary
    assert (figure.data["span"]["low"], figure.data["span"]["high"]) == tuple(
        [end] for end in known["one step"]
    )
    parts = zip(*(figure.data["parts"][n] for n in ("row", "part", "time")), strict=True)
    for row, part, time in parts:
        assert (f"({between(known[part])})" in time) == (row == "predicted"), part
    page.play.opened.value = True
    assert "90 % band" in page.play.table.value
    forward = re.search(r">forward</th>(.*?)</tr>", page.play.table.value)
    assert forward and " to " in forward.group(1)


def test_a_file_with_a_measured_machine_is_named_as_such(digits: Any) -> None:
    page = Explorer()
    page.file.loaded = [1, dumps(replace(digits, machine=measured_on(digits.machine, example())))]
    assert page.file.problem == "" and FROM in page.walls.value
    assert page.controls["machine"].value == OTHER
    page.controls["machine"].value = "laptop"
    assert OTHER not in offered(page)


def test_an_old_calibration_is_said_to_be_old(calibrated: Path, digits: Any) -> None:
    text = calibrated.read_text()
    date = example().measured.date
    calibrated.write_text(text.replace(f'"{date}"', '"2020-01-31"'))
    page = Explorer(change(digits, "machine", OWN))
    assert "The calibration may not hold. It was measured" in page.walls.value
    assert "days ago" in page.walls.value


def test_a_split_network_waits_for_its_bands_until_the_controls_rest(
    calibrated: Path, repository: Path
) -> None:
    words = load(repository / "labs" / "experiments" / "words.toml")
    words = replace(words, machine=measured_on(words.machine, example()))

    async def moved() -> None:
        page = Explorer(words)
        page.controls["batch"].value = 32
        assert FROM not in page.walls.value
        while FROM not in page.walls.value:
            await asyncio.sleep(0.01)
        assert int(page.experiment.strategy.batch) == 32
        assert page.figures["step"].data["span"]["low"] == [bands(page.experiment)["one step"][0]]

    with ThreadPoolExecutor(1) as own:  # browser tests may have left this thread a loop that runs
        own.submit(asyncio.run, asyncio.wait_for(moved(), 180)).result()


def test_a_control_without_a_value_of_its_own_is_no_change(digits: Any) -> None:
    elsewhere = replace(digits, machine=measured_on(digits.machine, example()))
    assert change(elsewhere, "machine", OTHER) is elsewhere
    page = Explorer(elsewhere)
    show(page.controls, elsewhere)
    assert page.controls["machine"].value == OTHER
