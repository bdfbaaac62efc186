"""What README shows is what the commands print, and what it tells people to type works."""

import re
import shlex
import subprocess
import sys

import pytest

from lib_dlhpc.predict import predict
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
    (text,) = blocks(readme, "toml")
    prediction = predict(loads(text))
    assert 0.2 < prediction.step_time < 1
    assert prediction.fits


def test_the_python_example_runs(readme):
    for block in blocks(readme, "python"):
        exec(compile(block, "README.md", "exec"), {})


def test_links_lead_somewhere(readme, repository):
    for target in re.findall(r"\]\(([^)#:]+)\)", readme):
        assert (repository / target).exists(), target
