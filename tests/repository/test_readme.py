"""What README shows is what the commands print, and what it tells people to type works."""

import re
import shlex
import subprocess
import sys
from statistics import median

import pytest

from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.validate import validate
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import loads


@pytest.fixture(scope="module")
def readme(repository):
    return (repository / "README.md").read_text(encoding="utf-8")


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def test_shown_output_is_what_the_command_prints(readme):
    shown = blocks(readme, "console")
    assert shown
    for block in shown:
        command, _, expected = block.partition("\n")
        line, _, tail = command.removeprefix("$ dlhpc ").partition(" | tail -")
        output = subprocess.run(
            [sys.executable, "-m", "lib_dlhpc.cli", *shlex.split(line)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        assert (output[-int(tail) :] if tail else output) == expected.splitlines(), command


def test_the_experiment_can_be_predicted(readme):
    text = next(text for text in blocks(readme, "toml") if "[model]" in text)
    prediction = predict(loads(text))
    assert 0.2 < prediction.step_time < 1
    assert prediction.fits


def test_the_python_example_runs(readme):
    for block in blocks(readme, "python"):
        exec(compile(block, "README.md", "exec"), {})


def test_links_lead_somewhere(readme, repository):
    for target in re.findall(r"\]\(([^)#:]+)\)", readme):
        assert (repository / target).exists(), target


def test_the_error_of_the_roofline_alone_is_what_readme_says(readme):
    """Every measured rate of one device that some row starts from, predicted without it."""
    measured = {}
    split = {"megatron", "korthikanti"}  # families that take seconds and never fit on one device
    for row in validate(set(catalog.names("published")) - split):
        whole = row.experiment and row.experiment.strategy.replica == 1
        if whole and row.experiment.calibration.devices == 1:
            rate = row.experiment.calibration
            one = {
                "strategy.nodes": 1,
                "strategy.devices_per_node": 1,
                "strategy.batch": rate.batch,
            }
            bare = {**one, "calibration.rate": 0.0, "storage.tier": ""}
            if rate.rate:
                predicted = predict(row.experiment.set(bare)).throughput
                measured[row.experiment.model.name, rate.rate] = abs(predicted / rate.rate - 1)
    said = re.search(
        r"(\d+) single-device rows.*?by (\d+) % in the median and by (\d+) %", readme, re.S
    )
    assert said
    count, middle, worst = (int(word) for word in said.groups())
    assert len(measured) == count
    assert round(100 * median(measured.values())) == middle
    assert round(100 * max(measured.values())) == worst
