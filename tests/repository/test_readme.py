"""What README and docs show is what the commands print, and what they say to type works."""

import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from functools import cache
from statistics import median

import pytest
from published_rows import scored, validate_once

from lib_dlhpc import load
from lib_dlhpc.cli import main
from lib_dlhpc.prediction import predict
from lib_dlhpc.prediction.validation.published import entries, families
from lib_dlhpc.prediction.validation.validate import summary, validate
from lib_dlhpc.serving import published
from lib_dlhpc.spec.experiment import loads


@pytest.fixture(scope="module")
def pages(repository):
    """README and the pages of docs."""
    paths = [repository / "README.md", *sorted(repository.glob("docs/**/*.md"))]
    assert len(paths) > 12
    return {path: path.read_text(encoding="utf-8") for path in paths}


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@cache
def output_of(line):
    """Return the lines that a command prints, in this process: what it prices, others here price as well."""
    with redirect_stdout(io.StringIO()) as out:
        assert main(shlex.split(line)) == 0
    return out.getvalue().splitlines()


def test_shown_output_is_what_the_command_prints(pages, monkeypatch):
    validate_once(monkeypatch)
    shown = [block for text in pages.values() for block in blocks(text, "console")]
    assert len(shown) >= 5
    for block in shown:
        command, _, expected = block.partition("\n")
        line, _, tail = command.removeprefix("$ dlhpc ").partition(" | tail -")
        output = output_of(line)
        assert (output[-int(tail) :] if tail else output) == expected.splitlines(), command


def test_the_table_of_the_readme_has_the_errors_of_its_classes(pages, repository):
    errors = [abs(row.error) for row in published() if row.scored]
    found = {"serving": (len(errors), "-", f"{median(errors):.0%}", f"{max(errors):.0%}")}
    for group, of in summary(scored()).items():
        worst, middle = (f"{1 - of[each]:.0%}" for each in ("worst", "median"))
        found[group] = (of["rows"], of["ok"], middle, worst)
    rows = re.findall(
        r"^\| (?:.*`([\w -]+)`.*|data parallel) \| (\d+) \| ([\d-]+) \| (\d+%) \| (\d+%) \|$",
        pages[repository / "README.md"],
        re.MULTILINE,
    )
    assert len(rows) == 8
    for group, *numbers in rows:
        assert numbers == [str(each) for each in found[group or "data parallel"]], group


def test_a_process_of_its_own_prints_the_same():
    line = "predict goyal-2017"
    command = [sys.executable, "-m", "lib_dlhpc.cli", *shlex.split(line)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == output_of(line)


def test_the_experiment_can_be_predicted(pages, repository):
    described = pages[repository / "docs" / "guide" / "describe.md"]
    text = next(text for text in blocks(described, "toml") if "[model]" in text)
    prediction = predict(loads(text))
    assert 0.2 < prediction.step_time < 1
    assert prediction.fits


def test_the_guide_adds_up_the_bound_with_nothing_hidden(pages, repository):
    own = predict(load("goyal-2017"))
    words = " ".join(pages[repository / "docs" / "guide" / "predict.md"].split())
    messages, reading = (
        f"{1e3 * float(seconds):.3g} ms" for seconds in (own.communication.total, own.input_time)
    )
    assert f"here {messages} and {reading}." in words
    low, high = (float(bound) for bound in own.step_time_bounds)
    assert high == pytest.approx(low + float(own.communication.total + own.input_time))


def test_python_examples_run(pages):
    for path, text in pages.items():
        if path.name != "recipes.md":  # tests/docs runs these
            for block in blocks(text, "python"):
                exec(compile(block, path.name, "exec"), {})


def test_links_lead_somewhere(pages):
    for path, text in pages.items():
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (path.parent / target).exists(), (path.name, target)


def test_readme_is_two_screens_and_leads_to_each_page(pages, repository):
    readme = pages[repository / "README.md"]
    assert len(readme.splitlines()) <= 110
    linked = {(repository / target).resolve() for target in re.findall(r"\]\(([^)#:]+)\)", readme)}
    assert set(pages) - {repository / "README.md"} <= linked


def test_the_error_of_the_roofline_alone_is_what_the_guide_says(pages, repository):
    """Every measured rate of one device that some row starts from, predicted without it."""
    measured = {}
    every = [entry for table in families() for entry in entries(table, "rows")]
    # A row that starts from the rate of another network has none of its own; these take long.
    start = {entry["id"] for entry in every if "from" in entry or "scale_from" not in entry}
    for row in validate(only=start):
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
    trust = " ".join(pages[repository / "docs" / "guide" / "trust.md"].split())
    said = re.search(
        r"(\d+) single-device rows.*?by (\d+)% in the median and by (\d+)%", trust, re.S
    )
    assert said
    count, middle, worst = (int(word) for word in said.groups())
    assert len(measured) == count
    assert round(100 * median(measured.values())) == middle
    assert round(100 * max(measured.values())) == worst
