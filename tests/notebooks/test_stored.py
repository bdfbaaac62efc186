"""What the notebooks store for readers without a kernel: pictures, and text that nbval compares."""

import base64
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = sorted((Path(__file__).parents[2] / "modules").glob("*.ipynb"))
LARGEST = 200e3  # bytes of a notebook
PNG = b"\x89PNG\r\n\x1a\n"
COMPARED = {"text/plain"}  # nbval skips pictures
# Paths, addresses and times of a day are of one machine.
OF_ONE_MACHINE = re.compile(
    rf"/home/|/root|/tmp/|{re.escape(str(Path(__file__).parents[2]))}|localhost"
    r"|127\.0\.0\.1|0x[0-9a-f]{6,}|\d\d:\d\d:\d\d"
)


def cells(notebook: Path) -> list[dict]:
    every = json.loads(notebook.read_text("utf-8"))["cells"]
    return [cell for cell in every if cell["cell_type"] == "code"]


def outputs(notebook: Path, kind: str) -> list[str]:
    found = [output.get("data", {}) for cell in cells(notebook) for output in cell["outputs"]]
    return ["".join(data[kind]) for data in found if kind in data]


@pytest.mark.parametrize("notebook", MODULES, ids=lambda path: path.stem)
class TestStored:
    def test_every_cell_was_run_in_order_so_that_nbval_compares_it(self, notebook: Path):
        counts = [cell["execution_count"] for cell in cells(notebook)]
        assert counts == list(range(1, len(counts) + 1)), "run: make notebooks"
        for cell in cells(notebook):
            kinds = {kind for output in cell["outputs"] for kind in output.get("data", {})}
            assert kinds <= COMPARED | {"image/png"}, "run: make notebooks"

    def test_every_question_and_every_experiment_has_its_text_with_numbers(self, notebook: Path):
        for cell in cells(notebook):
            text = "".join("".join(o["data"].get("text/plain", "")) for o in cell["outputs"])
            source = "".join(cell["source"])
            assert text, f"nothing stored of: {source[:80]}"
            if re.search(r"lesson\.predict\(", source):
                assert "\nAnswer: " in text and re.search(r"\d", text.split("\nAnswer: ")[1])

    def test_a_reader_without_a_kernel_sees_pictures(self, notebook: Path):
        pictures = [base64.b64decode(text) for text in outputs(notebook, "image/png")]
        assert pictures and all(picture.startswith(PNG) for picture in pictures)

    def test_it_is_small_and_holds_no_state_of_widgets(self, notebook: Path):
        assert notebook.stat().st_size < LARGEST
        assert "widgets" not in json.loads(notebook.read_text("utf-8"))["metadata"]

    def test_nothing_in_it_is_of_one_machine(self, notebook: Path):
        for text in outputs(notebook, "text/plain"):
            assert not OF_ONE_MACHINE.search(text)


def test_there_are_modules():
    assert len(MODULES) >= 11


@pytest.mark.slow
def test_nbval_notices_a_number_that_is_stale(tmp_path):
    """One cell of a module, its stored answer changed by a digit."""
    whole = json.loads(MODULES[1].read_text("utf-8"))
    cell = next(cell for cell in whole["cells"] if "figure" in cell["metadata"].get("tags", ()))
    (output,) = (output for output in cell["outputs"] if "text/plain" in output["data"])
    text = "".join(output["data"]["text/plain"])
    digit = re.search(r"Answer: (\d)", text)
    assert digit
    place = digit.start(1)
    stale = f"{text[:place]}{(int(text[place]) + 1) % 10}{text[place + 1 :]}"
    output["data"]["text/plain"] = stale
    path = tmp_path / "stale.ipynb"
    path.write_text(json.dumps({**whole, "cells": [cell]}), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--nbval",
        "-p",
        "no:cacheprovider",
        "--color=no",
    ]
    run = subprocess.run([*command, str(path)], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 1 and "1 failed" in run.stdout
    assert "Cell outputs differ" in run.stdout
